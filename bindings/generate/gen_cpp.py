# SPDX-License-Identifier: Apache-2.0
"""C++: the enumerations, and the fields of the options. Part of scripts/gen-api."""
import textwrap

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
// The enumerations of gradscaler.h as types; it describes each value. {header.NOTE}
//
#include <gradscaler/gradscaler.h>

#include <cstdint>

namespace gradscaler {{
""".splitlines()
    for enum in enums:
        if enum.name in NOT_IN_CPP:
            continue
        items = [f"{name.lower()} = {constant}" for constant, name, _ in enum.items]
        head = f"enum class {enum.name} : int32_t {{"
        line = f"{head} {', '.join(items)} }};"
        lines += ["", *textwrap.wrap(enum.comment, header.WIDTH, initial_indent="/// ", subsequent_indent="/// ")]
        lines += [line] if len(line) <= header.WIDTH else [head, "  " + ",\n  ".join(items), "};"]
    return "\n".join([*lines, "", "}  // namespace gradscaler", "", "#endif  // GRADSCALER_CPP_ENUMS_HPP", ""])


def comment(struct, field):
    text = header.words(field.text, struct, str, "{}::{}".format, lambda kind, name: f"{kind}::{name.lower()}",
                        "nullptr")
    return header.wrapped(text, "/// ")


def type_of(field):
    return field.enum.name if field.enum else "bool" if field.boolean else field.ctype


def fields(struct):
    return [f"{type_of(field)} {field.name} = {field.enum.name + '::' + value.lower() if field.enum else value};"
            for field, value in struct.defaults()]


def optional_fields(struct):
    return [f"std::optional<{type_of(field)}> {field.name} = std::nullopt;" for field in struct.fields]


def pairs(struct):
    return [f"visit(options.{field.name}, c.{field.name});" for field in struct.fields]


def getters(handle):
    lines = []
    for getter in handle.getters:
        lines += [*comment(handle, getter), f"{getter.ctype} get_{getter.name}() const {{ "
                  f"return detail::read({getter.function}, get()); }}"]
    return lines


EMITTERS = {"getters": getters, "fields": fields, "optional_fields": optional_fields, "pairs": pairs}


def files(text, root):
    """{path: text} of the files that this language generates; none where `root` does not have it."""
    if not (root / FOLDER).is_dir():
        return {}
    return {f"{FOLDER}/enums.hpp": make_cpp(header.enums_of(text)), **header.regions(text, root, FOLDER, EMITTERS)}
