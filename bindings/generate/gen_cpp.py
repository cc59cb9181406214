# SPDX-License-Identifier: Apache-2.0
"""C++: the enumerations, and the fields of the options. Part of scripts/gen-api."""
import header

FOLDER = "include/gradscaler/cpp"
# C++ has the statuses of C, and its log callback is C's.
NOT_IN_CPP = {"Status", "LogLevel"}


def make_cpp(enums):
    lines = f"""\
// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_ENUMS_HPP
#define GRADSCALER_CPP_ENUMS_HPP
//
// The enumerations of gradscaler.h as types. {header.NOTE}
//
#include <gradscaler/gradscaler.h>

#include <cstdint>

namespace gradscaler {{
""".splitlines()
    for enum in enums:
        if enum.name in NOT_IN_CPP:
            continue
        lines += ["", *header.slashes(enum.comment, ""), f"enum class {enum.name} : int32_t {{"]
        for i, (constant, name, text) in enumerate(enum.items):
            comma = "," if i + 1 < len(enum.items) else ""
            lines += [*header.slashes(text, "  "), f"  {name.lower()} = {constant}{comma}"]
        lines.append("};")
    return "\n".join([*lines, "", "}  // namespace gradscaler", "", "#endif  // GRADSCALER_CPP_ENUMS_HPP", ""])


def comment(struct, field):
    text = header.words(field.text, struct, str, "{}::{}".format, lambda kind, name: f"{kind}::{name.lower()}",
                        "nullptr")
    return header.wrapped(text, "/// ")


def type_of(field):
    return field.enum.name if field.enum else "bool" if field.boolean else field.ctype


def fields(struct):
    lines = []
    for field, value in struct.defaults():
        if field.enum:
            value = f"{field.enum.name}::{value.lower()}"
        lines += [*comment(struct, field), f"{type_of(field)} {field.name} = {value};"]
    return lines


def optional_fields(struct):
    return [line for field in struct.fields
            for line in (*comment(struct, field),
                         f"std::optional<{type_of(field)}> {field.name} = std::nullopt;")]


def to_c(struct):
    def value(field):
        if field.enum:
            return f"static_cast<int32_t>({field.name})"
        return f"{field.name} ? 1 : 0" if field.boolean else field.name

    return [f"c.{field.name} = {value(field)};" for field in struct.fields]


def optional_to_c(struct):
    def statement(field):
        if field.enum:
            return f"if ({field.name}) c.{field.name} = static_cast<int32_t>(*{field.name});"
        return f"c.{field.name} = {field.name}.value_or(c.{field.name});"

    return [statement(field) for field in struct.fields]


def from_c(struct):
    def value(field):
        if field.enum:
            return f"static_cast<{field.enum.name}>(c.{field.name})"
        return f"c.{field.name} != 0" if field.boolean else f"c.{field.name}"

    return [f"options.{field.name} = {value(field)};" for field in struct.fields]


def getters(handle):
    lines = []
    for getter in handle.getters:
        lines += [*comment(handle, getter), f"{getter.ctype} get_{getter.name}() const {{",
                  f"  {getter.ctype} value = 0;", f"  detail::check({getter.function}(get(), &value));",
                  "  return value;", "}"]
    return lines


EMITTERS = {"getters": getters, "fields": fields, "optional_fields": optional_fields, "to_c": to_c,
            "optional_to_c": optional_to_c, "from_c": from_c}


def files(text, root):
    """{path: text} of the files that this language generates; none where `root` does not have it."""
    if not (root / FOLDER).is_dir():
        return {}
    return {f"{FOLDER}/enums.hpp": make_cpp(header.enums_of(text)), **header.regions(text, root, FOLDER, EMITTERS)}
