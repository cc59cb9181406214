# SPDX-License-Identifier: Apache-2.0
"""The bad-input table: one wrong argument a row, its exception, and that the message names it."""

import re
import types

import numpy as np
import pytest

import gradscaler as gs
from conftest import ones, zeros

NAN = float("nan")
BAD = gs.InvalidArgumentError


def params():
    return [ones(3)]


def optimizer():
    return gs.SGD(params(), params(), lr=0.0)


# The ranges are the library's, and tested in tests/capi; here are one of each kind of argument, and what
# Python finds by itself.
SCALER = [
    (dict(init_scale=0.0), BAD, "init_scale"), (dict(init_scale=NAN), BAD, "init_scale"),
    (dict(init_scale="big"), TypeError, "init_scale"), (dict(init_scale=None), TypeError, "init_scale"),
    (dict(growth_interval=0), BAD, "growth_interval"), (dict(growth_interval=2.5), TypeError, "growth_interval"),
    (dict(growth_interval=1 << 40), ValueError, "growth_interval"),
    (dict(hysteresis_refill="never"), ValueError, "hysteresis_refill is 'never'.*on_growth"),
    (dict(growth_timing=1), ValueError, "growth_timing"), (dict(floor_action="abort"), ValueError, "floor_action"),
    (dict(init_scale=1e300), BAD, "init_scale is 1e.300; it must not be beyond"),
    (dict(growth_factor=10**400), BAD, "growth_factor is too large"),
    (dict(min_scale=1e39), BAD, "min_scale is 1e.39"), (dict(max_scale=-1e39), BAD, "max_scale is -1e.39"),
    (dict(recovery_threshold=1e300), BAD, "recovery_threshold is 1e.300"),
    (dict(enabled="no"), TypeError, "enabled is 'no'; it must be True or False"),
    (dict(finite_guard=2), TypeError, "finite_guard is 2"), (dict(history_capacity=np.array([1, 2])), TypeError,
                                                             "history_capacity is array"),
    (dict(minimum=1.0), TypeError, "minimum"), (dict(device="gpu"), ValueError, "device is 'gpu'"),
    (dict(device="cuda:x"), ValueError, "device"), (dict(device="cuda:99"), gs.UnavailableError, "."),
]


@pytest.mark.parametrize("arguments, error, message", SCALER, ids=str)
def test_scaler(arguments, error, message):
    with pytest.raises(error, match=message):
        gs.GradScaler(**arguments)


OPTIMIZERS = [
    (gs.SGD, dict(lr=NAN), BAD, "lr"), (gs.SGD, dict(lr="1"), TypeError, "lr"),
    (gs.SGD, dict(lr=10**400), BAD, "lr is too large"),
    (gs.SGD, dict(maximize="False"), TypeError, "maximize is 'False'; it must be True or False"),
    (gs.SGD, dict(zero_grads=np.array([True, False])), TypeError, "zero_grads is array"),
    (gs.SGD, dict(write_grads=None), TypeError, "write_grads is None"),
    (gs.Adam, dict(betas=(0.9, 10**400)), BAD, r"betas\[1\] is too large"),
    (gs.Adam, dict(betas=(1.0, 0.9)), BAD, r"betas\[0\]"), (gs.Adam, dict(betas=(0.9, -0.1)), BAD, r"betas\[1\]"),
    (gs.Adam, dict(betas=0.9), ValueError, "betas"), (gs.Adam, dict(device="cpu:x"), ValueError, "device"),
    (gs.Adam, dict(momentum=0.9), TypeError, "momentum"),
    (gs.AdamW, dict(state="4bit"), ValueError, "state is '4bit'; it must be one of 'fp32', '16bit', '8bit'"),
    (gs.AdamW, dict(master="fp32"), ValueError,
     "master is 'fp32'; it must be one of None, 'split', 'split24', 'stochastic'"),
    (gs.AdamW, dict(master="split"), ValueError, r"master is 1, but params\[0\] is fp32; it needs fp16 or bf16"),
    (gs.AdamW, dict(seed=1 << 63), ValueError, "seed is 9223372036854775808; it must be in"),
]


@pytest.mark.parametrize("kind, arguments, error, message", OPTIMIZERS, ids=str)
def test_optimizer(kind, arguments, error, message):
    with pytest.raises(error, match=message):
        kind(params(), params(), **arguments)


LISTS = [
    (lambda: gs.SGD(params(), [ones(4)]), BAD, r"grads\[0\]"),
    (lambda: gs.SGD(params(), []), BAD, "grads"),
    (lambda: gs.Adam(params(), params(), state={"exp_avg": params()}), ValueError, "keeps"),
    (lambda: gs.SGD(params(), params(), model_copy=[np.ones(4, np.float16)]), BAD, r"model_copy\[0\]"),
    (lambda: (lambda p: gs.SGD(p, p))(params()), BAD, "overlap"),
    (lambda: gs.SGD(None, params()), TypeError, "NoneType"),
    (lambda: gs.SGD(params(), 3), TypeError, "grads is int"),
    (lambda: gs.TensorList(params(), device=gs.Context()).rebind([np.ones(3)]), ValueError, r"arrays\[0\]"),
    (lambda: gs.Optimizer(params(), params(), {}), TypeError, "base class"),
    (lambda: gs.SGD(gs.TensorList(params(), device=gs.Context()), gs.TensorList(params())), BAD, "context"),
]


@pytest.mark.parametrize("call, error, message", LISTS)
def test_lists(call, error, message):
    with pytest.raises(error, match=message):
        call()


CALLS = [
    (lambda s, o: s.clip_grad_norm_(o, NAN), BAD, "max_norm"),
    (lambda s, o: s.clip_grad_norm_(o, 1.0, 3), ValueError, "norm_type is 3"),
    (lambda s, o: s.clip_grad_value_(o, NAN), BAD, "clip_value"),
    (lambda s, o: s.update("8"), TypeError, "new_scale"), (lambda s, o: s.update(1e300), BAD, "new_scale is 1e"),
    (lambda s, o: s.set_backoff_factor(10**400), BAD, "new_factor is too large"),
    (lambda s, o: gs.recommend_scale([np.ones(3)], 1e300), BAD, "current_scale is 1e"),
    (lambda s, o: s.set_growth_interval(1.5), TypeError, "new_interval"),
    (lambda s, o: s.unscale_([np.ones(3)]), TypeError, "optimizer is list"),
    (lambda s, o: s.check_range(o, 0, 2), BAD, "count|range"), (lambda s, o: s.check_range(o, -1, 1), BAD, "first"),
    (lambda s, o: s.scale(np.ones(3), out=np.ones(2)), BAD, "out has shape"),
    (lambda s, o: s.scale(np.ones(3), out=[1, 2]), TypeError, "out is list"),
    (lambda s, o: gs.GradScaler.from_preset("caffe"), ValueError, "preset is 'caffe'.*torch"),
    (lambda s, o: gs.Context(threads=-1), ValueError, "threads"),
    (lambda s, o: gs.Context(use_current_context="no"), TypeError, "use_current_context is 'no'"),
    *[(lambda s, o, of=of, wrong=wrong: setattr(of(s, o), "stream", wrong), error, message)
      for of in (lambda s, o: s, lambda s, o: o, lambda s, o: o.grads)
      for wrong, error, message in ((-1, ValueError, "stream is -1"), ("8", TypeError, "stream is '8'"),
                                    (types.SimpleNamespace(cuda_stream=8), TypeError, "pass its cuda_stream"),
                                    (types.SimpleNamespace(ptr=8), TypeError, "pass its ptr"))],
    (lambda s, o: gs.Context(cpu_target="mmx"), ValueError, "cpu_target"),
    (lambda s, o: gs.ops.update_scale(1.0, 1, 0.0), TypeError, "scale"),
    (lambda s, o: gs.ops.cast([np.ones(3)], []), ValueError, r"src\[0\] is unknown: dst has no such entry"),
    (lambda s, o: gs.ops.norm([np.ones(3)], 1), ValueError, "norm_type"),
    (lambda s, o: gs.ops.unscale_check([np.ones(3)], zeros(2), 1.0), TypeError, "found_inf"),
    (lambda s, o: gs.clip_grad_norm_([np.ones(3)], -1.0), ValueError, "max_norm"),
    (lambda s, o: gs.clip_grad_value_([np.ones(3)], -1.0), BAD, "clip_value"),
]


@pytest.mark.parametrize("call, error, message", CALLS)
def test_calls_change_nothing(call, error, message):
    scaler, stepper = gs.GradScaler(init_scale=4.0), optimizer()
    before = scaler.state_dict()
    with pytest.raises(error, match=message):
        call(scaler, stepper)
    assert scaler.state_dict() == before
    scaler.step_and_update(stepper)
    assert scaler.report().updates == 1


STATES = [
    ([1], TypeError, "state_dict is list; it must be a mapping"), (3, TypeError, "state_dict is int"),
    ({"gradscaler": 3}, TypeError, r"state_dict\['gradscaler'\] is int; it must be a mapping"),
    ({"gradscaler": [1]}, TypeError, r"state_dict\['gradscaler'\] is list"),
    ({"gradscaler": {}}, ValueError, r"no \['gradscaler'\]\['hysteresis_tracker'\]"),
    ({"scale": 1e300}, BAD, r"state_dict\['scale'\] is 1e.300"), ({"scale": 10**400}, BAD, r"\['scale'\] is too large"),
    ({"scale": -1.0}, BAD, r"state_dict\['scale'\]"), ({"scale": "1"}, TypeError, r"\['scale'\] is '1'"),
    ({"growth_interval": 0}, BAD, "growth_interval"), ({"growth_interval": 1 << 40}, ValueError, "growth_interval"),
    (None, RuntimeError, "source state dict is empty"),
]


@pytest.mark.parametrize("wrong, error, message", STATES, ids=str)
def test_states_of_a_scaler(wrong, error, message):
    scaler = gs.GradScaler(init_scale=4.0)
    before = scaler.state_dict()
    with pytest.raises(error, match=message):
        scaler.load_state_dict({**before, **wrong} if isinstance(wrong, dict) else wrong)
    assert scaler.state_dict() == before
    with pytest.raises(ValueError, match="the state dict has no 'growth_factor', 'backoff_factor'"):
        scaler.load_state_dict({"scale": 1.0})


GROUPS = [
    ([1], "state_dict is list; it must be a mapping"), (None, "state_dict is NoneType"),
    ({"param_groups": None}, r"state_dict\['param_groups'\] is NoneType; it must be a list"),
    ({"param_groups": [3]}, r"state_dict\['param_groups'\]\[0\] is int; it must be a mapping"),
    ({"param_groups": [{"params": None}]},
     r"state_dict\['param_groups'\]\[0\]\['params'\] is NoneType; it must be a list"),
]


@pytest.mark.parametrize("wrong, message", GROUPS, ids=str)
@pytest.mark.parametrize("theirs", [False, True])
def test_states_of_an_optimizer(wrong, message, theirs):
    stepper = optimizer()
    state = stepper.state_dict()
    if theirs:
        del state["kind"]
    with pytest.raises(TypeError, match=message):
        stepper.load_state_dict({**state, **wrong} if isinstance(wrong, dict) else wrong)


CROOKED = np.frombuffer(bytearray(17), np.float32, count=4, offset=1)
AT = r"is 0x[0-9a-f]+, which is not aligned to its dtype fp32 \(4 bytes\)"


def four():
    return {"w": ones(4)}


# The messages name Python's arguments, which are made from the fields of the error.
NAMED = [
    (lambda: gs.SGD(four(), four(), momentum=0.9, state={"momentum_buffer": {"w": CROOKED}}),
     rf"the address of state\['momentum_buffer'\]\['w'\] {AT}"),
    (lambda: gs.Adam(four(), four(), state={"exp_avg": four(), "exp_avg_sq": {"w": np.ones(4)}}),
     r"state\['exp_avg_sq'\]\['w'\] is fp64, but the state of a parameter of dtype fp32 is fp32"),
    (lambda: (lambda p: gs.SGD({"w": p}, four(), momentum=0.9, state={"momentum_buffer": {"w": p}}))(np.ones(4)),
     r"state\['momentum_buffer'\]\['w'\] overlaps params\['w'\]"),
    (lambda: gs.TensorList(four()).rebind({"w": CROOKED}), rf"the address of arrays\['w'\] {AT}"),
    (lambda: gs.ops.norm({"a": np.ones(3), "b": CROOKED}), rf"the address of tensors\['b'\] {AT}"),
    (lambda: gs.ops.cast(four(), {"w": CROOKED}), rf"the address of dst\['w'\] {AT}"),
    (lambda: gs.clip_grad_norm_({"w": CROOKED}, 1.0), rf"the address of grads\['w'\] {AT}"),
    (lambda: gs.GradScaler().scale(ones(4), out=CROOKED), rf"the address of out {AT}"),
    (lambda: gs.SGD(params(), params(), nesterov=True), "the optimizer has nesterov, which needs momentum > 0"),
    (lambda: gs.SGD(params(), params(), zero_grads=True, write_grads=True), "the optimizer has both zero_grads and"),
    (lambda: gs.GradScaler(min_scale=8.0, max_scale=4.0), "min_scale is 8, above max_scale, which is 4"),
    (lambda: gs.GradScaler().set_growth_interval(0), "growth_interval is 0; it must be >= 1"),
    (lambda: gs.GradScaler().load_state_dict({**gs.GradScaler().state_dict(), "_growth_tracker": -1}),
     r"state_dict\['_growth_tracker'\] is -1"),
    (lambda: gs.GradScaler().load_state_dict(
        {**gs.GradScaler().state_dict(), "gradscaler": {**gs.GradScaler().state_dict()["gradscaler"], "skipped": 2}}),
     r"state_dict\['gradscaler'\]\['skipped'\] is 2, more than state_dict\['gradscaler'\]\['updates'\], which is 0"),
    (lambda: gs.Context("cuda:99"), "device is 'cuda:99', but "),
]


@pytest.mark.parametrize("call, message", NAMED, ids=range(len(NAMED)))
def test_messages_name_what_was_passed(call, message):
    with pytest.raises(gs.GradscalerError, match=f"^{message}") as caught:
        call()
    assert not re.search("options|gsc_", str(caught.value), re.I) and caught.value.status > 0


def test_error_fields():
    for call, kind, fields in (
            (lambda: gs.GradScaler(growth_interval=0), BAD,
             dict(status=1, function="gsc_scaler_create", argument="options", field="growth_interval", index=None,
                  tensor=None)),
            (lambda: gs.ops.norm([ones(3), CROOKED]), BAD, dict(argument="tensors", field="data", tensor=1)),
            (gs.GradScaler().update, gs.BadStateError, dict(function="gsc_scaler_update", argument=None))):
        with pytest.raises(kind) as caught:
            call()
        assert {name: getattr(caught.value, name) for name in fields} == fields


def test_names():
    values = ones(2)
    with pytest.raises(TypeError, match=r"names\[0\] is 1; it must be a string"):
        gs.TensorList([values], names=[1])
    for name in ("a\0b", "\ud800"):
        with pytest.raises(ValueError, match=r"names\[0\] is .* zero characters"):
            gs.TensorList([values], names=[name])
        with pytest.raises(ValueError, match=r"the name of arrays\['.*'\] is"):
            gs.TensorList({name: values})
