# SPDX-License-Identifier: Apache-2.0
"""Java: what the build makes: the enumerations, the fields of options, reports and states, and the overloads without a
stream. Part of scripts/gen-api."""
import re
import textwrap

import header
import methods
from header import camel, pascal

# Classes that have nothing by hand.
WHOLE = ("gsc_history_entry", "gsc_device_state", "gsc_tensor_diagnosis")
FOLDER = "bindings/java/src/main/java/io/github/gradscaler"
TYPES = {"float": "float", "double": "double", "int32_t": "int", "int64_t": "long"}
HEAD = ["// SPDX-License-Identifier: Apache-2.0", f"// {header.NOTE}", "package io.github.gradscaler;", ""]


def make_java(enum, enums):
    def spell(kind, name):
        return f"{{@link #{name}}}" if kind == enum.name else f"{{@link {kind}#{name}}}"

    sized = enum.name == "DType"
    lines = [*HEAD, *doc(header.translate(enum.comment, enums, spell), ""), f"public enum {enum.name} {{"]
    for i, (constant, name, text) in enumerate(enum.items):
        size = f", {header.bytes_of(name)}" if sized else ""
        lines += [*doc(header.translate(text, enums, spell), "  "),
                  f"  {name}(NativeCalls.{constant[len('GSC_'):]}{size})" + ("," if i + 1 < len(enum.items) else ";")]
    lines += ["", "  private final int code;"] + (["  private final int size;"] if sized else [])
    lines += ["", f"  {enum.name}(int code{', int size' if sized else ''}) {{", "    this.code = code;"]
    lines += (["    this.size = size;"] if sized else []) + ["  }", ""]
    if sized:
        lines += ["  /** Bytes of one element. */", "  public int size() {", "    return size;", "  }", ""]
    lines += ["  int code() {", "    return code;", "  }", "", f"  static {enum.name} of(int code) {{",
              f"    for ({enum.name} value : values()) {{", "      if (value.code == code) {", "        return value;",
              "      }", "    }"]
    # A status of a later library must still become an exception.
    lines.append("    return INTERNAL;" if enum.name == "Status" else
                 f"    throw new IllegalStateException(\"no {enum.name} \" + code);")
    return "\n".join([*lines, "  }", "}", ""])


def doc(text, indent):
    line = f"{indent}/** {text} */"
    if len(line) <= header.WIDTH - 4:
        return [line]
    body = textwrap.wrap(text, header.WIDTH - 4, initial_indent=f"{indent} * ", subsequent_indent=f"{indent} * ")
    return [f"{indent}/**", *body, f"{indent} */"]


# C function without _sync -> class and method, where that is not the C name in Java's spelling: from MethodNames.java.
METHODS = {}


def comment(struct, text):
    def member(kind, name):
        function = f"gsc_{kind.removeprefix('Grad').lower()}_{header.method(name)}"
        kind, name = METHODS.get(function, (kind, camel(header.method(name))))
        return f"{{@link {kind}#{name}}}"

    null = "null" if struct.name in ("gsc_scaler", "gsc_optimizer", "gsc_ops") else "0"
    text = header.words(text, struct, camel, member, "{{@link {}#{}}}".format, null)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def type_of(field):
    if field.pointer:
        return "long"
    return field.enum.name if field.enum else "boolean" if field.boolean else TYPES[field.ctype]


def get(struct, field, native):
    """The expression that reads the field of the proxy `native`."""
    get = f"{native}.get{pascal(field.name)}()"
    if field.constant:
        return f"({native}.getFlags() & NativeCalls.{field.constant}) != 0"
    if field.enum:
        return f"{field.enum.name}.of({get})"
    return f"{get} != 0" if field.boolean else get


def accessors(struct):
    """A getter and a setter for each field over the proxy `handle`, and toString."""
    kind = header.CLASSES[struct.name]
    lines = []
    for field in struct.all:
        name, value = camel(field.name), "value"
        if field.constant:
            body = f"set(NativeCalls.{field.constant}, value);"
        else:
            if field.enum:
                value = f'Check.notNull(value, "{name}").code()'
            elif field.boolean:
                value = "value ? 1 : 0"
            body = f"handle.set{pascal(field.name)}({value});"
        lines += [*doc(comment(struct, field.text), ""), f"public {type_of(field)} {name}() {{",
                  f"  return {get(struct, field, 'handle')};", "}", "",
                  f"/** Sets {{@link #{name}()}}; returns this. */",
                  f"public {kind} {name}({type_of(field)} value) {{", f"  {body}", "  return this;", "}", ""]
    if struct.flags:
        lines += ["private void set(int bit, boolean value) {",
                  "  handle.setFlags(value ? handle.getFlags() | bit : handle.getFlags() & ~bit);", "}", ""]
    names = ["kind"] * (struct.name == "gsc_optimizer_options") + [camel(field.name) for field in struct.all]
    return [*lines, *to_string(kind, names)]


def to_string(kind, names):
    """Broken before a plus, as clang-format does."""
    lines = [f'  return "{kind}({names[0]}=" + {names[0]}()']
    for piece in [*(f'", {name}=" + {name}()' for name in names[1:]), '")";']:
        if len(lines[-1]) + len(" + " + piece) <= header.WIDTH - 4:
            lines[-1] += " + " + piece
        else:
            lines.append(f"      + {piece}")
    return ["/** Every value by its name, for messages. */", "@Override", "public String toString() {", *lines, "}"]


def values(struct):
    """Private fields, the constructor that copies them out of the proxy, and getters."""
    kind = header.CLASSES[struct.name]
    everything = struct.flags + struct.fields
    lines = [f"private final {type_of(field)} {camel(field.name)};" for field in everything]
    lines += ["", f"{kind}(Native{kind} from) {{"]
    lines += [f"  {camel(field.name)} = {get(struct, field, 'from')};" for field in everything] + ["}"]
    for field in everything:
        lines += ["", *doc(comment(struct, header.addressed(field)), ""),
                  f"public {type_of(field)} {camel(field.name)}() {{",
                  f"  return {camel(field.name)};", "}"]
    return lines


def kinds(struct):
    """A factory for each kind of optimizer."""
    lines = []
    for kind in header.kinds_of(struct.enums):
        name = header.enum_pascal(kind.constant)
        name = name.lower() if name[:2].isupper() else name[0].lower() + name[1:]
        lines += ["", *doc(comment(struct, kind.text), ""), f"public static OptimizerOptions {name}() {{",
                  f"  return new OptimizerOptions(OptimizerKind.{kind.constant});", "}"]
    return lines[1:]


def getters(handle):
    lines = []
    for getter in handle.getters:
        name = camel(getter.name)
        lines += ["", *doc(comment(handle, getter.text), ""), f"public {TYPES[getter.ctype]} {name}() {{",
                  f"  return handle().{name}();", "}"]
    return lines[1:]


# Java's type of an argument of a method, and what the native method gets.
ARGUMENTS = {"list": ("TensorList", 'TensorList.handleOf({0}, "{0}")'),
             "optimizer": ("Optimizer", 'Check.notNull({0}, "{0}").handle()'),
             "struct": ("{1}", 'Check.notNull({0}, "{0}").handle()'),
             "tensors": ("Tensor[]", 'Tensor.array({0}, "{0}")'), "numbers": ("long[]", "Numbers.of({0})"),
             "scalar": ("DeviceScalar", 'DeviceScalar.{2}s({0}, "{0}")'), "flag": ("boolean", "{0} ? 1 : 0"),
             "enum": ("{1}", 'Check.notNull({0}, "{0}").code()'), "number": ("{2}", "{0}")}
NATIVE = {"tensors": "NativeTensorArray", "numbers": "NativeNumbers"}


def calls(owner):
    """Methods that call a function of their name."""
    lines = []
    static = owner.name == "gsc_ops"
    for method in methods.methods_of(owner.name, owner.header):
        parameters, values, arrays = ["Context context"] * static, [], []
        for argument in method.arguments:
            kind, value = (part.format(camel(argument.name), argument.type, TYPES.get(argument.ctype))
                           for part in ARGUMENTS[argument.kind])
            optional = argument.optional * "@Nullable "
            kind = kind.replace("[]", f" {optional}[]") if optional and "[" in kind else optional + kind
            parameters.append(f"{kind} {camel(argument.name)}")
            if argument in method.arrays:
                name = f"{camel(argument.name)}Array"
                absent = f"{argument.name} == null ? null : " * argument.optional
                arrays.append(f"{NATIVE[argument.kind]} {name} = {absent}{value}")
                value = name
            values.append(value)
        call = f"self.{camel(method.name)}({', '.join([*values, 'stream'])});"
        body = [f"final {'NativeContext' if static else f'Native{owner.name[4:].capitalize()}'} self = "
                + ("Context.handleOf(context);" if static else "handle();")]
        body += [f"try ({'; '.join(arrays)}) {{", f"  {call}", "}"] if arrays else [call]
        body += [f"java.lang.ref.Reference.reachabilityFence({camel(argument.name)});"
                 for argument in method.scalars]
        text = comment(owner, method.words(method.text, camel, camel))
        lines += ["", "// gen-api: overload", *doc(text, ""),
                  f"public {'static ' * static}void {camel(method.name)}("
                  + ", ".join([*parameters, "long stream"]) + ") {", *(f"  {line}" for line in body), "}"]
    return lines[1:]


def getter_names(handle):
    """Entries {function, method} of MethodNames."""
    return [f'{{"{getter.function}", "{pascal(handle.name.removeprefix("gsc_"))}.{camel(getter.name)}"}},'
            for getter in handle.getters]


def make_class(struct):
    """A class that has nothing by hand."""
    return header.indented([*HEAD, *doc(comment(struct, struct.text), ""),
                            f"public final class {header.CLASSES[struct.name]} {{",
                            *(f"  {line}" for line in values(struct)), "}"], "")


# Java's own class for the case.
JAVAS = {"BAD_STATE": "IllegalStateException", "INVALID_ARGUMENT": "IllegalArgumentException",
         "UNSUPPORTED": "UnsupportedOperationException"}
OF_JAVA = """
  /** Null if the failure is not about one. */
  private final FailedArgument argument;

  {name}(String message) {{
    this(message, null);
  }}

  {name}(String message, FailedArgument argument) {{
    super(message);
    this.argument = argument;
  }}

  @Override
  public @Nullable FailedArgument argument() {{
    return argument;
  }}

  @Override
  public Status status() {{
    return Status.{status};
  }}
}}
"""
OWN = """
  {name}(String message, FailedArgument argument) {{
    super(Status.{status}, message, argument);
  }}
}}
"""


def make_exception(name, status, text):
    base = JAVAS.get(status)
    parent = f"{base} implements GradScalerFailure" if base else "GradScalerException"
    lines = [*HEAD, *doc(text, ""), f"public final class {name} extends {parent} {{",
             "  private static final long serialVersionUID = 1;", ""]
    return "\n".join(lines) + (OF_JAVA if base else OWN).format(name=name, status=status)


EMITTERS = {"calls": calls, "getters": getters, "getter_names": getter_names, "accessors": accessors, "kinds": kinds,
            "values": values}
MARKED = re.compile(header.MARK, re.M)
OVERLOAD = re.compile(r"^  // gen-api: overload\n(?P<doc>  /\*\*.*?\*/\n)(?P<head>  public .*?) \{\n", re.S | re.M)
PUBLIC = re.compile(r"^(.*)\n *public ", re.M)


def overload(match):
    """A method whose last parameter is a stream, after one without, which takes the default stream. Numbers of an array
    that is then last may be given one by one."""
    text, head = match["doc"], match["head"]
    short = re.sub(r"(,\s+)?long stream\)$", ")", head)
    words = re.fullmatch(r"public (?:static )?(\S+) (\w+)\((.*)\)", " ".join(short.split()))
    short = re.sub(r"\b(long|boolean)\[\] (\w+)\)$", r"\1... \2)", short)
    if short == head or not words:
        header.fail(f"no overload of {head.strip()}")
    result, name, parameters = words.groups()
    arguments = [parameter.split()[-1] for parameter in parameters.split(", ") if parameter] + ["0"]
    body = f"{'return ' * (result != 'void')}{name}({', '.join(arguments)});"
    return f"{text}{short} {{\n    {body}\n  }}\n\n{text}{head} {{\n"


def sources(text, root):
    """{name: text} of the files of the package: those by hand with what they mark filled in, and the generated."""
    def fill(match):
        return header.indented(header.lines_of(text, EMITTERS, match[3], match[4]), match[1])

    names = (root / FOLDER / "MethodNames.java").read_text()
    METHODS.update({function: (kind, name)
                    for function, kind, name in re.findall(r'"(gsc_\w+)", "(\w+)\.(\w+)"', names)})
    enums = header.enums_of(text)
    found = {f"{enum.name}.java": make_java(enum, enums) for enum in enums}
    found |= {f"{row[0]}.java": make_exception(*row) for row in header.exceptions_of(enums)}
    found |= {f"{header.CLASSES[name]}.java": make_class(header.Struct(name, text, enums)) for name in WHOLE}
    for path in (root / FOLDER).glob("*.java"):
        if path.name in found:
            header.fail(f"the build makes {path.name}")
        found[path.name] = OVERLOAD.sub(overload, MARKED.sub(fill, path.read_text()))
        if "gen-api:" in found[path.name]:
            header.fail(f"{path} has a mark that is not understood")
        for before in PUBLIC.findall(found[path.name]):
            if not before.endswith("*/") and before.strip()[:1] != "@":
                header.fail(f"{path} has something public without a comment after `{before.strip()}`")
    return found
