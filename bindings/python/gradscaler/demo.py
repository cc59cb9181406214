# SPDX-License-Identifier: Apache-2.0
"""A training run in fp16 gradients that needs nothing but the standard library: ``python -m gradscaler demo``.

Fits 64 numbers with gradients from 1 down to 2^-31; fp16 holds none below 2^-24. Not a benchmark, and nothing is
learnt but the numbers.
"""

from __future__ import annotations

import array

from . import ops
from .arrays import as_tensor
from .log import LogWriter
from .optimizers import AdamW
from .scaler import GradScaler
from .tensors import TensorList

_COUNT = 64


def run(scaler: GradScaler, steps: int = 200, log: LogWriter | None = None) -> tuple[float, int]:
    """Trains; the share of the numbers that came within 10 % of their targets, and the number of skipped steps."""
    weights = [2.0 ** (-i / 2) for i in range(_COUNT)]
    params = array.array("f", [0.0] * _COUNT)
    true_grads = array.array("f", [0.0] * _COUNT)
    half = as_tensor(bytearray(2 * _COUNT), dtype="float16")
    grads = TensorList([half], names=["numbers"])
    optimizer = AdamW([params], grads, lr=0.05, weight_decay=0.0, eps=1e-15)
    for _ in range(steps):
        for i, weight in enumerate(weights):
            true_grads[i] = weight * (params[i] - 1.0)
        # As a backward pass would: scaled, in fp16.
        ops.scale([true_grads], [half], scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        if log is not None:
            log.step(scaler, optimizer)
    return sum(abs(p - 1.0) < 0.1 for p in params) / _COUNT, optimizer.skipped_steps


def main(log_path: str) -> list[str]:
    """Runs with and without scaling, writes the log of the one with, and returns what to print."""
    # A log is appended to; a demo starts one.
    open(log_path, "w", encoding="utf-8").close()
    with LogWriter(log_path) as log:
        scaled, skipped = run(GradScaler(init_scale=2.0**24, growth_interval=40), log=log)
    plain, _ = run(GradScaler(init_scale=1.0, growth_interval=1 << 30))
    return [f"fp16 without scaling: {plain:.0%} of the numbers fitted",
            f"fp16 with gradscaler: {scaled:.0%} of the numbers fitted, {skipped} steps skipped"]
