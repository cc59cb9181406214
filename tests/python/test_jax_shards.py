# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax on four devices, into which XLA divides the CPU (see conftest.py): arrays stay in their shards, and
none of them is gathered."""

import functools
import re

import numpy as np
import pytest

from conftest import library, on_cpu
from jax_trees import gj, jax, jnp, random_tree, same_bits

P = jax.sharding.PartitionSpec
DEVICES = jax.devices("cpu")
SPECS = {"w": P("x", "y"), "b": P("y"), "s": P(), "h": P(None, "x")}
SHAPES = {"b": (6,), "h": (3, 4, 5), "s": (), "w": (8, 12)}
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|dynamic-slice)[-a-z.]*\(")


@pytest.fixture(autouse=True)
def cpu():
    with on_cpu(jax):
        yield


@pytest.fixture(params=["Auto", "Explicit"])
def mesh(request):
    return make_mesh((2, 2), ("x", "y"), request.param)


def make_mesh(shape, names, kind="Auto"):
    return jax.make_mesh(shape, names, devices=DEVICES, axis_types=(getattr(jax.sharding.AxisType, kind),) * len(names))


tree = functools.partial(random_tree, SHAPES)


def put(mesh, values):
    return {name: jax.device_put(values[name], jax.sharding.NamedSharding(mesh, SPECS[name])) for name in SHAPES}


def collectives(call, *arguments):
    text = jax.jit(call).lower(*arguments).compile().as_text()
    assert "gradscaler" in text
    return sorted(set(COLLECTIVE.findall(text)))


def stepped(**options):
    """One step on one device."""
    return gj.adamw(tree(0), tree(1), gj.adamw_init(tree(0)), **options)


def same_place(mesh, values):
    for name in SHAPES:
        expected = jax.sharding.NamedSharding(mesh, SPECS[name])
        assert values[name].sharding.is_equivalent_to(expected, values[name].ndim), name


def test_adamw_keeps_shards(mesh):
    expected = stepped(lr=0.1)
    params, grads = put(mesh, tree(0)), put(mesh, tree(1))
    state = gj.adamw_init(params)
    same_place(mesh, state.exp_avg)
    same_place(mesh, state.exp_avg_sq)
    step = functools.partial(gj.adamw, lr=0.1)
    for call in (step, jax.jit(step)):
        for found, right in zip(parts(*call(params, grads, state)), parts(*expected), strict=True):
            same_place(mesh, found)
            same_bits(found, right)
    assert collectives(step, params, grads, state) == []
    before = [addresses(part) for part in parts(params, state)]
    after = parts(*jax.jit(step, donate_argnums=(0, 2))(params, grads, state))
    assert sorted(sum(before, [])) == sorted(sum(map(addresses, after), []))
    for found, right in zip(after, parts(*expected), strict=True):
        same_bits(found, right)


def parts(params, state):
    return params, state.exp_avg, state.exp_avg_sq


def addresses(values):
    return [shard.data.unsafe_buffer_pointer() for shard in values["w"].addressable_shards]


@pytest.mark.parametrize("name", ["momentum", "adamw", "lamb"])
def test_optax_keeps_shards(name):
    optax, go = library("optax"), library("gradscaler.jax.optax")
    mesh = make_mesh((2, 2), ("x", "y"))
    tx = {"momentum": go.sgd(0.05, 0.9), "adamw": go.adamw(0.05), "lamb": go.lamb(0.05, weight_decay=0.1)}[name]

    def step(params, grads, state):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    expected = jax.jit(step)(tree(0), tree(1), tx.init(tree(0)))
    arguments = put(mesh, tree(0)), put(mesh, tree(1)), tx.init(put(mesh, tree(0)))
    # LAMB's norms are over all shards: sums, n roundings each.
    assert collectives(step, *arguments) == ["all-reduce"] * (name == "lamb")
    found = jax.jit(step)(*arguments)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=200 * 2.0**-24 if name == "lamb" else 0)
    same_place(mesh, found[0])
    for moment in found[1][0]:
        if isinstance(moment, dict):
            same_place(mesh, moment)


def test_a_whole_training_step_gathers_no_parameter(mesh):
    params = put(mesh, tree(0))

    def step(scale, params, state):
        loss = lambda p: sum(jnp.sum(p[name] ** 2) for name in SHAPES)  # noqa: E731
        scale, found_inf, value, grads = scale.value_and_grad(loss)(params)
        params, state = gj.adamw(params, grads, state, found_inf=found_inf)
        return scale, params, state, value

    arguments = gj.DynamicScale.create(), params, gj.adamw_init(params)
    assert collectives(step, *arguments) == ["all-reduce"]  # Of the loss, and of found_inf.
    same_place(mesh, jax.jit(step)(*arguments)[1])


def test_unscale_check_joins_what_was_found(mesh):
    grads = put(mesh, tree(0))
    assert collectives(gj.unscale_check, grads, 0.5) == ["all-reduce"]
    unscaled, found = jax.jit(gj.unscale_check)(grads, 0.5)
    assert found == 0.0
    same_place(mesh, unscaled)
    same_bits(unscaled, {name: leaf * 0.5 for name, leaf in tree(0).items()})
    for element in ((0, 0), (7, 11), (4, 5)):  # On one device each.
        bad = tree(0)
        bad["w"] = bad["w"].at[element].set(jnp.nan)
        assert jax.jit(gj.unscale_check)(put(mesh, bad), 0.5)[1] == 1.0


def test_gradients_that_lie_elsewhere_are_brought_to_the_parameters(mesh):
    if "Explicit" in str(getattr(mesh, "axis_types", "")):
        pytest.skip("with explicit sharding moving is the caller's to write")
    expected, _ = stepped()
    params = put(mesh, tree(0))
    everywhere = jax.device_put(tree(1), jax.sharding.NamedSharding(mesh, P()))
    found, _ = jax.jit(gj.adamw)(params, everywhere, gj.adamw_init(params))
    same_bits(found, expected)
    same_place(mesh, found)


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(mesh, check_vma):
    expected, _ = stepped()
    state_specs = gj.AdamWState(P(), SPECS, SPECS)

    def step(params, grads, state):
        grads, found_inf = gj.unscale_check(grads, 1.0)
        return gj.adamw(params, grads, state, found_inf=jax.lax.pmax(found_inf, ("x", "y")))

    call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(SPECS, SPECS, state_specs), check_vma=check_vma,
                                 out_specs=(SPECS, state_specs)))
    params = put(mesh, tree(0))
    found, _ = call(params, put(mesh, tree(1)), gj.adamw_init(params))
    same_place(mesh, found)
    same_bits(found, expected)
    bad = tree(1)
    bad["w"] = bad["w"].at[7, 11].set(jnp.inf)
    found, state = call(params, put(mesh, bad), gj.adamw_init(params))
    same_bits(found, tree(0))
    assert state.step == 0


def average_step(scale, params, state, x, poison):
    loss = lambda p: jnp.mean((x * p["w"]) ** 2) * poison[0]  # noqa: E731
    scale, found_inf, _, grads = scale.value_and_grad(loss, axis_name="batch")(params)
    params, state = gj.adamw(params, grads, state, lr=0.1, found_inf=found_inf)
    return scale, params, state, grads, found_inf[None]


@pytest.mark.parametrize("poisoned", [None, 0, 2])
@pytest.mark.parametrize("how", ["pmap", "shard_map", "shard_map unchecked"])
@pytest.mark.parametrize("policy", [{}, {"min_scale": 1.0}], ids=["torch", "min_scale"])
def test_axis_name_averages_and_agrees(how, poisoned, policy):
    x = jnp.arange(8.0).reshape(4, 2) / 4
    poison = jnp.ones(4).at[poisoned].set(jnp.inf) if poisoned is not None else jnp.ones(4)
    params = {"w": jnp.array([1.0, -2.0])}
    state, scale = gj.adamw_init(params), gj.DynamicScale.create(256.0, **policy)
    if how == "pmap":
        everywhere = lambda tree: jax.tree.map(lambda a: jnp.stack([a] * 4), tree)  # noqa: E731
        call = jax.pmap(average_step, axis_name="batch", devices=DEVICES)
        out = call(everywhere(scale), everywhere(params), everywhere(state), x, poison[:, None])
        for leaf in jax.tree.leaves(out):
            np.testing.assert_array_equal(leaf, jnp.stack([leaf[0]] * 4))
        after, params_after, _, grads, found = jax.tree.map(lambda leaf: leaf[0], out)
    else:
        mesh = make_mesh((4,), ("batch",))
        call = jax.shard_map(average_step, mesh=mesh, in_specs=(P(), P(), P(), P("batch"), P("batch")),
                             out_specs=(P(), P(), P(), P(), P("batch")), check_vma=how == "shard_map")
        after, params_after, _, grads, found = jax.jit(call)(scale, params, state, x, poison)
    if poisoned is not None:
        assert (found == 1.0).all() and after.scale == 128.0
        np.testing.assert_array_equal(params_after["w"], params["w"])
        return
    assert (found == 0.0).all() and after.growth_tracker == 1
    # All are powers of two and small integers: nothing is rounded.
    of_all = jax.grad(lambda p: jnp.mean((x * p["w"]) ** 2))(params)
    np.testing.assert_array_equal(grads["w"], of_all["w"])
    expected, _ = gj.adamw(params, of_all, state, lr=0.1)
    np.testing.assert_array_equal(params_after["w"], expected["w"])


@pytest.mark.parametrize("argnums", [1, -1, (0, -1), [-2, 1], np.int64(-1)], ids=str)
def test_argnums_from_the_end_are_the_same_arguments(argnums):
    mesh = make_mesh((4,), ("batch",))

    def step(v, w, x):
        loss = lambda v, w: jnp.mean(x * w * v)  # noqa: E731
        return gj.DynamicScale.create(256.0).value_and_grad(loss, argnums, axis_name="batch")(v, w)[3]

    call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("batch")), out_specs=P()))
    assert jax.tree.all(jax.tree.map(lambda g: bool(g == 1.5),
                                                         call(jnp.ones(()), jnp.ones(()), jnp.arange(4.0))))
