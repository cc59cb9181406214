# SPDX-License-Identifier: Apache-2.0
"""Unscaling against torch._amp_foreach_non_finite_check_and_unscale_: the same bits for every pattern of 16 bits, and
for random patterns of 32 and 64, and the same verdict.

The one difference is on purpose and asserted here: a finite value whose product is not finite counts as an overflow.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its unscaling cannot be compared with")

import gradscaler as gs  # noqa: E402

BITS = {torch.float16: (torch.int16, np.uint16), torch.bfloat16: (torch.int16, np.uint16),
        torch.float32: (torch.int32, np.uint32), torch.float64: (torch.int64, np.uint64)}
NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in BITS}
# Scales: powers of two, others, far out on both sides, and one whose inverse overflows the 16-bit type.
SCALES = [1.0, 65536.0, 1000.0, 3.0, 0.7, 2.0**-6, 1e30, 1e-30, 2.0**126]
RANDOM = 1 << 18


def patterns(dtype):
    """Every pattern of a 16-bit type; else random ones and those at the borders."""
    signed, unsigned = BITS[dtype]
    width = torch.finfo(dtype).bits
    if width == 16:
        bits = np.arange(1 << 16, dtype=np.uint16)
    else:
        info = torch.finfo(dtype)
        special = torch.tensor([0.0, info.tiny, info.max, info.eps, info.smallest_normal, float("inf"), float("nan")],
                               dtype=dtype).view(signed).numpy().view(unsigned)
        near = np.concatenate([special + unsigned(i) for i in range(3)] + [special - unsigned(1)])
        sign = unsigned(1) << unsigned(width - 1)
        rng = np.random.default_rng(1)
        subnormal = rng.integers(0, 1 << (23 if width == 32 else 52), 4096, dtype=np.uint64).astype(unsigned)
        bits = np.concatenate([near, near | sign, subnormal, subnormal | sign,
                               rng.integers(0, 1 << width, RANDOM, dtype=np.uint64).astype(unsigned)])
    return torch.from_numpy(bits.view(f"int{width}").copy()).view(dtype)


def inverse(scale):
    return torch.tensor([scale], dtype=torch.float32).double().reciprocal().float()


def by_torch(values, inv, unscale=torch._amp_foreach_non_finite_check_and_unscale_):
    """The unscaled values, and whether any was not finite."""
    values, found = values.clone(), torch.zeros(1)
    unscale([values], found, inv)
    return values, found.item()


def by_ops(values, inv):
    return by_torch(values, inv, gs.ops.unscale_check)


def same_numbers(ours, theirs):
    signed, _ = BITS[ours.dtype]
    return (ours.view(signed) == theirs.view(signed)) | (ours.isnan() & theirs.isnan())


@pytest.mark.parametrize("scale", SCALES, ids="{:g}".format)
@pytest.mark.parametrize("dtype", list(BITS), ids=NAMES.get)
def test_same_bits(dtype, scale, measured):
    values, inv = patterns(dtype), inverse(scale)
    (theirs, _), (ours, _) = by_torch(values, inv), by_ops(values, inv)
    through_scaler = values.clone()
    gs.GradScaler("cpu", init_scale=scale).unscale_(gs.TensorList([through_scaler]))
    different = int((~same_numbers(ours, theirs)).sum())
    measured(NAMES[dtype], "patterns x scales", len(values) * len(SCALES))
    measured(NAMES[dtype], "different", different)
    assert different == 0
    assert same_numbers(through_scaler, theirs).all()
    signed, _ = BITS[dtype]
    nan = values.isnan()
    measured(NAMES[dtype], "NaN of another payload", int((ours.view(signed) != theirs.view(signed))[nan].sum()))


@pytest.mark.parametrize("scale", SCALES, ids="{:g}".format)
@pytest.mark.parametrize("dtype", list(BITS), ids=NAMES.get)
def test_same_verdict(dtype, scale):
    values, inv = patterns(dtype), inverse(scale)
    unscaled, _ = by_torch(values, inv)
    stays_finite = values[values.isfinite() & unscaled.isfinite()]
    assert by_torch(stays_finite, inv)[1] == by_ops(stays_finite, inv)[1] == 0.0
    offenders = values[~values.isfinite()]
    for one in offenders[torch.linspace(0, len(offenders) - 1, 256).long()]:
        assert by_torch(one[None], inv)[1] == by_ops(one[None], inv)[1] == 1.0
    # On purpose: what becomes inf here, PyTorch lets through (its issue 96755).
    becomes_infinite = values[values.isfinite() & ~unscaled.isfinite()]
    for one in becomes_infinite[:16]:
        assert (by_torch(one[None], inv)[1], by_ops(one[None], inv)[1]) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=NAMES.get)
def test_every_pattern_that_is_not_finite_is_found(dtype):
    offenders = patterns(dtype)
    offenders = offenders[~offenders.isfinite()]
    inv = inverse(65536.0)
    assert all(by_ops(one[None], inv)[1] == 1.0 for one in offenders)
