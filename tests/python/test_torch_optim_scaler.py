# SPDX-License-Identifier: Apache-2.0
"""The optimizers of gradscaler.torch under a GradScaler, ours and PyTorch's: unscaling, clipping, skipped steps."""

import copy
import functools
import inspect

import pytest

import gradscaler as gs
from conftest import DEVICE
from torch_params import (
    KINDS,
    SCALERS,
    close,
    copied,
    equal,
    gst,
    ids,
    param,
    params_of,
    scaled_step,
    set_grads,
    started,
    torch,
)


@pytest.mark.parametrize("make", SCALERS, **ids)
def test_a_hook_that_writes_gradients_is_seen(make):
    p = param(3, grad=100.0)
    optimizer = gst.SGD([p], lr=1.0, max_grad_norm=1.0)
    optimizer.register_step_pre_hook(lambda *_: [p.grad.zero_()] and None)
    started(make, init_scale=4.0).step(optimizer)
    assert p.tolist() == [0.0] * 3


@pytest.mark.parametrize("make", [None, *SCALERS], **ids)
@pytest.mark.parametrize("limit", [0.1, 1e6])
def test_clipping_is_clip_grad_norm(make, limit):
    """fp64: torch.nn.utils.clip_grad_norm_ takes its norm in another order, so a few ulp apart."""
    ours, theirs = params_of(), params_of()
    optimizer = gst.SGD(ours, lr=1.0, max_grad_norm=limit)
    other = torch.optim.SGD(theirs, lr=1.0, foreach=False)
    scaler = started(make, init_scale=1024.0)
    for step in range(3):
        set_grads(ours, step, scale=1024.0 if scaler else 1.0)
        set_grads(theirs, step)
        norm = torch.nn.utils.clip_grad_norm_(theirs, limit)
        other.step()
        scaled_step(scaler, optimizer)
        assert optimizer.report().grad_norm == pytest.approx(norm.item(), rel=1e-12)
    close(ours, theirs, 1e-14)
    with pytest.raises(ValueError, match="max_grad_norm is -1"):
        optimizer.max_grad_norm = -1.0


@pytest.mark.parametrize("make", SCALERS, **ids)
@pytest.mark.parametrize("kind", KINDS, **ids)
@pytest.mark.parametrize("options", [{}, {"fused": False}], ids=str)
def test_grad_scaler_skips_and_unscales(make, kind, options):
    if not options.keys() <= inspect.signature(kind).parameters.keys():
        pytest.skip("has no such argument, as PyTorch's")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    reference = copy.deepcopy(model)
    optimizer = kind(model.named_parameters(), lr=0.05, **options)
    other = kind(reference.parameters(), lr=0.05)
    scaler = make(DEVICE, init_scale=256.0, growth_interval=100)
    for step in range(5):
        x = torch.randn(3, 4)
        optimizer.zero_grad()
        other.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        reference(x).square().mean().backward()
        before = copied(model.parameters())
        if step == 2:
            model[1].weight.grad[0, 1] = float("nan")
            model[0].bias.grad[3] = float("inf")
        elif step == 3:
            scaler.unscale_(optimizer)
            other.step()
        else:
            other.step()
        scaler.step(optimizer)
        scaler.update()
        moved = [not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
        if step == 2:
            assert not any(moved)
            if not options:
                assert not optimizer.applied
                report = optimizer.report()
                assert not report.applied
                if make is gst.GradScaler:
                    assert report.first_name == "0.bias"
                    # On CUDA the first alone.
                    assert report.overflowed == ("0.bias", "1.weight")[:None if DEVICE == "cpu" else 1]
                    assert report.first_element == 3 and (report.inf_count, report.nan_count) == (1, 1)
        else:
            assert all(moved) and optimizer.applied and optimizer.report().overflowed == ()
    assert scaler.get_scale() == 128.0
    # A power of two unscales exactly.
    assert equal(model.parameters(), reference.parameters())
    if kind is not gst.SGD:
        assert all(entry["step"] == 4 for entry in optimizer.state.values())


@pytest.mark.parametrize("make", [None, *SCALERS], **ids)
def test_clipping_of_float64_beside_others(make):
    """Each dtype in its own arithmetic; gradients are read, and none is written."""
    dtypes = (torch.float64, torch.float32, torch.float64, torch.bfloat16)
    ours = [torch.nn.Parameter(torch.full((3,), 0.7, dtype=dtype)) for dtype in dtypes]
    optimizer = gst.SGD(ours, lr=1.0, max_grad_norm=0.3)
    for p in ours:
        p.grad = torch.full_like(p, 0.6)
    versions = [p.grad._version for p in ours]
    scaled_step(started(make, init_scale=3.0), optimizer)
    inverse = float(torch.tensor(1.0 / 3.0)) if make else 1.0
    factor = 0.3 / (optimizer.report().grad_norm + 1e-6)
    for p, version in zip(ours, versions, strict=True):
        assert p.grad.tolist() == torch.full_like(p, 0.6).tolist() and p.grad._version == version
        digits = {torch.float64: 1e-15, torch.float32: 2e-7, torch.bfloat16: 8e-3}[p.dtype]
        assert p.tolist() == [pytest.approx(0.7 - float(p.grad[0]) * inverse * factor, rel=digits, abs=0.0)] * 3


def test_a_first_step_that_is_skipped_leaves_no_momentum():
    p = param(2)
    optimizer = gst.SGD([p], lr=1.0, momentum=0.5, dampening=0.5)
    for value in (float("inf"), 4.0):
        p.grad = torch.full((2,), value)
        started(init_scale=1.0).step(optimizer)
        if value != 4.0:
            assert optimizer.state_dict()["state"].get(0, {}).get("momentum_buffer") is None
    # As the first step, without dampening.
    assert optimizer.state[p]["momentum_buffer"].tolist() == [4.0, 4.0] and p.tolist() == [-4.0, -4.0]


def test_the_fused_tail_reads_gradients_and_writes_none():
    p = param(3, grad=16.0)
    version = p.grad._version
    started(init_scale=8.0).step(gst.SGD([p], lr=1.0))
    assert p.tolist() == [-2.0] * 3 and p.grad.tolist() == [16.0] * 3 and p.grad._version == version


def test_a_check_that_was_not_used_is_forgotten():
    p = param(3, grad=1.0)
    optimizer = gst.SGD([p], lr=1.0)
    hook = optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        started(init_scale=8.0).step(optimizer)
    hook.remove()
    del optimizer.grad_scale, optimizer.found_inf
    p.grad = torch.full((3,), 2.0)
    optimizer.step()
    assert p.tolist() == [-2.0] * 3


@pytest.mark.parametrize("make", SCALERS, **ids)
def test_a_scale_of_the_users_own_multiplies(make):
    p = param(4, grad=4.0)
    optimizer = gst.SGD([p], lr=1.0, max_grad_norm=1.0)
    optimizer.grad_scale = torch.tensor(2.0)
    started(make, init_scale=8.0).step(optimizer)
    # 4 / 16 is a norm of 0.5, which is not clipped.
    assert p.tolist() == [-0.25] * 4 and optimizer.report().grad_norm == 0.5


def test_without_a_scaler_too():
    p = param(4, grad=4.0)
    optimizer = gst.SGD([p], lr=1.0, max_grad_norm=1.0)
    for tokens, step in ((2.0, 0.5), (16.0, 0.25)):  # norms of 4 and 0.5
        optimizer.grad_scale = torch.tensor(tokens)
        before = p.tolist()
        optimizer.step()
        assert p.tolist() == [pytest.approx(x - step) for x in before]


@pytest.mark.parametrize("scaled", [True, False])
def test_the_default_device_is_not_that_of_the_parameters(scaled):
    params, reference = params_of(dtype=torch.float32), params_of(dtype=torch.float32)
    for found, default in ((params, "meta"), (reference, "cpu")):
        set_grads(found, 1, scale=100.0)
        optimizer = gst.AdamW(found, max_grad_norm=0.5)
        scaler = gst.GradScaler(DEVICE, init_scale=4.0, enabled=scaled)
        with torch.device(default):
            scaler.scale(torch.ones((), device="cpu"))
            scaler.step(optimizer)
            scaler.update()
            assert optimizer.report().applied
    assert equal(params, reference)


OTHERS = [torch.optim.SGD, functools.partial(torch.optim.SGD, fused=True)]
GIVEN = [lambda step, closure: step(closure), lambda step, closure: step(closure=closure)]


@pytest.mark.parametrize("give", GIVEN, ids=["positional", "keyword"])
@pytest.mark.parametrize("make, kind", [*((make, kind) for make in SCALERS for kind in KINDS),
                                        *((gst.GradScaler, kind) for kind in OTHERS)], **ids)
def test_a_closure_is_refused_however_it_reaches_a_step_under_a_scaler(make, kind, give):
    """Its gradients are new: they would be divided by the scale, and never checked."""
    found, called = [], []
    for attempts in (0, 2):
        p = param(2, value=1.0, grad=16.0)
        optimizer, scaler = kind([p], lr=0.5), started(make, init_scale=16.0)
        for step in range(attempts):
            with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled"):
                give(functools.partial(scaler.step, optimizer), functools.partial(called.append, step))
            assert p.tolist() == [1.0, 1.0]
        # As Accelerate calls it.
        scaler.step(optimizer, None)
        scaler.update()
        found.append(p.tolist())
        assert scaler.get_scale() == 16.0
    assert found[0] == found[1] != [1.0, 1.0] and not called
    scaler, p.grad = make(DEVICE, enabled=False), torch.ones(2)
    give(functools.partial(scaler.step, optimizer), lambda: called.append(1))
    assert called == [1]


def test_pytorch_reads_the_description_of_device_scalars():
    # As far as that can be seen without a GPU: what it complains of is the driver or the address.
    with pytest.raises((RuntimeError, ValueError, AssertionError)) as refused:
        torch.as_tensor(gs.Tensor(4096, 1, "float32", "cuda:0", shape=()), device="cpu")
    assert "read only" not in str(refused.value)
