# SPDX-License-Identifier: Apache-2.0
"""The library's update of a scale by any policy (core/rules/policy.h), in operations of XLA: for all its devices.

Products are formed in double, which XLA has no type for unless x64 is enabled, by the handler of PyTorch's rule. Scales
are compared as the bits of floats >= 0, which have the order of the floats, since XLA may take subnormals for 0.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np  # type: ignore[import-not-found, unused-ignore]

from .._native import native
from . import _handlers
from ._jax_imports import jax, jnp

_LARGEST = np.iinfo(np.int32).max


@functools.partial(jax.jit, static_argnums=4, inline=True)
def update(scale: Any, growth_tracker: Any, counters: Any, found_inf: Any, policy: tuple[tuple[str, Any], ...]
           ) -> tuple[Any, Any, Any]:
    """The next scale, growth tracker and counters, which are int32[4]: hysteresis tracker, overflows and updates since
    the scale changed, skips at the floor. `policy` has the library's options."""
    options = dict(policy)
    hysteresis, overflows, updates, skips = (counters[i] for i in range(4))
    updates = _one_more(updates)
    overflow = found_inf != 0.0
    now = jax.lax.bitcast_convert_type(scale, jnp.int32)
    is_static = options["flags"] & native.SCALER_STATIC_SCALE
    multiplied = now if is_static else jax.lax.bitcast_convert_type(_multiplied(scale, found_inf, options), jnp.int32)
    by_policy = functools.partial(jnp.where, overflow)
    lower = _on_overflow(options, now, multiplied, hysteresis, _one_more(overflows), updates, skips)
    higher = _on_clean_step(options, now, multiplied, growth_tracker, hysteresis, overflows, updates)
    now, growth_tracker, *counts = (by_policy(one, other) for one, other in zip(lower, higher, strict=True))
    return jax.lax.bitcast_convert_type(now, jnp.float32), growth_tracker, jnp.stack(counts)


def _on_overflow(options: dict[str, Any], now: Any, lowered: Any, hysteresis: Any, overflows: Any, updates: Any,
                 skips: Any) -> tuple[Any, ...]:
    hysteresis = hysteresis - (hysteresis > 0)
    stays = (hysteresis > 0) | _is_below(overflows, updates, options["overflow_tolerance"])
    at_floor = lowered == now
    if options["min_scale"] > 0.0:
        floor = _bits(options["min_scale"])
        exclusive = options["flags"] & native.SCALER_FLOOR_EXCLUSIVE
        at_floor |= (lowered if exclusive else now) <= floor
        lowered = jnp.where(at_floor, now, jnp.maximum(lowered, floor))
    else:
        at_floor |= lowered == 0
    refilled = options["hysteresis"] if options["hysteresis_refill"] == native.REFILL_CONSECUTIVE else hysteresis
    return (jnp.where(stays, now, lowered), jnp.int32(0), jnp.where(stays, hysteresis, refilled),
            jnp.where(stays, overflows, 0), jnp.where(stays, updates, 0),
            jnp.where(stays, skips, jnp.where(at_floor, _one_more(skips), 0)))


def _on_clean_step(options: dict[str, Any], now: Any, grown: Any, tracker: Any, hysteresis: Any, overflows: Any,
                   updates: Any) -> tuple[Any, ...]:
    if options["hysteresis_refill"] != native.REFILL_ON_GROWTH:
        hysteresis = options["hysteresis"]
    interval = jnp.where(now < _bits(options["recovery_threshold"]), options["recovery_interval"],
                         options["growth_interval"])
    tested = _one_more(tracker) if options["growth_timing"] == native.GROWTH_AT_INTERVAL else tracker
    grows = tested == interval if options["flags"] & native.SCALER_GROW_ON_EQUAL else tested >= interval
    if options["flags"] & native.SCALER_STATIC_SCALE:
        grows = jnp.zeros_like(grows)
    first = 1 if options["growth_timing"] == native.GROWTH_FIRST_ONE_LATER else 0
    if options["max_scale"] > 0.0:
        grown = jnp.minimum(grown, _bits(options["max_scale"]))
    changes = grows
    if not options["flags"] & native.SCALER_NO_FINITE_GUARD:
        changes &= grown < _bits(math.inf)
    return (jnp.where(changes, grown, now), jnp.where(grows, first, _one_more(tracker)),
            jnp.where(grows, options["hysteresis"], hysteresis), overflows, jnp.where(changes, 0, updates),
            jnp.int32(0))


def _multiplied(scale: Any, found_inf: Any, options: dict[str, Any]) -> Any:
    """`scale` times the backoff factor if there is an overflow, else times the growth factor, inf included."""
    factors = options["growth_factor"], options["backoff_factor"]
    if options["flags"] & native.SCALER_FP32_PRODUCTS:
        # In double the product of two floats is exact.
        factors = float(np.float32(factors[0])), float(np.float32(factors[1]))
    found, _ = _handlers.update_scale(scale, 0, found_inf, *factors, 1)
    # PyTorch's rule keeps the scale where the grown one would be inf. The factors move every other scale but 0.
    return jnp.where((found_inf == 0.0) & (found == scale) & (scale > 1.0), jnp.float32(math.inf), found)


def _one_more(count: Any) -> Any:
    return count + (count < _LARGEST)


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def _is_below(part: Any, whole: Any, limit: float) -> Any:
    """Returns whether the quotient of two int32 > 0, rounded to double, is below `limit`. Exact, in integers."""
    if limit == 0.0:
        return False
    # Quotients below this bound round to less than `limit`. No quotient is the bound: its denominator is larger.
    bound = (Fraction(limit) + Fraction(math.nextafter(limit, 0.0))) / 2
    # The nearest fraction to the bound with a denominator as theirs. No quotient lies between the two.
    nearest = bound.limit_denominator(_LARGEST)
    left, right = _product(part, nearest.denominator), _product(nearest.numerator, whole)
    below = (left[0] < right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))
    return below | ((left[0] == right[0]) & (left[1] == right[1])) if nearest < bound else below


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """Upper and lower half of the product of two numbers in 0..2^32 - 1, as uint32."""
    a, b = jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32)
    low, high = a & 0xFFFF, a >> 16
    middle = high * (b & 0xFFFF) + (low * (b & 0xFFFF) >> 16)
    other = low * (b >> 16) + (middle & 0xFFFF)
    return high * (b >> 16) + (middle >> 16) + (other >> 16), a * b
