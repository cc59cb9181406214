#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a place that is written by hand lacks a kind of optimizer. Usage: optimizer_places.py [root of the sources]

The kinds are those of bindings/api.json. Names are looked for as whole words, in the part of a file between two marks.
First the script shows that it sees a kind that is missing.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[1]
sys.path.insert(0, str(ROOT / "bindings/generate"))
import api  # noqa: E402

# Names on pages that are not those of classes. Schedule-Free AdamW and SGD are named together.
ON_PAGES = {"AdamWScheduleFree": "Schedule-Free AdamW", "SGDScheduleFree": "Schedule-Free (AdamW and )?SGD"}


def page(kind):
    return ON_PAGES.get(kind.name, kind.name)


def constant(kind):
    return f"GSC_{kind.constant}"


def lower(kind):
    return kind.constant.lower()


# (file, where the part begins, where it ends, what it calls a kind, what to add)
PLACES = [
    ("tests/support/reference_formulas.h", "switch (o.kind)", "", constant, "its equations, again"),
    ("tests/oracle/oracle.py", "(SGD, ", ") = KINDS", lambda kind: kind.constant, "its equations, again"),
    ("tests/conformance/python/test_*.py", "", "", lambda kind: kind.name, "a comparison with the original"),
    ("docs/reference/semantics.md", "**SGD**", "**Moving average", page, "its equations"),
    ("docs/reference/semantics.md", "| optimizer |", "\n\n", page, "its state"),
    ("docs/performance.md", "| optimizer |", "\n\n", page, "the bytes that a step moves"),
    ("docs/pytorch.md", "## Optimizers", "```", lambda kind: kind.name, "its name"),
    ("README.md", "- **SGD", "**, with", page, "its name"),
    ("benchmarks/optimizers.cpp", "kRecipes[]", "};\n", lower, "a row"),
    ("benchmarks/gpu/bench.cpp", "kEntries[]", "};\n", lower, "a row"),
]


def missing(kinds):
    errors = []
    for file, begins, ends, called, what in PLACES:
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(file)))
        if begins not in text:
            errors.append(f"{file}: there is no `{begins}` any more; {sys.argv[0]} looks for it")
            continue
        text = text[text.index(begins):]
        text = text[:text.index(ends, len(begins))] if ends else text
        text = re.sub(r"\s+", " ", text)
        errors += [f"{file} has no {kind.name}: add {what}" for kind in kinds
                   if not re.search(rf"\b{called(kind)}\b", text)]
    return errors


def main():
    kinds = api.load(ROOT).kinds
    item = api.Item("MISSING", "MISSING", "Missing", len(kinds), "")
    absent = api.Kind({"class": "Missing", "slots": [], "options": {}}, item)
    errors = missing(kinds)
    if len(missing([absent])) != len(PLACES):
        errors.append("a kind that is missing passes")
    print(f"{len(kinds)} kinds, {len(PLACES)} places")
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
