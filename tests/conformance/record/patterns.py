# SPDX-License-Identifier: Apache-2.0
"""Overflow patterns: which of a run's updates find an inf or NaN. Deterministic for a seed and a length; the same seeds
serve every system. The kinds alternate, so that twenty seeds hold rare and frequent overflows, bursts, none and all."""

import random

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
