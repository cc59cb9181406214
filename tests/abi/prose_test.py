#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prose in the C headers is only prose: with every sentence of every comment replaced by "x.", all that scripts/gen-api
writes is the same but for comments. The reader refuses tags that are misspelled, misplaced or that contradict C. And
Doxygen knows the tags that the reader knows.

  tests/abi/prose_test.py [root of the sources]
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
sys.path.insert(0, str(ROOT / "bindings/generate"))
sys.dont_write_bytecode = True
import api  # noqa: E402
import generators  # noqa: E402
import read_header  # noqa: E402

HEADER, EXPERIMENTS = read_header.texts(ROOT / "include/gradscaler")
# Comments of the languages that are written: blocks, lines, and docstrings.
COMMENTS = re.compile(r'/\*.*?\*/|//[^\n]*|(?<=\n) *#[^\n!]*|"""(?:(?!""").)*"""', re.S)

# Edits of the headers, and a part of the message that refuses each.
REFUSED = [
    ("@default{2000}", "@defualt{2000}", "@defualt is no tag"),
    ("@default{2000}", "@default{1999}", "sets growth_interval to 2000"),
    ("@range{>= 1} @default{2000}", "@range{at least 1} @default{2000}", "cannot read the range"),
    ("@enum{HysteresisRefill}", "@enum{Refill}", "there is no enumeration Refill"),
    ("@default{GSC_REFILL_ON_GROWTH}", "@default{GSC_REFILL_NEVER}", "no constant"),
    ("@type{Norm GSC_NORM_}", "", "an enumeration has @type"),
    ("@nullable{names}", "@nullable{name}", "which gsc_tensor_list_create does not take"),
    ("   * Learning rate.", "   * @nullable{x} Learning rate.", "@nullable does not describe"),
    ("@options{lr 1e-4, beta1 0.9", "@options{lr 1e-4, beta 0.9", "there is no option beta"),
    ("Added to the denominator. @range{>= 0}", "Added to the denominator.", "eps needs a @range, and no @default"),
    ("trust_coefficient 1e-3, eps 0", "eps 0", "no kind has it in its @options"),
    ("centered, eps_root 0}", "centred, eps_root 0}", "there is no flag centred"),
    ("exp_avg: moment}", "exp_avg moment}", "cannot read the slot"),
    ("GSC_DEVICE_CUDA = 1", "GSCX_DEVICE_CUDA = 1", "GSCX_DEVICE_CUDA does not"),
    ("GSCX_DEVICE_VULKAN = 2", "GSC_VULKAN = 2", "GSC_VULKAN does not"),
    ("gsc_status gscx_context_", "gsc_status gsc_context_", "does not begin with gscx_"),
    ("@extends{DeviceType ", "@extends{Device ", "no enumeration"),
    ("@extends{DeviceType ", "@type{DeviceType ", "that of an experiment @extends"),
]


def without_prose(header):
    """With the tags of each comment after one sentence, on the line on which it ended."""
    def shortened(comment):
        tags = re.findall(r"@\w+(?:\{[^{}]*\})?", comment[0])
        return "\n" * comment[0].count("\n") + " ".join(["/** x.", *tags, "*/"])

    return re.sub(r"/\*\*.*?\*/", shortened, header, flags=re.S)


def code_of(files):
    """{path: lines of code}"""
    return {path: [line.strip() for line in COMMENTS.sub("", text).splitlines() if line.strip()]
            for path, text in files.items()}


def tags_of(data):
    """api.json without texts."""
    if isinstance(data, dict):
        return {key: tags_of(value) for key, value in data.items() if key != "text"}
    return [tags_of(value) for value in data] if isinstance(data, list) else data


def main():
    errors = []
    data = read_header.read(HEADER, EXPERIMENTS)
    other = read_header.read(without_prose(HEADER), {name: without_prose(text) for name, text in EXPERIMENTS.items()})
    if tags_of(data) != tags_of(other):
        errors.append("the interface itself changes with the prose")
    texts = re.findall(r"'text': '([^']*)'", str(other))
    if set(texts) - {"x.", ""} or "x." not in texts:
        errors.append(f"prose is left: {sorted(set(texts) - {'x.', ''})[:3]}")
    before, after = (code_of(generators.files(api.Api(found), ROOT)) for found in (data, other))
    for path in sorted(before.keys() | after.keys()):
        # A page and the reader's own output are made of texts.
        if path.endswith((".md", ".json")) or before.get(path) == after.get(path):
            continue
        lines = [f"  {a}\n  {b}" for a, b in zip(before[path], after[path], strict=False) if a != b]
        errors.append(f"{path} changes with the prose:\n{lines[0] if lines else '  its length'}")
    for old, new, message in REFUSED:
        stable, *experiments = (text.replace(old, new, 1) for text in (HEADER, *EXPERIMENTS.values()))
        edited = dict(zip(EXPERIMENTS, experiments, strict=True))
        if (stable, edited) == (HEADER, EXPERIMENTS):
            errors.append(f"the headers have no `{old}` any more")
            continue
        try:
            read_header.read(stable, edited)
            errors.append(f"`{new}` in place of `{old}` passes")
        except read_header.HeaderError as error:
            if message not in str(error):
                errors.append(f"`{new}`: {error}")
    aliases = set(re.findall(r'"(\w+)(?:\{1\})?=', (ROOT / "docs/Doxyfile").read_text(encoding="utf-8")))
    if aliases != set(read_header.TAGS):
        errors.append(f"ALIASES of docs/Doxyfile differ from the tags: {sorted(aliases ^ set(read_header.TAGS))}")
    print(f"{len(before)} files, {len(REFUSED)} edits")
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
