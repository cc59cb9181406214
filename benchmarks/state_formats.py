#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats of optimizer state, those of this library and others, in one simulation (docs/dev/notebook/state.md).

Adam's moments of 2048 elements, whose gradients are normal with lognormal sizes, for 2500 steps, then 2500 of a tenth.
Each step decodes, updates and encodes; the update comes from the new moments before they are encoded. For each
format and beta2: the median of sqrt(v) over the exact one, at the end of each half; the relative rms error of the
update; its largest magnitude over the largest exact one. Needs NumPy.
"""
import numpy as np

ELEMENTS, STEPS, GROUP, BETA1 = 2048, 2500, 32, 0.9
draws = np.random.default_rng(1)


def largest(x):
    return np.repeat(np.abs(x.reshape(-1, GROUP)).max(1), GROUP)


def to_float(x, mantissa, smallest, stochastic=False):
    """The nearest numbers of `mantissa` bits; subnormals below 2^smallest, which is an array or a number."""
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-300))), smallest)
    unit = np.exp2(exponent - mantissa)
    return np.floor(x / unit + (draws.random(x.shape) if stochastic else 0.5)) * unit


def bf16(x):
    return to_float(x, 7, -126)


def bf16_random(x):
    return to_float(x, 7, -126, True)


def e4m3(x, stochastic=False):
    return to_float(x, 3, np.floor(np.log2(np.maximum(largest(x), 1e-300))) - 13, stochastic)


def e4m3_random(x):
    return e4m3(x, True)


def unsigned(exponents, mantissa, stochastic):
    def encode(x):
        top = np.floor(np.log2(np.maximum(largest(x), 1e-300)))
        smallest = np.exp2(top - (2**exponents - 2)) * (1 + 2.0**-mantissa)  # code 1; 0 stands for 0 alone
        return np.where(x > 0, np.maximum(to_float(x, mantissa, -1000, stochastic), smallest), 0)
    return encode


def fp16_scale(x):
    return largest(x).astype(np.float16).astype(np.float64)


def softsign(x, scale_of=fp16_scale):
    share = np.minimum(np.abs(x) / scale_of(x), 1 if scale_of is fp16_scale else np.inf)
    y = np.floor(127 * 2 * share / (1 + share) + 0.5) / 127
    return np.sign(x) * y / (2 - y) * fp16_scale(x)


def root(x, scale_of=fp16_scale, rounded=lambda q: np.floor(q + 0.5)):
    share = np.minimum(np.sqrt(x) / scale_of(np.sqrt(x)), 1 if scale_of is fp16_scale else np.inf)
    return (rounded(255 * share) / 255 * fp16_scale(np.sqrt(x)))**2


def without_zero(x):
    return root(x, rounded=lambda q: np.where(q > 0, np.maximum(np.floor(q + 0.5), 1), 0))


def without_zero_random(x):
    return root(x, rounded=lambda q: np.where(q > 0, np.maximum(np.floor(q + draws.random(q.shape)), 1), 0))


FORMATS = {
    "bf16, bf16 to nearest": (bf16, bf16),
    "bf16, bf16 stochastic": (bf16, bf16_random),
    "bf16, E5M11 to nearest": (bf16, unsigned(5, 11, False)),
    "bf16, E5M11 stochastic": (bf16, unsigned(5, 11, True)),
    "E4M3, E4M4 to nearest": (e4m3, unsigned(4, 4, False)),
    "E4M3, E4M4 stochastic": (e4m3, unsigned(4, 4, True)),
    "E4M3 stochastic, E4M4 stochastic": (e4m3_random, unsigned(4, 4, True)),
    "FlashOptim as it is": (lambda x: softsign(x, largest), lambda x: root(x, largest)),
    "FlashOptim, divided by the stored scale": (softsign, root),
    "the same, v without a code for 0": (softsign, without_zero),
    "the same, v stochastic": (softsign, without_zero_random),
}


def simulate(encode_m, encode_v, beta2):
    sizes = np.exp(np.random.default_rng(2).normal(size=ELEMENTS))
    gradients = np.random.default_rng(3)
    m, v, exact_m, exact_v = (np.zeros(ELEMENTS) for _ in range(4))
    medians, errors, most, most_exact = [], [], 0.0, 0.0
    for step in range(1, 2 * STEPS + 1):
        g = gradients.normal(size=ELEMENTS) * sizes * (0.1 if step > STEPS else 1.0)
        m, v = BETA1 * m + (1 - BETA1) * g, beta2 * v + (1 - beta2) * g * g
        exact_m, exact_v = BETA1 * exact_m + (1 - BETA1) * g, beta2 * exact_v + (1 - beta2) * g * g
        update, exact = m / (np.sqrt(v) + 1e-12), exact_m / np.sqrt(exact_v)
        if step > 100:
            most, most_exact = max(most, np.abs(update).max()), max(most_exact, np.abs(exact).max())
        if step > STEPS - 100 and step <= STEPS:
            errors.append(np.sqrt(np.mean((update - exact)**2) / np.mean(exact**2)))
        m, v = encode_m(m), encode_v(v)
        if step % STEPS == 0:
            medians.append(np.median(np.sqrt(v / exact_v)))
    return medians[0], medians[1], np.mean(errors), most / most_exact


if __name__ == "__main__":
    print("| m, v | beta2 | sqrt(v) | after the fall | error | largest |\n|---|---|---|---|---|---|")
    for name, (encode_m, encode_v) in FORMATS.items():
        for beta2 in (0.95, 0.999, 0.9999):
            row = simulate(encode_m, encode_v, beta2)
            print(f"| {name} | {beta2} | {row[0]:.3f} | {row[1]:.3f} | {row[2]:.3f} | {row[3]:.2f} |", flush=True)
