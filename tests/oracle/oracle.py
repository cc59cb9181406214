# SPDX-License-Identifier: Apache-2.0
"""The library's results, computed from its pages alone: docs/reference/semantics.md, docs/concepts.md and gradscaler.h.

Numbers are NumPy arrays of fp32 and fp64; bf16 is an array of uint16. Names are those of the pages. Sums
of squares are exact here; random_programs.py compares them with a bound. Nothing in this file was taken from
core/. Where the library differs, the library or the page is wrong.
"""
import math

import codes
import numpy as np

FP16, BF16, FP32, FP64 = 1, 2, 3, 4
STORED = {FP16: np.float16, BF16: np.uint16, FP32: np.float32, FP64: np.float64}
(SGD, ADAM, ADAMW, ADAGRAD, LION, LAMB, RMSPROP, ADADELTA, ADAMAX, NADAM, RADAM, ADABELIEF, ADEMAMIX,
 ADAMW_SCHEDULE_FREE, SGD_SCHEDULE_FREE, LARS, NOVOGRAD) = KINDS = range(17)
NESTEROV, AMSGRAD, MAXIMIZE, ZERO_GRADS, WRITE_GRADS, CENTERED, DECOUPLED, BIAS_CORRECTION = (2 ** i for i in range(8))
COUNT_UNCHANGED, EMA_WARMUP, CAUTIOUS, CAUTIOUS_DECAY = 256, 512, 1024, 2048
GROW_ON_EQUAL, NO_FINITE_GUARD, FLOOR_EXCLUSIVE, FP32_PRODUCTS, STATIC_SCALE = 1, 2, 4, 8, 16
ON_GROWTH, ON_CLEAN_STEP, CONSECUTIVE = range(3)
AT_INTERVAL, ONE_LATER, FIRST_ONE_LATER = range(3)


def require_equations(kinds):
    """Programs draw any kind that the library has, and so this file needs the equations of all."""
    missing = sorted(set(kinds) - set(KINDS))
    assert not missing, f"oracle.py has no equations for the optimizer kinds {missing} of the library"


# -- Numbers

def widen(x, dtype):
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


# -- The policy

class Policy:
    """The scale and its counters. `o` has the fields of gsc_scaler_options."""

    def __init__(self, o):
        self.o = o
        self.scale = np.float32(o.init_scale if o.enabled else 1)
        self.growth_tracker = self.overflows_since_rescale = self.updates_since_rescale = 0
        self.consecutive_skips = self.skips_at_floor = self.updates = self.skipped = self.spikes = 0
        self.hysteresis_tracker = o.hysteresis

    @property
    def inv_scale(self):
        return np.float32(1.0 / float(self.scale))

    def times(self, factor):
        if self.o.flags & FP32_PRODUCTS:
            return self.scale * np.float32(factor)
        return np.float32(float(self.scale) * factor)

    def update(self, overflow, spike):
        self.updates += 1
        self.updates_since_rescale += 1
        (self.overflow if overflow else self.spike if spike else self.clean)()

    def spike(self):
        self.skipped += 1
        self.spikes += 1
        self.consecutive_skips += 1

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
        product = self.scale if o.flags & STATIC_SCALE else self.times(o.backoff_factor)
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
        if o.flags & STATIC_SCALE or not (tested == interval if o.flags & GROW_ON_EQUAL else tested >= interval):
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


def log2(x):
    f, e = math.frexp(x)
    while f > 1.4142135623730951:
        f, e = f * 0.5, e + 1
    while f < 0.7071067811865476:
        f, e = f * 2, e - 1
    s, q = (f - 1) / (f + 1), 0.0
    for i in range(31, 0, -2):
        q = q * (s * s) + 1 / i
    return e + 2 * s * q / math.log(2)


def exp2(x):
    if x >= 1030:
        return math.inf
    k = int(x) - (x < 0)
    y, p = (x - k) * math.log(2), 1.0
    for i in range(24, 0, -1):
        p = 1.0 + y / i * p
    return math.ldexp(p, k) if x < 1024 else math.inf


class Norms:
    """What the norms of a list have been. `o` has the fields of gsc_scaler_options."""

    def __init__(self):
        self.m = self.v = self.a = 0.0
        self.c = self.r = 0

    def spread(self, o):
        return max(o.spike_deviations * math.sqrt(self.v), log2(o.spike_factor))

    def limit(self, o):
        if self.c < o.spike_warmup:
            return math.inf
        limits = [o.skip_norm] if o.skip_norm else []
        if o.spike_factor and self.c >= o.spike_window // 2:
            limits.append(exp2(self.m + self.spread(o)))
        return min(limits, default=math.inf)

    def average(self):
        return exp2(self.m) if self.c else 0.0

    def judge(self, o, n):
        """Whether a step with the norm n is skipped."""
        if n == 0:
            return False
        skips, x = n > self.limit(o), log2(n) if n < math.inf else 1024.0
        d = x - self.m
        far = skips or (o.spike_factor and self.c >= 8 and abs(d) > self.spread(o))
        if not far:
            w = max(2 / (self.c + 2), 1 / o.spike_window)
            self.m += w * d
            self.v = (1 - w) * (self.v + w * d * d)
            self.c, self.r = self.c + 1, 0
            return False
        side = 1 if skips or d > 0 else -1
        row = max(self.r * side, 0)
        self.a = x if row == 0 else self.a + (x - self.a) / (row + 1)
        if o.spike_patience and row >= o.spike_patience and not (skips and o.spike_action):
            self.m, self.c, self.r = self.a, min(self.c, o.spike_window // 2), 0
            return False
        self.r = side * (row + 1)
        return skips


# -- Gradients

class Check:
    """The record of a check or an unscale of a list of gradients. `tensors` are pairs of an array and a dtype; the
    array is None if the tensor is absent. `written` has the unscaled gradients, rounded for storage."""

    def __init__(self, tensors, inv, fp32_limit, unscale):
        self.inf_count = self.nan_count = 0
        self.first_tensor = self.first_element = -1
        self.written, self.tensor_norms, magnitudes = [], [], []
        for i, (stored, dtype) in enumerate(tensors):
            if stored is None:
                self.written.append(None)
                self.tensor_norms.append(0.0)
                continue
            x = widen(stored, dtype)
            product = x * x.dtype.type(inv)
            self.written.append(narrow(product, dtype))
            tested = widen(self.written[-1], dtype) if unscale else product
            if dtype == FP64 and fp32_limit:
                tested = product.astype(np.float32)
            nan = np.isnan(tested) & ~np.isinf(x)  # an inf stays one, also times a device factor of 0
            bad = nan | np.isinf(tested) | ~np.isfinite(x)
            self.nan_count += int(nan.sum())
            self.inf_count += int((bad & ~nan).sum())
            if bad.any() and self.first_tensor < 0:
                self.first_tensor, self.first_element = i, int(bad.argmax())
            finite = x[np.isfinite(x)].astype(np.float64)
            magnitudes.append(np.abs(finite))
            square = math.nan if nan.any() else math.inf if bad.any() else sum_of_squares(np.abs(finite))
            if square and math.isfinite(square):
                square = square * float(inv) * float(inv)
            self.tensor_norms.append(math.sqrt(square))
        self.nonfinite_count = self.inf_count + self.nan_count
        every = np.concatenate([np.zeros(1), *magnitudes])
        self.grad_amax = float(every.max() * np.float64(inv))
        total = math.nan if self.nan_count else math.inf if self.inf_count else sum_of_squares(every)
        if inv == 0:  # where inf times 0 would be NaN
            self.grad_norm = total if self.nonfinite_count else 0.0
        else:
            self.grad_norm = math.sqrt(total * float(inv) * float(inv))

    #: The norm's limit, the average after it and the row of those that are far off.
    spike, norm_limit, norm_average, row = False, math.inf, 0.0, 0

    @property
    def overflow(self):
        return self.nonfinite_count > 0

    @property
    def skips(self):
        return self.overflow or self.spike


def clip_factor(max_norm, norm):
    factor = max_norm / (norm + 1e-6)
    return np.float32(factor if factor < 1 else 1)


def prepare(stored, dtype, inv, clip, value):
    """The gradient that the optimizer uses: clamp((g * inv) * clip), in fp32, or fp64 for fp64 gradients."""
    x = widen(stored, dtype)
    g = (x * x.dtype.type(inv)) * x.dtype.type(clip)
    limit = x.dtype.type(value)
    return np.where(g > limit, limit, np.where(g < -limit, -limit, g))


# -- Optimizers

def state_names(o):
    if o.kind == SGD:
        return ["momentum_buffer"] if o.momentum else []
    if o.kind in (ADAM, ADAMW):
        return ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if o.flags & AMSGRAD else [])
    if o.kind == RMSPROP:
        return ["square_avg", *(["momentum_buffer"] if o.momentum else []),
                *(["grad_avg"] if o.flags & CENTERED else [])]
    return {ADAGRAD: ["sum"], LION: ["exp_avg"], ADADELTA: ["square_avg", "acc_delta"], ADAMAX: ["exp_avg", "exp_inf"],
            ADABELIEF: ["exp_avg", "exp_avg_var"], ADEMAMIX: ["exp_avg", "exp_avg_sq", "exp_avg_slow"],
            ADAMW_SCHEDULE_FREE: ["z", "exp_avg_sq", "average"], SGD_SCHEDULE_FREE: ["z", "average"],
            LARS: ["momentum_buffer"] if o.momentum else [],
            **dict.fromkeys((LAMB, NADAM, RADAM, NOVOGRAD), ["exp_avg", "exp_avg_sq"])}[o.kind]


def numbers_of(o, name):
    """The count of numbers that a slot has per tensor, in fp64; 0 for one per element."""
    return 2 if name == "average" else 1 if (o.kind, name) == (NOVOGRAD, "exp_avg_sq") else 0


def has_number(o):
    """True if the kind keeps one number per tensor, whose last bits are the library's."""
    return o.kind == NOVOGRAD


SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "sum", "square_avg", "acc_delta", "exp_inf", "exp_avg_var")


def state_dtype(o, name, param_dtype):
    """Of a slot that the library makes."""
    is_full = name in ("z", "ema") or o.flags & CENTERED and name in ("square_avg", "grad_avg")
    if o.state_format == 0 or is_full:
        return FP64 if param_dtype == FP64 else FP32
    if name in SQUARES:
        return codes.E6M10 if o.state_format == 1 or o.flags & AMSGRAD else codes.LOG8
    # Once warm-ups are over.
    is_slow = np.float32(state_rate(o, name, 2 ** 53)) < np.float32(0.0099)
    return codes.BF16 if o.state_format == 1 or is_slow else codes.E4M3


def state_rate(o, name, t):
    """1 minus the factor by which a step multiplies the old value of a slot."""
    if name == "exp_avg":
        return 1.0 - (o.beta2 if o.kind == LION else o.beta1)
    if name == "exp_avg_slow":
        return slow_rate(o, t)
    if o.kind in (RMSPROP, ADADELTA) and name != "momentum_buffer":
        return 1.0 - (o.alpha if o.kind == RMSPROP else o.rho)
    return {"momentum_buffer": 1.0 - o.momentum, "max_exp_avg_sq": 1.0, "sum": 0.0}.get(name, 1.0 - o.beta2)


def within_range(x, of_finite):
    """Of finite numbers alone: inf becomes the largest number."""
    return np.where(of_finite & np.isinf(x), np.copysign(np.finfo(x.dtype).max, x), x)


def decay(g, wd, p):
    return g if wd == 0 else fma(p, wd, g)


def lerp(a, b, w):
    return fma(b - a, w, a) if w < 0.5 else fma(b - a, w - w.dtype.type(1), b)


def ratio(p, d):
    sums = sum_of_squares(p), sum_of_squares(d)
    return float(np.float64(math.sqrt(sums[0])) / math.sqrt(sums[1])) if sums[0] > 0 and sums[1] > 0 else 1.0


def limited(r, lr=1.0):
    """A ratio, which fp32 holds, and its product with the learning rate too."""
    return min(r, 2.0 ** 127 / max(lr, 1.0)) if math.isfinite(r) else r


def average(o, t, p, a):
    """The moving average `a` of the weights after step t of a tensor, to the parameters `p` as they are stored."""
    T = p.dtype.type
    decay = min(o.ema_decay, t / (t + 9)) if o.flags & EMA_WARMUP else o.ema_decay
    weight = T(1.0 if t == 1 else 1.0 - decay)
    return p if weight == 1 else lerp(a, p, weight)


def one_minus_half_to(x):
    y, halvings = x * math.log(2), 0
    while y > 0.5:
        y, halvings = y * 0.5, halvings + 1
    r = 0.0
    for n in range(16, 0, -1):
        r = y / n * (1.0 - r)
    for _ in range(halvings):
        r *= 2.0 - r
    return r


def nadam_rates(o, lr, t):
    """G and M of NAdam."""
    D, P = 0.96 ** o.momentum_decay, 1.0
    mu = lambda i: o.beta1 * (1.0 - 0.5 * power(D, i))  # noqa: E731
    fallen = 1.0
    for _ in range(t):
        fallen *= D
        P = float(np.float32(P * float(np.float32(o.beta1 * (1.0 - 0.5 * fallen)))))
    return lr * (1.0 - mu(t)) / (1.0 - P), lr * mu(t + 1) / (1.0 - P * mu(t + 1))


def adam_like(o, lr, t):
    fall1, fall2 = 1.0 - power(o.beta1, t), 1.0 - power(o.beta2, t)
    if o.kind == NADAM:
        return *nadam_rates(o, lr, t), fall2, 1, o.eps
    M = lr / fall1
    if o.kind != RADAM:
        return 0, M, 1, math.sqrt(fall2), o.eps
    N = 2.0 / (1.0 - o.beta2) - 1.0
    n = N - 2.0 * t * power(o.beta2, t) / fall2
    if n > 5.0:
        M = lr / fall1 * math.sqrt(fall2 * ((n - 4.0) * (n - 2.0) * N) / ((N - 4.0) * (N - 2.0) * n))
        return 0, M, 1, 1, o.eps
    return 0, M, 1, math.inf, 1


def slow_rate(o, t):
    """B3 of AdEMAMix."""
    if t >= o.beta3_warmup:
        return 1.0 - o.beta3
    u = t / o.beta3_warmup
    h1, h3 = (math.log(0.5) / math.log(b) if b else 0.0 for b in (o.beta1, o.beta3))
    mean = (1.0 - u) * h1 + u * h3
    return one_minus_half_to(1.0 / mean) if mean else 1.0


def further(r, T, off_by):
    r = T(r)
    return np.array(r.view(f"i{r.itemsize}") + off_by).view(T)[()] if off_by and r > 16 * np.finfo(T).tiny else r


def in_param_range(o, p):
    """The new parameters within the range of the group, if it has one."""
    if o.param_min == 0 and o.param_max == 0:
        return p
    low, high = p.dtype.type(o.param_min), p.dtype.type(o.param_max)
    return np.where(p < low, low, np.where(p > high, high, p))


def moved(o, p, u, g, K=None):
    """p less the update u, and decayed by K if there is one, with the flags CAUTIOUS_DECAY and CAUTIOUS."""
    zero = p.dtype.type(0)
    if K is not None:
        away = ((u > 0) & (p < 0)) | ((u < 0) & (p > 0))
        p = np.where(away, p, p * K) if o.flags & CAUTIOUS_DECAY else p * K
    against = ((u > 0) & (g <= 0)) | ((u < 0) & (g >= 0))
    return p - (np.where(against, zero, u) if o.flags & CAUTIOUS else u)


def apply(o, *arguments, **more):
    """A step as `step` does it, and what follows it in every kind."""
    new, state = step(o, *arguments, **more)
    return in_param_range(o, new), state


def step(o, lr, t, p, g, state, off_by=0, stored=lambda *after: after):
    """One step of a tensor in the type T of `p`: new parameters and new state. `g` is unscaled, clipped, not negated.
    A ratio of norms is taken so many numbers further. NovoGrad's `exp_avg_sq` is the new one. `stored` gives moments as
    they are read back."""
    T = p.dtype.type
    g = g.astype(p.dtype)
    if o.flags & MAXIMIZE:
        g = -g
    b1, b2, eps, wd = T(o.beta1), T(o.beta2), T(o.eps), T(o.weight_decay)
    B1, B2, K, LR = T(1.0 - o.beta1), T(1.0 - o.beta2), T(1.0 - lr * o.weight_decay), T(lr)
    if o.kind == SGD:
        W = T(1.0 if t == 1 or o.momentum == 0 else 1.0 - o.dampening)
        b = g = decay(g, wd, p)
        if state:
            momentum = T(o.momentum)
            b = fma(g, W, momentum * state[0])
            state = [b]
            if o.flags & NESTEROV:
                b = fma(b, momentum, g)
        return fma(b, -LR, p), state
    if o.kind in (ADAM, ADAMW):
        LR, S = T(lr / (1.0 - power(o.beta1, t))), T(math.sqrt(1.0 - power(o.beta2, t)))
        if o.kind == ADAM:
            g = decay(g, wd, p)
        m = lerp(state[0], g, B1)
        v = fma(B2 * g, g, b2 * state[1])
        w = np.where(v <= state[2], state[2], v) if o.flags & AMSGRAD else v
        u = (LR * m) / (np.sqrt(w) / S + eps)
        return moved(o, p, u, g, K if o.kind == ADAMW else None), [m, v, w][:len(state)]
    if o.kind == ADAGRAD:
        LR = T(lr / (1.0 + (t - 1) * o.lr_decay))
        g = decay(g, wd, p)
        s = fma(g, g, state[0])
        return p - (LR * g) / (np.sqrt(s) + eps), [s]
    if o.kind == LION:
        blend = b1 * state[0] + B1 * g
        d = np.where(blend > 0, T(1), np.where(blend < 0, T(-1), blend))
        return moved(o, p, LR * d, g, K), [b2 * state[0] + B2 * g]
    if o.kind == LAMB:
        M, V = T(1.0 / (1.0 - power(o.beta1, t))), T(1.0 / math.sqrt(1.0 - power(o.beta2, t)))
        m = b1 * state[0] + B1 * g
        v = b2 * state[1] + B2 * (g * g)
        direction = lambda m, v: within_range(m * M, np.isfinite(m)) / (np.sqrt(v) * V + eps) + wd * p  # noqa: E731
        r = further(limited(ratio(p, direction(m, v)), lr), T, off_by)
        return p - (LR * r) * direction(*stored(m, v)), [m, v]
    if o.kind == RMSPROP:
        A = T(1.0 - o.alpha)
        g = decay(g, wd, p)
        w = s = fma(A * g, g, T(o.alpha) * state[0])
        after = [s, *state[1:]]
        if o.flags & CENTERED:
            after[-1] = lerp(state[-1], g, A)
            w = fma(-after[-1], after[-1], s)
            w = np.where(w < 0, T(0), w)
        q = np.sqrt(w + T(o.eps_root)) + eps
        if o.momentum == 0:
            return p - (LR * g) / q, after
        after[1] = T(o.momentum) * state[1] + g / q
        return fma(after[1], -LR, p), after
    if o.kind == ADADELTA:
        rho, R = T(o.rho), T(1.0 - o.rho)
        g = decay(g, wd, p)
        s = fma(R * g, g, rho * state[0])
        d = np.sqrt(state[1] + eps) / np.sqrt(s + eps) * g
        return fma(d, -LR, p), [s, fma(R * d, d, rho * state[1])]
    if o.kind in (ADAMAX, NADAM, RADAM, ADABELIEF):
        G, M, V, S, E = map(T, adam_like(o, lr, t))
        if o.flags & DECOUPLED:
            p = p * K
        else:
            g = decay(g, wd, p)
        m = lerp(state[0], g, B1)
        if o.kind == ADAMAX:
            old, size = b2 * state[1], np.abs(g) + eps
            q = v = np.where(size <= old, old, size)
        else:
            d = g - m if o.kind == ADABELIEF else g
            v = fma(B2 * d, d, b2 * state[1])
            if o.kind == ADABELIEF:
                v = v + T(o.eps_root)
            q = np.sqrt(v / V) / S + E if S <= 1 else E
        return (p - (G * g) / q) - (M * m) / q, [m, v]
    if o.kind == ADEMAMIX:
        V, S = T(1.0 - power(o.beta1, t)), T(math.sqrt(1.0 - power(o.beta2, t)))
        A = T((min(t / o.warmup_steps, 1.0) if o.warmup_steps else 1.0) * o.alpha)
        p = p * K
        m = lerp(state[0], g, B1)
        v = fma(B2 * g, g, b2 * state[1])
        s = lerp(state[2], g, T(slow_rate(o, t)))
        mean = within_range(fma(s, A, m / V), np.isfinite(m) & np.isfinite(s))
        return p - (LR * mean) / (np.sqrt(v) / S + eps), [m, v, s]
    if o.kind in (ADAMW_SCHEDULE_FREE, SGD_SCHEDULE_FREE):
        L = lr * (t / o.warmup_steps) if t < o.warmup_steps else lr
        beta = o.beta1 if o.kind == ADAMW_SCHEDULE_FREE else o.momentum
        lr_max = max(state[-1][0], L)
        w = power(float(t), int(o.weight_step_power)) * power(lr_max, int(o.weight_lr_power))
        total = state[-1][1] + w
        part = w / total if total > 0 else 0.0
        z = p if t == 1 else state[0]
        d, after = g, []
        if o.kind == ADAMW_SCHEDULE_FREE:
            v = fma(B2 * g, g, b2 * state[1])
            d, after = g / (np.sqrt(v / T(1.0 - power(o.beta2, t))) + eps), [v]
        d = decay(d, wd, p)
        new = fma(d, T(L * (beta * (1.0 - part) - 1.0)), lerp(p, z, T(part)))
        return new, [fma(d, T(-L), z), *after, np.array([lr_max, total])]
    if o.kind == LARS:
        momentum = T(o.momentum)
        d = decay(g, wd, p)
        sums = sum_of_squares(p), sum_of_squares(d)
        r = 1.0
        if sums[0] > 0 and sums[1] > 0:
            r = o.trust_coefficient * math.sqrt(sums[0]) / (math.sqrt(sums[1]) + o.eps)
        a = LR * (d * further(limited(r), T, off_by))
        if not state:
            return p - a, state
        b = momentum * state[0] + a
        return p - (a + momentum * b if o.flags & NESTEROV else b), [b]
    assert o.kind == NOVOGRAD, o.kind
    v = state[1]
    corrects = o.flags & BIAS_CORRECTION
    S = math.sqrt(1.0 - power(o.beta2, t)) if corrects else 1.0
    root = np.sqrt(v[0]) / S + o.eps
    lr = lr / (1.0 - power(o.beta1, t)) if corrects else lr
    r, LR = T(limited(1.0 / root if root else 0.0, lr)), T(lr)
    W = T(1.0 - o.dampening)
    if o.flags & DECOUPLED:
        m = b1 * state[0] + W * g
        return p * K - LR * (m * r), [m, v]
    m = b1 * state[0] + W * (g * r + wd * p if wd else g * r)
    return p - LR * m, [m, v]


def novograd_number(o, t, g, v):
    """NovoGrad's exp_avg_sq after step t, but for the last bits of its sum."""
    total = sum_of_squares(g)
    return total if t == 1 else o.beta2 * v + (1.0 - o.beta2) * total
