#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's times for goals G2, G4 and G5, and the library's own in the same process. Usage: bench.py --bench
libgradscaler_gpu_bench.so --rows raw.jsonl --shapes shapes.txt [--seconds 200].

The library is measured by gradscaler_gpu_bench, loaded as a shared library: its times include no Python. torch's
sequence is timed by events, eager and as a graph. Rows are appended as they are measured; goals.py merges and evaluates
them."""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import goals  # noqa: E402
import shapes  # noqa: E402

WARMUPS, RUNS = 5, 30
FLUSH_BYTES = 512 << 20


def noise(torch, count, dtype):
    """Magnitudes of 2^-8 to 1, both signs, as in gradscaler_gpu_bench."""
    signs = torch.randint(0, 2, (count,), device="cuda", dtype=torch.int8) * 2 - 1
    return (torch.exp2(torch.rand(count, device="cuda") * -8) * signs).to(dtype)


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        self.flush = noise(torch, FLUSH_BYTES // 4, torch.float32)

    def time(self, work):
        """Median microseconds on the device. The cache is flushed by reading other data, which also gives the host a
        head start."""
        torch = self.torch
        times = []
        for run in range(WARMUPS + RUNS):
            self.flush.sum()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            if run >= WARMUPS:
                times.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(times)

    def capture(self, work):
        """The same work as a graph."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def adamw(self, counts):
        torch = self.torch
        params = [noise(torch, n, torch.float32).requires_grad_() for n in counts]
        for p in params:
            p.grad = noise(torch, p.numel(), torch.float32)
        return params, torch.optim.AdamW(params, fused=True, capturable=True)

    def tail(self, counts, copies):
        """torch's own sequence: unscale, clip, fused AdamW, update; with 16-bit gradients, casts around it."""
        torch = self.torch
        params, optimizer = self.adamw(counts)
        grads = [p.grad for p in params]
        halves = [noise(torch, n, torch.float16) for n in counts] if copies else None
        weights = [torch.zeros(n, dtype=torch.float16, device="cuda") for n in counts] if copies else None
        scale = torch.full((), 1.0, device="cuda")
        tracker = torch.zeros((), dtype=torch.int32, device="cuda")
        found = torch.zeros((), device="cuda")

        def run():
            if copies:
                torch._foreach_copy_(grads, halves)
            found.zero_()
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.double().reciprocal().float())
            torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
            optimizer.grad_scale, optimizer.found_inf = None, found
            optimizer.step()
            torch._amp_update_scale_(scale, tracker, found, 1.0, 1.0, 2000)
            if copies:
                with torch.no_grad():
                    torch._foreach_copy_(weights, params)

        return run


def ours(bench, options, only, seconds):
    arguments = ["bench.py", "--rows", options.rows, "--shapes", options.shapes, "--seconds", str(seconds),
                 "--only", only]
    array = (ctypes.c_char_p * len(arguments))(*map(str.encode, arguments))
    if bench.gradscaler_gpu_bench(len(arguments), array) != 0:
        raise RuntimeError("gradscaler_gpu_bench failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--seconds", type=float, default=200.0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    bench = ctypes.CDLL(os.path.abspath(options.bench))
    torch = Torch()

    def add(case, microseconds):
        with open(options.rows, "a", encoding="utf-8") as rows:
            rows.write(json.dumps({"case": case, "torch us": round(microseconds, 2)}) + "\n")
        print(case, round(microseconds, 2), flush=True)

    def measured(case, work):
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"{case}: left out: no time", flush=True)
            return
        ours(bench, options, case, left)
        try:
            work()
        except RuntimeError as error:
            print(f"torch: {case}: {error}", file=sys.stderr)
        torch.torch.cuda.empty_cache()

    def apply():
        add("AdamW apply, fp32 grads", torch.time(torch.adamw([1 << 26] * 4)[1].step))

    def tail(case, counts, copies):
        run = torch.tail(counts, copies)
        add(f"tail, eager: {case}", torch.time(run))
        add(f"tail, graph: {case}", torch.time(torch.capture(run)))

    measured("AdamW apply, fp32 grads", apply)
    for model in goals.MODELS:
        for layout, copies in (("fp32 grads", False), (goals.HALF, True)):
            case = f"{model}, {layout}"
            measured(case, lambda case=case, model=model, copies=copies: tail(case, shapes.SETS[model], copies))


if __name__ == "__main__":
    main()
