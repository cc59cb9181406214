#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close optimizer state in 16 and 8 bits stays to state in fp32, for every kind of optimizer, on the CPU.

  benchmarks/state_quality.py [--library LIBRARY] [--only TEXT...] [--output quality.json]    # minutes
  benchmarks/state_quality.py --quick --check    # a test: fewer elements and seeds, without other packages
  benchmarks/state_quality.py --tables quality.json

A row is a program: gradients of one sort, on which an optimizer with each format of state takes the same steps. It is
AdamW with its defaults and no weight decay unless the row says otherwise. Its number is of the movement of the weights,
or of the state as gsc_ops_convert_state reads it: a ratio to fp32's unless it has a unit. `±` is the standard error,
from sixteen parts of the elements or from the seeds. A goal is missed, marked `!`, if the number is beyond it by more
than two standard errors; --check names each and exits with 1. AdamW's rows also have the 8-bit AdamW of bitsandbytes,
torchao and FlashOptim, if they are installed; one that does not run here is left out with a line.
"""
import argparse
import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import sys
import time
import typing

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # torchao would compile its steps, for half a minute each

import numpy as np  # noqa: E402
import records  # noqa: E402
import table  # noqa: E402
from library import Library  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bindings/generate"))
import api  # noqa: E402

FORMATS = {"fp32": 0, "16bit": 1, "8bit": 2}
#: Name: module, class, the options that it needs, and the names of its two means.
RIVALS = {"bitsandbytes": ("bitsandbytes.optim", "AdamW8bit", {"min_8bit_size": 1}, ("state1", "state2")),
          "torchao": ("torchao.optim", "AdamW8bit", {}, ("exp_avg", "exp_avg_sq")),
          "flashoptim": ("flashoptim", "FlashAdamW", {}, ("exp_avg", "exp_avg_sq"))}
BLOCK, PARTS, LR = 32, 16, 1e-3
EVERY_KIND = "every kind"
#: What a slot of 8 bits may reach where the gradients of a block are spread over three decades. Adadelta divides by a
#: mean, whose inverse is greater on average if it is rounded, and takes the size of its steps from its earlier ones.
LOOSER = {"acc_delta": 1.1}


# -- Optimizers over one array


class Column:
    """An optimizer over an array of weights. They are put back to their start every few steps, unless `stays`: so they
    do not grow, which would round their steps, nor change the norms of layers."""

    def __init__(self, grads, stays, start):
        self.grads, self.stays, self.start = grads, stays, start
        self.weights, self.before, self.steps = np.full_like(grads, start), np.zeros(grads.size), 0

    def step(self):
        self.apply()
        self.steps += 1
        if not self.stays and self.steps % 16 == 0:
            self.before += self.weights - self.start
            self.weights[:] = self.start

    def place(self):
        """How far the weights have come, in fp64."""
        return self.before + (self.weights - self.start)

    def means(self):
        return np.stack([self.state(0), self.state(1)])


class Ours(Column):
    def __init__(self, library, kind, state_format, grads, stays=False, start=0.0, flags=(), **options):
        super().__init__(grads, stays, start)
        self.library, self.optimizer = library, ctypes.c_void_p()
        chosen = library.struct("gsc_optimizer_options")
        library.must(library.optimizer_options_init(ctypes.byref(chosen), chosen.struct_size, kind))
        chosen.state_format = state_format
        for name, value in options.items():
            setattr(chosen, name, value)
        for flag in flags:
            chosen.flags |= getattr(library, f"OPTIMIZER_{flag.upper()}")
        self.lists = [library.list([(array.ctypes.data, array.size, library.FP32)]) for array in (self.weights, grads)]
        library.must(library.optimizer_create(library.context, ctypes.byref(chosen), *self.lists, None, None, 0,
                                              ctypes.byref(self.optimizer)))

    def apply(self):
        self.library.must(self.library.optimizer_step(self.optimizer, None))

    def set_lr(self, lr):
        self.library.must(self.library.optimizer_set_lr(self.optimizer, 0, lr, None))

    def slot(self, number):
        """The tensor of a slot, and its name."""
        lib, slots, name, tensor = self.library, ctypes.c_void_p(), ctypes.c_char_p(), self.library.gsc_tensor()
        lib.must(lib.optimizer_get_state(self.optimizer, number, ctypes.byref(slots), ctypes.byref(name)))
        lib.must(lib.tensor_list_get_tensor(slots, 0, ctypes.byref(tensor)))
        return tensor, name.value.decode()

    def coded(self):
        """Number: name, of the slots in fewer bits than fp32."""
        count = ctypes.c_int32()
        self.library.must(self.library.optimizer_get_state_count(self.optimizer, ctypes.byref(count)))
        slots = {number: self.slot(number) for number in range(count.value)}
        return {number: name for number, (tensor, name) in slots.items()
                if tensor.dtype not in (self.library.FP32, self.library.FP64)}

    def state(self, number):
        lib, (tensor, _) = self.library, self.slot(number)
        out = np.zeros(tensor.count, np.float32)
        into = lib.gsc_tensor(data=out.ctypes.data, count=out.size, dtype=lib.FP32)
        lib.must(lib.ops_convert_state(lib.context, ctypes.byref(tensor), None, ctypes.byref(into), 1, None))
        return out

    def close(self):
        self.library.optimizer_destroy(self.optimizer)
        for tensors in self.lists:
            self.library.tensor_list_destroy(tensors)


class Rival(Column):
    """AdamW of another package, through PyTorch, on the same arrays."""

    def __init__(self, name, grads, stays=False, lr=LR, beta1=0.9, beta2=0.999, eps=1e-8):
        import torch

        super().__init__(grads, stays, 0.0)
        torch.set_num_threads(1)
        module, kind, options, self.names = RIVALS[name]
        self.param = torch.nn.Parameter(torch.from_numpy(self.weights))
        self.param.grad = torch.from_numpy(grads)
        self.optimizer = getattr(importlib.import_module(module), kind)(
            [self.param], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=0.0, **options)

    def apply(self):
        self.optimizer.step()

    def state(self, number):
        entry = self.optimizer.state[self.param]
        mean = entry[self.names[number]]
        if hasattr(self.optimizer, "get_state_buffer"):  # bitsandbytes
            from bitsandbytes.functional import dequantize_blockwise
            mean = dequantize_blockwise(mean, code=entry[f"qmap{number + 1}"], absmax=entry[f"absmax{number + 1}"],
                                        blocksize=256)
        elif type(mean) is not type(self.param.data):
            mean = mean.dequantize()
        return mean.detach().float().numpy().ravel()

    def close(self):
        pass


def rivals():
    """The other packages that take a step here, and why the rest do not."""
    able, left_out = [], {}
    for name in RIVALS:
        try:
            column = Rival(name, np.ones(4096, np.float32))
            column.step()
            column.means()
            able.append(name)
        except Exception as error:  # whatever a package raises where it cannot run
            left_out[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return able, left_out


class Run:
    """Optimizers by their names, which step on the same gradients."""

    def __init__(self, columns, grads):
        self.columns, self.grads, self.steps = columns, grads, 0

    def go(self, gradient, at, read=Column.place):
        """Steps until the last of `at`, on gradient(step), counted from 1. By name, what `read` finds at each of
        `at`."""
        some = {name: [] for name in self.columns}
        while self.steps < max(at):
            self.steps += 1
            self.grads[:] = gradient(self.steps)
            for column in self.columns.values():
                column.step()
            if self.steps in at:
                for name, column in self.columns.items():
                    some[name].append(read(column))
        return {name: np.stack(arrays) for name, arrays in some.items()}


class Bench:
    """Makes optimizers for the rows."""

    def __init__(self, library, quick, names):
        self.library, self.quick, self.rivals = library, quick, names

    def pick(self, quick, whole):
        return quick if self.quick else whole

    @contextlib.contextmanager
    def run(self, elements, kind="ADAMW", flags=(), **options):
        """One optimizer for each format, and for AdamW the other packages'."""
        grads, number = np.zeros(elements, np.float32), getattr(self.library, kind)
        columns = {name: Ours(self.library, number, state, grads, flags=flags, weight_decay=0.0, **options)
                   for name, state in FORMATS.items()}
        if kind == "ADAMW" and not flags:
            columns |= {name: Rival(name, grads, **options) for name in self.rivals}
        yield Run(columns, grads)
        for column in columns.values():
            column.close()


# -- Numbers of arrays


class Found(typing.NamedTuple):
    """A number by column, its standard errors, and its goals: (least, greatest) by format."""
    what: str
    values: dict
    errors: dict
    goals: dict

    def missed(self):
        return [name for name, (low, high) in self.goals.items()
                if not low - 2 * self.errors[name] <= self.values[name] <= high + 2 * self.errors[name]]


def near(of16, of8):
    """Goals around 1."""
    return {"16bit": (1 - of16, 1 + of16), "8bit": (1 - of8, 1 + of8)}


def most(of16, of8):
    return {"16bit": (0.0, of16), "8bit": (0.0, of8)}


def found(what, measure, arrays, goals):
    """measure(array, fp32's array) of each column's elements, which are along the last axis."""
    full = arrays["fp32"]
    parts = [slice(i * full.shape[-1] // PARTS, (i + 1) * full.shape[-1] // PARTS) for i in range(PARTS)]
    values = {name: float(measure(array, full)) for name, array in arrays.items()}
    errors = {name: float(np.std([measure(array[..., part], full[..., part]) for part in parts], ddof=1) / PARTS ** 0.5)
              for name, array in arrays.items()}
    return Found(what, values, errors, goals)


def of_seeds(what, numbers, goals):
    """`numbers`: by column, one for each seed."""
    return Found(what, {name: float(np.mean(some)) for name, some in numbers.items()},
                 {name: float(np.std(some, ddof=1) / len(some) ** 0.5) for name, some in numbers.items()}, goals)


def each(read, arrays):
    return {name: read(array) for name, array in arrays.items()}


def mean(mine, _):
    return mine.mean(dtype=np.float64)


def mean_magnitude(mine, _):
    return np.abs(mine).mean(dtype=np.float64)


def ratio(mine, full):
    return mine.mean(dtype=np.float64) / full.mean(dtype=np.float64)


def rms_of(array, axis=None):
    return np.sqrt(np.square(array, dtype=np.float64).mean(axis))


def rms(mine, full):
    return rms_of(mine) / rms_of(full)


def correlation(mine, full):
    return np.corrcoef(mine.ravel(), full.ravel())[0, 1]


def quantile_of_roots(share):
    return lambda mine, full: np.quantile(np.sqrt(mine / full), share)


def median(mine, full):
    """The mean ratio of the quantiles about the median, which by itself is a code: the next is up to 12 % away."""
    shares, known = np.linspace(0.4, 0.6, 41), full != 0
    return (np.quantile(mine[known], shares) / np.quantile(full[known], shares)).mean()


def by_place(of):
    """The mean ratio of of(array) to fp32's at the places of a block, each of which has its own size of gradients."""
    def measure(mine, full):
        both = [of(array.reshape(-1, array.shape[-1] // BLOCK, BLOCK).astype(np.float64)) for array in (mine, full)]
        return (both[0] / both[1]).mean()
    return measure


mean_by_place = by_place(lambda array: array.mean((0, 1)))
rms_by_place = by_place(lambda array: rms_of(array, (0, 1)))


def normal(elements, seed=0):
    """Calls return new noise of deviation 1."""
    random = np.random.default_rng(seed)
    return lambda: random.standard_normal(elements, np.float32)


def decades(elements, count):
    """Sizes of elements, the same in each block, from 1 down by so many decades."""
    return np.tile(10.0 ** np.linspace(0, -count, BLOCK), elements // BLOCK).astype(np.float32)


# -- The rows


def constant(bench, value, noise=0.0):
    elements = bench.pick(512, 4096)
    draw = normal(elements)
    with bench.run(elements) as run:
        places = run.go(lambda step: value + noise * draw() if noise else value, (10000, 20000))
    yield found("step, lr", mean, each(lambda place: (place[0] - place[1]) / 10000 / LR, places), near(0.01, 0.02))


def halved(bench):
    with bench.run(bench.pick(512, 4096)) as run:
        means = run.go(lambda step: 2.0 if step <= 3000 else 1.0, (20000,), Column.means)
    for number, name in enumerate(("exp_avg", "exp_avg_sq")):
        yield found(f"stored {name}", mean, each(lambda array, at=number: array[0, at], means), near(0.02, 0.04))


def idle(bench, noise):
    """One element of a block has gradients; the others had small ones in 50 steps."""
    elements = bench.pick(1024, 4096)
    live, draw = np.arange(elements) % BLOCK == 0, normal(elements)

    def gradient(step):
        some = draw()
        return np.where(live, 1 + noise * some, 1e-2 * (1 + 0.5 * some) if step <= 50 else 0)

    with bench.run(elements) as run:
        places = run.go(gradient, (200, 20000))
    yield found("movement of the idle, lr", mean_magnitude,
                each(lambda place: ((place[1] - place[0]) / LR)[~live], places), most(0.01, 1.0))


def slow_mean(bench):
    elements = bench.pick(1024, 4096)
    draw = normal(elements)
    with bench.run(elements, "ADEMAMIX") as run:
        slow = run.go(lambda step: draw(), range(6000, 8001, 100), lambda column: column.state(2))
    yield found("exp_avg_slow, rms", rms, slow, near(0.01, 0.03))
    yield found("exp_avg_slow, correlation", correlation, slow, {name: (0.98, 1.0) for name in ("16bit", "8bit")})


def slow_movement(bench, kind, **options):
    elements = bench.pick(1024, 4096)
    draw = normal(elements)
    with bench.run(elements, kind, **options) as run:
        places = run.go(lambda step: draw(), range(4000, 6001, 500))
    yield found("movement, rms", rms, each(lambda place: np.diff(place, axis=0), places), near(0.01, 0.03))


def quadratic(bench):
    """Curvatures over two decades, noise, and a rate that ends at 0. The ratio of a seed deviates by 0.013: so four
    seeds tell 2 %."""
    elements, steps, seeds, lr = 512, 2000, bench.pick(4, 16), 1e-2
    curvature, ratios = decades(elements, 2), {name: [] for name in FORMATS}
    for seed in range(seeds):
        losses = {}
        for name, state in FORMATS.items():
            draw, grads = normal(elements, seed), np.zeros(elements, np.float32)
            column = Ours(bench.library, bench.library.ADEMAMIX, state, grads, True, 1.0, weight_decay=0.0)
            for step in range(steps):
                grads[:] = curvature * (column.weights + 0.3 * draw())
                column.set_lr(lr * (0.5 + 0.5 * np.cos(np.pi * step / steps)))
                column.step()
            losses[name] = np.sum(curvature * np.square(column.weights, dtype=np.float64))
            column.close()
        for name, loss in losses.items():
            ratios[name].append(loss / losses["fp32"])
    yield of_seeds(f"final loss, {seeds} seeds", ratios, most(1.02, 1.02))


def spread(bench, count, least):
    elements, steps = bench.pick(1024, 4096), 3000
    size, draw = decades(elements, count), normal(elements)
    with bench.run(elements) as run:
        places = run.go(lambda step: size * (1 + draw()), (steps,))
    smallest = np.arange(elements) % BLOCK >= BLOCK * 3 // 4
    yield found("movement of the smallest quarter", ratio, each(lambda place: place[0][smallest], places),
                {"16bit": (0.97, 1.05), "8bit": (least, 1.05)})


def amsgrad(bench):
    """A maximum keeps each error of rounding that is above the value."""
    elements = bench.pick(512, 4096)
    size, draw = decades(elements, 3), normal(elements)
    with bench.run(elements, flags=("amsgrad",)) as run:
        places = run.go(lambda step: size * (1 + draw()), (10000, 20000))
    yield found("movement", mean_by_place, each(lambda place: place[1] - place[0], places),
                {"16bit": (0.99, 1.01), "8bit": (0.97, 1.03)})


class Perceptron:
    """Two layers of rectifiers and a linear one, over arrays of weights and gradients."""
    SIZES = (64, 64, 64, 1)
    ELEMENTS = 8704  # in whole blocks, also of other packages

    def __init__(self, weights, grads):
        self.weights, self.grads = self.layers(weights), self.layers(grads)

    def layers(self, array):
        layers, at = [], 0
        for inputs, outputs in zip(self.SIZES[:-1], self.SIZES[1:], strict=True):
            end = at + inputs * outputs
            layers.append((array[at:end].reshape(outputs, inputs), array[end:end + outputs]))
            at = end + outputs
        return layers

    def start(self, random):
        for matrix, _ in self.weights:
            matrix[:] = random.standard_normal(matrix.shape) / np.sqrt(matrix.shape[1])

    def outputs(self, x):
        """The input, and the outputs of each layer."""
        some = [x]
        for matrix, bias in self.weights:
            x = x @ matrix.T + bias
            some.append(x if bias is self.weights[-1][1] else np.maximum(x, 0, out=x))
        return some

    def backward(self, x, y):
        outputs = self.outputs(x)
        slope = (outputs[-1] - y) * np.float32(2 / len(x))
        for i in reversed(range(len(self.weights))):
            matrix, bias = self.grads[i]
            matrix[:], bias[:] = slope.T @ outputs[i], slope.sum(0)
            slope = slope @ self.weights[i][0] * (outputs[i] > 0)

    def loss(self, x, y):
        return float(np.square(self.outputs(x)[-1] - y).mean())


def trained(make, seed, examples=2048, batch=128, steps=1000):
    """The loss on the training set, whose features have sizes over three decades. make(grads) makes the optimizer."""
    random, inputs = np.random.default_rng(seed), Perceptron.SIZES[0]
    features, first, second = (random.standard_normal(shape, np.float32)
                               for shape in ((examples, inputs), (inputs, 16), (16, 1)))
    y = np.tanh(features @ first / 4) @ second
    y /= y.std()
    x = features * random.permutation(10 ** np.linspace(-1.5, 1.5, inputs)).astype(np.float32)
    grads = np.zeros(Perceptron.ELEMENTS, np.float32)
    column = make(grads)
    model = Perceptron(column.weights, grads)
    model.start(random)
    for _ in range(steps):
        chosen = random.integers(0, examples, batch)
        model.backward(x[chosen], y[chosen])
        column.step()
    column.close()
    return model.loss(x, y)


def perceptron(bench):
    lib, seeds = bench.library, range(bench.pick(4, 16))
    makes = {name: lambda grads, state=state: Ours(lib, lib.ADAMW, state, grads, True, weight_decay=0.0)
             for name, state in FORMATS.items()}
    makes |= {name: lambda grads, name=name: Rival(name, grads, True) for name in bench.rivals}
    losses = {name: np.array([trained(make, seed) for seed in seeds]) for name, make in makes.items()}
    yield of_seeds("training loss itself", losses, {})
    yield of_seeds("training loss", each(lambda some: some / losses["fp32"], losses), most(1.033, 1.033))


def sparse(bench):
    elements = bench.pick(2048, 8192)
    draw, random = normal(elements), np.random.default_rng(1)
    with bench.run(elements) as run:
        first = run.go(lambda step: np.where(random.random(elements, np.float32) < 0.01, draw(), 0),
                       range(1000, 2001, 50), lambda column: np.abs(column.state(0)))
    # A mean is rounded at some 70 steps from one gradient to the next: right on average, less than that in the middle.
    yield found("magnitude of exp_avg, mean", ratio, first, near(0.01, 0.03))
    yield found("magnitude of exp_avg, median", median, first, near(0.01, 0.05))


def roots(bench, factor, steps, of16, of8):
    """The root of the second moment, after 3000 steps and more of gradients that are smaller by a factor."""
    elements = bench.pick(2048, 16384)
    draw = normal(elements)
    with bench.run(elements) as run:
        second = run.go(lambda step: draw() * (1.0 if step <= 3000 else factor), (steps,),
                        lambda column: column.state(1))
    for share in (0.01, 0.99):
        yield found(f"root of exp_avg_sq, p{100 * share:.0f}", quantile_of_roots(share), second,
                    {"16bit": of16, "8bit": of8})


def tiny(bench):
    """The second moment is subnormal in fp32."""
    elements = bench.pick(1024, 4096)
    draw = normal(elements)
    with bench.run(elements, eps=1e-30) as run:
        places = run.go(lambda step: 1e-20 * (1 + draw()), (2000, 4000))
    yield found("movement", ratio, each(lambda place: place[1] - place[0], places),
                {name: (1 / 1.1, 1.1) for name in ("16bit", "8bit")})


# -- Every kind


def variants(kind):
    """Options with which a kind is measured, by what to call them: its defaults, with momentum if a slot needs that,
    and with each of its flags."""
    options = {"momentum": 0.9} if any(slot.get("if") == "momentum" for slot in kind.slots) else {}
    some = {"": options} | {f" {flag}": {**options, "flags": (flag,)} for flag in kind.flags
                            if flag != "decoupled_weight_decay"}
    return some | {" without momentum": {"momentum": 0.0}} if options else some


def optimizers(bench, grads):
    """(kind and variant, format): optimizer, of all that have codes in 8 bits."""
    columns = {}
    for kind in api.load(ROOT).kinds:
        stays = any(slot["holds"] == "average" for slot in kind.slots)  # its step knows where the weights were
        for variant, options in variants(kind).items():
            some = {name: Ours(bench.library, kind.value, state, grads, stays, 1.0, weight_decay=0.0, **options)
                    for name, state in FORMATS.items()}
            if some["8bit"].coded():
                columns |= {(kind.name + variant, name): column for name, column in some.items()}
            else:
                for column in some.values():
                    column.close()
    return columns


def kinds(bench):
    elements, steps = bench.pick(1024, 4096), bench.pick(2000, 3000)
    size, draw = decades(elements, 3), normal(elements)
    programs = {"drift": lambda step: 0.3 + draw(), "constant": lambda step: 1.0,
                "spread": lambda step: size * (1 + draw())}
    for program, gradient in programs.items():
        grads = np.zeros(elements, np.float32)
        columns = optimizers(bench, grads)
        coded = {name: columns[name, "8bit"].coded() for name, _ in columns}
        run, state = Run(columns, grads), {key: [] for key in columns}
        for at in range(steps // 2, steps + 1, steps // 20):
            places = run.go(gradient, (at,))
            for key, column in columns.items():
                state[key].append([column.state(number) for number in coded[key[0]]])
        for name, slots in coded.items():
            yield found(f"{name}, {program}: movement", mean_by_place,
                        {label: places[name, label] for label in FORMATS}, near(0.01, 0.03))
            for i, slot in enumerate(slots.values()):
                goals = near(0.01, 0.03)
                if program == "spread" and slot in LOOSER:
                    goals["8bit"] = (0.97, LOOSER[slot])
                yield found(f"{name}, {program}: rms of {slot}", rms_by_place,
                            {label: np.stack([some[i] for some in state[name, label]]) for label in FORMATS}, goals)
        for column in columns.values():
            column.close()


ROWS = {"gradient 1": lambda bench: constant(bench, 1.0),
        "gradient 0.77": lambda bench: constant(bench, 0.77),
        "gradient 2, then 1": halved,
        "gradient 1, 1 % noise": lambda bench: constant(bench, 1.0, 0.01),
        "idle beside gradient 1": lambda bench: idle(bench, 0.0),
        "idle beside 1 + noise": lambda bench: idle(bench, 1.0),
        "noise, AdEMAMix": slow_mean,
        "noise, beta1 0.999, beta2 0.9999": lambda bench: slow_movement(bench, "ADAMW", beta1=0.999, beta2=0.9999),
        "noise, SGD momentum 0.999": lambda bench: slow_movement(bench, "SGD", momentum=0.999),
        "noisy quadratic, AdEMAMix": quadratic,
        "spread over 3 decades": lambda bench: spread(bench, 3, 0.95),
        "spread over 4 decades": lambda bench: spread(bench, 4, 0.8),
        "spread over 5 decades": lambda bench: spread(bench, 5, 0.5),
        "spread over 3 decades, AMSGrad": amsgrad,
        "perceptron, features not normalised": perceptron,
        "99 % of gradients zero": sparse,
        "noise": lambda bench: roots(bench, 1.0, 3000, (0.99, 1.01), (0.92, 1.08)),
        "noise, then 1000 times less": lambda bench: roots(bench, 1e-3, 6000, (1 / 1.05, 1.05), (0.85, 1.18)),
        "gradients of 1e-20": tiny,
        EVERY_KIND: kinds}


# -- The table


def found_in(row):
    return Found(*(row[field] for field in Found._fields))


def cell(some, name):
    if name not in some.values:
        return ""
    value, error = some.values[name], some.errors[name]
    return f"{value:.4g}" + (f" ± {error:.1g}" if error > 5e-4 * abs(value) else "") + " !" * (name in some.missed())


def tables(results):
    context, names = results["context"], [*FORMATS, *results["context"]["rivals"]]
    lines = [f"{context['processor']}, {context['form']} form, {context['seconds']} s, {context['date']}",
             *(f"{name} is left out: {why}" for name, why in context["left out"].items()), "",
             "| gradients | what | " + " | ".join(names) + " | goals |",
             "| --- | --- |" + " ---: |" * len(names) + " --- |"]
    close = 0
    for row in results["rows"]:
        some = found_in(row)
        if row["row"] == EVERY_KIND and all(abs(value - 1) < 0.01 for value in some.values.values()):
            close += 1
            continue
        goals = ", ".join(f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in some.goals.items())
        cells = " | ".join(cell(some, name) for name in names)
        lines.append(f"| {row['row']} | {some.what} | {cells} | {goals} |")
    return "\n".join(lines + ["", f"{close} more numbers of every kind are within 1 % of fp32's."] * (close > 0))


def misses(rows):
    for row in rows:
        some = found_in(row)
        for name in some.missed():
            low, high = some.goals[name]
            yield f"{row['row']}, {some.what}, {name}: {some.values[name]:.4g}, the goal is {low:.4g} to {high:.4g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=ROOT / "build/dev/lib/libgradscaler.so")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    able, left_out = ([], {}) if arguments.quick else rivals()
    library, begin = Library(arguments.library, threads=1), time.perf_counter()
    bench = Bench(library, arguments.quick, able)
    rows = [{"row": name, **some._asdict()} for name, row in ROWS.items()
            if not arguments.only or any(text in name for text in arguments.only) for some in row(bench)]
    library.close()
    context = {"processor": table.processor(), "form": "quick" if arguments.quick else "whole",
               "seconds": round(time.perf_counter() - begin), "date": time.strftime("%Y-%m-%d"),
               "rivals": able, "left out": left_out}
    results = {"context": context, "rows": rows}
    if arguments.output:
        arguments.output.write_text(records.laid_out(results) + "\n")
    print(tables(results))
    if arguments.check:
        sys.exit("\n".join(misses(rows)) or 0)


if __name__ == "__main__":
    main()
