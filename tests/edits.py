# SPDX-License-Identifier: Apache-2.0
"""The edits that scripts/mutate can make: one operator applied at one place of a statement, a condition, a default or a
run of statements.

Reads C++ as clang-format leaves it, without a parser: the text between braces and semicolons is a statement or a
header. Left out: what is computed at compile time, statements that contain braces, and blocks of other builds.
"""
import collections
import functools
import re
import typing

# The replacements that an operator makes. clang-format has spaces around binary operators and only there.
SWAPS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ", " && ": " || ",
         " || ": " && ", " + ": " - ", " - ": " + ", " * ": " / ", " / ": " * ", " % ": " / ", " | ": " & ",
         " & ": " | ", " << ": " >> ", " >> ": " << ", " += ": " -= ", " -= ": " += ", " |= ": " &= ", "++": "--",
         "true": "false", "false": "true", "std::min": "std::max", "std::max": "std::min"}
SWAP = re.compile("|".join(rf"\b{text}\b" if text[0].isalpha() else re.escape(text) for text in SWAPS))
INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.'])")
FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?=F?\b)")
CALL = re.compile(r"(?<!swap|:min|:max)(?<=[\w>])\((?!\))")
# The kinds of the parts of a file, by the text before a brace or semicolon.
SCOPE = re.compile(r"(?:template <.*> ?)?(?:inline )?(?:namespace|struct|class|enum|union|extern)\b")
FUNCTION = re.compile(r"(?:^|[\])]|\belse|\bdo|\btry|\bconst|noexcept|mutable|override|:|-> [\w:<>* ]+)$")
LABEL = re.compile(r"(?:(?:case [\w:]+|default):\s+)+")
CONTROL = re.compile(r"(?:else )?(?:if|while|for|switch) \(|else |do ")
DECLARED = re.compile(r"(?:const|static|auto|unsigned|using|struct) |"
                      r"[\w:]+(?:<.*>)?(?: [*&]*| )\w+(?:\[.*\])?(?: = |;|, \w+;|\()")

# An access to a field, and a constant where it is used, for it has its value at compile time.
FIELD = re.compile(r"(?:\.|->)([a-z]\w*)\b(?!\(|<)")
CONSTANT = re.compile(r"(?<![\w:.&])k[A-Z]\w*(?![\w(<{:]|\[|\.\w)")
# Fields of a struct, one declaration a line.
MEMBER = re.compile(r"^ +((?:const )?[\w:]+(?:<[^;()]*>)?(?: \*| \*const)?) ?"
                    r"(\w+(?:(?: = [^;,]+)?, \w+)*)(?: = [^;]+)?;", re.M)
STRUCT = re.compile(r"\b(?:struct|class) (?:alignas\(\w+\) )?\w+(?: final)?(?: : [^{;]*)? \{")
DEFAULT = re.compile(r"\s*(?!static|constexpr|using|friend|typedef)[\w:]+(?:<.*>)?(?: [*&]*| )\w+ = [^{]+;$")
RETURNS = re.compile(r"(?:^|\s)(?!return|else|new|delete|case)([\w:]+(?:<[^()]*>)?(?: ?[*&])?) ?"
                     r"(?:\w+::)*\w+\([^{}]*\)[^(){}]*$")

# Conditions of blocks that the build of scripts/mutate does not have.
OTHER_BUILD = re.compile(r"AVX|F16C|FMA|_WIN32|aarch64|CUDA|clang|GSC_HAVE|FLT_EVAL|!defined\(GSC_CPU")


# The code that chooses an edit at run time, and records which have been reached.
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
    # "statement", "condition", "loop" (its condition), "value" (the right side of a declaration), "default" (of a
    # field) or "run" (of statements)
    kind: str
    returns: str = ""  # of a statement: what its function returns; "": unknown


class Edit(typing.NamedTuple):
    path: str
    unit: Unit
    text: str  # of the unit, if the switch is on
    name: str
    operator: str = ""


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


def units(code, begin, end, returns=""):
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
        yield Unit(begin, end, "statement", returns)
    elif " = " in statement and "static" not in statement and ", " not in statement[:statement.index(" = ")]:
        yield Unit(begin + statement.index(" = ") + 3, end - 1, "value")


def all_units(code):
    """The units of all functions that run, and of the defaults of fields, in order. Statements that contain braces are
    left out."""
    stack, begin, depth, broken = [("scope", 0, "")], 0, 0, False
    for i, c in enumerate(code):
        kind, _, returns = stack[-1]
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "{":
            header = " ".join(code[begin:i].split())
            inner_returns = ""
            if kind in ("scope", "class") and (scope := SCOPE.match(header)):
                inner = "class" if re.search(r"(?:struct|class)$", scope[0]) else "scope"
            elif kind == "constant" or re.search(r"(?<!if )constexpr", header):
                inner = "constant"
            elif FUNCTION.search(header):
                inner = "code"
                if kind == "code" and depth == 0:
                    inner_returns = returns
                    if "constexpr" not in header:
                        yield from units(code, begin, i)
                elif kind != "code" and (found := RETURNS.search(header)):
                    inner_returns = found[1]
            else:
                inner = "braces"
            stack.append((inner, depth, inner_returns))
            depth = 0
            begin = begin if inner == "braces" else i + 1
        elif c == "}":
            inner, depth, _ = stack.pop()
            broken = inner == "braces" or depth > 0
            begin = begin if inner == "braces" else i + 1
        elif c == ";" and depth == 0 and kind != "braces":
            if kind == "code" and not broken and "constexpr" not in code[begin:i]:
                yield from units(code, begin, i + 1, returns)
            elif kind == "class" and not broken and DEFAULT.match(code, begin, i + 1):
                yield Unit(code.index(" = ", begin) + 3, i, "default")
            begin, broken = i + 1, False


def is_plain(code, unit):
    """Returns whether a unit is a whole statement that another may precede: no body of a header, return or label."""
    before = code[:unit.begin].rstrip()
    return (unit.kind == "statement" and before[-1:] in ("{", "}", ";") and
            not code.startswith(("return", "throw", "break", "continue"), unit.begin))


def all_runs(code, its_units):
    """Statements that follow each other, two at least."""
    run = []
    for unit in [*its_units, None]:
        if run and (unit is None or not is_plain(code, unit) or code[run[-1].end:unit.begin].strip()):
            if len(run) > 1:
                yield Unit(run[0].begin, run[-1].end, "run"), run
            run = []
        if unit is not None and is_plain(code, unit):
            run.append(unit)


def is_apart(one, other):
    """Returns whether two statements are assignments to places that the other does not name: either can be first."""
    places = [re.match(r"([\w.\[\]>-]+) = ", statement) for statement in (one, other)]
    return all(places) and places[0][1] not in other and places[1][1] not in one and "(" not in min(
        one, other, key=lambda statement: statement.count("("))


def all_fields(texts):
    """For each name of a field pairs of a file and another field of its struct there, of the same type."""
    siblings = collections.defaultdict(list)
    for path, code in texts.items():
        for struct in STRUCT.finditer(code):
            body = code[struct.end():closing(code, struct.end() - 1)]
            by_type = collections.defaultdict(list)
            while (inner := re.search(r"\{[^{}]*\}", body)) is not None:  # functions and structs within
                body = body[:inner.start()] + ";" + body[inner.end():]
            for kind, names in MEMBER.findall(body):
                by_type[kind] += [name.split(" = ")[0] for name in re.split(r", (?=\w+(?:$|,| =))", names)]
            for names in by_type.values():
                for i, name in enumerate(names):
                    siblings[name] += [(path, other) for other in names[i + 1:] + names[:i]]
    return siblings


def sibling(name, path, siblings):
    """The other field to put in place of one: of a struct that is declared near the file."""
    stem, folder = path.rpartition(".")[0], path.rpartition("/")[0]
    near = sorted(siblings[name], key=lambda found: (found[0].rpartition(".")[0] != stem,
                                                     found[0].rpartition("/")[0] != folder))
    return next((other for _, other in near if other != name), None)


def operands(code):
    """(begin, end) of what to take away, so that one operand of a && or || is left out."""
    for found in re.finditer(r" (&&|\|\|) ", code):
        ends = []
        for step in (-1, 1):
            i, depth = (found.start() - 1 if step < 0 else found.end()), 0
            while 0 <= i < len(code):
                depth += (code[i] in ("([{" if step > 0 else ")]}")) - (code[i] in (")]}" if step > 0 else "([{"))
                rest = code[i:] if step > 0 else code[:i + 1]
                if depth < 0 or (depth == 0 and code[i] == ";"):
                    break
                ends_here = (r" (?:\|\||\?|:) |, |%s" if step > 0 else r"(?: \|\| | \? | : | = |, |return |%s)$") % (
                    " && " if found[1] == "&&" else "$^")
                if depth == 0 and (re.match(ends_here, rest) if step > 0 else re.search(ends_here, rest)):
                    break
                i += step
            ends.append(i + 1 if step < 0 else i)
        yield ends[0], found.end()
        yield found.start(), ends[1]


def more_replacements(code, text, unit, other_field):
    """(operator, begin, end, new text) of each edit of a unit, by operators that look at what is around."""
    if unit.kind != "run":
        for found in FIELD.finditer(code):
            if other := other_field(found[1]):
                yield "field", found.start(1), found.end(1), other
        for begin, end in operands(code):
            yield "conjunct", begin, end, ""
        for found in CONSTANT.finditer(code):
            yield "constant", found.start(), found.end(), f"({text[found.start():found.end()]} + 1)"
    if unit.kind == "statement" and not re.match(r"return\b|throw\b|break\b|continue\b", code) and unit.returns:
        yield "return", 0, len(code), "return;" if unit.returns == "void" else "return {};"


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


def is_edited(name):
    """Host code. core/cuda is for a device, and core/vulkan/rules.h, which host code does not call, is translated."""
    left_out = ("core/cuda/", "core/vulkan/rules.h", "capi/macos/", "capi/unload/")
    return not name.startswith(left_out) and name.endswith((".h", ".cpp"))


def shown(name, old, begin, end, new):
    """An edit as it is printed: a long new text is shortened to what changes."""
    before, after = (" ".join(part.split()) for part in (old, old[:begin] + new + old[end:]))
    if len(after) > 40:
        after = f"...{' '.join((old[max(begin - 12, 0):begin] + new + old[end:end + 12]).split())}..."
    return f"{name}: {before} -> {after}"


def find_edits(root):
    """All edits of core/ and capi/ but for what is_edited leaves out, by file and place. Those that read alike have a
    number, but for the first; the operators of more_replacements come last, so that the names of the others stay."""
    edits, more, seen = [], [], collections.Counter()
    paths = {path.relative_to(root).as_posix(): path for path in
             sorted([*(root / "core").rglob("*.[ch]*"), *(root / "capi").rglob("*.[ch]*")])}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if is_edited(name)}
    codes = {name: mask(text, keep_strings=False) for name, text in texts.items()}
    headers = {name: mask((root / name).read_text(encoding="utf-8"), keep_strings=False)
               for name in ("include/gradscaler/gradscaler.h", "include/gradscaler/vulkan.h")}
    siblings = all_fields({**headers, **codes})
    for name, text in texts.items():
        code, bare, its_units = codes[name], mask(text, keep_strings=True), list(all_units(codes[name]))
        made = set()

        def add(to, unit, operator, begin, end, new, name=name, bare=bare, made=made):
            old = bare[unit.begin:unit.end]
            after = " ".join((old[:begin] + new + old[end:]).split())
            if operator and (unit, after) in made:
                return
            made.add((unit, after))
            head = begin if unit.kind == "run" else 0
            if unit.kind == "default":
                head = bare.rindex("\n", 0, unit.begin) + 1 - unit.begin
            tail = end if unit.kind == "run" else len(old)
            text = bare[unit.begin + head:unit.begin + tail]
            to.append((name, unit, after, operator, shown(name, text, begin - head, end - head, new)))

        for unit in its_units:
            operator = "default" if unit.kind == "default" else ""
            for begin, end, new in replacements(code[unit.begin:unit.end], bare[unit.begin:unit.end], unit.kind):
                add(more if operator else edits, unit, operator, begin, end, new)
        other_field = functools.cache(functools.partial(sibling, path=name, siblings=siblings))
        for unit in its_units:
            for operator, *edit in more_replacements(code[unit.begin:unit.end], bare[unit.begin:unit.end], unit,
                                                     other_field):
                add(more, unit, operator, *edit)
        for run, statements in all_runs(code, its_units):
            for one, other in zip(statements, statements[1:], strict=False):
                if is_apart(bare[one.begin:one.end], bare[other.begin:other.end]):
                    continue
                new = bare[other.begin:other.end] + " " + bare[one.begin:one.end]
                add(more, run, "order", one.begin - run.begin, other.end - run.begin, new)
    result = []
    for name, unit, after, operator, text in edits + more:
        if operator:
            text = f"{text} ({operator})"
        seen[text] += 1
        result.append(Edit(name, unit, after, text + (f" [{seen[text]}]" if seen[text] > 1 else ""), operator))
    return result


def with_edits(text, units):
    """The text of a file with the edits of its units, lists of (number, edit). Runs have other units within."""
    def part(begin, end, inside):
        out, at = "", begin
        while inside:
            unit = inside.pop(0)
            within = [other for other in inside if other.end <= unit.end]
            del inside[:len(within)]
            old = part(unit.begin, unit.end, within) if unit.kind == "run" else text[unit.begin:unit.end]
            out += text[at:unit.begin] + switched(old, unit.kind, units[unit])
            at = unit.end
        return out + text[at:end]

    return part(0, len(text), sorted(units, key=lambda unit: (unit.begin, -unit.end)))


def switched(old, kind, edits):
    """All texts of a unit, selected by the switch at run time. `edits` are pairs of a number and an edit."""
    if kind in ("statement", "run"):
        choices = "".join(f"if (gsc_edit({number})) {{ {edit.text} }} else " for number, edit in edits)
        return f"{{ {choices}{{ {old} }} }}"
    form = "({})" if kind in ("value", "default") else "static_cast<bool>({})"
    return "".join(f"gsc_edit({number}) ? {form.format(edit.text)} : " for number, edit in edits) + form.format(old)
