#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the CUDA backend against torch and against what the memory can do, all in one process, and writes raw.json,
table.md and a plot. Usage: bench.py --library libgradscaler.so --out DIR [--seconds 200]. Times are medians of CUDA
events; ratios are to what the same run measured. With --dry-run the library's side runs once on the CPU over small
NumPy arrays, to see that the calls are right where there is no GPU."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import library as gsc  # noqa: E402
import shapes  # noqa: E402

WARMUPS, RUNS = 5, 30
FLUSH_BYTES = 512 << 20
OPTIMIZERS = {"SGD": gsc.SGD, "Adam": gsc.ADAM, "AdamW": gsc.ADAMW, "Adagrad": gsc.ADAGRAD, "Lion": gsc.LION,
              "LAMB": gsc.LAMB}


class NumpyArrays:
    """Small arrays on the CPU for a dry run; nothing is timed."""
    stream = None

    def __init__(self):
        import numpy
        self.numpy = numpy
        self.kept = []

    def make(self, counts, dtype, offset=0):
        sizes = {gsc.FP16: self.numpy.uint16, gsc.BF16: self.numpy.uint16, gsc.FP32: self.numpy.float32}
        arrays = [self.numpy.zeros(n + offset, sizes[dtype]) for n in counts]
        self.kept.append(arrays)
        step = arrays[0].itemsize
        return [(a.ctypes.data + offset * step, n, dtype) for a, n in zip(arrays, counts, strict=True)]


class TorchArrays:
    def __init__(self):
        import torch
        self.torch = torch
        self.dtypes = {gsc.FP16: torch.float16, gsc.BF16: torch.bfloat16, gsc.FP32: torch.float32}
        self.kept = []
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    @property
    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def make(self, counts, dtype, offset=0):
        arrays = [self.torch.full((n + offset,), 1e-3, dtype=self.dtypes[dtype], device="cuda") for n in counts]
        self.kept.append(arrays)
        return [(a.data_ptr() + offset * a.element_size(), n, dtype) for a, n in zip(arrays, counts, strict=True)]

    def time(self, work, cold=True):
        """Median microseconds on the device, with the L2 cache filled with other data before each run if `cold`."""
        times = []
        for run in range(WARMUPS + RUNS):
            if cold:
                self.flush.zero_()
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            if run >= WARMUPS:
                times.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(times)

    def time_host(self, work):
        """Median microseconds of the calling thread, with an idle device."""
        times = []
        for _run in range(WARMUPS + RUNS):
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            work()
            times.append((time.perf_counter() - begin) * 1e6)
        self.torch.cuda.synchronize()
        return statistics.median(times[WARMUPS:])

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

    def free(self):
        self.kept.clear()
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()


def torch_tail(arrays, counts, copies):
    """torch's own sequence: unscale, clip, fused AdamW, update; with 16-bit gradients, casts around it."""
    torch = arrays.torch
    params = [torch.zeros(n, device="cuda", requires_grad=True) for n in counts]
    halves = [torch.full((n,), 1e-3, dtype=torch.float16, device="cuda") for n in counts] if copies else None
    weights = [torch.zeros(n, dtype=torch.float16, device="cuda") for n in counts] if copies else None
    for p in params:
        p.grad = torch.full_like(p, 1e-3)
    optimizer = torch.optim.AdamW(params, fused=True, capturable=True)
    scale = torch.full((), 65536.0, device="cuda")
    tracker = torch.zeros((), dtype=torch.int32, device="cuda")
    found = torch.zeros((), device="cuda")
    grads = [p.grad for p in params]

    def run():
        if copies:
            torch._foreach_copy_(grads, halves)
        found.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.double().reciprocal().float())
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.grad_scale, optimizer.found_inf = None, found
        optimizer.step()
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2000)
        if copies:
            with torch.no_grad():
                torch._foreach_copy_(weights, params)

    return run


class Bench:
    def __init__(self, arrays, library, out, seconds):
        self.arrays, self.library, self.out = arrays, library, out
        self.deadline = time.monotonic() + seconds
        self.rows = []
        self.copy_rate = None

    def add(self, case, microseconds, size=None, **more):
        row = {"case": case, "us": round(microseconds, 2), **more}
        if size is not None:
            row["GB/s"] = round(size / microseconds / 1e3, 1)
            if self.copy_rate:
                row["of copy"] = round(size / microseconds / 1e3 / self.copy_rate, 3)
        self.rows.append(row)
        print(row, flush=True)

    def late(self):
        return time.monotonic() > self.deadline

    def ceilings(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ceilings.cu")
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "libceilings.so")
            subprocess.run(["nvcc", "-arch=native", "-O3", "-shared", "-Xcompiler=-fPIC", source, "-o", target],
                           check=True)
            lib = ctypes.CDLL(target)
        count = 1 << 28
        data = [ctypes.c_void_p(address) for address, _, _ in self.arrays.make([count] * 3, gsc.FP32)]
        groups = ctypes.c_int64(count // 4)
        copy = self.arrays.time(lambda: lib.ceiling_copy(data[0], data[1], groups, self.arrays.stream))
        self.copy_rate = 8 * count / copy / 1e3
        self.add("ceiling: copy", copy, 8 * count)
        self.add("ceiling: read only", self.arrays.time(
            lambda: lib.ceiling_sum(data[0], data[1], groups, self.arrays.stream)), 4 * count)
        self.add("ceiling: read 3, write 3", self.arrays.time(
            lambda: lib.ceiling_update(*data, groups, self.arrays.stream)), 24 * count)
        self.arrays.free()

    def passes(self, count):
        """G1 to G3, G9 and G12: one huge list, check and apply on their own."""
        for offset in (0, 1):
            name = " misaligned" if offset else ""
            for label, dtype, size in (("fp16", gsc.FP16, 2), ("bf16", gsc.BF16, 2), ("fp32", gsc.FP32, 4)):
                grads = self.arrays.make([count] * 4, dtype, offset)
                params = self.arrays.make([count] * 4, gsc.FP32, offset)
                step = gsc.Step(self.library, gsc.ADAMW, params, grads)
                self.add(f"check {label}{name}",
                         self.arrays.time(lambda step=step: step.check(self.arrays.stream)), 4 * count * size)
                self.add(f"AdamW apply {label} grads{name}",
                         self.arrays.time(lambda step=step: step.apply(self.arrays.stream)), 4 * count * (24 + size))
                step.close()
                self.arrays.free()
        big = (1 << 31) + 4096
        grads, params = self.arrays.make([big], gsc.FP16), self.arrays.make([big], gsc.FP32)
        step = gsc.Step(self.library, gsc.SGD, params, grads)
        self.add("check fp16, 2^31 elements", self.arrays.time(lambda: step.check(self.arrays.stream)), 2 * big)
        self.add("SGD apply, 2^31 elements", self.arrays.time(lambda: step.apply(self.arrays.stream)), 10 * big)
        step.close()
        self.arrays.free()

    def optimizers(self, count):
        """Every optimizer over fp16 gradients, with a 16-bit copy."""
        for name, kind in OPTIMIZERS.items():
            params, grads = self.arrays.make([count] * 4, gsc.FP32), self.arrays.make([count] * 4, gsc.FP16)
            step = gsc.Step(self.library, kind, params, grads, self.arrays.make([count] * 4, gsc.FP16))
            size = 4 * count * (8 + 8 * gsc.STATES[kind] + 4)
            if kind == gsc.LAMB:
                size = 4 * count * 40
            self.add(f"{name} apply, fp16 grads and copy",
                     self.arrays.time(lambda step=step: step.apply(self.arrays.stream)), size)
            step.close()
            self.arrays.free()

    def tail(self, name, counts, half):
        """G4 to G8: the whole tail against torch's, eager and as a graph, on the device and on the host."""
        grads = self.arrays.make(counts, gsc.FP16 if half else gsc.FP32)
        params = self.arrays.make(counts, gsc.FP32)
        step = gsc.Step(self.library, gsc.ADAMW, params, grads, self.arrays.make(counts, gsc.FP16) if half else None)
        case = f"{name}, {'fp16 grads, 16-bit copy' if half else 'fp32 grads'}"
        run = lambda: step.tail(self.arrays.stream)  # noqa: E731
        stream = self.arrays.stream  # asking torch for it is not part of a step
        ours = {"eager": self.arrays.time(run), "host": self.arrays.time_host(lambda: step.tail(stream))}
        replay = self.arrays.capture(run)
        ours["graph"], ours["graph host"] = self.arrays.time(replay), self.arrays.time_host(replay)
        del replay
        step.close()
        self.arrays.free()
        theirs = {}
        try:
            run = torch_tail(self.arrays, counts, half)
            theirs = {"eager": self.arrays.time(run), "host": self.arrays.time_host(run)}
            theirs["graph"] = self.arrays.time(self.arrays.capture(run))
        except RuntimeError as error:
            print(f"torch: {case}: {error}", file=sys.stderr)
        self.arrays.free()
        size = sum(counts) * (30 if half else 32)
        for way, value in ours.items():
            more = {}
            if way in theirs:
                more = {"torch us": round(theirs[way], 2), "times torch": round(theirs[way] / value, 2)}
            self.add(f"tail, {way}: {case}", value, None if "host" in way else size, **more)

    def skipped(self, count):
        """G11: a step that finds an overflow."""
        torch = self.arrays.torch
        params, grads = self.arrays.make([count] * 4, gsc.FP32), self.arrays.make([count] * 4, gsc.FP16)
        self.arrays.kept[-1][3][count - 1] = torch.inf
        step = gsc.Step(self.library, gsc.ADAMW, params, grads)
        self.add("check, with an inf", self.arrays.time(lambda: step.check(self.arrays.stream)))
        self.add("skipped step", self.arrays.time(lambda: step.tail(self.arrays.stream)))
        step.close()
        self.arrays.free()

    def run(self):
        self.ceilings()
        self.passes(1 << 26)
        self.optimizers(1 << 26)
        self.skipped(1 << 26)
        for name, counts in shapes.SETS.items():
            for half in (False, True):
                if not self.late():
                    self.tail(name, counts, half)
        for tensors in (10, 100, 1000, 10000):
            for size in (4, 64, 1024, 16384, 65536):
                if tensors * size <= 1 << 28 and not self.late():
                    self.tail(f"{tensors} x {size}", [size] * tensors, True)

    def write(self, about):
        with open(os.path.join(self.out, "raw.json"), "w", encoding="utf-8") as file:
            json.dump({"about": about, "rows": self.rows}, file, indent=1)
        judged = goals(self.rows)
        columns = ["case", "us", "GB/s", "of copy", "torch us", "times torch"]
        with open(os.path.join(self.out, "table.md"), "w", encoding="utf-8") as file:
            file.write("".join(f"{key}: {value}  \n" for key, value in about.items()))
            file.write("\n| goal | case | asked for | measured | |\n|---|---|---|---|---|\n")
            for goal in judged:
                file.write("| " + " | ".join(map(str, goal)) + " |\n")
            file.write("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n")
            for row in self.rows:
                file.write("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |\n")
        bars = [(row["case"], row["times torch"]) for row in self.rows if "times torch" in row]
        with open(os.path.join(self.out, "times_torch.svg"), "w", encoding="utf-8") as file:
            file.write(plot(bars))


def goals(rows):
    """[goal, case, asked for, measured, "met" or "not met"] for every goal whose rows were measured."""
    by_case = {row["case"]: row for row in rows}
    result = []

    def judge(goal, case, column, limit, at_least):
        value = by_case.get(case, {}).get(column)
        if value is None:
            result.append([goal, case, f"{column} {'>=' if at_least else '<='} {limit}", "", "not measured"])
            return
        met = value >= limit if at_least else value <= limit
        wanted = f"{column} {'>=' if at_least else '<='} {limit}"
        result.append([goal, case, wanted, value, "met" if met else "not met"])

    for label in ("fp16", "bf16", "fp32"):
        judge("G1", f"check {label}", "of copy", 1.0, True)
        judge("G9", f"check {label} misaligned", "of copy", 0.85, True)
    judge("G2", "AdamW apply fp32 grads", "of copy", 0.92, True)
    judge("G9", "AdamW apply fp32 grads misaligned", "of copy", 0.78, True)
    judge("G3", "AdamW apply, fp16 grads and copy", "of copy", 0.9, True)
    for model in ("GPT-2 XL", "Llama 7B, 1 of 8"):
        for way in ("eager", "graph"):
            judge("G4", f"tail, {way}: {model}, fp32 grads", "times torch", 1.5, True)
            judge("G5", f"tail, {way}: {model}, fp16 grads, 16-bit copy", "times torch", 1.9, True)
    judge("G6", "tail, eager: ResNet-50, fp32 grads", "us", 230, False)
    judge("G6", "tail, host: ResNet-50, fp32 grads", "us", 15, False)
    judge("G7", "tail, eager: 1000 x 1024, fp32 grads", "us", 25, False)
    judge("G8", "tail, eager: 10000 x 64, fp32 grads", "us", 60, False)
    judge("G10", "tail, host: GPT-2 XL, fp32 grads", "us", 10, False)
    judge("G10", "tail, graph host: GPT-2 XL, fp32 grads", "us", 5, False)
    check = by_case.get("check, with an inf", {}).get("us")
    judge("G11", "skipped step", "us", round(1.05 * check + 6, 1) if check is not None else "1.05 stat + 6", False)
    judge("G12", "check fp16, 2^31 elements", "of copy", 1.0, True)
    judge("G12", "SGD apply, 2^31 elements", "of copy", 0.9, True)
    return result


def plot(bars):
    """Horizontal bars: how many times as fast as torch."""
    most = max([value for _, value in bars] + [1.0])
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{20 * len(bars) + 30}" '
             'font-family="sans-serif" font-size="12">', '<text x="10" y="16">times as fast as torch</text>']
    for i, (name, value) in enumerate(bars):
        y = 20 * i + 26
        lines.append(f'<text x="10" y="{y + 12}">{name}</text><rect x="430" y="{y}" height="15" fill="#4477aa" '
                     f'width="{400 * value / most:.1f}"/>'
                     f'<text x="{436 + 400 * value / most:.1f}" y="{y + 12}">{value}</text>')
    return "\n".join(lines + ["</svg>\n"])


def dry_run(library):
    arrays = NumpyArrays()
    for _name, kind in OPTIMIZERS.items():
        counts = [100, 7, 5000]
        step = gsc.Step(library, kind, arrays.make(counts, gsc.FP32, 1), arrays.make(counts, gsc.FP16),
                        arrays.make(counts, gsc.BF16))
        step.check(arrays.stream)
        step.apply(arrays.stream)
        step.tail(arrays.stream)
        assert step.scale(arrays.stream) == 65536.0
        step.close()
    assert len(shapes.resnet50()) == 161 and sum(shapes.resnet50()) == 25557032
    assert sum(shapes.SETS["GPT-2 124M"]) == 124439808 and sum(shapes.SETS["GPT-2 XL"]) == 1557611200
    measured = goals([{"case": "check fp16", "us": 1.0, "of copy": 1.25}, {"case": "check, with an inf", "us": 100.0},
                      {"case": "skipped step", "us": 112.0}])
    assert ["G1", "check fp16", "of copy >= 1.0", 1.25, "met"] in measured
    assert ["G11", "skipped step", "us <= 111.0", 112.0, "not met"] in measured
    assert {int(row[0][1:]) for row in measured} == set(range(1, 13))
    assert abs(sum(shapes.SETS["BERT-large"]) - 335e6) < 1e6 and abs(sum(shapes.SETS["T5-base"]) - 223e6) < 1e6
    assert plot([("a", 1.5), ("b", 2.0)]).count("<rect") == 2
    print("dry run: ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    library = gsc.Library(options.library, cuda=not options.dry_run)
    if options.dry_run:
        dry_run(library)
        return
    arrays = TorchArrays()
    torch = arrays.torch
    bench = Bench(arrays, library, options.out, options.seconds)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "CUDA of torch": torch.version.cuda,
             "library": library.build_info()}
    try:
        bench.run()
    finally:
        bench.write(about)


if __name__ == "__main__":
    main()
