# SPDX-License-Identifier: Apache-2.0
"""The XLA FFI handlers: loading and registering them, and one function for each that calls it on arrays of JAX.

Operands are flat lists of arrays here; trees are paired in the modules above. What a handler writes shares its memory
with the operand that it replaces; XLA copies beforehand where that is still needed. Handlers cannot be differentiated.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np  # type: ignore[import-not-found, unused-ignore]

from .._native import integer, native, real
from ..build import PACKAGE
from ..errors import InvalidArgumentError
from ..state_formats import SCALES, groups_of, groups_shape
from ._jax_imports import jax, jnp
from ._shards import grouped_by_variance, per_shard

NAMES = ("gradscaler_unscale_check", "gradscaler_update_scale", "gradscaler_step", "gradscaler_convert")

library = ctypes.CDLL(str(PACKAGE / ("_jax_ffi.dll" if os.name == "nt" else "_jax_ffi.so")))
_platforms = {"cpu": ""}
if native.device_count(native.DEVICE_CUDA) > 0:
    _platforms["CUDA"] = "_cuda"
for _name in NAMES:
    for _platform, _suffix in _platforms.items():
        jax.ffi.register_ffi_target(_name, jax.ffi.pycapsule(library[_name + _suffix]), platform=_platform)

#: Those of gsc_optimizer_options that the handler takes.
_NUMBERS = ("beta1", "beta2", "beta3", "eps", "eps_root", "weight_decay", "momentum", "momentum_decay", "alpha",
            "rho")
#: Options of an optimizer that are fixed when a step is traced: name and value, sorted.
Options = tuple[tuple[str, Any], ...]


def scalar(name: str, value: Any, dtype: Any = jnp.float32) -> Any:
    """A single number, traced or not; InvalidArgumentError naming the argument for an array of several, which would be
    broadcast: some elements would be stepped on, and others not."""
    if callable(value):
        raise TypeError(f"{name} is a function; it must be a number: pass what it returns for the step")
    found = jnp.asarray(value, dtype)
    if found.size != 1:
        raise InvalidArgumentError(f"{name} has shape {found.shape}; it must be a single number: join those of several"
                                   " devices or micro-batches, as by jnp.max")
    return found.reshape(()) if found.ndim else found


def fixed(name: str, value: Any, remedy: str = "") -> float:
    """A number that a handler is compiled with; TypeError naming the argument if it is traced or not a number."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} is traced, but it must be a number{remedy}")
    return real(name, value)


def unscale_check(arrays: Sequence[Any], inv_scale: Any) -> tuple[list[Any], Any]:
    """`arrays` times `inv_scale`, and 1.0 if one of them is inf or NaN before or after, else 0.0."""
    unscaled: list[Any] = [None] * len(arrays)
    any_found = jnp.float32(0.0)
    for leaves in grouped_by_variance((array,) for array in arrays):
        found, *results = _unscale_check(len(leaves))(scalar("inv_scale", inv_scale), jnp.float32(0.0),
                                                      *(arrays[i] for i in leaves))
        any_found = jnp.maximum(any_found, found)
        for i, result in zip(leaves, results, strict=True):
            unscaled[i] = result
    return unscaled, any_found


@functools.lru_cache(maxsize=256)
def _unscale_check(count: int) -> Any:
    leaves = tuple(range(count))

    def body(inv_scale: Any, *written: Any) -> Any:
        call = jax.ffi.ffi_call("gradscaler_unscale_check", written, vmap_method="sequential",
                                input_output_aliases={1 + i: i for i in range(1 + count)})
        return call(inv_scale, *written)

    return jax.jit(per_shard(body, (None, None, *leaves), (None, *leaves)), inline=True)


def update_scale(scale: Any, growth_tracker: Any, found_inf: Any, growth_factor: float, backoff_factor: float,
                 growth_interval: int) -> tuple[Any, Any]:
    scale, growth_tracker = scalar("scale", scale), scalar("growth_tracker", growth_tracker, jnp.int32)
    call = jax.ffi.ffi_call("gradscaler_update_scale", [scale, growth_tracker], vmap_method="sequential",
                            input_output_aliases={0: 0, 1: 1})
    after = call(scale, growth_tracker, scalar("found_inf", found_inf),
                 growth_factor=np.float64(fixed("growth_factor", growth_factor)),
                 backoff_factor=np.float64(fixed("backoff_factor", backoff_factor)),
                 growth_interval=np.int32(integer("growth_interval", growth_interval, -(1 << 31), (1 << 31) - 1)))
    return after[0], after[1]


class Format(NamedTuple):
    """The format of an optimizer's state: numbers of gsc_optimizer_options, and the library's dtype of each slot."""

    state_format: int
    master_format: int
    seed: int
    codes: tuple[int, ...]

    @property
    def scaled(self) -> int:
        return sum(code in SCALES for code in self.codes)


def step(kind: str, grads: Sequence[Any], params: Sequence[Any], slots: Sequence[Sequence[Any]],
         scales: Sequence[Sequence[Any]] = (), form: Format | None = None, *, lr: Any, inv_scale: Any, found_inf: Any,
         steps: Any, **options: Any) -> tuple[list[Any], list[list[Any]], list[list[Any]]]:
    """Parameters, state slots and the scales of those in codes after a step of the optimizer `kind` in one pass; as
    they were where `found_inf` != 0.

    `form` is None for state in float32 and float64. `steps` counts those applied before this one; as a float, which is
    exact for longer than bias corrections differ from 1. `options` are those of gsc_optimizer_options, numbers of
    Python.
    """
    words = (scalar("lr", lr), scalar("inv_scale", inv_scale), scalar("found_inf", found_inf),
             scalar("the step count", steps))
    columns = [grads, params, *slots, *scales]
    written: list[list[Any]] = [[None] * len(grads) for _ in columns[1:]]
    if form is not None:
        columns.append(_numbers_of_groups(params))
    for leaves in grouped_by_variance(zip(*columns, strict=True)):
        call = _step(kind, len(leaves), len(slots), form, tuple(sorted(options.items())))
        flat = call(*words, *(column[i] for column in columns for i in leaves))
        for number, column in enumerate(written):
            for i, result in zip(leaves, flat[number * len(leaves):], strict=False):
                column[i] = result
    return written[0], written[1:1 + len(slots)], written[1 + len(slots):]


def _numbers_of_groups(params: Sequence[Any]) -> list[Any]:
    """The numbers of the groups in the whole, by which random bits are drawn; each shard gets its own."""
    found, first = [], 0
    for p in params:
        found.append(first + jnp.arange(groups_of(p.size), dtype=jnp.int32).reshape(groups_shape(p.shape)))
        first += groups_of(p.size)
    return found


def direction(kind: str, grads: Sequence[Any], slots: Sequence[Sequence[Any]], **arguments: Any
              ) -> tuple[list[Any], list[list[Any]]]:
    """The updates of :func:`step` with the learning rate 1, and the state; -0.0 where `found_inf` is not 0."""
    # -0.0 leaves every parameter as it is when it is added; +0.0 would turn the sign of a -0.0.
    nothing = [jnp.full_like(grad, -0.0, jnp.promote_types(grad.dtype, jnp.float32)) for grad in grads]
    return step(kind, grads, nothing, slots, lr=1.0, **arguments)[:2]


@functools.lru_cache(maxsize=256)
def _step(kind: str, count: int, slots: int, form: Format | None, options: Options) -> Any:
    numbers = {**dict.fromkeys(_NUMBERS, 0.0), **dict(options)}
    flags = native.OPTIMIZER_NESTEROV if numbers.pop("nesterov", False) else 0
    state_format, master_format, seed, codes = form or Format(0, 0, 0, (0,) * slots)
    own = {"kind": getattr(native, kind), "flags": flags, "slots": slots, "state_format": state_format,
           "master_format": master_format, **{f"code{slot}": code for slot, code in enumerate(codes)}}

    def body(*operands: Any) -> Any:
        words, columns = operands[:4], operands[4:]
        if form is not None:
            columns, groups = columns[:-count], columns[-count:]
            # The handler takes floats, which hold 24 bits.
            firsts = jnp.stack([group.reshape(-1)[0] if group.size else jnp.int32(0) for group in groups])
            words = (*words, jnp.concatenate([firsts >> 12, firsts & 4095]).astype(jnp.float32))
        written = columns[count:]
        call = jax.ffi.ffi_call("gradscaler_step", written, vmap_method="sequential", input_output_aliases={
            len(words) + count + i: i for i in range(len(written))})
        return call(*words, *columns, seed=np.float64(seed), **{name: np.int32(own[name]) for name in own},
                    **{name: np.float64(value) for name, value in numbers.items()})

    leaves = tuple(range(count))
    groups = tuple(~leaf for leaf in leaves)
    # With this order of the operands the state keeps its sharding, and the others get the same.
    kept = leaves * (1 + slots) + groups * (form.scaled if form else 0)
    return jax.jit(per_shard(body, (None,) * 4 + leaves + kept + groups * (form is not None), kept), inline=True)


def groups_like(array: Any) -> Any:
    """Zeros, one for each group of 32 of an array, of its dtype, and sharded as it is."""
    return _groups_like()(array)[0]


@functools.cache
def _groups_like() -> Any:
    def body(array: Any) -> Any:
        return [jnp.zeros(groups_shape(array.shape), array.dtype)]

    return jax.jit(per_shard(body, (0,), (~0,)), inline=True)


def convert(source: Any, scales: Any, weights: Any, code: int, target: int, dtype: Any) -> tuple[Any, Any]:
    """State of one parameter in the library's dtype `target`, an array of `dtype`, and its scales or None.

    `source` is in `code`. `weights` are those of masters or remainders, else None.
    """
    given = [array for array in (source, scales, weights) if array is not None]
    found = _convert(code, target, jnp.dtype(dtype).name, scales is not None, weights is not None)(*given)
    return found[0], found[1] if target in SCALES else None


@functools.lru_cache(maxsize=256)
def _convert(code: int, target: int, dtype: str, is_scaled: bool, is_weighted: bool) -> Any:
    results = (0, ~0) if target in SCALES else (0,)

    def body(*operands: Any) -> Any:
        shape = operands[0].shape
        out = [jax.ShapeDtypeStruct(shape, dtype)]
        if target in SCALES:
            out.append(jax.ShapeDtypeStruct(groups_shape(shape), SCALES[target]))
        call = jax.ffi.ffi_call("gradscaler_convert", out, vmap_method="sequential")
        return call(*operands, **{"from": np.int32(code), "to": np.int32(target), "weighted": np.int32(is_weighted)})

    operands = (0, *(~0,) * is_scaled, *(0,) * is_weighted)
    return jax.jit(per_shard(body, operands, results), inline=True)
