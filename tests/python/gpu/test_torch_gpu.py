# SPDX-License-Identifier: Apache-2.0
"""gradscaler.torch on a GPU: GradScaler beside torch.amp.GradScaler, the optimizers beside PyTorch's and the CPU's,
streams, graphs, memory, and that nothing waits for the device."""

import contextlib
import copy
import gc
import io
import threading
import warnings

import numpy as np
import pytest

from conftest import library

torch = library("torch")

from on_device import DEVICE, ON_GPU, all_same_bits, needs_gpu, on_host, require_device, same_bits  # noqa: E402

import gradscaler as gs  # noqa: E402
from gradscaler import torch as gst  # noqa: E402

require_device(torch.cuda.is_available(), "PyTorch")
# Of graphs and side streams, whose models were made in the default stream.
pytestmark = pytest.mark.filterwarnings("ignore:.*AccumulateGrad")

CLASSES = [torch.amp.GradScaler, gst.GradScaler]
STEPS = 220
#: A quarter of a second on any GPU so far, or a little more.
CYCLES = 500_000_000
HALF = torch.float16
KINDS = {"SGD": dict(lr=0.05, momentum=0.9, weight_decay=0.01), "Adam": dict(lr=0.01, weight_decay=0.1),
         "AdamW": dict(lr=0.01, amsgrad=True), "Adagrad": dict(lr=0.05, lr_decay=0.01), "Lion": dict(lr=0.001),
         "LAMB": dict(lr=0.01)}
MODES = {"for-loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True)}


def model_of(seed=0, dtype=torch.float32, width=48):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(24, width), torch.nn.Tanh(), torch.nn.LayerNorm(width), torch.nn.Linear(width, width),
              torch.nn.GELU(), torch.nn.Linear(width, 5)]
    return torch.nn.Sequential(*layers).to(DEVICE, dtype)


def batch_of(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(32, 24, generator=generator)
    return x.to(DEVICE, dtype), torch.tanh(x[:, :5]).to(DEVICE, dtype)


def loss_of(model, x, y, amp=True):
    with torch.autocast(DEVICE, HALF, enabled=amp):
        out = model(x)
    return torch.nn.functional.mse_loss(out.float(), y.float())


def params_of(shapes, dtype, seed=0, device=DEVICE):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device))
            for shape in shapes]


def set_grads(params, seed, scale=1.0, missing=(), bad=None):
    generator = torch.Generator().manual_seed(seed)
    for i, p in enumerate(params):
        grad = torch.randn(p.shape, generator=generator, dtype=torch.float64) * scale
        if i == bad:
            grad.view(-1)[grad.numel() // 2] = float("inf")
        p.grad = None if i in missing else grad.to(p.dtype).to(p.device)


def state_of(optimizer, params):
    """Copies of the state, by index of the parameter."""
    return {i: {slot: value.detach().clone() for slot, value in optimizer.state[p].items()
                if isinstance(value, torch.Tensor)}
            for i, p in enumerate(params) if p in optimizer.state}


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


# GradScaler beside PyTorch's.


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


# The optimizers, beside the CPU and beside PyTorch's.

SHAPES = [(1,), (33, 65), (4, 3, 3, 3), (0, 5), (1000,), (70_001,)]


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
    """In ulp of the largest magnitude on the way, as tests/conformance/python/test_optimizers.py counts them."""
    start = params_of([(4096,)], torch.float32)[0].detach()
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    one = getattr(gst, kind)([ours], lr=lr, **options)
    other = getattr(torch.optim, kind)([theirs], lr=lr, **options, **MODES[mode])
    peak, off = start.abs(), {}
    generator = torch.Generator(DEVICE).manual_seed(2)
    for step in range(1, 401):
        grad = torch.randn(4096, generator=generator, device=DEVICE) + 0.3 * float(np.sin(step / 30))
        ours.grad, theirs.grad = grad, grad.clone()
        one.step()
        other.step()
        peak = torch.maximum(peak, theirs.detach().abs())
        if step in (1, 10, 400):
            ulp = np.spacing(peak.cpu().numpy()).astype(np.float64)
            off[step] = float((np.abs(on_host(ours).astype(np.float64) - on_host(theirs)) / ulp).max())
    assert off[1] <= 4 and off[10] <= 4 and off[400] <= 8, f"ulp after so many steps: {off}"


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
@pytest.mark.parametrize("mode", MODES)
def test_states_of_optimizers_go_both_ways(kind, mode):
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


# Nothing waits.


@contextlib.contextmanager
def no_synchronisation():
    """PyTorch's own waits raise; the body must return while the stream is still busy with what was enqueued before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.synchronize()
        torch.cuda._sleep(CYCLES)
        busy = torch.cuda.Event()
        busy.record()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
            waited = busy.query()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert not waited, "the call returned after the work that was enqueued before it: it waited for the device"
    torch.cuda.synchronize()


def scaled_iteration(scaler, optimizer, params, grads):
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad
    scaler.step(optimizer)
    scaler.update()


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.5}], ids=["plain", "clipped"])
@pytest.mark.parametrize("scaler_class", CLASSES, ids=["torch", "ours"])
def test_a_step_of_the_optimizers_does_not_wait(kind, options, scaler_class):
    params = params_of(SHAPES, torch.float32)
    optimizer = getattr(gst, kind)(params, **{**KINDS[kind], **options})
    scaler = scaler_class(DEVICE)
    scaler.scale(torch.ones((), device=DEVICE))
    sets = [[torch.randn_like(p) for p in params] for _ in range(6)]
    for grads in sets[:3]:
        scaled_iteration(scaler, optimizer, params, grads)
    with no_synchronisation():
        for grads in sets[3:]:
            scaled_iteration(scaler, optimizer, params, grads)
    with no_synchronisation():
        optimizer.step()
    with no_synchronisation():
        # A schedule.
        optimizer.param_groups[0]["lr"] *= 0.5
        scaled_iteration(scaler, optimizer, params, sets[0])


@needs_gpu
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_the_scaler_does_not_wait_with_torchs_fused_optimizers(kind):
    params = params_of(SHAPES, torch.float32)
    optimizer = getattr(torch.optim, kind)(params, lr=0.01, fused=True)
    scaler = gst.GradScaler(DEVICE)
    scaler.scale(torch.ones((), device=DEVICE))
    sets = [[torch.randn_like(p) for p in params] for _ in range(6)]
    for grads in sets[:3]:
        scaled_iteration(scaler, optimizer, params, grads)
    with no_synchronisation():
        for grads in sets[3:5]:
            scaled_iteration(scaler, optimizer, params, grads)
        for p, grad in zip(params, sets[5], strict=True):
            p.grad = grad
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


@needs_gpu
def test_the_scaler_of_arrays_does_not_wait():
    params = [p.detach() for p in params_of(SHAPES, torch.float32)]
    grads = [torch.randn_like(p).half() for p in params]
    copies = [p.half() for p in params]
    scaler = gs.GradScaler(DEVICE)
    optimizer = gs.AdamW(params, grads, lr=0.01, model_copy=copies)

    def iterate():
        scaler.clip_grad_norm_(optimizer, 1.0)
        scaler.step(optimizer)
        scaler.update()
        scaler.unscale_(optimizer)
        scaler.step_and_update(optimizer)
        optimizer.param_groups[0]["lr"] = 0.02
        optimizer.zero_grad()

    iterate()
    with no_synchronisation():
        iterate()
    with no_synchronisation():
        gs.ops.cast(params, copies)
        gs.ops.axpby(0.5, grads, 1.0, params)


# Streams.


def stream_run(scaler, optimizer_of, stream, delay):
    model = model_of()
    optimizer = optimizer_of(model.parameters())
    torch.cuda.synchronize()
    found = []
    with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        for step in range(12):
            x, y = batch_of(step)
            if delay:
                torch.cuda._sleep(2_000_000)
            scaler.scale(loss_of(model, x, y)).backward()
            if step == 4:
                next(model.parameters()).grad.fill_(float("inf"))
            shapes = [p.grad.detach()[:0].new_empty(p.grad.shape, device="meta") for p in model.parameters()]
            scaler.step(optimizer)
            optimizer.zero_grad()
            filled = [torch.full(shape.shape, float("nan"), device=DEVICE) for shape in shapes]
            scaler.update()
            found.append([p.detach().clone() for p in model.parameters()])
            del filled
        scale = scaler._scale.clone()
    torch.cuda.synchronize()
    return found, scale


@needs_gpu
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "LAMB", "torch fused"])
def test_work_in_a_side_stream_is_ordered(kind):
    """Gradients that come late, and memory that is freed and filled anew right after the step was enqueued."""
    def optimizer_of(params):
        if kind == "torch fused":
            return torch.optim.AdamW(params, lr=0.01, fused=True)
        return getattr(gst, kind)(params, **KINDS[kind], max_grad_norm=1.0)

    runs = [stream_run(gst.GradScaler(DEVICE, init_scale=2.0**14), optimizer_of, stream, delay)
            for stream, delay in ((None, False), (None, True), (torch.cuda.Stream(), True))]
    for run, name in zip(runs[1:], ("default stream", "side stream"), strict=True):
        same_bits(run[1], runs[0][1], f"{name}: scale")
        for step, (one, other) in enumerate(zip(run[0], runs[0][0], strict=True)):
            all_same_bits(one, other, f"{name}, step {step}: param")


@needs_gpu
@pytest.mark.parametrize("kind", ["AdamW", "torch"])
def test_gradients_in_another_order_are_copied_in_the_stream(kind):
    """The copies are freed at once, and their memory is taken while the step has not run yet."""
    found = []
    for device, stream in ((DEVICE, torch.cuda.Stream()), ("cpu", None)):
        params = params_of([(64, 129), (33, 65)], torch.float32, device=device)
        grads = [p.detach().t().contiguous().t() for p in params_of([(64, 129), (33, 65)], torch.float32, 5, device)]
        optimizer = (gst.AdamW(params, lr=0.01) if kind == "AdamW" else
                     torch.optim.SGD(params, lr=0.01, foreach=False))
        scaler = gst.GradScaler(device, init_scale=4.0)
        scaler.scale(torch.ones((), device=device))
        if stream:
            torch.cuda.synchronize()
        with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            for _ in range(3):
                if stream:
                    torch.cuda._sleep(20_000_000)
                for p, grad in zip(params, grads, strict=True):
                    p.grad = grad * 4.0
                scaler.step(optimizer)
                optimizer.zero_grad()
                filled = [torch.full(p.shape, float("nan"), device=device) for p in params for _ in range(3)]
                scaler.update()
                del filled
        if stream:
            torch.cuda.synchronize()
        found.append(params)
    all_same_bits(*found, f"{kind}: param")


@needs_gpu
def test_arrays_work_in_the_stream_they_were_made_in():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        params, grads = [torch.zeros(1 << 20, device=DEVICE)], [torch.zeros(1 << 20, device=DEVICE)]
        optimizer = gs.SGD(params, grads, lr=1.0)
        assert optimizer.stream == side.cuda_stream
        scaler = gs.GradScaler(DEVICE, init_scale=1.0)
        for step in range(3):
            torch.cuda._sleep(20_000_000)
            grads[0].fill_(float(step + 1))
            scaler.step(optimizer)
            scaler.update()
            # The step has to read them before.
            grads[0].fill_(float("nan"))
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        second = gs.SGD([torch.zeros(3, device=DEVICE)], [torch.zeros(3, device=DEVICE)], lr=1.0)
    with pytest.raises(gs.InvalidArgumentError, match="two streams are not ordered"):
        scaler.step(second)
    with torch.cuda.stream(other):
        apart = torch.zeros(3, device=DEVICE)
        with pytest.raises(gs.InvalidArgumentError, match=r"arrays\[1\] is worked on in stream .*two streams are not"):
            gs.TensorList([optimizer.params[0], apart])
    side.synchronize()
    assert (params[0] == -6.0).all(), params[0].unique()


@needs_gpu
def test_two_threads_with_streams_of_their_own():
    def work(seed, results):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                params = params_of([(64, 129), (33, 65)], torch.float32, seed)
                optimizer = gst.AdamW(params, lr=0.01, max_grad_norm=1.0)
                scaler = gst.GradScaler(DEVICE, init_scale=4.0)
                scaler.scale(torch.ones((), device=DEVICE))
                for step in range(30):
                    set_grads(params, step, 4.0, bad=0 if step == 7 else None)
                    scaler.step(optimizer)
                    scaler.update()
                results[seed] = [p.detach().clone() for p in params]
                stream.synchronize()
        except BaseException as error:  # Of a thread, to be raised below.
            results[seed] = error

    alone, together = {}, {}
    for seed in range(3):
        work(seed, alone)
    threads = [threading.Thread(target=work, args=(seed, together)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results in (alone, together):
        for result in results.values():
            if isinstance(result, BaseException):
                raise result
    all_same_bits(together, alone, "thread ")


# Graphs.


def graph_run(scaler_class, optimizer_of, captured):
    """Losses and parameters of eager iterations, or of replays; the fifth has an inf in its input."""
    model = model_of()
    params = list(model.parameters())
    optimizer = optimizer_of(params)
    scaler = scaler_class(DEVICE, init_scale=2.0**10, growth_interval=3)
    x, y = (torch.zeros_like(part) for part in batch_of(0))
    side = torch.cuda.Stream()

    def iterate():
        with torch.autocast(DEVICE, HALF, cache_enabled=False):
            out = model(x)
        loss = torch.nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    def feed(step):
        for part, values in zip((x, y), batch_of(step), strict=True):
            part.copy_(values)
        if step == 8:
            y[0, 0] = float("inf")

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for step in range(4):
            feed(step)
            optimizer.zero_grad()
            iterate()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    optimizer.zero_grad()
    if captured:
        graph = torch.cuda.CUDAGraph()
        feed(4)
        with torch.cuda.graph(graph):
            loss = iterate()
    found = []
    for step in range(4, 20):
        feed(step)
        if captured:
            graph.replay()
        else:
            optimizer.zero_grad()
            loss = iterate()
        found.append({"loss": loss.detach().clone(), "scale": scaler._scale.clone(),
                      "params": [p.detach().clone() for p in params]})
    torch.cuda.synchronize()
    return found, state_of(optimizer, params)


@needs_gpu
@pytest.mark.parametrize("kind", ["torch's fused AdamW", "SGD", "AdamW", "AdamW clipped", "LAMB"])
def test_replays_of_a_graph_equal_eager_iterations(kind):
    def optimizer_of(params):
        if kind == "torch's fused AdamW":
            return torch.optim.AdamW(params, lr=0.01, fused=True, capturable=True)
        name, _, clipped = kind.partition(" ")
        return getattr(gst, name)(params, **KINDS[name], max_grad_norm=1.0 if clipped else None)

    eager, state = graph_run(gst.GradScaler, optimizer_of, False)
    scales = [float(step["scale"]) for step in eager]
    assert scales[4] < scales[3] < scales[-1] * 64, scales
    if kind.startswith("torch"):
        for step, (one, other) in enumerate(zip(eager, graph_run(CLASSES[0], optimizer_of, False)[0], strict=True)):
            all_same_bits(one, other, f"beside torch.amp, step {step}: ")
    replayed, replayed_state = graph_run(gst.GradScaler, optimizer_of, True)
    for step, (one, other) in enumerate(zip(replayed, eager, strict=True)):
        all_same_bits(one, other, f"replay {step}: ")
    all_same_bits(replayed_state, state, "state")


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_of_the_scaler_of_arrays(kind):
    results = []
    for captured in (False, True):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            params = [p.detach() for p in params_of(SHAPES, torch.float32)]
            grads = [torch.zeros_like(p, dtype=HALF) for p in params]
            options = {key: value for key, value in KINDS[kind].items()}
            optimizer = getattr(gs, kind)(params, grads, **options)
            scaler = gs.GradScaler(DEVICE, init_scale=8.0, growth_interval=4)

            def iterate(scaler=scaler, optimizer=optimizer):
                scaler.clip_grad_norm_(optimizer, 1.0)
                scaler.step(optimizer)
                scaler.update()

            found = []
            if captured:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    iterate()
            for step in range(12):
                values = params_of(SHAPES, torch.float32, 100 + step)
                for grad, value in zip(grads, values, strict=True):
                    grad.copy_(value)
                if step == 5:
                    grads[1][3, 4] = float("inf")
                graph.replay() if captured else iterate()
                found.append([p.clone() for p in params])
            found.append([torch.tensor([scaler.get_scale(), optimizer.steps, optimizer.skipped_steps])])
        torch.cuda.synchronize()
        results.append(found)
    assert results[0][-1][0].tolist()[1:] == [11.0, 1.0]
    for step, (one, other) in enumerate(zip(*results[::-1], strict=True)):
        all_same_bits(one, other, f"replay {step}: param")


@needs_gpu
def test_a_waiting_call_in_a_capture_is_an_error_and_the_scaler_goes_on():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        scaler = gs.GradScaler(DEVICE, init_scale=4.0)
        optimizer = gs.SGD([torch.zeros(3, device=DEVICE)], [torch.ones(3, device=DEVICE)], lr=4.0)
        scaler.step_and_update(optimizer)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            scaler.step(optimizer)
            scaler.update()
            with pytest.raises(gs.BadStateError):
                scaler.get_scale()
        graph.replay()
        assert scaler.get_scale() == 4.0 and optimizer.steps == 2


# Memory.


@needs_gpu
@pytest.mark.parametrize("kind", ["gst", "gs", "torch"])
def test_steps_allocate_nothing(kind):
    params = params_of(SHAPES, torch.float32)
    grads = [torch.randn_like(p) for p in params]
    if kind == "gs":
        scaler, optimizer = gs.GradScaler(DEVICE), gs.AdamW([p.detach() for p in params], grads, lr=0.01)
    else:
        scaler = gst.GradScaler(DEVICE)
        scaler.scale(torch.ones((), device=DEVICE))
        optimizer = (gst.AdamW(params, lr=0.01, max_grad_norm=1.0) if kind == "gst" else
                     torch.optim.AdamW(params, lr=0.01, fused=True))
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad

    def measured(steps):
        for _ in range(steps):
            scaler.step(optimizer)
            scaler.update()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]

    first = measured(20)
    later = [measured(20) for _ in range(5)]
    assert all(allocated == first[0] for allocated, _ in later), f"PyTorch's memory: {first} then {later}"
    assert all(free == first[1] for _, free in later), f"the device's free memory: {first} then {later}"


@needs_gpu
def test_objects_that_are_gone_give_their_memory_back():
    def make():
        params = [torch.zeros(1 << 20, device=DEVICE) for _ in range(8)]
        scaler = gs.GradScaler(DEVICE)
        optimizer = gs.AdamW(params, [torch.ones_like(p) for p in params])
        scaler.step_and_update(optimizer)
        own = [torch.nn.Parameter(p) for p in params]
        fused = gst.AdamW(own)
        for p in own:
            p.grad = torch.ones_like(p)
        fused.step()
        return scaler.get_scale()

    make()
    gc.collect()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(20):
        make()
    gc.collect()
    after = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    assert after[0] == before[0], f"PyTorch's memory grew from {before[0]} to {after[0]}"
    # The state of one optimizer is 64 MB; pools keep some.
    assert before[1] - after[1] < 2 * (64 << 20), f"the device's free memory fell from {before[1]} to {after[1]}"


def test_gradients_are_not_held():
    import weakref
    p = torch.nn.Parameter(torch.zeros(4, device=DEVICE))
    optimizer = gst.AdamW([p], max_grad_norm=1.0)
    p.grad = torch.ones(4, device=DEVICE)
    grad = weakref.ref(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    assert p.grad is None and grad() is None


# What does not belong together.


@needs_gpu
def test_mixed_devices_are_refused_by_name():
    here, there = torch.zeros(3, device=DEVICE), torch.zeros(3)
    with pytest.raises(ValueError, match=r"grads\[0\] is on cpu; it must be on cuda:0"):
        gs.SGD([here], [there])
    with pytest.raises(ValueError, match=r"grads\['w'\] is on cuda:0; it must be on cpu"):
        gs.SGD({"w": there}, {"w": here})
    with pytest.raises(ValueError, match=r"arrays\[1\] is on cpu; it must be on cuda:0"):
        gs.TensorList([here, there])
    with pytest.raises(ValueError, match=r"is on cpu; it must be on cuda:0"):
        gs.ops.cast([there], [here])
    with pytest.raises(ValueError, match="found_inf|tensors"):
        gs.ops.unscale_check([here], torch.zeros(()), 0.5)
    with pytest.raises(ValueError, match="tensors are on cuda:0; norms of these are in the scaler's report"):
        gs.ops.norm([here])
    with pytest.raises(gs.GradscalerError):
        gs.GradScaler("cpu").step(gs.SGD([here], [torch.ones_like(here)]))
    with pytest.raises(gs.UnavailableError):
        gs.GradScaler("cuda:63")
    # Memory that is not where it is said to be.
    with pytest.raises(gs.InvalidArgumentError, match=r"0"):
        gs.TensorList([(there.data_ptr(), 3, "float32", "cuda:0")])
    with pytest.raises(gs.InvalidArgumentError, match=r"0"):
        gs.TensorList([(here.data_ptr(), 3, "float32")])


@needs_gpu
def test_parameters_on_two_devices_in_one_optimizer():
    found = []
    for kind in (gst.AdamW, torch.optim.AdamW):
        params = [*params_of([(5,)], torch.float32), *params_of([(6,)], torch.float32, device="cpu")]
        optimizer = kind(params, lr=0.01)
        for step in range(4):
            set_grads(params, step)
            optimizer.step()
        found.append(params)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert one.device == other.device


# The same bits as NumPy.

DTYPES = ["float16", "bfloat16", "float32", "float64"]
COUNTS = (1, 7, 4096, 70_001)


def values_of(dtype, seed=0, planted=()):
    generator = torch.Generator().manual_seed(seed)
    found = [(torch.randn(count, generator=generator, dtype=torch.float64) *
              torch.exp(6 * torch.randn(count, generator=generator, dtype=torch.float64))).to(getattr(torch, dtype))
             for count in COUNTS]
    for index, element, value in planted:
        found[index][element] = value
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_ops_have_the_bits_of_the_cpu(dtype, other):
    planted = ((1, 3, float("inf")), (2, 17, float("nan")), (3, 5, -0.0))
    results = []
    for device in (DEVICE, "cpu"):
        source = [t.to(device) for t in values_of(dtype, planted=planted)]
        found = {}
        for name, call in (("cast", lambda s, t: gs.ops.cast(s, t)),
                           ("scale", lambda s, t: gs.ops.scale(s, t, torch.tensor(0.3, device=s[0].device))),
                           ("axpby", lambda s, t: gs.ops.axpby(0.7, s, -1.3, t)),
                           ("axpby, b = 0", lambda s, t: gs.ops.axpby(1.7, s, 0.0, t))):
            target = [t.to(device) for t in values_of(other, 1)]
            call(source, target)
            found[name] = target
        for planting in ((), planted[:1], planted[1:2]):
            tensors = [t.to(device) for t in values_of(dtype, 2, planting)]
            flag = torch.zeros((), device=device)
            gs.ops.unscale_check(tensors, flag, torch.tensor(1 / 3, device=device))
            found[f"unscale_check {planting}"] = [*tensors, flag]
        results.append(found)
    all_same_bits(*results, f"{dtype} to {other}: ")


def test_update_scale_has_the_bits_of_the_cpu_and_of_torch():
    rng = np.random.default_rng(0)
    states = [(torch.tensor(1000.0, device=device), torch.zeros((), dtype=torch.int32, device=device))
              for device in (DEVICE, "cpu")]
    theirs = (torch.tensor(1000.0, device=DEVICE), torch.zeros((), dtype=torch.int32, device=DEVICE))
    for found in rng.uniform(size=200) < 0.1:
        for scale, tracker in states:
            gs.ops.update_scale(scale, tracker, torch.tensor(float(found), device=scale.device), 1.7, 0.3, 4)
        torch._amp_update_scale_(*theirs, torch.tensor(float(found), device=DEVICE), 1.7, 0.3, 4)
        all_same_bits(states[0], states[1], "scale, tracker")
        all_same_bits(states[0], theirs, "scale, tracker beside PyTorch's")


def arrays_run(kind, device, grad_dtype, copy_dtype, policy):
    params = [p.detach() for p in params_of(SHAPES, torch.float32, device=device)]
    grads = [torch.zeros_like(p, dtype=grad_dtype) for p in params]
    model = [p.to(copy_dtype) for p in params] if copy_dtype else None
    optimizer = getattr(gs, kind)({str(i): p for i, p in enumerate(params)},
                                  {str(i): grad for i, grad in enumerate(grads)}, **KINDS[kind],
                                  model_copy=model and {str(i): p for i, p in enumerate(model)})
    scaler = gs.GradScaler(device, **policy)
    log = []
    for step in range(14):
        for grad, value in zip(grads, params_of(SHAPES, torch.float64, 50 + step), strict=True):
            grad.copy_(value.detach() * 8.0)
        if step in (4, 5, 9):
            grads[3 if step == 9 else 1].view(-1)[:1] = float("nan")
            grads[5][70_000] = float("inf")
        if step % 3 == 0:
            scaler.clip_grad_norm_(optimizer, 0.7, 2.0 if step % 2 else float("inf"))
        if step % 4 == 1:
            scaler.unscale_(optimizer)
            scaler.clip_grad_value_(optimizer, 0.5)
        scaler.step(optimizer)
        report = scaler.report(optimizer)
        scaler.update()
        log.append((report, scaler.state_dict()))
    return {"params": params, "copies": model or [], "grads": grads,
            "state": {key: torch.as_tensor(value) for key, value in optimizer.state_arrays().items()}}, log


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grad_dtype, copy_dtype", [(torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16),
                                                   (torch.float32, None)], ids=["fp16", "bf16", "fp32"])
def test_the_scaler_of_arrays_has_the_bits_of_the_cpu(kind, grad_dtype, copy_dtype):
    for policy in (dict(init_scale=8.0, growth_interval=3),
                   dict(init_scale=8.0, growth_interval=2, hysteresis=2, min_scale=2.0, max_scale=64.0)):
        (ours, log), (theirs, wanted) = (arrays_run(kind, device, grad_dtype, copy_dtype, policy)
                                         for device in (DEVICE, "cpu"))
        for step, (one, other) in enumerate(zip(log, wanted, strict=True)):
            assert repr(one) == repr(other), f"step {step}: {one} instead of {other}"
        all_same_bits(ours, theirs, "")


def test_diagnoses_are_those_of_the_cpu():
    planted = ((1, 3, float("inf")), (2, 17, float("nan")), (3, 5, 0.0))
    for dtype in DTYPES:
        found = [gs.diagnose([t.to(device) for t in values_of(dtype, planted=planted)], histogram=True)
                 for device in (DEVICE, "cpu")]
        assert repr(found[0]) == repr(found[1])
        if dtype == "float64":
            continue
        found = [gs.recommend_scale([t.to(device) for t in values_of(dtype)], 1024.0) for device in (DEVICE, "cpu")]
        assert found[0] == found[1]


def test_a_loss_is_scaled_by_torch():
    scaler = gs.GradScaler(DEVICE, init_scale=4.0)
    p = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    scaler.scale((p * 2).sum()).backward()
    assert p.grad.tolist() == [8.0] * 3
    half = torch.tensor(40000.0, dtype=HALF, device=DEVICE)
    assert scaler.scale(half).dtype == torch.float32 and float(scaler.scale(half)) == 160000.0
    out = torch.zeros(3, dtype=HALF, device=DEVICE)
    scaler.scale(p.detach(), out=out)
    assert out.tolist() == [4.0] * 3


def test_checkpoints_of_arrays_go_to_the_cpu_and_back():
    results = []
    for route in ((DEVICE, "cpu", DEVICE), ("cpu", "cpu", "cpu")):
        state = scale = params = None
        for leg, device in enumerate(route):
            params = [(p if params is None else q).detach().to(device) for p, q in zip(
                params_of(SHAPES, torch.float32), params or params_of(SHAPES, torch.float32), strict=True)]
            grads = [torch.zeros_like(p) for p in params]
            optimizer, scaler = gs.AdamW(params, grads, lr=0.01), gs.GradScaler(device, init_scale=4.0)
            if leg:
                optimizer.load_state_dict(state)
                scaler.load_state_dict(scale)
            for step in range(3):
                for grad, value in zip(grads, params_of(SHAPES, torch.float32, 10 * leg + step), strict=True):
                    grad.copy_(value.detach())
                scaler.step_and_update(optimizer)
            state, scale = optimizer.state_dict(), scaler.state_dict()
        results.append((params, scale))
    assert results[0][1] == results[1][1]
    all_same_bits(results[0][0], results[1][0], "param")


# Several ranks, of which there is one.


@pytest.fixture
def nccl(tmp_path):
    if ON_GPU and not torch.distributed.is_nccl_available():
        pytest.skip("PyTorch has no NCCL")
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("nccl" if ON_GPU else "gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("default")
def test_a_reducer_of_one_rank_changes_nothing(nccl):
    results = []
    for reduced in (True, False):
        params = [p.detach() for p in params_of(SHAPES, torch.float32)]
        grads = [torch.zeros_like(p) for p in params]
        optimizer, scaler = gs.AdamW(params, grads, lr=0.01), gs.GradScaler(DEVICE, init_scale=4.0)
        if reduced:
            scaler.set_reducer(gs.reducers.torch_distributed())
        for step in range(6):
            for grad, value in zip(grads, params_of(SHAPES, torch.float32, step), strict=True):
                grad.copy_(value.detach())
            if step == 2:
                grads[1][0, 0] = float("inf")
            scaler.clip_grad_norm_(optimizer, 1.0)
            scaler.step(optimizer)
            scaler.update()
        results.append([*params, torch.tensor([scaler.get_scale(), optimizer.steps])])
    all_same_bits(*results, "param")


@needs_gpu
def test_a_reducer_sums_in_the_stream():
    side = torch.cuda.Stream()
    called = []

    def double(values):
        called.append(values.stream)
        with torch.cuda.stream(torch.cuda.ExternalStream(values.stream)):
            torch.as_tensor(values, device=DEVICE).mul_(4.0)

    with torch.cuda.stream(side):
        optimizer = gs.SGD([torch.zeros(4, device=DEVICE)], [torch.full((4,), 2.0, device=DEVICE)], lr=1.0)
        scaler = gs.GradScaler(DEVICE, init_scale=1.0)
        scaler.set_reducer(double)
        scaler.clip_grad_norm_(optimizer, 4.0)
        scaler.step(optimizer)
        # Over four ranks of the same gradients the norm is 8.
        assert scaler.report(optimizer).grad_norm == 8.0
        scaler.update()
        side.synchronize()
    torch.testing.assert_close(optimizer.params._keep[0].owner, torch.full((4,), -1.0, device=DEVICE))
    assert called == [side.cuda_stream]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_distributed_training_of_one_rank(nccl, wrap):
    results = []
    for wrapped in (True, False):
        model = model_of()
        if wrapped and wrap == "ddp":
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0] if ON_GPU else None)
        elif wrapped:
            from torch.distributed.fsdp import fully_shard

            if not ON_GPU:
                pytest.skip("needs a GPU")
            fully_shard(model)
        scaler = gst.GradScaler(DEVICE, init_scale=2.0**12, growth_interval=3)
        optimizer = gst.AdamW(model.parameters(), lr=0.01, max_grad_norm=1.0)
        for step in range(8):
            x, y = batch_of(step)
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x, y)).backward()
            if step == 4:
                grad = next(model.parameters()).grad
                (grad.to_local() if hasattr(grad, "to_local") else grad).view(-1)[0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
        local = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
        results.append([*(p.detach().clone() for p in local), scaler._scale])
    all_same_bits(*results, f"{wrap}: param")
