# SPDX-License-Identifier: Apache-2.0
"""Reads the C headers with a parser of C into what bindings/api.json holds. Part of scripts/gen-api.

gradscaler.h is the stable interface. Headers of experiments, which include it, follow under the key "experimental".

Declarations come from pycparser. Facts that C cannot express are tags in the comments of the header, such as
@default{2000}; docs/dev/bindings.md lists them. A tag that is not in TAGS, or is misplaced, is an error. The rest of a
comment is prose, which is copied and never interpreted.
"""
import pathlib
import re
import sys

# Where scripts/setup puts pycparser, for an interpreter that does not look there.
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "build/tools"
sys.path += ["/usr/lib/python3/dist-packages", *map(str, TOOLS.glob("lib/python*/site-packages"))]
try:
    import pycparser
    from pycparser import c_ast
    from pycparser.c_generator import CGenerator
except ImportError:
    pycparser = None

# Headers that use gradscaler.h, and of which nothing is promised.
EXPERIMENTS = ("vulkan.h",)
# What each tag may describe.
TAGS = {
    "type": "enum", "flags_of": "enum", "extends": "enum", "name": "enumerator", "reserved": "enumerator",
    "slots": "enumerator", "options": "enumerator", "norms": "enumerator",
    "bool": "field function", "enum": "field function", "default": "field", "range": "field", "none": "field",
    "jax": "field enumerator", "nullable": "function", "count": "function", "device": "function",
}
RANGE = re.compile(r"finite|>=? -?[0-9.^]+|-?[0-9^]+\.\.[0-9^]+|[\[(][0-9.]+, [0-9.]+[\])]")
NUMBER = r"-?[0-9][0-9.]*(?:e-?[0-9]+)?"


class HeaderError(Exception):
    """`line` is where in the header, if it is known."""

    def __init__(self, message, line=None):
        super().__init__(message)
        self.line = line


def fail(line, message):
    raise HeaderError(message, line)


class Comment:
    """A /** ... */ block: its prose, in which a blank line parts paragraphs, its tags, and the line where it ends."""

    def __init__(self, text, first_line):
        self.line, self.used = first_line + text.count("\n"), False
        lines = (re.sub(r"^\s*\* ?", "", line).strip() for line in text[3:-2].splitlines())
        self.tags = {}
        prose = re.sub(r"@(\w+)(?:\{([^{}]*)\})?", self._take, "\n".join(lines))
        paragraphs = (re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", prose))
        self.text = "\n\n".join(part for part in paragraphs if part)

    def _take(self, tag):
        name, value = tag.groups()
        if name not in TAGS:
            fail(self.line, f"@{name} is no tag; there are: {', '.join(sorted(TAGS))}")
        self.tags.setdefault(name, []).append(value and re.sub(r"\s+", " ", value))
        return ""

    def tags_of(self, kind):
        """{tag: [values]}; fails for one that does not describe such a declaration."""
        self.used = True
        for name in self.tags:
            if kind not in TAGS[name].split():
                fail(self.line, f"@{name} does not describe a {kind}")
        return self.tags


NO_COMMENT = Comment("/***/", 0)


def without_comments(text):
    """The code, with as many lines, and the comments by the line after each."""
    comments = {}

    def blank(found):
        if found[0].startswith("/**"):
            comment = Comment(found[0], text.count("\n", 0, found.start()) + 1)
            comments[comment.line + 1] = comment
        return re.sub(r"[^\n]", " ", found[0])

    return re.sub(r"/\*.*?\*/", blank, text, flags=re.S), comments


def without_directives(code):
    """The code as C sees it that defines GSC_STATIC, with as many lines, and the macros {name: value}."""
    defined, macros, lines = {"GSC_STATIC"}, {}, []
    conditions = []  # of each level: whether its present branch counts, and whether one has counted

    def counts():
        return all(now for now, _ in conditions)

    for number, line in enumerate(re.sub(r"\\\n", "\f", code).split("\n"), 1):
        directive = re.match(r"\s*#\s*(\w+)\s*(.*)", line.replace("\f", " "), re.S)
        if not directive:
            lines.append(line if counts() else "")
            continue
        lines.append("\n" * line.count("\f"))
        word, rest = directive[1], directive[2].strip()
        if word in ("if", "ifdef", "ifndef", "elif"):
            name = re.fullmatch(r"(?:defined\()?(\w+)\)?", rest)
            if not name:
                fail(number, f"the condition `{rest}` is more than one name")
            holds = (name[1] in defined) != (word == "ifndef")
            _, taken = conditions.pop() if word == "elif" else (False, False)
            conditions.append((holds and not taken, holds or taken))
        elif word == "else":
            _, taken = conditions.pop()
            conditions.append((not taken, True))
        elif word == "endif":
            conditions.pop()
        elif word == "define" and counts():
            name, parameters, value = re.match(r"(\w+)(\([^)]*\))?\s*(.*)", rest, re.S).groups()
            defined.add(name)
            if value and not parameters:
                macros[name] = value.strip()
    return re.sub(r"\bGSC_API\b", "", "\n".join(lines)), macros


def type_text(node):
    """A type as C writes it, such as "const gsc_tensor *"; the elements of an array come apart."""
    text = CGenerator()._generate_type(node, emit_declname=False).strip()
    return re.sub(r"\s+", " ", text).replace("* const", "*const")


def parameters_of(function):
    found = []
    for parameter in function.args.params if function.args else []:
        if not (isinstance(parameter, c_ast.Typename) and type_text(parameter.type) == "void"):
            found.append({"name": parameter.name, "type": type_text(parameter.type)})
    return found


class Header:
    """Reads what a header declares, as `api`. That of an experiment may use types of `stable`, the content of
    gradscaler.h."""

    def __init__(self, text, stable=None):
        if pycparser is None:
            raise HeaderError("cannot be read without the Python package pycparser; `scripts/setup tests` installs it")
        self.stable, self.prefix = stable, "gscx_" if stable else "gsc_"
        code, self.comments = without_comments(text)
        code, self.macros = without_directives(code)
        names = ["uint8_t", "int32_t", "uint32_t", "int64_t", "uint64_t"]
        if stable:
            names += ["gsc_status", "gsc_stream", *stable["handles"]]
            names += [item["name"] for key in ("callbacks", "structs") for item in stable[key]]
        known = "".join(f"typedef int {name};" for name in names)
        # Macros that are values, and the initializers of structs, are read as C, too.
        self.initializers = {name: value for name, value in self.macros.items() if name.endswith("_INIT")}
        extra = "".join(f"\n{name.removesuffix('_INIT').lower()} {name} = {value};"
                        for name, value in self.initializers.items())
        self.tree = pycparser.CParser().parse(known + code + extra)
        self.api = {"constants": self.constants(), "enums": [], "handles": [], "callbacks": [], "structs": [],
                    "functions": []}
        if not stable:
            version = ".".join(self.macros[f"GSC_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))
            self.api = {"version": version, **self.api}
        for node in self.tree.ext[len(names):]:
            self.declaration(node)
        self.check()

    def comment(self, line, kind):
        comment = self.comments.get(line, NO_COMMENT)
        return comment.text, dict(comment.tags_of(kind))

    def constants(self):
        """Macros that are whole numbers."""
        found = []
        for name, value in self.macros.items():
            number = re.fullmatch(r"\(?(-?(?:0x[0-9a-fA-F]+|[0-9]+))(u?)\)?", value)
            if number:
                found.append({"name": name, "value": number[1], "unsigned": bool(number[2])})
        return found

    def declaration(self, node):
        line = node.coord.line
        if isinstance(node, c_ast.Typedef):
            kind = node.type.type if isinstance(node.type, (c_ast.TypeDecl, c_ast.PtrDecl)) else None
            if isinstance(kind, c_ast.Struct):
                self.struct(kind)
            elif isinstance(kind, c_ast.FuncDecl):
                text, _ = self.comment(line, "callback")
                self.api["callbacks"].append({"name": node.name, "text": text, "result": type_text(kind.type),
                                              "parameters": parameters_of(kind)})
            else:
                self.comment(line, "typedef")
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
            self.enum(node.type)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct):
            self.struct(node.type)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            self.function(node)
        elif not (isinstance(node, c_ast.Decl) and node.name in self.initializers):
            fail(line, "a declaration that gen-api does not know")

    def enum(self, node):
        text, tags = self.comment(node.coord.line, "enum")
        items = []
        for item in node.values.enumerators:
            prose, own = self.comment(item.coord.line, "enumerator")
            items.append({"name": item.name, "value": int(CGenerator().visit(item.value), 0), "text": prose,
                          **self.enumerator_facts(item, own)})
        enum = {"text": text, "items": items}
        kind = "extends" if self.stable else "flags_of" if "flags_of" in tags else "type"
        if kind not in tags:
            fail(node.coord.line, "an enumeration has @type{Name PREFIX_} or @flags_of{struct PREFIX_}, and that of an "
                 "experiment @extends{Name PREFIX_}")
        enum[kind], enum["prefix"] = tags[kind][0].split()
        for item in items:
            if not item["name"].startswith(enum["prefix"]) and item["value"] != 0:
                fail(node.coord.line, f"{item['name']} does not start with {enum['prefix']}")
        self.api["enums"].append(enum)

    def enumerator_facts(self, item, tags):
        facts = {}
        if "name" in tags:
            facts["class"] = tags["name"][0]
        if "reserved" in tags:
            facts["reserved"] = True
        for tag in ("jax", "norms"):
            if tag in tags:
                facts[tag] = True
        if "slots" in tags:
            facts["slots"] = [self.slot(item, text) for text in tags["slots"][0].split(";")]
            # A comma inside of a range does not part options.
            facts["options"] = dict(self.option(item, text)
                                    for text in re.split(r",(?![^(\[]*[)\]])", tags["options"][0]))
        return facts

    def slot(self, item, text):
        """`name: holds`, with ` if <option or flag>`, and `, <holds> if <flag>` for what it holds then."""
        found = re.fullmatch(r"\s*(\w+): (\w+)(?:, (\w+) if (\w+))?(?: if (\w+))?\s*", text)
        if not found:
            fail(item.coord.line, f"{item.name}: cannot read the slot `{text.strip()}`")
        name, holds, other, other_if, if_ = found.groups()
        slot = {"name": name, "holds": holds}
        if other:
            slot["instead"] = {"holds": other, "if": other_if}
        if if_:
            slot["if"] = if_
        return slot

    def option(self, item, text):
        """`name default`, with ` in <range>` where the kind narrows it; `name` alone is a flag."""
        found = re.fullmatch(rf"\s*(\w+)(?: ({NUMBER})(?: in (.*?))?)?\s*", text)
        if not found or found[3] and not RANGE.fullmatch(found[3]):
            fail(item.coord.line, f"{item.name}: cannot read the option `{text.strip()}`")
        name, default, narrowed = found.groups()
        return name, {} if default is None else {"default": default, **({"range": narrowed} if narrowed else {})}

    def struct(self, node):
        if node.decls is None:
            if node.coord and (text := self.comments.get(node.coord.line)):
                text.used = True
            if node.name not in self.api["handles"]:
                self.api["handles"].append(node.name)
            return
        text, _ = self.comment(node.coord.line, "struct")
        fields = []
        for field in node.decls:
            prose, tags = self.comment(field.coord.line, "field")
            array = field.type if isinstance(field.type, c_ast.ArrayDecl) else None
            found = {"name": field.name, "type": type_text(array.type if array else field.type), "text": prose}
            if array:
                found["elements"] = int(array.dim.value)
            for tag in ("enum", "default", "range", "none"):
                if tag in tags:
                    found[tag] = tags[tag][0]
            for tag in ("bool", "jax"):
                if tag in tags:
                    found[tag] = True
            if "range" in found and not RANGE.fullmatch(found["range"]):
                fail(field.coord.line, f"cannot read the range `{found['range']}`")
            fields.append(found)
        self.api["structs"].append({"name": node.name, "text": text, "fields": fields})

    def function(self, node):
        text, tags = self.comment(node.coord.line, "function")
        parameters = parameters_of(node.type)
        by_name = {parameter["name"]: parameter for parameter in parameters}

        def of(tag, name):
            if name not in by_name:
                fail(node.coord.line, f"@{tag} names {name}, which {node.name} does not take")
            return by_name[name]

        for tag in ("nullable", "device", "bool"):
            for value in tags.get(tag, []):
                for name in (value or "").split():
                    of(tag, name)[tag] = True
        for tag in ("enum", "count"):
            for value in tags.get(tag, []):
                name, fact = value.split()
                of(tag, name)[tag] = fact
                if tag == "count":
                    of(tag, fact)
        self.api["functions"].append({"name": node.name, "text": text, "result": type_text(node.type.type),
                                      "parameters": parameters})

    def check(self):
        """Checks what a parser of C does not see."""
        api = self.api
        handles = {struct["name"] for struct in api["structs"]}
        api["handles"] = [name for name in api["handles"] if name not in handles]
        all_enums = [*api["enums"], *(self.stable["enums"] if self.stable else [])]
        enums = {enum["type"] for enum in all_enums if "type" in enum}
        constants = {item["name"] for enum in all_enums for item in enum["items"]}
        self.check_names()
        for enum in api["enums"]:
            if enum.get("extends", "DType") not in enums:
                raise HeaderError(f"@extends names {enum['extends']}, which is no enumeration of gradscaler.h")
        for comment in self.comments.values():
            if not comment.used and comment.tags:
                fail(comment.line, "the tags of this comment describe nothing")
        for struct in api["structs"]:
            for field in struct["fields"]:
                where = f"{struct['name']}.{field['name']}"
                if field.get("enum", "DType") not in enums:
                    raise HeaderError(f"{where}: there is no enumeration {field['enum']}")
                if "enum" in field and field.get("default", "GSC_OK") not in constants:
                    raise HeaderError(f"{where}: {field['default']} is no constant")
        for function in api["functions"]:
            for parameter in function["parameters"]:
                if re.fullmatch(r"(?:const )?(gscx?_(?!status$|stream$|\w+_fn$)\w+)", parameter["type"]):
                    raise HeaderError(f"{function['name']}: {parameter['name']} is passed by value, which not every "
                                      "language can do")
                if parameter.get("enum", "DType") not in enums:
                    raise HeaderError(f"{function['name']}: there is no enumeration {parameter['enum']}")
        if not self.stable:
            self.check_optimizers(constants)
        self.check_initializers()

    def check_names(self):
        """Checks that names show which header they belong to."""
        names = [*self.api["handles"], *(item["name"] for key in ("callbacks", "structs", "functions")
                                         for item in self.api[key])]
        names += [item["name"] for enum in self.api["enums"] for item in enum["items"]]
        names += [macro["name"] for macro in self.api["constants"]]
        for name in names:
            if not name.startswith((self.prefix, self.prefix.upper())):
                raise HeaderError(f"{name} does not begin with {self.prefix} or {self.prefix.upper()}")

    def check_optimizers(self, constants):
        fields = {field["name"]: field for struct in self.api["structs"] if struct["name"] == "gsc_optimizer_options"
                  for field in struct["fields"]}
        kinds = next(enum for enum in self.api["enums"] if enum.get("type") == "OptimizerKind")
        for kind in kinds["items"]:
            for key in ("class", "slots", "options"):
                if key not in kind:
                    raise HeaderError(f"{kind['name']} lacks @{ {'class': 'name'}.get(key, key)}")
            for name, option in kind["options"].items():
                if option and name not in fields:
                    raise HeaderError(f"{kind['name']}: there is no option {name}")
                if option and ("range" not in fields[name] or "default" in fields[name]):
                    raise HeaderError(f"{kind['name']}: the option {name} needs a @range, and no @default, which each "
                                      "kind has in its @options")
                if not option and f"GSC_OPTIMIZER_{name.upper()}" not in constants:
                    raise HeaderError(f"{kind['name']}: there is no flag {name}")
        used = {name for kind in kinds["items"] for name in kind["options"]}
        for name, field in fields.items():
            if "range" in field and "default" not in field and name not in used:
                raise HeaderError(f"gsc_optimizer_options.{name}: no kind has it in its @options; if all kinds use it, "
                                  "it has a @default")

    def check_initializers(self):
        """The values of the _INIT macros are the fields' defaults."""
        structs = {struct["name"]: struct["fields"] for struct in self.api["structs"]}
        for node in self.tree.ext:
            if not isinstance(node, c_ast.Decl) or node.name not in self.initializers:
                continue
            fields = structs[node.type.type.names[0]]
            values = node.init.exprs
            if len(values) != len(fields):
                fail(node.coord.line, f"{node.name} has {len(values)} values, the struct {len(fields)} fields")
            for field, value in zip(fields, values, strict=True):
                if field["name"] == "struct_size":
                    continue
                text = CGenerator().visit(value)
                wanted = field.get("default", "0")
                same = text == wanted or re.match(NUMBER, text) and re.match(NUMBER, wanted) \
                    and float(text.rstrip("f")) == float(wanted)
                if not same:
                    fail(node.coord.line, f"{node.name} sets {field['name']} to {text}, but its @default is {wanted}")


def texts(folder):
    """The arguments of `read`, from the folder of the headers."""
    stable, *experiments = ((folder / name).read_text(encoding="utf-8") for name in ("gradscaler.h", *EXPERIMENTS))
    return stable, dict(zip(EXPERIMENTS, experiments, strict=True))


def read(stable, experiments=None):
    """The content of api.json, from the text of gradscaler.h and {name: text} of the headers of experiments."""
    api, experimental = read_one("gradscaler.h", stable), {}
    for name, of_experiment in (experiments or {}).items():
        for key, items in read_one(name, of_experiment, api).items():
            experimental.setdefault(key, []).extend(items)
    return {**api, "experimental": experimental}


def read_one(name, text, stable=None):
    try:
        return Header(text, stable).api
    except HeaderError as error:
        raise HeaderError(f"{name}:{error.line}: {error}" if error.line else f"{name}: {error}") from None
