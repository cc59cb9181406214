# SPDX-License-Identifier: Apache-2.0
"""Optimizers that PyTorch does not have, against their published equations in fp64.

Lion: Chen et al. 2023, arXiv:2302.06675, algorithm 2.
LAMB: You et al. 2020, arXiv:1904.00962, algorithm 2 with phi(z) = z and one layer a tensor; its m_t / (1 - beta_1^t)
and v_t / (1 - beta_2^t) included.
AdaBelief: Zhuang et al. 2020, arXiv:2010.07468, algorithm 2, with the epsilon of optax under the root.
LARS: You et al. 2017, arXiv:1708.03888, algorithm 1, in the order of optax: the ratio, the learning rate, momentum.
NovoGrad: Ginsburg et al. 2019, arXiv:1905.11286, algorithm 1; and as Apex has it in multi_tensor_novograd.cu, whose
state is the norm, not its square.

With fp64 parameters the whole trajectory of 1000 steps is compared. With fp32 parameters every step is made from the
reference's values rounded to fp32, so that nothing adds up, and judged in ulp at the larger of the parameter and the
longest step in its tensor: cancellation in a moment counts for what it moves.
"""

import numpy as np
import pytest

import gradscaler as gs
from conftest import ulp

COUNTS = (1500, 60, 1)
STEPS = 1000


def lion(p, state, g, t, lr, betas, weight_decay):
    """c_t, then theta_t, then m_t, in the paper's order."""
    (m,), (b1, b2) = state, betas
    blend = b1 * m + (1 - b1) * g
    step = lr * (np.sign(blend) + weight_decay * p)
    # Where the two terms cancel to less than their rounding errors in fp32, either sign is right.
    doubtful = np.abs(blend) <= 2.0**-22 * (np.abs(b1 * m) + np.abs((1 - b1) * g))
    return p - step, (b2 * m + (1 - b2) * g,), doubtful


def lamb(p, state, g, t, lr, betas, weight_decay, eps=1e-6):
    (m, v), (b1, b2) = state, betas
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    ratio = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    direction = ratio + weight_decay * p
    sizes = np.linalg.norm(p), np.linalg.norm(direction)
    trust = sizes[0] / sizes[1] if min(sizes) > 0 else 1.0
    return p - lr * trust * direction, (m, v), False


def adabelief(p, state, g, t, lr, betas, weight_decay, decoupled_weight_decay, eps=1e-16):
    (m, s), (b1, b2) = state, betas
    m = b1 * m + (1 - b1) * g
    s = b2 * s + (1 - b2) * (g - m) ** 2 + eps
    step = m / (1 - b1**t) / (np.sqrt(s / (1 - b2**t)) + eps)
    return p - lr * (step + weight_decay * p), (m, s), False


def lars(p, state, g, t, lr, momentum, weight_decay, trust_coefficient=1e-3):
    d = g + weight_decay * p
    sizes = np.linalg.norm(p), np.linalg.norm(d)
    trust = trust_coefficient * sizes[0] / sizes[1] if min(sizes) > 0 else 1.0
    m = momentum * state[0] + lr * trust * d
    return p - m, (m,), False


def novograd(p, state, g, t, lr, betas, weight_decay, eps=1e-8):
    (m, v), (b1, b2) = state, betas
    squares = np.sum(g * g, keepdims=True)
    v = squares if t == 1 else b2 * v + (1 - b2) * squares
    m = b1 * m + (g / (np.sqrt(v) + eps) + weight_decay * p)
    return p - lr * m, (m, v), False


def apex_novograd(p, state, g, t, lr, betas, weight_decay, dampening, eps=1e-8, bias_correction=False,
                  decoupled_weight_decay=False):
    """Its grad_averaging is a `dampening` of beta1, and its reg_inside_moment no `decoupled_weight_decay`."""
    (m, v), (b1, b2) = state, betas
    size = np.linalg.norm(g, keepdims=True)
    norm = size if t == 1 else np.sqrt(b2 * np.sqrt(v) ** 2 + (1 - b2) * size**2)
    corrections = (1 - b1**t, np.sqrt(1 - b2**t)) if bias_correction else (1, 1)
    denominator = norm / corrections[1] + eps
    if decoupled_weight_decay:
        m = b1 * m + (1 - dampening) * g
        update = m / corrections[0] / denominator + weight_decay * p
    else:
        m = b1 * m + (1 - dampening) * (g / denominator + weight_decay * p)
        update = m / corrections[0]
    return p - lr * update, (m, norm**2), False


MOMENTS = ("exp_avg", "exp_avg_sq")
RULES = {"Lion": (lion, gs.Lion, ("exp_avg",)), "LAMB": (lamb, gs.LAMB, MOMENTS),
         "AdaBelief": (adabelief, gs.AdaBelief, ("exp_avg", "exp_avg_var")),
         "LARS": (lars, gs.LARS, ("momentum_buffer",)), "NovoGrad": (novograd, gs.NovoGrad, MOMENTS),
         "NovoGrad of Apex": (apex_novograd, gs.NovoGrad, MOMENTS)}
CASES = [("Lion", dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)),
         ("Lion", dict(lr=1e-3, betas=(0.95, 0.98), weight_decay=0.1)),
         ("LAMB", dict(lr=1e-2, betas=(0.9, 0.999), weight_decay=0.0)),
         ("LAMB", dict(lr=1e-2, betas=(0.9, 0.999), weight_decay=0.01)),
         ("AdaBelief", dict(lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0, decoupled_weight_decay=True)),
         ("AdaBelief", dict(lr=1e-3, betas=(0.8, 0.99), weight_decay=0.1, decoupled_weight_decay=True)),
         ("LARS", dict(lr=1.0, momentum=0.9, weight_decay=0.0)),
         ("LARS", dict(lr=0.5, momentum=0.8, weight_decay=0.01, trust_coefficient=1e-2)),
         ("NovoGrad", dict(lr=1e-3, betas=(0.95, 0.98), weight_decay=0.0)),
         ("NovoGrad", dict(lr=1e-3, betas=(0.9, 0.5), weight_decay=0.01)),
         ("NovoGrad of Apex", dict(lr=1e-3, betas=(0.95, 0.98), weight_decay=0.01, dampening=0.95,
                                   bias_correction=True, decoupled_weight_decay=True)),
         ("NovoGrad of Apex", dict(lr=1e-3, betas=(0.95, 0.98), weight_decay=0.01, dampening=0.95,
                                   bias_correction=True)),
         ("NovoGrad of Apex", dict(lr=1e-3, betas=(0.9, 0.5), weight_decay=0.1, dampening=0.0,
                                   decoupled_weight_decay=True))]


def title(case):
    kind, options = case
    flags = [key for key, value in options.items() if value is True]
    return " ".join([kind, f"weight_decay={options['weight_decay']}", *flags])


class Run:
    def __init__(self, case, dtype, maximize=False):
        name, self.options = case
        self.rule, optimizer, self.slots = RULES[name]
        self.rng = np.random.default_rng(7)
        self.exact = [self.rng.standard_normal(n).astype(np.float32).astype(np.float64) for n in COUNTS]
        # NovoGrad has a second moment for each tensor, in fp64.
        shapes = {slot: (np.ones_like(COUNTS), float) if "NovoGrad" in name and slot == "exp_avg_sq" else
                  (COUNTS, dtype) for slot in self.slots}
        self.exact_state = [tuple(np.zeros(shapes[slot][0][i]) for slot in self.slots) for i in range(len(COUNTS))]
        self.params = [p.astype(dtype) for p in self.exact]
        self.grads = [np.zeros(n, dtype) for n in COUNTS]
        self.state = {slot: [np.zeros(n, kind) for n in counts] for slot, (counts, kind) in shapes.items()}
        self.sign = -1.0 if maximize else 1.0
        self.optimizer = optimizer(self.params, self.grads, **self.options, maximize=maximize, state=self.state)

    def start_from_reference(self):
        """Both go on from the reference's values rounded to fp32."""
        for i, (p, state) in enumerate(zip(self.exact, self.exact_state, strict=True)):
            self.params[i][:] = p
            self.exact[i] = self.params[i].astype(np.float64)
            for slot, value in zip(self.slots, state, strict=True):
                self.state[slot][i][:] = value
            self.exact_state[i] = tuple(self.state[slot][i].astype(np.float64) for slot in self.slots)

    def step(self, t):
        doubtful = []
        for i, grad in enumerate(self.grads):
            grad[:] = (self.rng.standard_normal(len(grad)) + 0.3 * np.sin(t / 30)).astype(np.float32)
            self.exact[i], self.exact_state[i], unsure = self.rule(
                self.exact[i], self.exact_state[i], self.sign * grad.astype(np.float64), t, **self.options)
            doubtful.append(np.broadcast_to(unsure, grad.shape))
        self.optimizer.step()
        return doubtful


@pytest.mark.parametrize("maximize", [False, True], ids=["minimize", "maximize"])
@pytest.mark.parametrize("case", CASES, ids=title)
def test_trajectory_in_fp64(case, maximize, measured):
    run = Run(case, np.float64, maximize)
    for t in range(1, STEPS + 1):
        run.step(t)
    for ours, exact in zip(run.params, run.exact, strict=True):
        off = float((np.abs(ours - exact) / np.maximum(np.abs(exact), 1.0)).max())
        measured(title(case), "fp64 after 1000 steps", float(f"{off:.1e}"))
        assert off <= 1e-12


@pytest.mark.parametrize("case", CASES, ids=title)
def test_every_step_in_fp32(case, measured):
    run = Run(case, np.float32)
    doubts = 0
    for t in range(1, STEPS + 1):
        run.start_from_reference()
        before = run.exact.copy()
        doubtful = run.step(t)
        for ours, exact, start, unsure in zip(run.params, run.exact, before, doubtful, strict=True):
            off = np.abs(ours - exact) / ulp(np.maximum(np.abs(exact), np.abs(exact - start).max()))
            doubts += int(unsure.sum())
            off = float(off[~unsure].max(initial=0.0))
            measured(title(case), "ulp of one step", round(off, 2))
            assert off <= 4.0
    assert doubts <= 1e-5 * STEPS * sum(COUNTS)
