# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits of FSDP2's shards: the bits of the whole, on every number of ranks, also after resharding,
for every shape.

Run as a script, this file is one process: RANK WORLD FOLDER. It takes the steps of an optimizer of whole parameters and
of one of their shards, loads what other numbers of ranks have saved in FOLDER, and saves its own there.
"""

import os
import pathlib
import sys
import warnings

import pytest

STEPS = 3
#: One after the other.
WORLDS = [2, 4, 3, 1] if "GRADSCALER_TEST_LONG" in os.environ else [2, 4, 1]
FORMATS = [("fp32", None), ("8bit", "split"), ("16bit", "stochastic"), ("8bit", "stochastic")]


def model_of(torch):
    torch.manual_seed(0)
    # Rows of 64, 32, 20 and 27 elements, and vectors; 10 rows are no multiple of the ranks. Shards of the last two
    # matrices and of all vectors cut groups of 32 elements on some of them.
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10), torch.nn.LayerNorm(256),
                               torch.nn.Linear(20, 10), torch.nn.Conv2d(3, 16, 3)).to(torch.bfloat16)


def local(value):
    return value.to_local() if hasattr(value, "to_local") else value


def shard_of(torch, whole, value):
    if not hasattr(value, "placements"):
        return whole
    rank = value.device_mesh.get_local_rank()
    parts = whole.chunk(value.device_mesh.size())
    return parts[rank] if rank < len(parts) else whole[:0]


def keeps_groups(p, world):
    return -(-p.shape[0] // world) * p[0].numel() % 32 == 0


def process(rank, world, folder):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.tensor import distribute_tensor

    from gradscaler.torch import AdamW

    warnings.simplefilter("ignore")
    mesh = None
    if world > 1:
        from torch.distributed.fsdp import fully_shard
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store{world}", rank=rank,
                                             world_size=world)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))

    def sharded():
        model = model_of(torch)
        return fully_shard(model, mesh=mesh) if world > 1 else model

    def step(optimizer, model, seed):
        torch.manual_seed(seed)
        for p in model.parameters():
            grad = torch.randn(p.shape).to(p.dtype)
            p.grad = distribute_tensor(grad, mesh, p.placements) if hasattr(p, "placements") else grad
        optimizer.step()

    def require_equal(optimizer, model, whole, whole_model):
        for p, q in zip(model.parameters(), whole_model.parameters(), strict=True):
            # Random bits of weights go by the groups of the shard.
            if whole.param_groups[0].get("master") != "stochastic" or keeps_groups(p, world):
                assert torch.equal(local(p.detach()), shard_of(torch, q.detach(), p))
            for name, value in whole.state[q].items():
                own = optimizer.state[p][name]
                assert own.shape == value.shape and torch.equal(local(own), shard_of(torch, value, own)), name

    for state, master in FORMATS:
        options = dict(lr=0.01, state=state, master=master, seed=11)
        whole_model, model = model_of(torch), sharded()
        whole, optimizer = AdamW(whole_model.parameters(), **options), AdamW(model.parameters(), **options)
        for seed in range(STEPS):
            step(whole, whole_model, seed)
            step(optimizer, model, seed)
        require_equal(optimizer, model, whole, whole_model)
        # get_optimizer_state_dict makes the state of an optimizer that has none, unless there are gradients.
        optimizer.zero_grad()
        file = pathlib.Path(folder, f"{state}-{master}")
        for saved in [file / str(other) for other in WORLDS[:WORLDS.index(world)]]:
            other = AdamW(model.parameters(), **options)
            found = {"optimizer": get_optimizer_state_dict(model, other)}
            dcp.load(found, checkpoint_id=saved)
            set_optimizer_state_dict(model, other, found["optimizer"])
            require_equal(other, model, whole, whole_model)
            # In float32 it goes anywhere too.
            theirs = torch.optim.AdamW(model.parameters())
            theirs.load_state_dict(other.fp32_state_dict())
        dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=file / str(world))
    if world == 4:
        model = sharded()
        optimizer = AdamW(model.parameters(), state="8bit")
        step(optimizer, model, 0)
        saved = optimizer.state_dict()
        # One of an earlier version, which had codes of vectors: each shard of 8 elements had its own scale.
        saved["state"][1]["exp_avg"] = saved["state"][1]["exp_avg"].to(torch.uint8)
        saved["state"][1]["exp_avg_scale"] = torch.zeros(1, dtype=torch.uint8)
        with pytest.raises(ValueError, match=r"'exp_avg_scale'\] has shape \(1,\), but here the shards have \(4,\)"):
            optimizer.load_state_dict(saved)
        # PyTorch's checkpoints would copy the codes as numbers.
        optimizer.zero_grad()
        found = get_optimizer_state_dict(model, optimizer)
        for group in found["param_groups"]:
            del group["codes"]
        dcp.save({"optimizer": found}, checkpoint_id=f"{folder}/earlier")
        found = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        with pytest.raises(CheckpointException, match="Missing key .*codes"):
            dcp.load(found, checkpoint_id=f"{folder}/earlier")
    if world > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def test_shards_have_the_bits_of_the_whole_on_every_number_of_ranks(tmp_path):
    from conftest import library, run_ranks
    library("torch")
    for world in WORLDS:
        run_ranks(__file__, world, tmp_path)


if __name__ == "__main__":
    process(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    sys.stdout.flush()
    os._exit(0)
