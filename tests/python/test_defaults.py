# SPDX-License-Identifier: Apache-2.0
"""Defaults that are written by hand are those of the table in gradscaler.h, or another system's, with the reason.

What scripts/gen-api writes needs no test. LuaJIT has no defaults: it calls the library's functions. C++ has those that
gen-api writes, which tests/cpp/options_test.cpp compares with the library's.
"""

import inspect
import json
import re
import typing

import pytest

import gradscaler as gs
from conftest import ROOT, kinds_of_table, library

KINDS = {name: kind["options"] for name, kind in kinds_of_table().items()}
SCALER = {field["name"]: field.get("default")
          for struct in json.loads((ROOT / "bindings/api.json").read_text(encoding="utf-8"))["structs"]
          if struct["name"] == "gsc_scaler_options" for field in struct["fields"]}


def signature(function):
    """{argument: default} of those that have one, `betas` as beta1 and beta2."""
    found = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()
             if parameter.default is not inspect.Parameter.empty}
    if "betas" in found:
        found["beta1"], found["beta2"] = found.pop("betas")
    return found


def table(kind):
    """{option: default}; flags are off."""
    return {name: float(option["default"]) if option else False for name, option in KINDS[kind].items()}


def differences(kind, given, different):
    """{argument: (what the function has, the table's)} of options that differ, but for those in `different`."""
    of_table = table(kind)
    assert given.keys() & of_table.keys(), f"{kind}: no argument is an option"
    return {name: (given[name], of_table[name]) for name in sorted(given.keys() & of_table.keys() - different.keys())
            if given[name] != of_table[name]}


# {class: {option: why PyTorch's default is not the library's}}. There is none: the library's are PyTorch's.
TORCHS = {}


@pytest.mark.parametrize("kind", KINDS)
def test_optimizers_of_torch(kind):
    """Those that subclass PyTorch's have its defaults, too. Where they differ, PyTorch's win: see TORCHS."""
    torch = library("torch")
    from gradscaler import torch as gst
    from gradscaler.torch._optim import Own
    given = signature(getattr(gst, kind).__init__)
    assert not differences(kind, given, TORCHS.get(kind, {}))
    # Every option of the kind is an argument, or one of all classes, but for those that PyTorch's class does not have.
    of_torch = hasattr(torch.optim, kind)
    of_all = typing.get_type_hints(Own).keys()
    assert table(kind).keys() - given.keys() - of_all <= ({"eps_root"} if of_torch else set())
    if of_torch:
        theirs = signature(getattr(torch.optim, kind).__init__)
        assert {name: theirs[name] for name in theirs.keys() & given.keys() if theirs[name] != given[name]} == {}


def test_scalers():
    """PyTorch's arguments; the rest are keywords of a policy, whose defaults are the library's."""
    library("torch")
    from gradscaler import torch as gst
    for scaler in (gs.GradScaler, gst.GradScaler):
        given = signature(scaler.__init__)
        for name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"):
            assert given[name] == float(SCALER[name]), name


def test_presets_on_the_page():
    """First scale and interval in the table of docs/concepts.md."""
    rows = re.findall(r"^\| `(\w+)` \|.*?\| 2\^(\d+) \| (\d+) \|", (ROOT / "docs/concepts.md").read_text("utf-8"), re.M)
    found = {name.lower(): (2.0 ** int(scale), int(interval)) for name, scale, interval in rows}
    presets = {name: gs.GradScaler.from_preset(name) for name in gs.PRESETS}
    assert found == {name: (made.get_scale(), made.get_growth_interval()) for name, made in presets.items()}


def assert_updates_as_a_scaler(update_scale):
    given = signature(update_scale)
    assert given == {name: float(SCALER[name]) for name in ("growth_factor", "backoff_factor", "growth_interval")}


def test_update_scale():
    assert_updates_as_a_scaler(gs.ops.update_scale)


def test_update_scale_of_jax():
    library("jax")
    from gradscaler import jax as gsj
    assert_updates_as_a_scaler(gsj.update_scale)


def test_adamw_of_jax():
    library("jax")
    from gradscaler import jax as gsj
    assert not differences("AdamW", signature(gsj.adamw), {})


# optax's names of options.
OPTAXS_NAMES = {"b1": "beta1", "b2": "beta2", "b3": "beta3", "decay": "alpha"}
# Functions of gradscaler.jax.optax and their kinds. A number there is optax's where it differs: a program puts them in
# the place of optax's.
OPTAX = {
    "adam": ("Adam", {}), "adamax": ("Adamax", {}), "nadam": ("NAdam", {}), "radam": ("RAdam", {}),
    "adamw": ("AdamW", {"weight_decay": 1e-4}), "nadamw": ("NAdam", {"weight_decay": 1e-4}),
    "adagrad": ("Adagrad", {"initial_accumulator_value": 0.1, "eps": 1e-7}),
    "rmsprop": ("RMSprop", {"alpha": 0.9, "momentum": None}), "adadelta": ("Adadelta", {}),
    "adabelief": ("AdaBelief", {}), "ademamix": ("AdEMAMix", {"weight_decay": 0.0}),
    "lion": ("Lion", {"weight_decay": 1e-3}), "lamb": ("LAMB", {"weight_decay": 0.0}),
    "sgd": ("SGD", {"momentum": None}),
}


@pytest.mark.parametrize("name", OPTAX)
def test_functions_of_optax(name):
    library("optax")
    from gradscaler.jax import optax as ours
    kind, optaxs = OPTAX[name]
    given = {OPTAXS_NAMES.get(key, key): value for key, value in signature(getattr(ours, name)).items()}
    assert not differences(kind, given, optaxs)
    assert {key: given[key] for key in optaxs} == optaxs
    assert not [key for key, value in optaxs.items() if table(kind)[key] == value], "the same as the table's"


def test_a_difference_is_seen():
    assert differences("Lion", {"lr": 1e-4, "weight_decay": 0.5}, {}) == {"weight_decay": (0.5, 0.0)}
