# SPDX-License-Identifier: Apache-2.0
"""Functions of C++ as functions of GLSL, with everything that they use, callees before callers. A lambda becomes a
function whose captures are parameters. An object passed by reference is copied in and out."""

import re

from .expressions import Expressions, Value, zero
from .syntax import Refused, initializer
from .types import VOID, Array, Lambda, Pointer, Struct, Types, is_erased, safe_name


class Unit:
    """The GLSL of some functions."""

    def __init__(self, tree):
        self.tree = tree
        self.types = Types(tree)
        self.structs, self.struct_texts = {}, []
        self.in_memory = set()  # names in C++ of structs that are loaded or stored
        self.access = {}  # loaders and storers by name
        self.functions, self.texts = {}, []
        self.taken = {}

    def text(self):
        return "\n".join([*self.struct_texts, *self.access.values(), *self.texts])

    def declare(self, kind):
        """Writes the structs that a type needs."""
        if isinstance(kind, Array):
            return self.declare(kind.element)
        if not isinstance(kind, Struct) or kind.glsl in self.structs or is_erased(kind):
            return None
        self.structs[kind.glsl] = kind
        for entry in kind.fields:
            self.declare(entry[1])
        fields = "".join(f"  {declaration(e[1], e[0])};\n" for e in kind.fields if not is_erased(e[1]))
        self.struct_texts.append(f"struct {kind.glsl} {{\n{fields}}};")
        return None

    def loader(self, kind):
        return self._access(kind, "load")

    def storer(self, kind):
        return self._access(kind, "store")

    def _access(self, kind, what):
        if isinstance(kind, Array):
            name = f"{what}_{kind.element.glsl}_{kind.count}"
            elements = [(f"[{i}]", kind.element, i * kind.element.size) for i in range(kind.count)]
        elif isinstance(kind, Struct):
            name = f"{what}_{kind.glsl}"
            elements = [(f".{e[0]}", e[1], e[2]) for e in kind.fields if not is_erased(e[1])]
            self.in_memory.add((kind.cpp, kind.size, kind.align))
        else:
            return f"{what}_{kind.load}"
        if name in self.access:
            return name
        self.declare(kind)
        lines = []
        for place, element, offset in elements:
            inner = self._access(element, what)
            lines.append(
                f"  x{place} = {inner}(p + {offset}ul);" if what == "load" else f"  {inner}(p + {offset}ul, x{place});"
            )
        body = "\n".join(lines)
        if what == "load":
            self.access[name] = (
                f"{kind.glsl} {name}(uint64_t p) {{\n  {declaration(kind, 'x')};\n{body}\n  return x;\n}}"
            )
        else:
            self.access[name] = f"void {name}(uint64_t p, {declaration(kind, 'x')}) {{\n{body}\n}}"
        return name

    def unique(self, name):
        count = self.taken[name] = self.taken.get(name, -1) + 1
        return f"{name}_{count}"

    def entry(self, name):
        """Translates the function of this name in gsc::vulkan or gsc, unless there is none or more than one."""
        for scope in ("gsc::vulkan::", "gsc::"):
            found = self.tree.functions.get(scope + name, ())
            if len(found) == 1:
                self.functions[found[0]["id"], ()] = name
                Function(self, found[0]).emit(name, {}, ())
                return


def declaration(kind, name):
    return f"{kind.element.glsl} {name}[{kind.count}]" if isinstance(kind, Array) else f"{kind.glsl} {name}"


class Function(Expressions):
    def __init__(self, unit, node):
        self.unit, self.tree, self.types, self.node = unit, unit.tree, unit.types, node
        self.names, self.this = {}, None
        self.lines, self.pre, self.post = [], [], []
        self.local_count = {}
        self.result = self._result_type()

    # The parts of a function.

    def _result_type(self):
        returned = _first_return(self._body())
        if returned is None:
            return VOID
        return self.types.of(returned["type"], returned["_at"])

    def _body(self):
        body = next((c for c in self.node.get("inner", ()) if c.get("kind") == "CompoundStmt"), None)
        if body is None:
            raise Refused(f"{self.node['_at']}: {self.node.get('name')} has no body")
        return body

    def parameters(self):
        return [c for c in self.node.get("inner", ()) if c.get("kind") == "ParmVarDecl"]

    def is_written(self, parameter):
        return self._direction(parameter, False) == "inout"

    def returns_reference(self):
        return self.node["type"]["qualType"].split("(")[0].rstrip().endswith("&")

    def emit(self, name, arrays, captures):
        """Writes the function. `arrays`: the types of pointers to arrays of the caller, by position. `captures`: (id of
        the variable, its value in the caller, whether it is constant)."""
        outer = self.types.local_records, self.types.local_aliases
        self.types.local_records, self.types.local_aliases = {}, {}
        parts = []
        if self.this is not None:
            parts.append(f"const in {declaration(self.this.type, 'self')}")
            self.this = Value("self", self.this.type)
        for position, node in enumerate(self.parameters()):
            kind = arrays.get(position) or self.types.of(node["type"], node["_at"])
            if isinstance(kind, Lambda) or is_erased(kind):
                continue
            self.unit.declare(kind)
            local = self.local(node.get("name", "unused"))
            direction = self._direction(node, position in arrays)
            if direction == "in" and not isinstance(kind, Struct) and _is_only_read(self._body(), node["id"]):
                direction = "const in"  # which glslang passes without a copy
            parts.append(f"{direction} {declaration(kind, local)}")
            self.names[node["id"]] = Value(local, kind)
        for identity, value, is_const in captures:
            local = self.local(self.tree.of_id[identity]["name"])
            kind = Pointer(value.type) if value.in_memory else value.type
            direction = "const in" if is_const or value.in_memory else "inout"
            parts.append(f"{direction} {declaration(kind, local)}")
            self.names[identity] = Value(local, value.type, value.in_memory)
        self.statement(self._body())
        if self.result is not VOID:
            self.unit.declare(self.result)
            self.lines.append(f"return {zero(self.result)};")
        result = "void" if self.result is VOID else self.result.glsl
        body = "\n".join("  " + line for line in self.lines)
        self.unit.texts.append(f"{result} {name}({', '.join(parts)}) {{\n{body}\n}}")
        self.types.local_records, self.types.local_aliases = outer
        return name

    @staticmethod
    def _direction(node, is_array):
        text = node["type"]["qualType"].strip()
        if is_array or text.endswith("&") or "(&)" in text:
            return "const in" if text.startswith("const ") else "inout"
        return "in"

    def local(self, name):
        count = self.local_count[name] = self.local_count.get(name, -1) + 1
        return safe_name(name) if count == 0 else f"{name}_{count}"

    def temporary(self, kind, text):
        self.unit.declare(kind)
        name = self.local("held")
        self.pre.append(f"{declaration(kind, name)} = {text};")
        return name

    # Calls.

    def call(self, identity, node, arguments, this):
        target = self.tree.of_id[identity]
        callee = Function(self.unit, target)
        if callee.returns_reference():
            return self.inline(callee, arguments)
        captures, texts, arrays = [], [], {}
        if target["name"] == "operator()":
            self._add_captures(self.tree.parent[identity], captures)
        if this is not None:
            texts.append(this.text)
            callee.this = this
        lambdas = _lambdas_of(target)
        for position, (parameter, argument) in enumerate(zip(callee.parameters(), arguments, strict=True)):
            kind = self.types.of(parameter["type"], parameter["_at"])
            if argument["kind"] == "CXXDefaultArgExpr":
                argument = initializer(parameter)
            if isinstance(kind, Lambda):
                self._add_captures(self.tree.of_id[lambdas.pop(0)], captures)
                continue
            if is_erased(kind):
                continue
            texts.append(self._argument(parameter, kind, argument, arrays, position))
        captured = [(i, self.names[i], _is_constant(self.tree.of_id[i])) for i in dict.fromkeys(captures)]
        texts += [value.text for _, value, _ in captured]
        key = (identity, tuple(arrays))
        if key not in self.unit.functions:
            self.unit.functions[key] = self.unit.unique(self._name(target))
            callee.emit(self.unit.functions[key], arrays, captured)
        return Value(f"{self.unit.functions[key]}({', '.join(texts)})", callee.result)

    def _name(self, target):
        if target["name"] == "operator()":
            return "lambda"
        record = self.tree.parent.get(target["id"])
        while record and "name" not in record:
            record = self.tree.parent.get(record.get("id"))
        is_class = record and record["kind"].endswith(("RecordDecl", "SpecializationDecl"))
        prefix = record["name"] + "_" if is_class else ""
        return re.sub(r"\W+", "_", prefix + target["name"])

    def _argument(self, parameter, kind, argument, arrays, position):
        value = self.value(argument)
        if isinstance(kind, Pointer) and isinstance(value.type, Array):
            arrays[position] = value.type
            return value.text
        if not self.is_written(parameter) or not value.in_memory:
            return self.load(value)
        held = self.temporary(value.type, self.load(value))
        self.post.append(f"{self.unit.storer(value.type)}({value.text}, {held});")
        return held

    def _add_captures(self, record, captures):
        """The variables that a lambda reads or writes, those of lambdas that it calls included."""
        found = self.tree.parent[record["id"]] if record.get("kind") == "CXXRecordDecl" else None
        while record is not None and record.get("kind") != "CXXRecordDecl":
            record = self.tree.parent.get(record.get("id"))
            found = self.tree.parent.get(record["id"]) if record else None
        expression = found
        for part in expression.get("inner", ())[1:-1]:
            while part["kind"] != "DeclRefExpr":
                part = part["inner"][0]
            identity = part["referencedDecl"]["id"]
            if identity in self.tree.lambda_of_variable:
                self._add_captures(self.tree.of_id[self.tree.lambda_of_variable[identity]], captures)
            elif identity in self.names:
                captures.append(identity)

    def inline(self, callee, arguments):
        """A function that returns a reference: one expression in terms of its arguments."""
        statements = callee._body()["inner"]
        if len(statements) != 1 or statements[0]["kind"] != "ReturnStmt":
            self.refuse(callee.node, "a function that returns a reference and is longer than one expression")
        before = dict(self.names)
        for parameter, argument in zip(callee.parameters(), arguments, strict=True):
            self.names[parameter["id"]] = self.value(argument)
        result = self.value(statements[0]["inner"][0])
        self.names = before
        return result

    # Statements.

    def flush(self, text=""):
        self.lines += self.pre
        if text:
            self.lines.append(text)
        self.lines += self.post
        self.pre, self.post = [], []

    def condition(self, node):
        """Of a loop, which is evaluated many times."""
        text = self.rvalue(node)
        if self.pre or self.post:
            self.refuse(node, "a change of memory in a loop's condition")
        return text

    def block(self, node):
        outer, self.lines = self.lines, []
        self.statement(node)
        inner, self.lines = self.lines, outer
        return inner

    def nested(self, head, node):
        self.lines.append(head + " {")
        self.lines += ["  " + line for line in self.block(node)]
        self.lines.append("}")

    def statement(self, node):
        method = getattr(self, "do_" + node["kind"], None)
        if method is not None:
            return method(node)
        value = self.value(node)
        self.flush(f"{value.text};" if value.text else "")
        return None

    def do_CompoundStmt(self, node):
        for child in node.get("inner", ()):
            self.statement(child)

    def do_NullStmt(self, _node):
        pass

    def do_BreakStmt(self, _node):
        self.lines.append("break;")

    def do_ContinueStmt(self, _node):
        self.lines.append("continue;")

    def do_DeclStmt(self, node):
        for child in node["inner"]:
            if child["kind"] == "VarDecl":
                self.variable(child)
            elif child["kind"] == "CXXRecordDecl":
                self.types.local_records[child["name"]] = child
            elif child["kind"] in ("TypeAliasDecl", "TypedefDecl"):
                named = child["type"]
                self.types.local_aliases[child["name"]] = named.get("desugaredQualType", named["qualType"])
            elif child["kind"] not in ("StaticAssertDecl", "UsingDecl"):
                self.refuse(child, child["kind"])

    def variable(self, node):
        if node["id"] in self.tree.lambda_of_variable:
            return
        kind = self.types.of(node["type"], node["_at"])
        start = initializer(node)
        if node["type"]["qualType"].rstrip().endswith("&"):
            value = self.value(start)
            if value.in_memory:
                self.flush()
                name = self.local(node["name"])
                self.lines.append(f"uint64_t {name} = {value.text};")
                value = Value(name, value.type, True)
            self.names[node["id"]] = value
            return
        text = self.rvalue(start) if start else zero(kind)
        if is_erased(kind):
            return
        self.unit.declare(kind)
        name = self.local(node["name"])
        self.flush(f"{declaration(kind, name)} = {text};")
        self.names[node["id"]] = Value(name, kind)

    def do_ReturnStmt(self, node):
        if not node.get("inner"):
            self.lines.append("return;")
            return
        value = self.value(node["inner"][0])
        if value.type is VOID:
            self.flush(f"{value.text};")
            self.lines.append("return;")
        elif self.post:
            self.flush(f"{declaration(value.type, 'result_')} = {self.load(value)};")
            self.lines.append("return result_;")
        else:
            self.flush(f"return {self.load(value)};")

    def do_IfStmt(self, node):
        parts = node["inner"]
        if node.get("hasInit") or node.get("hasVar"):
            self.refuse(node, "an if with a declaration")
        if node.get("isConstexpr"):
            chosen = 1 if parts[0].get("value") == "true" else 2
            if chosen < len(parts):
                self.statement(parts[chosen])
            return
        text = self.rvalue(parts[0])
        self.flush()
        self.nested(f"if ({text})", parts[1])
        if len(parts) > 2:
            self.nested("else", parts[2])

    def do_ForStmt(self, node):
        start, variable, test, step, body = node["inner"]
        if variable.get("kind"):
            self.refuse(node, "a for with a declared condition")
        self.lines.append("{")
        inner, outer = [], self.lines
        self.lines = inner
        if start.get("kind"):
            self.statement(start)
        text = self.condition(test) if test.get("kind") else "true"
        change = self.condition(step) if step.get("kind") else ""
        self.nested(f"for (; {text}; {change})", body)
        self.lines = outer
        self.lines += ["  " + line for line in inner] + ["}"]

    def do_WhileStmt(self, node):
        self.nested(f"while ({self.condition(node['inner'][0])})", node["inner"][1])

    def do_SwitchStmt(self, node):
        text = self.rvalue(node["inner"][0])
        self.flush()
        self.nested(f"switch ({text})", node["inner"][1])

    def do_CaseStmt(self, node):
        value = node["inner"][0]
        self.lines.append(f"case {value['value']}:")
        self.statement(node["inner"][-1])

    def do_DefaultStmt(self, node):
        self.lines.append("default:")
        self.statement(node["inner"][0])


def _first_return(node):
    if node.get("kind") == "ReturnStmt" and node.get("inner"):
        value = node["inner"][0]
        return value if value["type"]["qualType"] != "void" else None
    if node.get("kind") == "LambdaExpr":
        return None
    for child in node.get("inner", ()):
        found = _first_return(child)
        if found is not None:
            return found
    return None


def _is_only_read(node, identity):
    """Returns whether each use of a number is the load of its value."""
    for child in node.get("inner", ()):
        is_use = child.get("kind") == "DeclRefExpr" and child["referencedDecl"]["id"] == identity
        if is_use and node.get("castKind") != "LValueToRValue":
            return False
        if child.get("inner") and not _is_only_read(child, identity):
            return False
    return True


def _lambdas_of(function):
    """The classes of lambdas among a function's template arguments, by id."""
    result = []
    for argument in function.get("inner", ()):
        if argument.get("kind") == "TemplateArgument":
            for part in argument.get("inner", ()):
                if part.get("kind") == "RecordType" and not part["decl"].get("name"):
                    result.append(part["decl"]["id"])
    return result


def _is_constant(variable):
    text = variable["type"]["qualType"].strip()
    return text.startswith("const ")
