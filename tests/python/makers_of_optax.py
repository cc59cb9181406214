# SPDX-License-Identifier: Apache-2.0
"""Transformations that optax and gradscaler.jax.optax both have, made of either module by the same arguments."""

LR, DECAY = 0.05, 0.1


def _schedule(module):
    import optax

    return module.adam(optax.linear_schedule(LR, 0.0, 10))


MAKERS = {
    "sgd": lambda m: m.sgd(LR),
    "momentum": lambda m: m.sgd(LR, 0.9),
    "nesterov": lambda m: m.sgd(LR, 0.9, True),
    "adam": lambda m: m.adam(LR),
    "adamw": lambda m: m.adamw(LR, weight_decay=DECAY),
    "adagrad": lambda m: m.adagrad(LR),
    "lion": lambda m: m.lion(LR, weight_decay=DECAY),
    "lamb": lambda m: m.lamb(LR, weight_decay=DECAY),
    "schedule": _schedule,
}
