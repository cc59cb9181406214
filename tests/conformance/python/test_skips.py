# SPDX-License-Identifier: Apache-2.0
"""The steps that other systems skip in bf16, without a loss scale: recorded by record/skips.py, replayed here."""

import math
import pathlib
import sys

import numpy as np
import pytest

import gradscaler as gs

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "record"))

import skips  # noqa: E402

CASES = [pytest.param(record["system"], case, id=f"{record['system']}, {case['case']}")
         for record in skips.read_all() for case in record["cases"]]


def is_nan(pair):
    return any(map(math.isnan, pair))


def is_taken_there(system, case, pair):
    """Whether the original takes a step that the library skips: Megatron-LM only asks if the norm is above its limit,
    which a NaN is not, and not even that without a limit."""
    return system == "megatron" and (is_nan(pair) or "skip_norm" not in case["options"])


@pytest.mark.parametrize("system, case", CASES)
def test_same_steps_are_skipped(system, case):
    params, grads = ([np.zeros(size, np.float32) for size in (8, 4)] for _ in range(2))
    optimizer, scaler = gs.AdamW(params, grads), gs.GradScaler(**case["options"], spike_patience=0)
    assert len(case["skipped"]) == 100
    for seed, recorded in enumerate(case["skipped"]):
        found, wanted = "", ""
        for pair, there in zip(skips.sequence(seed), recorded, strict=True):
            for g, value in zip(grads, pair, strict=True):
                g[0] = value
            before = optimizer.steps
            scaler.clip_grad_norm_(optimizer, 1.0)
            scaler.step(optimizer)
            scaler.update()
            found += "x" if optimizer.steps == before else "."
            differs = not all(map(math.isfinite, pair)) and is_taken_there(system, case, pair)
            assert not differs or there == "."
            wanted += "x" if differs else there
        assert found == wanted, seed


def test_the_sequences_have_all_kinds():
    pairs = [pair for seed in range(100) for pair in skips.sequence(seed)]
    norms = [math.hypot(*pair) for pair in pairs]
    assert len(pairs) == 4000 and sum(norm == skips.LIMIT for norm in norms) > 100
    assert sum(map(is_nan, pairs)) > 50 and norms.count(math.inf) > 50
