# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios that every language runs; tests/conformance/README.md explains them."""

import json

import numpy as np
import pytest

import gradscaler as gs
from conftest import ROOT

FILE = json.loads((ROOT / "tests" / "conformance" / "scenarios.json").read_text())
ERRORS = {"invalid_argument": gs.InvalidArgumentError, "bad_state": gs.BadStateError,
          "unsupported": gs.UnsupportedError, "scale_floor": gs.ScaleFloorError}
# A flag's argument, and the argument's value where the flag is set.
FLAGS = {"grow_on_equal": ("grow_on_equal", True), "no_finite_guard": ("finite_guard", False),
         "floor_exclusive": ("floor_exclusive", True), "fp32_products": ("fp32_products", True)}


def number(value):
    return {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}[value] if isinstance(value, str) else value


def policy(options):
    found = {key: number(value) if key.endswith(("scale", "factor")) else value for key, value in options.items()}
    if "flags" in found:
        flags = found.pop("flags")
        assert set(flags) <= set(FLAGS)
        found.update({name: (flag in flags) == value for flag, (name, value) in FLAGS.items()})
    return found


class Model:
    """A list of gradients of a file, with its optimizer. bf16 gradients are kept as their bits."""

    def __init__(self, dtype="fp32", counts=(4,)):
        self.bf16 = dtype == "bf16"
        kind = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32, "fp64": np.float64}[dtype]
        self.grads = [np.zeros(n, kind) for n in counts]
        self.params = [np.zeros(n, np.float32) for n in counts]
        self.optimizer = gs.SGD(self.params, gs.TensorList(self.grads, dtype="bf16" if self.bf16 else None), lr=1.0)

    def write(self, array, index, value):
        with np.errstate(over="ignore"):
            array[index] = np.float32(value).view(np.uint32) >> 16 if self.bf16 else value

    def fill(self, value):
        for array in self.grads:
            self.write(array, slice(None), value)

    def values(self, which):
        arrays = getattr(self, which)
        if which == "grads" and self.bf16:
            arrays = [(array.astype(np.uint32) << 16).view(np.float32) for array in arrays]
        return np.concatenate(arrays).astype(np.float64)


class World:
    def __init__(self, story):
        self.story = story
        self.saved = {}
        self.models = {name: Model(**keys) for name, keys in story.get("lists", {"model": {}}).items()}
        self.new_scaler(story.get("scaler", {}))

    def new_scaler(self, options):
        options = policy(options)
        preset = options.pop("preset", "torch")
        self.scaler = gs.GradScaler.from_preset(preset, **options)

    def model(self, event):
        return self.models[event["list"]] if "list" in event else next(iter(self.models.values()))

    def run(self, pattern, scales):
        assert len(pattern) == len(scales)
        for letter, scale in zip(pattern, scales, strict=True):
            for index, model in enumerate(self.models.values()):
                model.fill(self.scaler.get_scale())
                if letter == "x" and index == 0:
                    model.write(next(array for array in model.grads if array.size), 0, np.inf)
                self.scaler.step(model.optimizer)
            self.scaler.update()
            assert self.scaler.get_scale() == np.float32(number(scale)), (pattern, letter)

    def do(self, event):
        scaler, model, kind = self.scaler, self.model(event), event["do"]
        optimizer = model.optimizer
        if kind == "fill":
            model.fill(number(event["value"]) if "value" in event
                       else number(event["true_value"]) * scaler.get_scale())
        elif kind == "plant":
            model.write(model.grads[event.get("tensor", 0)], event.get("element", 0), number(event["value"]))
        elif kind == "check_range":
            scaler.check_range(optimizer, event["first"], event["count"])
        elif kind == "clip_norm":
            norm = np.inf if event.get("norm") == "inf" else 2
            scaler.clip_grad_norm_(optimizer, number(event["max_norm"]), norm)
        elif kind == "clip_value":
            scaler.clip_grad_value_(optimizer, number(event["value"]))
        elif kind == "should_step":
            self.apply = scaler.should_step(optimizer)
        elif kind == "update":
            scaler.update()
        elif kind == "discard":
            scaler.discard(optimizer if "list" in event else None)
        elif kind == "set_scale":
            scaler.update(number(event["scale"]))
        elif kind == "set_options":
            scaler.set_options(**policy(event["options"]))
        elif kind == "save":
            self.saved[event["as"]] = scaler.state_dict()
            if not self.saved[event["as"]]:
                # A disabled scaler has nothing to save: an error in C, PyTorch's empty dict in Python.
                raise gs.BadStateError("empty state dict")
        elif kind == "restore":
            scaler.load_state_dict(self.saved[event["from"]])
        elif kind == "new_scaler":
            self.new_scaler(event.get("scaler", self.story.get("scaler", {})))
        elif kind == "run":
            self.run(event["pattern"], event["scales"])
        else:
            getattr(scaler, {"unscale": "unscale_"}.get(kind, kind))(optimizer)

    def report(self, optimizer=None):
        try:
            return self.scaler.report(optimizer)
        except gs.ScaleFloorError as error:
            return error.report

    def expect(self, wanted):
        report = self.report()
        if "scale" in wanted:
            assert self.scaler.get_scale() == np.float32(number(wanted["scale"]))
        if "inv_scale" in wanted:
            word = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(
                self.scaler.device_words["inv_scale"]))
            assert word[0] == np.float32(number(wanted["inv_scale"]))
        for key in ("growth_tracker", "hysteresis_tracker", "consecutive_skips", "updates", "skipped", "overflow",
                    "at_floor"):
            if key in wanted:
                assert getattr(report, key) == wanted[key], key
        if "floor_error" in wanted:
            if wanted["floor_error"]:
                with pytest.raises(gs.ScaleFloorError):
                    self.scaler.report()
            else:
                self.scaler.report()
        for which in ("params", "grads"):
            for name, value in wanted.get(which, {}).items():
                value = [number(v) for v in value] if isinstance(value, list) else number(value)
                found = self.models[name].values(which)
                np.testing.assert_allclose(found, np.broadcast_to(value, found.shape), rtol=1e-6, err_msg=which)
        for name, (applied, skipped) in wanted.get("steps", {}).items():
            optimizer = self.models[name].optimizer
            assert (optimizer.steps, optimizer.skipped_steps) == (applied, skipped)
        names = {"nonfinite": "nonfinite_count", "inf": "inf_count", "nan": "nan_count", "norm": "grad_norm",
                 "amax": "grad_amax"}
        for name, fields in wanted.get("report", {}).items():
            found = self.report(self.models[name].optimizer)
            for key, value in fields.items():
                np.testing.assert_allclose(getattr(found, names.get(key, key)), number(value), rtol=1e-6, err_msg=key)
        if "history" in wanted:
            found = [[e.update, e.scale, int(e.overflow)] for e in self.scaler.history()]
            assert found[-len(wanted["history"]):] == wanted["history"]
        if "apply" in wanted:
            assert self.apply == bool(wanted["apply"])


@pytest.mark.parametrize("scenario", FILE["scenarios"], ids=lambda scenario: scenario["name"])
def test_scenario(scenario):
    world = World(scenario)
    for index, event in enumerate(scenario["events"]):
        status = event.get("status", "ok")
        try:
            if status == "ok":
                world.do(event)
            else:
                with pytest.raises(ERRORS[status]):
                    world.do(event)
            world.expect(event.get("expect", {}))
        except BaseException as error:
            error.add_note(f"in event {index}: {event}") if hasattr(error, "add_note") else None
            raise


def test_there_are_scenarios():
    assert FILE["format"] == 1
    assert len(FILE["scenarios"]) >= 30
