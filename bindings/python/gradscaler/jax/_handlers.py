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
from typing import Any

import numpy as np  # type: ignore[import-not-found, unused-ignore]

from .._native import native, real
from ..build import PACKAGE
from ..errors import InvalidArgumentError
from ._shards import alike, per_shard
from ._untyped import jax, jnp

NAMES = ("gradscaler_unscale_check", "gradscaler_update_scale", "gradscaler_step")

library = ctypes.CDLL(str(PACKAGE / ("_jax_ffi.dll" if os.name == "nt" else "_jax_ffi.so")))
_platforms = {"cpu": ""}
if native.device_count(native.DEVICE_CUDA) > 0:
    _platforms["CUDA"] = "_cuda"
for _name in NAMES:
    for _platform, _suffix in _platforms.items():
        jax.ffi.register_ffi_target(_name, jax.ffi.pycapsule(library[_name + _suffix]), platform=_platform)

#: Those of gsc_optimizer_options that the handler takes.
_NUMBERS = ("beta1", "beta2", "beta3", "eps", "eps_root", "weight_decay", "momentum", "alpha", "rho")
#: Options of an optimizer that are fixed when a step is traced: name and value, sorted.
Options = tuple[tuple[str, Any], ...]


def word(name: str, value: Any, dtype: Any = jnp.float32) -> Any:
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
    for leaves in alike((array,) for array in arrays):
        found, *results = _unscale_check(len(leaves))(word("inv_scale", inv_scale), jnp.float32(0.0),
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
    """The next scale (float32) and growth tracker (int32) by PyTorch's rule."""
    scale, growth_tracker = word("scale", scale), word("growth_tracker", growth_tracker, jnp.int32)
    call = jax.ffi.ffi_call("gradscaler_update_scale", [scale, growth_tracker], vmap_method="sequential",
                            input_output_aliases={0: 0, 1: 1})
    after = call(scale, growth_tracker, word("found_inf", found_inf), growth_factor=np.float64(growth_factor),
                 backoff_factor=np.float64(backoff_factor), growth_interval=np.int32(growth_interval))
    return after[0], after[1]


def step(kind: str, grads: Sequence[Any], params: Sequence[Any], slots: Sequence[Sequence[Any]], *, lr: Any,
         inv_scale: Any, found_inf: Any, steps: Any, **options: Any) -> tuple[list[Any], list[list[Any]]]:
    """Parameters and state slots after a step of the optimizer `kind` in one pass; as they were where `found_inf` != 0.

    `steps` counts those applied before this one; as a float, which is exact for longer than bias corrections differ
    from 1. `options` are those of gsc_optimizer_options, numbers of Python.
    """
    words = (word("lr", lr), word("inv_scale", inv_scale), word("found_inf", found_inf), word("the step count", steps))
    new: list[Any] = [None] * len(grads)
    state: list[list[Any]] = [[None] * len(grads) for _ in slots]
    for leaves in alike(zip(grads, params, *slots, strict=True)):
        call = _step(kind, len(leaves), len(slots), tuple(sorted(options.items())))
        flat = call(*words, *(column[i] for column in (grads, params, *slots) for i in leaves))
        for column, results in zip((new, *state), _parts(flat, len(leaves)), strict=True):
            for i, result in zip(leaves, results, strict=True):
                column[i] = result
    return new, state


def _parts(flat: Sequence[Any], length: int) -> list[Sequence[Any]]:
    return [flat[begin:begin + length] for begin in range(0, len(flat), length)]


def direction(kind: str, grads: Sequence[Any], slots: Sequence[Sequence[Any]], **arguments: Any
              ) -> tuple[list[Any], list[list[Any]]]:
    """What :func:`step` adds to parameters with the learning rate 1, and the state; -0.0 where `found_inf` != 0."""
    # -0.0 leaves every parameter as it is when it is added; +0.0 would turn the sign of a -0.0.
    nothing = [jnp.full_like(grad, -0.0, jnp.promote_types(grad.dtype, jnp.float32)) for grad in grads]
    return step(kind, grads, nothing, slots, lr=1.0, **arguments)


@functools.lru_cache(maxsize=256)
def _step(kind: str, count: int, slots: int, options: Options) -> Any:
    numbers = {**dict.fromkeys(_NUMBERS, 0.0), **dict(options)}
    flags = native.OPTIMIZER_NESTEROV if numbers.pop("nesterov", False) else 0

    def body(*operands: Any) -> Any:
        written = operands[4 + count:]
        call = jax.ffi.ffi_call("gradscaler_step", written, vmap_method="sequential",
                                input_output_aliases={4 + count + i: i for i in range(len(written))})
        return call(*operands, kind=np.int32(getattr(native, kind)), slots=np.int32(slots), flags=np.int32(flags),
                    **{name: np.float64(value) for name, value in numbers.items()})

    leaves = tuple(range(count))
    # With this order of the operands the state keeps its sharding, and the others get the same.
    return jax.jit(per_shard(body, (None,) * 4 + leaves * (2 + slots), leaves * (1 + slots)), inline=True)
