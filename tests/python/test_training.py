# SPDX-License-Identifier: Apache-2.0
"""Small networks trained in PyTorch with autocast on the CPU: fp32, 16 bits alone, 16 bits with loss scaling.

The loss is divided by 2^24, as a mean over many tokens is: the gradients of activations then lie below what fp16 holds.
AdamW does not mind the factor. Beside this package's drop-in runs PyTorch's own scaler, compared bit for bit after
every step, and the fused step of gradscaler.AdamW.
"""

import functools

import pytest

import gradscaler as gs
from conftest import library

torch = library("torch")
from gradscaler.torch import GradScaler  # noqa: E402

STEPS, SHRINK = 40, 2.0**-24
POLICY = dict(init_scale=2.0**48, growth_interval=8)
ADAM = dict(lr=0.01, eps=1e-20, weight_decay=0.0)


class Convolutional(torch.nn.Module):
    """Which quarter of a picture is bright."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                        torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
                                        torch.nn.Linear(128, 4))

    def forward(self, x):
        return self.body(x)

    @staticmethod
    def batch(generator):
        y = torch.randint(4, (32,), generator=generator)
        x = torch.rand(32, 1, 8, 8, generator=generator)
        for i, quarter in enumerate(y.tolist()):
            row, column = 4 * (quarter // 2), 4 * (quarter % 2)
            x[i, 0, row:row + 4, column:column + 4] += 0.5
        return x, y


class Transformer(torch.nn.Module):
    """Which of four tokens came first in a sequence."""

    def __init__(self):
        super().__init__()
        self.embedding, self.places = torch.nn.Embedding(4, 16), torch.nn.Embedding(6, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        hidden = self.layer(self.embedding(x) + self.places(torch.arange(x.shape[1])))
        return self.head(hidden.mean(1))

    @staticmethod
    def batch(generator):
        x = torch.randint(4, (32, 6), generator=generator)
        return x, x[:, 0]


def losses_of(model, dtype, generator):
    x, y = type(model).batch(generator)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = torch.nn.functional.cross_entropy(model(x).float(), y)
    return loss, loss * SHRINK


def make(kind):
    torch.manual_seed(0)
    return kind()


def torch_arm(kind, dtype, scaler):
    """Steps with torch.optim; yields the loss, the scale and the parameters after each."""
    model, generator = make(kind), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, **ADAM)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, small = losses_of(model, dtype, generator)
        if scaler is None:
            small.backward()
            optimizer.step()
        else:
            scaler.scale(small).backward()
            scaler.step(optimizer)
            scaler.update()
        yield loss.item(), scaler.get_scale() if scaler else 1.0, list(model.parameters())


def fused_arm(kind, dtype):
    model, generator = make(kind), torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer = gs.AdamW(model.named_parameters(), {name: p.grad for name, p in model.named_parameters()}, **ADAM)
    scaler = gs.GradScaler(**POLICY)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, small = losses_of(model, dtype, generator)
        scaler.scale(small).backward()
        scaler.step_and_update(optimizer)
        yield loss.item(), scaler.get_scale(), list(model.parameters())


@functools.cache
def reference(kind):
    return end([loss for loss, _, _ in torch_arm(kind, None, None)])


def end(losses):
    return sum(losses[-5:]) / 5


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", [Convolutional, Transformer])
def test_three_arms(kind, dtype):
    low = getattr(torch, dtype)
    alone = [loss for loss, _, _ in torch_arm(kind, low, None)]
    ours = torch_arm(kind, low, GradScaler("cpu", **POLICY))
    theirs = torch_arm(kind, low, torch.amp.GradScaler("cpu", **POLICY))
    losses, scales = [], []
    for step, (mine, other, fused) in enumerate(zip(ours, theirs, fused_arm(kind, low), strict=True)):
        assert mine[:2] == other[:2], f"step {step}"
        assert all(torch.equal(p, q) for p, q in zip(mine[2], other[2], strict=True)), f"step {step}"
        assert fused[1] == mine[1], f"step {step}: the fused step has another scale"
        losses.append((mine[0], fused[0]))
        scales.append(mine[1])
    assert end([fused for _, fused in losses]) == pytest.approx(end([mine for mine, _ in losses]), abs=0.1)
    scaled = end([mine for mine, _ in losses])
    # Chance is log(4) = 1.39.
    assert reference(kind) < 0.7, reference(kind)
    assert scaled < reference(kind) + 0.15
    if dtype == "float16":
        assert scales[-1] < POLICY["init_scale"], "nothing ever overflowed"
        assert end(alone) > scaled + 0.3, "fp16 without scaling learnt as much"
    else:
        assert end(alone) < reference(kind) + 0.15
