# SPDX-License-Identifier: Apache-2.0
"""What the tests of PyTorch on a GPU share: scalers and optimizers, models, parameters and gradients by seed."""

import pytest
from on_device import DEVICE, require_device

from conftest import library

torch = library("torch", "cpu")

from gradscaler import torch as gst  # noqa: E402

require_device(torch.cuda.is_available(), "PyTorch")
# Of graphs and side streams, whose models were made in the default stream.
quiet = pytest.mark.filterwarnings("ignore:.*AccumulateGrad")


class AmpScaler(torch.amp.GradScaler):
    """PyTorch's. Where it unscales no bfloat16 on CUDA, as in 2.11, the same arithmetic takes its place."""

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        try:
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        except NotImplementedError:
            grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            assert {grad.dtype for grad in grads} == {torch.bfloat16}
            for grad in grads:
                wide = grad.float()
                found_inf = torch.maximum(found_inf, (~wide.isfinite()).any().float())
                grad.copy_(wide * inv_scale)
            return {found_inf.device: found_inf}


CLASSES = [AmpScaler, gst.GradScaler]
HALF = torch.float16
KINDS = {"SGD": dict(lr=0.05, momentum=0.9, weight_decay=0.01), "Adam": dict(lr=0.01, weight_decay=0.1),
         "AdamW": dict(lr=0.01, amsgrad=True), "Adagrad": dict(lr=0.05, lr_decay=0.01), "Lion": dict(lr=0.001),
         "LAMB": dict(lr=0.01)}
MODES = {"for-loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True)}
SHAPES = [(1,), (33, 65), (4, 3, 3, 3), (0, 5), (1000,), (70_001,)]


def skip_unless_there(kind, mode):
    """Skips what PyTorch does not have: a fused Adagrad on CUDA."""
    if kind == "Adagrad" and mode == "fused" and DEVICE != "cpu":
        p = torch.nn.Parameter(torch.ones(1, device=DEVICE))
        p.grad = torch.ones_like(p)
        try:
            torch.optim.Adagrad([p], fused=True).step()
        except RuntimeError as error:
            pytest.skip(f"PyTorch {torch.__version__}: {error}")


def model_of(seed=0, dtype=torch.float32, width=48):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(24, width), torch.nn.Tanh(), torch.nn.LayerNorm(width), torch.nn.Linear(width, width),
              torch.nn.GELU(), torch.nn.Linear(width, 5)]
    return torch.nn.Sequential(*layers).to(DEVICE, dtype)


def batch_of(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(32, 24, generator=generator)
    return x.to(DEVICE, dtype), torch.tanh(x[:, :5]).to(DEVICE, dtype)


def loss_of(model, x, y, amp=True):
    with torch.autocast(DEVICE, HALF, enabled=amp):
        out = model(x)
    return torch.nn.functional.mse_loss(out.float(), y.float())


def params_of(shapes, dtype, seed=0, device=DEVICE):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device))
            for shape in shapes]


def set_grads(params, seed, scale=1.0, missing=(), bad=None):
    generator = torch.Generator().manual_seed(seed)
    for i, p in enumerate(params):
        grad = torch.randn(p.shape, generator=generator, dtype=torch.float64) * scale
        if i == bad:
            grad.view(-1)[grad.numel() // 2] = float("inf")
        p.grad = None if i in missing else grad.to(p.dtype).to(p.device)


def state_of(optimizer, params):
    """Copies of the state, by index of the parameter."""
    return {i: {slot: value.detach().clone() for slot, value in optimizer.state[p].items()
                if isinstance(value, torch.Tensor)}
            for i, p in enumerate(params) if p in optimizer.state}
