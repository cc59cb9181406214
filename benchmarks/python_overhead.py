# SPDX-License-Identifier: Apache-2.0
"""Measures a step in Python: GradScaler.step_and_update on arrays that were passed before, against the native call.

Usage: python benchmarks/python_overhead.py, with the package and NumPy installed or on PYTHONPATH. The goals are 5 us
more for one array and 1.3 times the native call for 1000.
"""

import time

import numpy as np

import gradscaler as gs
from gradscaler._native import native


def measure(count, rounds=200):
    params, grads = ([np.zeros(16, np.float32) for _ in range(count)] for _ in "pg")
    context = gs.Context(threads=1)
    # Whose scale never grows.
    scaler = gs.GradScaler(context, growth_interval=1 << 30)
    optimizer = gs.AdamW(params, grads, lr=0.0, device=context)
    calls = [(native.Scaler.step_and_update, scaler._h, optimizer._h, 0), (scaler.step_and_update, optimizer)]
    each, fastest = max(1, 400 // count), [float("inf")] * 2
    for _ in range(rounds):
        for i, (call, *arguments) in enumerate(calls):
            start = time.perf_counter()
            for _ in range(each):
                call(*arguments)
            fastest[i] = min(fastest[i], (time.perf_counter() - start) / each)
    alone, whole = fastest
    print(f"{count} arrays: {whole * 1e6:.2f} us, {(whole - alone) * 1e6:.2f} us more than the native call,"
          f" {whole / alone:.2f} times")


print(gs.build_info())
for number in (1, 4, 1000, 10000):
    measure(number)
