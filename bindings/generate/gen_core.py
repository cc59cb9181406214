# SPDX-License-Identifier: Apache-2.0
"""The core: the kinds of optimizer with their slots, defaults and options, and the ranges of options, as C++ uses them.
Part of scripts/gen-api."""
import re
import textwrap

from api import NOTE, WIDTH, fail, pascal

KINDS, RANGES = "core/rules/optim/kinds.h", "core/rules/option_ranges.h"
HOLDS = {"moment": "kMoment", "second_moment": "kSecondMoment", "full": "kFull", "number": "kNumber",
         "average": "kAverage"}

KINDS_HEAD = f"""\
// SPDX-License-Identifier: Apache-2.0
// Every kind of optimizer: its defaults, the options and flags that it uses, and its state slots. The file of a formula
// takes its kind from here. {NOTE}
#pragma once

#include "core/rules/optim/kind.h"

// clang-format off
namespace gsc {{
"""
RANGES_HEAD = f"""\
// SPDX-License-Identifier: Apache-2.0
// The options that have a range, with it: X(field, range). {NOTE}
#pragma once

#include "core/rules/range.h"

"""


def listed(head, pieces, separator, tail):
    """`head` and the pieces, on as many lines as it takes."""
    whole = separator.join(piece.replace(" ", "\0") for piece in pieces)
    lines = textwrap.wrap(whole, WIDTH - len(tail), initial_indent=head, subsequent_indent=" " * len(head),
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in [*lines[:-1], lines[-1] + tail]]


def number(text):
    return text if re.search(r"[.e]", text) else f"{text}.0"


def power(text):
    """An end of a range of whole numbers, such as 2^20. A double has those up to 2^53."""
    base, _, exponent = text.partition("^")
    return f"{base}.0" if not exponent else f"0x1p{exponent}"


def range_of(text, whole, none=False):
    """The C++ of a range in the header's words. `whole`: of a whole number; `none`: or 0."""
    if found := re.fullmatch(r"(>=?) (\S+)|finite", text):
        said = text if whole or not found[1] else f"finite and {text}"
        made = f"Range::{ {'>=': 'at_least', '>': 'above', None: 'finite'}[found[1]] }("
        made += f'{number(found[2])}, "' if found[1] else '"'
    elif found := re.fullmatch(r"(\S+)\.\.(\S+)", text):
        said, made = f"in {text}", f'Range::closed({power(found[1])}, {power(found[2])}, "'
    else:
        found = re.fullmatch(r"([\[(])(\S+), (\S+)([\])])", text)
        name = {"()": "open", "[)": "half_open", "[]": "closed"}[found[1] + found[4]]
        said, made = f"in {text}", f'Range::{name}({number(found[2])}, {number(found[3])}, "'
    return f'{made}0 (none), or {said}").or_zero()' if none else f'{made}{said}")'


def kind(kind):
    lines, options = [], []
    for name, option in kind.options.items():
        narrower = ""
        if "range" in option:
            narrower = f", &k{kind.name}{pascal(name)}"
            lines.append(f"inline constexpr Range {narrower[3:]} = {range_of(option['range'], whole=False)};")
        options.append(f"{{Option::{name}, {number(option['default'])}{narrower}}}")
    lines += [f"inline constexpr Kind k{kind.name}{{", f"    .code = GSC_{kind.constant},",
              f'    .name = "{kind.name}",',
              f"    .option_count = {len(options)},", *listed("    .options = {", options, ", ", "},")]
    if kind.flags:
        lines += listed("    .flags = ", [f"GSC_OPTIMIZER_{flag.upper()}" for flag in kind.flags], " | ", ",")
    return [*lines, *listed("    .slots = {", [slot(kind, data) for data in kind.slots], ", ", "}};")]


def slot(kind, data):
    parts = [f'.name = "{data["name"]}"', f".holds = Slot::{HOLDS[data['holds']]}"]
    for condition in filter(None, [data.get("if")]):
        parts.append(".needs_momentum = true" if condition in kind.options else
                     f".needs_flag = GSC_OPTIMIZER_{condition.upper()}")
    if instead := data.get("instead"):
        parts += [f".with_flag = GSC_OPTIMIZER_{instead['if'].upper()}",
                  f".holds_then = Slot::{HOLDS[instead['holds']]}"]
    return "{" + ", ".join(parts) + "}"


def files(api, _):
    """{path: text}"""
    for found in api.kinds:
        for data in found.slots:
            if data["holds"] not in HOLDS:
                fail(f"{found.name}: a slot holds {', '.join(HOLDS)}, not {data['holds']}")
    lines = []
    for found in api.kinds:
        lines += ["", *kind(found)]
    names = [f"&kinds::k{found.name}" for found in api.kinds]
    kinds = [KINDS_HEAD.rstrip("\n"), "namespace kinds {", *lines, "", "}  // namespace kinds", "",
             "/// All of them, in the order of their codes.",
             *listed("inline constexpr const Kind *kKinds[] = {", names, ", ", "};"), "", "}  // namespace gsc", ""]
    ranges = [RANGES_HEAD.rstrip("\n")]
    for struct, macro in (("gsc_optimizer_options", "GSC_OPTIMIZER_RANGES"),
                          ("gsc_scaler_options", "GSC_SCALER_RANGES")):
        rows = [f"  X({field.name}, {range_of(field.range, field.ctype.startswith('int'), field.none is not None)})"
                for field in api.type(struct).fields if field.range]
        width = max(map(len, [f"#define {macro}(X)", *rows])) + 1
        ranges += ["", *(f"{line:{width}}\\" for line in [f"#define {macro}(X)", *rows[:-1]]), rows[-1]]
    return {KINDS: "\n".join(kinds), RANGES: "\n".join([*ranges, ""])}
