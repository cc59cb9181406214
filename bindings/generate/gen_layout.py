# SPDX-License-Identifier: Apache-2.0
"""tests/abi/layout.inc: sizes, offsets and constants of the ABI, which compilers check against the header. The header's
structs and constants must all be there, without gaps; new enumerators are appended. Part of scripts/gen-api."""
import re

from header import fail, structs_of

NUMBERS = "tests/abi/layout.inc"
SIZES = {"char": 1, "int32_t": 4, "uint32_t": 4, "float": 4, "gsc_status": 4, "int64_t": 8, "double": 8}


def numbers_of(text):
    """({struct: size}, {struct: {field: offset}}, {constant: value as written})."""
    sizes, offsets = {}, {}
    for name, body in re.findall(r"^#define GSC_STRUCT (\w+)\n(.*?)^#undef", text, re.M | re.S):
        if size := re.search(r"^GSC_LAYOUT_SIZE\((\d+)\)", body, re.M):
            sizes[name] = int(size[1])
        offsets[name] = {field: int(offset)
                         for field, offset in re.findall(r"^GSC_LAYOUT_FIELD\((\w+), (\d+)\)", body, re.M)}
    values = dict(re.findall(r"^GSC_LAYOUT_VALUE\((\w+), (-?\w+)\)", text, re.M))
    return sizes, offsets, values


def append_values(header, numbers):
    """`numbers` with the enumerators that it lacks, each after the one before it. What it has stays."""
    known = numbers_of(numbers)[2]
    pairs = re.findall(r"\b(GSC_\w+) = (-?\d+)", re.sub(r"/\*.*?\*/", "", header, flags=re.S))
    for (before, _), (name, value) in zip(pairs, pairs[1:], strict=False):
        if name not in known and before in numbers:
            line = f"GSC_LAYOUT_VALUE({name}, {value})\n"
            numbers = re.sub(rf"(^GSC_LAYOUT_VALUE\({before}, .*\)\n)", rf"\1{line}", numbers, flags=re.M)
    return numbers


def check(header, numbers):
    """Fails if the header and the numbers do not have the same structs, fields and constants."""
    sizes, offsets, values = numbers_of(numbers)
    structs = structs_of(header)
    constants = re.findall(r"^  (GSC_\w+) = -?\d", header, re.M)
    constants += [name for name in re.findall(r"^#define (GSC_\w+) \(?-?(?:0x)?\d", header, re.M)
                  if not name.startswith("GSC_VERSION_")]
    differ = sorted((structs.keys() ^ (sizes.keys() - {"gsc_api"})) | (set(constants) ^ values.keys()))
    if differ:
        fail(f"{', '.join(differ)}: in one of gradscaler.h and {NUMBERS} only")
    for name, (_, fields) in structs.items():
        if [field for _, field, _, _ in fields] != list(offsets[name]):
            fail(f"{NUMBERS} does not have the fields of {name} in the header's order")
        # What is not in SIZES is a pointer, to data or to a function.
        ends = [offsets[name][field] + SIZES.get(kind, 8) * int(elements or 1) for kind, field, elements, _ in fields]
        if ends != [*offsets[name].values()][1:] + [sizes[name]]:
            fail(f"{name} has a gap; {NUMBERS} and the header disagree")
