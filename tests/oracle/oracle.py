# SPDX-License-Identifier: Apache-2.0
"""The library's results, computed from its pages alone: docs/reference/semantics.md, docs/concepts.md and gradscaler.h.

Numbers are NumPy arrays of fp32 and fp64; bf16 is an array of uint16. Names are those of the pages. Sums
of squares are exact here; random_programs.py compares them with a bound. Nothing in this file was taken from
core/. Where the library differs, the library or the page is wrong.
"""
import math

import numpy as np

FP16, BF16, FP32, FP64 = 1, 2, 3, 4
STORED = {FP16: np.float16, BF16: np.uint16, FP32: np.float32, FP64: np.float64}
SGD, ADAM, ADAMW, ADAGRAD, LION, LAMB = range(6)
NESTEROV, AMSGRAD, MAXIMIZE, ZERO_GRADS, WRITE_GRADS = 1, 2, 4, 8, 16
GROW_ON_EQUAL, NO_FINITE_GUARD, FLOOR_EXCLUSIVE, FP32_PRODUCTS = 1, 2, 4, 8
ON_GROWTH, ON_CLEAN_STEP, CONSECUTIVE = range(3)
AT_INTERVAL, ONE_LATER, FIRST_ONE_LATER = range(3)


# -- Numbers ----------------------------------------------------------------------------------------------------------

def widen(x, dtype):
    """Stored numbers in the type they are computed in."""
    if dtype == BF16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32) if dtype == FP16 else x


def odd(x, error):
    """fp64 numbers with what is missing to the exact ones: inexact ones end in an odd bit, so that a later rounding
    to a narrower type is the rounding of the exact number."""
    x, error = np.broadcast_arrays(x, error)
    bits = x.copy().view(np.int64)
    inexact = np.isfinite(x) & np.isfinite(error) & (error != 0) & (bits % 2 == 0)
    outwards = np.where(x == 0, 1, np.where((error > 0) == (x > 0), 1, -1))
    return np.where(inexact, (bits + outwards).view(np.float64), x)


def narrow(x, dtype):
    """Rounds fp32 or fp64 numbers to nearest even."""
    if dtype != BF16:
        return x.astype(STORED[dtype])
    if x.dtype == np.float64:
        single = x.astype(np.float32)
        error = np.where(np.isfinite(single), x - single, 0)
        bits = single.view(np.int32)
        away = np.where((error > 0) == (x > 0), 1, -1)
        x = np.where((error != 0) & (bits % 2 == 0), (bits + away).astype(np.int32), bits).view(np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + (0x7fff + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def fma(a, b, c):
    """a * b + c rounded once in fp32. In fp64 a product and a sum, each rounded."""
    if np.result_type(a, b, c) == np.float64:
        return a * b + c
    product, c = a.astype(np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = product + c
    back = total - product
    return odd(total, (product - (total - back)) + (c - back)).astype(np.float32)


def power(x, t):
    r = 1.0
    while t > 0:
        if t % 2:
            r *= x
        x *= x
        t //= 2
    return r


def sum_of_squares(x):
    """The sum of x * x in fp64, exact but for the rounding of the result and, for fp64 numbers, of each square."""
    squares = x.astype(np.float64) ** 2
    return math.fsum(squares) if np.isfinite(squares).all() else float(squares.sum())


# -- The policy -------------------------------------------------------------------------------------------------------

class Policy:
    """The scale and its counters. `o` has the fields of gsc_scaler_options."""

    def __init__(self, o):
        self.o = o
        self.scale = np.float32(o.init_scale if o.enabled else 1)
        self.growth_tracker = self.overflows_since_rescale = self.updates_since_rescale = 0
        self.consecutive_skips = self.skips_at_floor = self.updates = self.skipped = 0
        self.hysteresis_tracker = o.hysteresis

    @property
    def inv_scale(self):
        return np.float32(1.0 / float(self.scale))

    def times(self, factor):
        if self.o.flags & FP32_PRODUCTS:
            return self.scale * np.float32(factor)
        return np.float32(float(self.scale) * factor)

    def update(self, overflow):
        self.updates += 1
        self.updates_since_rescale += 1
        (self.overflow if overflow else self.clean)()

    def overflow(self):
        o = self.o
        self.growth_tracker = 0
        self.skipped += 1
        self.consecutive_skips += 1
        self.overflows_since_rescale += 1
        self.hysteresis_tracker = max(0, self.hysteresis_tracker - 1)
        if self.hysteresis_tracker > 0:
            return
        if o.overflow_tolerance and self.overflows_since_rescale / self.updates_since_rescale < o.overflow_tolerance:
            return
        product = self.times(o.backoff_factor)
        floor = np.float32(o.min_scale)
        exclusive = o.flags & FLOOR_EXCLUSIVE
        at_floor = product == self.scale or (
            product == 0 if floor == 0 else product <= floor if exclusive else self.scale <= floor)
        if at_floor and floor > 0:
            product = self.scale
        self.skips_at_floor = self.skips_at_floor + 1 if at_floor else 0
        self.scale = max(product, floor) if not at_floor else product
        self.overflows_since_rescale = self.updates_since_rescale = 0
        if o.hysteresis_refill == CONSECUTIVE:
            self.hysteresis_tracker = o.hysteresis

    def clean(self):
        o = self.o
        self.consecutive_skips = self.skips_at_floor = 0
        if o.hysteresis_refill != ON_GROWTH:
            self.hysteresis_tracker = o.hysteresis
        recovers = o.recovery_threshold and self.scale < np.float32(o.recovery_threshold)
        interval = o.recovery_interval if recovers else o.growth_interval
        tested = self.growth_tracker + (o.growth_timing == AT_INTERVAL)
        if not (tested == interval if o.flags & GROW_ON_EQUAL else tested >= interval):
            self.growth_tracker += 1
            return
        self.growth_tracker = 1 if o.growth_timing == FIRST_ONE_LATER else 0
        self.hysteresis_tracker = o.hysteresis
        grown = self.times(o.growth_factor)
        if o.max_scale:
            grown = min(grown, np.float32(o.max_scale))
        if np.isfinite(grown) or o.flags & NO_FINITE_GUARD:
            self.scale = grown
            self.updates_since_rescale = 0


# -- Gradients --------------------------------------------------------------------------------------------------------

class Check:
    """What a check or an unscale records of a list of gradients. `tensors` are pairs of an array and a dtype; the
    array is None if the tensor is absent. `written` has the unscaled gradients, rounded for storage."""

    def __init__(self, tensors, inv, fp32_limit, unscale):
        self.inf_count = self.nan_count = 0
        self.first_tensor = self.first_element = -1
        self.written, magnitudes = [], []
        for i, (stored, dtype) in enumerate(tensors):
            if stored is None:
                self.written.append(None)
                continue
            x = widen(stored, dtype)
            product = x * x.dtype.type(inv)
            self.written.append(narrow(product, dtype))
            tested = widen(self.written[-1], dtype) if unscale else product
            if dtype == FP64 and fp32_limit:
                tested = product.astype(np.float32)
            nan = np.isnan(tested)
            bad = nan | np.isinf(tested) | ~np.isfinite(x)
            self.nan_count += int(nan.sum())
            self.inf_count += int((bad & ~nan).sum())
            if bad.any() and self.first_tensor < 0:
                self.first_tensor, self.first_element = i, int(bad.argmax())
            finite = x[np.isfinite(x)].astype(np.float64)
            magnitudes.append(np.abs(finite))
        self.nonfinite_count = self.inf_count + self.nan_count
        every = np.concatenate([np.zeros(1), *magnitudes])
        self.grad_amax = float(every.max() * np.float64(inv))
        total = math.nan if self.nan_count else math.inf if self.inf_count else sum_of_squares(every)
        self.grad_norm = math.sqrt(total * float(inv) * float(inv))

    @property
    def overflow(self):
        return self.nonfinite_count > 0


def clip_factor(max_norm, norm):
    factor = max_norm / (norm + 1e-6)
    return np.float32(factor if factor < 1 else 1)


def prepare(stored, dtype, inv, clip, value):
    """The gradient that the optimizer uses: clamp((g * inv) * clip), in fp32, or fp64 for fp64 gradients."""
    x = widen(stored, dtype)
    g = (x * x.dtype.type(inv)) * x.dtype.type(clip)
    limit = x.dtype.type(value)
    return np.where(g > limit, limit, np.where(g < -limit, -limit, g))


# -- Optimizers -------------------------------------------------------------------------------------------------------

def state_names(o):
    if o.kind == SGD:
        return ["momentum_buffer"] if o.momentum else []
    if o.kind in (ADAM, ADAMW):
        return ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if o.flags & AMSGRAD else [])
    return {ADAGRAD: ["sum"], LION: ["exp_avg"], LAMB: ["exp_avg", "exp_avg_sq"]}[o.kind]


def decay(g, wd, p):
    return g if wd == 0 else fma(p, wd, g)


def lerp(a, b, w):
    return fma(b - a, w, a) if w < 0.5 else fma(b - a, w - w.dtype.type(1), b)


def lamb_ratio(p, d):
    sums = sum_of_squares(p), sum_of_squares(d)
    return float(np.float64(math.sqrt(sums[0])) / math.sqrt(sums[1])) if sums[0] > 0 and sums[1] > 0 else 1.0


def apply(o, lr, t, p, g, state, off_by=0):
    """One step of a tensor in the type T of `p`: new parameters and new state. `g` is unscaled, clipped, not negated.
    LAMB's ratio is taken so many numbers further."""
    T = p.dtype.type
    g = g.astype(p.dtype)
    if o.flags & MAXIMIZE:
        g = -g
    b1, b2, eps, wd = T(o.beta1), T(o.beta2), T(o.eps), T(o.weight_decay)
    if o.kind == SGD:
        W = T(1.0 if t == 1 else 1.0 - o.dampening)
        b = g = decay(g, wd, p)
        if state:
            momentum = T(o.momentum)
            b = fma(g, W, momentum * state[0])
            state = [b]
            if o.flags & NESTEROV:
                b = fma(b, momentum, g)
        return fma(b, T(-lr), p), state
    if o.kind in (ADAM, ADAMW):
        LR, S = T(lr / (1.0 - power(o.beta1, t))), T(math.sqrt(1.0 - power(o.beta2, t)))
        B1, B2, K = T(1.0 - o.beta1), T(1.0 - o.beta2), T(1.0 - lr * o.weight_decay)
        if o.kind == ADAM:
            g = decay(g, wd, p)
        else:
            p = p * K
        m = lerp(state[0], g, B1)
        v = fma(B2 * g, g, b2 * state[1])
        w = np.where(v <= state[2], state[2], v) if o.flags & AMSGRAD else v
        return p - (LR * m) / (np.sqrt(w) / S + eps), [m, v, w][:len(state)]
    if o.kind == ADAGRAD:
        LR = T(lr / (1.0 + (t - 1) * o.lr_decay))
        g = decay(g, wd, p)
        s = fma(g, g, state[0])
        return p - (LR * g) / (np.sqrt(s) + eps), [s]
    if o.kind == LION:
        B1, B2, K = T(1.0 - o.beta1), T(1.0 - o.beta2), T(1.0 - lr * o.weight_decay)
        blend = b1 * state[0] + B1 * g
        d = np.where(blend > 0, T(1), np.where(blend < 0, T(-1), blend))
        return p * K - T(lr) * d, [b2 * state[0] + B2 * g]
    B1, B2 = T(1.0 - o.beta1), T(1.0 - o.beta2)
    M, V = T(1.0 / (1.0 - power(o.beta1, t))), T(1.0 / math.sqrt(1.0 - power(o.beta2, t)))
    m = b1 * state[0] + B1 * g
    v = b2 * state[1] + B2 * (g * g)
    d = (m * M) / (np.sqrt(v) * V + eps) + wd * p
    r = T(lamb_ratio(p, d))
    if off_by and r > 16 * np.finfo(T).tiny:
        r = np.array(r.view(f"i{r.itemsize}") + off_by).view(T)
    return p - (T(lr) * r) * d, [m, v]
