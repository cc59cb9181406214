# SPDX-License-Identifier: Apache-2.0
"""The optimizers of gradscaler.torch against those of torch.optim: the same constructor, groups, state and steps.

That parameters and state have the same bits is asserted in tests/conformance/python/test_optimizers.py. Here fp64 is
compared to 1e-12, or what must be equal is equal for another reason, such as SGD without momentum.
"""

import weakref

import pytest

import gradscaler as gs
from gradscaler.hyper import FLAGS
from gradscaler.state_formats import numbers_per_tensor
from gradscaler.torch._plan import OPTION_KEYS
from torch_params import KINDS, close, copied, equal, gst, ids, param, params_of, same_state, set_grads, torch

PAIRS = [(gst.SGD, torch.optim.SGD, dict(momentum=0.9, dampening=0.1, weight_decay=0.01)),
         (gst.SGD, torch.optim.SGD, dict(momentum=0.9, nesterov=True)),
         (gst.SGD, torch.optim.SGD, {}),
         (gst.Adam, torch.optim.Adam, dict(weight_decay=0.1)),
         (gst.Adam, torch.optim.Adam, dict(weight_decay=0.1, decoupled_weight_decay=True)),
         (gst.AdamW, torch.optim.AdamW, dict(amsgrad=True)),
         (gst.AdamW, torch.optim.AdamW, dict(fused=True)),
         (gst.SGD, torch.optim.SGD, dict(fused=True, momentum=0.9)),
         (gst.Adagrad, torch.optim.Adagrad, dict(lr_decay=0.1, initial_accumulator_value=0.5)),
         (gst.RMSprop, torch.optim.RMSprop, {}),
         (gst.RMSprop, torch.optim.RMSprop, dict(centered=True)),
         (gst.RMSprop, torch.optim.RMSprop, dict(alpha=0.9, momentum=0.9, centered=True)),
         (gst.Adadelta, torch.optim.Adadelta, dict(rho=0.8)),
         (gst.Adamax, torch.optim.Adamax, dict(eps=1e-3)),
         (gst.NAdam, torch.optim.NAdam, dict(momentum_decay=0.1, decoupled_weight_decay=True)),
         (gst.RAdam, torch.optim.RAdam, dict(betas=(0.8, 0.99), weight_decay=0.1))]


@pytest.mark.parametrize("ours_of, theirs_of, options", PAIRS, **ids)
def test_every_step_is_torchs(ours_of, theirs_of, options):
    """Groups, gradients that come and go, a schedule, and a group that is added on the way."""
    found = []
    for kind in (ours_of, theirs_of):
        params = params_of()
        optimizer = kind([{"params": params[:1], "lr": 0.02}, {"params": params[1:], "weight_decay": 0.05}],
                         lr=0.1, **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        late = params_of(((4,),), seed=9)
        steps = []
        for step in range(9):
            if step == 5:
                optimizer.add_param_group({"params": late})
                if kind is torch.optim.Adagrad and "sum" not in optimizer.state[late[0]]:
                    # PyTorch 2.11 cannot step on what was added.
                    optimizer.state[late[0]].update(step=torch.tensor(0.0), sum=torch.full_like(late[0], 0.5))
                schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
                params = params + late
            set_grads(params, step, missing=((), (1,), (0, 2), (0, 1, 2, 3), ())[step % 5])
            assert optimizer.step() is None
            schedule.step()
            steps.append(copied(params))
        found.append((optimizer, steps))
    (ours, mine), (theirs, reference) = found
    for a, b in zip(mine, reference, strict=True):
        close(a, b)
    same_state(ours, theirs)
    assert isinstance(ours, theirs_of) and isinstance(ours, torch.optim.Optimizer)


@pytest.mark.parametrize("kind", KINDS, **ids)
@pytest.mark.parametrize("dtype, options", [
    (torch.float32, {}), (torch.float16, {}), (torch.bfloat16, {}),
    *((torch.bfloat16, {"state": state, "master": master, "seed": 7}) for state, master in (
        ("fp32", "split"), ("16bit", "stochastic"), ("8bit", "split24")))], ids=str)
def test_steps_are_those_of_the_arrays(kind, dtype, options):
    """The same kernels as gradscaler's own optimizers, so the same bits; Lion and LAMB have no other reference."""
    # In codes only parameters with rows of 32 elements have the same state in both.
    shapes = ((3, 64), (2, 4, 8)) if options.get("state", "fp32") != "fp32" else ((3, 40), (5,), (2, 3, 2), (0, 2), ())
    params = params_of(shapes, dtype)
    others = copied(params)
    grads = [torch.zeros_like(p) for p in others]
    ours, raw = kind(params, lr=0.05, **options), getattr(gs, kind.__name__)(others, grads, lr=0.05, **options)
    for step in range(4):
        set_grads(params, step)
        for grad, p in zip(grads, params, strict=True):
            grad.copy_(p.grad)
        ours.step()
        raw.step()
        assert equal(params, others)
    dtypes = {(slot, value.dtype) for entry in ours.state.values() for slot, value in entry.items()}
    numbers = numbers_per_tensor(kind._KIND)
    assert options or all(dtype == torch.float32 for slot, dtype in dtypes if slot not in numbers)


def test_what_they_are_is_shown():
    p = param(2, value=1.0)
    optimizer = gst.AdamW([p], lr=0.5, max_grad_norm=1.0, master_weights=True)
    shown = repr(optimizer)
    assert shown.startswith("gradscaler.torch.AdamW (\nParameter Group 0\n") and "\n    lr: 0.5\n" in shown
    assert shown.endswith("\nmax_grad_norm: 1.0\nmaster_weights: True\n)")
    schedule = gst.AppliedLR(torch.optim.lr_scheduler.StepLR(optimizer, 1))
    assert repr(schedule) == f"gradscaler.torch.AppliedLR({schedule.scheduler!r})"
    scaler = gst.GradScaler("cpu", init_scale=8.0)
    assert repr(scaler) == "<gradscaler.torch.GradScaler scale=8>"
    scaler.scale(torch.ones(1, device="cpu"))
    scaler.update(4.0)
    assert repr(scaler) == "<gradscaler.torch.GradScaler scale=4>"
    assert repr(gst.GradScaler("cpu", enabled=False)) == "<gradscaler.torch.GradScaler scale=1 disabled>"


def test_hooks_and_closures():
    params = params_of()
    optimizer = gst.SGD(params, lr=1.0)
    said = []
    optimizer.register_step_pre_hook(lambda *_: said.append("pre"))
    optimizer.register_step_post_hook(lambda *_: said.append("post"))
    optimizer.register_state_dict_post_hook(lambda *_: said.append("state"))

    def closure():
        optimizer.zero_grad()
        loss = sum(p.sum() for p in params)
        loss.backward()
        return loss

    before = copied(params)
    loss = optimizer.step(closure)
    assert loss.item() == pytest.approx(sum(p.sum().item() for p in before))
    assert equal(params, [q - 1 for q in before])
    optimizer.state_dict()
    assert said == ["pre", "post", "state"]


def test_gradients_are_not_held():
    p = param(4, grad=1.0)
    optimizer = gst.AdamW([p])
    storage = weakref.ref(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    assert p.grad is None and storage() is None


def test_state_of_the_users_own_is_loaded_as_it_is():
    for kind in (gst.AdamW, torch.optim.AdamW):
        params = params_of()
        optimizer = kind(params, lr=0.1)
        set_grads(params, 0)
        optimizer.step()
        mine = torch.tensor([1, 2])
        optimizer.state[params[0]].update(mine=mine)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        entry = optimizer.state[params[0]]
        assert entry["mine"].tolist() == [1, 2] and entry["step"] == 2


def test_versions_tell_autograd():
    p = param(3, value=1.0, grad=1.0)
    loss = (p * p).sum()
    before = p._version
    gst.SGD([p], lr=1.0).step()
    assert p._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_master_weights(dtype):
    """16-bit parameters are the rounded masters, which do what fp32 parameters do; small updates are not lost."""
    wide = params_of(dtype=torch.float32)
    narrow = [torch.nn.Parameter(p.detach().to(dtype)) for p in wide]
    with torch.no_grad():
        for p, q in zip(wide, narrow, strict=True):
            p.copy_(q)
    mixed = param(3, value=1.0, grad=1.0)
    ours, theirs = gst.AdamW([*narrow, mixed], lr=1e-4, master_weights=True), gst.AdamW(wide, lr=1e-4)
    for step in range(20):
        set_grads(narrow, step)
        for p, q in zip(wide, narrow, strict=True):
            p.grad = q.grad.float()
        ours.step()
        theirs.step()
    for p, q in zip(wide, narrow, strict=True):
        entry = ours.state[q]
        assert torch.equal(entry["master_param"], p) and torch.equal(q, p.to(dtype))
        assert entry["exp_avg"].dtype == torch.float32
    assert "master_param" not in ours.state[mixed] and mixed.max() < 1


def test_masters_follow_parameters_that_others_write():
    p = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float16))
    optimizer = gst.SGD([p], lr=1.0, master_weights=True)
    for value in (1e-4, 2e-4):
        p.grad = torch.full((2,), value, dtype=torch.float16)
        optimizer.step()
    kept = optimizer.state[p]["master_param"][0].item()
    assert kept != p[0].item()
    with torch.no_grad():
        p[1] = 5.0
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert optimizer.state[p]["master_param"].tolist() == [kept, 5.0]
    # Nobody hears of this one.
    p.data[1] = 7.0
    optimizer.refresh_master_weights()
    optimizer.step()
    assert p[1] == 7.0


@pytest.mark.parametrize("kind", [gst.AdamWScheduleFree, gst.SGDScheduleFree], ids=lambda kind: kind.__name__)
def test_evaluating_keeps_weights_that_have_no_average(kind):
    """As gsc_optimizer_set_evaluating: z, and weights that are not finite or equal it, stay for the way back."""
    p = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0, -0.0, 0.5]))
    optimizer = kind([p], lr=0.1)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    z = optimizer.state[p]["z"]
    with torch.no_grad():
        p[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 7.0])
        z[3], z[4], p[4] = torch.nan, 0.0, -0.0
    before, z_before = p.detach().clone(), z.clone()
    optimizer.eval()
    assert p[5] != before[5]
    optimizer.train()
    assert p[:5].detach().numpy().tobytes() == before[:5].numpy().tobytes()
    assert abs(float(p[5].detach() - before[5])) < 1e-7
    assert z.numpy().tobytes() == z_before.numpy().tobytes()


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_an_option_does_the_same_in_a_group_as_in_the_constructor(kind):
    """None is dropped, as PyTorch's Adagrad drops the first accumulator of a group."""
    def train(group, **options):
        params = params_of()
        optimizer = kind([{"params": params, **group}], **{"lr": 0.1, **options})
        for step in range(7):
            set_grads(params, step)
            optimizer.step()
        return params

    defaults = kind(params_of(), lr=0.1).defaults
    # What others need to have an effect; that of the powers of a constant rate is none.
    needs = {"dampening": {"momentum": 0.5}, "nesterov": {"momentum": 0.5},
             "decoupled_weight_decay": {"weight_decay": 0.1}}
    for name in set(OPTION_KEYS[kind._KIND]) & set(defaults) | set(FLAGS) & set(defaults) - {"differentiable"}:
        value, more = defaults[name], {key: found for key, found in needs.get(name, {}).items() if key in defaults}
        if (kind, name) == (gst.AdamW, "decoupled_weight_decay"):
            continue  # is what makes it AdamW
        other = not value if isinstance(value, bool) else (0.5, 0.75) if isinstance(value, tuple) else (
            3 if "warmup" in name else value * 0.5 or 0.25)
        found = train({name: other}, **more)
        assert equal(found, train({}, **{**more, name: other})), name
        assert name == "weight_lr_power" or not equal(found, train({}, **more)), name
