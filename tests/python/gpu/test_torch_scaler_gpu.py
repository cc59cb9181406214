# SPDX-License-Identifier: Apache-2.0
"""gradscaler.torch on a GPU: GradScaler against PyTorch's, and the optimizers against PyTorch's and the CPU's."""

import io

import pytest
from on_device import DEVICE, ON_GPU, all_same_bits
from torch_common import (
    CLASSES,
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
@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.5}, {"master_weights": True},
                                     {"state": "8bit", "master": "split"}, {"state": "16bit", "master": "stochastic"}],
                         ids=lambda o: "+".join(map(str, o.values())) or "plain")
def test_steps_have_the_bits_of_the_cpu(kind, dtype, options):
    if options.keys() & {"master_weights", "master"} and dtype.itemsize > 2:
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
