# SPDX-License-Identifier: Apache-2.0
"""Apache MXNet: contrib.amp's LossScaler over a gradient, found by its own operator. It has no arguments, so the case
with a shorter interval sets the attribute. A scale takes effect with the next iteration: it is the next one that
counts."""

import importlib
import types

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, drive, package_version

mxnet = importlib.import_module("mxnet")
loss_scaler = importlib.import_module("mxnet.contrib.amp.loss_scaler")

PRESET = "apex"
PROOF = "executed"
SOURCE = "mxnet.contrib.amp.loss_scaler.LossScaler"
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
]


def version():
    return package_version("mxnet")


def trajectory(options, overflows):
    scaler = loss_scaler.LossScaler()
    scaler._scale_seq_len = options.get("growth_interval", 2000)
    gradients = {bad: [types.SimpleNamespace(_grad=[mxnet.nd.array([float("inf") if bad else 1.0])])]
                 for bad in (False, True)}
    return drive(lambda o: scaler.has_overflow(gradients[o]), lambda: scaler._next_loss_scale, overflows)
