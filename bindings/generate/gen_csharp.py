# SPDX-License-Identifier: Apache-2.0
"""C#: the enumerations and exceptions, and the members of classes that come from the header, in files <class>.g.cs.
Part of scripts/gen-api."""
import api
import methods
from api import camel, pascal

FOLDER = "bindings/csharp/src"

TYPES = {"float": "float", "double": "double", "int32_t": "int", "int64_t": "long"}


def summary(text):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = f"/// <summary>{text}</summary>"
    if len(line) <= api.WIDTH - 4:
        return [line]
    return ["/// <summary>", *api.wrapped(text, "/// "), "/// </summary>"]


# Methods that are not called like their functions.
NAMES = {"GradScaler.Check": "GradScaler.CheckGrads"}


def member(kind, name):
    name = f"{kind}.{pascal(api.method(name))}"
    return NAMES.get(name, name)


def constant(kind, item):
    return f"{kind}.{item.pascal}"


# Fields that are pointers are IntPtr; objects and arrays are not.
VALUES = api.Language(pascal, member, constant, "IntPtr.Zero", status=api.EXCEPTIONS.get)
METHODS = VALUES._replace(null="null")


def make_enum(enum, interface):
    owner = interface.type("gsc_optimizer")
    lines = ["", *summary(METHODS.words(enum.text, owner)), f"public enum {enum.name}", "{"]
    for item in enum.items:
        lines += [*(f"  {line}" for line in summary(METHODS.words(item.text, owner))),
                  f"  {item.pascal} = NativeCalls.{item.native},"]
    return [*lines, "}"]


def make_exception(name, status):
    return ["", *summary(status.text), f"public sealed class {name} : GradScalerException", "{",
            f"  internal {name}(string message)", f"      : base(Status.{status.pascal}, message)", "  {",
            "  }", "}"]


def make_sizes(enum):
    lines = ["", "internal static class DTypes", "{", "  internal static int SizeOf(DType dtype)",
             "  {", "    switch (dtype)", "    {"]
    for item in enum.items:
        lines += [f"      case DType.{item.pascal}:", f"        return {api.bytes_of(item.name)};"]
    return [*lines, "      default:",
            '        throw new InvalidArgumentException("dtype " + (int)dtype + " is unknown");', "    }", "  }", "}"]


def make_class(interface, name, emitter):
    """A class of values, or the part of another class that comes from the header."""
    kind = interface.type(name)
    if emitter == values:
        first = [*summary(VALUES.words(kind.text, kind)), f"public sealed class {class_of(name)}"]
    else:
        first = [f"partial class {class_of(name)}"]
    return ["", *first, "{", *(f"  {line}" for line in emitter(kind)), "}"]


def type_of(field):
    if field.pointer:
        return "IntPtr"
    return field.enum.name if field.enum else "bool" if field.boolean else TYPES[field.ctype]


def get(field, native):
    get = f"{native}.{pascal(field.name)}"
    if field.constant:
        return f"({native}.Flags & NativeCalls.{field.constant}) != 0"
    if field.enum:
        return f"({field.enum.name}){get}"
    return f"{get} != 0" if field.boolean else get


def properties(struct):
    """Over the proxy Handle."""
    lines = []
    for field in struct.all:
        name = pascal(field.name)
        if field.constant:
            bit = f"(uint)NativeCalls.{field.constant}"
            set_ = f"Handle.Flags = value ? Handle.Flags | {bit} : Handle.Flags & ~{bit};"
        else:
            value = "(int)value" if field.enum else "value ? 1 : 0" if field.boolean else "value"
            set_ = f"Handle.{name} = {value};"
        lines += ["", *summary(VALUES.described(field, struct)), f"public {type_of(field)} {name}", "{",
                  f"  get {{ return {get(field, 'Handle')}; }}"]
        line = f"  set {{ {set_} }}"
        lines += [line] if len(line) + 4 <= api.WIDTH else ["  set", "  {", f"    {set_}", "  }"]
        lines.append("}")
    return lines[1:]


def values(struct):
    """Read-only properties, and the constructor that copies them out of the proxy."""
    kind = class_of(struct.name)
    everything = struct.flags + struct.fields
    lines = [f"internal {kind}(Native{kind} from)", "{",
             *(f"  {pascal(field.name)} = {get(field, 'from')};" for field in everything), "}"]
    for field in everything:
        lines += ["", *summary(VALUES.words(api.addressed(field), struct)),
                  f"public {type_of(field)} {pascal(field.name)} {{ get; private set; }}"]
    return lines


def getters(handle):
    lines = []
    for getter in handle.getters:
        name = pascal(getter.name)
        lines += ["", *summary(VALUES.words(getter.text, handle)), f"public {TYPES[getter.ctype]} {name}", "{",
                  f"  get {{ return Handle.{name}(); }}", "}"]
    return lines[1:]


# C#'s type of an argument of a method, and what the native method gets.
ARGUMENTS = {"list": ("TensorList", 'TensorList.HandleOf({0}, "{0}")'),
             "optimizer": ("Optimizer", 'Check.NotNull({0}, "{0}").Handle'),
             "struct": ("{1}", 'Check.NotNull({0}, "{0}").Handle'),
             "tensors": ("Tensor[]", 'Tensor.Array({0}, "{0}", {3})'), "numbers": ("long[]", "Numbers.Of({0})"),
             "scalar": ("DeviceScalar", 'DeviceScalar.{2}s({0}, "{0}")'), "flag": ("bool", "{0} ? 1 : 0"),
             "enum": ("{1}", "(int){0}"), "number": ("{2}", "{0}")}


def calls(owner):
    """Methods that call a function of their name."""
    lines = []
    static = owner.name == "gsc_ops"
    for method in methods.methods_of(owner.name, owner.api):
        parameters, values, arrays = ["Context context"] * static, [], []
        for argument in method.arguments:
            name = camel(argument.name)
            type_ = TYPES.get(argument.ctype, "")
            type_ = type_ if argument.kind == "number" else type_.capitalize()
            device = "context.Type" if static else "device"
            kind, value = (part.format(name, argument.type, type_, device) for part in ARGUMENTS[argument.kind])
            parameters.append(f"{kind} {name}" + f" = {kind}.L2" * (argument.kind == "enum"))
            if argument in method.arrays:
                absent = f"{name} == null ? null : " * argument.optional
                arrays.append(f"using (var {name}Array = {absent}{value})")
                value = f"{name}Array"
            values.append(value)
        name = pascal(method.name)
        call = f"self.{name}({', '.join([*values, 'stream'])});"
        name = NAMES.get(f"GradScaler.{name}", name).split(".")[-1]
        lines += ["", *summary(METHODS.words(method.text, owner, method.names)),
                  f"public {'static ' * static}void {name}("
                  + ", ".join([*parameters, "IntPtr stream = default"]) + ")", "{",
                  f"  var self = {'Context.HandleOf(context)' if static else 'Handle'};",
                  *(f"  {line}" for line in [*arrays, *(["{", f"  {call}", "}"] if arrays else [call])]),
                  *(f"  GC.KeepAlive({camel(argument.name)});" for argument in method.scalars), "}"]
    return lines[1:]


def optimizer(handle):
    return [*getters(handle), "", *calls(handle)]


CLASSES = {"gsc_scaler_options": properties, "gsc_optimizer_options": properties, "gsc_scaler_state": properties,
           "gsc_report": values, "gsc_history_entry": values, "gsc_device_state": values,
           "gsc_tensor_diagnosis": values, "gsc_optimizer": optimizer, "gsc_scaler": calls, "gsc_ops": calls}
PARTIAL = {"gsc_optimizer": "Optimizer", "gsc_scaler": "GradScaler", "gsc_ops": "Ops"}


def class_of(name):
    return api.CLASSES.get(name) or PARTIAL[name]


def make_file(body):
    head = f"// SPDX-License-Identifier: Apache-2.0\n// {api.NOTE}\nusing System;\n\nnamespace Gradscaler\n{{\n"
    return head + api.indented(body[1:], "  ") + "}\n"


def files(interface, _):
    """{path: text}: enumerations, exceptions, and a file for each class."""
    found = {"Enumerations": [line for enum in interface.enums for line in make_enum(enum, interface)]
             + make_sizes(interface.enum("DType")),
             "StatusExceptions": [line for row in api.exceptions_of(interface) for line in make_exception(*row)]}
    for name, emitter in CLASSES.items():
        found[class_of(name)] = make_class(interface, name, emitter)
    return {f"{FOLDER}/{name}.g.cs": make_file(body) for name, body in found.items()}
