# SPDX-License-Identifier: Apache-2.0
"""What a step costs in Python: GradScaler.step_and_update on arrays that were passed before, against the call in C.

Usage: python benchmarks/python_overhead.py [--quick], with the package and NumPy installed or on PYTHONPATH. The C
function is called by ctypes, whose own cost is measured with a call that does nothing and taken off. The goals are 5 us
more than in C for one array of one element, and 1.3 times C for 1000 arrays.
"""

import argparse
import array
import ctypes
import time

import gradscaler as gs
from gradscaler._native import native


def best(calls, rounds, each):
    """Seconds a call takes in its fastest round of `each`; the rounds of all in turn."""
    found = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, (call, *arguments) in enumerate(calls):
            start = time.perf_counter()
            for _ in range(each):
                call(*arguments)
            found[i] = min(found[i], (time.perf_counter() - start) / each)
    return found


def measure(name, params, grads, rounds, each):
    context = gs.Context(threads=1)
    # Whose scale never grows.
    scaler = gs.GradScaler(context, growth_interval=1 << 30)
    optimizer = gs.AdamW(params, grads, lr=0.0, device=context)
    library = ctypes.CDLL(gs.get_library())
    step = library.gsc_scaler_step_and_update
    step.argtypes = [ctypes.c_void_p] * 3
    scaler.step_and_update(optimizer)
    calls = [(library.gsc_library_get_abi_version,), (step, int(scaler._h.this), int(optimizer._h.this), None),
             (native.Scaler.step_and_update, scaler._h, optimizer._h, 0), (scaler.step_and_update, optimizer)]
    empty, in_c, swig, whole = best(calls, rounds, each)
    in_c -= empty
    print(name)
    for row, seconds in (("C function", in_c), ("SWIG function", swig), ("GradScaler.step_and_update", whole)):
        print(f"  {row:28s} {seconds * 1e6:7.2f} us, {(seconds - in_c) * 1e6:5.2f} us more than in C, "
              f"{seconds / in_c:.2f} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    rounds = 20 if parser.parse_args().quick else 400
    print(gs.build_info())
    measure("one array.array of one element", [array.array("f", [1.0])], [array.array("f", [0.0])], rounds, 100)
    try:
        import numpy as np
    except ImportError:
        print("1000 arrays: left out, there is no module numpy")
        return
    for count in (4, 1000, 10000):
        params, grads = ([np.zeros(16, np.float32) for _ in range(count)] for _ in "pg")
        measure(f"{count} arrays of NumPy of 16 elements", params, grads, rounds, max(1, 400 // count))


if __name__ == "__main__":
    main()
