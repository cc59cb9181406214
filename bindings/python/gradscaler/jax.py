# SPDX-License-Identifier: Apache-2.0
"""Loss scaling as pure functions for JAX, under ``jax.jit``, by XLA FFI handlers shipped in the package.

::

    scale = DynamicScale.create()
    state = adamw_init(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def train_step(scale, params, state, batch):
        scale, found_inf, loss, grads = scale.value_and_grad(loss_function)(params, batch)
        params, state = adamw(params, grads, state, lr=1e-3, found_inf=found_inf)
        return scale, params, state, loss

The step is skipped inside of :func:`adamw` where `found_inf` is not 0, without leaving the compiled function. Donated
arrays are updated in place. Gradients may be of any floating dtype; parameters are float32 or 16-bit, the averages
float32. The handlers are registered for the CPU, and for CUDA where the library sees a GPU. There :func:`adamw` waits
for the device once a step. Needs jax 0.5, for CUDA 0.6. Importing this module imports jax; nothing else here does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax as _jax  # type: ignore[import-not-found, unused-ignore]
import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
import numpy as np  # type: ignore[import-not-found, unused-ignore]

from ._native import native

# Its own types are not complete enough to check against.
jax: Any = _jax

__all__ = ["AdamWState", "DynamicScale", "adamw", "adamw_init", "unscale_check", "update_scale"]

_library = ctypes.CDLL(str(Path(__file__).with_name("_jax_ffi.so")))
_platforms = {"cpu": ""}
if native.device_count(native.DEVICE_CUDA) > 0:
    _platforms["CUDA"] = "_cuda"
for _name in ("gradscaler_unscale_check", "gradscaler_update_scale", "gradscaler_adamw"):
    for _platform, _suffix in _platforms.items():
        jax.ffi.register_ffi_target(_name, jax.ffi.pycapsule(_library[_name + _suffix]), platform=_platform)


def unscale_check(grads: Any, inv_scale: Any, found_inf: Any = 0.0) -> tuple[Any, Any]:
    """Gradients times `inv_scale`, and 1.0 if one is inf or NaN before or after, else `found_inf` as it was.

    `grads` is a pytree of floating arrays.
    """
    leaves, tree = jax.tree_util.tree_flatten(grads)
    call = jax.ffi.ffi_call("gradscaler_unscale_check", [_word_shape(jnp.float32), *map(_shape, leaves)],
                            vmap_method="sequential",
                            input_output_aliases={1 + i: i for i in range(1 + len(leaves))})
    found, *unscaled = call(_word(inv_scale), _word(found_inf), *leaves)
    return jax.tree_util.tree_unflatten(tree, unscaled), found


def update_scale(scale: Any, growth_tracker: Any, found_inf: Any, *, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000) -> tuple[Any, Any]:
    """The next scale (float32) and growth tracker (int32), by PyTorch's rule. Factors are fixed when it is traced."""
    call = jax.ffi.ffi_call("gradscaler_update_scale", [_word_shape(jnp.float32), _word_shape(jnp.int32)],
                            vmap_method="sequential", input_output_aliases={0: 0, 1: 1})
    new_scale, tracker = call(_word(scale), jnp.asarray(growth_tracker, jnp.int32), _word(found_inf),
                              growth_factor=np.float64(growth_factor), backoff_factor=np.float64(backoff_factor),
                              growth_interval=np.int32(growth_interval))
    return new_scale, tracker


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdamWState:
    """Steps applied, and the averages in the shape of the parameters."""

    step: Any
    exp_avg: Any
    exp_avg_sq: Any


def adamw_init(params: Any) -> AdamWState:
    """The state of :func:`adamw` before the first step."""
    def zeros() -> Any:
        return jax.tree_util.tree_map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    return AdamWState(jnp.zeros((), jnp.int32), zeros(), zeros())


def adamw(params: Any, grads: Any, state: AdamWState, *, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
          eps: float = 1e-8, weight_decay: float = 1e-2, inv_scale: Any = 1.0, found_inf: Any = 0.0
          ) -> tuple[Any, AdamWState]:
    """One step of AdamW in one pass; nothing changes where `found_inf` is not 0.

    `grads` are multiplied by `inv_scale` first. `lr`, `inv_scale` and `found_inf` may be traced. Donate `params` and
    `state` to have them updated in place.
    """
    leaves, tree = jax.tree_util.tree_flatten(params)
    trees = [grads, params, state.exp_avg, state.exp_avg_sq]
    flat = [jax.tree_util.tree_leaves(t) for t in trees]
    for name, found in zip(("grads", "params", "exp_avg", "exp_avg_sq"), flat, strict=True):
        if [a.shape for a in found] != [a.shape for a in leaves]:
            raise ValueError(f"{name} have other shapes than params")
    count = len(leaves)
    operands = [array for found in flat for array in found]
    call = jax.ffi.ffi_call("gradscaler_adamw", [_shape(array) for array in operands[count:]],
                            input_output_aliases={4 + count + i: i for i in range(3 * count)})
    found_word = _word(found_inf)
    # As a float, which is exact for longer than bias corrections differ from 1.
    results = call(_word(lr), _word(inv_scale), found_word, _word(state.step), *operands,
                   beta1=np.float64(betas[0]), beta2=np.float64(betas[1]), eps=np.float64(eps),
                   weight_decay=np.float64(weight_decay))
    parts = [jax.tree_util.tree_unflatten(tree, results[k * count:(k + 1) * count]) for k in range(3)]
    step = state.step + (found_word == 0).astype(jnp.int32)
    return parts[0], AdamWState(step, parts[1], parts[2])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DynamicScale:
    """A loss scale as a pytree: carry it through the training step like parameters. Make it with :meth:`create`."""

    scale: Any
    growth_tracker: Any
    #: (growth factor, backoff factor, growth interval): not traced, so that changing them compiles anew.
    policy: tuple[float, float, int] = field(default=(2.0, 0.5, 2000), metadata={"static": True})

    @classmethod
    def create(cls, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
               growth_interval: int = 2000) -> DynamicScale:
        """A scale with PyTorch's policy."""
        return cls(_word(init_scale), jnp.zeros((), jnp.int32), (growth_factor, backoff_factor, growth_interval))

    def value_and_grad(self, function: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
                       ) -> Callable[..., tuple[DynamicScale, Any, Any, Any]]:
        """As ``jax.value_and_grad``, with the loss scaled and the gradients unscaled.

        The function returned gives ``(next DynamicScale, found_inf, value, grads)``; skip the step where found_inf is
        not 0. The gradients are as the backward pass left them there, inf and NaN included.
        """
        def scaled(*arguments: Any, **keywords: Any) -> Any:
            result = function(*arguments, **keywords)
            loss, aux = result if has_aux else (result, None)
            return (loss.astype(jnp.float32) * self.scale), (loss, aux)

        def call(*arguments: Any, **keywords: Any) -> tuple[DynamicScale, Any, Any, Any]:
            (_, (loss, aux)), grads = jax.value_and_grad(scaled, argnums, has_aux=True)(*arguments, **keywords)
            inv_scale = (1.0 / self.scale).astype(jnp.float32)
            grads, found_inf = unscale_check(grads, inv_scale)
            return self.update(found_inf), found_inf, (loss, aux) if has_aux else loss, grads

        return call

    def update(self, found_inf: Any) -> DynamicScale:
        """The scale after a step in which `found_inf` was found."""
        growth, backoff, interval = self.policy
        scale, tracker = update_scale(self.scale, self.growth_tracker, found_inf, growth_factor=growth,
                                      backoff_factor=backoff, growth_interval=interval)
        return DynamicScale(scale, tracker, self.policy)


def _word(value: Any) -> Any:
    return jnp.asarray(value, jnp.float32)


def _word_shape(dtype: Any) -> Any:
    return jax.ShapeDtypeStruct((), dtype)


def _shape(array: Any) -> Any:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
