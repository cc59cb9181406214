# SPDX-License-Identifier: Apache-2.0
"""Which steps other systems skip when they train in bf16, without a loss scale.

    python skips.py SYSTEM OUTPUT.json

SYSTEM is deepspeed or megatron. Every case steps a model of two parameters through the system's own optimizer, on the
CPU, with the gradients of `sequence`, and records whether each step was taken. README.md in the folder above documents
the format; python/test_skips.py replays the records. scripts/conformance runs this file, in an environment that has the
system.
"""

import importlib
import json
import math
import os
import pathlib
import random
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "skips"
STEPS, LIMIT = 40, 8.0


def sequence(seed):
    """The gradients of STEPS steps: (first element of one tensor, first element of the other), all others being 0.
    They are bf16 numbers. One step in ten has a NaN or inf, some have a norm of exactly LIMIT."""
    rng = random.Random(f"gradscaler skips {seed}")

    def number(exponent):
        return math.ldexp(1.0 + int(rng.random() * 128) / 128, exponent) * (1.0 if rng.random() < 0.5 else -1.0)

    found = []
    for _ in range(STEPS):
        kind = rng.random()
        # Squares of these are normal fp32 numbers: others have inf or 0 as their norm in some systems.
        pair = [number(int(rng.random() * 100) - 50 if kind < 0.2 else int(rng.random() * 7) - 2) for _ in range(2)]
        if kind > 0.95:
            pair = [LIMIT, 0.0]
        elif kind > 0.85:
            pair[rng.random() < 0.5] = (math.nan, math.inf, -math.inf)[int(rng.random() * 3)]
        found.append(tuple(pair))
    return found


def read_all():
    return [json.loads(path.read_text(encoding="ascii")) for path in sorted(FOLDER.glob("*.json"))]


def encode(skipped):
    return "".join("x" if one else "." for one in skipped)


def main():
    name, path = sys.argv[1:]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29531"), RANK="0",
                      WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")
    system = importlib.import_module(f"systems.{name}_skips")
    recorded = []
    for case, options, source, step in system.cases():
        recorded.append({"case": case, "options": options, "source": source,
                         "skipped": [encode([not step(*pair) for pair in sequence(seed)]) for seed in range(100)]})
    found = {"system": name, "version": system.VERSION, "command": f"scripts/conformance {name}_skips",
             "cases": recorded}
    pathlib.Path(path).write_text(json.dumps(found, indent=0) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
