# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM: ChainedOptimizer.step over Float16OptimizerWithFloat16Params in bf16, without a grad scaler, on one
rank. Tensors that ask for a GPU are made on the CPU and say that they are on a GPU; nothing else is changed."""

import math
import types

import megatron.core.optimizer.clip_grads as clip_grads
import megatron.core.optimizer.optimizer as module
import torch
from megatron.core import parallel_state, utils
from megatron.core.optimizer.optimizer_config import OptimizerConfig

from .common import package_version

VERSION = f"{package_version('megatron-core')}, torch {torch.__version__}"


def on_cpu(make):
    return lambda *args, **kwargs: make(*args, **{key: value for key, value in kwargs.items() if key != "device"})


class TorchOnCpu(types.ModuleType):
    """torch, with tensor() and zeros() deaf to `device`."""

    tensor, zeros = staticmethod(on_cpu(torch.tensor)), staticmethod(on_cpu(torch.zeros))

    def __getattr__(self, name):
        return getattr(torch, name)


def stepper(threshold):
    params = [torch.nn.Parameter(torch.zeros(size, dtype=torch.bfloat16)) for size in (8, 4)]
    config = OptimizerConfig(optimizer="adam", lr=1e-3, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0,
                             grad_norm_skip_threshold=threshold)
    inner = module.Float16OptimizerWithFloat16Params(torch.optim.AdamW(params, lr=1e-3), config, None, lambda *_: None)
    optimizer = module.ChainedOptimizer([inner])

    def step(a, b):
        for p, value in zip(params, (a, b), strict=True):
            p.main_grad = torch.zeros(p.shape)
            p.main_grad[0] = value
        return bool(optimizer.step()[0])

    return step


def cases():
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    clip_grads.torch = module.torch = utils.torch = TorchOnCpu("torch")
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *args: kind(self, *args) if args else kind(self).replace("torch.", "torch.cuda.")
    source = "megatron.core.optimizer.ChainedOptimizer"
    for threshold in (8.0, 1.5, 1e6, math.inf):
        options = {"enabled": "check", **({} if math.isinf(threshold) else {"skip_norm": threshold})}
        yield f"grad_norm_skip_threshold {threshold:g}", options, source, stepper(threshold)
