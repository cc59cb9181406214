# SPDX-License-Identifier: Apache-2.0
"""gradscaler.torch.GradScaler against torch.amp.GradScaler: the assertions of PyTorch's tests, once with each class."""

import functools

import pytest

from conftest import DEVICE
from torch_params import gst, param, scaled_step, torch

CLASSES = [torch.amp.GradScaler, gst.GradScaler]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=CLASSES, ids=["torch", "ours"])
def make(request):
    return functools.partial(request.param, device=DEVICE)


def started(make, scale):
    scaler = make(init_scale=scale)
    scaler.scale(torch.ones(()))
    return scaler


def found_inf(scaler, optimizer, inverse):
    """Unscales; whether there was inf or NaN."""
    flags = scaler._unscale_grads_(optimizer, torch.tensor(inverse), torch.tensor(0.0), True)
    return sum(flag.item() for flag in flags.values())


def case(optimizer_class=torch.optim.SGD, **arguments):
    torch.manual_seed(3)
    models = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [optimizer_class(model.parameters(), **{"lr": 1.0, **arguments}) for model in models]
    data = [(torch.randn(8, 8), torch.randn(8, 8)) for _ in range(4)]
    return models, optimizers, data, torch.nn.functional.mse_loss


def plant(model, index, bad):
    if index == bad:
        model[1].weight.grad.fill_(float("inf"))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("mode", [dict(foreach=False), dict(foreach=True), dict(fused=True)], ids=str)
def test_standard_case(make, optimizer, mode):
    models, optimizers, data, loss = case(optimizer_class=optimizer, lr=0.01, **mode)
    scalers = [make(init_scale=128.0, growth_factor=2.0, growth_interval=1), make(enabled=False)]
    for model, own, scaler in zip(models, optimizers, scalers, strict=True):
        for i, (x, y) in enumerate(data):
            own.zero_grad()
            scaler.scale(loss(model(x), y)).backward()
            plant(model, i, 2) if scaler.is_enabled() else None
            if scaler.is_enabled() or i != 2:
                scaler.step(own)
            scaler.update()
    assert scalers[0].get_scale() == 128.0 * 2.0**3 * 0.5
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_two_models_with_the_overflow_in_one(make):
    models, optimizers, data, loss = case()
    scaler = make(init_scale=128.0, growth_interval=1)
    steps = []
    for optimizer in optimizers:
        optimizer.register_step_post_hook(lambda optimizer, *_: steps.append(optimizers.index(optimizer)))
    for i, (x, y) in enumerate(data):
        for optimizer in optimizers:
            optimizer.zero_grad()
        first, second = models[0](x), models[1](x)
        scaler.scale(loss(0.3 * first + 0.7 * second, y)).backward(retain_graph=True)
        scaler.scale(loss(0.6 * first - 0.4 * second, y)).backward()
        plant(models[0], i, 2)
        scaler.unscale_(optimizers[0])
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    assert [steps.count(index) for index in range(2)] == [3, 4] and scaler.get_scale() == 128.0 * 2.0**3 * 0.5


LAYOUTS = {"contiguous": lambda: torch.randn(3, 5, 7, 11), "offset": lambda: torch.randn(1156)[1:].view(3, 5, 7, 11),
           "transposed": lambda: torch.randn(11, 7, 5, 3).permute(3, 2, 1, 0),
           "strided": lambda: torch.randn(3, 5, 7, 22)[..., ::2],
           "channels_last": lambda: torch.randn(3, 5, 7, 11).to(memory_format=torch.channels_last)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unscale(make, dtype, layout):
    scaler = started(make, 3.0)
    if DEVICE != "cpu" and dtype is torch.bfloat16 and type(scaler) is torch.amp.GradScaler:
        pytest.skip("PyTorch's kernel for CUDA does not take bfloat16")
    torch.manual_seed(1)
    whole = [LAYOUTS[layout]() for _ in range(2)]
    # 16 bits are multiplied in 32.
    wide = [grad.to(dtype).to(torch.promote_types(dtype, torch.float32)) for grad in whole]
    expected = [(grad * torch.tensor(1 / 3).to(grad.dtype)).to(dtype) for grad in wide]
    params = [torch.zeros(grad.shape, dtype=dtype, requires_grad=True) for grad in whole]
    optimizer = torch.optim.SGD(params, lr=1.0)

    def unscale(*planted):
        for p, grad in zip(params, whole, strict=True):
            p.grad = grad.to(dtype)
            if layout == "offset":
                p.grad = torch.empty(grad.numel() + 1, dtype=dtype)[1:].view(grad.shape).copy_(grad)
            if layout == "strided":
                p.grad = torch.empty(3, 5, 7, 22, dtype=dtype)[..., ::2].copy_(grad)
        for index, element, value in planted:
            params[index].grad[element] = value
        strides = [p.grad.stride() for p in params]
        found = found_inf(scaler, optimizer, 1 / 3)
        assert [p.grad.stride() for p in params] == strides
        return found

    assert unscale() == 0.0 and all(torch.equal(p.grad, grad) for p, grad in zip(params, expected, strict=True))
    for index in range(2):
        for element in ((0, 0, 0, 0), (1, 2, 3, 4), (2, 4, 6, 10)):
            for value in (float("inf"), -float("inf"), float("nan")):
                assert unscale((index, element, value)) == 1.0


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_sparse(make, dtype):
    scaler = started(make, 256.0)
    p = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=1.0)

    def unscale(values):
        indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
        p.grad = torch.sparse_coo_tensor(indices, torch.tensor(values, dtype=dtype), (3, 4))
        return found_inf(scaler, optimizer, 1 / 256)

    assert unscale([16.0, 32.0, 64.0]) == 0.0
    assert p.grad.to_dense()[1, 0].item() == 0.375
    assert unscale([16.0, float("inf"), 64.0]) == 1.0
    assert unscale([16.0, float("nan"), 64.0]) == 1.0
    # Each fits into fp16, their sum does not.
    assert unscale([16.0, 40000.0, 40000.0]) == (1.0 if dtype == torch.float16 else 0.0)


def test_values_that_become_nan_after_unscale_reach_the_params(make):
    scaler = make(init_scale=2.0)
    p = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    p.grad[0] = float("nan")
    scaler.step(optimizer)
    assert torch.isnan(p).tolist() == [True, False]


@pytest.mark.parametrize("other", CLASSES, ids=["to torch", "to ours"])
def test_state_dict(make, other):
    for lazy in (True, False):
        first = make(init_scale=3.0, growth_factor=4.0, backoff_factor=0.5, growth_interval=2)
        second = other(DEVICE, init_scale=6.0, growth_factor=7.0, backoff_factor=0.8, growth_interval=1)
        if not lazy:
            second.scale(torch.ones(()))
        second.load_state_dict(first.state_dict())
        assert second.state_dict() == {"scale": 3.0, "growth_factor": 4.0, "backoff_factor": 0.5, "growth_interval": 2,
                                       "_growth_tracker": 0}
        second.scale(torch.ones(()))
        assert second.get_scale() == 3.0
    with pytest.raises(RuntimeError, match="empty"):
        first.load_state_dict({})


def raised(call):
    with pytest.raises(Exception) as caught:
        call()
    return type(caught.value), str(caught.value)


def errors(make):
    def fresh(dtype=torch.float32, scaled=True, grad=True):
        scaler = started(make, 2.0) if scaled else make(init_scale=2.0)
        p = torch.zeros(1, dtype=dtype, requires_grad=True)
        if grad:
            p.grad = torch.ones(1, dtype=dtype)
        return scaler, torch.optim.SGD([p], lr=1.0)

    def sequence(*names, **arguments):
        scaler, optimizer = fresh(**arguments)
        *before, last = (functools.partial(getattr(scaler, name), *[optimizer] * (name != "update")) for name in names)
        for call in before:
            call()
        return raised(last)

    scaler, optimizer = fresh()
    return [
        sequence("unscale_", "unscale_"), sequence("step", "unscale_"), sequence("step", "step"), sequence("update"),
        sequence("step", "update", "update"), sequence("step", scaled=False), sequence("unscale_", scaled=False),
        sequence("update", scaled=False), sequence("unscale_", dtype=torch.float16), sequence("step", grad=False),
        raised(lambda: scaler.step(optimizer, closure=lambda: None)), raised(lambda: scaler.update(torch.ones(2))),
        raised(lambda: make(growth_factor=1.0)), raised(lambda: make(backoff_factor=1.0)),
        raised(lambda: scaler.scale(3.0)), raised(lambda: scaler.load_state_dict({})),
    ]


def test_errors_are_pytorchs_word_for_word():
    theirs, ours = (errors(functools.partial(kind, device=DEVICE)) for kind in CLASSES)
    assert len(theirs) == 16 and ours == theirs


def test_fused_optimizers_are_given_the_words(make):
    class Custom(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self):
            self.seen = (self.grad_scale.item(), self.found_inf.item())

    p = torch.zeros(2, requires_grad=True)
    optimizer = Custom([p], lr=1.0)
    for value, found in ((1.0, 0.0), (float("inf"), 1.0)):
        p.grad = torch.full((2,), value)
        started(make, 8.0).step(optimizer)
        assert optimizer.seen == (8.0, found)
        assert not hasattr(optimizer, "grad_scale") and p.grad[0].item() == value


def test_new_scale(make):
    scaler = started(make, 2.0)
    for value in (16.0, torch.tensor(4.0)):
        scaler.update(value)
        assert scaler.get_scale() == value
    assert isinstance(scaler, torch.amp.GradScaler)


def test_ours_finds_what_overflows_when_unscaled():
    scaler, p = gst.GradScaler(DEVICE, init_scale=2.0**-4), param(1, grad=3e38)
    scaled_step(scaler, torch.optim.SGD([p], lr=1.0))
    assert p.item() == 0.0 and scaler.get_scale() == 2.0**-5


def test_ours_unscales_views_that_negate():
    # PyTorch's kernel raises an error.
    p = param(3)
    p.grad = torch._neg_view(torch.tensor([4.0, -8.0, 2.0]))
    started(functools.partial(gst.GradScaler, DEVICE), 4.0).unscale_(torch.optim.SGD([p], lr=1.0))
    assert p.grad.tolist() == [-1.0, 2.0, -0.5]
