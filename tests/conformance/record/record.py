# SPDX-License-Identifier: Apache-2.0
"""Drives the loss scaler of another system with the overflow patterns and writes its golden file.

    python record.py SYSTEM OUTPUT.json

Run by scripts/conformance, in an environment that has the system. A system is a module in systems/, or for a second one
of the same project a class in it, such as apex_hysteresis in apex.py, with
    PROOF      "executed" or "modelled"
    SOURCE     where the rule is: package and class, or file of the project
    VERSION    what was run
    PRESET     name of the preset
    CASES      [(name, options, seeds, steps)], the options over the preset, written as in the golden files
    trajectory(options, overflows)  the scales after each update; fewer if the system gives up
"""

import importlib
import math
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import golden  # noqa: E402

# Overflow patterns: which of a run's updates find an inf or NaN. Deterministic for a seed and a length; the same seeds
# serve every system. The kinds alternate, so that eight seeds hold rare and frequent overflows, bursts, none and all.
KINDS = ("rare", "frequent", "bursts", "settling", "edge", "dense")


def pattern(seed, steps):
    """A list of `steps` booleans. Seeds 0 and 1 are the two extremes: no overflow, and nothing else."""
    if seed == 0:
        return [False] * steps
    if seed == 1:
        return [True] * steps
    rng = random.Random(f"gradscaler overflow pattern {seed}")
    kind = KINDS[seed % len(KINDS)]
    if kind == "rare":
        return [rng.random() < 0.005 for _ in range(steps)]
    if kind == "frequent":
        return [rng.random() < 0.08 for _ in range(steps)]
    if kind == "dense":
        return [rng.random() < 0.6 for _ in range(steps)]
    if kind == "settling":  # a bad start, then calm
        head = rng.randrange(20, 60)
        return [i < head or rng.random() < 0.01 for i in range(steps)]
    if kind == "bursts":
        out = []
        while len(out) < steps:
            out += [False] * rng.randrange(1, 200) + [True] * rng.randrange(1, 12)
        return out[:steps]
    # "edge": clean runs of lengths around the usual growth intervals, one overflow after each
    out = []
    while len(out) < steps:
        out += [False] * max(0, rng.choice((1, 7, 20, 50, 100)) + rng.randrange(-2, 3)) + [True]
    return out[:steps]


def comparable(scales):
    """The number of updates of a trajectory that the library can follow. It ends before the scale becomes subnormal, as
    its inverse is then inf and unscaling itself overflows, which the library counts and most systems do not notice;
    and before a scale that is a Python number leaves the range of fp32."""
    for i, scale in enumerate(scales):
        if scale < 2.0**-126 or (math.isfinite(scale) and not math.isfinite(golden.to_float32(scale))):
            return i
    return len(scales)


def main():
    name, path = sys.argv[1:]
    file = name.partition("_")[0]
    system = importlib.import_module(f"systems.{file}")
    if name != file:
        system = getattr(system, name)
    recorded = []
    for case, options, seeds, steps in system.CASES:
        for seed in seeds:
            # The extremes go on to the ends of the range; of random overflows 40 growth intervals are enough.
            enough = steps if seed < 2 else max(300, 40 * options.get("growth_interval", 2000))
            overflows = pattern(seed, min(steps, enough))
            scales = system.trajectory(dict(options), overflows)
            scales = scales[: comparable(scales)]
            overflows = overflows[: len(scales)]
            values, held = golden.held_scales(scales)
            recorded.append({"case": case, "seed": seed, "options": options, "overflow": golden.runs(overflows),
                             "scale": values, "held": held})
    header = {
        "system": name,
        "preset": system.PRESET,
        "proof": system.PROOF,
        "source": system.SOURCE,
        "version": system.VERSION,
        "command": f"scripts/conformance {name}",
    }
    golden.write(path, header, recorded)


if __name__ == "__main__":
    main()
