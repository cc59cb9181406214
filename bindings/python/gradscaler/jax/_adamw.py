# SPDX-License-Identifier: Apache-2.0
"""AdamW as a function of parameters, gradients and state, in one pass that takes the unscaling and the skip with it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

from .. import hyper
from .._native import integer, native
from ..state_formats import REMAINDER, SCALE, SCALES, STORED, groups_shape, possible_dtypes, slot_dtypes
from . import _handlers
from ._jax_imports import jax, jnp
from ._trees import flattened, paired, require_floating

_SLOTS = ("exp_avg", "exp_avg_sq")
#: Squares in 16 bits were int16 in an earlier version, whose codes were other ones.
_DTYPES = {native.BF16: "bfloat16", native.FP32: "float32", **STORED, native.UFP16_E6M10: "uint16"}
_STATIC = {"static": True}
_BETAS = (0.9, 0.999)


class AdamWState(NamedTuple):
    """Steps applied (int32), and the averages in the shape of the parameters (float32, float64 for float64)."""

    step: Any
    exp_avg: Any
    exp_avg_sq: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SmallAdamWState:
    """The same in 16 or 8 bits, and what split masters have beyond 16-bit parameters (docs/state.md).

    Codes have the shapes of the parameters, and scales the leading dimensions with one for 32 elements: bytes, or int16
    for squares in 8 bits; None where the format has none. Both are sharded as the parameters are. `state`, `master` and
    `seed` are fixed when a function is compiled.
    """

    step: Any
    exp_avg: Any
    exp_avg_sq: Any
    exp_avg_scale: Any
    exp_avg_sq_scale: Any
    remainder: Any
    state: str = dataclasses.field(metadata=_STATIC)
    master: str | None = dataclasses.field(metadata=_STATIC)
    seed: int = dataclasses.field(metadata=_STATIC)


def _codes(state: str, master: str | None, betas: tuple[float, float]) -> dict[str, int]:
    """The library's dtype of each slot of a format; ValueError for one that there is not."""
    hyper.format_code("state", state, hyper.STATE)
    hyper.format_code("master", master, hyper.MASTER)
    found = slot_dtypes(native.ADAMW, state, master, options=(("betas", betas),))
    return {slot: found[slot] for slot in (*_SLOTS, REMAINDER) if slot in found}


def _numbers(betas: Any) -> tuple[float, float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas is {betas!r}; it must be two numbers")
    return _handlers.fixed("betas[0]", betas[0]), _handlers.fixed("betas[1]", betas[1])


def _require_narrow(params: Any, master: str | None) -> None:
    leaves = require_floating("params", params)
    for i, leaf in enumerate(leaves.values):
        dtype = str(jnp.result_type(leaf))
        if dtype == "float64" or (master is not None and dtype == "float32"):
            raise ValueError(f"{leaves.label(i)} has dtype {dtype}; with master={master!r} it must be "
                             + ("float16 or bfloat16" if master else "float32, float16 or bfloat16"))


def adamw_init(params: Any, *, state: str = "fp32", master: str | None = None, seed: int = 0,
               betas: tuple[float, float] = _BETAS) -> Any:
    """The state of :func:`adamw` before the first step, on the devices and in the shards of `params`.

    An :class:`AdamWState`, or with another `state` ("16bit", "8bit") or a `master` of 16-bit parameters ("split",
    "split24", "stochastic") a :class:`SmallAdamWState`. `seed` is that of stochastic rounding, `betas` are those of the
    steps: "8bit" has `exp_avg` in bfloat16 where `betas[0]` is above 0.99. TypeError or ValueError, naming the
    leaf, for what :func:`adamw` does not take.
    """
    require_floating("params", params)
    step = jnp.zeros((), jnp.int32)

    def zeros(dtype: Any = None) -> Any:
        return jax.tree_util.tree_map(lambda p: jnp.zeros_like(p, dtype or jnp.promote_types(
            jnp.result_type(p), jnp.float32)), params)

    codes = _codes(state, master, _numbers(betas))
    if state == "fp32" and master is None:
        return AdamWState(step, zeros(), zeros())
    _require_narrow(params, master)
    slots = {slot: zeros(_DTYPES[code]) for slot, code in codes.items()}
    # Of the parameters, in whose shards they lie then.
    scales = {slot + SCALE: jax.tree_util.tree_map(_handlers.groups_like, zeros(SCALES[codes[slot]]))
              if codes[slot] in SCALES else None for slot in _SLOTS}
    return SmallAdamWState(step=step, **{REMAINDER: None, **slots, **scales}, state=state, master=master,
                           seed=integer("seed", seed, 0, 2**53))


def adamw(params: Any, grads: Any, state: Any, *, lr: Any = 1e-3, betas: tuple[float, float] = _BETAS,
          eps: float = 1e-8, weight_decay: float = 1e-2, inv_scale: Any = 1.0, found_inf: Any = 0.0
          ) -> tuple[Any, Any]:
    """One step of AdamW in one pass; nothing changes where `found_inf` is not 0.

    `params` is a pytree of float32, float64 or 16-bit arrays; `grads`, of any floating dtype, and `state`, of
    :func:`adamw_init`, have its leaves, by key and shape. Gradients are multiplied by `inv_scale` first. `lr`,
    `inv_scale` and `found_inf` may be traced; `betas`, `eps` and `weight_decay` are numbers of Python. Donate `params`
    and `state` to have them updated in place. Sharded arrays stay as they are; gradients that lie elsewhere are brought
    to the parameters.

    ValueError, naming the first leaf that is missing, superfluous or of another shape; TypeError for one of another
    dtype, and for options that are traced or no numbers.
    """
    fixed = _handlers.fixed
    options: dict[str, Any] = dict(zip(("beta1", "beta2"), _numbers(betas), strict=True), eps=fixed("eps", eps),
                                   weight_decay=fixed("weight_decay", weight_decay))
    leaves, tree = flattened("params", params)
    gradients, found = paired("grads", grads, params), _handlers.scalar("found_inf", found_inf)
    options.update(lr=lr, inv_scale=inv_scale, found_inf=found, steps=state.step)
    applied = state.step + (found == 0).astype(jnp.int32)

    def whole(column: Any) -> Any:
        return jax.tree_util.tree_unflatten(tree, column)

    if not isinstance(state, SmallAdamWState):
        slots = [paired(f"state.{slot}", getattr(state, slot), params) for slot in _SLOTS]
        new, slots, _ = _handlers.step("ADAMW", gradients, leaves, slots, **options)
        return whole(new), AdamWState(applied, *map(whole, slots))
    _require_narrow(params, state.master)
    codes, columns, scales = _columns(state, params)
    form = _handlers.Format(hyper.STATE[state.state], hyper.MASTER[state.master], state.seed, tuple(codes.values()))
    new, slots, after = _handlers.step("ADAMW", gradients, leaves, list(columns.values()), list(scales.values()), form,
                                       **options)
    changed = {**dict(zip(columns, slots, strict=True)), **dict(zip(scales, after, strict=True))}
    return whole(new), dataclasses.replace(state, step=applied,
                                           **{name: whole(column) for name, column in changed.items()})


def _columns(state: Any, params: Any) -> tuple[dict[str, int], dict[str, list[Any]], dict[str, list[Any]]]:
    """The library's dtypes of a state's slots, and the leaves of the slots and of their scales, by name."""
    codes = _codes(state.state, state.master, _BETAS)
    # The betas that the state was made for may be others.
    held = [str(getattr(leaf, "dtype", None)) for leaf in jax.tree_util.tree_leaves(state.exp_avg)[:1]]
    codes["exp_avg"] = next((code for code in possible_dtypes(native.ADAMW, state.state, state.master)["exp_avg"]
                             if [_DTYPES[code]] == held), codes["exp_avg"])
    columns = {slot: paired(f"state.{slot}", getattr(state, slot), params, dtype=_DTYPES[code])
               for slot, code in codes.items()}
    scales = {slot + SCALE: paired(f"state.{slot}{SCALE}", getattr(state, slot + SCALE), params, dtype=SCALES[code],
                                   shape_of=groups_shape) for slot, code in codes.items() if code in SCALES}
    return codes, columns, scales


def adamw_convert(params: Any, held: Any, *, dtype: Any = None, state: str = "fp32", master: str | None = None,
                  seed: int = 0, betas: tuple[float, float] = _BETAS) -> tuple[Any, Any]:
    """`params` in another `dtype`, and their state `held` in another format. Loads a checkpoint of any format into any.

    `state`, `master`, `seed` and `betas` are of :func:`adamw_init`. Moments are rounded to nearest. Masters go along:
    float32 parameters become 16-bit ones with remainders, and back; without masters in `held` they begin as the
    parameters. Raises as :func:`adamw_init` does.
    """
    leaves, tree = flattened("params", params)
    if not isinstance(held, SmallAdamWState):
        held = SmallAdamWState(held.step, held.exp_avg, held.exp_avg_sq, None, None, None, "fp32", None, 0)
    codes, columns, scales = _columns(held, params)
    # What the parameters are in float32, with their masters.
    wide = [leaf.astype(jnp.float32) for leaf in leaves]
    if REMAINDER in columns:
        wide = [_handlers.convert(held_remainder, None, leaf, codes[REMAINDER], native.FP32, "float32")[0]
                for held_remainder, leaf in zip(columns[REMAINDER], leaves, strict=True)]
    weights = leaves if dtype is None else [_rounded(one, jnp.dtype(dtype)) for one in wide]
    new = jax.tree_util.tree_unflatten(tree, weights)
    made = adamw_init(new, state=state, master=master, seed=seed, betas=betas)
    targets, changed = _codes(state, master, _numbers(betas)), {"step": held.step}
    none = [None] * len(leaves)

    def store(slot: str, code: int, *columns: list[Any]) -> None:
        found = [_handlers.convert(source, scale, weight, code, targets[slot], _DTYPES[targets[slot]])
                 for source, scale, weight in zip(*columns, strict=True)]
        changed[slot] = jax.tree_util.tree_unflatten(tree, [values for values, _ in found])
        if targets[slot] in SCALES:
            changed[slot + SCALE] = jax.tree_util.tree_unflatten(tree, [scale for _, scale in found])

    for slot in _SLOTS:
        store(slot, codes[slot], columns[slot], scales.get(slot + SCALE, none), none)
    if REMAINDER in targets:
        store(REMAINDER, native.FP32, wide, none, weights)
    replace: Any = made._replace if isinstance(made, AdamWState) else functools.partial(dataclasses.replace, made)
    return new, replace(**changed)


def _rounded(wide: Any, dtype: Any) -> Any:
    """float32 in another dtype; to 16 bits, ties away from 0 as in the split of a master."""
    near = wide.astype(dtype)
    if dtype.itemsize > 2:
        return near
    bits = jax.lax.bitcast_convert_type(near, jnp.uint16)
    away = jax.lax.bitcast_convert_type(bits + jnp.uint16(1), dtype)
    is_tie = (wide - near.astype(jnp.float32) == away.astype(jnp.float32) - wide) & (abs(wide) > abs(near))
    return jnp.where(is_tie, away, near)
