# SPDX-License-Identifier: Apache-2.0
"""Changes by users between two steps of the optimizers of gradscaler.torch: none may be missed. The reference is
torch.optim."""

import contextlib
import functools
import sys

import pytest

from conftest import DEVICE
from torch_params import (
    KINDS,
    SCALERS,
    close,
    gst,
    ids,
    param,
    params_of,
    same_with_torchs,
    scaled_step,
    set_grads,
    started,
    torch,
)

# More than step_view looks at in one block.
MANY, EDGES = 130, (0, 129)


def zero(tensor):
    tensor.data = torch.zeros_like(tensor)


CHANGES = {
    "count": lambda held: [entry["step"].fill_(0) for entry in held["entries"]],
    "tensor replaced": lambda held: [entry.update(exp_avg=torch.zeros_like(entry["exp_avg"]))
                                     for entry in held["entries"]],
    "memory replaced": lambda held: [zero(tensor) for tensor in held["tensors"]],
    "cleared": lambda held: held["state"].clear(),
    "saved": lambda held: [entry.update(exp_avg_sq=torch.ones_like(entry["exp_avg_sq"]))
                           for entry in held["saved"]["state"].values()],
}
HOLDS = {"entries": lambda optimizer: list(optimizer.state.values()), "state": lambda optimizer: optimizer.state,
         "tensors": lambda optimizer: [entry["exp_avg"] for entry in optimizer.state.values()],
         "saved": lambda optimizer: optimizer.state_dict()}


@pytest.mark.parametrize("change", CHANGES)
def test_state_that_is_held_counts(change):
    def train(kind):
        params = params_of()
        optimizer = kind(params, lr=0.1)
        held = {}
        for step in range(8):
            if step == 2:
                held = {name: hold(optimizer) for name, hold in HOLDS.items()}
            if step == 5:
                CHANGES[change](held)
            set_grads(params, step)
            optimizer.step()
            if held and change != "cleared":
                assert [int(entry["step"]) for entry in held["entries"]] == [
                    step - 4 if change == "count" and step > 4 else step + 1] * len(params)
        return params

    same_with_torchs(train)


def test_state_is_looked_at_only_while_somebody_holds_it():
    params = params_of()
    optimizer = gst.AdamW(params, lr=0.1)
    for _ in range(2):
        set_grads(params, 1)
        optimizer.step()
    assert not optimizer._state_is_shared
    held = optimizer.state[params[1]]["exp_avg"].view(-1)
    for _ in range(2):
        optimizer.step()
        assert optimizer._state_is_shared
    del held
    optimizer.step()
    assert not optimizer._state_is_shared
    plans = list(optimizer._active_plans)
    assert len(optimizer.state) == 3
    optimizer.step()
    assert optimizer._active_plans == plans and not optimizer._state_is_shared


#: Of shape (3, 4); each call has other values.
ORDERS = {"transposed": lambda made: made(4, 3).t(), "expanded": lambda made: made(3, 1).expand(3, 4),
          "slice": lambda made: made(3, 8)[:, ::2], "negated": lambda made: torch._neg_view(made(3, 4)),
          "one extent": lambda made: made(12).as_strided((3, 4), (4, 1))}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", EDGES)
@pytest.mark.parametrize("scaler_of", [None, gst.GradScaler, torch.amp.GradScaler],
                         ids=lambda value: getattr(value, "__module__", ""))
def test_gradients_in_another_order_than_their_parameter(order, index, scaler_of):
    """As torch.autograd.grad makes them: from the third step on, and no longer in the last."""
    refused = scaler_of and order in ("expanded", "negated")  # By PyTorch's scaler, which unscales in place.
    if refused and scaler_of is torch.amp.GradScaler:
        return

    def train(kind):
        generator = torch.Generator(DEVICE).manual_seed(3)
        params = params_of([(3, 4)] * MANY)
        scaler = scaler_of and (scaler_of if kind is gst.AdamW else torch.amp.GradScaler)(DEVICE, init_scale=4.0)
        optimizer = kind(params, lr=0.1)
        for step in range(6):
            set_grads(params, step)
            if 2 <= step < 5:
                params[index].grad = ORDERS[order](functools.partial(
                    torch.randn, generator=generator, dtype=torch.float64))
            kept = params[index].grad.clone()
            if refused and kind is torch.optim.AdamW:
                for p in params:
                    p.grad = p.grad * 0.25
                optimizer.step()
            else:
                scaled_step(scaler, optimizer)
                assert scaler or torch.equal(params[index].grad, kept)
        return params

    same_with_torchs(train)


def test_copies_of_gradients_are_not_held():
    p = param(3, 4)
    optimizer = gst.SGD([p], lr=1.0)
    for _ in range(2):
        p.grad = torch.ones(4, 3).t()
        optimizer.step()
        assert not optimizer._bound_grads


def test_parameters_that_change_their_order():
    """And with them the gradients, but not the state, nor the masters."""
    def train(kind):
        torch.manual_seed(0)
        model = torch.nn.Conv2d(3, 4, 3).double()
        optimizer = kind(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            if step == 2:
                model.to(memory_format=torch.channels_last)
            model(torch.randn(2, 3, 5, 5, dtype=torch.float64)).square().mean().backward()
            optimizer.step()
        return model.parameters()

    same_with_torchs(train)
    p = torch.nn.Parameter(torch.ones(1, 2, 3, 4, dtype=torch.bfloat16))
    optimizer = gst.SGD([p], lr=2.0**-12, momentum=0.5, master_weights=True)
    for step in range(2):
        if step:
            p.data = p.data.to(memory_format=torch.channels_last)
        p.grad = torch.ones_like(p)
        optimizer.step()
    # Less than half an ulp of bfloat16: only the master has it.
    assert p.eq(1.0).all() and optimizer.state[p]["master_param"].eq(1.0 - 2.5 * 2.0**-12).all()


@pytest.mark.parametrize("wrapped", ["subclass", "function"])
def test_code_around_step_may_replace_gradients(wrapped):
    """Under a GradScaler, which has checked the gradients by then."""
    def train(kind):
        def sign(optimizer):
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad = p.grad.sign()

        class Sign(kind):
            def step(self, closure=None):
                sign(self)
                return super().step(closure)

        params = params_of()
        optimizer = (Sign if wrapped == "subclass" else kind)(params, lr=0.1, fused=True)
        if wrapped == "function":
            original = optimizer.step

            @functools.wraps(original)
            def step(*args):
                sign(optimizer)
                return original(*args)

            optimizer.step = step
        scaler = started((gst if kind is gst.AdamW else torch.amp).GradScaler, init_scale=1.0)
        for seed in range(3):
            set_grads(params, seed)
            scaler.step(optimizer)
            scaler.update(1.0)
        return params

    same_with_torchs(train)


def test_pytorchs_own_wrappers_around_step_are_known():
    """Else each step under a GradScaler would look at all gradients twice."""
    from gradscaler.torch._optim import _OWN_STEP
    from gradscaler.torch._references import is_step_unwrapped
    optimizer = gst.AdamW(params_of())
    assert is_step_unwrapped(optimizer.step, _OWN_STEP)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert hasattr(optimizer.step, "_wrapped_by_lr_sched") and is_step_unwrapped(optimizer.step, _OWN_STEP)


@pytest.mark.parametrize("how", ["data", "swap_tensors"])
def test_masters_follow_parameters_whose_memory_is_replaced(how):
    p, other = (torch.nn.Parameter(torch.full((4,), value, dtype=torch.bfloat16)) for value in (1.0, 5.0))
    optimizer = gst.SGD([p], lr=0.0, master_weights=True)
    p.grad = torch.ones_like(p)
    optimizer.step()
    if how == "data":
        p.data = other.data
    else:
        # With the count of changes that the optimizer has seen.
        torch.autograd.graph.increment_version([other] * (p._version - other._version))
        p.grad = None
        torch.utils.swap_tensors(p, other)
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert p.eq(5).all() and optimizer.state[p]["master_param"].eq(5).all()


def test_betas_of_tensors_that_change_in_place():
    def train(kind):
        params = params_of()
        beta = torch.tensor(0.9, dtype=torch.float64)
        options = {} if kind is gst.AdamW else dict(foreach=False)
        optimizer = kind(params, lr=0.1, betas=(beta, torch.tensor(0.999, dtype=torch.float64)), **options)
        for step in range(4):
            set_grads(params, step)
            if step == 2:
                beta.fill_(0.1)
            optimizer.step()
        return params

    same_with_torchs(train)


def test_modes_may_make_other_gradients():
    """Entries that only the reader holds."""
    class Twice(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            return 2 * found if function == torch.Tensor.grad.__get__ else found

    for kind in (gst.SGD, torch.optim.SGD):
        p = param(2)
        optimizer = kind([p], lr=1.0)
        for step in range(4):
            p.grad = torch.ones(2)
            with Twice() if step == 3 else contextlib.nullcontext():
                optimizer.step()
        assert p.tolist() == [-5, -5]


@pytest.mark.parametrize("how", ["another group", "moved"])
def test_groups_that_are_rearranged(how):
    """Parameters at the same places as before, in other groups: with the options of those."""
    def train(kind):
        params = params_of(((2,), (3,), (4,), (5,)))
        optimizer = kind([{"params": params[:2], "lr": 0.1}, {"params": params[2:], "lr": 0.02}])
        for step in range(4):
            set_grads(params, step)
            if step == 2 and how == "another group":
                optimizer.param_groups.insert(0, {**optimizer.param_groups[0], "params": [], "lr": 5.0})
            elif step == 2:
                optimizer.param_groups[1]["params"].insert(0, optimizer.param_groups[0]["params"].pop())
            optimizer.step()
        return params

    same_with_torchs(train)


@pytest.mark.parametrize("scaler_of", [None, gst.GradScaler], ids=["alone", "scaled"])
@pytest.mark.parametrize("kind, options", [("SGD", {}), ("SGD", {"momentum": 0.5}), ("AdamW", {}), ("Adagrad", {})])
def test_gradients_that_come_and_go(kind, options, scaler_of):
    """In no pattern that repeats, as of routed experts: in one plan, from the first gradient of each parameter on."""
    present = torch.rand(12, 6, generator=torch.Generator("cpu").manual_seed(0)) < 0.5
    present[:3, 5] = False
    found = []
    for module in (gst, torch.optim):
        params = params_of([(2, 3)] * 6)
        groups = [{"params": params[:4]}, {"params": params[4:], "lr": 0.02}]
        optimizer = getattr(module, kind)(groups, lr=0.1, **options)
        scaler = scaler_of and (gst if module is gst else torch.amp).GradScaler(DEVICE, init_scale=2.0)
        plans = {}
        for step, here in enumerate(present.tolist()):
            versions = [p._version for p in params]
            set_grads(params, step)
            for p, is_here in zip(params, here, strict=True):
                p.grad = p.grad if is_here else None
            scaled_step(scaler, optimizer)
            assert [p._version > version for p, version in zip(params, versions, strict=True)] == here
            plans.setdefault(int(present[:step + 1].any(0).sum()), set()).update(
                map(id, optimizer._active_plans if module is gst else ()))
        assert all(len(made) <= 1 for made in plans.values())
        state = optimizer.state_dict()["state"]
        found.append((params, {index: entry.get("step") for index, entry in state.items()}))
    close(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("make", [None, *SCALERS], **ids)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_parameters_without_elements_count_steps_as_others_do(kind, make):
    """The library takes an empty tensor for present; PyTorch's classes count no step where there is no gradient."""
    empty, like_it, always = params = [param(0, 3), param(2), param(3)]
    optimizer, scaler = kind(params, lr=0.25), started(make, init_scale=4.0)
    for step, is_here in enumerate((True, False, False, True, True, False)):
        for p in params:
            p.grad = torch.full_like(p, 4.0) if is_here or p is always else None
        if step == 3 and make is not None:
            always.grad.fill_(float("nan"))
        scaled_step(scaler, optimizer)
        left, right = (optimizer.state.get(p, {}) for p in (empty, like_it))
        assert left.keys() == right.keys()
        for name in left.keys() & {"step", "mu_product"}:
            assert float(left[name]) == float(right[name]), (name, step)
        assert optimizer._plans and (kind is gst.SGD or optimizer.state[always]["step"] == step + 1 - (
            step >= 3 and make is not None))


def test_state_of_an_absent_gradient_may_be_dropped():
    def train(kind):
        params = params_of()
        optimizer = kind(params, lr=0.1)
        for step in range(5):
            set_grads(params, step)
            if step in (2, 3):
                optimizer.state.clear()
                params[0].grad = None
            optimizer.step()
            assert (params[0] in optimizer.state) == (step not in (2, 3))
        return params

    same_with_torchs(train)


def test_a_first_step_does_little_for_each_parameter():
    """Models of routed experts have 100 000 of them."""
    many = 500
    params = [param(3, value=1.0, grad=1.0) for _ in range(many)]
    optimizer, calls = gst.AdamW(params), 0

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    assert calls <= 25 * many, calls / many
