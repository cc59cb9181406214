# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX and PyTorch on the CPU, by pointer; each is skipped where it is not installed."""

import numpy as np
import pytest

import gradscaler as gs
from conftest import library, on_cpu

DTYPES = ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_by_pointer(dtype):
    torch = library("torch")
    values = torch.nn.Parameter(torch.full((4, 3), 8.0, dtype=getattr(torch, dtype)))
    tensor = gs.as_tensor(values)
    assert (tensor.address, tensor.count, tensor.dtype) == (values.data_ptr(), 12, dtype)
    view = gs.as_tensor(values.detach()[1:])
    assert (view.address, view.count) == (values[1:].data_ptr(), 9)
    gs.ops.scale(values, values, 0.5)
    assert (values == 4.0).all()
    with pytest.raises(ValueError, match=r"grads\[0\] has its elements in another order than params\[0\]"):
        gs.SGD([values.detach().t()], [torch.ones(3, 4, dtype=values.dtype)])


@pytest.mark.parametrize("nbytes", [0, 8])
def test_torch_tensors_that_were_freed_or_resized_are_refused(nbytes):
    torch = library("torch")
    values = torch.ones(4)
    # What sharded training does between steps; DLPack hands out the memory nevertheless.
    values.untyped_storage().resize_(nbytes)
    with pytest.raises(ValueError, match=rf"params\[0\] was freed or resized: its storage has {nbytes} bytes.* 16"):
        gs.SGD([values], [torch.ones(4)])
    assert len(gs.TensorList([values[:0], torch.ones(4)[2:]])) == 2
    with pytest.raises(ValueError, match=r"arrays\[0\] is a view that negates"):
        gs.TensorList([torch._neg_view(torch.ones(3))])


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_jax_by_pointer(dtype):
    jax = library("jax")
    values = jax.numpy.full((4, 3), 8.0, dtype)
    tensor = gs.as_tensor(values, writable=False)
    assert (tensor.address, tensor.count, tensor.dtype) == (values.unsafe_buffer_pointer(), 12, dtype)
    assert tensor.device == ("cpu" if jax.default_backend() == "cpu" else "cuda:0")
    assert tensor.readonly and gs.diagnose(values)[0].amax == 8.0
    with pytest.raises(ValueError, match=r"params\[0\] is read-only"):
        gs.SGD([values], [np.ones(12, np.float32)])


@pytest.fixture
def jax_on_cpu():
    jax = library("jax")
    with on_cpu(jax):
        yield jax


def test_jax_gradients_are_stepped_on(jax_on_cpu):
    jax = jax_on_cpu
    params = np.ones(5, np.float32)
    scaler = gs.GradScaler(init_scale=1024.0)
    grads = jax.grad(lambda p, s: (p**2).sum().astype("float32") * s)
    gradients = gs.TensorList([grads(jax.numpy.asarray(params, "bfloat16"), scaler.get_scale())], read_only=True)
    optimizer = gs.SGD([params], gradients, lr=0.5)
    scaler.step_and_update(optimizer)
    assert params.tolist() == [0.0] * 5
    gradients.rebind([grads(jax.numpy.full(5, 2.0, "bfloat16"), scaler.get_scale())])
    scaler.step_and_update(optimizer)
    assert params.tolist() == [-2.0] * 5
    scaled = scaler.scale(jax.numpy.full(2, 2.0**-20, "float16"))
    assert scaled.dtype == "float16" and scaled.tolist() == [2.0**-10] * 2


def test_jax_arrays_that_are_gone_or_traced_are_refused():
    jax = library("jax")
    values = jax.numpy.ones(3)
    values.delete()
    with pytest.raises(ValueError, match="arrays"):
        gs.TensorList([values], read_only=True)
    with pytest.raises(TypeError, match=r"arrays\[0\] is traced by JAX"):
        jax.jit(lambda v: gs.TensorList([v], read_only=True))(jax.numpy.ones(3))


def test_tensorflow_tensors_are_never_written():
    tensorflow = library("tensorflow")
    for dtype in ("float32", "bfloat16"):
        values = tensorflow.constant([1.0, 2.0], dtype)
        assert gs.diagnose([values])[0].amax == 2.0
        with pytest.raises(ValueError, match=r"params\[0\] is read-only"):
            gs.SGD([values], [np.ones(2, np.float32)])
