# SPDX-License-Identifier: Apache-2.0
"""Training parity: a 64-64-64-10 network on handwritten digits in fp16, once with torch.amp.GradScaler and
torch.optim.AdamW, once with this library's scaler and AdamW, from the same start on the same batches, for five seeds.

PyTorch's scaler refuses fp16 gradients, so they are copied to fp32 ones for it. The same steps must be skipped, and all
scales and losses be equal: a single ulp in a weight grows into other losses within a hundred steps, and then into other
overflows. So PyTorch's square root is rounded to nearest here, the one thing in which its AdamW differs.
"""

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: there is nothing to train beside")

import gradscaler as gs  # noqa: E402

DIGITS = pathlib.Path(__file__).resolve().parents[3] / "examples" / "data" / "digits.csv"
SEEDS = range(5)
STEPS = 300
BATCH = 64
# A first scale that overflows and an interval that makes the scale climb back, so that steps are skipped on both ways.
SCALER = {"init_scale": 2.0**24, "growth_interval": 25}
ADAMW = {"lr": 2e-3, "weight_decay": 1e-2}


@pytest.fixture(scope="module")
def digits():
    rows = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
    return torch.from_numpy(rows[:, :64] / 16).half(), torch.from_numpy(rows[:, 64]).long()


def linear(x, weight, bias):
    """In fp16 with sums in fp32. Its gradients are rounded to fp16, and overflow there."""
    return (x.float() @ weight.float().T).half() + bias


class Network:
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        sizes = [(64, 64), (64,), (64, 64), (64,), (10, 64), (10,)]
        self.masters = [torch.randn(size, generator=generator) / 8 if len(size) == 2 else torch.zeros(size)
                        for size in sizes]
        self.weights = [master.half().requires_grad_() for master in self.masters]
        for weight in self.weights:
            weight.grad = torch.zeros_like(weight)

    def loss(self, x, y):
        w1, b1, w2, b2, w3, b3 = self.weights
        hidden = torch.relu(linear(torch.relu(linear(x, w1, b1)), w2, b2))
        return torch.nn.functional.cross_entropy(linear(hidden, w3, b3).float(), y)

    def backward(self, loss, scale):
        for weight in self.weights:
            weight.grad.zero_()
        (loss * scale).backward()


class WithTorch:
    def __init__(self, network):
        self.pairs = list(zip(network.masters, network.weights, strict=True))
        for master in network.masters:
            master.requires_grad_()
        self.scaler = torch.amp.GradScaler("cpu", **SCALER)
        self.optimizer = torch.optim.AdamW(network.masters, **ADAMW, foreach=False, fused=False)
        self.scaler.scale(torch.zeros(1))

    def step(self):
        for master, weight in self.pairs:
            master.grad = weight.grad.float()
        self.scaler.step(self.optimizer)
        before = self.scaler.get_scale()
        self.scaler.update()
        with torch.no_grad():
            for master, weight in self.pairs:
                weight.copy_(master)
        return self.scaler.get_scale() < before


class WithOurs:
    def __init__(self, network):
        self.scaler = gs.GradScaler("cpu", **SCALER)
        weights = [weight.detach() for weight in network.weights]
        self.optimizer = gs.AdamW(network.masters, [weight.grad for weight in network.weights], **ADAMW,
                                  model_copy=weights)

    def step(self):
        skipped = self.optimizer.skipped_steps
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.optimizer.skipped_steps > skipped


def train(side, seed, digits):
    x, y = digits
    network = Network(seed)
    trainer = side(network)
    order = np.random.default_rng(seed)
    losses, skips, scales = [], [], []
    for step in range(STEPS):
        batch = torch.from_numpy(order.integers(0, len(x), BATCH))
        loss = network.loss(x[batch], y[batch])
        network.backward(loss, trainer.scaler.get_scale())
        losses.append(loss.item())
        if trainer.step():
            skips.append(step)
        scales.append(trainer.scaler.get_scale())
    return np.array(losses), skips, scales


@pytest.mark.parametrize("seed", SEEDS)
def test_same_training(seed, digits, measured, rounded_roots):
    theirs, their_skips, their_scales = train(WithTorch, seed, digits)
    ours, our_skips, our_scales = train(WithOurs, seed, digits)
    assert our_skips == their_skips
    assert our_scales == their_scales
    np.testing.assert_array_equal(ours, theirs)
    assert len(our_skips) >= 10
    assert theirs[-50:].mean() < 0.1 * theirs[:10].mean()
    for column, value in (("steps", STEPS), ("skipped", len(our_skips)), ("first loss", round(float(ours[0]), 3)),
                          ("mean loss of the last 50", round(float(ours[-50:].mean()), 4)),
                          ("largest difference of a loss", float(np.abs(ours - theirs).max()))):
        measured(f"seed {seed}", column, value)
