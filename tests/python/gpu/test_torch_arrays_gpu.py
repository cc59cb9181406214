# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch on a GPU as arrays: the same bits as on the CPU; devices that do not belong together; ranks."""

import numpy as np
import pytest
from on_device import DEVICE, ON_GPU, all_same_bits, needs_gpu
from torch_common import HALF, KINDS, SHAPES, batch_of, gst, loss_of, model_of, params_of, quiet, set_grads, torch

import gradscaler as gs

pytestmark = quiet


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
        params, grads = [torch.zeros(4, device=DEVICE)], [torch.full((4,), 2.0, device=DEVICE)]
        optimizer = gs.SGD(params, grads, lr=1.0)
        scaler = gs.GradScaler(DEVICE, init_scale=1.0)
        scaler.set_reducer(double)
        scaler.clip_grad_norm_(optimizer, 4.0)
        scaler.step(optimizer)
        # Over four ranks of the same gradients the norm is 8.
        assert scaler.report(optimizer).grad_norm == 8.0
        scaler.update()
        side.synchronize()
    torch.testing.assert_close(params[0], torch.full((4,), -1.0, device=DEVICE))
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
