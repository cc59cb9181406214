# SPDX-License-Identifier: Apache-2.0
"""The declarations of gradscaler.h in Rust. For the crate gradscaler-sys: types, constants, the function table and, for
programs that link the library, the functions. For the crate gradscaler: the enumerations. Part of scripts/gen-api."""
import re
import textwrap

from header import NOTE, bytes_of, enum_pascal, enums_of, kinds_of, method, regions, text_of, translate, words

BINDINGS = "bindings/rust/gradscaler-sys/src/bindings.rs"
FOLDER = "bindings/rust/gradscaler/src"
WIDTH = 100  # rustfmt's
TYPES = {"float": "f32", "double": "f64", "int32_t": "i32", "int64_t": "i64"}
PLAIN = {"void": "c_void", "char": "c_char", "int32_t": "i32", "int64_t": "i64", "uint8_t": "u8", "uint32_t": "u32",
         "float": "f32", "double": "f64"}

HEAD = f"""\
// SPDX-License-Identifier: Apache-2.0
// The types, constants and functions of gradscaler.h, where their contracts are.
// {NOTE}
use core::ffi::c_void;
use std::os::raw::c_char;
"""


def fail(message):
    raise SystemExit(f"gen-api: {message}")


def rust_type(text, names):
    """`const char *const *` -> `*const *const c_char`. `names`: the types of the header."""
    words = re.findall(r"\w+|\*", text)
    base = [word for word in words if word not in ("const", "*", "struct")]
    if len(base) != 1 or base[0] not in PLAIN and base[0] not in names:
        fail(f"no Rust for the C type `{text}`")
    result, const = PLAIN.get(base[0], base[0]), words[0] == "const"
    for i, word in enumerate(words):
        if word == "*":
            result = f"*{'const' if const else 'mut'} {result}"
            const = words[i + 1:i + 2] == ["const"]
    return result


def declarator(text, names):
    """(name, Rust type) of a field or parameter such as `int64_t reserved[2]`."""
    match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\d+)\])?", text.strip(), re.S)
    if not match:
        fail(f"cannot read the declaration `{text}`")
    kind = rust_type(match[1], names)
    return match[2], f"[{kind}; {match[3]}]" if match[3] else kind


def parameters_of(text, names):
    return [] if text.strip() in ("", "void") else [declarator(p, names) for p in text.split(",")]


def doc(text, indent=""):
    """A comment of the header as one paragraph of rustdoc, in which nothing is a link, a tag or emphasis."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([\[\]<*])", r"\\\1", piece) for piece in pieces[::2]]
    lines = textwrap.wrap("`".join(pieces), WIDTH, initial_indent=f"{indent}/// ", subsequent_indent=f"{indent}/// ",
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace("/// >", "/// \\>", 1) for line in lines]


def signature(head, parameters, result, indent, end):
    """`head(parameters) -> result` + end, broken as rustfmt does."""
    tail = f"){f' -> {result}' if result else ''}{end}"
    line = f"{indent}{head}({', '.join(f'{name}: {kind}' for name, kind in parameters)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}{head}(", *(f"{indent}    {name}: {kind}," for name, kind in parameters), f"{indent}{tail}"]


class Header:
    """What the header declares, in its order."""

    def __init__(self, text):
        comment = r"(?P<comment>/\*\*(?:(?!\*/).)*\*/\n)?"
        self.text = text
        self.opaque = [name for name in re.findall(r"^typedef struct (\w+) \1;", text, re.M)
                       if not re.search(rf"^struct {name} \{{", text, re.M) and name != "gsc_api"]
        self.structs = [m for m in re.finditer(
            comment + r"^(?:typedef )?struct (?P<name>\w+) \{\n(?P<body>.*?)\n\}(?: \w+)?;", text, re.M | re.S)]
        self.callbacks = [m for m in re.finditer(
            comment + r"^typedef (?P<result>\w[\w\s]*[\s*])\(\*(?P<name>\w+)\)\((?P<parameters>[^)]*)\);",
            text, re.M | re.S)]
        self.names = {*self.opaque, *(m["name"] for m in self.structs), *(m["name"] for m in self.callbacks),
                      "gsc_status", "gsc_stream", "gsc_api"}
        self.callback_names = {m["name"] for m in self.callbacks}

    def constants(self):
        lines = []
        for match in re.finditer(r"(/\*\*(?:(?!\*/).)*\*/)?\s*^#define (GSC_\w+) (\S+)$", self.text, re.M | re.S):
            value = match[3].strip("()")
            if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+u?", value):
                kind = "u32" if value.endswith("u") else "i32"
                lines.append(f"pub const {match[2]}: {kind} = {value.rstrip('u')};")
        pattern = r"(/\*\*(?:(?!\*/).)*\*/)?\s*(?:typedef int32_t gsc_status;\s*)?^enum \{(.*?)\n\};"
        for match in re.finditer(pattern, self.text, re.M | re.S):
            kind = "u32" if match[1] and "Bits of" in match[1] else "i32"
            if "GSC_OK" in match[2]:
                kind = "gsc_status"
            lines += [f"pub const {name}: {kind} = {value};"
                      for name, value in re.findall(r"\b(GSC_\w+) = (-?\w+)", match[2])]
        return lines

    def struct(self, match):
        body = re.sub(r"/\*\*(?:(?!\*/).)*\*/", "", match["body"], flags=re.S)
        lines = [*doc(text_of(match["comment"] or "")), "#[repr(C)]", "#[derive(Clone, Copy, Debug)]",
                 f"pub struct {match['name']} {{"]
        for field in body.replace("\n", " ").split(";")[:-1]:
            name, kind = declarator(field, self.names)
            if kind in self.callback_names:
                kind = f"Option<{kind}>"
            lines.append(f"    pub {name}: {kind},")
        return [*lines, "}"]

    def callback(self, match):
        result = match["result"].strip()
        result = "" if result == "void" else rust_type(match["result"], self.names)
        parameters = parameters_of(match["parameters"], self.names)
        return [*doc(text_of(match["comment"] or "")),
                *signature(f"pub type {match['name']} = unsafe extern \"C\" fn", parameters, result, "", ";")]


def function(function, names):
    """(parameters, result) in Rust; a callback may be NULL wherever it is a parameter."""
    parameters = parameters_of(", ".join(function.parameters), names.names)
    parameters = [(name, f"Option<{kind}>" if kind in names.callback_names else kind) for name, kind in parameters]
    result = function.result.strip()
    return parameters, "" if result == "void" else rust_type(result, names.names)


FUNCTIONS_MACRO = """\
/// From a name in the table, a name in C and a signature: the table, and the functions of the library that is linked.
macro_rules! functions {
    ($($field:ident $name:ident($($parameter:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// The function table: a pointer for every function of the header, without the `gsc_`. Fields are only ever
        /// appended: a library whose `struct_size` is smaller lacks the last ones.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct gsc_api {
            pub struct_size: u32,
            pub abi_version: u32,
            $(pub $field: unsafe extern "C" fn($($parameter: $kind),*) -> $result,)*
        }

        #[cfg(feature = "link")]
        extern "C" {
            $(pub fn $name($($parameter: $kind),*) -> $result;)*
        }

        #[cfg(test)]
        fn layout_of_table(all: &mut Vec<(&'static str, &'static str, usize, usize)>) {
            fields!(all, gsc_api, struct_size, abi_version, $($field),*);
        }
    };
}"""


def make(header_text, functions, in_table):
    """`functions`: of the header; `in_table`: those of the table in its order."""
    header = Header(header_text)
    lines = HEAD.splitlines()
    lines += ["", "/// Result of every function that can fail: one of the `GSC_OK` and `GSC_ERROR_*`.",
              "pub type gsc_status = i32;",
              *doc("cudaStream_t or CUstream as a plain pointer; NULL is the default stream. Ignored on the CPU."),
              "pub type gsc_stream = *mut c_void;", "", *header.constants()]
    for name in header.opaque:
        lines += ["", f"/// A handle of the library's: see `{name}_create`.", "#[repr(C)]", f"pub struct {name} {{",
                  "    _opaque: [u8; 0],", "    _not_send_sync: core::marker::PhantomData<*mut u8>,", "}"]
    for callback in header.callbacks:
        lines += ["", *header.callback(callback)]
    for struct in header.structs:
        lines += ["", *header.struct(struct)]
    lines += ["", *FUNCTIONS_MACRO.splitlines(), "", "functions! {"]
    for f in in_table:
        parameters, result = function(f, header)
        listed = ", ".join(f"{name}: {kind}".replace(" ", "~") for name, kind in parameters)
        wrapped = textwrap.wrap(f"{f.name[len('gsc_'):]} {f.name}({listed}) -> {result or '()'};", WIDTH,
                                initial_indent="    ", subsequent_indent="        ")
        lines += [line.replace("~", " ") for line in wrapped]
    lines += ["}", "", '#[cfg(feature = "link")]', 'extern "C" {']
    for f in functions:
        if f not in in_table:
            parameters, result = function(f, header)
            lines += signature(f"pub fn {f.name}", parameters, result, "    ", ";")
    lines += ["}", "", *layout(header)]
    return "\n".join(lines) + "\n"


def layout(header):
    """Sizes and offsets as the compiler sees them, for the test that compares them with the recorded ones."""
    structs = {}
    for struct in header.structs:
        body = re.sub(r"/\*\*(?:(?!\*/).)*\*/", "", struct["body"], flags=re.S)
        structs[struct["name"]] = [declarator(f, header.names)[0] for f in body.replace("\n", " ").split(";")[:-1]]
    lines = ["#[cfg(test)]", "pub(crate) fn layout() -> Vec<(&'static str, &'static str, usize, usize)> {",
             "    let mut all = Vec::new();"]
    for name, fields in structs.items():
        lines += textwrap.wrap(f"fields!(all, {name}, {', '.join(fields)});", WIDTH, initial_indent="    ",
                               subsequent_indent="        ")
    return [*lines, "    layout_of_table(&mut all);", "    all", "}"]


ENUMS = """\
// SPDX-License-Identifier: Apache-2.0
// The constants of the library as enumerations. {note}
use crate::options::Value;
use gradscaler_sys as sys;

macro_rules! enumerations {{
    ($($(#[$doc:meta])* $name:ident {{ $($(#[$text:meta])* $variant:ident = $constant:ident,)* }})*) => {{$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum $name {{
            $($(#[$text])* $variant = sys::$constant,)*
        }}

        impl TryFrom<i32> for $name {{
            /// The code that is none of these.
            type Error = i32;

            fn try_from(code: i32) -> Result<Self, i32> {{
                match code {{
                    $(sys::$constant => Ok(Self::$variant),)*
                    _ => Err(code),
                }}
            }}
        }}

        impl Value for $name {{
            type Raw = i32;

            fn into_raw(self) -> i32 {{
                self as i32
            }}

            fn from_raw(raw: i32) -> Option<Self> {{
                raw.try_into().ok()
            }}
        }}
    )*}};
}}

enumerations! {{
{enums}
}}

impl DType {{
    /// Bytes of an element.
    pub(crate) const fn bytes(self) -> usize {{
        match self {{
{sizes}
        }}
    }}
}}
"""


def make_enums(header_text):
    enums = enums_of(header_text)

    def words(text, indent):
        return [translate(line, enums, lambda kind, name: f"[`{kind}::{enum_pascal(name)}`]")
                for line in doc(text, indent)]

    lines = []
    for enum in enums:
        lines += ["", *words(enum.comment, "    "), f"    {enum.name} {{"]
        for constant, name, text in enum.items:
            lines += [*words(text, "        "), f"        {enum_pascal(name)} = {constant},"]
        lines.append("    }")
    sizes = [f"            Self::{enum_pascal(name)} => {bytes_of(name)},"
             for _, name, _ in next(enum for enum in enums if enum.name == "DType").items]
    return ENUMS.format(note=NOTE, enums="\n".join(lines[1:]), sizes="\n".join(sizes))


def getter(name):
    return name.removeprefix("get_")


def field_doc(struct, text, optional=False, indent=4):
    text = words(text, struct, lambda name: f"`{name}`",
                 lambda kind, name: f"[`{kind}::{getter(method(name))}`](crate::{kind}::{getter(method(name))})",
                 lambda kind, name: f"[`{kind}::{enum_pascal(name)}`](crate::{kind}::{enum_pascal(name)})", "NULL")
    for enum in struct.enums:
        text = re.sub(rf"(?<!\[`)\b{enum.name}\b(?!::)", f"[`{enum.name}`]", text)
    if optional:
        text = re.sub("; -1 if (there is )?none", "", text)
    pieces = re.split(r"(\[?`[^`]*`(?:\](?:\([\w:]*\))?)?)", text)
    pieces[::2] = [re.sub(r"([\[\]<*])", r"\\\1", piece) for piece in pieces[::2]]
    return textwrap.wrap("".join(pieces), WIDTH - indent, initial_indent="/// ", subsequent_indent="/// ",
                         break_on_hyphens=False, break_long_words=False)


def is_index(field):
    return field.name.startswith("first_")


def type_of(field, counts=False):
    if field.pointer:
        return f"*const {TYPES[field.ctype]}"
    if counts and is_index(field):
        return "Option<usize>"
    if counts and field.ctype == "int64_t":
        return "u64"
    return field.enum.name if field.enum else "bool" if field.boolean else TYPES[field.ctype]


def fields(struct):
    return [line for field in struct.all
            for line in (*field_doc(struct, field.text), f"pub {field.name}: {type_of(field)},")]


def counted_fields(struct):
    """Counts are unsigned, and an index that may be missing is an Option."""
    return [line for field in struct.flags + struct.fields
            for line in (*field_doc(struct, field.text, is_index(field)),
                         f"pub {field.name}: {type_of(field, True)},")]


def default_rows(struct):
    """For the macro options!: fields with their defaults."""
    lines = []
    for field, value in struct.defaults():
        if field.enum:
            value = f"{field.enum.name}::{enum_pascal(value)}"
        lines += [*field_doc(struct, field.text, indent=8),
                  f"{field.name}: {type_of(field)} = {value.rstrip('f') if field.ctype == 'float' else value},"]
    return lines


def rows(struct):
    """For the macro optional!."""
    return [line for field in struct.fields
            for line in (*field_doc(struct, field.text, indent=8), f"{field.name}: {type_of(field)},")]


def flag_rows(struct):
    return [line for flag in struct.flags
            for line in (*field_doc(struct, flag.text, indent=8), f"{flag.name} = GSC_{flag.constant},")]


def to_raw(struct):
    def value(field):
        return f"self.{field.name} as i32" if field.enum or field.boolean else f"self.{field.name}"

    return [f"{field.name}: {value(field)}," for field in struct.fields]


def assignment(field, *chain):
    """`field: a.b.c,`, broken as rustfmt does."""
    if len(".".join(chain)) <= 60:
        return [f"{field.name}: {'.'.join(chain)},"]
    return [f"{field.name}: {chain[0]}", *(f"    .{part}" for part in chain[1:-1]), f"    .{chain[-1]},"]


def get(field, counts):
    if field.constant:
        return f"raw.flags & sys::GSC_{field.constant} != 0"
    if counts and is_index(field):
        return f"usize::try_from(raw.{field.name}).ok()"
    if counts and field.ctype == "int64_t":
        return f"raw.{field.name} as u64"
    return f"raw.{field.name} != 0" if field.boolean else f"raw.{field.name}"


def from_raw(struct):
    lines = []
    for field in struct.all:
        if field.enum:
            lines += assignment(field, "raw", field.name, "try_into()", f"unwrap_or(default.{field.name})")
        else:
            lines.append(f"{field.name}: {get(field, False)},")
    return lines


def counted_from_raw(struct):
    return [f"{field.name}: {get(field, True)}," for field in struct.flags + struct.fields]


def getters(handle):
    """Whole numbers are counts."""
    lines = []
    for getter in handle.getters:
        result, cast = (TYPES[getter.ctype], "") if getter.ctype in ("float", "double") else ("usize", " as usize")
        lines += ["", *field_doc(handle, getter.text), f"pub fn {getter.name}(&self) -> Result<{result}> {{",
                  f"    let mut value = {'0.0' if cast == '' else '0'};",
                  f"    let call = self.api().{getter.function[len('gsc_'):]};",
                  "    self.check(unsafe { call(self.as_ptr(), &mut value) })?;", f"    Ok(value{cast})", "}"]
    return lines[1:]


def kinds(struct):
    """For the macro kinds!: a constructor for each kind of optimizer."""
    return [line for kind in kinds_of(struct.enums)
            for line in (*field_doc(struct, kind.text),
                         f"{kind.constant.lower()} = {enum_pascal(kind.constant)},")]


EMITTERS = {function.__name__: function
            for function in (getters, kinds, fields, counted_fields, default_rows, rows, flag_rows, to_raw, from_raw,
                             counted_from_raw)}


def files(header, root, functions, in_table):
    """{path: text}; none where `root` has no Rust."""
    if not (root / FOLDER).is_dir():
        return {}
    return {BINDINGS: make(header, functions, in_table), f"{FOLDER}/enums.rs": make_enums(header),
            **regions(header, root, FOLDER, EMITTERS)}
