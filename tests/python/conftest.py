# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package. They need NumPy; other array libraries are tested where they are."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import gradscaler as gs

# For the tests of sharding; XLA reads it when JAX first looks for devices.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def device_or(default):
    return os.environ.get("GRADSCALER_TEST_DEVICE", default)


#: Where the tests of PyTorch make their tensors. scripts/gpu runs them with "cuda". Those in gpu/ are there by default.
DEVICE = device_or("cpu")

#: Whether tests take their long form: `scripts/test slow` asks for it.
LONG = "GRADSCALER_TEST_LONG" in os.environ


def pytest_collection_modifyitems(config, items):
    long = [item for item in items if item.get_closest_marker("long")]
    if long and not LONG:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def library(name, default_device=DEVICE):
    """An array library, or a tool, that the test is about; the test is skipped where it is not installed.

    PyTorch then makes its tensors on `default_device`.
    """
    module = pytest.importorskip(name, reason=f"{name} is not installed; `scripts/setup frameworks` installs it")
    if name == "torch" and default_device != "cpu":
        module.set_default_device(default_device)
    return module


def kinds_of_table():
    """{class: its facts} of the kinds of optimizer, as gradscaler.h has them."""
    enums = json.loads((ROOT / "bindings/api.json").read_text(encoding="utf-8"))["enums"]
    return {kind["class"]: kind for enum in enums if enum.get("type") == "OptimizerKind" for kind in enum["items"]}


def has_gpu():
    """Returns whether the library has one: made-up addresses are then looked up, and found to be unallocated."""
    return any(info.device.startswith("cuda") for info in gs.devices())


def refused(message, error=gs.InvalidArgumentError):
    return pytest.raises(error, match=message)


def full(value, *shape):
    """A float32 array, of three elements unless it is said otherwise."""
    return np.full(shape or (3,), value, np.float32)


def ones(*shape):
    return full(1.0, *shape)


def zeros(*shape):
    return full(0.0, *shape)


def frozen(values):
    values.flags.writeable = False
    return values


class Cuda:
    """An array that claims to be on a GPU."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3,
                                         "strides": None, "stream": 1, **changes}


def on_cpu(jax):
    """Within it JAX makes its arrays in host memory, on a machine with a GPU too."""
    return jax.default_device(jax.devices("cpu")[0])


def environment(**more):
    """For processes that import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def run_python(*arguments, command=(sys.executable, "-B"), cwd=None, **more):
    """The output of a process, which must end well; `more` is for its environment."""
    done = subprocess.run([*command, *map(str, arguments)], env=environment(**more), cwd=cwd, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_ranks(script, world, *arguments, timeout=400):
    """Runs a script as a process for each rank, with the rank, `world` and `arguments`; all must end well."""
    ranks = [subprocess.Popen([sys.executable, "-B", str(script), str(rank), str(world), *map(str, arguments)],
                              env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
             for rank in range(world)]
    try:
        said = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(said)


@pytest.fixture
def torch():
    return library("torch")


@pytest.fixture
def pair():
    """A function that makes params of ones and gradients of a value, of the given counts."""

    def make(value=1.0, counts=(3, 5), dtype=np.float32):
        params = [ones(n) for n in counts]
        return params, [np.full(n, value, dtype) for n in counts]

    return make


@pytest.fixture
def world(pair):
    """A scaler at scale 4 with growth interval 2, and SGD with learning rate 1 on gradients of 4 (1 unscaled)."""

    def make(value=4.0, **policy):
        params, grads = pair(value)
        scaler = gs.GradScaler(**{"init_scale": 4.0, "growth_interval": 2, **policy})
        return scaler, gs.SGD(params, grads, lr=1.0), params, grads

    return make
