# SPDX-License-Identifier: Apache-2.0
"""Tensors that are inspected where PyTorch keeps what it knows of them: used where it should be, and never wrong.

That a step sees every change, either way, is in test_torch_changes.py.
"""

import itertools
import sys

import pytest

from conftest import library

torch = library("torch")

from gradscaler import torch as gst  # noqa: E402
from gradscaler._native import native  # noqa: E402
from gradscaler.torch import _raw  # noqa: E402

if _raw.known() is None:
    if sys.platform.startswith("linux") and torch.__version__.startswith("2.13."):
        pytest.fail("the layout of this PyTorch should be known", pytrace=False)
    pytest.skip(f"the layout of tensors is not known of PyTorch {torch.__version__}", allow_module_level=True)

TYPES = torch.Tensor, torch.nn.Parameter


def record(params):
    found = native.torch_raw_record(params, TYPES, *_raw.known())
    return None if found is None else found[0]


def params_of(shape=(2, 3), count=40, dtype=torch.float32):
    params = [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for _ in range(count)]
    for p in params:
        p.grad = torch.ones_like(p)
    return params


def test_training_is_seen_without_asking_pytorch(monkeypatch):
    """Gradients that are freed and made anew by autograd, of several layers and dtypes of shapes, and a version."""
    asked = []
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
                                torch.nn.Linear(144, 5), torch.nn.LayerNorm(5))
    optimizer = gst.AdamW(model.parameters(), lr=0.1)
    same = native.torch_same
    monkeypatch.setattr(native, "torch_same", lambda *args: asked.append(1) or same(*args))
    weight, versions = model[0].weight, []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 8, 8)).square().mean().backward()
        before = weight.detach().clone()
        optimizer.step()
        assert not torch.equal(weight, before)
        versions.append(weight._version)
    assert not asked and [b - a for a, b in itertools.pairwise(versions)] == [1, 1, 1]


def grow(p):
    p.grad = torch.ones(64, 2, 3)[5]


NOTICED = {
    "data": lambda p: setattr(p, "data", torch.ones(2, 3)),
    "dtype": lambda p: setattr(p, "data", torch.ones(2, 3, dtype=torch.float64)),
    "shape": lambda p: in_place(p, lambda: p.resize_(3, 2)),
    "strides": lambda p: in_place(p, lambda: p.as_strided_((2, 3), (1, 2))),
    "set": lambda p: in_place(p, lambda: p.set_(torch.ones(2, 3))),
    "swapped": lambda p: swap(p),
    "class": lambda p: setattr(p, "__class__", type("Sub", (torch.nn.Parameter,), {})),
    "storage": lambda p: p.untyped_storage().resize_(0),
    "shorter storage": lambda p: p.untyped_storage().resize_(8),
    "copied when written": lambda p: setattr(p, "held", torch._lazy_clone(p)),
    "no gradient": lambda p: setattr(p, "grad", None),
    "gradient's dtype": lambda p: give(p, torch.ones(2, 3, dtype=torch.float16)),
    "gradient's strides": lambda p: give(p, torch.ones(3, 2).t()),
    "gradient's class": lambda p: give(p, torch.ones(2, 3).as_subclass(type("Sub", (torch.Tensor,), {}))),
    "sparse": lambda p: give(p, torch.ones(2, 3).to_sparse()),
    "negated": lambda p: give(p, torch._neg_view(torch.ones(2, 3))),
    "of inference": lambda p: give(p, inference()),
    "gradient's storage": lambda p: p.grad.untyped_storage().resize_(0),
    "gradient's shorter storage": lambda p: p.grad.untyped_storage().resize_(20),
}
#: What may be different.
UNNOTICED = {
    "new": lambda p: give(p, torch.ones(2, 3)),
    "view": grow,
    "detached": lambda p: give(p, torch.ones(2, 3).detach()),
    "of a number": lambda p: give(p, torch.ones(6).view(2, 3)),
    "parameter": lambda p: give(p, torch.nn.Parameter(torch.ones(2, 3))),
    "frozen": lambda p: p.requires_grad_(False),
    "written": lambda p: p.data.fill_(2.0),
}


def in_place(p, change):
    p.requires_grad_(False)
    change()


def give(p, grad):
    p.grad_dtype = None
    p.grad = grad


def swap(p):
    p.grad = None
    torch.utils.swap_tensors(p, torch.nn.Parameter(torch.ones(2, 3)))
    p.grad = torch.ones(2, 3)


def inference():
    with torch.inference_mode():
        return torch.ones(2, 3)


@pytest.mark.parametrize("index", [0, 31, 32, 39])
@pytest.mark.parametrize("change", [*NOTICED, *UNNOTICED])
def test_what_is_noticed(change, index):
    params = params_of()
    recorded = record(params)
    assert native.torch_raw_same(recorded, [params[:3], [], params[3:]]) == b"".join(
        p.grad.data_ptr().to_bytes(8, sys.byteorder) for p in params)
    {**NOTICED, **UNNOTICED}[change](params[index])
    found = native.torch_raw_same(recorded, [params])
    if change in NOTICED:
        assert found is None
    else:
        assert found == b"".join(p.grad.data_ptr().to_bytes(8, sys.byteorder) for p in params)


def test_other_lists_are_noticed():
    params = params_of()
    recorded = record(params)
    for lists in ([params[:-1]], [params, params[:1]], [[*params[1:], params[0]]], [tuple(params)], []):
        assert native.torch_raw_same(recorded, lists) is None
    for bad in (None, object()):
        with pytest.raises((ValueError, TypeError, SystemError)):
            native.torch_raw_same(bad, [params])


@pytest.mark.parametrize("p", [torch.ones(1, 1, 1, 1, 1, 2), torch.ones(2, dtype=torch.int32), torch.ones(0),
                               torch.ones(2).as_subclass(type("Sub", (torch.Tensor,), {})),
                               torch.ones(2, device="meta"), torch.ones(2, dtype=torch.complex64)],
                         ids=["rank", "dtype", "empty", "class", "meta", "complex"])
def test_what_is_left_to_pytorch(p):
    assert record([torch.nn.Parameter(torch.ones(1)), p]) is None


def test_six_dimensions_and_no_elements_step_all_the_same():
    found = []
    for kind in (gst.AdamW, torch.optim.AdamW):
        params = [torch.nn.Parameter(torch.ones(shape)) for shape in ((1, 2, 1, 2, 1, 2), (0, 3), (2,), ())]
        optimizer = kind(params, lr=0.1)
        for step in range(3):
            for p in params:
                p.grad = torch.full_like(p, 1.0 + step)
            optimizer.step()
        found.append(params)
    for p, q in zip(*found, strict=True):
        torch.testing.assert_close(p, q)


def test_versions():
    tensors = [torch.ones(2) for _ in range(3)]
    views = [tensor[1:] for tensor in tensors]
    _raw.increment_version(tensors)
    assert [tensor._version for tensor in tensors + views] == [1] * 6
    with torch.inference_mode():
        tensors.append(torch.ones(2))
    assert native.torch_raw_bump(tensors) is False and tensors[0]._version == 1
    _raw.increment_version(tensors)
    assert [tensor._version for tensor in tensors[:3]] == [2] * 3


@pytest.mark.parametrize("read", ["torch_raw_address", "torch_raw_fields", "torch_raw_behind", "torch_raw_bump"])
def test_a_layout_that_differs_is_not_used(monkeypatch, read):
    """As another version of PyTorch might have it: something else than expected where it is looked for."""
    original = getattr(native, read)

    def other(argument):
        found = original(argument)
        return {"torch_raw_address": lambda: found + 16, "torch_raw_bump": lambda: True,
                "torch_raw_fields": lambda: (*found[1:], 0),
                "torch_raw_behind": lambda: (*found[:3], found[3] + 1, found[4])}[read]()

    monkeypatch.setattr(native, read, other)
    assert _raw.known.__wrapped__() is None


def test_a_version_that_was_not_tested_is_not_used(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert _raw.known.__wrapped__() is None
