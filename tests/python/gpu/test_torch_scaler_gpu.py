# SPDX-License-Identifier: Apache-2.0
"""gradscaler.torch on a GPU: GradScaler against PyTorch's, and the optimizers against PyTorch's and the CPU's."""

import copy
import io
import warnings

import numpy as np
import pytest
from on_device import DEVICE, ON_GPU, all_same_bits, on_host, same_bits
from torch_common import (
    CLASSES,
    HALF,
    KINDS,
    MODES,
    SHAPES,
    batch_of,
    gst,
    loss_of,
    model_of,
    params_of,
    quiet,
    set_grads,
    skip_unless_there,
    state_of,
    torch,
)

import gradscaler as gs

pytestmark = quiet
STEPS = 220


class Recorder:
    """What training did, step by step, on the device; two of them are compared in their first step that differs."""

    def __init__(self):
        self.steps = []

    def add(self, scaler, losses, params):
        self.steps.append({"loss": [loss.detach().clone() for loss in losses], "scale": scaler._scale.clone(),
                           "tracker": scaler._growth_tracker.clone(), "params": [p.detach().clone() for p in params]})

    def scales(self):
        return [float(step["scale"]) for step in self.steps]

    def require_same(self, other):
        assert len(self.steps) == len(other.steps)
        for number, (one, reference) in enumerate(zip(self.steps, other.steps, strict=True)):
            all_same_bits(one, reference, f"step {number}: ")


def require_overflows(recorder):
    scales = recorder.scales()
    fallen = sum(after < before for before, after in zip(scales, scales[1:], strict=False))
    grown = sum(after > before for before, after in zip(scales, scales[1:], strict=False))
    assert fallen > 3 and grown > 3, f"the training shows nothing: scales {scales}"


# GradScaler compared with PyTorch's.


def train(scaler_class, optimizer_of, variant, dtype=torch.float32, steps=STEPS):
    model = model_of(dtype=dtype)
    extra = torch.nn.Parameter(torch.ones(7, device=DEVICE, dtype=dtype))
    params = list(model.parameters())
    if variant == "several":
        optimizers = [optimizer_of(params[:3]), optimizer_of(params[3:])]
    elif variant == "groups":
        optimizers = [optimizer_of([{"params": params[:2], "lr": 0.003}, {"params": [*params[2:], extra]}])]
    else:
        optimizers = [optimizer_of([*params, extra])]
    scaler = scaler_class(DEVICE, init_scale=2.0**24, growth_interval=6)
    found = Recorder()
    for step in range(steps):
        x, y = batch_of(step % 16, dtype)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step % 3 > 0)
        loss = loss_of(model, x, y, amp=dtype == torch.float32)
        if dtype != torch.float32 and step % 13 == 7:
            # Of itself nothing overflows there.
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if variant == "none" and step % 5 == 2:
            params[1].grad = params[4].grad = None
        if variant == "clip":
            scaler.unscale_(optimizers[0])
            torch.nn.utils.clip_grad_norm_(params, 0.5)
        if variant == "several" and step % 11 == 4:
            # In the gradients of one alone.
            params[0].grad.view(-1)[3] = float("nan")
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        found.add(scaler, [loss], [*params, extra])
    return found


@pytest.mark.parametrize("variant", ["plain", "clip", "several", "groups", "none"])
@pytest.mark.parametrize("mode", MODES)
def test_training_equals_that_of_torchs_scaler(mode, variant):
    def adamw(params):
        return torch.optim.AdamW(params, lr=0.003, **MODES[mode])

    theirs, ours = (train(kind, adamw, variant) for kind in CLASSES)
    require_overflows(theirs)
    ours.require_same(theirs)


@pytest.mark.parametrize("mode", MODES)
def test_training_with_sgd_and_bfloat16_parameters(mode):
    def sgd(params):
        return torch.optim.SGD(params, lr=0.01, momentum=0.9, **MODES[mode])

    theirs, ours = (train(kind, sgd, "clip", torch.bfloat16) for kind in CLASSES)
    ours.require_same(theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("layout", ["whole", "offset", "transposed", "strided", "channels_last"])
def test_unscaling_and_its_flag(dtype, layout):
    make = {"whole": lambda: torch.randn(3, 5, 7, 11), "offset": lambda: torch.randn(1156)[1:].view(3, 5, 7, 11),
            "transposed": lambda: torch.randn(11, 7, 5, 3).permute(3, 2, 1, 0),
            "strided": lambda: torch.randn(3, 5, 7, 22)[..., ::2],
            "channels_last": lambda: torch.randn(3, 5, 7, 11).to(memory_format=torch.channels_last)}[layout]
    for planted in (None, float("inf"), -float("inf"), float("nan")):
        results = []
        for kind in CLASSES:
            torch.manual_seed(1)
            grads = [make().to(DEVICE, dtype) for _ in range(3)]
            if layout == "offset":
                moved = [torch.empty(g.numel() + 1, device=DEVICE, dtype=dtype)[1:].view(g.shape) for g in grads]
                grads = [m.copy_(g) for m, g in zip(moved, grads, strict=True)]
            if planted is not None:
                grads[1][2, 4, 6, 10] = planted
            params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad
            scaler = kind(DEVICE, init_scale=3.0)
            scaler.scale(torch.ones((), device=DEVICE))
            flags = scaler._unscale_grads_(torch.optim.SGD(params, lr=1.0), torch.full((), 1 / 3, device=DEVICE),
                                           torch.zeros((), device=DEVICE), True)
            assert [str(device) for device in flags] == [str(grads[0].device)]
            results.append(([float(flag) for flag in flags.values()], [p.grad for p in params]))
        assert results[0][0] == results[1][0] == [float(planted is not None)], f"flags {results[0][0]}, {results[1][0]}"
        all_same_bits(results[1][1], results[0][1], f"{dtype} {layout} with {planted}: gradient ")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_sparse_gradients(dtype):
    for values, bad in (([16.0, 32.0, 64.0], 0), ([16.0, float("inf"), 64.0], 1),
                        ([16.0, 40000.0, 40000.0], int(dtype == torch.float16))):
        results = []
        for kind in CLASSES:
            p = torch.zeros(3, 4, dtype=dtype, device=DEVICE, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p.grad = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 0]]),
                                                 torch.tensor(values, dtype=dtype), (3, 4), device=DEVICE)
            scaler = kind(DEVICE, init_scale=256.0)
            scaler.scale(torch.ones((), device=DEVICE))
            flags = scaler._unscale_grads_(torch.optim.SGD([p], lr=1.0), torch.full((), 2.0**-8, device=DEVICE),
                                           torch.zeros((), device=DEVICE), True)
            results.append((sum(float(flag) for flag in flags.values()), p.grad.to_dense()))
        assert results[0][0] == results[1][0] == bad
        same_bits(results[1][1], results[0][1], "sparse gradient")


def test_state_dicts_of_scalers_go_both_ways():
    for first, second in (CLASSES, CLASSES[::-1]):
        one = first(DEVICE, init_scale=8.0, growth_interval=3)
        p = torch.nn.Parameter(torch.ones(4, device=DEVICE))
        optimizer = torch.optim.SGD([p], lr=0.1)
        for value in (1.0, float("inf"), 1.0, 1.0):
            p.grad = None
            one.scale((p * value).sum()).backward()
            one.step(optimizer)
            one.update()
        other = second(DEVICE)
        other.load_state_dict(one.state_dict())
        assert other.state_dict() == one.state_dict()
        copied = copy.deepcopy(other)
        for _ in range(3):
            for scaler in (one, other, copied):
                p.grad = None
                scaler.scale(p.sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        assert one.get_scale() == other.get_scale() == copied.get_scale()


def test_the_current_device_is_the_default():
    for device in ("cuda", "cuda:0", torch.device("cuda")) if ON_GPU else ("cpu",):
        scaler = gst.GradScaler(device) if isinstance(device, str) else gst.GradScaler()
        p = torch.nn.Parameter(torch.ones(3, device=device))
        scaler.scale(p.sum()).backward()
        optimizer = gst.SGD([p], lr=1.0)
        scaler.step(optimizer)
        scaler.update()
        assert p.tolist() == [0.0] * 3 and scaler._scale.device == p.device
        assert gs.GradScaler(device).context.device == ("cuda:0" if ON_GPU else "cpu")


# The optimizers, compared with the CPU and with PyTorch's.

def optimizer_steps(kind, dtype, device, scaled, **options):
    params = params_of(SHAPES, dtype, device=device)
    groups = [{"params": params[:2], "lr": KINDS[kind]["lr"] / 2}, {"params": params[2:], "weight_decay": 0.02}]
    optimizer = getattr(gst, kind)(groups, **{**KINDS[kind], **options})
    scaler = gst.GradScaler(device, init_scale=2.0**8, growth_interval=4, enabled=scaled)
    scaler.scale(torch.ones((), device=device))
    applied, reports = [], []
    for step in range(12):
        bad = 1 + step % 2 if scaled and step in (3, 8) else None
        set_grads(params, step, scaler.get_scale() / 256.0, bad=bad, missing=(4,) if step in (5, 6) else ())
        scaler.step(optimizer)
        scaler.update()
        applied.append(optimizer.applied)
        reports.append(optimizer.report())
    return params, optimizer, applied, reports, scaler.get_scale()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.5}, {"master_weights": True}],
                         ids=lambda o: "+".join(o) or "plain")
def test_steps_have_the_bits_of_the_cpu(kind, dtype, options):
    if "master_weights" in options and dtype.itemsize > 2:
        pytest.skip("has no masters")
    for scaled in (True, False):
        ours, optimizer, applied, reports, scale = optimizer_steps(kind, dtype, DEVICE, scaled, **options)
        theirs, reference, wanted, wanted_reports, wanted_scale = optimizer_steps(kind, dtype, "cpu", scaled, **options)
        assert (applied, scale) == (wanted, wanted_scale)
        for step, (one, other) in enumerate(zip(reports, wanted_reports, strict=True)):
            where = f"report of step {step}: {one} instead of {other}"
            assert (one.applied, one.inf_count, one.nan_count, one.first_name, one.first_element) == (
                other.applied, other.inf_count, other.nan_count, other.first_name, other.first_element), where
            assert one.overflowed == other.overflowed[:1] or one.overflowed == other.overflowed, where
            if one.grad_norm is not None:
                assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-12, nan_ok=True), where
        all_same_bits(ours, theirs, f"{'scaled' if scaled else 'unscaled'}: param")
        all_same_bits(state_of(optimizer, ours), state_of(reference, theirs), "state")


CLOSE = [("SGD", 1e-2, dict(momentum=0.9, weight_decay=0.01, nesterov=True)), ("SGD", 1e-2, {}),
         ("Adam", 1e-3, dict(amsgrad=True)), ("Adam", 1e-2, dict(weight_decay=0.1, betas=(0.8, 0.99), eps=1e-6)),
         ("AdamW", 1e-3, {}), ("AdamW", 1e-2, dict(weight_decay=0.1, maximize=True)),
         ("Adagrad", 1e-2, dict(lr_decay=0.01, initial_accumulator_value=0.1))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind, lr, options", CLOSE, ids=lambda v: v if isinstance(v, str) else None)
def test_steps_are_close_to_torchs(kind, lr, options, mode):
    """In ulp of the largest magnitude on the way, as tests/conformance/python/test_optimizers.py counts them.

    PyTorch's fused kernels for CUDA round elsewhere than its other modes: from them a step is as far as those are.
    """
    skip_unless_there(kind, mode)
    start = params_of([(4096,)], torch.float32)[0].detach()
    ours, theirs, plain = (torch.nn.Parameter(start.clone()) for _ in range(3))
    steppers = [getattr(gst, kind)([ours], lr=lr, **options),
                getattr(torch.optim, kind)([theirs], lr=lr, **options, **MODES[mode]),
                getattr(torch.optim, kind)([plain], lr=lr, **options, **MODES["for-loop"])]
    peak, limits = start.abs(), {1: 4, 10: 4, 400: 8}
    generator = torch.Generator(DEVICE).manual_seed(2)

    def apart(one, other):
        ulp = np.spacing(peak.cpu().numpy()).astype(np.float64)
        return float((np.abs(on_host(one).astype(np.float64) - on_host(other)) / ulp).max())

    for step in range(1, 401):
        grad = torch.randn(4096, generator=generator, device=DEVICE) + 0.3 * float(np.sin(step / 30))
        for param, stepper in zip((ours, theirs, plain), steppers, strict=True):
            param.grad = grad.clone()
            stepper.step()
        peak = torch.maximum(peak, theirs.detach().abs())
        if step in limits:
            own = apart(theirs, plain) if mode == "fused" else 0.0
            assert apart(ours, theirs) <= limits[step] + own, f"ulp after {step} steps, PyTorch's own modes {own}"


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
@pytest.mark.parametrize("mode", MODES)
def test_states_of_optimizers_go_both_ways(kind, mode):
    skip_unless_there(kind, mode)
    options = {key: value for key, value in KINDS[kind].items() if key != "amsgrad"}
    params = [params_of([(33, 5), (7,)], torch.float32) for _ in range(3)]
    theirs = getattr(torch.optim, kind)(params[0], **options, **MODES[mode])
    for step in range(3):
        set_grads(params[0], step)
        theirs.step()
    saved = io.BytesIO()
    torch.save(theirs.state_dict(), saved)
    ours = getattr(gst, kind)(params[1], **options)
    ours.load_state_dict(torch.load(io.BytesIO(saved.getvalue())))
    again = getattr(torch.optim, kind)(params[2], **options, **MODES[mode])
    with torch.no_grad():
        for p, q in zip(params[1], params[0], strict=True):
            p.copy_(q)
    for step in range(3, 5):
        for optimizer, found in ((theirs, params[0]), (ours, params[1])):
            set_grads(found, step)
            optimizer.step()
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    with torch.no_grad():
        for p, q in zip(params[2], params[1], strict=True):
            p.copy_(q)
    for optimizer, found in zip((theirs, ours, again), params, strict=True):
        set_grads(found, 5)
        optimizer.step()
    for found in params[1:]:
        for p, q in zip(found, params[0], strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    entry = ours.state[params[1][0]]
    assert kind == "SGD" or float(entry["step"]) == 6.0


@pytest.mark.parametrize("kind", KINDS)
def test_state_goes_to_the_cpu_and_back(kind):
    params = params_of(SHAPES, torch.float32)
    optimizer = getattr(gst, kind)(params, **KINDS[kind])
    for step in range(3):
        set_grads(params, step)
        optimizer.step()
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    elsewhere = [torch.nn.Parameter(p.detach().cpu()) for p in params]
    other = getattr(gst, kind)(elsewhere, **KINDS[kind])
    other.load_state_dict(torch.load(io.BytesIO(saved.getvalue()), map_location="cpu"))
    for step in range(3, 6):
        for found, one in ((params, optimizer), (elsewhere, other)):
            set_grads(found, step)
            one.step()
    all_same_bits(params, elsewhere, "param")
    back = getattr(gst, kind)(params, **KINDS[kind])
    back.load_state_dict(other.state_dict())
    set_grads(params, 6)
    set_grads(elsewhere, 6)
    back.step()
    other.step()
    all_same_bits(params, elsewhere, "param after the way back")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaler_class", CLASSES, ids=["torch", "ours"])
def test_a_skipped_step_leaves_all_bits(kind, scaler_class):
    params = params_of(SHAPES, torch.float32)
    with torch.no_grad():
        params[4][:3] = torch.tensor([-0.0, 0.0, float("nan")])
    optimizer = getattr(gst, kind)(params, **KINDS[kind])
    scaler = scaler_class(DEVICE, init_scale=4.0)
    scaler.scale(torch.ones((), device=DEVICE))
    set_grads(params, 0, 4.0)
    scaler.step(optimizer)
    scaler.update()
    before, state = [p.detach().clone() for p in params], state_of(optimizer, params)
    for bad in (1, 5):
        set_grads(params, 1, 4.0, bad=bad)
        scaler.step(optimizer)
        scaler.update()
        assert not optimizer.applied
    all_same_bits(params, before, "param")
    all_same_bits(state_of(optimizer, params), state, "state")
    assert scaler.get_scale() == 1.0


def changes(device):
    """Gradients that are set to None, zeroed, replaced and moved; parameters and state that are replaced."""
    params = params_of([(33, 5), (7,), (300,)], torch.float32, device=device)
    optimizer = gst.AdamW(params, lr=0.01, max_grad_norm=3.0)
    kept = []
    for step in range(10):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step == 2:
            params[0].data = params[0].data.clone()
        if step == 4:
            optimizer.state[params[1]]["exp_avg"] = torch.full((7,), 0.25, device=device)
        if step == 5:
            kept.append(params[2].grad)
        if step == 6:
            params[2].grad = torch.ones(600, device=device)[::2]
            params[0].grad = torch.ones(5, 33, device=device).t()
            params[1].grad = None
        elif step == 7:
            params[0].grad = params[2].grad = None
            params[1].grad = torch.ones(7, device=device)
        else:
            set_grads(params, step)
        optimizer.step()
    return params, state_of(optimizer, params), kept


def test_what_is_replaced_is_followed():
    for one, other in zip(changes(DEVICE), changes("cpu"), strict=True):
        all_same_bits(one, other, "found")


def test_masters_follow_what_others_write():
    found = []
    for device in (DEVICE, "cpu"):
        p = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=HALF, device=device))
        optimizer = gst.SGD([p], lr=1.0, master_weights=True)
        for value in (1e-4, 2e-4):
            p.grad = torch.full((2,), value, dtype=HALF, device=device)
            optimizer.step()
        with torch.no_grad():
            p[1] = 5.0
        p.grad = torch.zeros_like(p)
        optimizer.step()
        found.append([optimizer.state[p]["master_param"].clone(), p])
    all_same_bits(*found, "master, param")


def test_skips_are_known_afterwards_and_schedules_wait():
    p, q = params_of([(5,), (6,)], torch.float32)
    scaler = gst.GradScaler(DEVICE, init_scale=2.0)
    optimizer = torch.optim.AdamW([("p", p), ("q", q)], lr=1.0, fused=True)
    own = gst.AdamW([("p", p), ("q", q)], lr=1.0, max_grad_norm=1.0)
    schedule = gst.AppliedLR(torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
    scaler.scale(torch.ones((), device=DEVICE))
    for bad, lr in ((None, 0.5), (1, 0.5), (None, 0.25)):
        set_grads([p, q], 0, bad=bad)
        assert scaler.overflowed(optimizer) == (() if bad is None else ("q",))
        scaler.step(optimizer)
        scaler.step(own)
        assert scaler.applied(optimizer) == own.applied == (bad is None)
        assert own.report().overflowed == (() if bad is None else ("q",))
        assert own.report().first_element == (-1 if bad is None else 3)
        scaler.update()
        assert scaler.applied(optimizer) == (bad is None)
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == lr
