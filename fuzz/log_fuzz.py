#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes as a training log: as they are, or as edits of a right one.

What read_log accepts, the doctor judges and the plots draw; what it refuses is a ValueError with the line.
"""
import json
import os
import tempfile

import driver

with driver.instrumented():
    from gradscaler import doctor, plot
    from gradscaler.log import read_log

STEP = {"kind": "step", "scale": 1024.0, "growth_tracker": 3, "hysteresis_tracker": 1, "consecutive_skips": 0,
        "updates": 4, "skipped": 1, "grad_norm": 0.5, "grad_amax": 0.25, "nonfinite_count": 0, "inf_count": 0,
        "nan_count": 0, "first_tensor": -1, "first_element": -1, "first_name": None, "overflow": False, "step": 4,
        "min_scale": 0.0}
LOOK = {"kind": "gradients", "step": 4, "scale": 1024.0, "recommended": 4096.0,
        "tensors": [{"name": "weight", "count": 8, "zero_count": 4, "nan_count": 0, "inf_count": 0,
                     "subnormal_count": 0, "amax": 1.0}]}
VALUES = (None, True, False, 0, 1, -1, 20, 1e-45, 0.0, 1e308, 1e999, -1e999, float("nan"), "inf", "-inf", "nan", "x",
          "", [], {}, [1], {"a": 1}, 1 << 2000, "\x1b[2J<&>\u2028", "kind")
PATH = os.path.join(tempfile.mkdtemp(), "log.jsonl")


def edit(b, record):
    record = json.loads(json.dumps(record))
    for _ in range(b.below(4)):
        where = record
        if "tensors" in record and isinstance(record["tensors"], list) and record["tensors"] and b.flag():
            where = record["tensors"][0] if isinstance(record["tensors"][0], dict) else record
        if not where:
            break
        key = b.choice(sorted(where))
        if b.below(4) == 0:
            del where[key]
        else:
            where[key] = b.choice(VALUES)
    return record


def text_of(b):
    way = b.below(4)
    if way == 0:
        return b.rest()
    lines = []
    while b and len(lines) < 64:
        line = json.dumps(edit(b, b.choice((STEP, LOOK))))
        lines.append(line if b.below(16) else line[:b.below(200)])
    return ("\n".join(lines) + ("" if way == 1 else "\n")).encode("utf-8", "surrogatepass")


def one_input(data):
    with open(PATH, "wb") as file:
        file.write(text_of(driver.Bytes(data[:4096])))
    try:
        records = read_log(PATH)
    except ValueError as error:
        assert "log.jsonl" in str(error), error
        return
    for verdict in doctor.examine(records):
        assert verdict.text and "\n" not in verdict.text and "\x1b" not in verdict.text, verdict
    for draw in (plot.svg, plot.text):
        try:
            assert draw(records).endswith("\n")
        except ValueError as error:
            assert str(error) == "the log has no steps", error


if __name__ == "__main__":
    driver.main(one_input)
