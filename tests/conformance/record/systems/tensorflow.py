# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 2's mixed precision: the dynamic state of tf_keras.mixed_precision.LossScaleOptimizer, updated with
gradients as the optimizer does."""

import tensorflow as tf
from tf_keras.src.mixed_precision import loss_scale_optimizer

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, package_version

PRESET = "tensorflow"
PROOF = "executed"
SOURCE = "tf_keras.mixed_precision.LossScaleOptimizer"
VERSION = f"{package_version('tf-keras')} on TensorFlow {tf.__version__}"
CASES = [
    ("growth steps 20", {"growth_interval": 20}, ALL_SEEDS, 5000),
    ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 7}, SOME_SEEDS, SHORT),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, (0, 2, 5), SHORT),
]


def trajectory(options, overflows):
    state = loss_scale_optimizer._DynamicLossScaleState(
        options.get("init_scale", 2.0**15),
        options.get("growth_interval", 2000),
        options.get("growth_factor", 2.0),
    )

    @tf.function
    def run(pattern):
        scales = tf.TensorArray(tf.float32, size=tf.shape(pattern)[0])
        for i in tf.range(tf.shape(pattern)[0]):
            gradient = tf.where(pattern[i], float("inf"), 1.0)
            state.update([gradient])
            scales = scales.write(i, state.current_loss_scale)
        return scales.stack()

    return [float(s) for s in run(tf.constant(overflows)).numpy()]
