# SPDX-License-Identifier: Apache-2.0
"""Apache MXNet: contrib.amp's LossScaler over a gradient, found by its own operator. It has no arguments, so the case
with a shorter interval sets the attribute. A scale takes effect with the next iteration: it is the next one that
counts."""

import types

import mxnet
from mxnet.contrib.amp import loss_scaler

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, drive, package_version

PRESET = "apex"
PROOF = "executed"
SOURCE = "mxnet.contrib.amp.loss_scaler.LossScaler"
VERSION = package_version("mxnet")
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
]


def trajectory(options, overflows):
    scaler = loss_scaler.LossScaler()
    scaler._scale_seq_len = options.get("growth_interval", 2000)
    gradients = {bad: [types.SimpleNamespace(_grad=[mxnet.nd.array([float("inf") if bad else 1.0])])]
                 for bad in (False, True)}
    return drive(lambda o: scaler.has_overflow(gradients[o]), lambda: scaler._next_loss_scale, overflows)
