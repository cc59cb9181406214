# SPDX-License-Identifier: Apache-2.0
"""The optimizers of Keras 3 in fp64, with the options of docs/reference/semantics.md that give the same equations."""

import os

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
pytest.importorskip("torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: its optimizers cannot be compared with")

import gradscaler as gs  # noqa: E402

LR, EPS = 1e-2, 1e-3
# Keras's class and arguments, and ours. Its weight decay is decoupled.
CASES = [
    ("SGD", {"momentum": 0.9}, "SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}, "SGD", {"momentum": 0.9, "nesterov": True}),
    # Where eps stands under no root, and is divided by S, it matters less the smaller it is.
    ("Adam", {"epsilon": 1e-30}, "Adam", {"eps": 1e-30}),
    ("AdamW", {"epsilon": 1e-30, "weight_decay": 0.1}, "AdamW", {"eps": 1e-30, "weight_decay": 0.1}),
    ("Adam", {"epsilon": 1e-30, "amsgrad": True}, "Adam", {"eps": 1e-30, "amsgrad": True}),
    ("Adagrad", {"epsilon": EPS, "initial_accumulator_value": 0.1}, "Adagrad",
     {"eps": 0.0, "initial_accumulator_value": 0.1 + EPS}),
    ("RMSprop", {"rho": 0.9, "epsilon": EPS}, "RMSprop", {"alpha": 0.9, "eps": 0.0, "eps_root": EPS}),
    ("RMSprop", {"rho": 0.9, "epsilon": EPS, "momentum": 0.8, "centered": True}, "RMSprop",
     {"alpha": 0.9, "eps": 0.0, "eps_root": EPS, "momentum": 0.8, "centered": True}),
    ("Adadelta", {"rho": 0.9, "epsilon": EPS}, "Adadelta", {"rho": 0.9, "eps": EPS}),
    ("Adamax", {"epsilon": 1e-30}, "Adamax", {"eps": 0.0}),
    ("Nadam", {"epsilon": EPS, "weight_decay": 0.1}, "NAdam",
     {"eps": EPS, "momentum_decay": 1.0, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Lion", {"beta_1": 0.9, "beta_2": 0.99, "weight_decay": 0.1}, "Lion",
     {"betas": (0.9, 0.99), "weight_decay": 0.1}),
    ("Lamb", {"epsilon": EPS}, "LAMB", {"eps": EPS, "weight_decay": 0.0}),
]


# Keras converts tensors in a way that NumPy warns of.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case[0], *map(str, case[1])]))
def test_same_equations(case):
    kind, options, own, own_options = case
    rng = np.random.default_rng(1)
    start = rng.standard_normal(200)
    variable = keras.Variable(start, dtype="float64")
    theirs = getattr(keras.optimizers, kind)(learning_rate=LR, use_ema=True, ema_momentum=0.75, **options)
    param, grad = start.copy(), np.zeros_like(start)
    ours = getattr(gs, own)(param, grad, lr=LR, ema_decay=0.75, **own_options)
    for step in range(40):
        grad[:] = rng.standard_normal(200)
        theirs.apply([keras.ops.convert_to_tensor(grad, dtype="float64")], [variable])
        ours.step()
        # Keras narrows hyper-parameters to fp32 here and there.
        stepped = keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(param, stepped, rtol=0, atol=1e-7 * (step + 1), err_msg=str(step))
        average = keras.ops.convert_to_numpy(theirs._model_variables_moving_average[0])
        np.testing.assert_allclose(np.asarray(ours.state["ema"][0]), average, rtol=0, atol=1e-7 * (step + 1))
