# SPDX-License-Identifier: Apache-2.0
"""GradScaler: what PyTorch's own tests assert of theirs, state dicts, pickling, and what is ours alone."""

import copy
import fractions
import math
import pickle
import sys
import types

import numpy as np
import pytest

import gradscaler as gs
from conftest import full, has_gpu, ones, refused

TORCH_KEYS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


def test_defaults_are_pytorchs():
    scaler = gs.GradScaler()
    state = scaler.state_dict()
    assert {key: state[key] for key in TORCH_KEYS} == {
        "scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}
    assert set(state) == TORCH_KEYS | {"gradscaler"}
    assert scaler.is_enabled() and scaler.get_scale() == 65536.0
    scaler = gs.GradScaler("cpu", 8.0, 3.0, 0.25, 7, True)
    assert (scaler.get_scale(), scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()
            ) == (8.0, 3.0, 0.25, 7)


def test_stages(world):
    scaler, optimizer, _params, _ = world()
    with pytest.raises(gs.BadStateError):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(gs.BadStateError, match="unscale"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError):
        scaler.step(optimizer)
    scaler.update()
    scaler.step_and_update(optimizer)
    assert scaler.report().updates == 2
    assert scaler.step_slice(optimizer, 1) > 0
    with pytest.raises(gs.BadStateError, match="slices"):
        scaler.update()
    assert scaler.step_slice(optimizer, 1000) == 0
    assert optimizer.steps == 3
    assert scaler.context.host_bytes > 0 == scaler.context.device_bytes
    with refused("max_bytes", ValueError):
        scaler.step_slice(optimizer, 0)


def test_a_device_factor_multiplies_gradients(world):
    scaler, optimizer, params, grads = world()
    word = np.ones(1, np.float32)
    before = params[0].copy()
    for factor in (0.5, word[0], np.array(0.25, np.float32), word):
        optimizer.grads.set_device_factor(factor)
        word[:] = 0.125  # which a step reads if it is that array
        grads[0][:] = 3.0 * scaler.get_scale()
        scaler.unscale_(optimizer)
        assert grads[0].tolist() == [3.0 * (0.125 if factor is word else float(factor))] * grads[0].size
        with refused("update or discard", gs.BadStateError):
            optimizer.grads.set_device_factor(None)
        scaler.discard()
    with refused("factor", TypeError):
        optimizer.grads.set_device_factor(np.ones(1))
    with refused("factor", TypeError):
        optimizer.grads.set_device_factor("half")
    optimizer.grads.set_device_factor(-1.0)
    with refused("device factor of -1", gs.InvalidArgumentError):
        scaler.step(optimizer)
    scaler.discard()
    assert (params[0] == before).all()
    optimizer.grads.set_device_factor(None)
    scaler.step(optimizer)
    assert optimizer.steps == 1


def test_norms_of_gradients_are_kept(world):
    scaler, optimizer, _params, grads = world()
    norms = np.full(len(optimizer.grads), -1.0)
    optimizer.grads.set_device_norms(norms)
    grads[0][:] = 12.0  # 3 unscaled
    scaler.step_and_update(optimizer)
    assert norms.tolist() == [math.sqrt(float((g.astype(np.float64) ** 2).sum())) / 4 for g in grads]
    assert norms[0] == 3 * math.sqrt(grads[0].size)
    grads[0][-1] = np.inf
    scaler.step_and_update(optimizer)
    assert norms[0] == math.inf and np.isfinite(norms[1:]).all()
    for bad in (np.zeros(len(norms), np.float32), np.zeros(len(norms) + 1), [0.0] * len(norms)):
        with refused("norms", TypeError):
            optimizer.grads.set_device_norms(bad)
    norms.flags.writeable = False
    with pytest.raises(ValueError, match="norms"):
        optimizer.grads.set_device_norms(norms)
    optimizer.grads.set_device_norms(None)
    scaler.step_and_update(optimizer)
    assert norms[0] == math.inf


def test_closures_and_foreign_optimizers_are_refused(world):
    scaler, optimizer, _, _ = world()
    with pytest.raises(RuntimeError, match="closure"):
        scaler.step(optimizer, closure=lambda: None)
    with refused("optimizer is object", TypeError):
        scaler.step(object())
    scaler.step(optimizer)


@pytest.mark.parametrize("norm_type", [2.0, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("unscales", [False, True])
def test_an_infinite_limit_measures_the_norm_alone(pair, dtype, unscales, norm_type):
    found = []
    for limit in (None, np.inf):
        params, grads = pair(4.0, dtype=dtype)
        scaler, optimizer = gs.GradScaler(init_scale=4.0), gs.SGD(params, grads, lr=1.0)
        if unscales:
            scaler.unscale_(optimizer)
        if limit is not None:
            scaler.clip_grad_norm_(optimizer, limit, norm_type)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.report(optimizer).grad_norm == 8.0**0.5
        found.append([values.tolist() for values in (*params, *grads)])
    assert found[0] == found[1]
    for wrong in (-np.inf, np.nan, -1.0):
        with refused("max_norm is .*; it must be"):
            scaler.clip_grad_norm_(optimizer, wrong)


def test_state_dict_of_pytorch_loads():
    scaler = gs.GradScaler(init_scale=6.0, growth_factor=7.0, backoff_factor=0.8, growth_interval=1, hysteresis=3)
    theirs = {"scale": 3.0, "growth_factor": 4.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 0}
    scaler.load_state_dict(theirs)
    found = scaler.state_dict()
    assert {key: found[key] for key in TORCH_KEYS} == theirs
    assert found["gradscaler"]["hysteresis_tracker"] == 3


def test_skips_at_the_floor_are_saved():
    scaler, restored = (gs.GradScaler(init_scale=1.0, min_scale=1.0, floor_action="error", floor_patience=3)
                        for _ in range(2))
    values = full(np.inf, 3)
    found = gs.TensorList([values])
    for _ in range(2):
        scaler.check(found)
        scaler.update()
    state = scaler.state_dict()
    assert state["gradscaler"]["skips_at_floor"] == 2
    restored.load_state_dict(state)
    for other in (restored, pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert other.state_dict() == state


def test_disabled(pair):
    params, grads = pair(2.0)
    scaler = gs.GradScaler(enabled=False)
    optimizer = gs.SGD(params, grads, lr=1.0)
    grads[0][0] = np.inf
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    assert params[0].tolist() == [-np.inf, -1.0, -1.0]
    scaler.load_state_dict({})
    assert scaler.scale(3.0) == 3.0


@pytest.mark.parametrize("enabled", [True, False])
def test_pickle(world, enabled):
    scaler, optimizer, _, grads = world(enabled=enabled, hysteresis=2, floor_action="report", min_scale=0.5,
                                        finite_guard=False)
    grads[0][0] = np.nan
    scaler.step_and_update(optimizer) if enabled else None
    for other in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert other.state_dict() == scaler.state_dict()
        assert other.options == scaler.options


def test_setters(world):
    scaler, _, _, _ = world()
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(9)
    scaler.set_options(min_scale=2.0, growth_timing="one_later")
    options = scaler.options
    assert [options[k] for k in ("growth_factor", "backoff_factor", "growth_interval", "min_scale", "growth_timing")
            ] == [3.0, 0.25, 9, 2.0, "one_later"]


def test_no_floor_and_no_ceiling_are_none(world):
    scaler = gs.GradScaler()
    assert scaler.options["min_scale"] is None and scaler.options["max_scale"] is None
    scaler.set_options(min_scale=2.0, max_scale=2.0**20)
    assert (scaler.options["min_scale"], scaler.options["max_scale"]) == (2.0, 2.0**20)
    scaler.set_options(min_scale=None, max_scale=None)
    assert scaler.options == gs.GradScaler().options == gs.GradScaler(min_scale=0, max_scale=0.0).options
    assert gs.GradScaler.from_preset("megatron", min_scale=None).options["min_scale"] is None
    assert pickle.loads(pickle.dumps(scaler)).options == scaler.options


def test_lists_count_in_english(pair):
    optimizer = gs.SGD(*pair(counts=(3,)))
    assert repr(optimizer) == "<gradscaler.SGD 1 tensor, 1 group>"
    assert repr(optimizer.params) == "<gradscaler.TensorList 1 tensor>"
    with refused("names has 1 entry, but arrays has 2 tensors", ValueError):
        gs.TensorList(pair()[0], names=["a"])


def test_report_names_the_offender(pair):
    params, grads = pair(4.0)
    scaler = gs.GradScaler(init_scale=4.0)
    optimizer = gs.SGD(params, gs.TensorList(grads, names=["bias", "weight"]))
    with pytest.raises(gs.BadStateError):
        scaler.report(optimizer)
    grads[1][[2, 4]] = np.nan, -np.inf
    scaler.step(optimizer)
    scaler.update()
    report = scaler.report(optimizer)
    assert (report.overflow, report.nan_count, report.inf_count, report.nonfinite_count) == (True, 1, 1, 2)
    assert (report.first_tensor, report.first_element, report.first_name) == (1, 2, "weight")
    assert (report.updates, report.skipped, report.consecutive_skips, report.scale) == (1, 1, 1, 2.0)
    assert report.asdict()["nan_count"] == 1


@pytest.mark.parametrize("preset", gs.PRESETS)
def test_presets(preset):
    scaler = gs.GradScaler.from_preset(preset, growth_interval=5)
    assert scaler.get_growth_interval() == 5
    assert gs.GradScaler(**scaler.options).options == scaler.options
    assert scaler.get_scale() == {"keras": 2.0**15, "tensorflow": 2.0**15, "jmp": 2.0**15, "fairseq": 2.0**15,
                                  "megatron": 2.0**32}.get(preset, scaler.options["init_scale"])


def test_scale_keeps_types():
    scaler = gs.GradScaler(init_scale=2.0**17)
    assert scaler.scale(2.0) == 2.0**18 and type(scaler.scale(2)) is float
    assert type(scaler.scale(np.float32(2))) is np.float32
    # Others keep digits that a double lacks.
    third = fractions.Fraction(1, 3)
    assert scaler.scale(third) == third * 2**17
    long = np.longdouble(1) / 3
    assert scaler.scale(long) == long * 2**17
    # Integers do not hold a product with a fraction, nor one with a large scale.
    assert scaler.scale(np.int8(2)) == 2.0**18 and gs.GradScaler(init_scale=0.5).scale(np.int32(3)) == 1.5
    whole = scaler.scale(np.array(2.0, np.float16))
    assert whole == 2.0**18 and whole.dtype == np.float32
    tiny = np.full(3, 2.0**-20, np.float16)
    out = scaler.scale(tiny)
    assert out.dtype == np.float16 and out.tolist() == [0.125] * 3 and tiny[0] == 2.0**-20
    assert scaler.scale(tiny, out=tiny) is tiny and tiny.tolist() == [0.125] * 3
    several = scaler.scale([1.0, (ones(2),)])
    assert several[0] == 2.0**17 and several[1][0].tolist() == [2.0**17] * 2
    with refused("outputs is str", TypeError):
        scaler.scale("1")


def test_update_takes_numbers_and_arrays_of_one():
    scaler = gs.GradScaler()
    for value in (32.0, np.array([4.0], np.float32), np.float32(8.0), np.array(2.0)):
        scaler.update(value)
        assert scaler.get_scale() == value
    with refused("new_scale is array", TypeError):
        scaler.update(np.array([4.0, 4.0], np.float32))


def test_the_stream_is_that_of_the_first_gradients(pair):
    # What a CUDA device would be asked; on the CPU streams mean nothing.
    scaler, (first, second, other) = gs.GradScaler(), (gs.SGD(*pair()) for _ in range(3))
    first.stream, second.stream, other.stream = 7, 9, 11
    here, there = (types.SimpleNamespace(device=device) for device in ("cuda:0", "cuda:1"))
    scaler.context = first.context = second.context = here
    other.context = there
    assert [scaler._adopt_stream(first), scaler.stream, scaler._adopt_stream(other), scaler.stream] == [7, 7, 11, 7]
    with refused("stream 0x9, but this scaler works in 0x7"):
        scaler._adopt_stream(second)
    scaler.stream = 9
    assert scaler._adopt_stream(second) == 9


def test_devices_are_named_as_they_were_passed(torch):
    assert gs.GradScaler(torch.device("cpu")).context.device == "cpu"
    assert gs.SGD([ones(2)], [ones(2)], device=torch.device("cpu", 0)).params
    for device in ("cuda:99", torch.device("cuda", 99)) if has_gpu() else ("cuda", "cuda:3", torch.device("cuda", 3)):
        with pytest.raises(gs.UnavailableError, match=f"^device is '{device}'"):
            gs.Context(device)
    with refused("device is device.type='meta'.*torch.device", ValueError):
        gs.GradScaler(torch.device("meta"))


@pytest.mark.parametrize("call", ["step", "step_and_update"])
def test_a_step_is_a_short_way_to_c(world, call):
    scaler, optimizer, *held = world()
    way = []

    def enter(frame, event, _):
        if event == "call":
            way.append(frame.f_code)

    for _ in range(4):
        way.clear()
        sys.setprofile(enter)
        getattr(scaler, call)(optimizer)
        sys.setprofile(None)
        files = {code.co_filename for code in way}
        assert len(files) <= 6, way  # the second and third step count references
        if call == "step":
            scaler.update()
    assert len(way) <= 8 and len(files) <= 4, way
    assert held
