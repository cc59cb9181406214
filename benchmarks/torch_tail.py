#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole tail of a mixed-precision step against PyTorch and NumPy on the CPU, in one process and in turn.

  benchmarks/torch_tail.py [--library build/bench/lib/libgradscaler.so.1] [--quick | --verify] [--output peers.json]

All three take an AdamW step with unscaling and clipping on the same fp32 arrays: PyTorch by
_amp_foreach_non_finite_check_and_unscale_, clip_grad_norm_, its fused AdamW and _amp_update_scale_; NumPy by
operations in place and with out=, block by block; the library by gsc_scaler_clip_grad_norm and
gsc_scaler_step_and_update. Unscaling doubles the gradients and clipping takes them back to their norm, so every step
finds the same. Before anything is timed, all three are checked to take the same step; --verify does only that. Exit
status 77: left out, with the reason, because a module is missing.
"""
import argparse
import json
import pathlib
import sys
import time

try:
    import numpy
    import torch
except ImportError as error:
    print(f"torch_tail: left out, there is no module {error.name}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks/gpu"))
import library  # noqa: E402
import shapes  # noqa: E402

LR, BETA1, BETA2, EPS, WEIGHT_DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-2
SCALE = 0.5
NUMPY_BLOCK = 1 << 17  # elements: a block of every array and both scratch arrays stay in a third-level cache


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


class NumPy:
    def __init__(self, arrays):
        self.norm, self.steps = arrays.norm, 0
        lists = (arrays.params, arrays.grads, arrays.exp_avg, arrays.exp_avg_sq)
        whole = [tuple(t.detach().numpy() for t in row) for row in zip(*lists, strict=True)]
        self.tensors = [tuple(a[i:i + NUMPY_BLOCK] for a in row) for row in whole
                        for i in range(0, row[0].size, NUMPY_BLOCK)]
        self.scratch = numpy.empty(NUMPY_BLOCK, numpy.float32), numpy.empty(NUMPY_BLOCK, numpy.float32)

    def step(self):
        finite, total = True, 0.0
        for _, g, _, _ in self.tensors:
            g *= numpy.float32(1 / SCALE)
            squares = float(numpy.dot(g, g))
            finite = finite and (numpy.isfinite(squares) or bool(numpy.isfinite(g).all()))
            total += squares
        if not finite:
            return
        clip = numpy.float32(min(1.0, self.norm / (total**0.5 + 1e-6)))
        self.steps += 1
        step_size = numpy.float32(LR / (1 - BETA1**self.steps))
        root = numpy.float32((1 - BETA2**self.steps)**0.5)
        for p, g, m, v in self.tensors:
            a, b = self.scratch[0][:p.size], self.scratch[1][:p.size]
            g *= clip
            p *= numpy.float32(1 - LR * WEIGHT_DECAY)
            m *= numpy.float32(BETA1)
            numpy.multiply(g, numpy.float32(1 - BETA1), out=a)
            m += a
            v *= numpy.float32(BETA2)
            numpy.multiply(g, g, out=a)
            a *= numpy.float32(1 - BETA2)
            v += a
            numpy.sqrt(v, out=b)
            b /= root
            b += numpy.float32(EPS)
            numpy.divide(m, b, out=a)
            a *= step_size
            p -= a


class Arrays:
    """Parameters, gradients and state, which all three work on in turn."""

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
    for make in (lambda a: Ours(path, a, 1), Torch, NumPy):
        arrays = Arrays([1, 63, 1024, 40000])
        contender = make(arrays)
        for _ in range(2):
            contender.step()
        results.append(torch.cat([p.detach() for p in arrays.params]))
    for name, result in zip(("PyTorch", "NumPy"), results[1:], strict=True):
        if not torch.allclose(results[0], result, rtol=1e-5, atol=1e-6):
            sys.exit(f"torch_tail: the library and {name} do not take the same step")


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
    result = {"torch": torch.__version__, "numpy": numpy.__version__, "numpy_block": NUMPY_BLOCK,
              "gradscaler": library.Library(arguments.library).build_info(), "cases": []}
    for model, counts in MODELS.items():
        arrays = Arrays(counts)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            contenders = {"gradscaler": Ours(arguments.library, arrays, threads), "torch": Torch(arrays)}
            if threads == 1:  # NumPy's array operations have one thread
                contenders["numpy"] = NumPy(arrays)
            for contender in contenders.values():
                contender.step()
            seconds = compare(contenders, 3 if arguments.quick else 7, 0.01)
            ratios = {name: s / seconds["gradscaler"] for name, s in seconds.items() if name != "gradscaler"}
            contenders["gradscaler"].close()
            case = {"model": model, "tensors": len(counts), "parameters": sum(counts), "threads": threads}
            case.update({f"{name}_us": s * 1e6 for name, s in seconds.items()})
            case.update({f"vs_{name}": ratio for name, ratio in ratios.items()})
            result["cases"].append(case)
            print(f"{model}, {threads} thread(s): " + ", ".join(
                f"{name} {s * 1e3:.3f} ms" + (f" ({ratios[name]:.2f}x)" if name in ratios else "")
                for name, s in seconds.items()), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
