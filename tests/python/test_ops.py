# SPDX-License-Identifier: Apache-2.0
"""The stateless operations, with the numbers of PyTorch's tests of the same functions."""

import numpy as np
import pytest

import gradscaler as gs
from conftest import full, zeros
from gradscaler import ops


def test_elementwise():
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float64)
    ops.axpby(2.0, x, 3.0, y)
    assert y.tolist() == [3.0, 5.0, 7.0, 9.0, 11.0]
    half = np.zeros(5, np.float16)
    ops.cast([y], [half])
    assert half.tolist() == y.tolist()
    ops.scale([half], [x], 0.5)
    assert x.tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]


def test_what_would_be_read_after_it_was_written_is_refused():
    values = np.arange(100002, dtype=np.float32)
    before = values.copy()
    for src, dst in (([values[:-2]], [values[2:]]), ([values[2:]], [values[:-2]]),
                     ({"a": values[:4], "b": values[4:8]}, {"a": values[4:8], "b": values[8:12]})):
        for call in (lambda: ops.cast(src, dst), lambda: ops.scale(src, dst, 2.0),  # noqa: B023
                     lambda: ops.axpby(2.0, src, 1.0, dst)):  # noqa: B023
            with pytest.raises(ValueError, match=r"(src|x)\S* overlaps (dst|y)\S* in memory; pass a copy"):
                call()
    with pytest.raises(ValueError, match="outputs overlaps out in memory; pass a copy"):
        gs.GradScaler().scale(values[:-2], out=values[2:])
    found = zeros(1)
    for call in (lambda: ops.unscale_check([values, values[5:]], found, 0.5),
                 lambda: gs.clip_grad_norm_([values, values], 1.0),
                 lambda: ops.cast([before[:4], before[4:8]], [values[:4], values[2:6]])):
        with pytest.raises(ValueError, match=r"\[1\] overlaps (tensors|grads|dst)\[0\] in memory; pass a copy"):
            call()
    np.testing.assert_array_equal(values, before)
    # The same memory is no harm, and neighbours are apart.
    ops.scale([values[:4], values[4:]], [values[:4], values[4:]], 2.0)
    ops.cast([values[:4], values[:4]], [before[:4], before[4:8]])
    np.testing.assert_array_equal(values[:8], [0, 2, 4, 6, 8, 10, 12, 14])
    assert before[:8].tolist() == [0, 2, 4, 6] * 2


def test_norms():
    tensors = [np.full(9, 2.0, np.float16), np.array([8.0, -16.0], np.float32)]
    assert ops.norm(tensors) == pytest.approx(np.sqrt(36 + 320))
    assert ops.norms(tensors, float("inf")) == (2.0, 16.0)
    assert np.isnan(ops.norm([np.array([np.nan, 1.0])], np.inf))


def test_clip_grad_norm():
    grads = [full(3.0, 4), full(3.0, 12)]
    assert gs.clip_grad_norm_(grads, 6.0) == 12.0
    np.testing.assert_allclose(grads[1], 1.5, rtol=1e-5)
    before = grads[0].copy()
    assert gs.clip_grad_norm_(grads, 100.0) == pytest.approx(6.0, rel=1e-5)
    np.testing.assert_array_equal(grads[0], before)
    grads[0][0] = np.nan
    assert np.isnan(gs.clip_grad_norm_(grads, 1.0))
    with pytest.raises(RuntimeError, match="nan"):
        gs.clip_grad_norm_(grads, 1.0, error_if_nonfinite=True)


def test_the_clip_factor_of_float64_is_a_float64():
    grads = [np.full(3, 0.7), full(0.7, 2)]
    total = gs.clip_grad_norm_(grads, 0.3)
    factor = 0.3 / (total + 1e-6)
    assert grads[0].tolist() == [0.7 * factor] * 3
    assert grads[1].tolist() == [float(np.float32(0.7) * np.float32(factor))] * 2


def test_clip_grad_value():
    grads = np.array([-3.0, 0.25, 3.0, 0.5], np.float32)
    gs.clip_grad_value_(grads, 0.5)
    assert grads.tolist() == [-0.5, 0.25, 0.5, 0.5]


def test_numbers_beside_arrays_on_cuda_are_refused_with_what_helps():
    with pytest.raises(TypeError, match=r"factor is a number, but the arrays are on cuda:0; pass one float32 in that"
                                        r" memory, such as torch.tensor\(2.0, device='cuda:0'\)"):
        gs.arrays.as_number(2, "factor", "cuda:0")
