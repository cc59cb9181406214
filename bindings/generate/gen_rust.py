# SPDX-License-Identifier: Apache-2.0
"""Rust: what the build of gradscaler-sys makes for both crates. bindings.rs: the declarations of the C interface.
mirrors.rs: the enumerations, structs, options and getters of the crate gradscaler. layout.rs: tests of the recorded
layout. The macros are in the lib.rs and tests.rs of the one and in the mirrors.rs of the other. Part of
scripts/gen-api."""
import re
import textwrap

import gen_layout
import gen_table
from header import (
    CLASSES,
    COMMENT,
    NOTE,
    Handle,
    Struct,
    bytes_of,
    enum_pascal,
    enums_of,
    fail,
    functions_of,
    indented,
    kinds_of,
    method,
    structs_of,
    text_of,
    words,
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
    """The C interface, in the header's order."""

    def __init__(self, header):
        self.header, self.structs = header, structs_of(header)
        self.handles = [name for name in re.findall(r"^typedef struct (\w+) \1;", header, re.M)
                        if name not in self.structs and name != "gsc_api"]
        self.callbacks = {name: (text_of(text), result, parameters) for text, result, name, parameters in re.findall(
            COMMENT + r"^typedef (\w[\w ]*[ *])\(\*(\w+)\)\(([^)]*)\);", header, re.M | re.S)}
        self.names = {*self.handles, *self.structs, *self.callbacks, "gsc_status", "gsc_stream", "gsc_api"}

    def rust_type(self, text):
        """`const char *const *` -> `*const *const c_char`."""
        words = re.findall(r"\w+|\*", text)
        base = [word for word in words if word not in ("const", "*", "struct")]
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
        pairs = [re.fullmatch(r"(.*[\s*])(\w+)", text.strip(), re.S).groups()
                 for text in parameters if text.strip() != "void"]
        listed = ", ".join(f"{name}: {type_of(kind)}" for kind, name in pairs)
        return f"({listed}) -> {'()' if result.strip() == 'void' else self.rust_type(result)};"

    def constants(self):
        lines = [f"pub const {name}: {'u32' if value[-1] == 'u' else 'i32'} = {value.rstrip('u')};" for name, value in
                 re.findall(r"^#define (GSC_\w+) \(?(-?(?:0x)?[0-9a-fA-F]+u?)\)?$", self.header, re.M)]
        for text, body in re.findall(COMMENT + r"(?:typedef int32_t gsc_status;\s*)?^enum \{(.*?)\n\};", self.header,
                                     re.M | re.S):
            kind = "u32" if "Bits of" in text else "gsc_status" if "GSC_OK" in body else "i32"
            for text, name, value in re.findall(COMMENT + r"\b(GSC_\w+) = (-?\w+)", body, re.S):
                lines += [*doc(text_of(text)), f"pub const {name}: {kind} = {value};"]
        return lines

    def rows(self):
        """For the macro structs!."""
        lines = []
        for name, (text, fields) in self.structs.items():
            lines += [*doc(text), f"{name} {{"]
            for kind, field, elements, text in fields:
                kind = self.nullable(kind)
                lines += [*doc(text), f"    {field}: {f'[{kind}; {elements}]' if elements else kind},"]
            lines.append("}")
        return lines

    def functions(self, in_table):
        """For the macro functions!."""
        by_name = {function.name: function for function in functions_of(self.header)[0]}
        lines = []
        for name in in_table:
            function = by_name[name]
            signature = self.signature(function.parameters, function.result, self.nullable)
            lines += [*doc(function.text), f"    {name[len('gsc_'):]} {name}{signature}"]
        return lines


def bindings(header, in_table):
    declared = Declarations(header)
    lines = [*HEAD, *declared.constants(), *(f"handle! {{ {name} }}" for name in declared.handles)]
    for name, (text, result, parameters) in declared.callbacks.items():
        signature = declared.signature(parameters.split(","), result, declared.rust_type).replace(" -> ()", "")
        lines += [*doc(text), f'pub type {name} = unsafe extern "C" fn{signature}']
    return indented([*lines, "structs! {", *declared.rows(), "}", "functions! {", *declared.functions(in_table), "}"],
                    "")


def spelled(text, owner):
    """A comment of the header in Rust's words. `owner`: the struct or handle that it belongs to."""
    def member(kind, name):
        kind, name = kind.removeprefix("Tensor"), method(name).removeprefix("get_")
        return f"[`{kind}::{name}`](crate::{kind}::{name})"

    def constant(kind, name):
        return f"[`{kind}::{enum_pascal(name)}`](crate::{kind}::{enum_pascal(name)})"

    text = words(text, owner, "`{}`".format, member, constant, "NULL")
    for enum in owner.enums:
        text = re.sub(rf"(?<!\[`)\b{enum.name}\b(?!::)", f"[`{enum.name}`]", text)
    return doc(text)


def enumerations(owner):
    lines = ["enumerations! {"]
    for enum in owner.enums:
        lines += [*spelled(enum.comment, owner), f"{enum.name} {{"]
        for constant, name, text in enum.items:
            lines += [*spelled(text, owner), f"    {enum_pascal(name)} = {constant},"]
        lines.append("}")
    sizes = [f"            Self::{enum_pascal(name)} => {bytes_of(name)},"
             for _, name, _ in next(enum for enum in owner.enums if enum.name == "DType").items]
    return [*lines, "}", "impl DType {", "    /// Bytes of an element.",
            "    pub(crate) const fn bytes(self) -> usize {", "        match self {", *sizes, "        }", "    }", "}"]


def type_of(field):
    if field.pointer:
        return f"*const {TYPES[field.ctype]}"
    return field.enum.name if field.enum else "bool" if field.boolean else TYPES[field.ctype]


def value_of(field, value):
    if field.enum:
        return f"{field.enum.name}::{enum_pascal(value)}"
    return value.rstrip("f") if field.ctype == "float" else value


def flags(struct):
    return [line for flag in struct.flags
            for line in (*spelled(flag.text, struct), f"    {flag.name} = GSC_{flag.constant},")]


def options(struct, about, rows):
    """For the macro options!, of rows (comment, `name: type = default`)."""
    lines = ["options! {", f"/// {about}", f"{CLASSES[struct.name]} of {struct.name} {{"]
    for text, row in rows:
        lines += [*spelled(text, struct), f"    {row},"]
    return [*lines, "} flags {", *flags(struct), "} }"]


def scaler_options(struct):
    rows = [(field.text, f"{field.name}: {type_of(field)} as {type_of(field)} = {value_of(field, value)}")
            for field, value in struct.defaults()]
    return options(struct, "The policy of a [`GradScaler`](crate::GradScaler). The default is PyTorch's.", rows)


def optimizer_options(struct):
    about = "Hyper-parameters of an optimizer or of a group of its tensors. `None` is the default of the kind."
    rows = [(field.text, f"{field.name}: Option<{type_of(field)}> as {type_of(field)} = None")
            for field in struct.fields]
    lines = options(struct, about, [("The update formula.", "kind: OptimizerKind = OptimizerKind::AdamW"), *rows])
    lines.append("impl OptimizerOptions {")
    for kind in kinds_of(struct.enums):
        lines += [*spelled(kind.text, struct), f"    pub const fn {kind.constant.lower()}() -> Self {{",
                  f"        Self::new(OptimizerKind::{enum_pascal(kind.constant)})", "    }"]
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


def mirrors(header):
    enums = enums_of(header)
    optimizer = Handle("gsc_optimizer", header, enums)
    lines = [*HEAD, *enumerations(optimizer), *scaler_options(Struct("gsc_scaler_options", header, enums)),
             *optimizer_options(Struct("gsc_optimizer_options", header, enums)), *getters(optimizer)]
    for name in (*READ, "gsc_scaler_state"):
        lines += mirror(Struct(name, header, enums))
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


def sources(header, root):
    """{name: text} of the files that the build of gradscaler-sys makes."""
    return {"bindings.rs": bindings(header, gen_table.names(root)), "mirrors.rs": mirrors(header),
            "layout.rs": layout((root / gen_layout.NUMBERS).read_text())}
