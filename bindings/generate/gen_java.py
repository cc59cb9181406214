# SPDX-License-Identifier: Apache-2.0
"""Java: the enumerations and exceptions as files, and in other files the members that come from the header: fields of
options, reports and states, methods that call a function of their name, and overloads without a stream. Part of
scripts/gen-api."""
import re
import textwrap

import api
import methods
from api import camel, pascal

# Classes that have nothing by hand.
WHOLE = ("gsc_history_entry", "gsc_device_state", "gsc_tensor_diagnosis")
FOLDER = "bindings/java/src/main/java/io/github/gradscaler"
TYPES = {"float": "float", "double": "double", "int32_t": "int", "int64_t": "long"}
HEAD = ["// SPDX-License-Identifier: Apache-2.0", f"// {api.NOTE}", "package io.github.gradscaler;", ""]


def make_java(enum, interface):
    def constant(kind, item):
        return f"{{@link #{item.name}}}" if kind == enum.name else f"{{@link {kind}#{item.name}}}"

    language, owner = METHODS._replace(constant=constant), interface.type("gsc_optimizer")
    sized = enum.name == "DType"
    lines = [*HEAD, *doc(escaped(language.words(enum.text, owner)), ""), f"public enum {enum.name} {{"]
    for i, item in enumerate(enum.items):
        size = f", {api.bytes_of(item.name)}" if sized else ""
        lines += [*doc(escaped(language.words(item.text, owner)), "  "),
                  f"  {item.name}(NativeCalls.{item.native}{size})"
                  + ("," if i + 1 < len(enum.items) else ";")]
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
    if len(line) <= api.WIDTH - 4:
        return [line]
    body = textwrap.wrap(text, api.WIDTH - 4, initial_indent=f"{indent} * ", subsequent_indent=f"{indent} * ")
    return [f"{indent}/**", *body, f"{indent} */"]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# C function without _sync -> class and method, where that is not the C name in Java's spelling: from MethodNames.java.
NAMES = {}


def member(kind, name):
    function = f"gsc_{kind.removeprefix('Grad').lower()}_{api.method(name)}"
    kind, name = NAMES.get(function, (kind, camel(api.method(name))))
    return f"{{@link {kind}#{name}}}"


# Fields that are pointers are longs; objects and arrays are not.
VALUES = api.Language(camel, member, lambda kind, item: f"{{@link {kind}#{item.name}}}", "0",
                      status=lambda name: f"{{@link {api.EXCEPTIONS[name]}}}")
METHODS = VALUES._replace(null="null")


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
    kind = api.CLASSES[struct.name]
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
        lines += [*doc(escaped(VALUES.described(field, struct)), ""), f"public {type_of(field)} {name}() {{",
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
        if len(lines[-1]) + len(" + " + piece) <= api.WIDTH - 4:
            lines[-1] += " + " + piece
        else:
            lines.append(f"      + {piece}")
    return ["/** Every value by its name, for messages. */", "@Override", "public String toString() {", *lines, "}"]


def values(struct):
    """Private fields, the constructor that copies them out of the proxy, and getters."""
    kind = api.CLASSES[struct.name]
    everything = struct.flags + struct.fields
    lines = [f"private final {type_of(field)} {camel(field.name)};" for field in everything]
    lines += ["", f"{kind}(Native{kind} from) {{"]
    lines += [f"  {camel(field.name)} = {get(struct, field, 'from')};" for field in everything] + ["}"]
    for field in everything:
        lines += ["", *doc(escaped(VALUES.words(api.addressed(field), struct)), ""),
                  f"public {type_of(field)} {camel(field.name)}() {{",
                  f"  return {camel(field.name)};", "}"]
    return lines


def kinds(struct):
    """A factory for each kind of optimizer."""
    lines = []
    for kind in struct.api.kinds:
        name = kind.pascal.lower() if kind.pascal[:2].isupper() else kind.pascal[0].lower() + kind.pascal[1:]
        text = VALUES.words(api.described_kind(kind), struct)
        lines += ["", *doc(escaped(text), ""), f"public static OptimizerOptions {name}() {{",
                  f"  return new OptimizerOptions(OptimizerKind.{kind.constant});", "}"]
    return lines[1:]


def getters(handle):
    lines = []
    for getter in handle.getters:
        name = camel(getter.name)
        lines += ["", *doc(escaped(VALUES.words(getter.text, handle)), ""), f"public {TYPES[getter.ctype]} {name}() {{",
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
    for method in methods.methods_of(owner.name, owner.api):
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
        text = doc(escaped(METHODS.words(method.text, owner, method.names)), "")
        head = f"public {'static ' * static}void {camel(method.name)}({', '.join([*parameters, 'long stream'])})"
        lines += ["", *without_stream(head), "", *text, f"{head} {{", *(f"  {line}" for line in body), "}"]
    return lines[1:]


def getter_names(handle):
    """Entries {function, method} of MethodNames."""
    return [f'{{"{getter.function}", "{pascal(handle.name.removeprefix("gsc_"))}.{camel(getter.name)}"}},'
            for getter in handle.getters]


def make_class(struct):
    """A class that has nothing by hand."""
    return api.indented([*HEAD, *doc(escaped(VALUES.words(struct.text, struct)), ""),
                            f"public final class {api.CLASSES[struct.name]} {{",
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


def make_exception(name, status):
    base = JAVAS.get(status.name)
    parent = f"{base} implements GradScalerFailure" if base else "GradScalerException"
    lines = [*HEAD, *doc(status.text, ""), f"public final class {name} extends {parent} {{",
             "  private static final long serialVersionUID = 1;", ""]
    return "\n".join(lines) + (OF_JAVA if base else OWN).format(name=name, status=status.name)


EMITTERS = {"calls": calls, "getters": getters, "getter_names": getter_names, "accessors": accessors, "kinds": kinds,
            "values": values}
# A method whose last parameter is a stream stands behind such a region, which has the overload without one.
OVERLOAD = re.compile(r"^  // gen-api: overload\n(?:(?!  // gen-api)[^\n]*\n)*  // gen-api: end\n\n"
                      r"(?P<doc>  /\*\*.*?\*/\n)(?P<head>  public .*?) \{\n", re.S | re.M)
PUBLIC = re.compile(r"^(.*)\n *public ", re.M)


def without_stream(head):
    """The overload of the method that begins with `head` and whose last parameter is a stream: it takes the default
    stream. Numbers of an array that is then last may be given one by one."""
    short = re.sub(r"(,\s+)?long stream\)$", ")", head)
    words = re.fullmatch(r"public (?:static )?(\S+) (\w+)\((.*)\)", " ".join(short.split()))
    if short == head or not words:
        api.fail(f"no overload of {head.strip()}")
    short = re.sub(r"\b(long|boolean)\[\] (\w+)\)$", r"\1... \2)", short)
    result, name, parameters = words.groups()
    split = [parameter.split() for parameter in parameters.split(", ") if parameter]
    types = ["".join(word for word in words[:-1] if word[0] != "@") for words in split] + ["long"]
    text = doc(f"As {{@link #{name}({', '.join(types)})}} on the default stream.", "")
    arguments = [words[-1] for words in split] + ["0"]
    body = f"{'return ' * (result != 'void')}{name}({', '.join(arguments)});"
    return [*text, f"{short} {{", f"  {body}", "}"]


def overload(match):
    lines = without_stream(match["head"].replace("  public", "public", 1))
    return ("  // gen-api: overload\n" + api.indented(lines, "  ") + "  // gen-api: end\n\n" + match["doc"]
            + match["head"] + " {\n")


def files(interface, root):
    """{path: text} of the files that are generated, and of those by hand with what they mark filled in."""
    names = (root / FOLDER / "MethodNames.java").read_text(encoding="utf-8")
    NAMES.update({function: (kind, name)
                  for function, kind, name in re.findall(r'"(gsc_\w+)", "(\w+)\.(\w+)"', names)})
    whole = {f"{enum.name}.java": make_java(enum, interface) for enum in interface.enums}
    whole |= {f"{name}.java": make_exception(name, status) for name, status in api.exceptions_of(interface)}
    whole |= {f"{api.CLASSES[name]}.java": make_class(interface.type(name)) for name in WHOLE}
    found = api.regions(interface, root, FOLDER, EMITTERS)
    for path in sorted((root / FOLDER).glob("*.java")):
        if path.name in whole:
            continue
        name = path.relative_to(root).as_posix()
        text = OVERLOAD.sub(overload, found.get(name) or path.read_text(encoding="utf-8"))
        for before in PUBLIC.findall(text):
            if not before.endswith("*/") and before.strip()[:1] != "@":
                api.fail(f"{name} has something public without a comment after `{before.strip()}`")
        found[name] = text
    return found | {f"{FOLDER}/{name}": text for name, text in whole.items()}
