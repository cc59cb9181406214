# SPDX-License-Identifier: Apache-2.0
"""Policies beyond PyTorch's in gradscaler.torch.GradScaler; its report, history and logs; a scale that underflows."""

import copy
import json
import math
import pickle
import warnings

import pytest

import gradscaler as gs
from conftest import DEVICE, refused
from torch_params import gst, ids, param, scaled_step, torch

KINDS = [gst.SGD, torch.optim.SGD]
FOUND = [0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]


def made(kind, scaler):
    p = param(3, grad=1.0)
    scaler.scale(torch.ones(1))
    return p, kind([("w", p)], lr=1.0)


def run(scaler, optimizer, p, overflow):
    p.grad = torch.full((3,), 1.0)
    if overflow:
        p.grad[1] = math.nan
    scaled_step(scaler, optimizer)


@pytest.mark.parametrize("preset", gs.PRESETS)
def test_presets_are_those_of_arrays(preset):
    small = {"growth_interval": 2}
    scaler = gst.GradScaler.from_preset(preset, device=DEVICE, **small)
    other = gs.GradScaler.from_preset(preset, **small)
    assert scaler.options == other.options
    p, optimizer = made(gst.SGD, scaler)
    grads = torch.zeros(3, device="cpu")
    arrays = gs.SGD([torch.zeros(3, device="cpu")], [grads], lr=1.0)
    for overflow in FOUND * 3:
        run(scaler, optimizer, p, overflow)
        grads.fill_(math.nan if overflow else 1.0)
        other.step(arrays)
        other.update()
        assert scaler.get_scale() == other.get_scale()
    ours, theirs = scaler.report(), other.report()
    for name in ("scale", "growth_tracker", "hysteresis_tracker", "consecutive_skips", "updates", "skipped", "overflow",
                 "at_floor"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [(e.update, e.scale, e.overflow) for e in scaler.history()] == [
        (e.update, e.scale, e.overflow) for e in other.history()]
    assert scaler.history()[0].grad_norm is None


def test_arguments_are_checked_at_once():
    for wrong, message in ((dict(min_scale=8.0, max_scale=4.0), "min_scale is 8, above max_scale"),
                           (dict(hysteresis=0), "hysteresis is 0"), (dict(min_scale=-1.0), "min_scale is -1"),
                           (dict(init_scale=1.0, min_scale=2.0), "init_scale is 1, below min_scale")):
        with refused(f"^{message}"):
            gst.GradScaler(DEVICE, **wrong)
    with refused("unexpected keyword argument 'minimum'", TypeError):
        gst.GradScaler(DEVICE, minimum=1.0)
    with refused("preset is 'caffe'", ValueError):
        gst.GradScaler.from_preset("caffe")
    assert gst.GradScaler(DEVICE, enabled=False, min_scale=1.0).options["enabled"] is False


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_floor_ceiling_and_hysteresis(kind):
    scaler = gst.GradScaler(DEVICE, init_scale=8.0, growth_interval=1, min_scale=4.0, max_scale=16.0, hysteresis=2)
    p, optimizer = made(kind, scaler)
    scales = []
    for overflow in (0, 0, 1, 1, 1, 1, 1):
        run(scaler, optimizer, p, overflow)
        scales.append(scaler.get_scale())
    assert scales == [16.0, 16.0, 16.0, 8.0, 4.0, 4.0, 4.0]
    scaler.update(8.0)
    assert scaler.get_scale() == 8.0
    scaler.set_growth_factor(1.5)
    run(scaler, optimizer, p, False)
    assert scaler.get_scale() == 12.0 and scaler.options["growth_factor"] == 1.5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
@pytest.mark.parametrize("by_state", [False, True])
def test_the_counters_go_along(copied, by_state):
    scaler, other = (gst.GradScaler(DEVICE, init_scale=8.0, growth_interval=3, hysteresis=2) for _ in range(2))
    p, optimizer = made(gst.SGD, scaler)
    run(scaler, optimizer, p, True)
    if by_state:
        other.load_state_dict(copied(scaler.state_dict()))
    else:
        other = copied(scaler)
    assert other.report().updates == 1 and other.options == scaler.options
    assert other.state_dict() == scaler.state_dict() and other.state_dict()["gradscaler"]["hysteresis_tracker"] == 1
    for one in (scaler, other):
        run(one, optimizer, p, True)
        assert one.get_scale() == 4.0 and one.report().skipped == 2
    torch.amp.GradScaler(DEVICE).load_state_dict(scaler.state_dict())
    with refused(r"state_dict\['gradscaler'\] has 'hysteria', which is unknown", ValueError):
        other.load_state_dict({**scaler.state_dict(), "gradscaler": {"hysteria": 1}})
    assert set(gst.GradScaler(DEVICE).state_dict()) == set(torch.amp.GradScaler(DEVICE).state_dict())


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_reports(kind):
    scaler = gst.GradScaler(DEVICE, init_scale=4.0)
    assert scaler.report().updates == 0 and scaler.report().scale == 4.0 and scaler.history() == []
    p, optimizer = made(kind, scaler)
    run(scaler, optimizer, p, False)
    ours, found = kind is gst.SGD, scaler.report(optimizer)
    assert found.grad_norm == (pytest.approx(math.sqrt(3) / 4) if ours else None)
    assert found.grad_amax == (0.25 if ours else None) and not found.overflow and found.updates == 1
    run(scaler, optimizer, p, True)
    for found in (scaler.report(optimizer), scaler.report()):
        assert (found.overflow, found.nan_count, found.inf_count, found.nonfinite_count) == (True, 1, 0, 1)
        assert (found.first_tensor, found.first_element, found.first_name) == (0, 1, "w")
        assert (found.scale, found.consecutive_skips, found.skipped) == (2.0, 1, 1)
    assert [(e.scale, e.overflow) for e in scaler.history()] == [(4.0, False), (2.0, True)]
    disabled = gst.GradScaler(DEVICE, enabled=False)
    assert (disabled.report().scale, disabled.report().overflow, disabled.history()) == (1.0, False, [])


def test_a_report_on_all_is_on_those_of_the_last_iteration():
    scaler = gst.GradScaler(DEVICE, init_scale=4.0)
    p, first = made(gst.SGD, scaler)
    q, second = made(gst.SGD, scaler)
    run(scaler, first, p, True)
    assert scaler.report().nan_count == 1
    run(scaler, second, q, False)
    assert scaler.report().nan_count == 0 and not scaler.report().overflow and scaler.report(first).nan_count == 1
    p.grad[0] = math.inf
    scaler.scale(torch.ones(1))
    for optimizer in (second, first):
        scaler.step(optimizer)
    scaler.update()
    found = scaler.report()
    assert (found.inf_count, found.nan_count, found.first_element, found.overflow) == (1, 1, 0, True)
    assert copy.deepcopy(scaler).report().overflow is False


def test_the_floor_can_be_an_error():
    scaler = gst.GradScaler(DEVICE, init_scale=1.0, min_scale=1.0, floor_action="error")
    p, optimizer = made(gst.SGD, scaler)
    run(scaler, optimizer, p, True)
    with pytest.raises(gs.ScaleFloorError) as caught:
        scaler.report(optimizer)
    assert caught.value.report.at_floor and caught.value.report.first_name == "w"


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_logs(tmp_path, kind):
    scaler = gst.GradScaler(DEVICE, init_scale=4.0, min_scale=1.0)
    p, optimizer = made(kind, scaler)
    with gs.LogWriter(tmp_path / "log") as log:
        for overflow in (0, 1):
            run(scaler, optimizer, p, overflow)
            log.step(scaler, optimizer, loss=torch.tensor(1.5))
        p.grad = torch.full((3,), 0.5)
        log.gradients(scaler, optimizer)
    first, second, look = gs.read_log(tmp_path / "log")
    assert (first["overflow"], first["loss"], first["min_scale"], second["overflow"]) == (False, 1.5, 1.0, True)
    assert (second["first_name"], second["nan_count"]) == ("w", 1)
    assert look["tensors"][0]["name"] == "w" and look["tensors"][0]["amax"] == 0.5
    assert json.loads((tmp_path / "log").read_text().splitlines()[0])["scale"] == 4.0


# PyTorch's two alone step at scale 0, on NaN.
@pytest.mark.parametrize("make, kind", [(gst.GradScaler, gst.SGD), (gst.GradScaler, torch.optim.SGD),
                                        (torch.amp.GradScaler, gst.SGD)], **ids)
def test_a_scale_that_underflows_goes_on_skipping(make, kind):
    scaler = make(DEVICE, init_scale=2.0**-120)
    p, optimizer = made(kind, scaler)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(40):
            run(scaler, optimizer, p, True)
        # A loss times 0 has gradients of 0.
        assert scaler.get_scale() == 0.0
        p.grad = torch.zeros(3)
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)
    assert p.tolist() == [0.0] * 3
    if kind is gst.SGD:
        assert not optimizer.applied and not optimizer.report().applied
    if make is torch.amp.GradScaler:
        assert not said
        return
    scaler.update()
    found = scaler.report(optimizer)
    assert found.overflow and found.scale == 0.0 and found.skipped == 41
    if kind is gst.SGD:
        assert optimizer.report().scale_underflow
    if DEVICE == "cpu":
        assert [warning.category for warning in said] == [RuntimeWarning]
        assert "the loss scale is 2.93874e-39, too small to divide by" in str(said[0].message)
        assert "inf or NaN in the gradients of w did not go away" in str(said[0].message)
    scaler.update(4.0)
    run(scaler, optimizer, p, False)
    assert p.tolist() == [-0.25] * 3 and scaler.report(optimizer).overflow is False
