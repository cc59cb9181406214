# SPDX-License-Identifier: Apache-2.0
"""MindSpore: amp.DynamicLossScaler.adjust on the CPU, in eager mode. One update takes it some 25 ms there and no less
when compiled, so the runs are short; mindspore_manager has the long ones, of the same rule without tensors."""

import mindspore
from mindspore import amp

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, drive, package_version

PRESET = "mindspore"
PROOF = "executed"
SOURCE = "mindspore.amp.DynamicLossScaler"
VERSION = package_version("mindspore")
SHORT_STEPS = 100
CASES = [
    ("window 7", {"growth_interval": 7}, ALL_SEEDS, SHORT_STEPS),
    ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 3}, SOME_SEEDS, SHORT_STEPS),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, (0, 2, 5), SHORT_STEPS),
]


def trajectory(options, overflows):
    scaler = amp.DynamicLossScaler(
        scale_value=options.get("init_scale", 2.0**16),
        scale_factor=int(options.get("growth_factor", 2)),
        scale_window=options.get("growth_interval", 2000),
    )
    finite = {False: mindspore.Tensor(True), True: mindspore.Tensor(False)}
    return drive(lambda o: scaler.adjust(finite[o]), lambda: scaler.scale_value.asnumpy(), overflows)


class mindspore_manager:
    """MindSpore: amp.DynamicLossScaleManager, the rule in Python numbers that Model.train uses. A run ends at its
    RuntimeError, for the 1001st overflow in a row, and where its scale leaves the range of fp32."""

    PRESET = "mindspore"
    PROOF = "executed"
    SOURCE = "mindspore.amp.DynamicLossScaleManager"
    CASES = [
        ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
        ("its defaults", {"init_scale": 2.0**24}, SOME_SEEDS, STEPS),
        ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 7}, SOME_SEEDS, STEPS),
    ]
    VERSION = VERSION

    @staticmethod
    def trajectory(options, overflows):
        manager = amp.DynamicLossScaleManager(
            init_loss_scale=options.get("init_scale", 2.0**16),
            scale_factor=int(options.get("growth_factor", 2)),
            scale_window=options.get("growth_interval", 2000),
        )
        scales = []
        for overflow in overflows:
            try:
                manager.update_loss_scale(overflow)
            except RuntimeError:
                break
            scales.append(float(manager.get_loss_scale()))
        return scales
