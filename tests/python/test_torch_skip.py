# SPDX-License-Identifier: Apache-2.0
"""The answer, after the fact, whether a step was applied, and schedules that wait for one that was."""

import copy
import pickle

import pytest

import gradscaler as gs
from conftest import DEVICE
from torch_params import SCALERS, gst, ids, param, scaled_step, started, torch

OPTIMIZERS = [lambda p: gst.AdamW(p, lr=1.0), lambda p: gst.SGD(p, lr=1.0, fused=False),
              lambda p: torch.optim.AdamW(p, lr=1.0, fused=True), lambda p: torch.optim.SGD(p, lr=1.0, foreach=False)]


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def step_of(scaler, optimizer, p, value):
    scaler.scale(torch.ones(1))
    p.grad = torch.full((2,), value)
    scaler.step(optimizer)


@pytest.mark.parametrize("make", SCALERS)
@pytest.mark.parametrize("optimizer_of", OPTIMIZERS)
def test_a_schedule_waits_for_steps_that_were_applied(make, optimizer_of):
    p = param(2)
    optimizer = optimizer_of([p])
    schedule = gst.AppliedLR(halving(optimizer))
    scaler = make(DEVICE, init_scale=4.0)
    rates = []
    for value in (1.0, float("inf"), float("nan"), 1.0):
        step_of(scaler, optimizer, p, value)
        scaler.update()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates == [0.5, 0.5, 0.5, 0.25] == [*rates[:3], optimizer.param_groups[0]["lr"]]
    # Once for an epoch: one applied step among several is enough; none is not.
    for values, rate in (((float("inf"), 1.0, float("inf")), 0.125), ((float("inf"),), 0.125), ((), 0.125)):
        for value in values:
            step_of(scaler, optimizer, p, value)
            scaler.update()
        schedule.step()
        assert schedule.get_last_lr() == [rate]
    other = halving(optimizer)
    other.load_state_dict(schedule.state_dict())
    assert other.last_epoch == schedule.last_epoch == 3
    schedule.load_state_dict({**other.state_dict(), "last_epoch": 7})
    assert schedule.scheduler.last_epoch == 7 and isinstance(schedule, torch.optim.lr_scheduler.LRScheduler)


@pytest.mark.parametrize("optimizer_of", OPTIMIZERS)
def test_applied_and_overflowed(optimizer_of):
    named = [("a", param(2)), ("b", param(2))]
    optimizer = optimizer_of(named)
    scaler = gst.GradScaler(DEVICE, init_scale=4.0)
    with pytest.raises(ValueError, match="has taken no step of that"):
        scaler.applied(optimizer)
    for value, applied in ((1.0, True), (float("inf"), False), (1.0, True)):
        named[1][1].grad = torch.ones(2)
        step_of(scaler, optimizer, named[0][1], value)
        assert scaler.overflowed(optimizer) == (() if applied else ("a",))
        scaler.update()
        assert scaler.applied(optimizer) == applied
        optimizer.zero_grad()
        assert scaler.applied(optimizer) == applied and scaler.overflowed(optimizer) == ()
    assert pickle.loads(pickle.dumps(scaler)).get_scale() == scaler.get_scale()


# PyTorch warns of this for copies of its schedules.
@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")
@pytest.mark.parametrize("optimizer_of", OPTIMIZERS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))],
                         ids=["deepcopy", "pickle"])
def test_copies_of_a_schedule_go_on(optimizer_of, copied):
    optimizer = optimizer_of([param(2)])
    schedule = gst.AppliedLR(halving(optimizer))
    before = optimizer.param_groups[0]["lr"]
    optimizer, schedule = copied((optimizer, schedule))
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == before
    optimizer.param_groups[0]["params"][0].grad = torch.zeros(2)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == before / 2


def test_schedules_of_schedules():
    def run(outer):
        p = param(2, grad=0.0)
        optimizer = torch.optim.SGD([p], lr=1.0)
        schedule = outer(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 3),
                         torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        rates = []
        for _ in range(5):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return rates

    found = torch.optim.lr_scheduler
    for plain, wrapped in [
            (lambda o, a, b: found.SequentialLR(o, [a, b], [2]),
             lambda o, a, b: gst.AppliedLR(found.SequentialLR(o, [a, b], [2]))),
            (lambda o, a, b: found.ChainedScheduler([a, b]),
             lambda o, a, b: found.ChainedScheduler([gst.AppliedLR(a), gst.AppliedLR(b)]))]:
        assert run(plain) == run(wrapped)
    with pytest.raises(TypeError, match="make the AppliedLR of the SequentialLR"):
        run(lambda o, a, b: found.SequentialLR(o, [gst.AppliedLR(a), gst.AppliedLR(b)], [2]))


@pytest.mark.parametrize("make", [None, *SCALERS], **ids)
def test_nothing_is_applied_before_the_first_step(make):
    p = param(2, value=1.0, grad=1.0)
    optimizer = gst.SGD([p], lr=1.0)
    assert not optimizer.applied and not optimizer.report().applied
    scaled_step(started(make, init_scale=2.0), optimizer)
    assert optimizer.applied and optimizer.report().applied
    assert not copy.deepcopy(optimizer).applied


def test_disabled_scalers_apply_everything():
    p = param(2)
    optimizer, scaler = gst.SGD([p], lr=1.0), gst.GradScaler(DEVICE, enabled=False)
    schedule = gst.AppliedLR(halving(optimizer))
    step_of(scaler, optimizer, p, 1.0)
    schedule.step()
    assert scaler.applied(optimizer) and optimizer.applied and schedule.get_last_lr() == [0.5]


def test_what_is_no_schedule_is_refused_by_name():
    p = param(2, value=1.0)
    arrays = gs.AdamW([p.detach()], [torch.ones(2)])
    for given, called in ((gst.AdamW([p]), "gradscaler.torch._optimizers.AdamW"),
                          (arrays, "gradscaler.optimizers.AdamW"), (0.1, "builtins.float")):
        with pytest.raises(TypeError, match=rf"^scheduler is {called}; it must be a scheduler of torch.optim"):
            gst.AppliedLR(given)
