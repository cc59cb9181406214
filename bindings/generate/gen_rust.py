# SPDX-License-Identifier: Apache-2.0
"""Rust, for both crates. bindings.rs, experimental.rs and layout.rs of gradscaler-sys: the declarations of the C
interface and of its experiments, and tests of its recorded layout. declared.rs of gradscaler: enumerations, structs,
options and getters. The macros are in lib.rs and tests.rs of the one and in mirrors.rs of the other. Part of
scripts/gen-api."""
import re
import textwrap

import gen_layout
import gen_table
from api import (
    CLASSES,
    NOTE,
    Language,
    bytes_of,
    described_kind,
    fail,
    indented,
    method,
    on_one_line,
)

WIDTH = 100
TYPES = {"void": "c_void", "char": "c_char", "int32_t": "i32", "int64_t": "i64", "uint8_t": "u8", "uint32_t": "u32",
         "uint64_t": "u64", "float": "f32", "double": "f64"}
HEAD = ["// SPDX-License-Identifier: Apache-2.0", f"// {NOTE}"]


def doc(text):
    """Rustdoc in which nothing of the text is a tag or emphasis, or a link that it did not write as [`...`]."""
    pieces = re.split(r"(\[?`[^`]*`(?:\](?:\([\w:]*\))?)?)", text)
    pieces[::2] = [re.sub(r"([\[\]<*])", r"\\\1", piece) for piece in pieces[::2]]
    lines = textwrap.wrap("".join(pieces), WIDTH, initial_indent="/// ", subsequent_indent="/// ",
                          break_on_hyphens=False, break_long_words=False)
    return [line.replace("/// >", "/// \\>", 1) for line in lines]


class Declarations:
    """The C interface, or the experiments that use it, as api.json has them: in the order of the headers."""

    def __init__(self, data, uses=()):
        self.data, self.callbacks, self.names = data, set(), {"gsc_status", "gsc_stream"}
        for declared in (*uses, data):
            self.callbacks |= {callback["name"] for callback in declared["callbacks"]}
            self.names |= {*declared["handles"], *(struct["name"] for struct in declared["structs"])}
        self.names |= self.callbacks

    def rust_type(self, text):
        """`const char *const *` -> `*const *const c_char`."""
        words = re.findall(r"\w+|\*", text)
        base = [word for word in words if word not in ("const", "*")]
        if len(base) != 1 or base[0] not in TYPES and base[0] not in self.names:
            fail(f"no Rust for the C type `{text}`")
        result, const = TYPES.get(base[0], base[0]), words[0] == "const"
        for i, word in enumerate(words):
            if word == "*":
                result = f"*{'const' if const else 'mut'} {result}"
                const = words[i + 1:i + 2] == ["const"]
        return result

    def nullable(self, text):
        """The type of a field or a parameter, where a callback may be NULL."""
        kind = self.rust_type(text)
        return f"Option<{kind}>" if kind in self.callbacks else kind

    def signature(self, parameters, result, type_of):
        listed = ", ".join(f"{name}: {type_of(kind)}" for name, kind in parameters)
        return f"({listed}) -> {'()' if result == 'void' else self.rust_type(result)};"

    def constants(self):
        lines = [f"pub const {macro['name']}: {'u32' if macro['unsigned'] else 'i32'} = {macro['value']};"
                 for macro in self.data["constants"]]
        for enum in self.data["enums"]:
            kind = "u32" if "flags_of" in enum else "gsc_status" if enum.get("type") == "Status" else "i32"
            for item in enum["items"]:
                lines += [*doc(item["text"]), f"pub const {item['name']}: {kind} = {item['value']};"]
        return lines

    def callback_types(self):
        lines = []
        for callback in self.data["callbacks"]:
            parameters = [(p["name"], p["type"]) for p in callback["parameters"]]
            signature = self.signature(parameters, callback["result"], self.rust_type).replace(" -> ()", "")
            lines += [*doc(callback["text"]), f'pub type {callback["name"]} = unsafe extern "C" fn{signature}']
        return lines

    def rows(self):
        """For the macro structs!."""
        lines = []
        for struct in self.data["structs"]:
            lines += [*doc(struct["text"]), f"{struct['name']} {{"]
            for field in struct["fields"]:
                kind = self.nullable(field["type"])
                kind = f"[{kind}; {field['elements']}]" if "elements" in field else kind
                lines += [*doc(field["text"]), f"    {field['name']}: {kind},"]
            lines.append("}")
        return lines

    def functions(self, names):
        """For the macros functions! and experiments!."""
        by_name = {function["name"]: function for function in self.data["functions"]}
        lines = []
        for name in names:
            function = by_name[name]
            parameters = [(parameter["name"], parameter["type"]) for parameter in function["parameters"]]
            signature = self.signature(parameters, function["result"], self.nullable)
            lines += [*doc(on_one_line(function["text"])), f"    {re.sub('^gscx?_', '', name)} {name}{signature}"]
        return lines


def bindings(declared, headers, macro, functions):
    handles = [f"handle! {{ {name} }}" for name in declared.data["handles"] if name != "gsc_api"]
    lines = [HEAD[0], HEAD[1].replace("gradscaler.h", headers), *declared.constants(), *handles,
             *declared.callback_types()]
    return indented([*lines, "structs! {", *declared.rows(), "}", f"{macro}! {{", *declared.functions(functions), "}"],
                    "")


def member(kind, name):
    kind, name = kind.removeprefix("Tensor"), method(name).removeprefix("get_")
    return f"[`{kind}::{name}`](crate::{kind}::{name})"


RUST = Language("`{}`".format, member, lambda kind, item: f"[`{kind}::{item.pascal}`](crate::{kind}::{item.pascal})",
                "NULL")
def linked(text, api):
    """Rustdoc of a text in Rust's words, with links to the enumerations that it names."""
    for enum in api.enums:
        text = re.sub(rf"(?<!\[`)\b{enum.name}\b(?!::)", f"[`{enum.name}`]", text)
    return doc(text)


def spelled(text, owner):
    return linked(RUST.words(text, owner), owner.api)


def enumerations(api):
    lines, owner = ["enumerations! {"], api.type("gsc_optimizer")
    for enum in api.enums:
        lines += [*spelled(enum.text, owner), f"{enum.name} {{"]
        for item in enum.items:
            module = "experimental::" * item.experimental
            lines += [*spelled(item.text, owner), f"    {item.pascal} = {module}{item.constant},"]
        lines.append("}")
    sizes = [f"            Self::{item.pascal} => {bytes_of(item.name)}," for item in api.enum("DType").items]
    return [*lines, "}", "impl DType {", "    /// Bytes of an element.",
            "    pub(crate) const fn bytes(self) -> usize {", "        match self {", *sizes, "        }", "    }", "}"]


def type_of(field):
    if field.pointer:
        return f"*const {TYPES[field.ctype]}"
    return field.enum.name if field.enum else "bool" if field.boolean else TYPES[field.ctype]


def value_of(field):
    """The default as a literal of the field's type."""
    if field.enum:
        return f"{field.enum.name}::{field.enum.item(field.default).pascal}"
    if field.boolean:
        return RUST.value(field)
    return field.default if field.ctype[:3] == "int" or "." in field.default else f"{field.default}.0"


def flags(struct):
    return [line for flag in struct.flags
            for line in (*spelled(flag.text, struct), f"    {flag.name} = GSC_{flag.constant},")]


def options(struct, about, rows):
    """For the macro options!, of rows (comment, `name: type = default`)."""
    lines = ["options! {", f"/// {about}", f"{CLASSES[struct.name]} of {struct.name} {{"]
    for text, row in rows:
        lines += [*linked(text, struct.api), f"    {row},"]
    return [*lines, "} flags {", *flags(struct), "} }"]


def scaler_options(struct):
    rows = [(RUST.described(field, struct), f"{field.name}: {type_of(field)} as {type_of(field)} = {value_of(field)}")
            for field in struct.fields]
    return options(struct, "The policy of a [`GradScaler`](crate::GradScaler). The default is PyTorch's.", rows)


def optimizer_options(struct):
    about = "Hyper-parameters of an optimizer or of a group of its tensors. `None` is the default of the kind."
    rows = [(RUST.described(field, struct), f"{field.name}: Option<{type_of(field)}> as {type_of(field)} = None")
            for field in struct.fields]
    lines = options(struct, about, [("The update formula.", "kind: OptimizerKind = OptimizerKind::AdamW"), *rows])
    lines.append("impl OptimizerOptions {")
    for kind in struct.api.kinds:
        lines += [*spelled(described_kind(kind), struct), f"    pub const fn {kind.constant.lower()}() -> Self {{",
                  f"        Self::new(OptimizerKind::{kind.pascal})", "    }"]
    return [*lines, "}"]


# What a caller only reads: counts are unsigned, and an index that may be missing is an Option.
READ = {"gsc_report": "#[non_exhaustive]", "gsc_history_entry": "#[derive(Copy)] #[non_exhaustive]",
        "gsc_device_state": "#[derive(Copy)] #[non_exhaustive]", "gsc_tensor_diagnosis": "#[non_exhaustive]"}
HISTOGRAM = ["/// Bin `b` counts the finite values `x` with `floor(log2(|x|)) == b + EXPONENT_MIN`; see",
             "/// [`recommend_scale`](crate::recommend_scale).", "    histogram: Vec<i64>,"]


def mirror(struct):
    """For the macro mirror!."""
    read = struct.name in READ
    lines = ["mirror! {", *spelled(struct.text, struct), READ.get(struct.name, "#[derive(Copy)]"),
             f"{CLASSES[struct.name].removeprefix('Tensor')} of {struct.name} {{"]
    for field in struct.fields:
        kind, text = type_of(field), field.text
        if read and field.name.startswith("first_"):
            kind, text = "Option<usize>", re.sub("; -1 if (there is )?none", "", text)
        elif read and kind == "i64":
            kind = "u64"
        lines += [*spelled(text, struct), f"    {field.name}: {kind},"]
    more = HISTOGRAM if struct.name == "gsc_tensor_diagnosis" else []
    return [*lines, "} flags {", *flags(struct), "} more {", *more, "} }"]


def getters(handle):
    """Whole numbers are counts."""
    lines = ["impl Optimizer<'_> {"]
    for getter in handle.getters:
        result, cast = (TYPES[getter.ctype], "") if getter.ctype in ("float", "double") else ("usize", " as usize")
        lines += [*spelled(getter.text, handle), f"    pub fn {getter.name}(&self) -> Result<{result}> {{",
                  f"        let mut value = {'0' if cast else '0.0'};",
                  f"        call!(self.{getter.function[len('gsc_'):]}(&mut value))?;", f"        Ok(value{cast})",
                  "    }"]
    return [*lines, "}"]


def declared(api):
    lines = [*HEAD, *enumerations(api), *scaler_options(api.type("gsc_scaler_options")),
             *optimizer_options(api.type("gsc_optimizer_options")), *getters(api.type("gsc_optimizer"))]
    for name in (*READ, "gsc_scaler_state"):
        lines += mirror(api.type(name))
    return indented(lines, "")


def layout(numbers):
    """A test for structs and one for constants."""
    sizes, offsets, values = gen_layout.numbers_of(numbers)
    lines = [*HEAD, "#[test]", '#[cfg(target_pointer_width = "64")]', "fn structs_have_the_recorded_layout() {"]
    lines += [f'    assert_eq!(size_of::<{name}>(), {size}, "{name}");' for name, size in sizes.items()]
    lines += [f"    offset!({name}.{field}, {offset});"
              for name, fields in offsets.items() for field, offset in fields.items()]
    lines += ["}", "#[test]", "fn constants_have_the_recorded_values() {"]
    lines += [f'    assert_eq!(i64::from({name}), {value.rstrip("u")}, "{name}");' for name, value in values.items()]
    return indented([*lines, "}"], "")


def files(api, root):
    """{path: text}"""
    sys = "bindings/rust/gradscaler-sys/src"
    experiments = Declarations(api.experimental, [api.data])
    found = {f"{sys}/bindings.rs": bindings(Declarations(api.data), "gradscaler.h", "functions",
                                             gen_table.names(api, root)),
             f"{sys}/experimental.rs": bindings(experiments, "the headers of experiments", "experiments",
                                                [function["name"] for function in api.experimental["functions"]]),
             "bindings/rust/gradscaler/src/declared.rs": declared(api)}
    numbers = gen_layout.files(api, root)
    return found | {f"{sys}/layout.rs": layout(text) for text in numbers.values()}
