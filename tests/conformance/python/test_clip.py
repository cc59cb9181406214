# SPDX-License-Identifier: Apache-2.0
"""Clipping by norm against torch.nn.utils.clip_grad_norm_, both measured against the same in fp64.

The norm and every clipped gradient lie within 2 ulp of it, and never further from it than PyTorch's, or than rounding
alone can take an exact result: half an ulp for the norm; for a gradient one and a half, as the factor is rounded too.
"""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its clipping cannot be compared with")

import gradscaler as gs  # noqa: E402
from conftest import ulp  # noqa: E402

SHAPES = {"one": [1], "small": [7, 64, 1], "layers": [64 * 64, 64, 64 * 10, 10], "large": [1 << 18, 3, 1000]}
SPREADS = {"normal": lambda rng, n: rng.standard_normal(n), "wide": lambda rng, n: np.exp(6 * rng.standard_normal(n)),
           "tiny": lambda rng, n: 1e-22 * rng.standard_normal(n)}
SCALE = 1024.0


def gradients(shapes, spread, seed):
    rng = np.random.default_rng(seed)
    return [spread(rng, n).astype(np.float32) for n in shapes]


def reference(grads, max_norm, norm_type):
    """Norm, and clipped gradients, in fp64; the sum of squares is exact."""
    wide = [g.astype(np.float64) for g in grads]
    if norm_type == 2.0:
        norm = math.sqrt(math.fsum(x for g in wide for x in g * g))
    else:
        norm = max(float(np.abs(g).max()) for g in wide)
    factor = min(1.0, max_norm / (norm + 1e-6))
    return norm, [g * factor for g in wide]


def distance(grads, exact):
    return max(float((np.abs(g - e) / ulp(e)).max()) for g, e in zip(grads, exact, strict=True))


def by_ops(grads, max_norm, norm_type):
    return gs.clip_grad_norm_(grads, max_norm, norm_type), grads


def by_scaler(grads, max_norm, norm_type):
    """Scaled by a power of two, which is exact, then unscaled and clipped."""
    scaled = [g * np.float32(SCALE) for g in grads]
    scaler, found = gs.GradScaler("cpu", init_scale=SCALE), gs.TensorList(scaled)
    scaler.unscale_(found)
    scaler.clip_grad_norm_(found, max_norm, norm_type)
    report = scaler.report(found)
    return report.grad_norm if norm_type == 2.0 else report.grad_amax, scaled


@pytest.mark.parametrize("norm_type", [2.0, math.inf], ids=["l2", "inf"])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_within_two_ulp_and_no_further_than_torch(shapes, spread, norm_type, measured):
    def off(side, found_norm, found):
        """From the exact norm and gradients, in ulp."""
        distances = abs(found_norm - norm) / ulp(norm), distance(found, exact)
        for what, value in zip(("norm", "gradients"), distances, strict=True):
            measured(f"{what}, {spread}", side, round(float(value), 2))
        return distances

    for seed in range(4):
        grads = gradients(SHAPES[shapes], SPREADS[spread], seed)
        size, _ = reference(grads, 1.0, norm_type)
        for max_norm in (1.0, 0.37 * size, 2.0 * size):
            norm, exact = reference(grads, max_norm, norm_type)
            theirs = [torch.from_numpy(g.copy()).requires_grad_() for g in grads]
            for tensor, g in zip(theirs, grads, strict=True):
                tensor.grad = torch.from_numpy(g.copy())
            torch_norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type).item()
            torch_norm_off, torch_off = off("torch", torch_norm, [tensor.grad.numpy() for tensor in theirs])
            for clip in (by_ops, by_scaler):
                norm_off, our_off = off("gradscaler", *clip([g.copy() for g in grads], max_norm, norm_type))
                assert norm_off <= min(2.0, max(torch_norm_off, 0.5))
                assert our_off <= min(2.0, max(torch_off, 1.5))
