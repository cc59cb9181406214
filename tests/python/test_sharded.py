# SPDX-License-Identifier: Apache-2.0
"""FSDP2, DDP and tensor parallel with the classes of gradscaler.torch in 2 and 4 processes; tensors that are not plain;
and the reducers."""

import pathlib
import pickle
import sys

import pytest

import gradscaler as gs
from conftest import DEVICE, library, run_python, run_ranks

WORKER = pathlib.Path(__file__).with_name("sharded_worker.py")


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_as_one_process(world, tmp_path, torch):
    if DEVICE != "cpu" and torch.cuda.device_count() < world:
        pytest.skip(f"needs {world} CUDA devices")
    run_ranks(WORKER, world, tmp_path / "store")


def test_unknown_subclasses_take_pytorchs_own_path(torch):
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


def test_a_reducer_sums_over_ranks(world):
    seen = []

    def reduce(values):
        seen.append(list(values))
        # The other rank has the same finite gradients.
        values[0], values[1] = values[0] + 0, 2 * values[1]

    scaler, optimizer, params, _ = world()
    scaler.set_reducer(reduce)
    scaler.step_and_update(optimizer)
    assert seen == [[0.0, 8.0]] and params[0][0] == 0.0
    assert scaler.report(optimizer).grad_norm == 4.0
    # An overflow on the other rank alone.
    scaler.set_reducer(lambda values: values.__setitem__(0, values[0] + 1))
    scaler.step_and_update(optimizer)
    assert params[0][0] == 0.0 and scaler.get_scale() == 2.0 and scaler.report(optimizer).nonfinite_count == 1
    scaler.set_reducer(None)
    scaler.step_and_update(optimizer)
    assert params[0][0] == -2.0


@pytest.mark.parametrize("error", [ConnectionError, BufferError, KeyboardInterrupt, SystemExit])
def test_a_reducer_that_fails_is_an_error_with_its_cause(world, error):
    """Exceptions that end the program pass through as they are."""
    def reduce(values):
        values.cast("B").cast("d")
        raise error

    scaler, optimizer, params, _ = world()
    scaler.set_reducer(reduce)
    wrapped = issubclass(error, Exception)
    with pytest.raises(gs.CallbackError if wrapped else error) as caught:
        scaler.step(optimizer)
    if wrapped:
        assert isinstance(caught.value.__cause__, error) and "all_reduce failed" in str(caught.value)
    else:
        assert caught.traceback[-1].name == "reduce"
    assert params[0][0] == 1.0
    scaler.set_reducer(None)
    scaler.step_and_update(optimizer)
    assert params[0][0] == 0.0


def test_a_reducer_cannot_keep_the_values(world):
    kept, views = [], []
    scaler, optimizer, _, grads = world()
    scaler.set_reducer(lambda values: (kept.append(values), views.append(values[:])))
    scaler.step_and_update(optimizer)
    first = views[0].tolist()
    grads[0][:] *= 3.0
    scaler.step_and_update(optimizer)
    assert views[0].tolist() == first != views[1].tolist()
    scaler.set_reducer(kept.append)
    scaler.step_and_update(optimizer)
    with pytest.raises(ValueError, match="released"):
        kept[-1][0] = 1.0


def test_a_scaler_with_a_reducer_is_not_pickled(world):
    scaler, _, _, _ = world()
    scaler.set_reducer(lambda values: None)
    with pytest.raises(TypeError, match="holds a reducer"):
        pickle.dumps(scaler)
    with pytest.raises(TypeError, match="reduce is 3; it must be callable or None"):
        scaler.set_reducer(3)


def test_mpi_in_two_processes(tmp_path):
    library("mpi4py")
    script = tmp_path / "rank.py"
    script.write_text("""
from mpi4py import MPI
import array, gradscaler as gs
from gradscaler import reducers
world = MPI.COMM_WORLD
p, g = array.array("f", [0.0]), array.array("f", [1.0])
optimizer = gs.SGD([p], [g], lr=1.0)
scaler = gs.GradScaler(init_scale=1.0)
scaler.set_reducer(reducers.mpi(world))
scaler.step_and_update(optimizer)
assert p[0] == -1.0 and scaler.report(optimizer).grad_norm == world.size ** 0.5
g[0] = float("inf") if world.rank else 1.0
scaler.step_and_update(optimizer)
assert world.size == 2 and p[0] == -1.0 and scaler.get_scale() == 0.5
""")
    run_python(script, command=["mpiexec", "-n", "2", sys.executable, "-B"], OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
