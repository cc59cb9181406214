# SPDX-License-Identifier: Apache-2.0
"""C++: the enumerations, and the fields of the options. Part of scripts/gen-api."""
import textwrap

from api import NOTE, WIDTH, Language, regions, wrapped

FOLDER = "include/gradscaler/cpp"
# C++ has the statuses of C, and its log callback is C's. Constants of experiments are in headers of their own.
NOT_IN_CPP = {"Status", "LogLevel"}


def make_cpp(enums):
    lines = f"""\
// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_ENUMS_HPP
#define GRADSCALER_CPP_ENUMS_HPP
//
// The enumerations of gradscaler.h as types; it describes each value. {NOTE}
//
#include <gradscaler/gradscaler.h>

#include <cstdint>

namespace gradscaler {{
""".splitlines()
    for enum in enums:
        if enum.name in NOT_IN_CPP:
            continue
        items = [f"{item.name.lower()} = {item.constant}" for item in enum.items if not item.experimental]
        head = f"enum class {enum.name} : int32_t {{"
        line = f"{head} {', '.join(items)} }};"
        lines += ["", *textwrap.wrap(enum.text, WIDTH, initial_indent="/// ", subsequent_indent="/// ")]
        lines += [line] if len(line) <= WIDTH else [head, "  " + ",\n  ".join(items), "};"]
    return "\n".join([*lines, "", "}  // namespace gradscaler", "", "#endif  // GRADSCALER_CPP_ENUMS_HPP", ""])


CPP = Language(str, "{}::{}".format, lambda kind, item: f"{kind}::{item.name.lower()}", "nullptr")


def type_of(field):
    return field.enum.name if field.enum else "bool" if field.boolean else field.ctype


def value_of(field):
    """The default as a literal of the field's type."""
    if field.enum or field.boolean:
        return CPP.value(field)
    number = field.default if field.ctype[:3] == "int" or "." in field.default else f"{field.default}.0"
    return f"{number}f" if field.ctype == "float" else number


def fields(struct):
    return [f"{type_of(field)} {field.name} = {value_of(field)};" for field in struct.fields]


def optional_fields(struct):
    return [f"std::optional<{type_of(field)}> {field.name} = std::nullopt;" for field in struct.fields]


def pairs(struct):
    return [f"visit(options.{field.name}, c.{field.name});" for field in struct.fields]


def getters(handle):
    lines = []
    for getter in handle.getters:
        lines += [*wrapped(CPP.words(getter.text, handle), "/// "), f"{getter.ctype} get_{getter.name}() const {{ "
                  f"return detail::read({getter.function}, get()); }}"]
    return lines


EMITTERS = {"getters": getters, "fields": fields, "optional_fields": optional_fields, "pairs": pairs}


def files(api, root):
    """{path: text} of the files that this language generates."""
    return {f"{FOLDER}/enums.hpp": make_cpp(api.enums), **regions(api, root, FOLDER, EMITTERS)}
