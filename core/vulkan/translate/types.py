# SPDX-License-Identifier: Apache-2.0
"""Types of C++ as types of GLSL, with the layout that they have in memory. Integers of 8 and 16 bits are held in 32,
and a pointer is an address of 64 bits."""

import re
from dataclasses import dataclass, field

from .syntax import Refused


@dataclass(frozen=True)
class Scalar:
    glsl: str
    size: int
    load: str  # the suffix of the functions of memory.glsl
    is_float: bool = False

    @property
    def align(self):
        return self.size


@dataclass(frozen=True)
class Pointer:
    pointee: object  # None: void
    glsl: str = "uint64_t"
    size: int = 8
    align: int = 8
    load: str = "u64"
    is_float: bool = False


@dataclass(frozen=True)
class Array:
    element: object
    count: int

    @property
    def glsl(self):
        return f"{self.element.glsl}[{self.count}]"

    @property
    def size(self):
        return self.element.size * self.count

    @property
    def align(self):
        return self.element.align


@dataclass
class Struct:
    glsl: str
    cpp: str = ""
    fields: list = field(default_factory=list)  # (name, type, offset, node of the declaration)
    size: int = 0
    align: int = 1

    def field(self, name):
        return next(f for f in self.fields if f[0] == name)


@dataclass(frozen=True)
class Lambda:
    record: str


VOID = None
BOOL = Scalar("bool", 1, "bool")
INT = Scalar("int", 4, "i32")
UINT = Scalar("uint", 4, "u32")
LONG = Scalar("int64_t", 8, "i64")
ULONG = Scalar("uint64_t", 8, "u64")
FLOAT = Scalar("float", 4, "f32", True)
DOUBLE = Scalar("double", 8, "f64", True)
SCALARS = {
    "bool": BOOL,
    "char": Scalar("int", 1, "i8"),
    "signed char": Scalar("int", 1, "i8"),
    "unsigned char": Scalar("uint", 1, "u8"),
    "short": Scalar("int", 2, "i16"),
    "unsigned short": Scalar("uint", 2, "u16"),
    "int": INT,
    "unsigned int": UINT,
    "long": LONG,
    "long long": LONG,
    "unsigned long": ULONG,
    "unsigned long long": ULONG,
    "float": FLOAT,
    "double": DOUBLE,
    "std::nullptr_t": Pointer(None),
}
KEYWORDS = set(
    "common partition active asm class union enum typedef template this resource goto inline noinline public static "
    "extern external interface long short half fixed unsigned superp input output filter sizeof cast namespace using "
    "smooth flat precise patch sample buffer shared coherent in out inout centroid invariant subroutine uniform "
    "varying attribute layout default struct const double float int uint bool abs".split()
)


def safe_name(name):
    return name + "_" if name in KEYWORDS else name


def is_erased(kind):
    """Nothing to pass: a tag."""
    return isinstance(kind, Struct) and not kind.fields


class Types:
    def __init__(self, tree):
        self.tree = tree
        self.structs = {}  # by id of the record
        self.local_records, self.local_aliases = {}, {}  # of the function that is being translated

    def of(self, node_type, at):
        """The type of an expression or declaration, without reference and const."""
        text = node_type if isinstance(node_type, str) else node_type.get("desugaredQualType", node_type["qualType"])
        return self.parse(text, at)

    def parse(self, text, at):
        if text.startswith("(unnamed "):  # an enumeration of gradscaler.h
            return UINT
        text = re.sub(r"\b(const|volatile|typename|struct|enum|class)\b", " ", text)
        text = re.sub(r"\s+", " ", text).strip()
        text = re.sub(r" ?&&?$", "", text).strip()
        if text == "void":
            return VOID
        if text.endswith("*"):
            inner = text[:-1].strip()
            return Pointer(None if inner == "void" else self.parse(inner, at))
        array = re.fullmatch(r"(.*?) ?(?:\(&\))? ?\[(\d+)\]", text)
        if array:
            return Array(self.parse(array[1], at), int(array[2]))
        if text in SCALARS:
            return SCALARS[text]
        if text.startswith("(lambda at"):
            return Lambda(text)
        first, _, rest = text.partition("::")
        if first in self.local_aliases:
            alias = self.local_aliases[first]
            return self.parse(f"{alias}::{rest}" if rest else alias, at)
        enum = self._suffix(self.tree.enum_types, text)
        if enum:
            return SCALARS[enum]
        record = self._record(text)
        if record:
            return self.struct(record, at)
        alias = self._suffix(self.tree.aliases, text)
        if alias:
            return self.of(alias["type"], at)
        raise Refused(f"{at}: the type '{text}' is not known to the translator")

    def _suffix(self, table, text):
        for prefix in ("", "gsc::", "gsc::vulkan::", "gsc::optim::"):
            if prefix + text in table:
                return table[prefix + text]
        return None

    def _record(self, text):
        if text in self.local_records:
            return self.local_records[text]
        plain = text
        if "<" in text:
            head, rest = text.split("<", 1)
            rest = rest.replace("gsc::", "").replace("true", "1").replace("false", "0")
            plain = head + "<" + re.sub(r"[\w:]+::k\w+", lambda m: self.tree.enumerators.get(m[0], m[0]), rest)
        found = self._suffix(self.tree.records, plain)
        return found[0] if found else None

    def struct(self, record, at):
        if record["id"] in self.structs:
            return self.structs[record["id"]]
        names = re.sub(r"\W+", "_", record.get("_name", record.get("name", ""))).strip("_")
        name = names.removeprefix("gsc_").removeprefix("vulkan_")
        if any(s.glsl == name for s in self.structs.values()):
            name += f"_{len(self.structs)}"
        if record.get("tagUsed") == "union":
            raise Refused(f"{at}: the union {name} has no translation")
        result = self.structs[record["id"]] = Struct(safe_name(name), record.get("_name", ""))
        for base in record.get("bases", ()):
            parent = self.of(base["type"], at)
            for entry in parent.fields:
                self._add(result, entry[0], entry[1], entry[3])
            result.size = (result.size + parent.align - 1) // parent.align * parent.align
        for node in record.get("inner", ()):
            if node.get("kind") == "FieldDecl" and "name" in node:
                self._add(result, safe_name(node["name"]), self.of(node["type"], node["_at"]), node)
        result.size = (result.size + result.align - 1) // result.align * result.align
        return result

    @staticmethod
    def _add(struct, name, kind, node):
        offset = (struct.size + kind.align - 1) // kind.align * kind.align
        struct.fields.append((name, kind, offset, node))
        struct.size = offset + kind.size
        struct.align = max(struct.align, kind.align)
