# SPDX-License-Identifier: Apache-2.0
"""C#: the enumerations, and the fields of options, reports and states, which the build makes. Part of
scripts/gen-api."""
import header
import methods
from header import camel, pascal

TYPES = {"float": "float", "double": "double", "int32_t": "int", "int64_t": "long"}


def summary(text):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = f"/// <summary>{text}</summary>"
    if len(line) <= header.WIDTH - 4:
        return [line]
    return ["/// <summary>", *header.wrapped(text, "/// "), "/// </summary>"]


# Methods that are not called like their functions.
NAMES = {"GradScaler.Check": "GradScaler.CheckGrads"}


def comment(struct, text, null="IntPtr.Zero"):
    def member(kind, name):
        name = f"{kind}.{pascal(header.method(name))}"
        return NAMES.get(name, name)

    return summary(header.words(text, struct, pascal, member, spell_enum, null))


def spell_enum(kind, name):
    return f"{kind}.{header.enum_pascal(name)}"


def make_enum(enum, enums):
    def documented(text):
        return summary(header.translate(text, enums, spell_enum))

    lines = ["", *documented(enum.comment), f"public enum {enum.name}", "{"]
    for constant, name, text in enum.items:
        lines += [*(f"  {line}" for line in documented(text)),
                  f"  {header.enum_pascal(name)} = NativeCalls.{constant[len('GSC_'):]},"]
    return [*lines, "}"]


def make_exception(name, status, text):
    return ["", *summary(text), f"public sealed class {name} : GradScalerException", "{",
            f"  internal {name}(string message)", f"      : base(Status.{header.enum_pascal(status)}, message)", "  {",
            "  }", "}"]


def make_sizes(enum):
    lines = ["", "internal static class DTypes", "{", "  internal static int SizeOf(DType dtype)",
             "  {", "    switch (dtype)", "    {"]
    for _, name, _ in enum.items:
        lines += [f"      case DType.{header.enum_pascal(name)}:", f"        return {header.bytes_of(name)};"]
    return [*lines, "      default:",
            '        throw new InvalidArgumentException("dtype " + (int)dtype + " is unknown");', "    }", "  }", "}"]


def make_class(text, name, emitter):
    """A class of values, or the part of another class that comes from the header."""
    kind = header.type_of(text, name)
    if emitter == values:
        first = [*comment(kind, kind.text), f"public sealed class {header.CLASSES[name]}"]
    else:
        first = [f"partial class {header.CLASSES.get(name) or PARTIAL[name]}"]
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
        lines += ["", *comment(struct, field.text), f"public {type_of(field)} {name}", "{",
                  f"  get {{ return {get(field, 'Handle')}; }}"]
        line = f"  set {{ {set_} }}"
        lines += [line] if len(line) + 4 <= header.WIDTH else ["  set", "  {", f"    {set_}", "  }"]
        lines.append("}")
    return lines[1:]


def values(struct):
    """Read-only properties, and the constructor that copies them out of the proxy."""
    kind = header.CLASSES[struct.name]
    everything = struct.flags + struct.fields
    lines = [f"internal {kind}(Native{kind} from)", "{",
             *(f"  {pascal(field.name)} = {get(field, 'from')};" for field in everything), "}"]
    for field in everything:
        lines += ["", *comment(struct, header.addressed(field)),
                  f"public {type_of(field)} {pascal(field.name)} {{ get; private set; }}"]
    return lines


def getters(handle):
    lines = []
    for getter in handle.getters:
        name = pascal(getter.name)
        lines += ["", *comment(handle, getter.text), f"public {TYPES[getter.ctype]} {name}", "{",
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
    for method in methods.methods_of(owner.name, owner.header):
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
        text = method.words(method.text, camel, pascal)
        lines += ["", *comment(owner, text, "null"), f"public {'static ' * static}void {name}("
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


def sources(text, _):
    """{name: text} of the files that the build adds to those of bindings/csharp/src."""
    enums = header.enums_of(text)
    lines = ["using System;", "", "namespace Gradscaler", "{"]
    body = [line for enum in enums for line in make_enum(enum, enums)]
    body += [line for row in header.exceptions_of(enums) for line in make_exception(*row)]
    body += make_sizes(next(enum for enum in enums if enum.name == "DType"))
    for name, emitter in CLASSES.items():
        body += make_class(text, name, emitter)
    head = f"// SPDX-License-Identifier: Apache-2.0\n// {header.NOTE}\n"
    return {"FromHeader.cs": head + header.indented(lines, "") + header.indented(body[1:], "  ") + "}\n"}
