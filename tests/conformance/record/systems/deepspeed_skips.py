# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: engines in bf16 on one rank, by the optimizer that wraps the user's. Nothing is changed in it."""

import deepspeed
import torch

from .common import package_version

VERSION = f"{package_version('deepspeed')}, torch {torch.__version__}"


class Model(torch.nn.Module):
    """Its gradients are its inputs."""

    def __init__(self):
        super().__init__()
        self.w, self.v = torch.nn.Parameter(torch.zeros(8)), torch.nn.Parameter(torch.zeros(4))

    def forward(self, x, y):
        return (self.w * x).sum() + (self.v * y).sum()


def stepper(config):
    model = Model()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
                **config})

    def step(a, b):
        x, y = torch.zeros(8, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bfloat16)
        x[0], y[0] = a, b
        skipped = engine.skipped_steps
        engine.backward(engine(x, y))
        engine.step()
        return engine.skipped_steps == skipped

    return f"{type(optimizer).__module__}.{type(optimizer).__name__}", step


def cases():
    deepspeed.init_distributed("gloo")
    fp32 = {"data_types": {"grad_accum_dtype": "fp32"}}
    for case, options, config in (
            ("ZeRO stage 0", {"enabled": "check"}, {"bf16": {"enabled": True}, "zero_optimization": {"stage": 0}}),
            ("ZeRO stage 1", {"enabled": "check"}, {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}),
            ("ZeRO stage 1, fp32 accumulation", {"enabled": "check"},
             {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}, **fp32}),
            ("ZeRO stage 1, check_grad_overflow false", {"enabled": False},
             {"bf16": {"enabled": True, "check_grad_overflow": False}, "zero_optimization": {"stage": 1}})):
        source, step = stepper(config)
        yield case, options, source, step
