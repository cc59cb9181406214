# SPDX-License-Identifier: Apache-2.0
"""DynamicScale: its policies against the object interface's, bit for bit; flax and Orbax save it."""

import dataclasses
import functools
import typing

import numpy as np
import pytest

import gradscaler as gs
from conftest import library
from gradscaler import _fields
from gradscaler import policy as policy_of
from gradscaler._native import native
from jax_trees import gj, jax, jnp

# Random policies go down to scales that are too small to divide by.
pytestmark = pytest.mark.filterwarnings("ignore:the loss scale .* is too small:RuntimeWarning")
COUNTERS = ("hysteresis_tracker", "overflows_since_rescale", "updates_since_rescale", "skips_at_floor")


def run(scale, overflows):
    def step(scale, found_inf):
        scale = scale.update(found_inf)
        return scale, scale

    return jax.jit(functools.partial(jax.lax.scan, step))(scale, jnp.asarray(overflows, jnp.float32))[1]


def random_policy(rng):
    limits = {"min_scale": float(np.float32(2.0 ** rng.uniform(-8, 0))), "max_scale": float(np.float32(2.0 ** 90)),
              "recovery_threshold": 1e9, "hysteresis": int(rng.integers(2, 5)),
              "overflow_tolerance": float(rng.choice([1.0, 1 / 3, 0.1, rng.uniform(), 5e-324]))}
    return {**{name: value for name, value in limits.items() if rng.uniform() < 0.5},
            "init_scale": float(np.float32(2.0 ** rng.uniform(0, 80))),
            "growth_factor": float(rng.choice([1.0 + rng.uniform(1e-6, 3.0), 1e20])),
            "backoff_factor": float(rng.uniform(0.01, 0.99)), "growth_interval": int(rng.integers(1, 6)),
            "recovery_interval": int(rng.integers(1, 4)),
            "hysteresis_refill": str(rng.choice(["on_growth", "on_clean_step", "consecutive"])),
            "growth_timing": str(rng.choice(["at_interval", "one_later", "first_one_later"])),
            **{name: bool(rng.uniform() < 0.5) for name in ("grow_on_equal", "finite_guard", "floor_exclusive",
                                                            "fp32_products")}}


def require_same_updates(scale, scaler, overflows):
    """Their states after each update, until unscaling 0 by itself overflows; the number of updates."""
    after = jax.tree.map(np.asarray, run(scale, overflows))
    gradient = np.zeros(1, np.float32)
    grads = gs.TensorList([gradient])
    for i, overflow in enumerate(overflows):
        gradient[0] = np.inf if overflow else 0.0
        scaler.check(grads)
        scaler.update()
        state = scaler.state_dict()
        if state["scale"] < 2.0**-126 and not np.all(overflows):
            return i
        assert after.scale[i].tobytes() == np.float32(state["scale"]).tobytes(), i
        assert after.growth_tracker[i] == state["_growth_tracker"], i
        if after.counters is not None:
            assert after.counters[i].tolist() == [state["gradscaler"][name] for name in COUNTERS], i
    return len(overflows)


@pytest.mark.parametrize("preset", gs.PRESETS)
def test_presets_are_those_of_the_object_interface(preset):
    rng = np.random.default_rng(5)
    overflows = rng.uniform(size=800) < np.where(np.arange(800) // 50 % 2, 0.05, 0.5)
    # What a floor raises on the host is not the compiled step's, and no part of the trajectory.
    scaler = gs.GradScaler.from_preset(preset, growth_interval=3, floor_action="clamp")
    scale = gj.DynamicScale.create(preset=preset, growth_interval=3)
    assert require_same_updates(scale, scaler, overflows) > 100
    assert (scale.counters is None) == (preset == "torch")


@pytest.mark.parametrize("seed", range(20))
def test_any_policy_is_that_of_the_object_interface(seed):
    rng = np.random.default_rng(seed)
    policy = random_policy(rng)
    scaler, scale = gs.GradScaler(**policy, floor_action="clamp"), gj.DynamicScale.create(**policy)
    assert require_same_updates(scale, scaler, rng.uniform(size=200) < rng.uniform()) > 1


def random_value(name, rng):
    """A value of an option of the generated fields: of any that there are or will be."""
    if name in _fields.WORDS:
        return str(rng.choice(typing.get_args(typing.get_type_hints(_fields.Policy)[name])))
    if name in _fields.FLAGS or name == "enabled":
        return bool(rng.uniform() < 0.5)
    if name in _fields.INTEGERS:
        return int(rng.integers(0, 6))
    return float(np.float32(rng.choice([0.0, 0.3, 0.5, 1.0, 1.7, 3.0, 20.0, 2.0**60])))


def drawn(rng, base, name):
    """Options that the library takes: `base` with a random value of option `name`."""
    while True:
        policy = {**base, name: random_value(name, rng)}
        try:
            gs.GradScaler(**policy).close()
            return policy
        except gs.InvalidArgumentError:
            base = {**base, **random_policy(rng)}


def scaler_at(policy, tracker):
    scaler = gs.GradScaler(**policy)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": tracker})
    return scaler


def scales_of(scaler, overflows):
    gradient, found = np.zeros(1, np.float32), []
    grads = gs.TensorList([gradient])
    for overflow in overflows:
        gradient[0] = np.inf if overflow else 0.0
        scaler.check(grads)
        scaler.update()
        found.append(scaler.get_scale())
    return found


@pytest.mark.parametrize("name", gs.GradScaler().options)
def test_every_option_of_the_library_is_applied_or_refused_by_name(name):
    """The kind: one policy in two places. An option of a later version is in this test without being added to it.

    What is replayed are draws in which the value of the option makes a difference.
    """
    rng, replayed = np.random.default_rng(7), 0
    for _ in range(400):
        policy = drawn(rng, random_policy(rng), name)
        other = drawn(rng, policy, name)
        overflows, tracker = rng.uniform(size=80) < rng.choice([0.0, 0.1, 0.4, 0.8]), int(rng.integers(0, 9))
        try:
            scale = gj.DynamicScale.create(**policy)
        except TypeError as error:
            assert f"DynamicScale takes no {name}: " in str(error)
            return
        scale = dataclasses.replace(scale, growth_tracker=jnp.int32(tracker))
        if scales_of(scaler_at(policy, tracker), overflows) != scales_of(scaler_at(other, tracker), overflows):
            assert require_same_updates(scale, scaler_at(policy, tracker), overflows) > 0
            replayed += 1
        if replayed == 3:
            return
    raise AssertionError("no draw was found in which the option makes a difference")


def test_an_option_that_only_the_library_has_is_refused(monkeypatch):
    """As one that a later header adds to the generated fields; also where a preset uses it."""
    monkeypatch.setattr(native.ScalerOptions, "warmup_updates", 0, raising=False)
    monkeypatch.setattr(policy_of, "INTEGERS", (*policy_of.INTEGERS, "warmup_updates"))
    gj.DynamicScale.create(min_scale=1.0)
    with pytest.raises(TypeError, match="DynamicScale takes no warmup_updates: "):
        gj.DynamicScale.create(warmup_updates=5)
    bit = 1 << 20
    monkeypatch.setattr(policy_of, "FLAGS", {**policy_of.FLAGS, "grow_slowly": (bit, False)})

    def of_preset(options, code, made=native.ScalerOptions.preset):
        made(options, code)
        options.flags |= bit

    monkeypatch.setattr(native.ScalerOptions, "preset", of_preset)
    with pytest.raises(TypeError, match="DynamicScale takes no grow_slowly: "):
        gj.DynamicScale.create(preset="megatron")


def at(policy, scale, **counts):
    scaler = gs.GradScaler(**policy)
    state = scaler.state_dict()
    state.update(scale=scale, _growth_tracker=counts.pop("growth_tracker", 0))
    state["gradscaler"].update(counts)
    scaler.load_state_dict(state)
    counters = jnp.array([state["gradscaler"][name] for name in COUNTERS], jnp.int32)
    return dataclasses.replace(gj.DynamicScale.create(**policy), scale=jnp.asarray(np.float32(scale)),
                               growth_tracker=jnp.int32(state["_growth_tracker"]), counters=counters), scaler


@pytest.mark.parametrize(("timing", "tracker"), [("at_interval", 2**31 - 1), ("one_later", 2**31 - 3)])
def test_counters_stay_at_their_largest_value(timing, tracker):
    largest = 2**31 - 1
    policy = {"growth_timing": timing, "overflow_tolerance": 1.0 - 2.0**-31, "growth_interval": largest,
              "min_scale": 1.0}
    scale, scaler = at(policy, 1024.0, growth_tracker=tracker, overflows_since_rescale=largest - 3,
                       updates_since_rescale=largest - 1)
    assert require_same_updates(scale, scaler, np.array([0, 0, 0, 1, 1, 1, 1], bool)) == 7


@pytest.mark.parametrize("scale", [2.0**-149, 3 * 2.0**-149, 2.0**-127, 0.0, float("inf")])
def test_scales_at_the_ends_of_float32(scale):
    policy = {"hysteresis": 2, "hysteresis_refill": "consecutive", "finite_guard": False}
    assert require_same_updates(*at(policy, scale), np.ones(5, bool)) == 5


def test_products_of_64_bits():
    a, b = np.random.default_rng(6).integers(0, 2**32, (2, 1000), dtype=np.uint64)
    a[:2], b[:2] = 2**32 - 1, (2**32 - 1, 1)
    high, low = gj._policy._product(jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32))
    np.testing.assert_array_equal(np.asarray(high, np.uint64) << np.uint64(32) | np.asarray(low, np.uint64), a * b)


@pytest.mark.parametrize("limit", [1.0, 0.5, 0.4, 0.1, 1 / 3, 2 / 3, 1 - 2.0**-53, 1e-9, 1e-300, 5e-324])
def test_rates_are_compared_as_doubles_are(limit):
    rng = np.random.default_rng(5)
    whole = np.concatenate([np.arange(1, 200), rng.integers(1, 2**31, 300), [2**31 - 1, 2**31 - 2, 2**30]])
    exact = (whole * limit).astype(np.int64)
    for part in (exact - 1, exact, exact + 1, whole - 1, whole):
        part = np.clip(part, 1, 2**31 - 1)
        found = gj._policy._is_below(jnp.asarray(part, jnp.int32), jnp.asarray(whole, jnp.int32), limit)
        np.testing.assert_array_equal(found, part / whole < limit)


@pytest.mark.parametrize("error, message, policy", [
    (ValueError, "preset is 'jaxx'", {"preset": "jaxx"}),
    (ValueError, "growth_factor", {"growth_factor": 0.5}),
    (ValueError, "min_scale is 8, above", {"min_scale": 8.0, "max_scale": 4.0}),
    (TypeError, "unexpected keyword argument 'floor'", {"floor": 1.0}),
    (TypeError, "DynamicScale takes no enabled: ", {"enabled": False}),
    (TypeError, "DynamicScale takes no floor_action: ", {"floor_action": "error"}),
    (TypeError, "DynamicScale takes no history_capacity: ", {"history_capacity": 4})])
def test_bad_policies_name_the_argument(error, message, policy):
    with pytest.raises(error, match=message):
        gj.DynamicScale.create(**policy)


def test_what_a_scale_cannot_say():
    with pytest.raises(TypeError, match="init_scale is .*; it must be a number"):
        jax.jit(lambda s: gj.DynamicScale.create(s))(4.0)
    with pytest.raises(AttributeError, match="create it with min_scale"):
        gj.DynamicScale.create().skips_at_floor  # noqa: B018


def test_vmap_over_scales():
    scales = jax.tree.map(lambda a: jnp.stack([a] * 3), gj.DynamicScale.create(16.0, min_scale=8.0))
    after = jax.vmap(lambda s, f: s.update(f).update(f))(scales, jnp.array([0.0, 1.0, 0.0]))
    assert after.scale.tolist() == [16.0, 8.0, 16.0] and after.growth_tracker.tolist() == [2, 0, 2]
    assert after.skips_at_floor.tolist() == [0, 1, 0]


def by_flax(saved, fresh, _):
    serialization = library("flax.serialization")
    return serialization.from_bytes(fresh, serialization.to_bytes(saved))


def by_orbax(saved, fresh, path):
    with library("orbax.checkpoint").StandardCheckpointer() as checkpointer:
        checkpointer.save(path / "run", saved)
        checkpointer.wait_until_finished()
        return checkpointer.restore(path / "run", fresh)


@pytest.mark.parametrize("by", [by_flax, by_orbax])
@pytest.mark.parametrize("preset", ["torch", "megatron"])
def test_checkpoints(preset, by, tmp_path):
    optax = library("gradscaler.jax.optax")
    params = {"w": jnp.arange(4.0), "b": jnp.ones(2, jnp.bfloat16)}
    tx = optax.adamw(1e-2)
    fresh = {"opt_state": tx.init(params), "state": gj.adamw_init(params),
             "scale": gj.DynamicScale.create(64.0, growth_interval=2, preset=preset)}
    saved = {"opt_state": tx.update(params, fresh["opt_state"], params)[1],
             "state": gj.adamw(params, params, fresh["state"])[1],
             "scale": jax.jit(lambda s: s.update(0.0).update(1.0).update(0.0))(fresh["scale"])}
    restored = by(saved, fresh, tmp_path)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for one, other in zip(*map(jax.tree.leaves, (restored, saved)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert restored["scale"].update(0.0).scale == saved["scale"].update(0.0).scale


def test_foreign_states_of_flax_are_refused():
    serialization = library("flax.serialization")
    other = serialization.to_state_dict(gj.DynamicScale.create(preset="megatron"))
    for foreign, message in (({"scale": 1.0}, "no state of a DynamicScale"), (other, "another policy")):
        with pytest.raises(ValueError, match=message):
            serialization.from_state_dict(gj.DynamicScale.create(), foreign)


def test_a_scale_that_was_not_made_by_create_says_how_it_is_made():
    for given in ({}, {"scale": jnp.float32(2.0)}, {"growth_tracker": jnp.int32(0)}):
        with pytest.raises(TypeError, match=r"make it with DynamicScale\.create\(\)"):
            gj.DynamicScale(**given)
    # What JAX makes of one is no scale, and is not refused.
    specs = jax.tree.map(lambda _: None, gj.DynamicScale.create())
    assert isinstance(specs, gj.DynamicScale) and specs.scale is None


def test_a_policy_without_its_counters_is_refused():
    scale = gj.DynamicScale.create(1.0, min_scale=1.0)
    for wrong in (dataclasses.replace(scale, counters=None),
                  gj.DynamicScale(jnp.float32(1.0), jnp.int32(0), None, (("min_scale", 1.0),)),
                  gj.DynamicScale(jnp.float32(1.0), jnp.int32(0), None, (("growth_factr", 3.0),))):
        with pytest.raises(TypeError, match=r"no counters, which that needs; make it with DynamicScale.create\(\)"):
            wrong.update(1.0)


def test_the_numbers_of_an_update_are_numbers_of_python():
    for name, wrong, said in (("growth_interval", 1.5, "an integer"), ("growth_interval", "2", "an integer"),
                              ("growth_factor", "2", "a number"), ("backoff_factor", None, "a number")):
        with pytest.raises(TypeError, match=f"^{name} is .*; it must be {said}"):
            gj.update_scale(8.0, 0, 0.0, **{name: wrong})
    with pytest.raises(TypeError, match="^growth_factor is traced, but it must be a number"):
        jax.jit(lambda factor: gj.update_scale(8.0, 0, 0.0, growth_factor=factor))(2.0)
