# SPDX-License-Identifier: Apache-2.0
"""Transformations for optax: its SGD, Adam, AdamW, NAdam, NAdamW, RAdam, Adagrad, RMSprop, Adadelta, Adamax,
AdaBelief, AdEMAMix, Lion and LAMB, stepped by the library's handlers; and LARS, NovoGrad and Schedule-Free.

They take optax's arguments, have its defaults, and their states are optax's own classes: put one in the place of
optax's, in the middle of a run too. ``update`` takes two more arguments, which may be traced: where `found_inf` is not
0, the state stays as it is and the updates leave every parameter as it is, bit for bit; gradients that are still scaled
are multiplied by `inv_scale` first.

Of ``scale_by_adam`` and the like, for your own chain, the updates are 0 where `found_inf` is not 0. Wrappers of optax
have state that `found_inf` does not stop: wrap the whole in :func:`skip_if_found_inf`.

LARS, NovoGrad and Schedule-Free do optax's own operations, with float32 in the place of 16 bits: a handler for their
mean of gradients would cost passes that XLA saves. Evaluate Schedule-Free's parameters by
``optax.contrib.schedule_free_eval_params``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from typing import Any

from . import _handlers
from ._jax_imports import jax, jnp
from ._trees import flattened, paired

__all__ = ["adabelief", "adadelta", "adagrad", "adam", "adamax", "adamw", "ademamix", "lamb", "lars", "lion", "nadam",
           "nadamw", "novograd", "radam", "rmsprop", "scale_by_adam", "scale_by_lion", "scale_by_rss",
           "schedule_free_adamw", "schedule_free_sgd", "sgd", "skip_if_found_inf", "trace"]

optax: Any = importlib.import_module("optax")
_contrib: Any = importlib.import_module("optax.contrib")

# Under a root that is 0 stands a gradient that is 0, whose update is 0.
_TINY = 2.0**-126
# optax's NAdam has the momentum b1 at every step. The library's factor is 1 - 0.96**(momentum_decay * step) / 2, which
# rounds to 1 from the first step on.
_NO_WARMUP = 1000.0


def sgd(learning_rate: Any, momentum: float | None = None, nesterov: bool = False) -> Any:
    """As ``optax.sgd``."""
    if momentum is not None:
        return _chain(learning_rate, trace(momentum, nesterov))

    # The multiplication alone, which XLA joins with what follows.
    def update(updates: Any, state: Any, found_inf: Any, inv_scale: Any) -> tuple[Any, Any]:
        return _multiplied(updates, found_inf, inv_scale), state

    return _chain(learning_rate, _transformation(lambda params: optax.EmptyState(), update))


def adam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """As ``optax.adam``."""
    return _chain(learning_rate, scale_by_adam(b1, b2, eps))


def adamw(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, weight_decay: Any = 1e-4,
          mask: Any = None) -> Any:
    """As ``optax.adamw``; `update` needs the parameters."""
    return _chain(learning_rate, scale_by_adam(b1, b2, eps), optax.add_decayed_weights(weight_decay, mask))


def nadam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """As ``optax.nadam``."""
    return _chain(learning_rate, scale_by_adam(b1, b2, eps, nesterov=True))


def nadamw(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, weight_decay: Any = 1e-4,
           mask: Any = None) -> Any:
    """As ``optax.nadamw``; `update` needs the parameters."""
    return _chain(learning_rate, scale_by_adam(b1, b2, eps, nesterov=True),
                  optax.add_decayed_weights(weight_decay, mask))


def radam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, threshold: float = 5.0) -> Any:
    """As ``optax.radam`` without Nesterov's momentum."""
    moments = scale_by_adam(b1, b2, eps)

    def update(updates: Any, state: Any, params: Any = None, **words: Any) -> tuple[Any, Any]:
        updates, state = moments.update(updates, state, params, **words)
        # In optax's float32, in which few digits of the length are right at first.
        most, power = 2.0 / (1.0 - b2) - 1.0, b2**state.count
        length = most - 2 * state.count * power / (1 - power)
        factor = jnp.sqrt((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length))
        return jax.tree_util.tree_map(lambda u, m: jnp.where(
            length >= threshold, factor.astype(u.dtype) * u, m / (1 - b1**state.count).astype(m.dtype)),
            updates, state.mu), state

    return _chain(learning_rate, optax.GradientTransformationExtraArgs(moments.init, update))


def adagrad(learning_rate: Any, initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> Any:
    """As ``optax.adagrad``; see :func:`scale_by_rss` for the one difference."""
    return _chain(learning_rate, scale_by_rss(initial_accumulator_value, eps))


def rmsprop(learning_rate: Any, decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0,
            eps_in_sqrt: bool = True, *, momentum: float | None = None, nesterov: bool = False) -> Any:
    """As ``optax.rmsprop``, neither centered nor with a bias correction. `momentum` and `nesterov` by name: optax has
    another argument in their place."""
    fixed = _fixed(decay=decay, eps=eps, initial_scale=initial_scale)
    scaled = _scale_by("RMSPROP", optax.ScaleByRmsState, ("nu",), start=fixed["initial_scale"], alpha=fixed["decay"],
                       **{"eps_root" if eps_in_sqrt else "eps": fixed["eps"]})
    return _skipping(scaled, optax.scale_by_learning_rate(learning_rate),
                     optax.identity() if momentum is None else optax.trace(momentum, nesterov))


def adadelta(learning_rate: Any, rho: float = 0.9, eps: float = 1e-6) -> Any:
    """As ``optax.adadelta`` without weight decay."""
    scaled = _scale_by("ADADELTA", optax.ScaleByAdaDeltaState, ("e_g", "e_x"), rho=rho, eps=eps)
    return _chain(learning_rate, optax.identity(), scaled)


def adamax(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """As ``optax.adamax``."""
    return _chain(learning_rate, _scale_by("ADAMAX", optax.ScaleByAdamState, ("mu", "nu"), b1=b1, b2=b2, eps=eps))


def adabelief(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16
              ) -> Any:
    """As ``optax.adabelief``."""
    return _chain(learning_rate, _scale_by("ADABELIEF", optax.ScaleByBeliefState, ("mu", "nu"), b1=b1, b2=b2, eps=eps,
                                           eps_root=eps_root))


def ademamix(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, b3: float = 0.9999, alpha: float = 5.0,
             eps: float = 1e-8, *, weight_decay: Any = 0.0, mask: Any = None) -> Any:
    """As ``optax.contrib.ademamix``, with numbers for `b3` and `alpha`; `update` needs the parameters."""
    scaled = _scale_by("ADEMAMIX", _contrib.ScaleByAdemamixState, ("m1", "nu", "m2"), b1=b1, b2=b2, b3=b3,
                       alpha=alpha, eps=eps)
    return _chain(learning_rate, scaled, optax.add_decayed_weights(weight_decay, mask))


def lion(learning_rate: Any, b1: float = 0.9, b2: float = 0.99, *, weight_decay: Any = 1e-3, mask: Any = None) -> Any:
    """As ``optax.lion``; `update` needs the parameters."""
    return _chain(learning_rate, scale_by_lion(b1, b2), optax.add_decayed_weights(weight_decay, mask))


def lamb(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, *, weight_decay: Any = 0.0,
         mask: Any = None) -> Any:
    """As ``optax.lamb``; `update` needs the parameters. Norms are over whole parameters, not their shards."""
    return _chain(learning_rate, scale_by_adam(b1, b2, eps), optax.add_decayed_weights(weight_decay, mask),
                  optax.scale_by_trust_ratio())


def skip_if_found_inf(inner: Any) -> Any:
    """Any transformation of optax, or ``optax.MultiSteps``, with `found_inf` and `inv_scale` as arguments of `update`.

    Where `found_inf` is not 0 its whole state stays as it is, and the updates are -0.0, which leaves every parameter as
    it is. Gradients are multiplied by `inv_scale` first; other arguments are `inner`'s. Put it outermost, around
    everything else that has state: ``MultiSteps`` then leaves a micro-step that overflowed out of its mean and count, a
    schedule of ``inject_hyperparams`` does not advance, and ``ema`` and others in a chain take in no inf.
    """
    inner_update = inner.update
    if isinstance(inner, optax.GradientTransformation):
        inner_update = optax.with_extra_args_support(inner).update

    def update(updates: Any, state: Any, params: Any = None, *, found_inf: Any = 0.0, inv_scale: Any = None,
               **others: Any) -> tuple[Any, Any]:
        _require_known(others)
        applied = _handlers.scalar("found_inf", found_inf) == 0
        if inv_scale is not None:
            factor = _handlers.scalar("inv_scale", inv_scale)
            updates = jax.tree_util.tree_map(lambda g: jnp.asarray(g, _wide(g)) * factor, updates)
        updates, after = inner_update(updates, state, params, **others)
        return _where(applied, updates), _where(applied, after, state)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _of_optax(make: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with :func:`skip_if_found_inf` around its transformation, which gets 16-bit arrays widened."""
    @functools.wraps(make)
    def made(*arguments: Any, **named: Any) -> Any:
        inner = optax.with_extra_args_support(make(*arguments, **named))

        def update(updates: Any, state: Any, params: Any = None, **others: Any) -> Any:
            return inner.update(_widened(updates), state, _widened(params), **others)

        return skip_if_found_inf(optax.GradientTransformationExtraArgs(lambda params: inner.init(_widened(params)),
                                                                       update))

    made.__doc__ = f"As ``{make.__module__.partition('._')[0]}.{make.__name__}``; `update` needs the parameters."
    return made


lars = _of_optax(optax.lars)
novograd = _of_optax(optax.novograd)
schedule_free_adamw = _of_optax(_contrib.schedule_free_adamw)
schedule_free_sgd = _of_optax(_contrib.schedule_free_sgd)


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, *, nesterov: bool = False) -> Any:
    """As ``optax.scale_by_adam``, for your own chain."""
    options: dict[str, Any] = {"momentum_decay": _NO_WARMUP} if nesterov else {}
    return _scale_by("NADAM" if nesterov else "ADAM", optax.ScaleByAdamState, ("mu", "nu"), b1=b1, b2=b2, eps=eps,
                     **options)


def scale_by_lion(b1: float = 0.9, b2: float = 0.99) -> Any:
    """As ``optax.scale_by_lion``, for your own chain."""
    return _scale_by("LION", optax.ScaleByLionState, ("mu",), b1=b1, b2=b2)


def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> Any:
    """As ``optax.scale_by_rss``, for your own chain.

    `eps`, which stands under the root, is in the state from the beginning: the sum of squares starts at
    ``initial_accumulator_value + eps``, and a state made by optax goes on without it.
    """
    first = sum(_fixed(initial_accumulator_value=initial_accumulator_value, eps=eps).values())
    return _scale_by("ADAGRAD", optax.ScaleByRssState, ("sum_of_squares",), start=first, eps=_TINY)


def trace(decay: float, nesterov: bool = False) -> Any:
    """As ``optax.trace``, for your own chain."""
    momentum = _fixed(decay=decay)["decay"]
    if momentum != 0.0:
        return _scale_by("SGD", optax.TraceState, ("trace",), nesterov=nesterov, momentum=momentum)

    # The library's SGD has no state then.
    def update(updates: Any, state: Any, found_inf: Any, inv_scale: Any) -> tuple[Any, Any]:
        updates = _multiplied(updates, found_inf, inv_scale)
        return updates, optax.TraceState(_where(found_inf == 0, updates, state.trace))

    return _transformation(lambda params: optax.TraceState(_filled(params, 0.0)), update)


def _scale_by(kind: str, made: Any, slots: tuple[str, ...], *, start: float = 0.0, nesterov: bool = False,
              **numbers: Any) -> Any:
    """An optimizer of the library whose state is of optax's class `made`: slots in the library's order, which begin
    with `start`, and counts. `numbers` are the library's options, but named as in optax."""
    options = {name.replace("b", "beta") if name in ("b1", "b2", "b3") else name: value
               for name, value in _fixed(**numbers).items()}
    counts = [name for name in made._fields if name not in slots]

    def init(params: Any) -> Any:
        return made(**{name: jnp.zeros([], jnp.int32) for name in counts},
                    **{name: _filled(params, start) for name in slots})

    def update(updates: Any, state: Any, found_inf: Any, inv_scale: Any) -> tuple[Any, Any]:
        leaves, tree = flattened("updates", updates)
        before = [paired(f"state.{name}", getattr(state, name), updates, "updates") for name in slots]
        added, after = _handlers.direction(kind, leaves, before, inv_scale=inv_scale, found_inf=found_inf,
                                           steps=state.count if counts else 0, nesterov=nesterov, **options)
        found = {name: jnp.where(found_inf == 0, optax.safe_int32_increment(getattr(state, name)), getattr(state, name))
                 for name in counts}
        for name, slot in zip(slots, after, strict=True):
            found[name] = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(getattr(state, name)), slot)
        return jax.tree_util.tree_unflatten(tree, [-array for array in added]), made(**found)

    return _transformation(init, update)


def _multiplied(updates: Any, found_inf: Any, inv_scale: Any) -> Any:
    return jax.tree_util.tree_map(lambda g: jnp.where(found_inf == 0, jnp.asarray(g, _wide(g)) * inv_scale, 0.0),
                                  updates)


def _require_known(others: dict[str, Any]) -> None:
    """TypeError for an argument that is nearly one of ours: optax passes all on, and none of its parts misses it."""
    for name in others:
        close = difflib.get_close_matches(name, ("found_inf", "inv_scale"), 1, 0.75)
        if close:
            raise TypeError(f"update got an unexpected keyword argument '{name}'; did you mean '{close[0]}'?")


def _transformation(init: Callable[[Any], Any], update: Callable[..., tuple[Any, Any]]) -> Any:
    def with_words(updates: Any, state: Any, params: Any = None, *, found_inf: Any = 0.0, inv_scale: Any = 1.0,
                   **others: Any) -> tuple[Any, Any]:
        _require_known(others)
        return update(updates, state, _handlers.scalar("found_inf", found_inf),
                      _handlers.scalar("inv_scale", inv_scale))

    return optax.GradientTransformationExtraArgs(init, with_words)


def _chain(learning_rate: Any, *parts: Any) -> Any:
    return _skipping(*parts, optax.scale_by_learning_rate(learning_rate))


def _skipping(first: Any, *rest: Any) -> Any:
    """``optax.chain`` of these. The first skips by itself; this makes the others and the updates skip too."""
    chain = optax.chain(first, *rest)

    def update(updates: Any, state: Any, params: Any = None, *, found_inf: Any = 0.0, **others: Any
               ) -> tuple[Any, Any]:
        applied = _handlers.scalar("found_inf", found_inf) == 0
        updates, after = chain.update(updates, state, params, found_inf=found_inf, **others)
        return _where(applied, updates), (after[0], *_where(applied, after[1:], state[1:]))

    return optax.GradientTransformationExtraArgs(chain.init, update)


def _where(applied: Any, new: Any, old: Any = None) -> Any:
    """The leaves of `new` where `applied`, else those of `old`, or -0.0: it leaves every parameter as it is when it is
    added, where +0.0 would turn the sign of a -0.0."""
    if old is None:
        return jax.tree_util.tree_map(lambda n: jnp.where(applied, n, jnp.asarray(-0.0, n.dtype)), new)
    return jax.tree_util.tree_map(lambda n, o: jnp.where(applied, n, o), new, old)


def _filled(params: Any, value: float) -> Any:
    return jax.tree_util.tree_map(lambda p: jnp.full_like(p, value, _wide(p)), params)


def _widened(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda array: jnp.asarray(array, _wide(array)), tree)


def _wide(array: Any) -> Any:
    return jnp.promote_types(jnp.result_type(array), jnp.float32)


def _fixed(**named: Any) -> Any:
    return {name: _handlers.fixed(name, value, "; with optax.inject_hyperparams name it in static_args")
            for name, value in named.items()}
