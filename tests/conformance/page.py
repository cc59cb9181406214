# SPDX-License-Identifier: Apache-2.0
"""Writes the generated part of docs/dev/conformance.md: the table of systems from goldens.tar.xz, and the tables of
numbers from measured.json, which the tests in python/ write. The text around it is written by hand.

    python page.py            rewrites the page
    python page.py --check    exit status 1 if the page is not what it would write
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE / "record"))

import golden  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "dev" / "conformance.md"
BEGIN = "<!-- begin: written by scripts/conformance page -->\n"
END = "<!-- end -->\n"

# What is particular about each rule; everything that is not said is PyTorch's.
RULES = {
    "torch": "back off at every overflow, grow after an interval of clean steps, if the result is finite",
    "apex": "ceiling 2^24, optional floor",
    "apex_hysteresis": "backs off at the H-th overflow and every further one in a row; a clean step refills",
    "colossalai": "hysteresis, refilled by growth; optional floor and ceiling",
    "deepspeed": "hysteresis, refilled by growth or by clean steps; first growth one later; floor 1",
    "fairseq": "backs off at a rate of overflows; floor that is an error",
    "flax": "growth one later; clamped to the range of fp32",
    "jmp": "floor 1; multiplies by fp32(1 / factor)",
    "jmp_eager": "floor 1; divides by the factor",
    "keras": "grows to inf",
    "megatron": "hysteresis, refilled by growth only; floor 1",
    "mindspore": "floor 1",
    "mindspore_manager": "floor 1; counts in Python",
    "mxnet": "ceiling 2^24",
    "oneflow": "floor 1, ceiling the largest float",
    "paddle": "backs off at every N-th overflow in a row",
    "tensorflow": "floor 1",
}


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def thousands(number):
    return f"{number:,}".replace(",", " ") if isinstance(number, int) else f"{number:g}"


def systems():
    rows = []
    for file in golden.read_all():
        runs, system = file["runs"], file["system"]
        rows.append([f"`{system}`", file["version"].replace("rule as published", "as published"),
                     f"`{file['source']}`", RULES[system], file["proof"], f"`{file['preset']}`",
                     len({run["case"] for run in runs}), len({run["seed"] for run in runs}),
                     max(sum(run["overflow"]) for run in runs),
                     thousands(sum(sum(run["overflow"]) for run in runs))])
    head = ["golden", "version", "what was run", "its rule", "proof", "preset", "option sets", "seeds", "steps up to",
            "updates"]
    return table(head, rows)


def measured(name):
    return json.loads((HERE / "measured.json").read_text())[name]


def numbers(name, first):
    """The table of a part of measured.json: its rows by their names, columns in the order of their first appearance."""
    rows = measured(name)
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    return table([first, *columns], [[row, *(thousands(cells[c]) if c in cells else "" for c in columns)]
                                     for row, cells in rows.items()])


def generated():
    environment = ", ".join(f"{key} {value}" for key, value in measured("environment").items())
    return "\n".join([
        "### Trajectories\n", systems(),
        f"### Numbers\n\nMeasured with {environment}.\n",
        "**Unscaling**, `torch._amp_foreach_non_finite_check_and_unscale_`\n", numbers("unscale", "dtype"),
        "**Update of the scale**, `torch._amp_update_scale_`\n", numbers("update_scale", ""),
        "**Clipping by norm**, `torch.nn.utils.clip_grad_norm_`: largest distance from fp64, in ulp of fp32\n",
        numbers("clip", "what, of which gradients"),
        "**Optimizers**, PyTorch's single-tensor path in fp32\n", numbers("optimizers", "options"),
        "**Others**, the published equations in fp64\n", numbers("papers", "options"),
        "**Training**, digits in fp16 with `torch.amp.GradScaler` and `torch.optim.AdamW`\n",
        numbers("training", ""),
    ])


def main():
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + "\n" + generated() + "\n" + END + after
    if sys.argv[1:] == ["--check"]:
        if page != wanted:
            sys.exit(f"{PAGE} is not what goldens.tar.xz and measured.json say; run scripts/conformance page")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
