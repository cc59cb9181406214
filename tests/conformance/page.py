# SPDX-License-Identifier: Apache-2.0
"""Writes the generated parts of docs/dev/conformance.md: the tables of systems from goldens/ and skips/, and the tables
of numbers from a file that the tests in python/ wrote. The text around them is written by hand.

    python page.py            writes the systems
    python page.py FILE       writes the numbers
    python page.py --check    exit status 1 if the systems are not those of the goldens
"""

import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE / "record"))

import golden  # noqa: E402

import skips  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "dev" / "conformance.md"
SKIPS = "**Steps that are skipped** in bf16, without a loss scale: NaN and inf in gradients, and norms above a limit\n"
# Around a generated part.
BEGIN, END = "<!-- begin: written by scripts/conformance {} -->\n\n", "\n<!-- end -->\n"


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
                     f"`{file['source']}`", file["proof"], f"`{file['preset']}`", len({run["case"] for run in runs}),
                     max(sum(run["overflow"]) for run in runs),
                     thousands(sum(sum(run["overflow"]) for run in runs))])
    head = ["golden", "version", "what was run", "proof", "preset", "option sets", "steps up to", "updates"]
    return table(head, rows)


def skipped_steps():
    rows = []
    for file in skips.read_all():
        for case in file["cases"]:
            steps = [(pair, there) for seed, run in enumerate(case["skipped"])
                     for pair, there in zip(skips.sequence(seed), run, strict=True)]
            taken = sum(there == "." and not all(map(math.isfinite, pair)) for pair, there in steps)
            options = ", ".join(f"{key}={value!r}" for key, value in case["options"].items())
            rows.append([f"{file['version'].partition(',')[0]}", f"`{case['source'].rpartition('.')[2]}`", case["case"],
                         f"`{options}`", len(steps), sum(there == "x" for _, there in steps),
                         taken if case["options"]["enabled"] else 0])
    head = ["version", "what was run", "its option", "`GradScaler`", "steps", "skipped by both", "skipped here only"]
    return table(head, rows)


def numbers(rows, first):
    """The table of a part of the file: its rows by their names, columns in the order of their first appearance."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    return table([first, *columns], [[row, *(thousands(cells[c]) if c in cells else "" for c in columns)]
                                     for row, cells in rows.items()])


def by_kind(rows):
    """The largest numbers of each optimizer, over all its options."""
    kinds = {}
    for row, cells in rows.items():
        kind = kinds.setdefault(row.split()[0].rstrip(","), {"option sets": 0})
        kind["option sets"] += 1
        kind.update({column: max(value, kind.get(column, value)) for column, value in cells.items()})
    return numbers(kinds, "optimizer")


def measured(found):
    environment = ", ".join(f"{key} {value}" for key, value in found["environment"].items())
    return "\n".join([
        f"Measured with {environment}.\n",
        "**Unscaling**, `torch._amp_foreach_non_finite_check_and_unscale_`\n", numbers(found["unscale"], "dtype"),
        "**Update of the scale**, `torch._amp_update_scale_`\n", numbers(found["update_scale"], ""),
        "**Clipping by norm**, `torch.nn.utils.clip_grad_norm_`: largest distance from fp64, in ulp of fp32\n",
        numbers(found["clip"], "what, of which gradients"),
        "**Optimizers**, PyTorch's single-tensor path in fp32, the largest of all options\n",
        by_kind(found["optimizers"]),
        "**Others**, the published equations in fp64\n", numbers(found["papers"], "options"),
        "**Training**, digits in fp16 with `torch.amp.GradScaler` and `torch.optim.AdamW`\n",
        numbers(found["training"], ""),
    ])


def main():
    page = PAGE.read_text()
    checked = sys.argv[1:] == ["--check"]
    part = "numerics" if sys.argv[1:] and not checked else "page"
    text = (f"{systems()}\n{SKIPS}\n{skipped_steps()}" if part == "page"
            else measured(json.loads(pathlib.Path(sys.argv[1]).read_text())))
    before, rest = page.split(BEGIN.format(part))
    wanted = before + BEGIN.format(part) + text + END + rest.split(END, 1)[1]
    if not checked:
        PAGE.write_text(wanted)
    elif page != wanted:
        sys.exit(f"{PAGE} is not what {golden.FOLDER} says; run scripts/conformance page")


if __name__ == "__main__":
    main()
