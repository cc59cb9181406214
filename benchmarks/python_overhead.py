# SPDX-License-Identifier: Apache-2.0
"""What a call costs in Python: step_and_update on a reused optimizer of one element, against the same call in C.

Usage: python benchmarks/python_overhead.py, with the package installed or on PYTHONPATH. The C function is called by
ctypes, whose own cost is measured with a call that does nothing and taken off. The goal is 5 us more than the C call.
"""

import array
import ctypes
import time

import gradscaler as gs
from gradscaler._native import native


def best(call, *arguments):
    """Seconds a call takes in the fastest of 200 rounds of 200."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(200):
            call(*arguments)
        times.append((time.perf_counter() - start) / 200)
    return min(times)


def main():
    context = gs.Context(threads=1)
    scaler = gs.GradScaler(context)
    grads = [array.array("f", [0.0])]  # Held, or a second step is an error.
    optimizer = gs.AdamW([array.array("f", [1.0])], grads, device=context)
    library = ctypes.CDLL(gs.get_library())
    step = library.gsc_scaler_step_and_update
    step.argtypes = [ctypes.c_void_p] * 3
    in_c = best(step, int(scaler._h.this), int(optimizer._h.this), None) - best(library.gsc_library_get_abi_version)
    rows = {"C function": in_c, "SWIG function": best(native.Scaler.step_and_update, scaler._h, optimizer._h, 0),
            "GradScaler.step_and_update": best(scaler.step_and_update, optimizer)}
    print(gs.build_info())
    for name, seconds in rows.items():
        print(f"{name:28s} {seconds * 1e6:6.2f} us, {(seconds - in_c) * 1e6:5.2f} us more than in C")


if __name__ == "__main__":
    main()
