# SPDX-License-Identifier: Apache-2.0
"""The things that autograd and tracers must see: losses that are scaled, new gradients, tensors written in place."""

import array
import collections

import numpy as np
import pytest

import gradscaler as gs
from conftest import DEVICE, library, ones, refused

SCALE = 2.0**17


def scaler():
    return gs.GradScaler(init_scale=SCALE)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_of_a_scaled_loss_are_scaled(torch, dtype):
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * 2.0**-12).sum().to(getattr(torch, dtype))
    scaled = scaler().scale(loss)
    assert scaled.requires_grad and scaled.item() == 3 * 2.0**5
    scaled.backward()
    if dtype != "float16":  # Whose gradient of the loss itself is inf at this scale, in PyTorch too.
        assert w.grad.tolist() == [2.0**5] * 2


def test_scale_is_that_of_pytorch(torch):
    theirs = torch.amp.GradScaler("cpu", init_scale=SCALE)
    ours = scaler()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for value in (torch.tensor(2.0**-14, dtype=dtype), torch.full((2, 3), 2.0**-14, dtype=dtype)):
            mine, other = ours.scale(value), theirs.scale(value)
            assert mine.dtype == other.dtype and torch.equal(mine, other) and value.max() == 2.0**-14


def test_several_losses_nested(torch):
    Losses = collections.namedtuple("Losses", "a b")
    w = torch.tensor(1.0, requires_grad=True)
    found = scaler().scale([w * 1.0, (w * 2.0, 3.0), {"x": w * 4.0}, Losses(w * 5.0, ones(2))])
    assert type(found[3]) is Losses and found[3].b.tolist() == [SCALE] * 2 and found[1][1] == 3.0 * SCALE
    for loss, factor in ((found[0], 1), (found[1][0], 2), (found[2]["x"], 4), (found[3].a, 5)):
        w.grad = None
        loss.backward()
        assert w.grad.item() == factor * SCALE
    generated = scaler().scale(loss for loss in (w * 1.0, w * 2.0))
    assert [loss.item() for loss in generated] == [SCALE, 2 * SCALE]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Dynamo warns that it leaves the call to Python.
def test_torch_func_and_compile(torch):
    ours = scaler()
    gradient = torch.func.grad(lambda w: ours.scale((w * w).sum()))
    assert gradient(torch.tensor([3.0])).tolist() == [6.0 * SCALE]
    assert torch.func.vmap(gradient)(torch.tensor([[1.0], [2.0]])).tolist() == [[2.0 * SCALE], [4.0 * SCALE]]
    compiled = torch.compile(lambda w: ours.scale((w * w).sum()), backend="eager")
    assert compiled(torch.tensor([3.0])).item() == 9.0 * SCALE
    ours.update(8.0)
    assert compiled(torch.tensor([3.0])).item() == 72.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_traces_would_keep_the_scale_of_now(torch):
    from torch.fx.experimental.proxy_tensor import make_fx
    ours = scaler()
    for trace in (lambda f: torch.jit.trace(f, torch.ones(3)), lambda f: make_fx(f)(torch.ones(3))):
        with refused("outputs is traced by PyTorch", ValueError):
            trace(lambda w: ours.scale(w.sum()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jax_gradients_and_tracers():
    jax = library("jax")
    jnp, ours = jax.numpy, scaler()

    def loss(w):
        return ours.scale((w * w).sum())

    assert jax.grad(loss)(jnp.array([3.0])).tolist() == [6.0 * SCALE]
    value, gradient = jax.value_and_grad(lambda w: ours.scale((w * w).sum(), None))(jnp.array([3.0]))
    assert value == 9.0 * SCALE and gradient.tolist() == [6.0 * SCALE]
    for traced in (jax.jit(loss), jax.jit(jax.grad(loss)), jax.vmap(loss), jax.grad(jax.jit(loss))):
        with refused("outputs is traced by JAX.*constant", ValueError):
            traced(jnp.ones((2, 2)))
    step = jax.jit(jax.grad(lambda w, scale: (w * w).sum() * scale))
    assert step(jnp.array([3.0]), ours.get_scale()).tolist() == [6.0 * SCALE]
    with jax.enable_x64(True):
        third = jnp.array([1 / 3], "float64")
        assert ours.scale(third).tolist() == [SCALE / 3]
    half = ours.scale(jnp.array(2.0**-12, "float16"))
    assert half.dtype == "float32" and half == 2.0**5
    assert ours.scale(jnp.full(2, 2.0**-20, "bfloat16")).dtype == "bfloat16"
    # Integers and truth values do not hold the product.
    for values in (jnp.arange(3), jnp.arange(3, dtype="int8"), jnp.array([False, True])):
        assert gs.GradScaler(init_scale=0.5).scale(values).tolist() == [0.0, 0.5, 1.0][:values.size]
    with refused("outputs has dtype key<fry>", TypeError):
        ours.scale(jax.random.key(0))


def test_tensors_without_memory_are_refused(torch):
    with refused(r"arrays\[0\] cannot be looked into: it is traced by PyTorch", ValueError):
        torch.func.functionalize(lambda values: gs.TensorList([values], read_only=True))(torch.ones(3))


def test_other_arrays_are_right_or_refused(torch):
    ours = scaler()
    values = array.array("f", [1.0, 2.0])
    assert ours.scale(values).tolist() == [SCALE, 2 * SCALE] and values.tolist() == [1.0, 2.0]
    assert ours.scale(np.float16(2.0**-4)) == 2.0**13 and ours.scale(np.float64(1 / 3)) == SCALE / 3

    class Unknown:
        def __array__(self):
            raise AssertionError

        def copy(self):
            raise AssertionError

    masked = np.ma.masked_array(ones(2), [1, 0])
    for bad, message in ((Unknown(), "outputs is a Unknown, and whether its library"), (masked, "is a MaskedArray"),
                         (gs.as_tensor(np.ones(2)), "outputs is a Tensor"), ("text", "outputs is str"),
                         ([1.0, None], r"outputs\[1\] is NoneType"), (np.ones(2, int), "dtype int64")):
        with refused(message, TypeError):
            ours.scale(bad)
    with refused("outputs requires gradients, which out would not have", ValueError):
        ours.scale(torch.ones(2, requires_grad=True), torch.zeros(2))


def test_gradients_that_nobody_can_fill_any_more_are_an_error(torch):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    master = [p.detach().clone() for p in model.parameters()]
    model(torch.ones(2, 4)).sum().backward()
    optimizer = gs.SGD(master, [p.grad for p in model.parameters()], lr=0.1)
    scaler = gs.GradScaler(DEVICE, init_scale=1.0)
    scaler.step_and_update(optimizer)
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    kept = [p.clone() for p in master]
    for call in (lambda: scaler.step(optimizer), optimizer.step, lambda: scaler.unscale_(optimizer),
                 lambda: scaler.check(optimizer.grads)):
        with refused(r"grads\[0\] was freed by its owner, as zero_grad\(\) does"):
            call()
    assert optimizer.steps == 1 and all(torch.equal(p, q) for p, q in zip(master, kept, strict=True))
    optimizer.grads.rebind([p.grad for p in model.parameters()])
    scaler.step_and_update(optimizer)
    assert optimizer.steps == 2
    # A list of temporaries is good for the iteration that it was made in.
    temporary = gs.TensorList([torch.ones(3)])
    scaler.unscale_(temporary)
    assert scaler.should_step(temporary)
    scaler.update()
    with refused(r"arrays\[0\] was freed"):
        scaler.unscale_(temporary)
    # Memory that has another owner is not gone with the tensor.
    shared, flat = ones(3), torch.ones(6)
    grads = [flat[:3], flat.data[3:], *([torch.from_numpy(shared)] if DEVICE == "cpu" else [])]
    owned = gs.SGD([torch.zeros(3) for _ in grads], grads, lr=1.0)
    del grads
    owned.step()


def test_tensors_that_bring_their_gradients_along_are_for_the_other_optimizers(torch):
    p = torch.nn.Parameter(torch.ones(3))
    for params in ([p], [{"params": [torch.zeros(3)], "grads": [p]}, {"params": [p]}]):
        with refused(r"grads.* is missing; .*PyTorch.* optimizers of gradscaler\.torch", TypeError):
            gs.SGD(params)
    with refused("grads is missing$", TypeError):
        gs.SGD([ones(3)])


def test_parameters_whose_memory_was_replaced_are_followed(torch):
    p = torch.nn.Parameter(torch.zeros(3))
    grads = torch.ones(3)
    optimizer = gs.SGD([p], [grads], lr=1.0)
    optimizer.step()
    p.data = torch.full((3,), 10.0)
    optimizer.step()
    assert p.tolist() == [9.0] * 3
    p.data = torch.zeros(3, dtype=torch.float64)
    with refused(r"params\[0\] holds float64", ValueError):
        optimizer.step()


def test_what_is_written_in_place_gets_a_new_version(torch):
    master, copy = torch.ones(3), torch.ones(3, dtype=torch.bfloat16)
    p = torch.nn.Parameter(torch.ones(3))
    grads = torch.ones(3)
    optimizer = gs.SGD([p], [grads], lr=1.0, model_copy=[copy], momentum=0.5,
                       state={"momentum_buffer": [master]}, zero_grads=True)

    def versions():
        return [t._version for t in (p, copy, grads, master)]

    scaler = gs.GradScaler(DEVICE, init_scale=1.0)
    for call in (optimizer.step, lambda: scaler.step_and_update(optimizer), lambda: scaler.step(optimizer)):
        before = versions()
        call()
        assert all(new > old for new, old in zip(versions(), before, strict=True))
    scaler.update()
    out = torch.zeros(3)
    found, inverse = torch.zeros(()), torch.ones(())
    calls = [(lambda: gs.ops.scale(grads, out, inverse), out), (lambda: gs.ops.cast(grads, out), out),
             (lambda: gs.ops.axpby(1.0, grads, 1.0, out), out),
             (lambda: gs.ops.unscale_check(out, found, inverse), found), (lambda: scaler.scale(grads, out), out),
             (lambda: scaler.unscale_(optimizer), grads), (optimizer.zero_grad, grads)]
    if DEVICE == "cpu":
        calls.append((lambda: gs.clip_grad_norm_([grads.fill_(1.0)], 0.1), grads))
    for call, written in calls:
        before = written._version
        call()
        assert written._version > before
    # What this is for: a tensor that backward needs and a step has overwritten.
    w = torch.nn.Parameter(torch.ones(3))
    loss = (w * w).sum()
    gs.SGD([w], [grads], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_results_of_autograd_are_not_written(torch):
    w = torch.ones(3, requires_grad=True)
    with refused(r"dst is a result of autograd.*pass its detach\(\)", ValueError):
        gs.ops.scale(torch.ones(3), w * 2, 1.0)
    with refused(r"params\[0\] is a result of autograd", ValueError):
        gs.SGD([w * 2], [torch.ones(3)])
    with torch.device("cpu"):
        w = torch.ones(3, requires_grad=True)
    assert gs.ops.norm((w * 2).detach(), np.inf) == gs.ops.norm(w * 2, np.inf) == 2.0
