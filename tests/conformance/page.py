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


def measured(name):
    return json.loads((HERE / "measured.json").read_text())[name]


def numbers(name, first):
    """The table of a part of measured.json: its rows by their names, columns in the order of their first appearance."""
    rows = measured(name)
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    return table([first, *columns], [[row, *(thousands(cells[c]) if c in cells else "" for c in columns)]
                                     for row, cells in rows.items()])


def by_kind(name):
    """The largest numbers of each optimizer, over all its options."""
    kinds = {}
    for row, cells in measured(name).items():
        kinds.setdefault(row.split()[0].rstrip(","), []).append(cells)
    columns = list(next(iter(kinds.values()))[0])

    def largest(rows, column):
        found = [cells[column] for cells in rows if column in cells]
        return thousands(max(found)) if found else ""

    return table(["optimizer", "option sets", *columns],
                 [[kind, len(rows), *(largest(rows, c) for c in columns)] for kind, rows in kinds.items()])


def generated():
    environment = ", ".join(f"{key} {value}" for key, value in measured("environment").items())
    return "\n".join([
        "### Trajectories\n", systems(),
        f"### Numbers\n\nMeasured with {environment}.\n",
        "**Unscaling**, `torch._amp_foreach_non_finite_check_and_unscale_`\n", numbers("unscale", "dtype"),
        "**Update of the scale**, `torch._amp_update_scale_`\n", numbers("update_scale", ""),
        "**Clipping by norm**, `torch.nn.utils.clip_grad_norm_`: largest distance from fp64, in ulp of fp32\n",
        numbers("clip", "what, of which gradients"),
        "**Optimizers**, PyTorch's single-tensor path in fp32, the largest of all options\n", by_kind("optimizers"),
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
