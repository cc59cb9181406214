# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on the digits in fp16 with NumPy alone: the Python twin of the C demo.

Weights are kept in fp32 and given to the forward pass in fp16; the optimizer writes both in one pass. The loss is made
small on purpose, as a mean over many more outputs would be, so that fp16 gradients need the scale. Usage:
numpy_digits.py [steps]. Exit status 1 if the network has not learnt.
"""

import pathlib
import sys

import numpy as np

import gradscaler as gs

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.csv"
LOSS_WEIGHT = 2.0**-16
BATCH = 64


def load():
    table = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(table))
    pixels, labels = table[order, :-1] / 16, table[order, -1].astype(int)
    return (pixels[:1437], labels[:1437]), (pixels[1437:], labels[1437:])


def forward(weights, x):
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    return hidden, hidden @ weights["w2"] + weights["b2"]


def backward(weights, grads, x, labels, scale):
    """Writes the gradients of the scaled loss in fp16, as a GPU's half-precision matrix product would."""
    hidden, logits = forward(weights, x)
    shifted = np.exp((logits - logits.max(1, keepdims=True)).astype(np.float32))
    error = shifted / shifted.sum(1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    with np.errstate(over="ignore", invalid="ignore"):
        error = (error * (LOSS_WEIGHT / len(labels)) * scale).astype(np.float16)
        down = np.where(hidden > 0, error @ weights["w2"].T, np.float16(0))
        grads["w1"][:], grads["b1"][:] = x.T @ down, down.sum(0)
        grads["w2"][:], grads["b2"][:] = hidden.T @ error, error.sum(0)


def train(steps, scaler):
    rng = np.random.default_rng(1)
    (pixels, labels), (test_pixels, test_labels) = load()
    shapes = {"w1": (64, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
    master = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for name in ("w1", "w2"):
        master[name][:] = rng.normal(0, 1 / 8, shapes[name])
    model = {name: values.astype(np.float16) for name, values in master.items()}
    grads = {name: np.zeros_like(values) for name, values in model.items()}
    # The small loss weight makes the gradients small; Adam does not mind.
    optimizer = gs.AdamW(master, gs.TensorList(grads), lr=3e-3, eps=1e-15, model_copy=model)

    for _ in range(steps):
        batch = rng.integers(len(labels), size=BATCH)
        backward(model, grads, pixels[batch].astype(np.float16), labels[batch], scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
    flushed = np.mean([np.mean(g == 0) for g in grads.values()])
    _, logits = forward(model, test_pixels.astype(np.float16))
    return np.mean(logits.argmax(1) == test_labels), flushed, optimizer


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    runs = {"fp16, no scaling": gs.GradScaler(init_scale=1.0, growth_interval=1 << 30),
            "fp16, gradscaler": gs.GradScaler(init_scale=2.0**40, growth_interval=200)}
    accuracy = {}
    for name, scaler in runs.items():
        accuracy[name], flushed, optimizer = train(steps, scaler)
        print(f"{name}: accuracy {accuracy[name]:.3f}, gradients that are 0: {flushed:.0%}, "
              f"steps skipped: {optimizer.skipped_steps}, scale at the end: 2^{np.log2(scaler.get_scale()):.0f}")
    return 0 if accuracy["fp16, gradscaler"] > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
