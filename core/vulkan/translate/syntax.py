# SPDX-License-Identifier: Apache-2.0
"""The syntax tree of a C++ file as clang prints it, with an index of its declarations and the place of every node."""

import json
import subprocess


class Refused(Exception):
    """Raised for text that cannot be translated; the message names the place."""


class Tree:
    """`clang` compiles `source`. Nodes are clang's dictionaries; `_at` of each is its file and line."""

    def __init__(self, clang, source, includes):
        command = [clang, "-std=c++20", "-fsyntax-only", "-ffp-contract=off", "-Xclang", "-ast-dump=json"]
        command += [f"-I{path}" for path in includes] + [str(source)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise Refused(f"{clang} refuses {source}:\n{done.stderr.decode()}")
        self.root = json.loads(done.stdout)
        self.of_id = {}
        self.parent = {}
        self.records = {}  # by qualified name without template arguments' spaces: list of nodes
        self.aliases = {}
        self.functions = {}  # free functions by qualified name
        self.constants = {}  # variables by name
        self.enum_values = {}
        self.enum_types = {}
        self.enumerators = {}
        self.lambda_of_variable = {}
        self._file, self._line = "", 0
        self._walk(self.root, None, ())

    def _note_place(self, place):
        if not place:
            return
        for part in (place.get("spellingLoc"), place.get("expansionLoc")):
            self._note_place(part)
        self._file = place.get("file", self._file)
        self._line = place.get("line", self._line)

    def _walk(self, node, parent, scope):
        self._note_place(node.get("loc"))
        span = node.get("range", {})
        self._note_place(span.get("begin"))
        node["_at"] = f"{self._file}:{self._line}"
        self._note_place(span.get("end"))
        kind, name = node.get("kind"), node.get("name", "")
        if "id" in node and kind:
            first = self.of_id.setdefault(node["id"], node)
            if first is not node and "inner" in node and "inner" not in first:
                self.of_id[node["id"]] = node
            self.parent.setdefault(node["id"], parent)
        inner_scope = scope
        if kind in ("NamespaceDecl", "CXXRecordDecl", "ClassTemplateSpecializationDecl", "EnumDecl"):
            self._name_of_record = name
            if kind == "ClassTemplateSpecializationDecl":
                name += f"<{', '.join(_argument_text(a) for a in _inner(node, 'TemplateArgument'))}>"
            inner_scope = (*scope, name)
        qualified = "::".join((*scope, name))
        if kind in ("CXXRecordDecl", "ClassTemplateSpecializationDecl") and node.get("completeDefinition"):
            self.records.setdefault(qualified, []).append(node)
            node["_name"] = qualified
        elif kind in ("TypedefDecl", "TypeAliasDecl"):
            self.aliases.setdefault(qualified, node)
        elif kind == "FunctionDecl" and any(c.get("kind") == "CompoundStmt" for c in node.get("inner", ())):
            self.functions.setdefault(qualified, []).append(node)
        elif kind == "VarDecl":
            self.constants.setdefault(name, node)
            found = _lambda_in(node)
            if found:
                self.lambda_of_variable[node["id"]] = found["id"]
        elif kind == "EnumDecl":
            self._read_enum(node, qualified)
        for child in node.get("inner", ()):
            self._walk(child, node, inner_scope)

    def _read_enum(self, node, qualified):
        fixed = node.get("fixedUnderlyingType", {})
        self.enum_types[qualified] = fixed.get("desugaredQualType", fixed.get("qualType", "unsigned int"))
        value = -1
        for constant in _inner(node, "EnumConstantDecl"):
            value += 1
            for part in constant.get("inner", ()):
                text = _constant_in(part)
                if text is not None:
                    value = int(text)
            self.enum_values[constant["id"]] = value
            self.enumerators[f"{qualified}::{constant['name']}".replace("gsc::", "")] = str(value)


def initializer(node):
    """Of a variable, a field or a parameter; None if there is none."""
    for child in node.get("inner", ()):
        if child.get("kind", "").endswith(("Expr", "Literal", "Operator", "Cleanups")):
            return child
    return None


def _inner(node, kind):
    return [c for c in node.get("inner", ()) if c.get("kind") == kind]


def _argument_text(argument):
    if "type" in argument:
        text = argument["type"].get("desugaredQualType", argument["type"]["qualType"])
        return text.replace("gsc::", "")
    return str(abs(int(argument.get("value", 0))))  # clang writes true as -1


def _constant_in(node):
    if node.get("kind") == "ConstantExpr":
        return node.get("value")
    for child in node.get("inner", ()):
        found = _constant_in(child)
        if found is not None:
            return found
    return None


def _lambda_in(variable):
    """The lambda's class if the variable is one."""
    node = variable
    while node.get("inner") and node["kind"] in (
        "VarDecl",
        "ExprWithCleanups",
        "ImplicitCastExpr",
        "MaterializeTemporaryExpr",
        "CXXBindTemporaryExpr",
        "CXXConstructExpr",
    ):
        node = node["inner"][0]
        if node.get("kind") == "LambdaExpr":
            return node["inner"][0]
    return None
