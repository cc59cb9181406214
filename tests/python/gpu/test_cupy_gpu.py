# SPDX-License-Identifier: Apache-2.0
"""Arrays of CuPy: training against NumPy's, bit for bit; checkpoints, streams, DLPack and raw pointers.
What does not depend on whose arrays they are is in test_torch_gpu.py."""


import numpy as np
import pytest
from on_device import DEVICE, ON_GPU, needs_gpu, on_host, require_device, same_bits

import gradscaler as gs
from conftest import library, refused

cupy = library("cupy") if ON_GPU else np


def sees_one():
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # CuPy's own, which exist only with it.
        return False


require_device(sees_one(), "CuPy")

SHAPES = {"a": (1,), "b": (33, 65), "c": (0, 5), "d": (70_001,)}


def values_of(seed, dtype):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


def both(call):
    with np.errstate(all="ignore"):
        return call(cupy, DEVICE), call(np, "cpu")


@pytest.mark.parametrize("order, options", [("C", {"amsgrad": True}), ("F", {"state": "8bit", "seed": 3})], ids=str)
def test_training_has_the_bits_of_numpy(order, options):
    def run(xp, device):
        params = {name: xp.asarray(values, order=order) for name, values in values_of(0, "float32").items()}
        grads = {name: xp.zeros_like(p, dtype="float16") for name, p in params.items()}
        model = {name: p.astype("float16") for name, p in params.items()}
        optimizer = gs.AdamW(params, grads, lr=0.01, model_copy=model, **options)
        scaler = gs.GradScaler(device, init_scale=8.0, growth_interval=3)
        log = []
        for step in range(8):
            for name, values in values_of(step, "float16").items():
                grads[name][...] = xp.asarray(values * 8)
            if step == 4:
                grads["b"][3, 4] = np.inf
            scaler.clip_grad_norm_(optimizer, 0.7)
            scaler.step(optimizer)
            log.append(repr(scaler.report(optimizer)))
            scaler.update()
        assert not ON_GPU or params["b"].flags.f_contiguous == (order == "F")
        return {"params": params, "model": model, "state": optimizer.state_arrays()}, log

    (ours, log), (theirs, wanted) = both(run)
    assert log == wanted
    same_bits(ours, theirs)


def test_a_loss_in_16_bits_becomes_float32():
    # As with NumPy's, PyTorch's and JAX's: 16 bits do not hold the scale. Reductions of CuPy have no dimensions.
    loss = cupy.full(4, 2.0, "float16").mean()
    scaled = gs.GradScaler(DEVICE, init_scale=2.0**17).scale(loss)
    assert scaled.dtype == np.float32 and float(scaled) == 2.0**18, f"{scaled!r} of {scaled.dtype}"


def test_checkpoints_go_to_numpy_and_back():
    def start(xp, device):
        params, grads = ({name: xp.asarray(values) for name, values in values_of(seed, "float32").items()}
                         for seed in range(2))
        return params, grads, gs.AdamW(params, grads, lr=0.01), gs.GradScaler(device, init_scale=4.0)

    (ours, _grads, one, scaler), (theirs, _others, other, reference) = both(start)
    for _ in range(3):
        scaler.step_and_update(one)
        reference.step_and_update(other)
    same_bits(one.state_arrays(), other.state_arrays(), "state")
    other.load_state_dict(one.state_dict())
    one.load_state_arrays(other.state_arrays())
    scaler.load_state_dict(reference.state_dict())
    for _ in range(2):
        scaler.step_and_update(one)
        reference.step_and_update(other)
    same_bits(ours, theirs, "params")
    assert one.steps == other.steps == 5 and scaler.state_dict() == reference.state_dict()


@needs_gpu
def test_the_default_streams():
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream.ptds):
        with stream:
            params, grads = cupy.zeros(1000, "float32"), cupy.ones(1000, "float32")
            optimizer = gs.SGD([params], [grads], lr=1.0)
            scaler = gs.GradScaler("cuda", init_scale=1.0)
            scaler.step_and_update(optimizer)
            stream.synchronize()
            assert (params == -1.0).all() and scaler.get_scale() == 1.0


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dlpack(dtype):
    array = cupy.asarray(np.arange(12).reshape(4, 3), dtype=dtype)
    tensor = gs.as_tensor(OnlyDLPack(array))
    address = array.data.ptr if ON_GPU else array.ctypes.data
    assert (tensor.address, tensor.count, tensor.dtype, tensor.shape) == (address, 12, dtype, (4, 3))
    assert tensor.device == ("cuda:0" if ON_GPU else "cpu")
    gs.ops.scale([OnlyDLPack(array)], [OnlyDLPack(array)], cupy.asarray(0.5, "float32"))
    if ON_GPU:
        cupy.cuda.runtime.deviceSynchronize()
    same_bits(array, (np.arange(12) * 0.5).reshape(4, 3).astype(dtype), "scaled")
    with refused("not contiguous", ValueError):
        gs.as_tensor(OnlyDLPack(array[:, ::2]))


@needs_gpu
def test_raw_pointers():
    params, grads = cupy.zeros(1000, "float32"), cupy.ones(1000, "float32")
    optimizer = gs.SGD([(params.data.ptr, 1000, "float32", "cuda:0")], [(grads.data.ptr, 1000, "float32", "cuda")],
                       lr=1.0)
    optimizer.step()
    cupy.cuda.runtime.deviceSynchronize()
    assert (params == -1.0).all()
    host = np.zeros(1000, np.float32)
    with refused("tensors|arrays"):
        gs.TensorList([(host.ctypes.data, 1000, "float32", "cuda:0")])
    with refused("tensors|arrays"):
        gs.TensorList([(grads.data.ptr, 1000, "float32")])


@needs_gpu
def test_a_reducer_sums_in_the_stream():
    called = []

    def reduce(values):
        called.append(values.stream)
        # Older versions have the other one alone.
        found = getattr(cupy.cuda.Stream, "from_external", None)
        with found(values) if found else cupy.cuda.ExternalStream(values.stream):
            sums = cupy.asarray(values)
            assert sums.dtype == np.float64
            sums *= 4.0

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        params = cupy.zeros(4, "float32")
        optimizer = gs.SGD([params], [cupy.full(4, 2.0, "float32")], lr=1.0)
        scaler = gs.GradScaler("cuda", init_scale=1.0)
        scaler.set_reducer(reduce)
        scaler.clip_grad_norm_(optimizer, 4.0)
        scaler.step(optimizer)
        assert scaler.report(optimizer).grad_norm == 8.0
        scaler.update()
        stream.synchronize()
        np.testing.assert_allclose(on_host(params), -1.0, rtol=1e-6)
    assert called == [stream.ptr]
