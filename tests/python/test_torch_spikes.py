# SPDX-License-Identifier: Apache-2.0
"""Optimizers of gradscaler.torch that skip by themselves, and a GradScaler that only checks."""

import copy
import math
import pickle

import pytest

from torch_params import gst, torch


def param(dtype=torch.float32, value=1.0):
    return torch.nn.Parameter(torch.full((4,), value, dtype=dtype))


def step(optimizer, p, norm):
    """Whether the parameter moved."""
    before = p.detach().clone()
    p.grad = torch.full_like(p, norm / 2)
    optimizer.step()
    return not torch.equal(before, p.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_limit_of_the_norm_skips_nan(dtype):
    p = param(dtype)
    optimizer = gst.AdamW([p], lr=0.1, max_grad_norm=1.0)
    assert step(optimizer, p, 1.0)
    state = copy.deepcopy(optimizer.state_dict()["state"][0])
    for bad in (math.nan, math.inf):
        assert not step(optimizer, p, bad)
        assert not optimizer.applied and optimizer.report().overflowed
    assert all(torch.equal(value, optimizer.state_dict()["state"][0][key]) for key, value in state.items())
    assert step(optimizer, p, 1.0) and optimizer.applied


def test_skip_nonfinite_without_a_limit():
    p = param()
    assert step(gst.SGD([p], lr=0.1), p, math.nan)  # as torch.optim
    p = param()
    optimizer = gst.SGD([p], lr=0.1, skip_nonfinite=True)
    assert not step(optimizer, p, math.nan) and step(optimizer, p, 1.0)
    p = param()
    assert step(gst.SGD([p], lr=0.1, max_grad_norm=math.inf, skip_nonfinite=False), p, math.nan)


def test_the_norm_of_every_tensor():
    p, q, r = param(), param(torch.bfloat16), param()
    named = [("p", p), ("q", q), ("r", r)]
    plain, scaled = (gst.AdamW(named, lr=0.1, tensor_norms=True) for _ in range(2))
    p.grad, q.grad = torch.full_like(p, 3.0), torch.full_like(q, math.inf)
    plain.step()
    assert plain.report().tensor_norms == {"p": 3 * math.sqrt(p.numel()), "q": math.inf}
    assert plain.applied  # norms alone skip nothing
    scaler = gst.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    p.grad, q.grad, r.grad = torch.zeros_like(p), torch.full_like(q, 4.0), torch.full_like(r, math.nan)
    scaler.step(scaled)
    norms = scaled.report().tensor_norms
    assert list(norms) == ["p", "q", "r"] and math.isnan(norms.pop("r"))
    assert norms == {"p": 0.0, "q": 0.5 * math.sqrt(q.numel())} and not scaled.applied
    assert pickle.loads(pickle.dumps(scaled))._tensor_norms and gst.AdamW([p], max_grad_norm=1.0).report() \
        .tensor_norms is None
    with pytest.raises(TypeError, match="tensor_norms"):
        gst.AdamW([p], tensor_norms="all")


def test_a_limit_of_the_norm():
    p = param()
    optimizer = gst.AdamW([p], lr=0.1, skip_norm=10)
    assert [step(optimizer, p, norm) for norm in (5, 20, 5)] == [True, False, True]
    assert not step(optimizer, p, 20)
    report = optimizer.report()
    assert (report.applied, report.spike, report.grad_norm, report.norm_limit) == (False, True, 20, 10)
    assert report.overflowed == ()


def test_the_norm_is_that_of_all_parameters():
    p, q = param(), param(torch.bfloat16)
    optimizer = gst.AdamW([p, q], lr=0.1, skip_norm=10)
    q.grad = torch.full_like(q, 4.0)
    assert step(optimizer, p, 4)  # 5 and 8: two lists
    q.grad = torch.full_like(q, 5.0)
    assert not step(optimizer, p, 4)


def test_a_multiple_of_the_average_and_patience():
    p = param()
    optimizer = gst.AdamW([p], lr=0.01, spike_factor=2, spike_window=8, spike_patience=3)
    assert all(step(optimizer, p, 3) for _ in range(8))
    assert [step(optimizer, p, 30) for _ in range(5)] == [False, False, False, True, True]
    assert optimizer.report().norm_average == pytest.approx(30)


def test_an_earlier_state_leaves_the_average():
    p = param()
    optimizer = gst.AdamW([p], lr=0.01, spike_factor=2, spike_window=8)
    earlier = copy.deepcopy(optimizer.state_dict())
    assert all(step(optimizer, p, 3) for _ in range(8))
    optimizer.load_state_dict(earlier)
    assert not optimizer.state_dict()["state"]
    assert not step(optimizer, p, 30) and optimizer.report().norm_average == pytest.approx(3)
    with pytest.raises(ValueError, match="param"):
        optimizer.load_state_dict({**earlier, "param_groups": []})
    assert not step(optimizer, p, 30)


@pytest.mark.parametrize("scaler_of", [torch.amp.GradScaler, gst.GradScaler])
def test_beside_a_scaler(scaler_of):
    p = param()
    optimizer = gst.AdamW([p], lr=0.1, skip_norm=10)
    scaler = scaler_of("cpu", init_scale=4.0, growth_interval=2)
    moved = []
    for norm in (5, 20, math.inf, 5):
        before = p.detach().clone()
        scaler.scale(torch.ones(1))
        p.grad = torch.full_like(p, 4.0 * norm / 2) if norm != math.inf else torch.full_like(p, norm)
        scaler.step(optimizer)
        scaler.update()
        moved.append(not torch.equal(before, p.detach()))
        if scaler_of is gst.GradScaler:
            assert scaler.applied(optimizer) == moved[-1]
    assert moved == [True, False, False, True]
    assert scaler.get_scale() == 4.0


def test_options_are_checked_and_kept():
    p = param()
    with pytest.raises(ValueError, match="skip_norm is -1"):
        gst.AdamW([p], skip_norm=-1)
    with pytest.raises(ValueError, match="spike_factor is 0.5"):
        gst.AdamW([p], spike_factor=0.5)
    with pytest.raises(ValueError, match="skip_nonfinite is False"):
        gst.AdamW([p], skip_norm=1, skip_nonfinite=False)
    with pytest.raises(TypeError, match="spike_facter"):
        gst.AdamW([p], spike_facter=2)
    with pytest.raises(TypeError, match="spike_factor is an argument of the optimizers"):
        gst.GradScaler("cpu", spike_factor=2)
    again = pickle.loads(pickle.dumps(gst.AdamW([p], lr=0.1, skip_norm=10)))
    q, = again.param_groups[0]["params"]
    assert not step(again, q, 20) and step(again, q, 5)


def test_check_is_a_scale_of_1():
    p = param()
    scaler, optimizer = gst.GradScaler("cpu", enabled="check", growth_interval=1), torch.optim.SGD([p], lr=0.1)
    for value in (1.0, math.nan, 1.0):
        p.grad = torch.full_like(p, value)
        loss = scaler.scale(torch.tensor(3.0))
        assert loss == 3.0
        scaler.step(optimizer)
        scaler.update()
    assert p[0].item() == pytest.approx(0.8)
