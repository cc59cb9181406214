# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax.adamw with state in 16 and 8 bits: the bits of the optimizer over arrays, shards, and conversion."""

import dataclasses
import functools

import numpy as np
import pytest

import gradscaler as gs
from conftest import on_cpu
from jax_trees import gj, jax, jnp, random_tree, same_bits

P = jax.sharding.PartitionSpec
FORMATS = [(state, master) for state in ("fp32", "16bit", "8bit")
           for master in (None, "split", "split24", "stochastic")]
SHAPES = {"b": (7,), "e": (0, 5), "f": (128,), "m": (4, 6, 3), "s": (), "w": (8, 64)}
KEEPS_BITS = {"f": P("x"), "w": P("x")}


@pytest.fixture(autouse=True)
def cpu():
    with on_cpu(jax):
        yield


tree = functools.partial(random_tree, SHAPES)


def stepped(params, state, seeds, place=lambda tree: tree):
    step = jax.jit(functools.partial(gj.adamw, lr=0.01, betas=(0.9, 0.999)))
    for seed in seeds:
        params, state = step(params, place(tree(seed)), state)
    return params, state


@pytest.mark.parametrize("state, master", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_bits_are_those_of_the_optimizer_over_arrays(state, master, dtype):
    if master and dtype == "float32":
        pytest.skip("masters are of 16-bit parameters")

    def behind(values):
        # More groups than 12 bits count.
        return {"a": jnp.zeros(4096 * 32, dtype), **values}

    params = behind(tree(0, dtype))
    # bfloat16 is a dtype of NumPy's where JAX is.
    own = {name: np.array(p) for name, p in params.items()}
    grads = {name: np.zeros(p.shape, np.float32) for name, p in own.items()}
    optimizer = gs.AdamW(own, grads, lr=np.float32(0.01), state=state, master=master, seed=5)
    found = gj.adamw_init(params, state=state, master=master, seed=5)
    step = jax.jit(functools.partial(gj.adamw, lr=0.01))
    for seed in range(4):
        for name, grad in behind(tree(seed)).items():
            grads[name][...] = grad
        optimizer.step()
        params, found = step(params, {name: jnp.asarray(4 * g) for name, g in grads.items()}, found, inv_scale=0.25)
    same_bits(params, {name: jnp.asarray(p) for name, p in own.items()})
    assert found.step == 4
    arrays = optimizer.state_arrays()
    for slot in ("exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale", "remainder"):
        for name, values in (getattr(found, slot, None) or {}).items():
            expected = np.asarray(arrays[f"{slot}.{name}"]).reshape(-1).view(np.uint8)
            assert np.array_equal(np.asarray(values).reshape(-1).view(np.uint8), expected), (slot, name)
    same_bits(gj.adamw(params, behind(tree(9)), found, found_inf=1.0), (params, found))


@pytest.mark.parametrize("state, master", [("8bit", "stochastic"), ("16bit", "split")])
def test_shards_lie_where_the_parameters_do_and_have_their_bits(state, master):
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices("cpu"))

    def place(values):
        return {name: jax.device_put(p, jax.sharding.NamedSharding(mesh, KEEPS_BITS.get(name, P())))
                for name, p in values.items()}

    params = tree(0, "bfloat16")
    whole = stepped(params, gj.adamw_init(params, state=state, master=master, seed=1), range(3))
    spread = place(params)
    params, found = stepped(spread, gj.adamw_init(spread, state=state, master=master, seed=1), range(3), place)
    for name, p in spread.items():
        for slot in (params, found.exp_avg, found.exp_avg_sq, found.exp_avg_sq_scale, found.remainder):
            if slot is not None:
                assert (slot[name].sharding.spec[:1] or (None,)) == (p.sharding.spec[:1] or (None,)), name
    same_bits((params, found), whole)
    same_bits(gj.adamw_convert(params, found, dtype="float32"), gj.adamw_convert(*whole, dtype="float32"))
    text = jax.jit(gj.adamw).lower(params, place(tree(7)), found).compile().as_text()
    assert "gradscaler" in text and "all-gather" not in text


def test_shards_that_would_cut_a_group_are_brought_together():
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices("cpu"))
    params = {"m": tree(0, "bfloat16")["m"], "w": tree(0, "bfloat16")["w"]}
    grads = {name: tree(1)[name] for name in params}
    spread = {"m": jax.device_put(params["m"], jax.sharding.NamedSharding(mesh, P("x"))),
              "w": jax.device_put(params["w"], jax.sharding.NamedSharding(mesh, P(None, "x")))}
    one, other = (jax.jit(gj.adamw)(p, grads, gj.adamw_init(p, state="8bit", master="split")) for p in (params, spread))
    same_bits(other[0], one[0])
    assert other[0]["m"].sharding.spec == P("x", None, None)


@pytest.mark.parametrize("state, master", [("fp32", "split"), ("16bit", "split24"), ("8bit", "split"), ("8bit", None),
                                           ("16bit", "stochastic")])
def test_state_is_saved_loaded_and_converted(state, master, tmp_path):
    params = tree(0, "bfloat16")
    params, found = stepped(params, gj.adamw_init(params, state=state, master=master, seed=2), range(3))
    leaves, structure = jax.tree.flatten((params, found))
    # NumPy's files do not know bfloat16.
    np.savez(tmp_path / "saved.npz", *(np.asarray(leaf).view("u2") if leaf.dtype == "bfloat16" else leaf
                                       for leaf in leaves))
    with np.load(tmp_path / "saved.npz") as saved:
        again = [jnp.asarray(saved[f"arr_{i}"].view(leaf.dtype)) for i, leaf in enumerate(leaves)]
    loaded = jax.tree.unflatten(structure, again)
    same_bits(stepped(*loaded, [3]), stepped(params, found, [3]))
    wide, full = gj.adamw_convert(params, found, dtype="float32")
    assert isinstance(full, gj.AdamWState) and full.step == 3
    assert wide["w"].dtype == full.exp_avg["w"].dtype == "float32"
    assert (wide["w"] != params["w"]).any() == (master in ("split", "split24"))
    back, small = gj.adamw_convert(wide, full, dtype="bfloat16", state=state, master=master, seed=2)
    same_bits(back, params)
    same_bits(small.remainder, found.remainder)
    same_bits(gj.adamw_convert(back, small, dtype="float32")[0], wide)
    bound = {"fp32": 0.0, "16bit": 2.0**-8, "8bit": 2.0**-4}[state]
    for slot in ("exp_avg", "exp_avg_sq"):
        for name, values in getattr(gj.adamw_convert(back, small)[1], slot).items():
            expected = getattr(full, slot)[name]
            largest = jnp.max(abs(expected), initial=0.0)
            assert (abs(values - expected) <= bound * abs(expected) + bound * 2.0**-6 * largest).all()


def test_slow_means_are_bfloat16_in_8_bits():
    params, betas = tree(0, "bfloat16"), (0.999, 0.99)
    own = {name: np.array(p) for name, p in params.items()}
    grads = {name: np.zeros(p.shape, np.float32) for name, p in own.items()}
    optimizer = gs.AdamW(own, grads, lr=np.float32(0.01), betas=betas, state="8bit", seed=5)
    held = gj.adamw_init(params, state="8bit", seed=5, betas=betas)
    assert held.exp_avg["w"].dtype == "bfloat16" and held.exp_avg_scale is None
    assert held.exp_avg_sq["w"].dtype == "uint8" and held.exp_avg_sq_scale["w"].dtype == "int16"
    fast, found = gj.adamw_init(params, state="8bit", seed=5), (params, held)
    assert fast.exp_avg["w"].dtype == fast.exp_avg_scale["w"].dtype == "uint8"
    step = jax.jit(functools.partial(gj.adamw, lr=0.01, betas=betas))
    for seed in range(3):
        for name, grad in tree(seed).items():
            grads[name][...] = grad
        optimizer.step()
        found = step(found[0], tree(seed), found[1])
    same_bits(found[0], {name: jnp.asarray(p) for name, p in own.items()})
    _, exact = gj.adamw_convert(*found)
    _, codes = gj.adamw_convert(*found, state="8bit")
    assert codes.exp_avg["w"].dtype == "uint8"
    _, again = gj.adamw_convert(found[0], codes, state="8bit", betas=betas)
    assert again.exp_avg["w"].dtype == "bfloat16" and again.exp_avg_scale is None
    for name, values in gj.adamw_convert(found[0], again)[1].exp_avg.items():
        expected = exact.exp_avg[name]
        largest = jnp.max(abs(expected), initial=0.0)
        assert (abs(values - expected) <= 2.0**-4 * abs(expected) + 2.0**-9 * largest).all()


def test_masters_begin_as_the_parameters():
    params = tree(0, "bfloat16")
    _, plain = stepped(params, gj.adamw_init(params), range(2))
    after, small = gj.adamw_convert(params, plain, state="8bit", master="split")
    assert not any(map(np.any, small.remainder.values()))
    same_bits(after, params)


@pytest.mark.parametrize("master", ["split", "split24"])
@pytest.mark.parametrize("dtype, half", [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_masters_between_two_weights_keep_their_bits(dtype, half, master):
    wide = {"w": jnp.asarray([1 + half, -1 - half, 1 + 3 * half, 1.0, 0.0, half], jnp.float32)}
    narrow = gj.adamw_convert(wide, gj.adamw_init(wide), dtype=dtype, master=master)
    same_bits(gj.adamw_convert(*narrow, dtype="float32")[0], wide)


def test_vmap():
    params = tree(0, "bfloat16")
    stack = functools.partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    found = gj.adamw_init(params, state="8bit", master="split")
    both = jax.vmap(gj.adamw)(stack(params, params), stack(tree(1), tree(2)), stack(found, found))
    same_bits(both, stack(*(gj.adamw(params, tree(seed), found) for seed in (1, 2))))


@pytest.mark.parametrize("call, error, message", [
    (lambda p: gj.adamw_init(p, state="4bit"), ValueError, "state is '4bit'; it must be one of 'fp32', '16bit'"),
    (lambda p: gj.adamw_init(p, master="all"), ValueError, "master is 'all'"),
    (lambda p: gj.adamw_init(tree(0), master="split"), ValueError, r"params\['b'\] has dtype float32; with master='"),
    (lambda p: gj.adamw_init(p, state="8bit", seed=-1), ValueError, "seed is -1"),
    (lambda p: gj.adamw(tree(0), p, gj.adamw_init(p, master="split")), ValueError, r"params\['b'\] has dtype float32"),
    (lambda p: gj.adamw({"b": p["b"]}, {"b": p["b"]}, gj.adamw_init(p, state="8bit")), ValueError, "state.exp_avg"),
    (lambda p: gj.adamw(p, p, gj.adamw_init(p, state="8bit").__class__(
        0, *(p,) * 5, "8bit", None, 0)), TypeError, r"state.exp_avg_sq\['b'\] has dtype bfloat16; it must be uint8"),
    (lambda p: gj.adamw(p, p, dataclasses.replace(gj.adamw_init(p, state="8bit"), exp_avg_sq_scale=jax.tree.map(
        lambda s: s.astype("uint8"), gj.adamw_init(p, state="8bit").exp_avg_sq_scale))), TypeError,
     r"state.exp_avg_sq_scale\['b'\] has dtype uint8; it must be int16"),
    # Of an earlier version, whose codes were other ones.
    (lambda p: gj.adamw(p, p, dataclasses.replace(gj.adamw_init(p, state="16bit"), exp_avg_sq=jax.tree.map(
        lambda s: s.astype("int16"), gj.adamw_init(p, state="16bit").exp_avg_sq))), TypeError,
     r"state.exp_avg_sq\['b'\] has dtype int16; it must be uint16"),
    (lambda p: gj.adamw_init(p, state="8bit", betas=0.9), TypeError, "betas is 0.9; it must be two numbers"),
    (lambda p: gj.adamw_init(p, state="8bit", betas=(1.0, 0.9)), ValueError, r"betas\[0\] is 1; it must be"),
])
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(tree(0, "bfloat16"))
