# SPDX-License-Identifier: Apache-2.0
"""Parameters of PyTorch where gradients are asked for: their .grad is meant, as with the functions of torch."""

import copy

import pytest

import gradscaler as gs
from torch_params import torch


@pytest.fixture
def model():
    torch.manual_seed(0)
    found = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    found(torch.ones(2, 4)).square().sum().backward()
    return found


def values(tensors):
    return [tensor.tolist() for tensor in tensors]


@pytest.mark.parametrize("clip, limit", [("clip_grad_norm_", 0.5), ("clip_grad_value_", 0.1)])
@pytest.mark.parametrize("missing", [(), (1,), range(4)], ids=str)
@pytest.mark.parametrize("named", [False, True])
def test_clipping_parameters_clips_their_gradients(model, clip, limit, missing, named):
    for index in missing:
        list(model.parameters())[index].grad = None
    other, before = copy.deepcopy(model), values(model.parameters())
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        q.grad = copy.deepcopy(p.grad)
    clipped = getattr(gs, clip)(model.named_parameters() if named else model.parameters(), limit)
    if len(missing) < 4:
        expected = getattr(torch.nn.utils, clip)(other.parameters(), limit)
        assert clipped == (None if expected is None else pytest.approx(float(expected), rel=1e-6))
    assert values(model.parameters()) == before
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=0.0)


def test_leaves_frozen_parameters_and_gradients_themselves():
    leaf, frozen = torch.full((3,), 3.0, requires_grad=True), torch.nn.Parameter(torch.full((3,), 3.0), False)
    assert gs.clip_grad_norm_([leaf, frozen, torch.full((3,), 3.0)], 1.0) == 0.0
    leaf.grad = torch.full((3,), 4.0)
    gs.clip_grad_value_(leaf, 1.0)
    assert (leaf.tolist(), leaf.grad.tolist(), frozen.tolist()) == ([3.0] * 3, [1.0] * 3, [3.0] * 3)
    assert gs.clip_grad_norm_(frozen, 1.0) == 0.0 and frozen.tolist() == [3.0] * 3
    gs.clip_grad_value_([leaf.grad, torch.full((3,), 4.0)], 0.5)
    assert leaf.grad.tolist() == [0.5] * 3
    computed = torch.autograd.grad(leaf.square().sum(), leaf, create_graph=True)
    assert gs.diagnose(computed)[0].amax == 6.0


def test_looking_at_parameters_looks_at_their_gradients(model):
    params = dict(model.named_parameters())
    params["0.bias"].grad.fill_(float("nan"))
    params["1.bias"].grad = None
    found = {entry.name: entry for entry in gs.diagnose(model.named_parameters())}
    assert list(found) == ["0.weight", "0.bias", "1.weight"] and found["0.bias"].nan_count == 3
    assert [entry.amax for entry in gs.diagnose(model.parameters())] == [
        pytest.approx(float(p.grad.abs().nan_to_num().max())) for p in params.values() if p.grad is not None]
    params["0.bias"].grad.fill_(1.0)
    grads = [p.grad for p in params.values() if p.grad is not None]
    assert gs.recommend_scale(model.parameters(), 1.0) == gs.recommend_scale(grads, 1.0)


def test_a_gradient_that_cannot_be_clipped_is_named(model):
    model[1].weight.grad = model[1].weight.grad.to_sparse()
    with pytest.raises(ValueError, match=r"grads\['1.weight'\].grad is of layout sparse_coo"):
        gs.clip_grad_norm_(model.named_parameters(), 1.0)
