# SPDX-License-Identifier: Apache-2.0
"""gradscaler and gradscaler.torch on a GPU: streams, graphs, memory, devices, and that nothing waits for the device.

What does not need a device is tested by tests/python/test_torch*.py, which scripts/gpu runs with CUDA tensors.
"""

import contextlib
import io
import warnings

import pytest
from on_device import DEVICE, ON_GPU, alone_and_together, needs_gpu, require_device, same_bits

import gradscaler as gs
from conftest import library, refused

torch = library("torch", "cpu")

from gradscaler import torch as gst  # noqa: E402

require_device(torch.cuda.is_available(), "PyTorch")
# Of graphs and side streams, whose models were made in the default stream.
pytestmark = pytest.mark.filterwarnings("ignore:.*AccumulateGrad")
HALF = torch.float16
KINDS = {"SGD": dict(lr=0.05, momentum=0.9, weight_decay=0.01), "AdamW": dict(lr=0.01, amsgrad=True),
         "LAMB": dict(lr=0.01)}
SHAPES = [(1,), (33, 65), (4, 3, 3, 3), (0, 5), (1000,), (70_001,)]
#: A quarter of a second on any GPU so far, or a little more.
CYCLES = 500_000_000


def model_of(seed=0, width=48):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(24, width), torch.nn.LayerNorm(width), torch.nn.GELU(), torch.nn.Linear(width, 5)]
    return torch.nn.Sequential(*layers).to(DEVICE)


def batch_of(step):
    x = torch.randn(32, 24, generator=torch.Generator().manual_seed(1000 + step))
    return x.to(DEVICE), torch.tanh(x[:, :5]).to(DEVICE)


def loss_of(model, x, y):
    with torch.autocast(DEVICE, HALF, cache_enabled=False):
        out = model(x)
    return torch.nn.functional.mse_loss(out.float(), y)


def params_of(shapes, seed=0, device=DEVICE):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in shapes]


def set_grads(params, seed, scale=1.0, bad=None):
    generator = torch.Generator().manual_seed(seed)
    for i, p in enumerate(params):
        grad = torch.randn(p.shape, generator=generator) * scale
        if i == bad:
            grad.view(-1)[grad.numel() // 2] = float("inf")
        p.grad = grad.to(p.device)


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


def scaled_iteration(scaler, optimizer, params, grads, unscale=False):
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


def started(scaler_class, **options):
    """A scaler that has scaled a loss."""
    scaler = scaler_class(DEVICE, **options)
    scaler.scale(torch.ones((), device=DEVICE))
    return scaler


def does_not_wait(optimizer, params, scaler_class, torchs=False):
    scaler = started(scaler_class)
    sets = [[torch.randn_like(p) for p in params] for _ in range(6)]
    for grads in sets[:3]:
        scaled_iteration(scaler, optimizer, params, grads)
    with no_synchronisation():
        for grads in sets[3:5]:
            scaled_iteration(scaler, optimizer, params, grads)
        scaled_iteration(scaler, optimizer, params, sets[5], unscale=torchs)
    if not torchs:
        with no_synchronisation():
            optimizer.step()
        with no_synchronisation():
            optimizer.param_groups[0]["lr"] *= 0.5
            scaled_iteration(scaler, optimizer, params, sets[0])


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.5}], ids=["plain", "clipped"])
@pytest.mark.parametrize("scaler_class", [torch.amp.GradScaler, gst.GradScaler], ids=["torch", "ours"])
def test_a_step_of_the_optimizers_does_not_wait(kind, options, scaler_class):
    params = params_of(SHAPES)
    does_not_wait(getattr(gst, kind)(params, **{**KINDS[kind], **options}), params, scaler_class)


@needs_gpu
def test_the_scaler_does_not_wait_with_torchs_fused_optimizers():
    params = params_of(SHAPES)
    does_not_wait(torch.optim.AdamW(params, lr=0.01, fused=True), params, gst.GradScaler, torchs=True)


@needs_gpu
def test_the_scaler_of_arrays_does_not_wait():
    params = [p.detach() for p in params_of(SHAPES)]
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
            scaler.step(optimizer)
            optimizer.zero_grad()
            filled = [torch.full(p.shape, float("nan"), device=DEVICE) for p in model.parameters()]
            scaler.update()
            found.append([p.detach().clone() for p in model.parameters()])
            del filled
        scale = scaler._scale.clone()
    torch.cuda.synchronize()
    return {"params": found, "scale": scale}


@needs_gpu
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "LAMB", "torch fused"])
def test_work_in_a_side_stream_is_ordered(kind):
    """Gradients that come late, and memory that is freed and refilled right after the step was enqueued."""
    def optimizer_of(params):
        if kind == "torch fused":
            return torch.optim.AdamW(params, lr=0.01, fused=True)
        return getattr(gst, kind)(params, **KINDS[kind], max_grad_norm=1.0)

    runs = [stream_run(gst.GradScaler(DEVICE, init_scale=2.0**14), optimizer_of, stream, delay)
            for stream, delay in ((None, False), (None, True), (torch.cuda.Stream(), True))]
    for run, name in zip(runs[1:], ("default stream", "side stream"), strict=True):
        same_bits(run, runs[0], name)


@needs_gpu
@pytest.mark.parametrize("kind", [gst.AdamW, torch.optim.AdamW])
def test_a_loss_on_the_cpu_of_parameters_on_the_device(kind):
    """The scale is then on the CPU too, and a flag that is copied there must not be read before it has arrived."""
    params = params_of(SHAPES)
    optimizer, scaler = kind(params, lr=0.01, fused=True), gst.GradScaler(DEVICE, init_scale=4.0)
    scaler.scale(torch.ones(()))
    for step in range(6):
        set_grads(params, step, 4.0, bad=1 if step % 2 else None)
        before = [p.detach().clone() for p in params]
        torch.cuda._sleep(20_000_000)
        scaler.step(optimizer)
        scaler.update()
        moved = [not torch.equal(p, q) for p, q in zip(params, before, strict=True)]
        assert scaler.applied(optimizer) == any(moved) == (step % 2 == 0), f"step {step}: {moved}"
    assert scaler._scale.device.type == "cpu" and scaler.get_scale() == 0.5


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
        kept = torch.zeros(3, device=DEVICE)
        second = gs.SGD([torch.zeros(3, device=DEVICE)], [kept], lr=1.0)
    with refused("two streams are not ordered"):
        scaler.step(second)
    with torch.cuda.stream(other):
        apart = torch.zeros(3, device=DEVICE)
        with refused(r"arrays\[1\] is worked on in stream .*two streams are not"):
            gs.TensorList([optimizer.params[0], apart])
    side.synchronize()
    assert (params[0] == -6.0).all(), params[0].unique()


@needs_gpu
def test_a_first_step_in_a_side_stream_beside_a_busy_default_stream():
    def stepped(busy):
        params = params_of(SHAPES)
        set_grads(params, 1, 4.0)
        optimizer = gst.AdamW(params, max_grad_norm=1.0)
        torch.cuda.synchronize()
        if busy:
            torch.cuda._sleep(200_000_000)
        with torch.cuda.stream(torch.cuda.Stream()):
            optimizer.step()
            torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        return params

    same_bits(stepped(True), stepped(False), "params")


@needs_gpu
def test_two_threads_with_streams_of_their_own():
    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            params = params_of([(64, 129), (33, 65)], seed)
            optimizer = gst.AdamW(params, lr=0.01, max_grad_norm=1.0)
            scaler = started(gst.GradScaler, init_scale=4.0)
            for step in range(30):
                set_grads(params, step, 4.0, bad=0 if step == 7 else None)
                scaler.step(optimizer)
                scaler.update()
            found = [p.detach().clone() for p in params]
            stream.synchronize()
            return found

    alone, together = alone_and_together(work)
    same_bits(together, alone, "thread ")


def graph_run(scaler_class, optimizer_of, captured):
    """Losses and parameters of eager iterations, or of replays; the fifth has an inf in its input."""
    model = model_of()
    params = list(model.parameters())
    optimizer = optimizer_of(params)
    scaler = scaler_class(DEVICE, init_scale=2.0**10, growth_interval=3)
    x, y = (torch.zeros_like(part) for part in batch_of(0))
    side = torch.cuda.Stream()

    def iterate():
        loss = loss_of(model, x, y)
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
    found.append({"state": [optimizer.state[p]["exp_avg"] for p in params if "exp_avg" in optimizer.state[p]]})
    return found


@needs_gpu
@pytest.mark.parametrize("kind", ["torch's fused AdamW", "SGD", "AdamW", "AdamW clipped", "LAMB"])
def test_replays_of_a_graph_equal_eager_iterations(kind):
    def optimizer_of(params):
        if kind == "torch's fused AdamW":
            return torch.optim.AdamW(params, lr=0.01, fused=True, capturable=True)
        name, _, clipped = kind.partition(" ")
        return getattr(gst, name)(params, **KINDS[name], max_grad_norm=1.0 if clipped else None)

    eager = graph_run(gst.GradScaler, optimizer_of, False)
    scales = [float(step["scale"]) for step in eager[:-1]]
    assert scales[4] < scales[3] < scales[-1] * 64, scales
    if kind.startswith("torch"):
        same_bits(eager, graph_run(torch.amp.GradScaler, optimizer_of, False), "beside torch.amp")
    same_bits(graph_run(gst.GradScaler, optimizer_of, True), eager, "replayed")


@needs_gpu
@pytest.mark.parametrize("kind", ["gst", "gs", "torch"])
def test_steps_allocate_nothing(kind):
    params = params_of(SHAPES)
    grads = [torch.randn_like(p) for p in params]
    if kind == "gs":
        scaler, optimizer = gs.GradScaler(DEVICE), gs.AdamW([p.detach() for p in params], grads, lr=0.01)
    else:
        scaler = started(gst.GradScaler)
        optimizer = (gst.AdamW(params, lr=0.01, max_grad_norm=1.0) if kind == "gst" else
                     torch.optim.AdamW(params, lr=0.01, fused=True))
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad

    def measured(steps):
        for _ in range(steps):
            scaler.step(optimizer)
            scaler.update()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    # Not the device's free memory, which other processes change.
    first = measured(20)
    later = [measured(20) for _ in range(5)]
    assert all(allocated == first for allocated in later), f"{first} then {later}"


@needs_gpu
def test_mixed_devices_are_refused_by_name():
    here, there = torch.zeros(3, device=DEVICE), torch.zeros(3)
    with refused(r"grads\[0\] is on cpu; it must be on cuda:0", ValueError):
        gs.SGD([here], [there])
    with refused("found_inf|tensors", ValueError):
        gs.ops.unscale_check([here], torch.zeros(()), 0.5)
    with refused("tensors are on cuda:0; norms of these are in the scaler's report", ValueError):
        gs.ops.norm([here])
    with pytest.raises(gs.GradscalerError):
        gs.GradScaler("cpu").step(gs.SGD([here], [torch.ones_like(here)]))


@needs_gpu
def test_parameters_on_two_devices_in_one_optimizer():
    found = []
    for kind in (gst.AdamW, torch.optim.AdamW):
        params = [*params_of([(5,)]), *params_of([(6,)], device="cpu")]
        optimizer = kind(params, lr=0.01)
        for step in range(4):
            set_grads(params, step)
            optimizer.step()
        found.append(params)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert one.device == other.device


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


@pytest.mark.parametrize("options", [{}, {"state": "8bit"}], ids=str)
def test_state_goes_to_the_cpu_and_back(options):
    params = params_of(SHAPES)
    elsewhere = [torch.nn.Parameter(p.detach().cpu()) for p in params]
    one, other = (gst.AdamW(found, lr=0.01, **options) for found in (params, elsewhere))
    for step in range(6):
        if step in (2, 4):
            source, target, place = (one, other, "cpu") if step == 2 else (other, one, DEVICE)
            saved = io.BytesIO()
            torch.save(source.state_dict(), saved)
            target.load_state_dict(torch.load(io.BytesIO(saved.getvalue()), map_location=place))
        for found, optimizer in ((params, one), (elsewhere, other)):
            set_grads(found, step)
            optimizer.step()
        same_bits(params, elsewhere, f"step {step}")
