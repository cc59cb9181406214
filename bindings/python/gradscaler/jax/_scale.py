# SPDX-License-Identifier: Apache-2.0
"""The loss scale as a pytree, with any of the library's policies, and the two functions that it is made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .. import policy as _policy
from .._fields import INTEGERS, JAX, REALS, WORDS
from .._native import native
from ..scaler import GradScaler
from . import _handlers
from ._jax_imports import jax, jnp
from ._policy import update as update_by_policy
from ._shards import vary
from ._trees import flattened

# Arguments for work that nothing inside of a compiled function can do, and what to do instead.
_HOST_ONLY = {
    "enabled": "leave the DynamicScale out of the step instead",
    "floor_action": "nothing can be raised inside of jit; look at skips_at_floor",
    "floor_patience": "nothing can be raised inside of jit; look at skips_at_floor",
    "history_capacity": "return the scale from the step to keep it",
}


def unscale_check(grads: Any, inv_scale: Any, found_inf: Any = 0.0) -> tuple[Any, Any]:
    """Gradients times `inv_scale`, and 1.0 if one is inf or NaN before or after, else `found_inf` as it was.

    `grads` is a pytree of floating arrays; sharded ones stay where they are, and `found_inf` is about all shards.
    Inside shard_map and pmap, both cover the device's shards alone: join `found_inf` with ``jax.lax.pmax``. TypeError,
    naming the leaf, for other dtypes.
    """
    leaves, tree = flattened("grads", grads)
    before = _handlers.scalar("found_inf", found_inf)
    if not leaves:
        return grads, before
    unscaled, found = _handlers.unscale_check(leaves, inv_scale)
    return jax.tree_util.tree_unflatten(tree, unscaled), jnp.where(found != 0, found, before)


def update_scale(scale: Any, growth_tracker: Any, found_inf: Any, *, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000) -> tuple[Any, Any]:
    """The next `scale` (float32) and `growth_tracker` (int32), by the rule of :func:`gradscaler.ops.update_scale`.

    `growth_factor`, `backoff_factor` and `growth_interval` are Python numbers, fixed at compilation; `found_inf` and
    the others may be traced.
    """
    return _handlers.update_scale(scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval)


# Not None, which JAX puts in place of leaves.
_MISSING = object()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DynamicScale:
    """A loss scale as a pytree: carry it through the training step like parameters. Make it with :meth:`create`."""

    #: float32.
    scale: Any = _MISSING
    #: Clean steps since the scale changed, int32.
    growth_tracker: Any = _MISSING
    #: What other policies than PyTorch's count, int32[4]: hysteresis tracker, overflows and updates since the scale
    #: changed, skips at the floor. None under PyTorch's rule, which counts none of them.
    counters: Any = None
    #: The library's options, not traced, so that a change compiles again.
    policy: tuple[tuple[str, Any], ...] = field(default=(), metadata={"static": True})

    def __post_init__(self) -> None:
        for name in ("scale", "growth_tracker"):
            if getattr(self, name) is _MISSING:
                raise TypeError(f"DynamicScale has no {name}; make it with DynamicScale.create()")

    @classmethod
    def create(cls, init_scale: float | None = None, growth_factor: float | None = None,
               backoff_factor: float | None = None, growth_interval: int | None = None, *,
               preset: _policy.Preset = "torch", **policy: Any) -> DynamicScale:
        """A scale with the policy of `preset`, one of ``gradscaler.PRESETS``, and of the arguments over it.

        `init_scale`, `growth_factor`, `backoff_factor` and `growth_interval` are those of ``GradScaler``; None is the
        preset's. `policy` has the other arguments of ``gradscaler.GradScaler``, such as ``min_scale``, ``max_scale``
        and ``hysteresis``, except those that act outside of the compiled step. Errors are those of ``GradScaler``.
        """
        given = dict(init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                     growth_interval=growth_interval)
        policy.update({name: value for name, value in given.items() if value is not None})
        options = _policy.preset_options(preset)
        _policy.apply(options, policy)
        _require_applied(options, policy)
        with GradScaler.from_preset(preset, **policy):
            pass  # The library has checked the values.
        fixed = _fixed(options)
        counters = None if _is_pytorchs(fixed) else jnp.array([options.hysteresis, 0, 0, 0], jnp.int32)
        return cls(jnp.float32(options.init_scale), jnp.zeros((), jnp.int32), counters, tuple(fixed.items()))

    @property
    def skips_at_floor(self) -> Any:
        """Overflows in a row that found the scale unable to go lower: the inf or NaN does not come from the scale."""
        if self.counters is None:
            raise AttributeError("PyTorch's rule has no floor and counts no skips there; create it with min_scale")
        return self.counters[..., 3]

    def value_and_grad(self, function: Callable[..., Any], argnums: Any = 0, has_aux: bool = False,
                       axis_name: Any = None) -> Callable[..., tuple[DynamicScale, Any, Any, Any]]:
        """As ``jax.value_and_grad`` of `function`, `argnums` and `has_aux`, with the loss scaled, gradients unscaled.

        The function returned gives ``(next DynamicScale, found_inf, value, grads)``; skip the step where found_inf is
        not 0. The gradients are in the dtype of what they are taken of, and as the backward pass left them there, inf
        and NaN included. With `axis_name`, for shard_map and pmap, they are the means over that axis, and found_inf is
        the same on all its devices. Under jit with sharded arrays there is nothing to name.
        """
        def scaled(*arguments: Any, **keywords: Any) -> Any:
            loss, aux = _loss_and_aux(function(*arguments, **keywords), has_aux)
            return (loss.astype(jnp.float32) * self.scale), (loss, aux)

        named = tuple(argnums) if isinstance(argnums, Iterable) else (argnums,)

        def call(*arguments: Any, **keywords: Any) -> tuple[DynamicScale, Any, Any, Any]:
            if axis_name is not None:
                differentiated = [i + len(arguments) if i < 0 else i for i in named]
                arguments = tuple(vary(argument, axis_name) if i in differentiated else argument
                                  for i, argument in enumerate(arguments))
            (_, (loss, aux)), grads = jax.value_and_grad(scaled, argnums, has_aux=True)(*arguments, **keywords)
            if axis_name is not None:
                # Before the check, which then finds the same on all devices.
                grads = jax.lax.pmean(grads, axis_name)
            grads, found_inf = unscale_check(grads, 1.0 / self.scale)
            return self.update(found_inf), found_inf, (loss, aux) if has_aux else loss, grads

        return call

    def update(self, found_inf: Any) -> DynamicScale:
        """The scale after a step in which `found_inf` was found."""
        if self.counters is None:
            options = dict(self.policy)
            if not _is_pytorchs(options):
                raise TypeError("this DynamicScale has another policy than PyTorch's and no counters, which that needs;"
                                " make it with DynamicScale.create()")
            scale, tracker = update_scale(self.scale, self.growth_tracker, found_inf,
                                          **{name: options[name] for name in _PYTORCHS if name in options})
            return replace(self, scale=scale, growth_tracker=tracker)
        scale, tracker, counters = update_by_policy(self.scale, self.growth_tracker, self.counters,
                                                    _handlers.scalar("found_inf", found_inf), self.policy)
        return replace(self, scale=scale, growth_tracker=tracker, counters=counters)


def _loss_and_aux(result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Splits what a function returned. As in jax.value_and_grad the loss is floating: others have gradients of 0."""
    if has_aux and not (isinstance(result, (tuple, list)) and len(result) == 2):
        raise TypeError(f"function returned {type(result).__name__}; with has_aux it must return (loss, aux)")
    loss, aux = result if has_aux else (result, None)
    # What jax.numpy would stack, or take for a default.
    single = loss is not None and not isinstance(loss, (tuple, list, dict))
    if not single or not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
        dtype = getattr(loss, "dtype", None)
        what = f"that is {type(loss).__name__}" if dtype is None else f"of dtype {dtype}"
        raise TypeError(f"function returned a loss {what}; it must be a floating-point number"
                        + ("" if has_aux else ", with has_aux=True also (loss, aux)"))
    return jnp.asarray(loss), aux


_PYTORCHS = ("growth_factor", "backoff_factor", "growth_interval")
# Is in the scale itself.
_IN_THE_SCALE = ("init_scale",)


def _require_applied(options: Any, given: dict[str, Any]) -> None:
    """TypeError naming an option that the compiled update does not apply, if it was given or a preset changes it."""
    plain = _policy.describe(native.ScalerOptions())
    for name, value in _policy.describe(options).items():
        if name in given and name in _HOST_ONLY:
            raise TypeError(f"DynamicScale takes no {name}: {_HOST_ONLY[name]}")
        known = name in JAX or name in _HOST_ONLY or name in _IN_THE_SCALE
        if not known and (name in given or value != plain[name]):
            raise TypeError(f"DynamicScale takes no {name}: the compiled update does not apply it; use GradScaler")


def _fixed(options: Any) -> dict[str, Any]:
    """The fields of the library's options that the compiled update reads."""
    names = [name for name in (*REALS, *INTEGERS, *WORDS) if name in JAX]
    return {name: getattr(options, name) for name in (*names, "flags")}


def _is_pytorchs(options: dict[str, Any]) -> bool:
    plain = _fixed(_policy.preset_options("torch"))
    return all(name in plain and value == plain[name] for name, value in options.items() if name not in _PYTORCHS)


def _register_with_flax() -> None:
    """flax.serialization then saves and restores what is traced, as it does for its own DynamicScale."""
    try:
        serialization: Any = importlib.import_module("flax.serialization")
    except ImportError:
        return
    names = ("scale", "growth_tracker", "counters")

    def to_state(scale: DynamicScale) -> dict[str, Any]:
        return {name: serialization.to_state_dict(getattr(scale, name)) for name in names}

    def from_state(scale: DynamicScale, state: dict[str, Any]) -> DynamicScale:
        if set(state) != set(names):
            raise ValueError(f"this is no state of a DynamicScale: it has {sorted(state)}, not {sorted(names)}")
        if (state["counters"] is None) != (scale.counters is None):
            raise ValueError("the state is of a DynamicScale with another policy; create this one with that policy")
        return replace(scale, **{name: serialization.from_state_dict(getattr(scale, name), state[name], name)
                                 for name in names})

    serialization.register_serialization_state(DynamicScale, to_state, from_state, override=True)


_register_with_flax()
