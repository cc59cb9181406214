# SPDX-License-Identifier: Apache-2.0
"""One of two processes of test_distributed.py: trains with this package's GradScaler and with PyTorch's.

Usage: distributed_worker.py RANK FILE gloo|nccl, with nccl on one GPU each. Both models see the same batches, and an
inf in one rank's gradients in step 2. Prints each case before it runs. Exit status 0 if scale, skips and every shard of
every parameter were the same after each step.
"""

import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import gradscaler as gs
from gradscaler.torch import GradScaler

STEPS, BAD_STEP = 5, 2


def model_of(case, mesh):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    if case == "fsdp2":
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif case == "tensor_parallel":
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif case == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def poison(model, rank):
    """An inf in a part of the gradients that only the last rank has."""
    grad = next(model.parameters()).grad
    if rank == dist.get_world_size() - 1:
        local(grad).view(-1)[0] = float("inf")


def train(case, rank, mesh):
    scalers = [kind(mesh.device_type, init_scale=1024.0, growth_interval=2)
               for kind in (GradScaler, torch.amp.GradScaler)]
    models = [model_of(case, mesh) for _ in scalers]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False) for model in models]
    skipped = 0
    for step in range(STEPS):
        torch.manual_seed(step if case == "tensor_parallel" else 10 * step + rank)
        x = torch.randn(4, 8)
        for scaler, model, optimizer in zip(scalers, models, optimizers, strict=True):
            optimizer.zero_grad()
            before = local(next(model.parameters())).clone()
            scaler.scale(model(x).square().mean()).backward()
            if step == BAD_STEP:
                poison(model, 1 if case == "ddp" else rank)
            if step % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            moved = not torch.equal(before, local(next(model.parameters())))
            assert moved == (step != BAD_STEP), f"step {step}: rank {rank} {'moved' if moved else 'stayed'}"
            skipped += not moved
        assert scalers[0].get_scale() == scalers[1].get_scale(), f"step {step}"
        for p, q in zip(*(model.parameters() for model in models), strict=True):
            assert torch.equal(local(p), local(q)), f"step {step}: rank {rank} has other parameters"
    assert skipped == 2 and scalers[0].get_scale() == 2048.0, (skipped, scalers[0].get_scale())


def check_flags(rank, mesh):
    """Sharded, replicated and plain gradients in one optimizer; an inf in the shard of one rank alone."""
    scaler = GradScaler(mesh.device_type, init_scale=4.0)
    params = [torch.nn.Parameter(distribute_tensor(torch.ones(4, 2), mesh)), torch.nn.Parameter(torch.ones(3))]
    params[0].grad = distribute_tensor(torch.full((4, 2), 8.0), mesh, params[0].placements)
    params[1].grad = torch.full((3,), 8.0)
    optimizer = torch.optim.SGD(params, lr=1.0, foreach=False)
    scaler.scale(torch.ones(1))
    scaler.step(optimizer)
    scaler.update()
    assert local(params[0]).eq(-1.0).all() and params[1].eq(-1.0).all()


def check_reducer(rank, mesh):
    """Half of the tensors on each rank, with one norm and one verdict, against all of them in one process."""
    results = []
    for whole in (False, True):
        params = [torch.ones(1000), torch.ones(300)]
        grads = [torch.zeros_like(p) for p in params]
        mine = slice(None) if whole else slice(rank, rank + 1)
        optimizer = gs.SGD(params[mine], grads[mine], lr=1.0)
        scaler = gs.GradScaler(str(params[0].device), init_scale=4.0, growth_interval=2)
        if not whole:
            scaler.set_reducer(gs.reducers.torch_distributed())
        for step in range(STEPS):
            torch.manual_seed(step)
            for grad in grads:
                grad.copy_(torch.randint(-8, 9, grad.shape).float())  # sums of squares are exact
            if step == BAD_STEP:
                grads[1][0] = float("inf")
            scaler.clip_grad_norm_(optimizer, 1.0)
            scaler.step(optimizer)
            scaler.update()
        results.append((params[rank].tolist(), scaler.get_scale(), optimizer.steps))
    assert results[0] == results[1], f"rank {rank}"


def main(rank, file, backend):
    warnings.simplefilter("ignore")
    rank = int(rank)
    kind = "cuda" if backend == "nccl" else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh(kind, (2,))
    for case in ("fsdp2", "tensor_parallel", "ddp"):
        print(case, flush=True)
        train(case, rank, mesh)
    print("mixed", flush=True)
    check_flags(rank, mesh)
    print("reducer", flush=True)
    check_reducer(rank, mesh)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # PyTorch leaves threads of gloo and autograd behind, the only ones by now, which rarely end the process by
    # std::terminate while the interpreter is taken down.
    sys.stdout.flush()
    os._exit(0)
