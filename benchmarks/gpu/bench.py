#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library's tail and step beside PyTorch's and other optimizers', over the same arrays.

  bench.py --library libgradscaler.so --rows raw.jsonl [--only TEXT] [--seconds 200] [--processes 5]
  bench.py --library libgradscaler.so --rows raw.jsonl --dry-run     # tiny lists on the CPU; its numbers mean nothing

A process makes the arrays of a case once: parameters, gradients and state in fp32, or 16-bit gradients and weights
beside them. All contenders work on them, warmed up for the same time; then each runs once in turn, there and back, with
the cache flushed before. Processes measure the cases one after the other. A row is one contender's median, tenth and
ninetieth percentile in one process, eager or as a graph; goals.py takes the medians of all processes. The first process
checks that contenders with state in fp32 take the same step. What is not installed, or fails, is left out with one
line.
"""
import argparse
import ctypes
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import goals  # noqa: E402
import library  # noqa: E402
import shapes  # noqa: E402

WARM_SECONDS, RUNS = 0.05, 30
FLUSH_BYTES = 512 << 20
#: Name: module, class and its options. They step on fp32 parameters after torch's unscaling and clipping.
RIVALS = {"torch fused": ("torch.optim", "AdamW", {"fused": True, "capturable": True}),
          "torch foreach": ("torch.optim", "AdamW", {"foreach": True, "capturable": True}),
          "torch compiled": ("torch.optim", "AdamW", {"foreach": True, "capturable": True}),
          "apex FusedAdam": ("apex.optimizers", "FusedAdam", {"adam_w_mode": True}),
          "TransformerEngine FusedAdam": ("transformer_engine.pytorch.optimizers", "FusedAdam", {"adam_w_mode": True}),
          "DeepSpeed FusedAdam": ("deepspeed.ops.adam", "FusedAdam", {"adam_w_mode": True}),
          "bitsandbytes AdamW": ("bitsandbytes.optim", "AdamW", {}),
          "bitsandbytes AdamW8bit": ("bitsandbytes.optim", "AdamW8bit", {}),
          "torchao AdamW8bit": ("torchao.optim", "AdamW8bit", {}),
          "torchao AdamWFp8": ("torchao.optim", "AdamWFp8", {}),
          "flashoptim FlashAdamW": ("flashoptim", "FlashAdamW", {})}
#: They keep fp32 weights for 16-bit parameters themselves: no casts around the step.
MASTERS = {"apex FusedAdam": {"capturable": True, "master_weights": True},
           "TransformerEngine FusedAdam": {"capturable": True, "master_weights": True}, "flashoptim FlashAdamW": {}}
#: Name: state_format and master_format of gradscaler.h.
SMALL = {"gradscaler, 16-bit state": (1, 1), "gradscaler, 8-bit state": (2, 2)}


class Arrays:
    """The arrays that all contenders of a case work on. Gradients are noise of magnitude 2^-8 to 1."""

    def __init__(self, torch, counts, half, device):
        self.torch, self.half, self.device = torch, half, device
        self.params = [torch.nn.Parameter(self.noise(n, torch.float32)) for n in counts]
        self.grads = [self.noise(n, torch.float32) for n in counts]
        self.states = [[torch.zeros(n, device=device) for n in counts] for _ in range(2)]
        self.half_grads = [g.half() for g in self.grads] if half else []
        self.half_params = [torch.nn.Parameter(p.detach().half()) for p in self.params] if half else []
        for params, grads in ((self.params, self.grads), (self.half_params, self.half_grads)):
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad

    def noise(self, count, dtype):
        torch = self.torch
        signs = torch.randint(0, 2, (count,), device=self.device, dtype=torch.int8) * 2 - 1
        return (torch.exp2(torch.rand(count, device=self.device) * -8) * signs).to(dtype)

    def restart(self):
        self.torch.manual_seed(1)
        with self.torch.no_grad():
            for i, param in enumerate(self.params):
                param.copy_(self.noise(param.numel(), self.torch.float32))
                self.grads[i].copy_(self.half_grads[i] if self.half else self.noise(param.numel(), self.torch.float32))
            for state in self.states:
                self.torch._foreach_zero_(state)


class Ours:
    def __init__(self, lib, arrays, formats=None):
        def of(tensors, dtype=lib.FP32):
            return [(t.data_ptr(), t.numel(), dtype) for t in tensors]

        self.torch, self.cuda = arrays.torch, arrays.device == "cuda"
        grads = of(arrays.half_grads, lib.FP16) if arrays.half else of(arrays.grads)
        halves = of(arrays.half_params, lib.FP16)
        if formats is None:
            self.step_of = library.Step(lib, lib.ADAMW, of(arrays.params), grads, copies=halves,
                                        states=[of(state) for state in arrays.states])
        else:
            self.step_of = library.Step(lib, lib.ADAMW, halves, grads, formats=formats)
        self.step_of.set_scale(1.0, self.stream())

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream) if self.cuda else None

    def tail(self):
        self.step_of.tail(self.stream())

    def apply(self):
        self.step_of.apply(self.stream())

    def close(self):
        self.step_of.close()


class Rival:
    """torch's sequence: unscale, clip, the optimizer's step, update; with 16-bit gradients, casts around it."""

    def __init__(self, name, arrays):
        torch = self.torch = arrays.torch
        module, kind, options = RIVALS[name]
        self.arrays = arrays
        self.casts = arrays.half and name not in MASTERS
        self.params = arrays.params if self.casts or not arrays.half else arrays.half_params
        if arrays.half and not self.casts:
            options = {**options, **MASTERS[name]}
        if arrays.device == "cpu" and "capturable" in options:
            options = {key: value for key, value in options.items() if key != "capturable"}
        self.optimizer = getattr(importlib.import_module(module), kind)(self.params, lr=1e-3, weight_decay=1e-2,
                                                                        **options)
        for i, param in enumerate(self.params) if module == "torch.optim" else ():
            step = torch.zeros((), device=arrays.device)
            self.optimizer.state[param] = {"step": step, "exp_avg": arrays.states[0][i],
                                           "exp_avg_sq": arrays.states[1][i]}
        self.takes_found = name == "torch fused"
        self.apply = self.optimizer.step
        if name == "torch compiled":
            self.apply = torch.compile(self.apply, backend="eager" if arrays.device == "cpu" else "inductor")
        self.scale, self.inverse, self.found = (torch.full((), x, device=arrays.device) for x in (1.0, 1.0, 0.0))
        self.tracker = torch.zeros((), dtype=torch.int32, device=arrays.device)

    def tail(self):
        torch, arrays = self.torch, self.arrays
        if self.casts:
            torch._foreach_copy_(arrays.grads, arrays.half_grads)
        self.found.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_([p.grad for p in self.params], self.found, self.inverse)
        torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        if self.takes_found:
            self.optimizer.grad_scale, self.optimizer.found_inf = None, self.found
        self.apply()
        torch._amp_update_scale_(self.scale, self.tracker, self.found, 1.0, 1.0, 2000)
        if self.casts:
            with torch.no_grad():
                torch._foreach_copy_(arrays.half_params, arrays.params)

    def close(self):
        self.optimizer.state.clear()


class Clock:
    """Microseconds of one run, on the device with a cold cache; in a dry run by the host."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.flush = torch.ones(FLUSH_BYTES // 4, device=device) if device == "cuda" else None

    def warm(self, work):
        end = time.monotonic() + (WARM_SECONDS if self.flush is not None else 0.0)
        work()
        while time.monotonic() < end:
            work()
            self.torch.cuda.synchronize()

    def once(self, work):
        if self.flush is None:
            begin = time.perf_counter()
            work()
            return (time.perf_counter() - begin) * 1e6
        self.flush.sum()  # the host runs ahead meanwhile
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def capture(self, work):
        torch = self.torch
        if self.flush is None:
            return work
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


def cases():
    """(name, elements of each tensor, 16-bit gradients and weights, what is timed)"""
    yield "AdamW apply, fp32 grads", [1 << 26] * 4, False, "apply"
    for model in (*goals.MODELS, "1000 x 1024", "10000 x 64"):
        for layout, half in (("fp32 grads", False), (goals.HALF, True)):
            yield f"tail: {model}, {layout}", shapes.SETS[model], half, "tail"


def contenders(lib, arrays, part, rivals, leave_out):
    """{name: object}; what cannot be made is left out."""
    made = {"gradscaler": lambda: Ours(lib, arrays)}
    if part == "tail" and arrays.half:
        made.update({name: lambda formats=formats: Ours(lib, arrays, formats) for name, formats in SMALL.items()})
    made.update({name: lambda name=name: Rival(name, arrays) for name in rivals})
    found = {}
    for name, make in made.items():
        try:
            found[name] = make()
            getattr(found[name], part)()
        except Exception as error:  # another package's, of any kind
            found.pop(name, None)
            leave_out(name, error)
    return found


def verify(found, arrays, rtol=1e-4, atol=1e-5):
    """All with state in fp32 must end two steps with the same parameters."""
    results = {}
    for name in ("gradscaler", "torch fused", "torch foreach"):
        if name in found:
            arrays.restart()
            for _ in range(2):
                found[name].tail()
            results[name] = arrays.torch.cat([p.detach() for p in arrays.params])
    for name, result in results.items():
        # Counts of steps differ by the step of contenders() alone, which all have made.
        if not arrays.torch.allclose(results["gradscaler"], result, rtol=rtol, atol=atol):
            raise SystemExit(f"bench: gradscaler and {name} do not take the same step")


def measure(clock, works):
    """{name: microseconds of each run}, in turn, there and back."""
    times = {name: [] for name in works}
    for work in works.values():
        clock.warm(work)
    order = list(works)
    for _ in range(RUNS if clock.flush is not None else 2):
        for name in order:
            times[name].append(clock.once(works[name]))
        order.reverse()
    return times


def run_case(clock, lib, rivals, case, add, check):
    name, counts, half, part = case
    arrays = Arrays(clock.torch, counts, half, clock.device)

    def leave_out(who, error):
        print(f"{name}: {who}: left out, {str(error).strip().splitlines()[0] if str(error) else type(error).__name__}",
              flush=True)

    found = contenders(lib, arrays, part, rivals, leave_out)
    if check and part == "tail":
        verify(found, arrays)
    for way in ("eager", "graph") if part == "tail" else ("",):
        works = {}
        for who, contender in found.items():
            work = getattr(contender, part)
            try:
                works[who] = clock.capture(work) if way == "graph" else work
            except Exception as error:
                leave_out(f"{who} in a graph", error)
        for who, times in measure(clock, works).items():
            add(name.replace("tail:", f"tail, {way}:"), who, times)
    for contender in found.values():
        contender.close()


def one_process(options):
    import torch
    device = "cpu" if options.dry_run else "cuda"
    torch.manual_seed(options.process)
    if options.dry_run:
        torch.set_num_threads(1)
    deadline = time.monotonic() + options.seconds
    lib = library.Library(options.library, cuda=device == "cuda")
    rivals = []
    for rival, (module, _, _) in RIVALS.items():
        try:
            importlib.import_module(module)
            rivals.append(rival)
        except Exception as error:
            print(f"{rival}: left out, {error}", flush=True)
    clock = Clock(torch, device)

    def add(case, who, times):
        tenths = statistics.quantiles(times, n=10, method="inclusive")
        row = {"case": case, "who": who, "process": options.process, "us": round(statistics.median(times), 2),
               "p10": round(tenths[0], 2), "p90": round(tenths[-1], 2)}
        with open(options.rows, "a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")
        print(row, flush=True)

    for case in cases():
        name, counts, *rest = case
        if options.only not in name:
            continue
        if time.monotonic() > deadline:
            print(f"{name}: left out: no time", flush=True)
            continue
        if options.dry_run:
            counts = [min(n, 50) for n in counts[:6]]
        run_case(clock, lib, rivals, (name, counts, *rest), add, options.process == 0)
        if device == "cuda":
            torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        return one_process(options)
    deadline = time.monotonic() + options.seconds
    for process in range(options.processes):
        share = (deadline - time.monotonic()) / (options.processes - process)
        command = [sys.executable, "-B", __file__, *sys.argv[1:], "--process", str(process), "--seconds", str(share)]
        # A memory that another process had is another placement: five are better than one.
        status = subprocess.run(command).returncode
        if status != 0:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
