# SPDX-License-Identifier: Apache-2.0
"""The optimizers of torch.optim in fp32 against PyTorch's single-tensor path (foreach=False, fused=False), 1000 steps.

The formulas are PyTorch's, operation for operation, so parameters and state have the same bits after every step. That
is asserted with PyTorch's square root rounded to nearest. As it comes, in builds with MKL, one root in five is off by
an ulp; what that makes of the parameters is asserted too. SGD and Adamax take no roots and have the same bits either
way. RAdam has PyTorch's state, but multiplies by one coefficient where PyTorch multiplies by four and a reciprocal.

An ulp of a trajectory is one at the largest magnitude that the parameter has had on its way: what a root's ulp moved
there does not shrink when the parameter crosses zero.
"""

import copy
import itertools
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its optimizers cannot be compared with")

import gradscaler as gs  # noqa: E402
import gradscaler.torch as gradscaler_torch  # noqa: E402
from conftest import ulp  # noqa: E402

COUNT = 2048
CHECKPOINTS = (1, 10, 1000)
# Twice as many ulps for Adadelta, which takes two roots, and for RMSprop's momentum, which adds them up.
LIMIT = {1: 4, 10: 4, 1000: 8}
CASES = [
    ("SGD", 1e-2, {}),
    ("SGD", 1e-2, {"weight_decay": 0.1}),
    ("SGD", 1e-2, {"momentum": 0.9}),
    ("SGD", 1e-2, {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("SGD", 1e-2, {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", 1e-3, {}),
    ("Adam", 1e-3, {"amsgrad": True}),
    ("Adam", 1e-2, {"weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}),
    ("Adam", 1e-3, {"weight_decay": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", 1e-3, {}),
    ("AdamW", 1e-3, {"weight_decay": 0.0}),
    ("AdamW", 1e-3, {"amsgrad": True}),
    ("AdamW", 1e-2, {"weight_decay": 0.1, "maximize": True}),
    ("Adagrad", 1e-2, {}),
    ("Adagrad", 1e-2, {"lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("Adagrad", 1e-2, {"weight_decay": 0.01, "maximize": True}),
    ("RMSprop", 1e-3, {}),
    ("RMSprop", 1e-3, {"alpha": 0.9, "momentum": 0.9, "weight_decay": 0.01}),
    ("RMSprop", 1e-3, {"centered": True, "maximize": True}),
    ("RMSprop", 1e-3, {"centered": True, "momentum": 0.9, "eps": 1e-3}),
    ("Adadelta", 1.0, {}),
    ("Adadelta", 1.0, {"rho": 0.95, "weight_decay": 0.01, "maximize": True}),
    ("Adamax", 2e-3, {}),
    ("Adamax", 2e-3, {"weight_decay": 0.01, "betas": (0.8, 0.9), "maximize": True}),
    ("NAdam", 2e-3, {}),
    ("NAdam", 2e-3, {"weight_decay": 0.01, "decoupled_weight_decay": True, "momentum_decay": 0.5}),
    ("NAdam", 2e-3, {"weight_decay": 0.01, "betas": (0.99, 0.99), "maximize": True}),
    ("RAdam", 1e-3, {}),
    ("RAdam", 1e-3, {"weight_decay": 0.01, "betas": (0.8, 0.9), "maximize": True}),
    ("RAdam", 1e-3, {"weight_decay": 0.01, "decoupled_weight_decay": True}),
]
SAME_STATE_ALONE = ("RAdam",)


def title(case):
    kind, _, options = case
    return " ".join([kind, *(key if value is True else f"{key}={value}" for key, value in options.items())])


# Reference packages of PyPI: arguments there that are called otherwise here, besides these.
PACKAGES = {"AdEMAMix": "pytorch_optimizer", "AdamWScheduleFree": "schedulefree", "SGDScheduleFree": "schedulefree"}
THERE = {"t_alpha_beta3": ("warmup_steps", "beta3_warmup"), "weight_decouple": (), "r": ("weight_step_power",)}
PACKAGE_CASES = [
    ("AdEMAMix", 1e-3, {"weight_decouple": True, "weight_decay": 0.0}),
    ("AdEMAMix", 1e-3, {"weight_decouple": True, "weight_decay": 0.1, "alpha": 8.0, "betas": (0.8, 0.99, 0.999)}),
    ("AdEMAMix", 1e-3, {"weight_decouple": True, "weight_decay": 0.0, "t_alpha_beta3": 700, "maximize": True}),
    ("AdamWScheduleFree", 2.5e-3, {}),
    ("AdamWScheduleFree", 1e-2, {"weight_decay": 0.1, "warmup_steps": 300, "betas": (0.95, 0.99)}),
    ("AdamWScheduleFree", 1e-2, {"r": 0.75, "weight_lr_power": 1.5, "warmup_steps": 100}),
    ("SGDScheduleFree", 0.1, {}),
    ("SGDScheduleFree", 0.1, {"momentum": 0.8, "weight_decay": 0.01, "warmup_steps": 100}),
]


class Ours:
    def __init__(self, kind, start, lr, options):
        self.param, self.grad = start.copy(), np.zeros_like(start)
        self.optimizer = getattr(gs, kind)(self.param, self.grad, lr=lr, **options)
        self.state = {slot: np.asarray(found[0]) for slot, found in self.optimizer.state.items()}

    def step(self, grad):
        self.grad[:] = grad
        self.optimizer.step()


class Theirs:
    FROM = torch.optim
    SLOW: ClassVar = {"foreach": False}

    def __init__(self, kind, start, lr, options):
        self.tensor = torch.from_numpy(start.copy()).requires_grad_()
        self.tensor.grad = torch.zeros_like(self.tensor)
        self.optimizer = getattr(self.FROM, kind)([self.tensor], lr=lr, **self.SLOW, **options)
        self.param = self.tensor.detach().numpy()

    def step(self, grad):
        self.tensor.grad.copy_(torch.from_numpy(grad))
        self.optimizer.step()

    def slot(self, name):
        """PyTorch's RMSprop has no buffer without momentum."""
        found = self.optimizer.state[self.tensor].get(name)
        return np.float32(0) if found is None else found.numpy()


class Package(Theirs):
    def __init__(self, kind, start, lr, options):
        self.FROM = pytest.importorskip(PACKAGES[kind])
        super().__init__(kind, start, lr, options)
        if hasattr(self.optimizer, "train"):
            self.optimizer.train()


class OursInTorch(Theirs):
    FROM = gradscaler_torch
    SLOW: ClassVar = {}


def stream(seed):
    """Parameters, then gradients: noise with a slow drift, so that moments neither vanish nor stand still."""
    rng = np.random.default_rng(seed)
    yield rng.standard_normal(COUNT).astype(np.float32)
    for t in range(CHECKPOINTS[-1]):
        yield (rng.standard_normal(COUNT) + 0.3 * np.sin(t / 30)).astype(np.float32)


def begin(seed, case, *sides):
    """Gradients, and each side with the same parameters."""
    numbers = stream(seed)
    start = next(numbers)
    return numbers, *(side(case[0], start, *case[1:]) for side in sides)


@pytest.mark.parametrize("case", CASES, ids=title)
def test_same_bits(case, measured, rounded_roots):
    kind, _, _ = case
    numbers, ours, theirs = begin(1, case, Ours, Theirs)
    different = moved = 0
    for grad in numbers:
        if kind in SAME_STATE_ALONE:
            ours.param[:] = theirs.param
        ours.step(grad)
        theirs.step(grad)
        moved += int((ours.param != theirs.param).sum())
        for slot, array in ours.state.items():
            different += int((array != theirs.slot(slot)).sum())
    measured(title(case), "different in 1000 steps", moved + different)
    assert different == 0 and (moved == 0 or kind in SAME_STATE_ALONE)


class Fused(Theirs):
    SLOW: ClassVar = {"fused": True}


@pytest.mark.parametrize("case", [case for case in CASES if case[0] in ("SGD", "Adam", "AdamW", "Adagrad")], ids=title)
def test_same_bits_as_fused(case, pytorch_fuses):
    """As PyTorch comes: its fused kernels round roots to nearest. COUNT is a multiple of their vectors; behind the last
    of these its Adam does not fuse."""
    numbers, ours, theirs = begin(5, case, Ours, Fused)
    for step, grad in enumerate(numbers):
        ours.step(grad)
        theirs.step(grad)
        assert np.array_equal(ours.param, theirs.param), step
        for slot, array in ours.state.items():
            assert np.array_equal(array, theirs.slot(slot)), (step, slot)


@pytest.mark.parametrize("case", PACKAGE_CASES, ids=title)
def test_same_bits_as_the_package(case, measured, rounded_roots):
    kind, lr, options = case
    own = {name: value for key, value in options.items() for name in THERE.get(key, (key,))}
    if len(own.get("betas", ())) == 3:
        *own["betas"], own["beta3"] = own["betas"]
    numbers, theirs = begin(1, case, Package)
    sides = [*begin(1, (kind, lr, own), Ours, OursInTorch)[1:], theirs]
    for step, grad in enumerate(numbers):
        for side in sides:
            side.step(grad)
        assert np.array_equal(sides[0].param, theirs.param) and np.array_equal(sides[1].param, theirs.param), step
        for slot in sides[0].state.keys() - {"average"}:
            assert np.array_equal(sides[0].state[slot], theirs.slot(slot)), (step, slot)
        if "average" in sides[0].state and step in (10, 500):
            for switch in ("eval", "train"):
                for side in sides:
                    getattr(side.optimizer, switch)()
                assert all(np.array_equal(side.param, theirs.param) for side in sides[:2]), (step, switch)
    measured(f"{title(case)}, of {PACKAGES[kind]}", "different in 1000 steps", 0)
    if "average" in sides[0].state:
        group = theirs.optimizer.param_groups[0]
        np.testing.assert_allclose(sides[0].state["average"], [group["lr_max"], group["weight_sum"]], rtol=1e-12)
        sides[1].optimizer.load_state_dict(theirs.optimizer.state_dict())
        for grad in itertools.islice(stream(9), 1, 6):
            for side in sides[1:]:
                side.step(grad)
            assert np.array_equal(sides[1].param, theirs.param)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_the_average_of_the_weights_has_the_bits_of_pytorchs(kind, measured, pytorch_fuses):
    """The parameters that both average are the library's."""
    from torch.optim import swa_utils

    numbers, ours = begin(4, (kind, 1e-2, {"ema_decay": 0.99}), Ours)
    average = swa_utils.AveragedModel(torch.nn.ParameterList([torch.from_numpy(ours.param)]),
                                      multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.99))
    different = 0
    for grad in numbers:
        ours.step(grad)
        average.update_parameters(torch.nn.ParameterList([torch.from_numpy(ours.param)]))
        different += int((ours.state["ema"] != average.module[0].detach().numpy()).sum())
    measured(f"ema_decay=0.99 of {kind}", "different in 1000 steps", different)
    assert different == 0


@pytest.mark.parametrize("case", CASES, ids=title)
def test_same_bits_as_a_subclass_and_through_a_checkpoint(case, rounded_roots):
    """gradscaler.torch's optimizers; after 30 and 60 steps each takes the other's state over."""
    kind, _, _ = case
    numbers, *sides = begin(3, case, OursInTorch, Theirs)
    for step, grad in zip(range(90), numbers, strict=False):
        before = sides[1].param.copy()
        for side in sides:
            side.step(grad)
        if kind in SAME_STATE_ALONE:
            # 13 roundings of the change, and one of the parameter on each side.
            limit = 6.5 * ulp(sides[1].param - before) + ulp(np.maximum(np.abs(before), np.abs(sides[1].param)))
            assert (np.abs(sides[0].param - sides[1].param) <= limit).all(), step
            sides[0].tensor.data.copy_(sides[1].tensor)
        assert np.array_equal(sides[0].param, sides[1].param), step
        if step in (30, 60):
            saved = [copy.deepcopy(side.optimizer.state_dict()) for side in sides]
            for key, entry in saved[1]["state"].items():
                assert all(torch.equal(value, saved[0]["state"][key][slot]) for slot, value in entry.items())
            for side, state in zip(sides, reversed(saved), strict=True):
                side.optimizer.load_state_dict(state)


@pytest.mark.parametrize("case", CASES, ids=title)
def test_stays_close_to_pytorch_as_it_is(case, measured, pytorch_fuses):
    kind, _, options = case
    numbers, ours, theirs = begin(2, case, Ours, Theirs)
    peak = np.abs(ours.param)
    for step, grad in enumerate(numbers, 1):
        ours.step(grad)
        theirs.step(grad)
        peak = np.maximum(peak, np.abs(theirs.param))
        if step in CHECKPOINTS:
            off = np.abs(ours.param.astype(np.float64) - theirs.param) / ulp(peak)
            measured(title(case), f"ulp after {step}", round(float(off.max()), 1))
            twice = kind == "Adadelta" or (kind == "RMSprop" and options.get("momentum"))
            assert off.max() <= LIMIT[step] * (2 if twice else 1)
