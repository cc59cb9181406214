# SPDX-License-Identifier: Apache-2.0
"""Each option of the policy and each call of a scaler reaches its function; what they do is tested in C."""

import ctypes
import warnings

import numpy as np
import pytest

import gradscaler as gs
from conftest import full, ones, zeros


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


#: What ends an iteration, and what makes a scale too small without one.
ENDS = {"update": lambda scaler, optimizer: (scaler.step(optimizer), scaler.update()),
        "step_and_update": lambda scaler, optimizer: scaler.step_and_update(optimizer)}
LOST = {"update": lambda tiny: gs.GradScaler().update(tiny), "init_scale": lambda tiny: gs.GradScaler(init_scale=tiny),
        "load_state_dict": lambda tiny: (scaler := gs.GradScaler()).load_state_dict({**scaler.state_dict(),
                                                                                    "scale": tiny})}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_scale_that_became_too_small_is_told_once(end):
    scaler = gs.GradScaler(init_scale=8.0, backoff_factor=2.0**-20)
    params, grads = {"w": zeros(3)}, {"w": full(np.nan, 3)}
    optimizer = gs.SGD(params, grads, lr=1.0)
    with pytest.warns(RuntimeWarning, match=r"^the loss scale .* is too small to divide by, and every step is skipped"
                                            r" until update\(new_scale\) sets one; inf or NaN in gradient 0 \(\"w\"\)"
                                            r" did not go away .*, to which min_scale= is a limit$") as said:
        for _ in range(12):
            end(scaler, optimizer)
    assert len(said) == 1 and said[0].filename == __file__
    scaler.update(8.0)
    with pytest.warns(RuntimeWarning, match="too small"):
        for _ in range(12):
            end(scaler, optimizer)


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_scale_that_is_set_too_small_is_told(lose):
    with pytest.warns(RuntimeWarning, match=r"^the loss scale 1.4013e-45 is too small .* sets one$") as said:
        lose(2.0**-149)
    assert len(said) == 1 and said[0].filename == __file__


def test_a_warning_that_is_an_error_leaves_the_update_complete():
    params, grads = [zeros(3)], [full(np.nan, 3)]
    scaler, optimizer = gs.GradScaler(init_scale=2.0**-125), gs.SGD(params, grads, lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.step(optimizer)
        scaler.update()
        scaler.step(optimizer)
        with pytest.raises(RuntimeWarning, match="too small"):
            for _ in range(9):
                scaler.update()
                scaler.step(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.report().skipped == scaler.report().updates > 2


def test_the_floor_is_the_reports_alone():
    scaler = gs.GradScaler(init_scale=1, min_scale=1, floor_action="report")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(scaler, "xxx")
        assert scaler.report().at_floor


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
