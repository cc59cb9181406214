# SPDX-License-Identifier: Apache-2.0
"""The drop-in on tensors that are not plain: sharded ones in two processes, and subclasses that it does not know."""

import os
import pathlib
import subprocess
import sys

import pytest

import gradscaler as gs
from conftest import library

WORKER = pathlib.Path(__file__).with_name("distributed_worker.py")


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_two_processes(tmp_path, backend):
    torch = library("torch")
    if backend == "nccl" and (torch.cuda.device_count() < 2 or not torch.distributed.is_nccl_available()):
        pytest.skip("needs two GPUs and a PyTorch with NCCL")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
                   "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [subprocess.Popen([sys.executable, "-B", str(WORKER), str(rank), str(tmp_path / "store"), backend],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(2)]
    try:
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)


def test_unknown_subclasses_take_pytorchs_own_path():
    torch = library("torch")
    from gradscaler.torch import GradScaler
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")
    kind = two_tensor.TwoTensor
    for value, moves in ((8.0, True), (float("inf"), False)):
        scaler = GradScaler("cpu", init_scale=4.0)
        p = torch.nn.Parameter(kind(torch.ones(3), torch.ones(3)))
        p.grad = kind(torch.full((3,), value), torch.full((3,), value))
        optimizer = torch.optim.SGD([p], lr=1.0, foreach=False)
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        assert p.a.tolist() == p.b.tolist() == ([-1.0] * 3 if moves else [1.0] * 3)
        assert scaler.get_scale() == (4.0 if moves else 2.0)
    # With the optimizers of this package there is no such path.
    with pytest.raises(TypeError, match=r"params\[0\] is a TwoTensor, a subclass of torch.Tensor whose memory"):
        gs.SGD([p], [torch.ones(3)])


def test_dtensors_are_refused_by_the_fused_step_with_what_to_do():
    torch = library("torch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        values = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)))
        with pytest.raises(TypeError, match=r"params\[0\] is a DTensor.*pass its to_local\(\)"):
            gs.SGD([values], [torch.ones(4)])
        shard = values.to_local()
        grad = torch.ones(4)
        gs.SGD([shard], [grad], lr=1.0).step()
        assert values.full_tensor().tolist() == [0.0] * 4
    finally:
        torch.distributed.destroy_process_group()
