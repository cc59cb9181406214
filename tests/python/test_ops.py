# SPDX-License-Identifier: Apache-2.0
"""The stateless operations, with the numbers of PyTorch's tests of the same functions."""

import numpy as np
import pytest

import gradscaler as gs
from gradscaler import ops


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_unscale_check(dtype):
    grads = [np.full((20, 20), 4.0, dtype), np.full(3, 4.0, dtype)]
    found = np.zeros(1, np.float32)
    ops.unscale_check(grads, found, 0.25)
    assert found[0] == 0.0 and (grads[0] == 1.0).all() and (grads[1] == 1.0).all()
    for bad in (np.inf, np.nan):
        for index in range(3):
            grads[1][:] = 4.0
            grads[1][index] = bad
            found[:] = 0
            ops.unscale_check(grads, found, np.full(1, 0.25, np.float32))
            assert found[0] == 1.0


def test_update_scale():
    scale, tracker = np.full(1, 4.0, np.float32), np.zeros(1, np.int32)
    for found, expected in ((0.0, (1, 4.0)), (0.0, (0, 8.0)), (1.0, (0, 2.0))):
        ops.update_scale(scale, tracker, found, 2.0, 0.25, 2)
        assert (tracker[0], scale[0]) == expected
    scale[:] = 1e38
    ops.update_scale(scale, tracker, 0.0, 16.0, 0.25, 1)
    assert scale[0] == np.float32(1e38)


def test_elementwise():
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float64)
    ops.axpby(2.0, x, 3.0, y)
    assert y.tolist() == [3.0, 5.0, 7.0, 9.0, 11.0]
    half = np.zeros(5, np.float16)
    ops.cast([y], [half])
    assert half.tolist() == y.tolist()
    ops.scale([half], [x], 0.5)
    assert x.tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]


def test_norms():
    tensors = [np.full(9, 2.0, np.float16), np.array([8.0, -16.0], np.float32)]
    assert ops.norm(tensors) == pytest.approx(np.sqrt(36 + 320))
    assert ops.norms(tensors, float("inf")) == (2.0, 16.0)
    assert np.isnan(ops.norm([np.array([np.nan, 1.0])], np.inf))


def test_clip_grad_norm():
    grads = [np.full(4, 3.0, np.float32), np.full(12, 3.0, np.float32)]
    assert gs.clip_grad_norm_(grads, 6.0) == 12.0
    np.testing.assert_allclose(grads[1], 1.5, rtol=1e-5)
    before = grads[0].copy()
    assert gs.clip_grad_norm_(grads, 100.0) == pytest.approx(6.0, rel=1e-5)
    np.testing.assert_array_equal(grads[0], before)
    grads[0][0] = np.nan
    assert np.isnan(gs.clip_grad_norm_(grads, 1.0))
    with pytest.raises(RuntimeError, match="nan"):
        gs.clip_grad_norm_(grads, 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    grads = np.array([-3.0, 0.25, 3.0, 0.5], np.float32)
    gs.clip_grad_value_(grads, 0.5)
    assert grads.tolist() == [-0.5, 0.25, 0.5, 0.5]
