# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax: its functions under jit and vmap, the trees and numbers that they take, and what they refuse."""

import collections
import functools

import numpy as np
import pytest

import gradscaler as gs
from conftest import on_cpu, refused
from jax_trees import gj, jax, jnp


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("jit", [False, True])
def test_unscale_check(dtype, jit):
    call = jax.jit(gj.unscale_check) if jit else gj.unscale_check
    grads = {"w": jnp.full((20, 20), 4.0, dtype), "b": [jnp.full((3,), 8.0, dtype)]}
    unscaled, found = call(grads, 0.25)
    assert found == 0.0 and (unscaled["w"] == 1.0).all() and unscaled["b"][0].tolist() == [2.0] * 3
    assert unscaled["w"].dtype == dtype and (grads["w"] == 4.0).all()
    for bad in (np.inf, np.nan):
        _, found = call({**grads, "b": [grads["b"][0].at[1].set(bad)]}, 0.25)
        assert found == 1.0
    assert call(grads, 0.25, 1.0)[1] == 1.0


def test_has_aux_and_static_policy():
    scale = gj.DynamicScale.create(4.0, growth_factor=3.0, growth_interval=1)
    call = jax.jit(lambda s, x: s.value_and_grad(lambda v: ((v**2).sum(), v + 1), has_aux=True)(x))
    following, found_inf, (value, aux), grads = call(scale, jnp.arange(3.0))
    assert (following.scale, found_inf, value) == (12.0, 0.0, 5.0)
    assert aux.tolist() == [1, 2, 3] and grads.tolist() == [0, 2, 4]
    assert len(jax.tree.leaves(scale)) == 2
    with refused(r"must return \(loss, aux\)", TypeError):
        scale.value_and_grad(jnp.sum, has_aux=True)(jnp.ones(3))


@pytest.mark.parametrize("wrong, message", [
    ({"v": jnp.ones(3)}, "grads and params have no name in common: grads has 'v'; params has 'w'"),
    ({"w": jnp.ones(4)}, r"grads\['w'\] has shape \(4,\), but params\['w'\] has \(3,\)"),
])
def test_trees_are_paired_by_key(wrong, message):
    params = {"w": jnp.ones(3)}
    state = gj.adamw_init(params)
    with refused(message, ValueError):
        gj.adamw(params, wrong, state)
    with refused(r"state.exp_avg_sq", ValueError):
        gj.adamw(params, params, state._replace(exp_avg_sq=wrong))


def test_leaves_of_any_kind_and_order():
    """An OrderedDict, which keeps the order of insertion; numbers of Python; a tree that is one array."""
    ordered = collections.OrderedDict
    call = functools.partial(gj.adamw, lr=0.5, weight_decay=0.0)
    for params, grads in ((ordered(a=0.0, b=np.float32(1.0)), ordered(b=2.0, a=-1.0)),
                          (ordered(a=jnp.zeros(2), b=jnp.ones(2)), ordered(b=jnp.ones(2), a=-jnp.ones(2)))):
        stepped, _ = call(params, grads, gj.adamw_init(params))
        np.testing.assert_allclose(stepped["a"], 0.5, rtol=1e-6)
        np.testing.assert_allclose(stepped["b"], 0.5, rtol=1e-6)
    stepped, state = call(jnp.ones(3), jnp.full(3, 2.0), gj.adamw_init(jnp.ones(3)))
    np.testing.assert_allclose(stepped, 0.5, rtol=1e-6)
    assert state.exp_avg.shape == (3,)
    assert gj.unscale_check(jnp.float32(4.0), 0.25)[0] == 1.0 and gj.unscale_check(3.0, 0.5) == (1.5, 0.0)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap], ids=lambda f: f.__name__)
def test_the_array_interface_refuses_what_is_traced(transform):
    for call in (lambda x: gs.TensorList([x]), lambda x: gs.AdamW({"a": x}, {"a": x}),
                 lambda x: gs.ops.norm([x])):
        with refused(r"traced by JAX.* use the functions of gradscaler\.jax", TypeError):
            transform(lambda x, call=call: (call(x), x.sum())[1])(jnp.ones(3))


def stacked(tree):
    return jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 3), tree)


def test_vmap_of_adamw():
    params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(4)}
    grads = jax.tree.map(lambda p: p - 1.5, params)
    expected, after = gj.adamw(params, grads, gj.adamw_init(params))
    states = jax.vmap(gj.adamw_init)(stacked(params))
    step = jax.vmap(lambda *trees: gj.adamw(*trees[:3], found_inf=trees[3]))
    for call in (step, jax.jit(step)):
        stepped, state = call(stacked(params), stacked(grads), states, jnp.array([0.0, 1.0, 0.0]))
        assert state.step.tolist() == [1, 0, 1]
        for name in params:
            np.testing.assert_array_equal(stepped[name], jnp.stack([expected[name], params[name], expected[name]]))
            np.testing.assert_array_equal(state.exp_avg_sq[name][2], after.exp_avg_sq[name])
    axes = gj.AdamWState(None, 0, 0)
    call = jax.jit(jax.vmap(gj.adamw, in_axes=(0, None, axes), out_axes=(0, axes)))
    arguments = stacked(params), grads, states._replace(step=jnp.int32(0))
    np.testing.assert_array_equal(call(*arguments)[0]["w"][2], expected["w"])
    text = call.lower(*arguments).compile().as_text()
    assert text.count("gradscaler_step") == 1 and " while(" not in text


def test_vmap_of_unscale_check_finds_for_each_element():
    grads = {"a": jnp.array([[1.0, 2.0], [jnp.inf, 2.0]]), "b": jnp.ones(3)}
    axes = {"a": 0, "b": None}
    unscaled, found = jax.vmap(gj.unscale_check, in_axes=(axes, None))(grads, 0.5)
    assert found.tolist() == [0.0, 1.0] and unscaled["a"][0].tolist() == [0.5, 1.0]
    for shape in ((3, 0), (0, 3)):
        unscaled, found = jax.vmap(gj.unscale_check, in_axes=(0, None))(jnp.ones(shape), 0.5)
        assert unscaled.shape == shape and found.tolist() == [0.0] * shape[0]
    unscaled, found = jax.vmap(gj.unscale_check, in_axes=(axes, 0))(grads, jnp.array([0.5, 0.25]))
    assert found.tolist() == [0.0, 1.0] and unscaled["b"][1].tolist() == [0.25] * 3


def test_float64_parameters_have_float64_state():
    with jax.enable_x64(True):
        params = {"w": jnp.full(3, 1.0, jnp.float64), "v": jnp.ones(3, jnp.bfloat16)}
        state = gj.adamw_init(params)
        assert state.exp_avg["w"].dtype == jnp.float64 and state.exp_avg["v"].dtype == jnp.float32
        stepped, _ = gj.adamw(params, params, state, lr=0.1, weight_decay=0.0)
        np.testing.assert_allclose(stepped["w"], 0.9, rtol=1e-7)


def test_errors_carry_the_librarys_message():
    with pytest.raises(Exception, match="growth_factor"):
        jax.block_until_ready(gj.update_scale(1.0, 0, 0.0, growth_factor=0.5))
    with pytest.raises(Exception, match="beta1"):
        jax.block_until_ready(gj.adamw(jnp.ones(3), jnp.ones(3), gj.adamw_init(jnp.ones(3)), betas=(1.5, 0.9)))


@pytest.mark.parametrize("leaf", ["float32", object()])
def test_leaves_that_are_no_arrays_are_refused_by_key(leaf):
    with refused(rf"grads\['w'\]\[1\] is {type(leaf).__name__}; it must be an array", TypeError):
        gj.unscale_check({"w": [jnp.ones(3), leaf]}, 1.0)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("dtype", ["int32", "complex64", "float8_e4m3fn"])
def test_dtypes_are_refused_by_key_when_traced(dtype, transform):
    bad, good = {"w": [jnp.ones(3), jnp.ones(2, dtype)]}, {"w": [jnp.ones(3), jnp.ones(2)]}
    state = gj.adamw_init(good)
    for name, function, *arguments in (
            ("grads", gj.unscale_check, bad, 1.0), ("params", gj.adamw, bad, good, state),
            ("grads", gj.adamw, good, bad, state), ("params", gj.adamw_init, bad),
            ("state.exp_avg_sq", gj.adamw, good, good, state._replace(exp_avg_sq=bad))):
        with refused(rf"{name}\['w'\]\[1\] has dtype {dtype}; it must be one of float16", TypeError):
            transform(function)(*arguments)


def test_what_is_compiled_in_must_be_a_number():
    params = {"w": jnp.ones(3)}
    state = gj.adamw_init(params)
    expected = gj.adamw(params, params, state, betas=(0.5, 0.75), eps=0.5, weight_decay=0.25)
    found = gj.adamw(params, params, state, betas=[jnp.float32(0.5), np.float64(0.75)], eps=jnp.float32(0.5),
                     weight_decay=np.array(0.25))
    assert (found[0]["w"] == expected[0]["w"]).all()
    for name, traced in (("eps is", lambda v: {"eps": v}), (r"betas\[1\] is", lambda v: {"betas": (0.9, v)})):
        with refused(f"{name} traced", TypeError):
            jax.jit(lambda v: gj.adamw(params, params, state, **traced(v)))(0.1)  # noqa: B023
    for wrong, message in (({"betas": 0.9}, "betas is 0.9"), ({"eps": "x"}, "eps is 'x'"),
                           ({"weight_decay": None}, "weight_decay is None"),
                           ({"lr": lambda step: 0.1}, "lr is a function; it must be a number")):
        with refused(message, TypeError):
            gj.adamw(params, params, state, **wrong)


def test_several_numbers_in_the_place_of_one_are_refused():
    params = {"w": jnp.ones(2)}
    state = gj.adamw_init(params)
    for name, function in (
            ("found_inf", lambda n: gj.adamw(params, params, state, found_inf=n)),
            ("found_inf", gj.DynamicScale.create(min_scale=1.0).update),
            ("found_inf", lambda n: gj.unscale_check(params, 1.0, n)),
            ("found_inf", lambda n: gj.update_scale(2.0, 0, n)),
            ("inv_scale", lambda n: gj.adamw(params, params, state, inv_scale=n)),
            ("inv_scale", lambda n: gj.unscale_check(params, n)),
            ("lr", lambda n: gj.adamw(params, params, state, lr=n)),
            ("scale", lambda n: gj.update_scale(n, 0, 0.0)),
            ("growth_tracker", lambda n: gj.update_scale(2.0, n, 0.0))):
        for call in (function, jax.jit(function)):
            with refused(name + r" has shape \(2,\); it must be a single number"):
                call(jnp.array([0.0, 1.0]))
    # One is one, in whatever shape: that of the state does not change.
    applied = gj.adamw(params, params, state, found_inf=jnp.zeros((1, 1)))[1].step
    assert applied.shape == () and applied == 1


@pytest.mark.parametrize("jit", [False, True])
def test_equal_gradients_each_reach_their_parameter(jit):
    # XLA keeps what is equal in one buffer: two biases that are added, parameters that take no part, and constants.
    params = {"w": jnp.ones((4, 8)), "b_ih": jnp.zeros(8), "b_hh": jnp.full(8, 0.5), "u": jnp.ones(3), "v": jnp.ones(3),
              "s": jnp.ones(()), "t": jnp.ones(()), "e": jnp.ones((0,)), "f": jnp.ones((0,))}
    x = jnp.ones((2, 4))

    def loss(p):
        return jnp.mean(jnp.tanh(0.1 * (x @ p["w"]) + p["b_ih"] + p["b_hh"]) ** 2) + p["s"] + p["t"]

    def step(params, state):
        grads = jax.grad(loss)(params)
        if not jit:
            grads["b_hh"] = grads["b_ih"]
        return gj.adamw(params, grads, state, lr=0.125)

    found, state = (jax.jit(step) if jit else step)(params, gj.adamw_init(params))
    for name, grad in jax.grad(loss)(params).items():
        alone = {name: params[name]}
        expected, _ = gj.adamw(alone, {name: jnp.array(grad)}, gj.adamw_init(alone), lr=0.125)
        # Compiled with the loss its gradient may be rounded otherwise.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
        np.testing.assert_allclose(state.exp_avg[name], 0.1 * grad, rtol=1e-5)


@pytest.mark.parametrize("name", ["unscale_check", "update_scale", "step"])
def test_handlers_for_cuda_refuse_to_run_where_there_is_no_stream(name):
    # All that can be seen of them without a GPU: that they ask XLA for their place and return errors.
    handler = getattr(gj._handlers.library, f"gradscaler_{name}_cuda")
    jax.ffi.register_ffi_target(f"misplaced_{name}", jax.ffi.pycapsule(handler), platform="cpu")
    call = jax.ffi.ffi_call(f"misplaced_{name}", [jax.ShapeDtypeStruct((), jnp.float32)])
    with on_cpu(jax), pytest.raises(Exception, match="does not say on which stream|too old for CUDA"):
        jax.block_until_ready(call(jnp.float32(1.0)))


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("loss", "message"), [
    (lambda p: (p * p).sum().astype("int32"), "a loss of dtype int32"),
    (lambda p: (p * p).sum() * 1j, "a loss of dtype complex64"),
    (lambda p: (p.sum(), p), "a loss that is tuple.*with has_aux=True"),
    (lambda p: None, "a loss that is NoneType"),
])
def test_losses_without_gradients_are_refused(loss, message, jit):
    # As jax.value_and_grad does; their gradients would be 0, or those of the real part.
    with refused(message, TypeError):
        (jax.jit if jit else lambda f: f)(gj.DynamicScale.create().value_and_grad(loss))(jnp.ones(3))


def test_losses_that_are_constants_have_gradients_of_zero():
    *_, value, grads = gj.DynamicScale.create().value_and_grad(lambda p: 2.0)(jnp.ones(3))
    assert float(value) == 2.0 and not grads.any()
