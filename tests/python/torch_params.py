# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of gradscaler.torch, which are skipped without PyTorch: parameters and gradients, a step under a
scaler, and when two of these are equal."""

from conftest import DEVICE, library

torch = library("torch")

from gradscaler import torch as gst  # noqa: E402

KINDS = [kind for name, kind in vars(gst).items() if isinstance(kind, type) and issubclass(kind, gst.FusedOptimizer)
         and kind is not gst.FusedOptimizer]
SCALERS = [gst.GradScaler, torch.amp.GradScaler]
ids = dict(ids=lambda value: getattr(value, "__name__", ""))


def params_of(shapes=((3, 4), (5,), (2, 3, 2)), dtype=torch.float64, seed=0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
            for shape in shapes]


def param(*shape, value=0.0, grad=None):
    p = torch.nn.Parameter(torch.full(shape, value))
    p.grad = None if grad is None else torch.full(shape, grad)
    return p


def set_grads(params, seed, missing=(), scale=1.0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    for i, p in enumerate(params):
        grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.grad = None if i in missing else (grad * scale).to(p.dtype)


def scaled_step(scaler, optimizer):
    """A step and an update under a scaler that has scaled a loss; without a scaler the step alone."""
    if scaler is None:
        optimizer.step()
        return
    scaler.scale(torch.ones(1))
    scaler.step(optimizer)
    scaler.update()


def started(make=gst.GradScaler, **options):
    """A scaler that has scaled a loss; None if none is made."""
    if make is None:
        return None
    scaler = make(DEVICE, **options)
    scaler.scale(torch.ones(1))
    return scaler


def copied(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def equal(ours, theirs):
    return all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def same_with_torchs(train):
    """`train(kind)` must return the same parameters with each AdamW."""
    close(train(gst.AdamW), train(torch.optim.AdamW))


def close(ours, theirs, tolerance=1e-12):
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def same_state(ours, theirs, tolerance=1e-12):
    left, right = ours.state_dict(), theirs.state_dict()
    assert left["state"].keys() == right["state"].keys()
    for key, entry in left["state"].items():
        other = right["state"][key]
        assert set(entry) == set(other), key
        for slot, value in entry.items():
            if value is None:
                assert other[slot] is None
            else:
                # PyTorch's count is on the default device, or with fused=True on the parameter's.
                expected = other[slot].to(value.device) if slot == "step" else other[slot]
                torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    for group, other in zip(left["param_groups"], right["param_groups"], strict=True):
        assert set(group) == set(other) and group["params"] == other["params"]
