#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each option of the safe step costs: the time of a call with it over the time without.

  benchmarks/option_overhead.py LIBRARY [--threads N] [--rounds N] [--output FILE]
  benchmarks/option_overhead.py --tables FILE

The gradients are bf16, the parameters and AdamW's state fp32, with a bf16 copy: once as 16 tensors of 4 Mi elements,
which no cache holds, and once as 1000 of 1024. Calls with and without an option take turns, on the same objects; the
ratio is that of the medians.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import time

import numpy as np
import records
import table
from library import Library, Step

SHAPES = {"16 x 4 Mi": (16, 1 << 22), "1000 x 1024": (1000, 1024)}


class Bench:
    def __init__(self, library, count, size):
        self.library = lib = library
        random = np.random.default_rng(1)
        some = random.standard_normal(size).astype(np.float32)
        # bf16 by dropping bits; every tensor in its own memory, as a framework has them.
        self.arrays = {"g": [(some.view(np.uint32) >> 16).astype(np.uint16) for _ in range(count)],
                       "p": [some.copy() for _ in range(count)],
                       "w": [np.zeros(size, np.uint16) for _ in range(count)],
                       **{state: [np.zeros(size, np.float32) for _ in range(count)] for state in ("m", "v")}}
        lists = {name: [(a.ctypes.data, a.size, lib.BF16 if a.dtype == np.uint16 else lib.FP32) for a in arrays]
                 for name, arrays in self.arrays.items()}
        self.step = Step(lib, lib.ADAMW, lists["p"], lists["g"], lists["w"], [lists["m"], lists["v"]])
        self.others = []
        self.norms, self.factor = np.zeros(count), np.ones(1, np.float32)
        self.scaler_options = lib.struct("gsc_scaler_options")
        lib.must(lib.scaler_options_init(ctypes.byref(self.scaler_options), self.scaler_options.struct_size,
                                         lib.PRESET_CHECK))
        lib.scaler_destroy(self.step.scaler)
        lib.must(lib.scaler_create(lib.context, ctypes.byref(self.scaler_options), ctypes.byref(self.step.scaler)))
        self.plain = self.step.optimizer

    def close(self):
        for other in self.others:
            self.library.optimizer_destroy(other)
        self.step.close()

    def check(self):
        lib = self.library
        lib.must(lib.scaler_check(self.step.scaler, self.step.grads, None))
        lib.must(lib.scaler_update(self.step.scaler, None))

    def apply(self):
        self.step.apply(None)

    def tail(self):
        self.step.tail(None)

    # Each option, by what it sets and what is there without it.

    def of_scaler(self, **values):
        lib = self.library
        before = {name: getattr(self.scaler_options, name) for name in values}

        def set_to(found):
            for name, value in found.items():
                setattr(self.scaler_options, name, value)
            lib.must(lib.scaler_set_options(self.step.scaler, ctypes.byref(self.scaler_options), None))

        return lambda on: set_to(values if on else before)

    def of_optimizer(self, flags=0, **values):
        """By another optimizer on the same memory, since flags are those of the constructor."""
        lib, step = self.library, self.step
        options, other = lib.struct("gsc_optimizer_options"), ctypes.c_void_p()
        lib.must(lib.optimizer_options_init(ctypes.byref(options), options.struct_size, lib.ADAMW))
        for name, value in {"flags": flags, **values}.items():
            setattr(options, name, value)
        slots = (ctypes.c_void_p * 2)(*(state.value for state in step.states))
        lib.must(lib.optimizer_create(lib.context, ctypes.byref(options), step.params, step.grads, step.copies, slots,
                                      len(slots), ctypes.byref(other)))
        self.others.append(other)

        def turn(on):
            step.optimizer = other if on else self.plain

        return turn

    def norms_of_tensors(self, on):
        lib = self.library
        lib.must(lib.tensor_list_set_device_norms(self.step.grads, self.norms.ctypes.data if on else None,
                                                  len(self.norms)))

    def device_factor(self, on):
        lib = self.library
        lib.must(lib.tensor_list_set_device_factor(self.step.grads, self.factor.ctypes.data if on else None))

    def rows(self):
        lib = self.library
        spikes = self.of_scaler(spike_factor=2.0)
        cautious = self.of_optimizer(lib.OPTIMIZER_CAUTIOUS)
        restrained = self.of_optimizer(lib.OPTIMIZER_CAUTIOUS | lib.OPTIMIZER_CAUTIOUS_DECAY, param_min=-10.0,
                                       param_max=10.0)

        def everything(on):
            for turn in (spikes, restrained, self.norms_of_tensors, self.device_factor):
                turn(on)

        return [("check", "skip_norm", self.check, self.of_scaler(skip_norm=1e30)),
                ("check", "spike_factor", self.check, spikes),
                ("check", "norms of tensors", self.check, self.norms_of_tensors),
                ("check", "device factor", self.check, self.device_factor),
                ("step", "param_min, param_max", self.apply, self.of_optimizer(param_min=-10.0, param_max=10.0)),
                ("step", "cautious update", self.apply, cautious),
                ("step", "cautious decay", self.apply, self.of_optimizer(lib.OPTIMIZER_CAUTIOUS_DECAY)),
                ("step", "device factor", self.apply, self.device_factor),
                ("clip, step, update", "nothing", self.tail, lambda on: None),
                ("clip, step, update", "all of them", self.tail, everything)]

    def measure(self, call, turn, rounds, calls):
        times = {False: [], True: []}
        for number in range(2 * rounds):
            on = number % 2 == 1
            turn(on)
            call()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[on].append((time.perf_counter() - start) / calls * 1e6)
        turn(False)
        return times[False], times[True]


def lines_of(results):
    about = results["context"]
    yield f"{about['processor']}, {about['threads']} threads, {about['rounds']} rounds: time with over time without."
    yield ""
    yield "| pass | option | " + " | ".join(SHAPES) + " |"
    yield "| --- | --- |" + " --- |" * len(SHAPES)
    for key in results["rows"][next(iter(SHAPES))]:
        cells = [results["rows"][shape][key] for shape in SHAPES]
        name, option = key.split(": ")
        ratios = [statistics.median(cell["with"]) / statistics.median(cell["without"]) for cell in cells]
        yield f"| {name} | {option} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    options = parser.parse_args()
    if options.tables is not None:
        print("\n".join(lines_of(json.loads(options.tables.read_text()))))
        return
    if options.library is None:
        parser.error("name the library")
    library = Library(options.library, threads=options.threads)
    context = {"processor": table.processor(), "threads": options.threads, "rounds": options.rounds}
    results = {"context": context, "rows": {}}
    for shape, (count, size) in SHAPES.items():
        bench = Bench(library, count, size)
        bench.tail()
        rows = results["rows"][shape] = {}
        for name, option, call, turn in bench.rows():
            without, with_it = bench.measure(call, turn, options.rounds, 1 if size > 1024 else 20)
            rows[f"{name}: {option}"] = {"without": [records.rounded(t) for t in without],
                                         "with": [records.rounded(t) for t in with_it]}
        bench.close()
    library.close()
    print("\n".join(lines_of(results)))
    if options.output is not None:
        options.output.write_text(records.laid_out(results) + "\n")


if __name__ == "__main__":
    main()
