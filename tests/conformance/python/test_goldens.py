# SPDX-License-Identifier: Apache-2.0
"""Replays the golden trajectories through the Python package: after every update of every recorded run the scale has
the same fp32 bits as the original system's. The format is in README.md; record/golden.py reads and writes it."""

import pathlib
import sys

import numpy as np
import pytest

import gradscaler as gs

CONFORMANCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(CONFORMANCE / "record"))

import golden  # noqa: E402

FILES = golden.read_all()
# What scenario and golden files list as flags are arguments of their own here.
FLAGS = {"grow_on_equal": ("grow_on_equal", True), "no_finite_guard": ("finite_guard", False),
         "floor_exclusive": ("floor_exclusive", True), "fp32_products": ("fp32_products", True)}


def arguments(options):
    """A run's options as the constructor takes them. `flags` are all that are set."""
    found = {key: value for key, value in options.items() if key != "flags"}
    if "flags" in options:
        found.update({argument: (flag in options["flags"]) == value for flag, (argument, value) in FLAGS.items()})
    return found


def replay(preset, run):
    """The scales after each update, as fp32 bits."""
    overflows = golden.expand(run["overflow"])
    gradient = np.ones(1, np.float32)
    grads = gs.TensorList([gradient])
    scaler = gs.GradScaler.from_preset(preset, **arguments(run["options"]), history_capacity=max(len(overflows), 1))
    for overflow in overflows:
        gradient[0] = np.inf if overflow else 1.0
        scaler.check(grads)
        scaler.update()
    return np.array([entry.scale for entry in scaler.history()], np.float32).view(np.uint32)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file["system"])
def test_same_trajectory(file):
    assert file["runs"]
    for run in file["runs"]:
        expected = np.array(golden.scales(run), np.float32).view(np.uint32)
        found = replay(file["preset"], run)
        assert len(found) == len(expected)
        wrong = np.flatnonzero(found != expected)
        assert not len(wrong), f"{run['case']}, seed {run['seed']}: first at update {wrong[0]}"


def test_there_are_goldens():
    assert len(FILES) >= 13
