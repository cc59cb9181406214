# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle: paddle.amp.GradScaler in dynamic mode, its _update with the flag that a check of gradients would set.
Dynamic mode has neither the floor of 1 nor the finite guard that the update_loss_scaling operator of static mode has;
the preset has both, so these runs take them out."""

import contextlib
import io

import paddle
from paddle.amp import grad_scaler

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive, package_version

PRESET = "paddle"
PROOF = "executed"
SOURCE = "paddle.amp.GradScaler"
VERSION = package_version("paddlepaddle")
DYNAMIC_MODE = {"min_scale": 0.0, "flags": ["fp32_products", "no_finite_guard"]}
CASES = [
    ("interval 20", {"growth_interval": 20, **DYNAMIC_MODE}, SOME_SEEDS, STEPS),
    ("every 2nd overflow", {"growth_interval": 20, "hysteresis": 2, **DYNAMIC_MODE}, ALL_SEEDS, STEPS),
    ("every 3rd overflow, odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3,
                                         "growth_interval": 7, "hysteresis": 3, **DYNAMIC_MODE}, SOME_SEEDS, SHORT),
]


class Tracer:
    """In the place of Paddle's tracer while a scaler is made, which is disabled unless the place is an accelerator. The
    arithmetic of its update is the same on every place."""

    class _expected_place:
        is_gpu_place = staticmethod(lambda: True)


def trajectory(options, overflows):
    tracer = grad_scaler._dygraph_tracer
    grad_scaler._dygraph_tracer = Tracer
    scaler = paddle.amp.GradScaler(
        enable=True,
        init_loss_scaling=options.get("init_scale", 2.0**16),
        incr_ratio=options.get("growth_factor", 2.0),
        decr_ratio=options.get("backoff_factor", 0.5),
        incr_every_n_steps=options.get("growth_interval", 2000),
        decr_every_n_nan_or_inf=options.get("hysteresis", 1),
        use_dynamic_loss_scaling=True,
    )

    grad_scaler._dygraph_tracer = tracer

    def update(overflow):
        scaler._cache_found_inf = overflow
        scaler._update()

    with contextlib.redirect_stdout(io.StringIO()):  # it prints at every backoff
        return drive(update, lambda: scaler._scale.item(), overflows)
