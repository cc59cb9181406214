#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole tail of a mixed-precision step against PyTorch on the CPU, in one process and in turn.

  benchmarks/torch_tail.py [--library build/bench/lib/libgradscaler.so.1] [--quick | --verify] [--output peers.json]

Both take an AdamW step with unscaling and clipping on the same fp32 arrays: PyTorch by
_amp_foreach_non_finite_check_and_unscale_, clip_grad_norm_, its fused AdamW and _amp_update_scale_; the library by
gsc_scaler_clip_grad_norm and gsc_scaler_step_and_update: gpu/bench.py's contenders. Unscaling doubles the gradients and
clipping takes them back to norm 1, so every step finds the same. Before anything is timed, both are checked to take the
same step; --verify does only that. Exit status 77: left out, because PyTorch is missing.
"""
import argparse
import json
import pathlib
import sys
import time

try:
    import torch
except ImportError:
    print("torch_tail: left out, there is no module torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks/gpu"))
import bench  # noqa: E402
import library  # noqa: E402
import shapes  # noqa: E402

SCALE = 0.5
MODELS = {"1000x1024": shapes.SETS["1000 x 1024"], "10000x64": shapes.SETS["10000 x 64"],
          "resnet50": shapes.SETS["ResNet-50"], "gpt2_124m": shapes.SETS["GPT-2 124M"]}


class Ours(bench.Ours):
    def __init__(self, path, arrays, threads):
        self.library = library.Library(path, threads=threads)
        super().__init__(self.library, arrays)

    def tail(self):
        # The library leaves the gradients as they are; the scale is put back so that it does not grow.
        self.step_of.set_scale(SCALE, None)
        super().tail()

    def close(self):
        super().close()
        self.library.close()


def contenders(path, arrays, threads):
    """AdamW with PyTorch's defaults, over the same arrays."""
    rival = bench.Rival("torch fused", arrays)
    rival.inverse.fill_(1 / SCALE)
    return {"gradscaler": Ours(path, arrays, threads), "torch fused": rival}


def seconds_of(contender, calls):
    start = time.perf_counter()
    for _ in range(calls):
        contender.tail()
    return (time.perf_counter() - start) / calls


def compare(found, rounds, batch_seconds):
    """Seconds of a step in the fastest batch of each: disturbances only make a batch slower."""
    calls = {name: max(1, int(batch_seconds / seconds_of(c, 1))) for name, c in found.items()}
    seconds = {name: [] for name in found}
    order = list(found)
    for _ in range(rounds):
        for name in order:
            seconds[name].append(seconds_of(found[name], calls[name]))
        order.reverse()  # so that none always follows the one that leaves the least in the caches
    return {name: min(s) for name, s in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/bench/lib/libgradscaler.so.1")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--verify", action="store_true")
    arguments = parser.parse_args()
    arrays = bench.Arrays(torch, [1, 63, 1024, 40000], False, "cpu")
    bench.verify(contenders(arguments.library, arrays, 1), arrays, rtol=1e-5, atol=1e-6)
    if arguments.verify:
        return
    build = library.Library(arguments.library).build_info().decode()
    result = {"torch": torch.__version__, "gradscaler": build, "cases": []}
    for model, counts in MODELS.items():
        arrays = bench.Arrays(torch, counts, False, "cpu")
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found = contenders(arguments.library, arrays, threads)
            for contender in found.values():
                contender.tail()
            ours, theirs = compare(found, 3 if arguments.quick else 7, 0.01).values()
            found["gradscaler"].close()
            result["cases"].append({"model": model, "tensors": len(counts), "parameters": sum(counts),
                                    "threads": threads, "gradscaler_us": ours * 1e6, "torch_us": theirs * 1e6,
                                    "vs_torch": theirs / ours})
            print(f"{model}, {threads} thread(s): gradscaler {ours * 1e3:.3f} ms, torch {theirs * 1e3:.3f} ms"
                  f" ({theirs / ours:.2f}x)", flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
