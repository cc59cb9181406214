# SPDX-License-Identifier: Apache-2.0
"""Training with CuPy on a GPU: fp32 master weights, fp16 forward and backward pass, everything on one CUDA stream.

The optimizer takes CuPy's arrays as they are and works on the stream that was current when it was made. Usage:
cupy_training.py [--numpy]; with --numpy the same program runs with NumPy on the CPU. Exit status 1 if the network has
not learnt, 77 if CuPy or a GPU is missing.
"""

import contextlib
import sys

import gradscaler as gs

SKIPPED = 77


def arrays():
    """The array library, the device to work on, and a stream to do so."""
    if "--numpy" in sys.argv[1:]:
        import numpy

        return numpy, "cpu", contextlib.nullcontext()
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises errors of the CUDA runtime, which exist only with CuPy.
        sys.exit(skip(f"CuPy or a GPU is missing ({error}); --numpy runs this on the CPU"))
    if len(gs.devices()) == 1:
        sys.exit(skip(f"this build has no CUDA, or no driver for it: {gs.build_info()}"))
    return cupy, "cuda", cupy.cuda.Stream(non_blocking=True)


def skip(reason):
    print(reason)
    return SKIPPED


def backward(xp, model, grads, x, y, scale):
    """Writes the gradients of the scaled loss in fp16, and returns the loss."""
    hidden = xp.maximum(x @ model["w1"] + model["b1"], 0)
    error = (hidden @ model["w2"] - y).astype(xp.float32)
    down = (error * (2 * scale / len(x))).astype(xp.float16)
    up = xp.where(hidden > 0, down @ model["w2"].T, xp.float16(0))
    grads["w1"][:], grads["b1"][:], grads["w2"][:] = x.T @ up, up.sum(0), hidden.T @ down
    return float((error * error).mean())


def train(xp, device):
    random = xp.random.RandomState(0)
    x = random.standard_normal((512, 16))
    y = xp.sin(x[:, :4].sum(1, keepdims=True)).astype(xp.float16)
    x = x.astype(xp.float16)
    master = {"w1": random.standard_normal((16, 64)) / 4, "b1": xp.zeros(64),
              "w2": random.standard_normal((64, 1)) / 8}
    master = {name: values.astype(xp.float32) for name, values in master.items()}
    model = {name: values.astype(xp.float16) for name, values in master.items()}
    grads = {name: xp.zeros_like(values) for name, values in model.items()}
    optimizer = gs.AdamW(master, gs.TensorList(grads), lr=1e-2, model_copy=model)
    # Too large on purpose: the first steps overflow and are skipped.
    scaler = gs.GradScaler(device, init_scale=2.0**24, growth_interval=100)

    for step in range(300):
        loss = backward(xp, model, grads, x, y, scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}, scale {scaler.get_scale():g}")
    print(f"at the end: loss {loss:.4f}, scale {scaler.get_scale():g}, skipped {optimizer.skipped_steps}, "
          f"applied {optimizer.steps}")
    return 0 if loss < 0.05 and optimizer.skipped_steps > 0 else 1


def main():
    xp, device, stream = arrays()
    quiet = contextlib.nullcontext() if device != "cpu" else xp.errstate(over="ignore", invalid="ignore")
    with stream, quiet:
        return train(xp, device)


if __name__ == "__main__":
    sys.exit(main())
