# SPDX-License-Identifier: Apache-2.0
"""tests/abi/layout.inc: sizes, offsets and constants of the ABI, which compilers check against the header. The header's
structs and constants must all be there, without gaps. New enumerators and new last fields of structs are appended, and
a field may take the place of one called reserved; what is there stays. Part of scripts/gen-api."""
import re

from api import fail

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


def append_values(api, numbers):
    """`numbers` with the enumerators that it lacks, each after the one before it. What it has stays."""
    known = numbers_of(numbers)[2]
    pairs = [(item["name"], item["value"]) for enum in api.data["enums"] for item in enum["items"]]
    for (before, _), (name, value) in zip(pairs, pairs[1:], strict=False):
        if name not in known and before in numbers:
            line = f"GSC_LAYOUT_VALUE({name}, {value})\n"
            numbers = re.sub(rf"(^GSC_LAYOUT_VALUE\({before}, .*\)\n)", rf"\1{line}", numbers, flags=re.M)
    return numbers


def append_fields(api, numbers):
    """`numbers` with the fields that a struct has gained at its end, or in place of `reserved`."""
    sizes, offsets, _ = numbers_of(numbers)
    for name, struct in api.structs.items():
        if name not in sizes:
            continue
        known, lines, end = list(offsets[name]), [], 0
        for i, field in enumerate(struct["fields"]):
            if i < len(known) and field["name"] != known[i] and known[i] != "reserved":
                fail(f"{name}: {field['name']} is in the place of {known[i]}; new fields come last")
            end = offsets[name][known[i]] if i < len(known) else end
            lines.append(f"GSC_LAYOUT_FIELD({field['name']}, {end})\n")
            end += SIZES.get(field["type"], 8) * field.get("elements", 1)
        if len(lines) > len(known) and end % 8:
            fail(f"{name} grows by multiples of 8 bytes: add `int32_t reserved`, in which the library takes 0 alone")
        size = max(end, sizes[name])
        numbers = re.sub(rf"(#define GSC_STRUCT {name}\n).*?(#undef)",
                         lambda m, lines=lines, size=size: f"{m[1]}GSC_LAYOUT_SIZE({size})\n{''.join(lines)}{m[2]}",
                         numbers, count=1, flags=re.S)
    return numbers


def check(api, numbers):
    """Fails if the header and the numbers do not have the same structs, fields and constants."""
    sizes, offsets, values = numbers_of(numbers)
    structs = api.structs
    constants = [item["name"] for enum in api.data["enums"] for item in enum["items"]]
    constants += [macro["name"] for macro in api.data["constants"] if not macro["name"].startswith("GSC_VERSION_")]
    differ = sorted((structs.keys() ^ (sizes.keys() - {"gsc_api"})) | (set(constants) ^ values.keys()))
    if differ:
        fail(f"{', '.join(differ)}: in one of gradscaler.h and {NUMBERS} only")
    for name, struct in structs.items():
        fields = struct["fields"]
        if [field["name"] for field in fields] != list(offsets[name]):
            fail(f"{NUMBERS} does not have the fields of {name} in the header's order")
        # What is not in SIZES is a pointer, to data or to a function.
        ends = [offsets[name][field["name"]] + SIZES.get(field["type"], 8) * field.get("elements", 1)
                for field in fields]
        for field, end, next_ in zip(fields, ends, [*offsets[name].values()][1:] + [sizes[name]], strict=True):
            if end != next_:
                fail(f"{name}.{field['name']} ends at byte {end}, but in {NUMBERS} the next begins or the struct ends "
                     f"at {next_}; there are no gaps: use 8 bytes, or add `int32_t reserved`")


def files(api, root):
    """{path: text}; none in a source package, which does not have the tests."""
    if not (root / NUMBERS).exists():
        return {}
    numbers = append_fields(api, append_values(api, (root / NUMBERS).read_text(encoding="utf-8")))
    check(api, numbers)
    return {NUMBERS: numbers}
