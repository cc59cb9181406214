# SPDX-License-Identifier: Apache-2.0
"""Loss scaling as pure functions for JAX, under ``jax.jit``, by XLA FFI handlers shipped in the package.

The step is skipped inside of :func:`adamw` where `found_inf` is not 0, without leaving the compiled function. Donated
arrays are updated in place, sharded ones where they lie. ``gradscaler.jax.optax`` has transformations for optax.

The handlers are registered for the CPU, and for CUDA where the library sees a GPU; there a step of an optimizer waits
for the device once. Needs jax 0.5, for CUDA 0.6. Importing this module imports jax; nothing else in the package does.
"""

from __future__ import annotations

from ._adamw import AdamWState, SmallAdamWState, adamw, adamw_convert, adamw_init
from ._scale import DynamicScale, unscale_check, update_scale

__all__ = ["AdamWState", "DynamicScale", "SmallAdamWState", "adamw", "adamw_convert", "adamw_init", "unscale_check",
           "update_scale"]
