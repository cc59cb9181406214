# SPDX-License-Identifier: Apache-2.0
"""Optimizer state in 16 and 8 bits, split masters and stochastic rounding, from docs/reference/semantics.md alone.

Codes are arrays of unsigned integers, remainders of signed ones; `scales` has an entry for each 32 elements. `draws`
are 16 random bits for each element, up to a multiple of 8; None rounds to nearest. NaN has no sign here.
"""
import numpy as np

FP16, BF16, FP32, FP64, E4M3, LOG8, E6M10, INT8, INT16 = 1, 2, 3, 4, 5, 7, 8, 9, 10
# The code of NaN in a code of squares. That of inf is the one below it.
SQUARES = {LOG8: 0xff, E6M10: 0xffff}
# The pattern above which a magnitude becomes this one.
MOST = {BF16: 0x7f7f0000, E4M3: 0x7f700000, LOG8: 0x7f700000, E6M10: 0x7f7fe000}
NAN = {FP16: 0x7e00, BF16: 0x7fc0}
INF = {FP16: 0x7c00, BF16: 0x7f80}
SPLIT16, SPLIT8, STOCHASTIC = 1, 2, 3
REMAINDER = {SPLIT16: INT16, SPLIT8: INT8}
STORED = {FP16: np.float16, BF16: np.uint16, FP32: np.float32, FP64: np.float64, E4M3: np.uint8, LOG8: np.uint8,
          E6M10: np.uint16, INT8: np.int8, INT16: np.int16}


def magnitude(x):
    return x.view(np.uint32).astype(np.int64) & 0x7fffffff


def number(pattern):
    return np.asarray(pattern).astype(np.uint32).view(np.float32)


def sign(x):
    return x.view(np.uint32).astype(np.int64) >> 31


def of_elements(scales, count):
    return np.repeat(scales.astype(np.int64), 32)[:count]


# -- Random bits

def philox(block, step, purpose, seed):
    """Philox4x32-7: the four words of each block."""
    low = np.uint64(0xffffffff)
    c = [block & low, block >> np.uint64(32), np.full_like(block, step), np.full_like(block, purpose)]
    key = [seed & 0xffffffff, seed >> 32 & 0xffffffff]
    for _ in range(7):
        a, b = c[0] * np.uint64(0xd2511f53), c[2] * np.uint64(0xcd9e8d57)
        high = np.uint64(32)
        c = [b >> high ^ c[1] ^ np.uint64(key[0]), b & low, a >> high ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9e3779b9) & 0xffffffff, (key[1] + 0xbb67ae85) & 0xffffffff]
    return np.stack(c, -1)


def draw(first, count, step, purpose, seed):
    """16 bits for each element, of a whole number of groups of 8."""
    i = first + np.arange(-(-count // 8) * 8)
    words = philox((i // 32).astype(np.uint64), step, purpose, seed)[np.arange(i.size), i % 8 // 2]
    halves = (words >> (16 * (i % 2)).astype(np.uint64)).astype(np.int64) & 0xffff
    return halves * np.array([1, 0x348d, 0x95a9, 0xc215])[i // 8 % 4] & 0xffff


# -- State

def base_and_shift(code, scales):
    """Where the codes of squares begin in fp32's pattern, and how many bits a step has."""
    return (scales << 23, 13) if code == E6M10 else ((scales & 0x3ff) << 21, 16 + (scales >> 10))


def encode(code, x, draws=None):
    i = np.arange(x.size)
    bias = 0x8000 if draws is None else draws[i if code in SQUARES else i ^ 4]
    nan, finite, m = np.isnan(x), np.isfinite(x), np.where(np.isnan(x), 0, np.minimum(magnitude(x), MOST[code]))
    if code == BF16:
        return np.where(nan, 0x7fc0, m + bias >> 16 | sign(x) << 15).astype(np.uint16), None
    groups = np.zeros(-(-x.size // 32) * 32, np.int64)
    groups[:x.size] = m if code == E4M3 else np.where(finite, magnitude(x), 0)
    groups = groups.reshape(-1, 32)
    largest = groups.max(1)
    if code == E4M3:
        scales = np.maximum((largest >> 23) - 7, 1)
        y = (number(m) * np.exp2(127.0 - of_elements(scales, x.size))).astype(np.float32)
        small = magnitude(y + np.float32(2.0 ** -6)) - (121 << 23) >> 4
        f = np.where(y < 2.0 ** -6, small, (magnitude(y) - (120 << 23)) >> 4)
        return np.where(nan, 0x7f, f + bias >> 16 | sign(x) << 7).astype(np.uint8), scales.astype(np.uint8)
    if code == E6M10:
        scales = np.maximum((largest >> 23) - 62, 0).astype(np.uint8)
    else:
        high, low = largest >> 21, np.where(groups > 0, groups, 1 << 31).min(1) >> 21
        low = np.minimum(low, high)
        widening = sum((high - low + 4 > 8 << k).astype(np.int64) for k in range(4))
        scales = (widening << 10 | np.maximum(np.maximum(low - 1, high + 3 - (8 << widening)), 0)).astype(np.uint16)
    base, shift = base_and_shift(code, of_elements(scales, x.size))
    distance = np.maximum(m - base, 0)
    result = np.where(x > 0, np.maximum(distance + (bias << 8 >> 24 - shift) >> shift, 1), 0)
    result = np.where(nan, SQUARES[code], np.where(finite, result, SQUARES[code] - 1))
    return result.astype(STORED[code]), scales


def decode(code, codes, scales):
    c = codes.astype(np.int64)
    if code == BF16:
        return number(c << 16)
    s = of_elements(scales, c.size)
    if code == E4M3:
        exponent, fraction = c >> 3 & 15, c & 7
        value = np.where(exponent == 0, fraction * 2.0 ** -9, (8 + fraction) * np.exp2(exponent - 10.0))
        value = np.where(s == 0, 0, value * np.exp2(s - 127.0)) * np.where(c >> 7, -1, 1)
        return np.where(c & 0x7f == 0x7f, np.nan, value).astype(np.float32)
    base, shift = base_and_shift(code, s)
    value, nan = np.where(c == 0, np.float32(0), number(base + (c << shift))), SQUARES[code]
    return np.where(c == nan, np.float32(np.nan), np.where(c == nan - 1, np.float32(np.inf), value))


# -- Masters

def fixed(dtype, x):
    """F: the magnitude as the weight's code with 16 fraction bits."""
    m = magnitude(x)
    if dtype == BF16:
        return m
    top = (magnitude(np.float32([65504]))[0] - (112 << 23)) << 3
    small = np.floor(np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64) * 2.0 ** 40 + 0.5).astype(np.int64)
    return np.where(m >= 113 << 23, np.minimum((m - (112 << 23)) << 3, top), small)


def weight(dtype, x, codes):
    """`codes`, the magnitudes, with the sign of x; the codes of inf and NaN where x is not finite."""
    return np.where(np.isnan(x), NAN[dtype], np.where(np.isinf(x), INF[dtype], codes) | sign(x) << 15).astype(np.uint16)


def split(dtype, x, bits):
    k = (fixed(dtype, x) + ((1 << 16 - bits) >> 1)) >> 16 - bits
    w, half = (k + (1 << bits - 1)) >> bits, 1 << bits - 1
    rest = (k + half & (1 << bits) - 1) - half
    return weight(dtype, x, w), np.where(np.isfinite(x), rest, 0).astype(np.int8 if bits == 8 else np.int16)


def join(dtype, weights, rest):
    w, bits = weights.astype(np.int64), 8 * rest.itemsize
    f = np.maximum(((w & 0x7fff) << bits) + rest, 0) << 16 - bits
    x = number(f)
    if dtype == FP16:
        x = np.where(f >= 1 << 26, number((f >> 3) + (112 << 23)), (f * 2.0 ** -40).astype(np.float32))
    inf = INF[dtype] << 16
    x = np.where(f > inf, np.float32(np.nan), np.where(f == inf, np.float32(np.inf), x))
    return np.where(w >> 15, -x, x)


def round_weight(dtype, x, draws):
    w = fixed(dtype, x) + draws[:x.size] >> 16
    return weight(dtype, x, np.minimum(w, 0x7bff) if dtype == FP16 else w)
