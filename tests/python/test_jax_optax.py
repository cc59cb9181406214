# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax.optax against optax: each step is made from the same state, gradients and parameters, under jit.

The library's arithmetic is PyTorch's; it must be optax's but for rounding. Where the operations are the same, so must
be the bits.
"""

import functools
import inspect

import numpy as np
import pytest

from conftest import library, refused
from jax_trees import jax, jnp, random_tree, same_bits

optax = library("optax")

import gradscaler.jax.optax as go  # noqa: E402

U = 2.0**-24
# Without two bias corrections, which in optax's float32 are off by 3e-5 at the first step.
CLOSE = ("sgd", "momentum", "nesterov", "adagrad", "lion", "rmsprop", "adadelta", "adamax")
SHAPES = {"b": (7,), "w": (6, 9)}
LR, DECAY = 0.05, 0.1
#: Those that are optax's own operations here.
OPTAXS = ("lars", "lars masked", "novograd", "schedule_free_adamw", "schedule_free_sgd")


def of_contrib(module):
    return module if module is go else optax.contrib


#: Transformations that optax and gradscaler.jax.optax both have, made of either module by the same arguments. Each is
#: made once, so that JAX compiles it once for all tests.
MAKERS = {name: functools.cache(make) for name, make in {
    "sgd": lambda m: m.sgd(LR),
    "momentum": lambda m: m.sgd(LR, 0.9),
    "nesterov": lambda m: m.sgd(LR, 0.9, True),
    "adam": lambda m: m.adam(LR),
    "adamw": lambda m: m.adamw(LR, weight_decay=DECAY),
    "nadam": lambda m: m.nadam(LR),
    "nadamw": lambda m: m.nadamw(LR, weight_decay=DECAY),
    "radam": lambda m: m.radam(LR),
    # After 7 steps, 0.5 above and below the threshold.
    "radam long enough": lambda m: m.radam(LR, threshold=7.5),
    "radam too short": lambda m: m.radam(LR, threshold=8.5),
    "adagrad": lambda m: m.adagrad(LR),
    "lion": lambda m: m.lion(LR, weight_decay=DECAY),
    "lamb": lambda m: m.lamb(LR, weight_decay=DECAY),
    "rmsprop": lambda m: m.rmsprop(LR),
    "adadelta": lambda m: m.adadelta(LR),
    "adamax": lambda m: m.adamax(LR),
    "adabelief": lambda m: m.adabelief(LR),
    "ademamix": lambda m: of_contrib(m).ademamix(LR, weight_decay=DECAY),
    "lars": lambda m: m.lars(LR, DECAY, momentum=0.8, nesterov=True),
    "lars masked": lambda m: m.lars(LR, DECAY, {"w": True, "b": False}, trust_ratio_mask={"w": True, "b": False}),
    "novograd": lambda m: m.novograd(LR, weight_decay=DECAY),
    "schedule_free_adamw": lambda m: of_contrib(m).schedule_free_adamw(LR, 3, weight_decay=DECAY),
    "schedule_free_sgd": lambda m: of_contrib(m).schedule_free_sgd(LR, weight_decay=DECAY),
    "schedule": lambda m: m.adam(optax.linear_schedule(LR, 0.0, 10)),
    "masked decay": lambda m: m.adamw(LR, weight_decay=DECAY, mask={"w": True, "b": False}),
}.items()}


tree = functools.partial(random_tree, SHAPES)


def leaves(values):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(values)]


def near(found, expected):
    """Of whole steps, all that can differ; how little does is the matter of one step's test."""
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * LR)


def after(tx, steps=1):
    """The state after some steps, and the parameters; a list has a transformation for each step."""
    each = tx if isinstance(tx, list) else [tx] * steps
    params = tree(0)
    state = (tx[0] if tx is each else tx).init(params)
    for i, one in enumerate(each):
        updates, state = jax.jit(one.update)(tree(100 + i), state, params)
        params = optax.apply_updates(params, updates)
    return state, params


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("name", MAKERS)
def test_one_step_is_optaxs_but_for_rounding(name, steps):
    ours, theirs = MAKERS[name](go), MAKERS[name](optax)
    state, params = after(ours, steps)
    found, expected = (jax.jit(tx.update)(tree(1), state, params)[0] for tx in (ours, theirs))
    if name in ("sgd", "lion", *OPTAXS):
        same_bits(found, expected)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert (abs(one - other) <= (16 if name in CLOSE else 600) * U * (abs(other) + LR / 16)).all()


@pytest.mark.parametrize("name", MAKERS)
def test_states_are_optaxs_own(name):
    ours, theirs = MAKERS[name](go), MAKERS[name](optax)
    assert jax.tree.structure(ours.init(tree(0))) == jax.tree.structure(theirs.init(tree(0)))
    # optax's run goes on with ours, and ours with optax's.
    near(after([theirs, theirs, ours, theirs])[1], after([theirs] * 4)[1])


@pytest.mark.parametrize("name", ["schedule_free_adamw", "schedule_free_sgd"])
def test_schedule_free_is_evaluated_by_optax(name):
    ours, theirs = (optax.contrib.schedule_free_eval_params(*after(MAKERS[name](m), 4)) for m in (go, optax))
    near(ours, theirs)


@pytest.mark.parametrize("name", MAKERS)
def test_words_skip_and_unscale(name):
    tx = MAKERS[name](go)
    step = jax.jit(tx.update)
    state, params = after(tx, 2)
    params["b"] = params["b"].at[0].set(-0.0).at[1].set(0.0)
    for bad in (np.nan, np.inf):
        grads = tree(1)
        grads["w"] = grads["w"].at[2, 3].set(bad)
        updates, skipped = step(grads, state, params, found_inf=1.0)
        same_bits(skipped, state)
        same_bits(jax.jit(optax.apply_updates)(params, updates), params)
    scaled = jax.tree.map(lambda g: g * 1024, tree(1))
    # XLA joins the multiplication with optax's operations that follow: there the factor is in both.
    one = {"inv_scale": 1.0} if name in OPTAXS else {}
    same_bits(step(scaled, state, params, inv_scale=1 / 1024), step(tree(1), state, params, **one))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", MAKERS)
def test_16_bit_parameters_and_gradients(name, dtype):
    tx = MAKERS[name](go)
    params, grads = tree(0, dtype), tree(1, dtype)
    wide = jax.tree.map(lambda a: a.astype(jnp.float32), (params, grads))
    updates, state = tx.update(grads, tx.init(params), params)
    expected, expected_state = tx.update(wide[1], tx.init(wide[0]), wide[0])
    same_bits(state, expected_state)
    for one, other in zip(leaves(updates), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2 if name == "lamb" else 1e-2, atol=1e-3)
    assert optax.apply_updates(params, updates)["w"].dtype == dtype


# The wrappers that can be put around these transformations (docs/jax.md), as they are or wrapped.
AROUND = {
    "chain": lambda m: optax.chain(optax.clip_by_global_norm(1.0), m.adam(LR)),
    "multi_transform": lambda m: optax.multi_transform({"a": m.adam(LR), "s": m.sgd(LR, 0.9)}, {"b": "s", "w": "a"}),
}
WRAPPED = {
    "chain with state": lambda m: optax.chain(optax.ema(0.9), m.adam(LR)),
    "chain with state behind": lambda m: optax.chain(m.scale_by_adam(), optax.trace(0.9), optax.scale(-LR)),
    "noise": lambda m: optax.chain(optax.add_noise(0.1, 0.5, 0), m.sgd(LR)),
    "MultiSteps": lambda m: optax.MultiSteps(m.adam(LR), 2),
    "inject_hyperparams": lambda m: optax.inject_hyperparams(m.adam, static_args=("b1", "b2", "eps"))(
        optax.linear_schedule(LR, 0.0, 10)),
    # It hands on what is masked out, inf as it is.
    "masked": lambda m: optax.masked(m.adam(LR), {"w": True, "b": False}),
    **AROUND,
}


def run(tx, overflows, unchanged=lambda state: state):
    """The parameters and state after steps of which some have an inf in every leaf, and then change nothing."""
    params = tree(0)
    state = tx.init(params)

    @jax.jit
    def step(grads, state, params, found_inf):
        updates, state = tx.update(grads, state, params, found_inf=found_inf)
        return optax.apply_updates(params, updates), state

    applied = 0
    for overflow in overflows:
        grads = jax.tree.map(lambda g: g.at[0].set(jnp.inf), tree(99)) if overflow else tree(100 + applied)
        before = params, unchanged(state)
        params, state = step(grads, state, params, 1.0 if overflow else 0.0)
        applied += not overflow
        if overflow:
            same_bits((params, unchanged(state)), before)
    return params, unchanged(state)


@pytest.mark.parametrize("wrap, name", [(False, name) for name in AROUND] + [(True, name) for name in WRAPPED])
def test_a_step_that_was_skipped_has_left_nothing_in_what_is_around(wrap, name):
    tx = go.skip_if_found_inf(WRAPPED[name](go)) if wrap else AROUND[name](go)
    same_bits(run(tx, [True, False, True, True, False, False, True, False]), run(tx, [False] * 4))


# Without jit, whose operations would be joined in other ways: slow.
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in ("MultiSteps", "noise") else [])
                                  for name in WRAPPED])
def test_what_is_around_takes_the_same_steps(name):
    near(after(WRAPPED[name](go), 4)[1], after(WRAPPED[name](optax), 4)[1])
    inner, found = WRAPPED[name](optax), go.skip_if_found_inf(WRAPPED[name](optax))
    params, state = tree(0), inner.init(tree(0))
    for seed in (100, 101):
        expected = inner.update(tree(seed), state, params)
        same_bits(found.update(tree(seed), state, params, found_inf=0.0), expected)
        scaled = jax.tree.map(lambda g: g * 4.0, tree(seed))
        same_bits(found.update(scaled, state, params, found_inf=0.0, inv_scale=0.25), expected)
        state = expected[1]


def test_multi_steps_that_skips_what_is_not_finite():
    tx = optax.MultiSteps(go.adam(LR), 2, should_skip_update_fn=optax.skip_not_finite)
    same_bits(*(run(tx, overflows, lambda state: state._replace(skip_state=()))  # But its report.
                for overflows in ([True, False, True, False], [False] * 2)))


@pytest.mark.parametrize("make", [*MAKERS.values(), lambda m: m.skip_if_found_inf(optax.adam(LR))])
def test_several_numbers_in_the_place_of_one_are_refused(make):
    params = tree(0)
    tx = make(go)
    for name in ("found_inf", "inv_scale"):
        with refused(name + r" has shape \(2,\)"):
            tx.update(params, tx.init(params), params, **{name: jnp.array([0.0, 1.0])})


def test_wrong_trees_missing_parameters_and_traced_options():
    tx = go.adam(LR)
    for own, updates, message in (
            (tx, {"v": jnp.ones(3)}, "state.mu and updates have no name in common"),
            (tx, {"w": jnp.ones((6, 9)), "b": jnp.ones((9, 6))},
             r"state.mu\['b'\] has shape \(7,\), but updates\['b'\] has \(9, 6\)"), (go.adamw(LR), tree(1), "params")):
        with refused(message, ValueError):
            own.update(updates, own.init(tree(0)))
    with refused("b1 is traced.* static_args", TypeError):
        jax.jit(optax.inject_hyperparams(go.adam)(LR).init)(tree(0))


def test_positional_arguments_are_optaxs():
    """In its order, with its defaults. What there is not, is by name for all that follows it."""
    for name in set(go.__all__) - {"skip_if_found_inf"}:
        theirs = inspect.signature(getattr(optax, name, None) or getattr(optax.contrib, name)).parameters
        ours = inspect.signature(getattr(go, name)).parameters
        places = [[arg for arg, found in of.items() if found.kind is found.POSITIONAL_OR_KEYWORD]
                  for of in (ours, theirs)]
        assert places[0] == places[1][:len(places[0])], name
        for arg, found in ours.items():
            assert found.default == theirs[arg].default or (name, arg) == ("adadelta", "learning_rate"), (name, arg)


@pytest.mark.parametrize("wrong", ["found_inff", "foundinf", "found_nan", "inv_scal", "inverse_scale"])
def test_an_argument_that_is_nearly_one_of_ours_is_refused(wrong):
    """Since optax ignores what it does not know, no step would ever be skipped."""
    params = {"w": jnp.ones(3)}
    for tx in (go.adam(LR), go.sgd(LR), go.scale_by_adam(), go.lars(LR), go.skip_if_found_inf(optax.adam(LR)),
               optax.chain(go.scale_by_lion(), optax.scale(-LR))):
        state = tx.init(params)
        with pytest.raises(TypeError, match=f"argument '{wrong}'; did you mean '(found_inf|inv_scale)'"):
            tx.update(params, state, params, **{wrong: 1.0})
        tx.update(params, state, params, value=1.0, grad=params, loss=1.0)
