# SPDX-License-Identifier: Apache-2.0
"""Each option of the policy and each call of a scaler reaches its function; what they do is tested in C."""

import ctypes

import numpy as np
import pytest

import gradscaler as gs
from conftest import ones, zeros


def run(scaler, pattern):
    grads, scales = zeros(1), []
    for letter in pattern:
        grads[0] = np.inf if letter == "x" else 1.0
        scaler.check(gs.TensorList([grads]))
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


@pytest.mark.parametrize(("options", "pattern", "scales"), [
    ({}, "..x", [8, 16, 8]),
    ({"growth_factor": 3, "backoff_factor": 0.25, "growth_interval": 1}, ".x", [24, 6]),
    ({"min_scale": 3, "max_scale": 12}, "..xxx", [8, 12, 6, 3, 3]),
    ({"min_scale": 4, "floor_exclusive": True}, "x", [8]),
    ({"hysteresis": 2}, "x.x", [8, 8, 4]),
    ({"hysteresis": 2, "hysteresis_refill": "on_clean_step"}, "x.xx", [8, 8, 8, 4]),
    ({"hysteresis": 2, "hysteresis_refill": "consecutive"}, "xxx", [8, 4, 4]),
    ({"growth_timing": "one_later"}, "......", [8, 8, 16, 16, 16, 32]),
    ({"growth_timing": "first_one_later"}, ".....", [8, 8, 16, 16, 32]),
    ({"overflow_tolerance": 0.5, "growth_interval": 9}, "x..xx", [4, 4, 4, 4, 2]),
    ({"recovery_threshold": 8, "recovery_interval": 1}, "xx.", [4, 2, 4]),
    ({"init_scale": 2.0**127}, "..", [2.0**127, 2.0**127]),
    ({"init_scale": 2.0**127, "finite_guard": False}, "..", [2.0**127, np.inf]),
    ({"init_scale": 3, "backoff_factor": 0.1}, "x", [np.float32(3 * 0.1)]),
    ({"init_scale": 3, "backoff_factor": 0.1, "fp32_products": True}, "x", [np.float32(3) * np.float32(0.1)]),
])
def test_options(options, pattern, scales):
    scaler = gs.GradScaler(**{"init_scale": 8, "growth_interval": 2, **options})
    assert run(scaler, pattern) == scales


@pytest.mark.parametrize("equal", [False, True])
def test_growth_on_equal(equal):
    scaler = gs.GradScaler(init_scale=8, growth_interval=10, grow_on_equal=equal)
    run(scaler, "....")
    scaler.set_options(growth_interval=2)
    assert run(scaler, "...") == ([8, 8, 8] if equal else [16, 16, 32])


def test_the_floor():
    scaler = gs.GradScaler(init_scale=1, min_scale=1, floor_action="report")
    run(scaler, "x")
    assert scaler.report().at_floor
    scaler.set_options(floor_action="error")
    with pytest.raises(gs.ScaleFloorError) as raised:
        scaler.report()
    assert (raised.value.report.at_floor, raised.value.report.consecutive_skips) == (True, 1)


def test_history_and_words():
    scaler = gs.GradScaler(init_scale=8, growth_interval=1)
    run(scaler, ".x.")
    assert [(e.update, e.scale, e.overflow) for e in scaler.history()] == [(0, 16, False), (1, 8, True), (2, 16, False)]
    words = scaler.device_words
    assert ctypes.c_float.from_address(words["scale"]).value == 16
    assert ctypes.c_float.from_address(words["inv_scale"]).value == 1 / 16
    assert ctypes.c_int32.from_address(words["growth_tracker"]).value == 0
    assert ctypes.c_int32.from_address(words["hysteresis_tracker"]).value == 1


def test_a_check_in_parts(world):
    scaler, optimizer, params, grads = world()
    grads[1][2] = np.nan
    scaler.check_range(optimizer, 1, 1)
    with pytest.raises(gs.BadStateError):
        scaler.check_range(optimizer, 0, 2)
    scaler.check_range(optimizer, 0, 1)
    assert not scaler.should_step(optimizer.grads)
    assert (scaler.report(optimizer).first_tensor, scaler.report(optimizer).grad_amax) == (1, 1)


@pytest.mark.parametrize(("norm", "whole"), [(2, np.sqrt(8)), (np.inf, 1)])
def test_clipping(world, norm, whole):
    scaler, optimizer, params, grads = world()
    scaler.clip_grad_norm_(optimizer, 0.5, norm)
    scaler.clip_grad_value_(optimizer, 1)
    scaler.step(optimizer)
    np.testing.assert_allclose(params[0], 1 - 0.5 / whole, rtol=1e-5)
    scaler.update()
    scaler.clip_grad_value_(optimizer, 0.25)
    before = params[0].copy()
    scaler.step(optimizer)
    assert (params[0] == before - np.float32(0.25)).all()


def test_discard_of_one_and_of_all(world):
    scaler, first, _, grads = world()
    held = [ones(2)]
    second = gs.SGD([ones(2)], held, lr=1.0)
    grads[0][0] = np.inf
    scaler.check(first)
    scaler.step(second)
    scaler.discard(first)
    scaler.update()
    assert (scaler.get_scale(), scaler.report().skipped, second.steps, second.skipped_steps) == (4, 0, 1, 0)
    scaler.check(first)
    scaler.check(second)
    scaler.discard()
    with pytest.raises(gs.BadStateError):
        scaler.update()
