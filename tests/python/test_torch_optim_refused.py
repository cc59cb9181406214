# SPDX-License-Identifier: Apache-2.0
"""Input that the optimizers of gradscaler.torch refuse, with nothing changed."""

import copy
import inspect
import operator
import typing

import pytest

import gradscaler as gs
from conftest import refused
from gradscaler.torch._optim import Own
from torch_params import KINDS, gst, ids, param, params_of, torch


class Quiet(torch.Tensor):
    pass


#: What a param group cannot have, or not so, and the words of the refusal.
NOT_IN_GROUPS = {
    "max_grad_norm": (0.5, ValueError, "has 'max_grad_norm', which is one for all groups; pass it to the optimizer"),
    "master_weights": (True, ValueError, "has 'master_weights', which is one for all groups"),
    "seed": (3, ValueError, "has 'seed', which is one for all groups"),
    **{name: (1, ValueError, f"has '{name}', which is one for all groups")
       for name in ("skip_nonfinite", "skip_norm", "spike_factor", "spike_deviations", "spike_window", "spike_warmup",
                    "spike_patience", "tensor_norms")},
    "ema_decay": (1.0, ValueError, r"\['ema_decay'\] is 1.0; it must be in \[0, 1\)"),
    "ema_warmup": ("no", TypeError, r"\['ema_warmup'\] is 'no'; it must be True or False"),
    "cautious": ("no", TypeError, r"\['cautious'\] is 'no'; it must be True or False"),
    "cautious_decay": ("on", TypeError, r"\['cautious_decay'\] is 'on'; it must be True or False"),
    "param_min": (0.5, ValueError, r"\['param_min'\] is 0.5, (which is above param_max, 0|but \w+ takes no range)"),
    "param_max": (float("inf"), ValueError, r"\['param_max'\] is inf; it must be finite"),
    "state": ("4bit", ValueError, "state is '4bit'"), "master": ("half", ValueError, "master is 'half'"),
}


def test_every_option_is_one_of_groups_or_is_refused_there():
    assert {*typing.get_type_hints(Own)} == {*NOT_IN_GROUPS}


@pytest.mark.parametrize("key", NOT_IN_GROUPS)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_an_option_that_a_group_would_have_in_vain_is_refused(kind, key):
    value, error, message = NOT_IN_GROUPS[key]
    group = {"params": [param(2)], key: value}
    with pytest.raises(error, match=message):
        kind([group], lr=0.1)
    p = param(2, grad=1.0)
    optimizer = kind([p], lr=0.1)
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert group.keys() == {"params", key} and len(optimizer.param_groups) == 1
    for steps in range(2):
        with pytest.raises(error, match=message):
            optimizer.param_groups[0][key] = value
            optimizer.step()
        del optimizer.param_groups[0][key]
        before = p.tolist()
        optimizer.step()
        assert p.tolist() != before, steps


def test_a_group_that_gets_a_second_kind_of_master_is_refused():
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = gst.AdamW([("w", p)], lr=0.1, master_weights=True)
    for _ in range(2):
        p.grad = torch.ones_like(p)
        optimizer.step()
        optimizer.param_groups[0]["master"] = "split"
        with pytest.raises(ValueError, match="master is 'split' in the group of w, and master_weights is True"):
            optimizer.step()
        optimizer.param_groups[0]["master"] = None


def embedding():
    found = torch.nn.Embedding(4, 2, sparse=True)
    found(torch.tensor([1])).sum().backward()
    return found.weight


@pytest.mark.parametrize("make, error, message", [
    (lambda: gst.AdamW([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))]), TypeError,
     r"param_groups\[0\]\['params'\]\[0\] has dtype torch.complex64; it must be float16"),
    (lambda: gst.AdamW([("w", torch.zeros(2).as_subclass(Quiet))]), TypeError, "w is a Quiet, a subclass"),
    (lambda: gst.AdamW(params_of(), capturable=True), ValueError, r"param_groups\[0\] has capturable=True"),
    (lambda: gst.SGD(params_of(), differentiable=True), ValueError, r"param_groups\[0\] has differentiable=True"),
    (lambda: gst.Lion(params_of(), lr=-1.0), ValueError, "Invalid learning rate: -1.0"),
    (lambda: gst.LAMB(params_of(), betas=(0.9, 1.0)), ValueError, "Invalid beta parameter at index 1: 1.0"),
    (lambda: gst.Adam(params_of(), lr=-1.0), ValueError, "Invalid learning rate: -1.0"),
    (lambda: gst.SGD(params_of(), max_grad_norm=float("nan")), ValueError, "max_grad_norm is nan; it must be >= 0"),
    (lambda: gst.SGD([("emb", embedding())], lr=1.0).step(), ValueError, r"emb\.grad is sparse; make it dense"),
], ids=range(9))
def test_what_is_not_known_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


class Renamed(torch.nn.Parameter):
    """Keeps its elements where PyTorch does."""


class Elsewhere(torch.nn.Parameter):
    """Has no storage, as quantized parameters and others that are wrapped."""

    @staticmethod
    def __new__(cls, values):
        made = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, requires_grad=True)
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        raise NotImplementedError


class Observed(torch.nn.Parameter):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        return super().__torch_function__(function, types, arguments, keywords or {})


@pytest.mark.parametrize("kind", [gst.AdamW, gst.LAMB])
def test_subclasses_of_parameter_are_stepped_on_where_pytorch_keeps_their_elements(kind):
    found = []
    for make in (torch.nn.Parameter, Renamed):
        p = make(torch.arange(6.0).reshape(2, 3))
        optimizer = kind([p], lr=0.1)
        for scale in (1.0, 2.0):
            (p.square().sum() * scale).backward()
            optimizer.step()
            p.grad = None
        found.append(p.tolist())
    assert found[0] == found[1] != torch.arange(6.0).reshape(2, 3).tolist()
    for other in (Elsewhere(torch.ones(3)), Observed(torch.ones(3))):
        with refused(f"is a {type(other).__name__}, a subclass of torch.Tensor whose memory", TypeError):
            kind([other], lr=0.1)


@pytest.mark.parametrize("kind", [gst.AdamW, gs.TensorList])
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_parameters_need_a_forward_pass_first(kind):
    model = torch.nn.LazyLinear(3)
    with refused("weight'?.?.? is a lazy parameter.*; run a forward pass first", ValueError):
        kind(model.named_parameters())
    model(torch.ones(2, 4))
    kind(model.named_parameters())


def test_bad_gradients_are_refused_and_nothing_changes():
    p = param(2, 3)
    optimizer = gst.AdamW([("w", p)], lr=1.0)
    freed = torch.ones(2, 3)
    freed.untyped_storage().resize_(4)
    for grad, message in ((torch.ones(2, 3).to_sparse(), "w.grad is sparse; make it dense"),
                          (freed, "w.grad was freed or resized: its storage has 4 bytes, but it needs 24")):
        p.grad = grad
        with refused(message, ValueError):
            optimizer.step()
        assert p.eq(0).all() and not optimizer.state
    p.grad = torch.ones(2, 3)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["exp_avg"] = torch.ones(4)
    with refused(r"state_dict\['state'\]\[0\]\['exp_avg'\] has shape \(4,\)", ValueError):
        optimizer.load_state_dict(state)
    state = copy.deepcopy(optimizer.state_dict())
    del state["state"][0]["exp_avg_sq"]
    optimizer.load_state_dict(state)
    with refused("the state of w has no 'exp_avg_sq'", ValueError):
        optimizer.step()


def test_two_that_overlap_are_refused_by_name():
    memory = torch.zeros(6)
    params = [("a", torch.nn.Parameter(memory[:4])), ("b", torch.nn.Parameter(memory[2:]))]
    optimizer = gst.SGD(params, lr=1.0)
    for _, p in params:
        p.grad = torch.ones(4)
    with refused("b overlaps a"):
        optimizer.step()


@pytest.mark.parametrize("kind", [gst.AdamW, torch.optim.AdamW])
@pytest.mark.parametrize("call", ["step", "step_and_update", "unscale_", "report", "should_step", "discard"])
def test_the_scaler_of_arrays_names_the_one_of_pytorch(kind, call):
    module = "gradscaler.torch" if kind is gst.AdamW else "torch.optim"
    with pytest.raises(TypeError, match=f"optimizer is {module}.AdamW, one of PyTorch's kind; use"
                                        " gradscaler.torch.GradScaler with it"):
        getattr(gs.GradScaler(), call)(kind(params_of()))


@pytest.mark.parametrize("call", ["step", "unscale_", "overflowed", "report"])
@pytest.mark.parametrize("started", [False, True])
def test_the_scaler_of_pytorch_names_the_one_of_arrays(call, started):
    p = param(2, value=1.0)
    optimizer, scaler = gs.AdamW([p], [torch.ones(2)], lr=0.1), gst.GradScaler("cpu")
    if started:
        scaler.scale(p.sum()).backward()
    with pytest.raises(TypeError, match="optimizer is gradscaler.AdamW; use gradscaler.GradScaler with it, or"
                                        " gradscaler.torch.AdamW"):
        getattr(scaler, call)(optimizer)


#: What no optimizer takes: options of a constructor by name, with what a param group may have too.
REFUSED = {"master": "split", "capturable": True, "differentiable": True, "state": "4bit", "ema_decay": 2.0,
           "param_min": float("nan"), "param_max": -1.0, "cautious": "no", "cautious_decay": "on",
           "max_grad_norm": -1.0, "master_weights": (), "seed": "x", "lr": -1.0, "eps": -1.0, "weight_decay": -1.0,
           "betas": (2.0, 2.0), "momentum": -1.0, "foreach": True, "fused": True}


def refusals(kind):
    """Each argument that this class has, with a value that it refuses. `foreach` and `fused` are, together."""
    own = {*inspect.signature(kind).parameters, *typing.get_type_hints(Own)}
    for name, value in REFUSED.items():
        if name in own:
            yield {name: value}
    if {"foreach", "fused"} <= own:
        yield {"foreach": True, "fused": True}


@pytest.mark.parametrize("given", [list, tuple, iter], **ids)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_a_refused_constructor_leaves_the_callers_groups_alone(kind, given):
    """The kind: whatever refuses, PyTorch's class or this one, at whichever group."""
    refusing = 0
    for options in refusals(kind):
        named = [("b", param(3))]
        groups = [{"params": [("a", param(2))], "weight_decay": 0.5}, {"params": iter(named)},
                  {"params": [("c", param(4))], "lr": 0.25}]
        before = [dict(group) for group in groups]
        try:
            kind(given(groups), **options)
            continue
        except (TypeError, ValueError, RuntimeError):
            refusing += 1
        # An iterator would be empty the second time.
        groups[1]["params"], before[1]["params"] = list(groups[1]["params"]), named
        assert groups == before, options
        optimizer = kind(given(groups))
        assert [group["weight_decay"] for group in optimizer.param_groups][0] == 0.5
        assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1, 1]
        # As with PyTorch: what is accepted is the caller's group itself.
        assert all(map(operator.is_, optimizer.param_groups, groups))
    assert refusing >= 7


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_a_refused_group_is_left_alone(kind):
    optimizer = kind(params_of(dtype=torch.float32), **{"state": "8bit"})
    for wrong in ({"master": "split"}, {"capturable": True}, {"differentiable": True}, {"state": 3},
                  {"params": [param(2), torch.zeros(2, dtype=torch.complex64)]}, {"params": [("x", param(2))]},
                  {"params": [optimizer.param_groups[0]["params"][0]]}):
        group = {"params": [param(2)], "lr": 0.5, **wrong}
        before = dict(group)
        with pytest.raises((TypeError, ValueError)):
            optimizer.add_param_group(group)
        assert group == before and len(optimizer.param_groups) == 1


def test_pytorchs_own_scaler_is_told_where_its_optimizers_are():
    p = param(2, value=1.0)
    optimizer, scaler = gs.AdamW([p], [torch.ones(2)], lr=0.1), torch.amp.GradScaler("cpu")
    scaler.scale(p.sum()).backward()
    with pytest.raises(KeyError, match="'params'; .*gradscaler.torch.AdamW has PyTorch's param groups"):
        scaler.step(optimizer)
    assert optimizer.param_groups[0].get("params") is None and "params" not in optimizer.param_groups[0]


def test_a_learning_rate_in_the_place_of_gradients():
    for lr in (1e-3, 1):
        with pytest.raises(TypeError, match=r"grads is \w+, .*; pass the learning rate by name, lr=.*, or use"
                                            r" gradscaler.torch.AdamW, which has the arguments of torch.optim"):
            gs.AdamW(params_of(), lr)


#: What only lists of gradients have: calls on them, the native object, and its stream.
OF_ARRAYS = {"check", "check_range", "clip_grad_norm_", "clip_grad_value_", "close", "closed", "context",
             "device_words", "discard", "set_options", "set_reducer", "should_step", "step_and_update",
             "step_slice", "stream"}


def test_both_families_offer_the_same():
    """Whatever one scaler gets, the other gets too, or it is noted here; and they have the same optimizers."""
    scalers = gs.GradScaler, gst.GradScaler
    ours, theirs = ({name for name in dir(kind) if not name.startswith("_")} for kind in scalers)
    assert ours - theirs == OF_ARRAYS
    assert theirs - ours == {"applied", "overflowed"}
    assert inspect.signature(gs.GradScaler).parameters.keys() == inspect.signature(gst.GradScaler).parameters.keys()
    assert gs.GradScaler().options.keys() == gst.GradScaler("cpu").options.keys()
    kinds = [{name for name in module.__all__ if isinstance(getattr(module, name), type) and issubclass(
        getattr(module, name), base)} for module, base in ((gs, gs.Optimizer), (gst, torch.optim.Optimizer))]
    assert kinds[0] - {"Optimizer"} == kinds[1] - {"FusedOptimizer"}
