# SPDX-License-Identifier: Apache-2.0
"""One process of test_sharded.py: trains on PyTorch's own engines with the optimizers of gradscaler.torch.

Usage: sharded_worker.py RANK WORLD FILE, over gloo on the CPU, or with GRADSCALER_TEST_DEVICE=cuda over NCCL with a GPU
for each rank. The reference is the same model trained here, by one process on the batches of all ranks, with the same
optimizer. Exit status 0 if scale, skips and weights agreed after every step.

Everything is fp64, so that the bound can be small. Gradients are sums of the same products in another order: some 2^-48
apart, relative to the largest. Adam magnifies that by 1 / (sqrt(v) + eps), at most 100 with eps = 1e-2, and every step
by what the model makes of it; over these steps that stays below 1e-10.
"""

import os
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import gradscaler as gs
from gradscaler import reducers
from gradscaler.torch import LAMB, SGD, AdamW, GradScaler

DEVICE = os.environ.get("GRADSCALER_TEST_DEVICE", "cpu")
STEPS, BAD_STEP, BOUND = 6, 2, 1e-10
OPTIMIZERS = [(AdamW, dict(lr=0.05, eps=1e-2, ema_decay=0.5)), (AdamW, dict(lr=0.05, eps=1e-2, max_grad_norm=0.05)),
              (SGD, dict(lr=0.1, momentum=0.9, nesterov=True, max_grad_norm=0.1, tensor_norms=True))]


def model_of(dtype=torch.float64):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4)).to(dtype)


def parallel(case, mesh, dtype=torch.float64):
    model = model_of(dtype)
    if case == "fsdp2":
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif case == "tensor_parallel":
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif case == "fsdp2_and_tensor_parallel":
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    elif case == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full(p):
    return p.full_tensor() if isinstance(p, DTensor) else p


def batch(step, index):
    torch.manual_seed(100 * step + index)
    return torch.randn(4, 8, dtype=torch.float64)


def agreed(value):
    """`value`, which must be the same on all ranks."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    assert len(set(found)) == 1, found
    return value


def train(case, rank, world, mesh, kind, options, scaler_of=GradScaler):
    # Ranks of one data-parallel group have batches of their own, those of one tensor-parallel group the same.
    shares = 1 if case == "tensor_parallel" else 2 if case == "fsdp2_and_tensor_parallel" else world
    own = 0 if shares == 1 else mesh["dp"].get_local_rank() if shares < world else rank
    model, reference = parallel(case, mesh), model_of()
    ours = kind(model.named_parameters(), **options)
    theirs = kind(reference.parameters(), **options)
    scaler = scaler_of(DEVICE, init_scale=1024.0, growth_interval=2)
    for step in range(STEPS):
        ours.zero_grad()
        theirs.zero_grad()
        x = batch(step, own)
        if step == BAD_STEP and case == "ddp" and rank == world - 1:
            x[0, 0] = float("inf")
        scaler.scale(model(x).square().mean()).backward()
        for index in range(shares):
            (reference(batch(step, index)).square().mean() / shares).backward()
        if step == BAD_STEP and case != "ddp" and rank == world - 1:
            first = next(p for p in model.parameters() if not p.placements[0].is_replicate())
            first.grad.to_local().view(-1)[0] = float("inf")
        scaler.step(ours)
        applied = agreed(ours.applied)
        assert applied == (step != BAD_STEP) and (scaler_of is not GradScaler or applied == scaler.applied(ours))
        if applied:
            theirs.step()
            if ours.max_grad_norm is not None:
                found, expected = agreed(ours.report().grad_norm), theirs.report().grad_norm
                assert abs(found - expected) <= 1e-12 * expected, (found, expected)
                for found, expected in zip((ours.report().tensor_norms or {}).values(),
                                           (theirs.report().tensor_norms or {}).values(), strict=True):
                    assert abs(agreed(found) - expected) <= 1e-12 * expected, (found, expected)
        elif rank == world - 1 and case != "ddp" and scaler_of is GradScaler:
            assert ours.report().overflowed == ("0.weight",), ours.report()
        scaler.update()
        agreed(scaler.get_scale())
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            off = (full(p.detach()) - q).abs().max().item()
            assert off <= BOUND, f"{case}, {kind.__name__}, step {step}: {off} from the run of one process"
            for slot in {"ema"} & set(theirs.state[q]):
                off = (full(ours.state[p][slot]) - theirs.state[q][slot]).abs().max().item()
                assert off <= BOUND, f"{case}, {kind.__name__}, step {step}: {off} from the average of one process"
    # 2 clean, back off, 2 clean, 1 more.
    assert scaler.get_scale() == 2048.0 * 0.5 * 2.0, scaler.get_scale()


def beside_torchs_scaler(case, rank, world, mesh):
    scalers = [kind(DEVICE, init_scale=1024.0, growth_interval=2) for kind in (GradScaler, torch.amp.GradScaler)]
    models = [parallel(case, mesh, torch.float32) for _ in scalers]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False) for model in models]
    for step in range(STEPS):
        x = batch(step, 0 if case == "tensor_parallel" else rank).float()
        for scaler, model, optimizer in zip(scalers, models, optimizers, strict=True):
            optimizer.zero_grad()
            first = next(model.parameters())
            before = local(first).clone()
            scaler.scale(model(x).square().mean()).backward()
            if step == BAD_STEP and (case == "ddp" or rank == world - 1):
                local(first.grad).view(-1)[0] = float("inf")
            if step % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(before, local(first)) == (step == BAD_STEP), f"{case}, step {step}"
        assert scalers[0].get_scale() == scalers[1].get_scale(), f"{case}, step {step}"
        for p, q in zip(*(model.parameters() for model in models), strict=True):
            assert torch.equal(local(p), local(q)), f"{case}, step {step}"
    assert scalers[0].get_scale() == 2048.0, scalers[0].get_scale()


def mixed(mesh):
    scaler = GradScaler(DEVICE, init_scale=4.0)
    params = [torch.nn.Parameter(distribute_tensor(torch.ones(4, 2), mesh)), torch.nn.Parameter(torch.ones(3))]
    params[0].grad = distribute_tensor(torch.full((4, 2), 8.0), mesh, params[0].placements)
    params[1].grad = torch.full((3,), 8.0)
    optimizer = torch.optim.SGD(params, lr=1.0, foreach=False)
    scaler.scale(torch.ones(1))
    scaler.step(optimizer)
    scaler.update()
    assert local(params[0]).eq(-1.0).all() and params[1].eq(-1.0).all()


def over_arrays(mesh):
    """DTensors are refused with what to do, which is done."""
    values, grad = distribute_tensor(torch.ones(4), mesh), torch.ones(4)
    refused(lambda: gs.SGD([values], [grad]), r"params\[0\] is a DTensor.*pass its to_local\(\)", TypeError)
    shard = values.to_local()
    gs.SGD([shard], [grad[:len(shard)]], lr=1.0).step()
    assert values.full_tensor().tolist() == [0.0] * 4


def refuse_lamb(mesh):
    model = parallel("fsdp2", mesh)
    optimizer = LAMB(model.named_parameters())
    model(batch(0, 0)).square().mean().backward()
    refused(optimizer.step, "0.weight is sharded, but LAMB needs the norms of whole tensors")


def one_replica_alone(rank, mesh):
    """A NaN that one replica of two has, after the reduction: all skip. With PyTorch's scaler, that replica alone."""
    for options in ({}, dict(fused=False)):
        model = parallel("fsdp2", mesh)
        optimizer, scaler = SGD(model.parameters(), lr=0.1, **options), GradScaler(DEVICE, init_scale=1024.0)
        before = [p.detach().to_local().clone() for p in model.parameters()]
        scaler.scale(model(batch(0, rank)).square().mean()).backward()
        if rank == 3:
            next(model.parameters()).grad.to_local().view(-1)[0] = float("nan")
        scaler.step(optimizer)
        assert not agreed(scaler.applied(optimizer))
        scaler.update()
        assert agreed(scaler.get_scale()) == 512.0
        assert all(torch.equal(p.to_local(), q) for p, q in zip(model.parameters(), before, strict=True))


def sequence_parallel(rank, world, mesh):
    """Norms are replicated, and of their gradients each rank has a part of the sum."""
    def layers():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)).double()

    model, reference = layers(), layers()
    parallelize_module(model, mesh, {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1)),
                                     "2": RowwiseParallel()})
    for kind, options in OPTIMIZERS:
        for scaler_of in (None, GradScaler, torch.amp.GradScaler):
            ours, theirs = kind(model.parameters(), **options), kind(reference.parameters(), **options)
            scaler = scaler_of and scaler_of(DEVICE, init_scale=1024.0)
            for step in range(3):
                torch.manual_seed(step)
                x = torch.randn(2, 2 * world, 8, dtype=torch.float64)
                ours.zero_grad()
                theirs.zero_grad()
                loss = model(x.chunk(world, 1)[rank].contiguous()).square().mean()
                (scaler.scale(loss) if scaler else loss).backward()
                assert model[0].weight.grad.placements[0].is_partial()
                reference(x).square().mean().backward()
                if scaler:
                    scaler.step(ours)
                    scaler.update()
                else:
                    ours.step()
                theirs.step()
                for p, q in zip(model.parameters(), reference.parameters(), strict=True):
                    assert (full(p.detach()) - q).abs().max() <= BOUND


def flattened(rank, world):
    """FSDP1, whose ranks agree on inf in its own scaler alone; elsewhere, and of a norm, they do not: refused."""
    def model_and_loss(scaler=None):
        model = FullyShardedDataParallel(model_of().float(), use_orig_params=True, device_id=torch.get_default_device())
        loss = model(batch(0, rank).float()).square().mean()
        (scaler.scale(loss) if scaler else loss).backward()
        return model

    scaler = ShardedGradScaler(DEVICE, init_scale=1024.0)
    model = model_and_loss(scaler)
    optimizer = AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        grads = [p.grad for p in model.parameters() if p.grad is not None and p.grad.numel()]
        before = [p.detach().clone() for p in model.parameters()]
        if step == 0 and rank == world - 1:
            grads[0].view(-1)[0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
        moved = any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
        assert moved == (step == 1) and agreed(scaler.get_scale()) == 512.0
        if rank == world - 1:
            grads[0].view(-1)[0] = 1.0
    scaler = GradScaler(DEVICE)
    model = model_and_loss(scaler)
    refused(lambda: scaler.step(AdamW(model.parameters())), "its ranks would not agree on inf; use ShardedGradScaler")
    model = model_and_loss()
    refused(AdamW(model.parameters(), max_grad_norm=1.0).step, "no norm or inf is known here of the other ranks")
    refused(lambda: LAMB(model.parameters()).step(), "is sharded, but LAMB needs the norms")
    # A part of the parameters that cannot be recognised as a part.
    params = list(model_of().parameters())
    ZeroRedundancyOptimizer(params, AdamW, lr=0.1)
    refused(lambda: ZeroRedundancyOptimizer(params, AdamW, lr=0.1, max_grad_norm=1.0),
            "ZeroRedundancyOptimizer gives each rank only some")


def refused(call, message, error=ValueError):
    with pytest.raises(error, match=message):
        call()


def reduce_arrays(rank, world):
    """gradscaler.GradScaler over arrays: each rank has its part, and the reducer makes one list of them."""
    p = torch.zeros(3)
    grad = torch.full((3,), 8.0 * (rank + 1))
    optimizer = gs.SGD([p], [grad], lr=1.0)
    scaler = gs.GradScaler(DEVICE, init_scale=8.0)
    scaler.set_reducer(reducers.torch_distributed())
    scaler.clip_grad_norm_(optimizer, 1.0)
    scaler.step_and_update(optimizer)
    norm = (3.0 * sum((r + 1) ** 2 for r in range(world))) ** 0.5
    assert agreed(scaler.report(optimizer).grad_norm) == norm
    torch.testing.assert_close(p, torch.full((3,), -(rank + 1) / norm), rtol=2e-6, atol=0.0)
    before = p.clone()
    grad[1] = float("inf") if rank == world - 1 else 1.0
    scaler.step_and_update(optimizer)
    assert torch.equal(p, before) and agreed(scaler.get_scale()) == 4.0
    assert agreed(scaler.report(optimizer).nonfinite_count) == 1


def main(rank, world, file):
    warnings.simplefilter("ignore")
    rank, world = int(rank), int(world)
    if DEVICE != "cpu":
        torch.set_default_device(torch.device(DEVICE, rank))
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if DEVICE == "cpu" else "nccl", init_method=f"file://{file}", rank=rank,
                            world_size=world)
    mesh = init_device_mesh(DEVICE, (world,))
    cases = [("fsdp2", mesh), ("tensor_parallel", mesh), ("ddp", mesh)]
    if world == 4:
        cases.append(("fsdp2_and_tensor_parallel", init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("dp", "tp"))))
    for case, where in cases:
        for kind, options in OPTIMIZERS:
            train(case, rank, world, where, kind, options)
        if case != "fsdp2_and_tensor_parallel":
            beside_torchs_scaler(case, rank, world, where)
    mixed(mesh)
    over_arrays(mesh)
    train("fsdp2", rank, world, mesh, *OPTIMIZERS[1], scaler_of=torch.amp.GradScaler)
    if world == 4:
        one_replica_alone(rank, init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("replicate", "shard")))
    sequence_parallel(rank, world, mesh)
    flattened(rank, world)
    refuse_lamb(mesh)
    reduce_arrays(rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # PyTorch leaves threads of gloo and autograd behind, the only ones by now, which rarely end the process by
    # std::terminate while the interpreter is taken down.
    sys.stdout.flush()
    os._exit(0)
