# SPDX-License-Identifier: Apache-2.0
"""Steps that are skipped for their gradient norm, training without a scale, and gradients of before the last update.
The rule itself is tested in C and beside tests/oracle."""

import json
import math

import numpy as np
import pytest

import gradscaler as gs
from gradscaler import doctor, plot


def model(**options):
    p, g = np.ones(4, np.float32), np.zeros(4, np.float32)
    return p, g, gs.AdamW([p], [g], lr=0.1), gs.GradScaler(enabled="check", **options)


def step(scaler, optimizer, g, norm):
    g[:] = norm / 2
    scaler.step(optimizer)
    scaler.update()


def test_a_spike_is_skipped_and_reported():
    p, g, optimizer, scaler = model(skip_norm=10)
    step(scaler, optimizer, g, 5)
    before = p.copy()
    step(scaler, optimizer, g, 20)
    report = scaler.report()
    assert (p == before).all()
    assert report.spike and not report.overflow and not report.spikes_persist
    assert (report.grad_norm, report.norm_limit, report.spikes, report.skipped) == (20, 10, 1, 1)
    assert [(e.spike, e.overflow, e.norm_limit) for e in scaler.history()] == [(False, False, 10), (True, False, 10)]
    assert scaler.get_scale() == 1


def test_a_multiple_of_the_average():
    p, g, optimizer, scaler = model(spike_factor=2, spike_window=8)
    for _ in range(8):
        step(scaler, optimizer, g, 3)
        assert not scaler.report().spike
    step(scaler, optimizer, g, 7)
    report = scaler.report()
    assert report.spike and report.norm_average == pytest.approx(3) and report.norm_limit == pytest.approx(6)


def test_an_error_has_the_report():
    p, g, optimizer, scaler = model(skip_norm=1, spike_patience=1, spike_action="error")
    step(scaler, optimizer, g, 5)
    with pytest.raises(gs.SpikesError, match="norm 5 is above its limit, which is 1") as raised:
        scaler.report()
    assert raised.value.report.spikes_persist and isinstance(raised.value, gs.ReportError)


def test_an_error_is_a_reason_to_roll_back():
    options = {"spike_factor": 2, "spike_window": 8, "spike_patience": 3, "spike_action": "error"}
    p, g, optimizer, scaler = model(**options)
    right, h, without, other = model(**options)
    for _ in range(8):
        step(scaler, optimizer, g, 1)
        step(other, without, h, 1)
    kept = p.copy(), optimizer.state_dict(), scaler.state_dict()
    for norm in (1.5, 1.5, 9, 9):
        step(scaler, optimizer, g, norm)
    assert not np.array_equal(p, right) and scaler.report().spike
    step(scaler, optimizer, g, 9)
    with pytest.raises(gs.SpikesError):
        scaler.report()
    p[:] = kept[0]
    optimizer.load_state_dict(kept[1])
    scaler.load_state_dict(kept[2])
    for norm in (1, 1.2):
        step(scaler, optimizer, g, norm)
        step(other, without, h, norm)
        assert np.array_equal(p, right)
    # The average is not in the state dict, and goes on with the steps that were taken.
    assert other.report().norm_average < scaler.report().norm_average < 1.2
    step(scaler, optimizer, g, 9)
    assert scaler.report().spike and np.array_equal(p, right) and scaler.report().spikes == 1


def test_check_is_a_scale_of_1_that_stays():
    p, g, optimizer, scaler = model(growth_interval=1)
    for norm in (1, np.inf, np.nan, 1):
        step(scaler, optimizer, g, norm)
    assert scaler.get_scale() == 1 and optimizer.skipped_steps == 2
    assert scaler.options["static_scale"] and scaler.options["enabled"]
    assert gs.GradScaler.from_preset("check").options == gs.GradScaler(enabled="check").options
    with pytest.raises(TypeError, match="enabled"):
        gs.GradScaler(enabled="chek")


def test_a_static_scale_stays():
    scaler = gs.GradScaler.from_preset("static_scale", growth_interval=1)
    g = np.ones(1, np.float32)
    grads = gs.TensorList([g])
    for value in (1, np.inf, 1):
        g[:] = value
        scaler.check(grads)
        scaler.update()
    assert scaler.get_scale() == 128


def test_a_state_dict_has_the_count():
    p, g, optimizer, scaler = model(skip_norm=1)
    step(scaler, optimizer, g, 5)
    other = gs.GradScaler(enabled="check", skip_norm=1)
    other.load_state_dict(scaler.state_dict())
    assert other.report().spikes == 1


@pytest.mark.parametrize("scale", [lambda scaler: scaler.scale(1.0),
                                   lambda scaler: scaler.scale(np.ones(1, np.float32))])
def test_gradients_of_before_the_update_are_refused(scale):
    p, g, first, scaler = model()
    q, h = np.ones(4, np.float32), np.ones(4, np.float32)
    second = gs.AdamW([q], [h])
    scale(scaler)
    scaler.step(first)
    scaler.update()
    for call in (lambda: scaler.step(second), lambda: scaler.unscale_(second), lambda: scaler.step_and_update(second),
                 lambda: scaler.clip_grad_norm_(second, 1.0), lambda: scaler.should_step(second.grads)):
        with pytest.raises(gs.BadStateError, match="before the last update"):
            call()
    assert (q == 1).all()
    scale(scaler)
    scaler.step(second)
    scaler.update()
    scaler.get_scale()
    scaler.step(second)


def test_a_log_shows_spikes(tmp_path):
    p, g, optimizer, scaler = model(skip_norm=10, spike_patience=0)
    with gs.LogWriter(tmp_path / "log") as log:
        for norm in [1] * 40 + [50] + [1] * 3:
            step(scaler, optimizer, g, norm)
            log.step(scaler, optimizer)
    records = gs.read_log(tmp_path / "log")
    assert sum(r["spike"] for r in records) == 1
    assert "1 skipped step of 44" in plot.svg(records)
    said = [verdict.text for verdict in doctor.examine(records)]
    assert "1 step skipped for the gradient norm, the highest 5 times its limit" in said
    with gs.LogWriter(tmp_path / "log") as log:
        for _ in range(40):
            step(scaler, optimizer, g, 50)
            log.step(scaler, optimizer)
    problem, = [v.text for v in doctor.examine(gs.read_log(tmp_path / "log")) if v.problem]
    assert "the gradient norm, 50, is above its limit, 10" in problem
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["spike"] is True


def test_the_doctor_names_the_tensor_of_a_spike(tmp_path):
    p, q, g, h = (np.ones(4, np.float32) for _ in range(4))
    optimizer, scaler = gs.SGD({"first": p, "last": q}, {"first": g, "last": h}), gs.GradScaler(
        enabled="check", skip_norm=10)
    norms = np.zeros(2)
    optimizer.grads.set_device_norms(norms)
    with gs.LogWriter(tmp_path / "log") as log:
        for number in range(20):
            g[:], h[:] = 3.0, math.inf if number == 5 else 20.0 if number == 15 else 1.0
            scaler.step_and_update(optimizer)
            log.step(scaler, optimizer, tensor_norms=dict(zip(optimizer.grads.names, norms, strict=True)))
        scaler.step_and_update(optimizer)
        log.step(scaler, optimizer, tensor_norms="elsewhere")
    records = gs.read_log(tmp_path / "log")
    assert records[5]["tensor_norms"] == {"first": 6.0, "last": math.inf} and records[-1]["tensor_norms"] is None
    assert ("1 step skipped for the gradient norm, the highest 4.04 times its limit, when the gradient of last had 20"
            " times its usual norm") in [verdict.text for verdict in doctor.examine(records)]
