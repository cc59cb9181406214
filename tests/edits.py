# SPDX-License-Identifier: Apache-2.0
"""The edits that scripts/mutate can make: one operator applied at one place of a statement or condition.

Reads C++ as clang-format leaves it, without a parser: the text between braces and semicolons is a statement or a
header. Left out: what is computed at compile time, statements that contain braces, and blocks of other builds.
"""
import collections
import re
import typing

# What an operator puts in place of what it finds. clang-format has spaces around binary operators and only there.
SWAPS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ", " && ": " || ",
         " || ": " && ", " + ": " - ", " - ": " + ", " * ": " / ", " / ": " * ", " % ": " / ", " | ": " & ",
         " & ": " | ", " << ": " >> ", " >> ": " << ", " += ": " -= ", " -= ": " += ", " |= ": " &= ", "++": "--",
         "true": "false", "false": "true", "std::min": "std::max", "std::max": "std::min"}
SWAP = re.compile("|".join(rf"\b{text}\b" if text[0].isalpha() else re.escape(text) for text in SWAPS))
INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.'])")
FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?=F?\b)")
CALL = re.compile(r"(?<!swap|:min|:max)(?<=[\w>])\((?!\))")
# How the parts of a file are told apart, by the text before a brace or semicolon.
SCOPE = re.compile(r"(?:template <.*> ?)?(?:inline )?(?:namespace|struct|class|enum|union|extern)\b")
FUNCTION = re.compile(r"(?:^|[\])]|\belse|\bdo|\btry|\bconst|noexcept|mutable|override|:|-> [\w:<>* ]+)$")
LABEL = re.compile(r"(?:(?:case [\w:]+|default):\s+)+")
CONTROL = re.compile(r"(?:else )?(?:if|while|for|switch) \(|else |do ")
DECLARED = re.compile(r"(?:const|static|auto|unsigned|using|struct) |"
                      r"[\w:]+(?:<.*>)?(?: [*&]*| )\w+(?:\[.*\])?(?: = |;|, \w+;|\()")

# Conditions of blocks that the build of scripts/mutate does not have.
OTHER_BUILD = re.compile(r"AVX|F16C|FMA|_WIN32|aarch64|CUDA|clang|GSC_HAVE|FLT_EVAL|!defined\(GSC_CPU")


# What chooses an edit at run time, and records which have been reached.
SWITCH = """#pragma once
extern "C" int gsc_edit_number;
extern "C" unsigned char gsc_edits_reached[];
static inline bool gsc_edit(int number) {
  gsc_edits_reached[number] = 1;
  return gsc_edit_number == number;
}
"""
DEFINITION = """#include <cstdio>
#include <cstdlib>
#include "core/base/edits.h"
extern "C" const int gsc_edit_count = %d;
extern "C" unsigned char gsc_edits_reached[gsc_edit_count];
unsigned char gsc_edits_reached[gsc_edit_count];
int gsc_edit_number = std::getenv("GSC_MUTANT") != nullptr ? std::atoi(std::getenv("GSC_MUTANT")) : 0;
namespace {
struct AtExit {
  ~AtExit() {
    std::FILE *file = std::getenv("GSC_REACHED") != nullptr ? std::fopen(std::getenv("GSC_REACHED"), "a") : nullptr;
    for (int i = 0; file != nullptr && i < gsc_edit_count; ++i)
      if (gsc_edits_reached[i] != 0) std::fprintf(file, "%%d\\n", i);
    if (file != nullptr) std::fclose(file);
  }
} at_exit;
}  // namespace
"""


class Unit(typing.NamedTuple):
    begin: int
    end: int
    kind: str  # "statement", "condition", "loop" (its condition) or "value" (the right side of a declaration)


class Edit(typing.NamedTuple):
    path: str
    unit: Unit
    text: str  # of the unit, if the switch is on
    name: str


def mask(text, keep_strings):
    """The text with all that is not code, and perhaps strings, replaced by filler of the same length."""
    def filler(match):
        if match[0][0] not in "\"'":
            return re.sub(r"[^\n]", " ", match[0])
        return match[0] if keep_strings else '"' * len(match[0])

    lines, taken, used = text.splitlines(keepends=True), [], [True]
    for i, line in enumerate(lines):
        directive = re.match(r" *#(if|el|endif)", line)
        if not directive:
            lines[i] = line if all(used) else re.sub(r"[^\n]", " ", line)
        elif directive[1] == "if":
            used.append(not OTHER_BUILD.search(line))
            taken.append(used[-1])
        elif directive[1] == "el":
            used[-1] = not taken[-1] and not OTHER_BUILD.search(line)
            taken[-1] = taken[-1] or used[-1]
        else:
            used.pop(), taken.pop()
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<!\d)'(?:\\.|[^'\\\n])+'|^ *#(?:\\\n|[^\n])*",
                  filler, "".join(lines), flags=re.S | re.M)


def closing(code, at):
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    return len(code)


def units(code, begin, end):
    """The conditions of a header or statement, and the statement."""
    while True:
        begin = max(begin, end - len(code[begin:end].lstrip()))
        if label := LABEL.match(code, begin, end):
            begin = label.end()
        control = CONTROL.match(code, begin, end)
        if not control:
            break
        begin = control.end()
        if control[0].endswith("("):
            close = closing(code, begin - 1)
            header = code[begin:close]
            if "for (" in control[0] and header.count("; ") == 2:
                yield Unit(begin + header.index(";") + 2, begin + header.rindex(";"), "loop")
            elif re.search(r"(?:if|while) ", control[0]) and ";" not in header and not DECLARED.match(header):
                yield Unit(begin, close, "loop" if "while" in control[0] else "condition")
            begin = close + 1
    statement = code[begin:end]
    if not statement.endswith(";") or len(statement) == 1 or statement.startswith(("static_assert", "using", "GSC_")):
        return
    if statement.startswith(("return", "throw", "delete")) or not DECLARED.match(statement):
        yield Unit(begin, end, "statement")
    elif " = " in statement and "static" not in statement and ", " not in statement[:statement.index(" = ")]:
        yield Unit(begin + statement.index(" = ") + 3, end - 1, "value")


def all_units(code):
    """The units of all functions that run, in order. Statements that contain braces are left out."""
    stack, begin, depth, broken = [("scope", 0)], 0, 0, False
    for i, c in enumerate(code):
        kind = stack[-1][0]
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "{":
            header = " ".join(code[begin:i].split())
            if kind == "scope" and SCOPE.match(header):
                inner = "scope"
            elif kind == "constant" or re.search(r"(?<!if )constexpr", header):
                inner = "constant"
            elif FUNCTION.search(header):
                inner = "code"
                if kind == "code" and depth == 0 and "constexpr" not in header:
                    yield from units(code, begin, i)
            else:
                inner = "braces"
            stack.append((inner, depth))
            depth = 0
            begin = begin if inner == "braces" else i + 1
        elif c == "}":
            inner, depth = stack.pop()
            broken = inner == "braces" or depth > 0
            begin = begin if inner == "braces" else i + 1
        elif c == ";" and depth == 0 and kind != "braces":
            if kind == "code" and not broken and "constexpr" not in code[begin:i]:
                yield from units(code, begin, i + 1)
            begin, broken = i + 1, False


def replacements(code, text, kind):
    """(begin, end, new text) of each edit of a unit. `code` is its masked text."""
    if kind == "statement" and not re.match(r"return \S|throw ", code):
        yield 0, len(code), ";"
    if kind in ("condition", "loop"):
        yield 0, len(code), "false"
    if kind == "condition":
        yield 0, len(code), "true"
    for found in SWAP.finditer(code):
        yield found.start(), found.end(), SWAPS[found[0]]
    for found in re.finditer(r" \? ", code):
        yield from ((found.start(), found.end(), new) for new in (" || true ? ", " && false ? "))
    for found in INTEGER.finditer(code):
        yield from ((found.start(), found.end(), str(int(found[0]) + step)) for step in (1, -1)
                    if step > 0 or found[0] != "0")
    for found in FLOAT.finditer(code):
        yield found.start(), found.end(), str(float(found[0]) + 1)
    for found in CALL.finditer(code):
        close = closing(code, found.end() - 1)
        cuts, i = [found.end() - 1], found.end()
        while i < close:
            if code[i] in "([{":
                i = closing(code, i)
            elif code[i] == ",":
                cuts.append(i)
            i += 1
        for begin, middle, end in zip(cuts, cuts[1:], [*cuts[2:], close], strict=False):
            one, other = text[begin + 1:middle].strip(), text[middle + 1:end].strip()
            if one != other and ('"' in one) == ('"' in other):
                yield begin + 1, end, f"{' ' if code[begin] == ',' else ''}{other}, {one}"


def find_edits(root):
    """All edits of core/ and capi/ but for core/cuda, core/vulkan and what loads or unloads, by file and place. Their
    names shorten a long new text to what changes. Those that read alike have a number, but for the first."""
    edits, seen = [], collections.Counter()
    for path in sorted([*(root / "core").rglob("*.[ch]*"), *(root / "capi").rglob("*.[ch]*")]):
        name = path.relative_to(root).as_posix()
        left_out = ("core/cuda/", "core/vulkan/", "capi/macos/", "capi/unload/")
        if name.startswith(left_out) or path.suffix not in (".h", ".cpp"):
            continue
        text = path.read_text(encoding="utf-8")
        code, bare = mask(text, keep_strings=False), mask(text, keep_strings=True)
        for unit in all_units(code):
            old = bare[unit.begin:unit.end]
            for begin, end, new in replacements(code[unit.begin:unit.end], old, unit.kind):
                texts = [" ".join(part.split()) for part in (old, old[:begin] + new + old[end:])]
                after = texts[1]
                if len(after) > 40:
                    around = old[max(begin - 12, 0):begin] + new + old[end:end + 12]
                    after = f"...{' '.join(around.split())}..."
                shown = f"{name}: {texts[0]} -> {after}"
                seen[shown] += 1
                edits.append(Edit(name, unit, texts[1], shown + (f" [{seen[shown]}]" if seen[shown] > 1 else "")))
    return edits


def switched(text, unit, edits):
    """All texts of a unit, selected by the switch at run time. `edits` are pairs of a number and an edit."""
    old = text[unit.begin:unit.end]
    if unit.kind == "statement":
        choices = "".join(f"if (gsc_edit({number})) {{ {edit.text} }} else " for number, edit in edits)
        return f"{{ {choices}{{ {old} }} }}"
    form = "({})" if unit.kind == "value" else "static_cast<bool>({})"
    return "".join(f"gsc_edit({number}) ? {form.format(edit.text)} : " for number, edit in edits) + form.format(old)
