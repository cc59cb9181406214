# SPDX-License-Identifier: Apache-2.0
"""Snapshots of tensors, and the guard by which the optimizers of gradscaler.torch notice that one is another."""

import pytest

from conftest import run_python
from torch_params import gst, param, torch

StepGuard, take_snapshot = gst._guards.StepGuard, gst._guards.take_snapshot


def test_layouts_say_what_differs():
    base = torch.zeros(2, 3)
    kinds = [base, base.half(), base[:, :2], base.t(), torch.zeros(6), torch.zeros(2, 3, 1), None, torch.zeros(0, 3)]
    layouts = [take_snapshot([tensor]).layout for tensor in kinds]
    assert all(layouts[i] != layouts[j] for i in range(len(kinds)) for j in range(i))
    assert take_snapshot([base]) == take_snapshot([base.view(2, 3)]) != take_snapshot([base.clone()])
    assert take_snapshot([]).addresses == b""
    many = take_snapshot(kinds * 30)
    assert list(many.address_list()) == 30 * [0 if tensor is None else tensor.data_ptr() for tensor in kinds]


@pytest.mark.parametrize("tensor", [torch._neg_view(torch.ones(3)), torch._neg_view(torch.ones(1)),
                                    torch.ones(3).as_subclass(type("Sub", (torch.Tensor,), {})),
                                    torch.ones(3).to_sparse()], ids=["negated", "one", "class", "sparse"])
def test_what_dlpack_does_not_know(tensor):
    assert take_snapshot([torch.ones(3), tensor]) is None


@pytest.mark.parametrize("is_old", [False, True])
def test_info_says_how_tensors_are_inspected(is_old):
    code = "import runpy, torch; {}runpy.run_module('gradscaler', run_name='__main__')".format(
        "del torch.Tensor.__dlpack_c_exchange_api__; " if is_old else "")
    found = run_python("-c", code, "info")
    expected = (f"gradscaler.torch needs PyTorch 2.10 or later; this is {torch.__version__}" if is_old else
                f"PyTorch {torch.__version__}: tensors are inspected by DLPack")
    assert found.splitlines()[-1] == expected, found


def give(p, grad):
    p.grad_dtype = None
    p.grad = grad


def swap(p):
    p.grad = None
    torch.utils.swap_tensors(p, param(2, 3, value=1.0))
    p.grad = torch.ones(2, 3)


def in_place(p, change):
    p.requires_grad_(False)
    change()


def inference():
    with torch.inference_mode():
        return torch.ones(2, 3)


NOTICED = {
    "data": lambda p: setattr(p, "data", torch.ones(2, 3)),
    "dtype": lambda p: setattr(p, "data", torch.ones(2, 3, dtype=torch.float64)),
    "shape": lambda p: in_place(p, lambda: p.resize_(3, 2)),
    "strides": lambda p: in_place(p, lambda: p.as_strided_((2, 3), (1, 2))),
    "set": lambda p: in_place(p, lambda: p.set_(torch.ones(2, 3))),
    "swapped": swap,
    "class": lambda p: setattr(p, "__class__", type("Sub", (torch.nn.Parameter,), {})),
    "storage": lambda p: p.untyped_storage().resize_(0),
    "gradient's dtype": lambda p: give(p, torch.ones(2, 3, dtype=torch.float16)),
    "gradient's strides": lambda p: give(p, torch.ones(3, 2).t()),
    "gradient's class": lambda p: give(p, torch.ones(2, 3).as_subclass(type("Sub", (torch.Tensor,), {}))),
    "sparse": lambda p: give(p, torch.ones(2, 3).to_sparse()),
    "negated": lambda p: give(p, torch._neg_view(torch.ones(2, 3))),
}
UNNOTICED = {
    "no gradient": lambda p: setattr(p, "grad", None),
    "new": lambda p: give(p, torch.ones(2, 3)),
    "view": lambda p: give(p, torch.ones(64, 2, 3)[5]),
    "detached": lambda p: give(p, torch.ones(2, 3).detach()),
    "parameter": lambda p: give(p, param(2, 3, value=1.0)),
    "of inference": lambda p: give(p, inference()),
    "frozen": lambda p: p.requires_grad_(False),
    "written": lambda p: p.data.fill_(2.0),
}


@pytest.mark.parametrize("index", [0, 129])
@pytest.mark.parametrize("change", [*NOTICED, *UNNOTICED])
def test_what_is_noticed(change, index):
    params = [param(2, 3, value=1.0, grad=1.0) for _ in range(130)]
    guard = StepGuard(params, None)
    grads = [p.grad for p in params]
    assert guard.expect(grads, grads, False)

    def found():
        return guard.check(params) and guard.check(params)[1]

    def expected():
        grads = [p.grad for p in params]
        return [0 if grad is None else grad.data_ptr() for grad in grads], bytes(grad is not None for grad in grads)

    assert (list(found().address_list()), found().present) == expected()
    {**NOTICED, **UNNOTICED}[change](params[index])
    if change in NOTICED:
        assert found() is None
    else:
        assert (list(found().address_list()), found().present) == expected()


def test_first_gradients_and_other_parameters_are_noticed():
    params = [param(2, value=1.0) for _ in range(3)]
    grads = [torch.ones(2), None, torch.ones(2)]
    guard = StepGuard(params, None)
    assert guard.expect(grads, grads, False)[1].present == b"\1\0\1" and guard.check(params)[1].present == bytes(3)
    assert guard.check(params, [torch.ones(2)] * 3) is None
    assert not any(map(guard.check, ([], params[:2], params * 2, params[::-1])))


def test_a_gradient_whose_storage_was_freed():
    p = param(2, value=1.0, grad=1.0)
    optimizer = gst.SGD([p])
    optimizer.step()
    p.grad = torch.ones(2)
    p.grad.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"\['params'\]\[0\]\.grad is NULL|was freed or resized"):
        optimizer.step()
