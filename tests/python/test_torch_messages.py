# SPDX-License-Identifier: Apache-2.0
"""Messages of gradscaler.torch, and its actions, where users of PyTorch go wrong: each names the cause and the cure."""

import copy
import inspect
import math
import types
import typing
import warnings

import numpy as np
import pytest

import gradscaler as gs
from conftest import has_gpu, run_python
from gradscaler._native import native
from gradscaler.torch import _contexts, _scaler
from gradscaler.torch._optim import Own
from torch_params import KINDS, SCALERS, equal, gst, ids, param, params_of, set_grads, started, torch

#: Why this library cannot use a GPU: without CUDA the cure follows, else it lacks a driver.
WITHOUT_CUDA = ("this library was built without CUDA; `pip install .` where nvcc is found .* torch.optim"
                if "CUDA: none" in native.build_info() else "no CUDA device is available")


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_an_unknown_argument_names_the_class_and_the_closest(kind):
    known = {*list(inspect.signature(kind).parameters)[1:], *typing.get_type_hints(Own)} - {"own"}
    for name in known:
        wrong = name[:-2] + name[-1] + name[-2] + "x"
        with pytest.raises(TypeError) as raised:
            kind(params_of(), **{wrong: 1})
        assert str(raised.value).startswith(f"{kind.__name__} got an unexpected keyword argument '{wrong}'")
        if len(name) > 5:
            assert f"did you mean '{name}'?" in str(raised.value)
    with pytest.raises(TypeError, match="^GradScaler got .* 'min_scal'; did you mean 'min_scale'"):
        gst.GradScaler("cpu", min_scal=1.0)
    with pytest.raises(TypeError, match="^GradScaler got .* 'zzz'$"):
        gst.GradScaler("cpu", zzz=1.0)


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_state_of_another_optimizer_is_refused_by_name(kind):
    for other in KINDS:
        params = params_of(dtype=torch.float32)
        source, target = other(params, lr=0.1), kind(params, lr=0.2)
        set_grads(params, 1)
        source.step()
        missing = [name for name in target.defaults if name not in source.defaults]
        target.step()
        before = target.state_dict()
        try:
            target.load_state_dict(source.state_dict())
        except ValueError as error:
            named = [name for name in missing if f"has no {name!r}; it is not one of {kind.__name__}" in str(error)]
            named += [name for name in source.defaults if f"which {kind.__name__} does not take" in str(error)]
            assert named or other._KIND != kind._KIND and "state_dict['state'][0]" in str(error), error
            assert target.state_dict()["param_groups"] == before["param_groups"]
            continue
        except KeyError as error:
            raise AssertionError(f"{other.__name__} to {kind.__name__}") from error
        # What loads can step, or says which part of the state there is not.
        try:
            target.step()
        except ValueError as error:
            assert "has no '" in str(error)


@pytest.mark.parametrize("wrong", [None, "x", math.nan, math.inf, -1.0, torch.ones(2), {}, [1.0], object()],
                         ids=lambda wrong: str(wrong) if isinstance(wrong, float) else type(wrong).__name__)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_a_state_that_is_no_state_is_named_and_changes_nothing(kind, wrong):
    p = param(2, grad=1.0)
    optimizer = kind([p], lr=0.1, **{"momentum": 0.9} if kind in (gst.SGD, gst.RMSprop, gst.LARS) else {})
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    for name, value in before["state"][0].items():
        is_number = name in ("step", "mu_product")
        if not is_number and (wrong is None or isinstance(wrong, torch.Tensor)):
            continue  # of one that is missing the step speaks
        saved = copy.deepcopy(before)
        saved["param_groups"][0]["lr"] = 0.5
        saved["state"][0][name] = wrong
        expected = "a count of steps" if name == "step" else "a number" if is_number else "a tensor"
        with pytest.raises(ValueError, match=rf"^state_dict\['state'\]\[0\]\['{name}'\] is .*; it must be {expected}$"):
            optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["lr"] == 0.1 and torch.equal(torch.as_tensor(optimizer.state[p][name]),
                                                                      torch.as_tensor(value))


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_master_weights_is_a_flag(kind):
    with pytest.raises(TypeError, match="master_weights is 'False'; it must be True or False"):
        kind(params_of(), lr=0.1, master_weights="False")


def test_a_parameter_that_is_given_twice_is_named():
    p, q = param(2), param(3)
    for params, message in (([p, q, p], r"param_groups\[0\]\['params'\]\[2\] is a parameter that is given twice, the"
                                        r" first time as param_groups\[0\]\['params'\]\[0\]"),
                            ([("a", p), ("b", p)], "b is a parameter that is given twice, the first time as a")):
        with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
            warnings.simplefilter("ignore")
            gst.SGD(params, lr=1.0)


@pytest.mark.parametrize("kind", [gst.AdamW, gst.SGD, gst.RMSprop], **ids)
def test_parameters_that_became_another_dtype_say_what_to_do(kind):
    options = {} if kind is gst.AdamW else {"momentum": 0.9}
    model = torch.nn.Linear(4, 3)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    for dtype, before in ((torch.float32, None), (torch.float64, "float32"), (torch.float32, "float64")):
        model.to(dtype)
        optimizer.zero_grad()
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
        if before:
            state = f"is {before}, but that of a parameter of {str(dtype).rpartition('.')[2]} is"
            with pytest.raises(ValueError, match=rf"{state} .*; after model.double\(\) or model.float\(\) call"):
                optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        weight = model.weight.detach().clone()
        optimizer.step()
        assert not torch.equal(model.weight, weight)
        assert all(value.dtype == dtype for entry in optimizer.state.values() for name, value in entry.items()
                   if name not in ("step", "mu_product"))


def test_state_that_other_code_has_narrowed_does_not_become_float32_in_silence():
    p = param(3, grad=1.0)
    optimizer = gst.AdamW([("w", p)], lr=0.1)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    optimizer.register_step_pre_hook(lambda *_: [entry.update(exp_avg=entry["exp_avg"].bfloat16())
                                                 for entry in optimizer.state.values()] and None)
    with pytest.warns(UserWarning, match="w's state 'exp_avg' is bfloat16 and becomes float32; .* state='16bit'"):
        optimizer.step()
    assert optimizer.state[p]["exp_avg"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [None, *SCALERS], **ids)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_an_infinite_limit_measures_the_norm_alone(kind, make, dtype):
    found = []
    for limit in (None, float("inf")):
        params = params_of(dtype=dtype)
        optimizer = kind(params, lr=0.1, max_grad_norm=limit)
        scaler = started(make, init_scale=8.0)
        for step in range(3):
            set_grads(params, step, scale=8.0 if scaler else 1.0)
            if step == 1 and scaler:
                params[0].grad[0] = float("inf")
            optimizer.step() if scaler is None else (scaler.step(optimizer), scaler.update())
        found.append(params)
        norm = optimizer.report().grad_norm
        assert norm is None if limit is None and make is not gst.GradScaler else norm > 0.0
        # Without a limit nothing more is asked of the gradients than before.
    assert equal(*found)


def test_a_complex_gradient_is_named():
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer, scaler = torch.optim.SGD([("w", p)], lr=1.0), gst.GradScaler("cpu")
    scaler.scale(p.abs().sum()).backward()
    with pytest.raises(RuntimeError, match="^w.grad is complex64; a GradScaler unscales no complex gradients: "):
        scaler.step(optimizer)


@pytest.mark.parametrize("call", ["step", "unscale_"])
@pytest.mark.parametrize("kind", [gst.AdamW, torch.optim.AdamW])
def test_a_scale_that_was_loaded_is_there_before_the_first_loss(kind, call):
    saved = gst.GradScaler("cpu", init_scale=8.0)
    saved.scale(torch.ones(1))
    scaler, p = gst.GradScaler("cpu", init_scale=2.0), param(2, grad=8.0)
    optimizer = kind([p], lr=1.0)
    with pytest.raises(AssertionError, match="did not use scaler.scale"):
        getattr(scaler, call)(optimizer)
    scaler.load_state_dict(saved.state_dict())
    getattr(scaler, call)(optimizer)
    if call == "unscale_":
        assert p.grad.tolist() == [1.0, 1.0]
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8.0 and scaler.state_dict()["_growth_tracker"] == 1
    assert optimizer.state[p]["exp_avg"].allclose(torch.tensor(0.1))


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_an_iteration_without_a_gradient_leaves_the_scale(kind):
    p = param(2)
    optimizer, scaler = kind([p], lr=1.0), started(init_scale=8.0, growth_interval=1)
    # Once, since it may be all that there is to see of a model that is not trained.
    for said in (pytest.warns(RuntimeWarning, match="no parameter that was stepped on has a gradient: nothing"),
                 warnings.catch_warnings()):
        with said:
            scaler.step(optimizer)
            scaler.update()
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"], p.tolist()) == (8.0, 0, [0.0, 0.0])
    p.grad = torch.full((2,), 8.0)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 16.0 and p.tolist() != [0.0, 0.0]
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()


@pytest.mark.skipif(has_gpu(), reason="the library has a GPU")
def test_a_gpu_that_the_library_cannot_use_is_told_once(monkeypatch):
    monkeypatch.setattr(_scaler, "_unsupported_devices", set())
    p = param(2, grad=8.0)
    optimizer, scaler = torch.optim.SGD([p], lr=1.0), started(init_scale=8.0)
    # PyTorch's own kernels then work on what lies here.
    monkeypatch.setattr(_scaler, "_grads_by_device", lambda *_: {torch.device("cuda:0"): [p.grad]})
    with pytest.warns(RuntimeWarning, match=f"gradscaler.torch.GradScaler uses PyTorch's own .*{WITHOUT_CUDA}") as said:
        scaler.step(optimizer)
    assert len(said) == 1 and p.tolist() == [-1.0, -1.0]
    scaler.update()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.step(optimizer)
        assert _scaler._context(types.SimpleNamespace(type="mps", index=None)) is None
    # AdamW and the others.
    for make in (_contexts.context_of, gs.Context, lambda device: gs.GradScaler(device)):
        with pytest.raises(gs.UnavailableError, match=f"device is 'cuda:0', but {WITHOUT_CUDA}"):
            make("cuda:0")


def test_the_information_for_bug_reports_names_what_works_with_the_package():
    said = run_python("-m", "gradscaler", "info")
    assert f"numpy {np.__version__}" in said and f"PyTorch {torch.__version__}" in said
    for name in ("jax", "jaxlib", "optax", "flax"):
        assert f"\n{name} " in said or f"\n{name}: not installed" in said
