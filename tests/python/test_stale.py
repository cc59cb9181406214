# SPDX-License-Identifier: Apache-2.0
"""Gradients that are new arrays in every step: seen through rebind, an error without it, and no error where the
arrays that were passed can still be written."""

import array
import ctypes
import mmap

import numpy as np
import pytest

import gradscaler as gs
from conftest import frozen, full, library, on_cpu, ones, refused, zeros

SEEN = "gradients made since are not seen; pass them to rebind"


def sgd(grads):
    params = zeros(3)
    return params, gs.SGD([params], grads, lr=1.0)


def replaced(optimizer, step):
    step(optimizer)
    try:
        step(optimizer)
    except gs.InvalidArgumentError as error:
        assert SEEN in str(error)
        return True
    return False


def alone(optimizer):
    optimizer.step()


def scaled(optimizer):
    scaler = gs.GradScaler(init_scale=1.0)
    scaler.step(optimizer)
    scaler.update()


def at_once(optimizer):
    gs.GradScaler(init_scale=1.0).step_and_update(optimizer)


STEPS = [alone, scaled, at_once]


@pytest.mark.parametrize("step", STEPS)
def test_numpy_gradients_that_were_replaced(step):
    params, grads = {"w": zeros(3)}, {"w": ones()}
    optimizer = gs.SGD(params, grads, lr=1.0)
    step(optimizer)
    before = params["w"].copy()
    grads["w"] = ones()
    with refused(r"grads\['w'\] was used in a step before and nothing"):
        step(optimizer)
    assert np.array_equal(params["w"], before)
    for _ in range(3):
        optimizer.grads.rebind({"w": ones()})  # A temporary is what it should be, for one step.
        step(optimizer)
    assert params["w"].tolist() == [-4.0] * 3


def test_a_temporary_is_seen_once():
    params, optimizer = sgd([ones()])
    scaler = gs.GradScaler(init_scale=1.0)
    scaler.unscale_(optimizer)
    scaler.clip_grad_norm_(optimizer, 100.0)
    scaler.step(optimizer)
    scaler.update()
    assert params.tolist() == [-1.0] * 3
    with refused(SEEN):
        scaler.unscale_(optimizer)


OWNERS = {
    "array": ones, "column": lambda: ones(3, 1)[:, 0], "view": lambda: ones(6)[:3],
    "view of a view": lambda: ones(2, 3)[0].reshape(3),
    "bfloat16": lambda: np.ones(3, library("ml_dtypes").bfloat16), "array.array": lambda: array.array("f", [1.0] * 3),
    "read-only": lambda: frozen(ones()),
}


@pytest.mark.parametrize("kind", OWNERS)
def test_what_nobody_holds_is_refused(kind):
    grads = [OWNERS[kind]()]
    _, optimizer = sgd(grads)
    assert not replaced(optimizer, alone)
    grads.clear()
    with refused(SEEN):
        optimizer.step()


def test_views_of_one_array_that_nobody_holds():
    flat = ones(6)
    params = [zeros(3), zeros(3)]
    optimizer = gs.SGD(params, [flat[:3], flat[3:]], lr=1.0)
    assert not replaced(optimizer, alone)
    del flat
    with refused(SEEN):
        optimizer.step()


class Foreign:
    """An array over memory that other code writes, as C programs pass them."""

    def __init__(self, memory):
        self.__array_interface__ = {"data": (ctypes.addressof(memory), False), "shape": (3,), "typestr": "<f4",
                                    "version": 3}


@pytest.mark.parametrize("step", STEPS)
def test_what_can_still_be_written_is_not_refused(step, tmp_path):
    base = ones(2, 3)
    held, memory, buffer = ones(), (ctypes.c_float * 3)(1, 1, 1), bytearray(ones().tobytes())
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    shown, again = ones(), ones()
    cases = {
        "a flattened view of a living array": held.reshape(-1),
        "a slice of one": base[0],
        "a slice whose array lives as another slice": base[1],
        "exported": np.frombuffer(buffer, np.float32),
        "ctypes": np.ctypeslib.as_array(memory),
        "a pointer": np.ctypeslib.as_array(ctypes.cast(memory, ctypes.POINTER(ctypes.c_float)), (3,)),
        "memory of a C program": np.asarray(Foreign(memory)),
        "mmap": np.frombuffer(pages, np.float32, 3),
        "memmap": np.memmap(tmp_path / "file", np.float32, "w+", shape=(3,)),
        "raw": (ctypes.addressof(memory), 3, "float32"),
        "held as bytes": memoryview(shown),
        "held by a list": again,
    }
    other = base[1]
    del base
    held_by_list = gs.TensorList([again])
    written = shown.view(np.int32)
    del shown, again
    for name in list(cases):
        _, optimizer = sgd([cases.pop(name)])
        assert not replaced(optimizer, step), name
    del other, held_by_list, written


def test_memory_that_was_handed_out():
    _, optimizer = sgd([ones()])
    gs.ops.scale([ones()], optimizer.grads, 2.0)
    assert not replaced(optimizer, alone)
    tensor = gs.as_tensor(ones())
    _, optimizer = sgd([tensor])
    assert not replaced(optimizer, alone)


def test_lists_of_gradients_of_ones_own():
    scaler, grads = gs.GradScaler(init_scale=1.0), [ones()]
    found = gs.TensorList(grads, argument="grads")
    for _ in range(2):
        assert scaler.should_step(found)
        scaler.update()
    grads[0] = ones()
    with refused(rf"grads\[0\].*{SEEN}"):
        scaler.should_step(found)
    found.rebind(grads)
    assert scaler.should_step(found)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("view", [False, True])
def test_gradients_of_jax(step, view):
    jax = library("jax")
    params = {"w": full(4.0, 3)}

    def backward():
        with on_cpu(jax):
            grads = jax.jit(jax.grad(lambda p: (p["w"] ** 2).sum() / 2))(params)
        return {"w": np.asarray(grads["w"])} if view else grads

    optimizer = gs.SGD(params, backward(), lr=0.5)
    step(optimizer)
    grads = backward()
    with refused(rf"grads\['w'\] is immutable and was used.*{SEEN}"):
        step(optimizer)
    optimizer.grads.rebind(grads)
    step(optimizer)
    optimizer.grads.rebind(backward())
    step(optimizer)
    assert params["w"].tolist() == [0.5] * 3
    with refused(r"params\['w'\] is read-only", ValueError):
        gs.SGD(grads, grads)


def test_scalars_are_immutable():
    params = np.zeros((), np.float32)
    assert replaced(gs.SGD([params], [np.float32(1.0)], lr=1.0), alone)


def test_two_optimizers_on_one_list():
    grads = gs.TensorList([ones()])
    first, second = sgd(grads)[1], sgd(grads)[1]
    first.step()
    second.step()
    with refused(SEEN):
        first.step()


NOBODY = "held by nothing else: the result of the step would be lost"


@pytest.mark.parametrize("step", STEPS)
def test_parameters_that_were_replaced(step):
    params, grads = {"w": ones()}, {"w": ones()}
    optimizer = gs.SGD(params, grads, lr=1.0)
    step(optimizer)
    optimizer.state_arrays()  # Looks at the parameters, and hands none of them out.
    old = params["w"]
    params["w"] = old * 0.5
    step(optimizer)  # Whoever holds the old array may read it.
    del old
    with refused(rf"params\['w'\] is {NOBODY}"):
        step(optimizer)
    assert optimizer.steps == 2
    assert optimizer.params[0].count == 3
    step(optimizer)


def test_weights_that_were_replaced():
    model, grads = {"w": np.ones(3, np.float16)}, {"w": ones()}
    optimizer = gs.SGD({"w": ones()}, grads, lr=0.25, model_copy=model)  # Only the optimizer needs the masters.
    for _ in range(3):
        optimizer.step()
    assert model["w"].tolist() == [0.25] * 3
    model["w"] = np.zeros(3, np.float16)
    optimizer.step()  # References are counted before the steps 2, 3, 5, 9 and so on.
    for _ in range(2):
        with refused(rf"model_copy\['w'\] is {NOBODY}"):
            optimizer.step()


def test_a_step_counts_references_less_and_less_often(monkeypatch):
    from gradscaler import tensors
    counted, original = [], tensors.unreferenced
    params, grads = ones(), ones()
    optimizer = gs.SGD([params], [grads], lr=0.0)
    monkeypatch.setattr(tensors, "unreferenced", lambda found: counted.append(optimizer.steps) or original(found))
    for _ in range(40):
        scaled(optimizer)
    assert counted == [step for step in (1, 2, 4, 8, 16, 32) for _ in "gp"]  # Gradients and parameters.
    grads = [ones()]
    optimizer.grads.rebind(grads)
    counted.clear()
    for _ in range(3):
        scaled(optimizer)
    assert counted == [41]
    grads[0] = ones()
    with refused(SEEN):
        for _ in range(64):
            scaled(optimizer)
