# SPDX-License-Identifier: Apache-2.0
"""gradscaler.torch.GradScaler against torch.amp.GradScaler: the assertions of PyTorch's tests, for both.

Every test runs once with each class, so that it is known to describe PyTorch's behaviour and not only ours.
"""


import pytest

from conftest import DEVICE, library

torch = library("torch")

from gradscaler.torch import GradScaler  # noqa: E402

CLASSES = [torch.amp.GradScaler, GradScaler]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=CLASSES, ids=["torch", "ours"])
def make(request):
    def scaler(**arguments):
        return request.param(device=DEVICE, **arguments)

    return scaler


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
    """As without a scaler and the step that overflows."""
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
    steps = [0, 0]
    for index, optimizer in enumerate(optimizers):
        optimizer.register_step_post_hook(lambda *_, index=index: steps.__setitem__(index, steps[index] + 1))
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
    assert steps == [3, 4] and scaler.get_scale() == 128.0 * 2.0**3 * 0.5


LAYOUTS = {"contiguous": lambda: torch.randn(3, 5, 7, 11), "offset": lambda: torch.randn(1156)[1:].view(3, 5, 7, 11),
           "transposed": lambda: torch.randn(11, 7, 5, 3).permute(3, 2, 1, 0),
           "strided": lambda: torch.randn(3, 5, 7, 22)[..., ::2],
           "channels_last": lambda: torch.randn(3, 5, 7, 11).to(memory_format=torch.channels_last)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unscale(make, dtype, layout):
    scaler = make(init_scale=3.0)
    if DEVICE != "cpu" and dtype is torch.bfloat16 and type(scaler) is torch.amp.GradScaler:
        pytest.skip("PyTorch's kernel for CUDA does not take bfloat16")
    scaler.scale(torch.ones(()))
    torch.manual_seed(1)
    whole = [LAYOUTS[layout]() for _ in range(2)]
    # 16 bits are multiplied in 32.
    wide = [grad.to(dtype).to(torch.promote_types(dtype, torch.float32)) for grad in whole]
    expected = [(grad * torch.tensor(1 / 3).to(grad.dtype)).to(dtype) for grad in wide]
    params = [torch.zeros(grad.shape, dtype=dtype, requires_grad=True) for grad in whole]
    optimizer = torch.optim.SGD(params, lr=1.0)

    def unscale(*planted):
        for param, grad in zip(params, whole, strict=True):
            param.grad = grad.to(dtype)
            if layout == "offset":
                param.grad = torch.empty(grad.numel() + 1, dtype=dtype)[1:].view(grad.shape).copy_(grad)
            if layout == "strided":
                param.grad = torch.empty(3, 5, 7, 22, dtype=dtype)[..., ::2].copy_(grad)
        for index, element, value in planted:
            params[index].grad[element] = value
        strides = [param.grad.stride() for param in params]
        flags = scaler._unscale_grads_(optimizer, torch.tensor(1 / 3), torch.tensor(0.0), True)
        assert [param.grad.stride() for param in params] == strides
        return sum(flag.item() for flag in flags.values())

    assert unscale() == 0.0 and all(torch.equal(param.grad, grad) for param, grad in zip(params, expected, strict=True))
    for index in range(2):
        for element in ((0, 0, 0, 0), (1, 2, 3, 4), (2, 4, 6, 10)):
            for value in (float("inf"), -float("inf"), float("nan")):
                assert unscale((index, element, value)) == 1.0


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_sparse(make, dtype):
    scaler = make(init_scale=256.0)
    scaler.scale(torch.ones(()))
    param = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=1.0)

    def unscale(values):
        indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
        param.grad = torch.sparse_coo_tensor(indices, torch.tensor(values, dtype=dtype), (3, 4))
        flags = scaler._unscale_grads_(optimizer, torch.tensor(1 / 256), torch.tensor(0.0), True)
        return sum(flag.item() for flag in flags.values())

    assert unscale([16.0, 32.0, 64.0]) == 0.0
    assert param.grad.to_dense()[1, 0].item() == 0.375
    assert unscale([16.0, float("inf"), 64.0]) == 1.0
    assert unscale([16.0, float("nan"), 64.0]) == 1.0
    # Each fits into fp16, their sum does not.
    assert unscale([16.0, 40000.0, 40000.0]) == (1.0 if dtype == torch.float16 else 0.0)


def test_values_that_become_nan_after_unscale_reach_the_params(make):
    scaler = make(init_scale=2.0)
    param = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=1.0)
    scaler.scale(param.sum()).backward()
    scaler.unscale_(optimizer)
    param.grad[0] = float("nan")
    scaler.step(optimizer)
    assert torch.isnan(param).tolist() == [True, False]


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
        scaler = make(init_scale=2.0)
        param = torch.zeros(1, dtype=dtype, requires_grad=True)
        if scaled:
            scaler.scale(torch.ones(()))
        if grad:
            param.grad = torch.ones(1, dtype=dtype)
        return scaler, torch.optim.SGD([param], lr=1.0)

    def sequence(*names, **arguments):
        scaler, optimizer = fresh(**arguments)
        for name in names[:-1]:
            getattr(scaler, name)(*([] if name == "update" else [optimizer]))
        last = names[-1]
        return raised(lambda: getattr(scaler, last)(*([] if last == "update" else [optimizer])))

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
    theirs, ours = (errors(lambda kind=kind, **arguments: kind(device=DEVICE, **arguments)) for kind in CLASSES)
    assert len(theirs) == 16 and ours == theirs


def test_fused_optimizers_are_given_the_words(make):
    class Custom(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self):
            self.seen = (self.grad_scale.item(), self.found_inf.item())

    param = torch.zeros(2, requires_grad=True)
    optimizer = Custom([param], lr=1.0)
    for value, found in ((1.0, 0.0), (float("inf"), 1.0)):
        scaler = make(init_scale=8.0)
        scaler.scale(torch.ones(()))
        param.grad = torch.full((2,), value)
        scaler.step(optimizer)
        assert optimizer.seen == (8.0, found)
        assert not hasattr(optimizer, "grad_scale") and param.grad[0].item() == value


def test_new_scale(make):
    scaler = make(init_scale=2.0)
    scaler.scale(torch.ones(()))
    scaler.update(16.0)
    assert scaler.get_scale() == 16.0
    scaler.update(torch.tensor(4.0))
    assert scaler.get_scale() == 4.0


def test_it_is_pytorchs_class():
    assert issubclass(GradScaler, torch.amp.GradScaler)


def test_ours_finds_what_overflows_when_unscaled():
    scaler = GradScaler(device=DEVICE, init_scale=2.0**-4)
    param = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=1.0)
    scaler.scale(torch.ones(()))
    param.grad = torch.full((1,), 3e38)
    scaler.step(optimizer)
    scaler.update()
    assert param.item() == 0.0 and scaler.get_scale() == 2.0**-5


def test_ours_unscales_views_that_negate():
    # PyTorch's kernel raises an error.
    scaler = GradScaler(device=DEVICE, init_scale=4.0)
    scaler.scale(torch.ones(()))
    param = torch.zeros(3, requires_grad=True)
    param.grad = torch._neg_view(torch.tensor([4.0, -8.0, 2.0]))
    scaler.unscale_(torch.optim.SGD([param], lr=1.0))
    assert param.grad.tolist() == [-1.0, 2.0, -0.5]
