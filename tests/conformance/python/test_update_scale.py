# SPDX-License-Identifier: Apache-2.0
"""The scale update against torch._amp_update_scale_: the same bits of the scale and the same tracker after each update,
over random sequences with random factors and intervals, from ordinary scales and from both ends of the range."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its update of the scale cannot be compared with")

import gradscaler as gs  # noqa: E402

FLOAT_MAX = torch.finfo(torch.float32).max
STARTS = [65536.0, 1.0, 1000.0, 2.0**127, FLOAT_MAX, 2.0**-126, 1e-44, 0.0]
SEEDS = range(40)
UPDATES = 500


def words(scale):
    return torch.tensor([scale], dtype=torch.float32), torch.zeros(1, dtype=torch.int32)


@pytest.mark.parametrize("start", STARTS, ids="{:g}".format)
def test_same_sequence(start, measured):
    different = 0
    for seed in SEEDS:
        rng = random.Random(f"{start} {seed}")
        ours, theirs = words(start), words(start)
        growth = rng.choice([2.0, rng.uniform(1.0, 4.0), 1.0 + 2.0**-20])
        backoff = rng.choice([0.5, rng.uniform(0.0, 1.0)])
        interval = rng.choice([1, 2, 7, 50])
        often = rng.choice([0.0, 0.01, 0.1, 0.5, 1.0])
        for _ in range(UPDATES):
            found = torch.tensor([float(rng.random() < often)])
            gs.ops.update_scale(*ours, found, growth, backoff, interval)
            torch._amp_update_scale_(*theirs, found, growth, backoff, interval)
            different += not (torch.equal(ours[0].view(torch.int32), theirs[0].view(torch.int32))
                              and torch.equal(ours[1], theirs[1]))
    measured("scale and tracker", "updates", UPDATES * len(SEEDS) * len(STARTS))
    measured("scale and tracker", "different", different)
    assert different == 0


def test_an_interval_lowered_below_the_tracker():
    """On purpose: PyTorch's test is ==, and the scale would never grow again."""
    ours, theirs = words(4.0), words(4.0)
    for interval in [10] * 5 + [3] * 4:
        gs.ops.update_scale(*ours, 0.0, 2.0, 0.5, interval)
        torch._amp_update_scale_(*theirs, torch.zeros(1), 2.0, 0.5, interval)
    assert theirs[0].item() == 4.0
    assert ours[0].item() == 16.0
