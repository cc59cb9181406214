#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole tail of a mixed-precision step against PyTorch on the CPU, in one process and in turn.

  benchmarks/torch_tail.py [--library build/bench/lib/libgradscaler.so.1] [--quick | --verify] [--output peers.json]

Both take an AdamW step with unscaling and clipping on the same fp32 arrays: PyTorch by
_amp_foreach_non_finite_check_and_unscale_, clip_grad_norm_, its fused AdamW and _amp_update_scale_; the library by
gsc_scaler_clip_grad_norm and gsc_scaler_step_and_update. Unscaling doubles the gradients and clipping takes them back
to their norm, so every step finds the same. Before anything is timed, both are checked to take the same step; --verify
does only that. Exit status 77: left out, because PyTorch is missing.
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
import library  # noqa: E402
import shapes  # noqa: E402

LR, BETA1, BETA2, EPS, WEIGHT_DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-2
SCALE = 0.5
MODELS = {"1000x1024": shapes.SETS["1000 x 1024"], "10000x64": shapes.SETS["10000 x 64"],
          "resnet50": shapes.SETS["ResNet-50"], "gpt2_124m": shapes.SETS["GPT-2 124M"]}


class Ours:
    def __init__(self, path, arrays, threads):
        def of(tensors):
            return [(t.data_ptr(), t.numel(), library.FP32) for t in tensors]

        self.library, self.norm = library.Library(path, threads=threads), arrays.norm
        # AdamW with PyTorch's defaults, which the constants above are.
        self.tail = library.Step(self.library, library.ADAMW, of(arrays.params), of(arrays.grads),
                                 states=[of(arrays.exp_avg), of(arrays.exp_avg_sq)])

    def step(self):
        # The library leaves the gradients as they are; the scale is put back so that it does not grow.
        self.tail.set_scale(SCALE, None)
        self.tail.tail(None, self.norm)

    def close(self):
        self.tail.close()
        self.library.close()


class Torch:
    def __init__(self, arrays):
        self.params, self.grads, self.norm = arrays.params, arrays.grads, arrays.norm
        self.optimizer = torch.optim.AdamW(self.params, lr=LR, betas=(BETA1, BETA2), eps=EPS,
                                           weight_decay=WEIGHT_DECAY, fused=True)
        for i, param in enumerate(self.params):
            param.grad = self.grads[i]
            self.optimizer.state[param] = {"step": torch.zeros(()), "exp_avg": arrays.exp_avg[i],
                                           "exp_avg_sq": arrays.exp_avg_sq[i]}
        self.scale, self.tracker = torch.full((), SCALE), torch.zeros((), dtype=torch.int32)
        self.inv_scale, self.found_inf = torch.full((), 1 / SCALE), torch.zeros(())

    @torch.no_grad()
    def step(self):
        self.found_inf.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(self.grads, self.found_inf, self.inv_scale)
        torch.nn.utils.clip_grad_norm_(self.params, self.norm, foreach=True)
        # As torch.amp.GradScaler.step does for an optimizer that takes the skip into its own kernel.
        self.optimizer.grad_scale, self.optimizer.found_inf = None, self.found_inf
        self.optimizer.step()
        torch._amp_update_scale_(self.scale, self.tracker, self.found_inf, 2.0, 0.5, 2**30)


class Arrays:
    """Parameters, gradients and state, which both work on in turn."""

    def __init__(self, shapes):
        generator = torch.Generator().manual_seed(1)
        self.params = [torch.nn.Parameter(torch.randn(n, generator=generator)) for n in shapes]
        self.grads = [torch.randn(n, generator=generator) for n in shapes]
        self.exp_avg = [torch.zeros(n) for n in shapes]
        self.exp_avg_sq = [torch.zeros(n) for n in shapes]
        self.norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in self.grads])))


def verify(path):
    """Two steps of each from the same start must end at the same parameters."""
    results = []
    for make in (lambda a: Ours(path, a, 1), Torch):
        arrays = Arrays([1, 63, 1024, 40000])
        contender = make(arrays)
        for _ in range(2):
            contender.step()
        results.append(torch.cat([p.detach() for p in arrays.params]))
    if not torch.allclose(*results, rtol=1e-5, atol=1e-6):
        sys.exit("torch_tail: the library and PyTorch do not take the same step")


def seconds_of(contender, calls):
    start = time.perf_counter()
    for _ in range(calls):
        contender.step()
    return (time.perf_counter() - start) / calls


def compare(contenders, rounds, batch_seconds):
    """Seconds of a step in the fastest batch of each: disturbances only make a batch slower."""
    calls = {name: max(1, int(batch_seconds / seconds_of(c, 1))) for name, c in contenders.items()}
    seconds = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        for name in order:
            seconds[name].append(seconds_of(contenders[name], calls[name]))
        order.reverse()  # so that none always follows the one that leaves the least in the caches
    return {name: min(s) for name, s in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/bench/lib/libgradscaler.so.1")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--verify", action="store_true")
    arguments = parser.parse_args()
    verify(arguments.library)
    if arguments.verify:
        return
    result = {"torch": torch.__version__, "gradscaler": library.Library(arguments.library).build_info(), "cases": []}
    for model, counts in MODELS.items():
        arrays = Arrays(counts)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            contenders = {"gradscaler": Ours(arguments.library, arrays, threads), "torch": Torch(arrays)}
            for contender in contenders.values():
                contender.step()
            seconds = compare(contenders, 3 if arguments.quick else 7, 0.01)
            ours, theirs = seconds.values()
            contenders["gradscaler"].close()
            result["cases"].append({"model": model, "tensors": len(counts), "parameters": sum(counts),
                                    "threads": threads, "gradscaler_us": ours * 1e6, "torch_us": theirs * 1e6,
                                    "vs_torch": theirs / ours})
            print(f"{model}, {threads} thread(s): gradscaler {ours * 1e3:.3f} ms, torch {theirs * 1e3:.3f} ms"
                  f" ({theirs / ours:.2f}x)", flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
