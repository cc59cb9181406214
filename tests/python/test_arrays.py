# SPDX-License-Identifier: Apache-2.0
"""Arrays that are accepted, without a copy, and references to their memory; arrays that are refused, and how."""

import array
import ctypes
import dataclasses
import gc
import re
import sys
import weakref

import numpy as np
import pytest

import gradscaler as gs
from conftest import Cuda, frozen, full, has_gpu, library, ones, refused, zeros


def swapped(name):
    dtype = np.dtype(getattr(library("ml_dtypes"), name))
    return np.zeros(4, dtype).view(dtype.newbyteorder())


class Capsule:
    """An array that has DLPack alone, old or new, or that gives out a copy of itself."""

    def __init__(self, values, versioned, device=(1, 0), **more):
        self.values, self.versioned, self.device, self.more = values, versioned, device, more

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        if not self.versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.values.__dlpack__(**arguments, **self.more)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numpy_by_pointer(dtype):
    values = np.ones((2, 3), dtype)
    tensor = gs.as_tensor(values)
    assert (tensor.address, tensor.count, tensor.dtype, tensor.device) == (values.ctypes.data, 6, dtype, "cpu")
    assert not tensor.readonly and tensor.nbytes == values.nbytes


@pytest.mark.parametrize("values", [
    np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.float64).reshape(2, 3).T,
    np.arange(3, dtype=np.float16), frozen(np.arange(3, dtype=np.float32)), np.ones((0, 2))], ids=str)
def test_a_tensor_is_an_array_of_numpy(values):
    tensor = gs.as_tensor(values, writable=False, any_order=True)
    found = np.asarray(tensor)
    assert found.dtype == values.dtype and found.shape == values.shape
    assert np.shares_memory(found, values) == (values.size > 0) and found.flags.writeable == (not tensor.readonly)
    np.testing.assert_array_equal(found, values)
    del values, tensor
    gc.collect()
    assert found.sum() == found.copy().sum()


def test_a_raw_pointer_is_an_array_of_numpy():
    params = ones(2, 3)
    raw = np.asarray(gs.as_tensor((params.ctypes.data, 6, "float32")))
    assert raw.shape == (6,) and np.shares_memory(raw, params)


def test_tensors_that_numpy_cannot_hold_say_so():
    bits = gs.as_tensor(np.zeros(3, np.uint16), dtype="bfloat16")
    with refused("bfloat16, which NumPy does not have; .*dtype='uint16'", TypeError):
        np.asarray(bits)
    assert np.asarray(dataclasses.replace(bits, dtype="uint16")).tolist() == [0, 0, 0]
    with refused("is on cuda:0, where NumPy does not reach", TypeError):
        np.asarray(gs.as_tensor(Cuda()))
    assert gs.as_tensor(Cuda()).__cuda_array_interface__ == {
        "shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None, "stream": 1}
    assert not hasattr(bits, "__cuda_array_interface__")


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_by_pointer(versioned):
    values = np.ones((2, 3), np.float16)[1:]
    tensor = gs.as_tensor(Capsule(values, versioned))
    assert (tensor.address, tensor.count, tensor.dtype) == (values.ctypes.data, 3, "float16")
    with refused("not contiguous", ValueError):
        gs.as_tensor(Capsule(np.ones((4, 4))[:, 1:], versioned))


def test_standard_library_and_raw_pointers():
    floats = array.array("f", [1, 2, 3])
    assert gs.as_tensor(floats).address == floats.buffer_info()[0]
    tensor = gs.as_tensor((floats.buffer_info()[0], 3, "fp32"))
    assert (tensor.count, tensor.dtype, tensor.owner) == (3, "float32", None)
    assert gs.as_tensor((64, 3, np.dtype("float16"), "cuda:1")).device == "cuda:1"
    assert gs.as_tensor(tensor) is tensor


def test_bfloat16():
    bits = np.full(3, 0x3F80, np.uint16)
    tensor = gs.as_tensor(bits, dtype="bf16")
    assert (tensor.address, tensor.count, tensor.dtype) == (bits.ctypes.data, 3, "bfloat16")
    assert gs.ops.norm([tensor], np.inf) == 1.0
    ml_dtypes = library("ml_dtypes")
    values = np.full(3, 2.0, ml_dtypes.bfloat16)
    tensor = gs.as_tensor(values)
    assert (tensor.address, tensor.count, tensor.dtype) == (values.ctypes.data, 3, "bfloat16")
    gs.ops.scale(values, values, 4.0)
    assert values.tolist() == [8.0] * 3
    with refused("read-only", ValueError):
        gs.as_tensor(frozen(values))


def test_cuda_array_interface():
    tensor = gs.as_tensor(Cuda())
    assert (tensor.address, tensor.count, tensor.dtype) == (4096, 6, "float32")
    assert (tensor.device, tensor.stream) == ("cuda:0", 1)
    assert gs.as_tensor(Cuda(strides=(12, 4))).count == 6
    for changes, error, message in [
            ({"strides": (24, 4)}, ValueError, "not contiguous"), ({"data": (4096, True)}, ValueError, "read-only"),
            ({"stream": 0}, ValueError, "stream 0"), ({"mask": Cuda(typestr="|b1")}, TypeError, "has a mask"),
            ({"typestr": "<V2"}, TypeError, "array has dtype opaque16.*pass dtype='bfloat16'"),
            *(({"typestr": kind}, TypeError, f"typestr '{re.escape(kind)}'") for kind in (
                "<i8", ">f2", ">f4", "|f4", "<c8"))]:
        with pytest.raises(error, match=message):
            gs.as_tensor(Cuda(**changes))
    assert gs.as_tensor(Cuda(typestr="<V2"), dtype="bfloat16").dtype == "bfloat16"
    bfloat16 = Cuda(typestr="<V2")
    bfloat16.dtype = "bfloat16"
    assert gs.as_tensor(bfloat16).dtype == "bfloat16"
    assert gs.as_tensor(Cuda(version=2, stream=None)).stream is None


def test_arrays_of_two_streams():
    apart = {"w": Cuda(stream=1), "b": Cuda(stream=9, data=(8192, False))}
    message = r"\['b'\] is worked on in stream 0x9, but {}\['w'\] in 0x1: two streams are not ordered"
    for name, call in (("arrays", lambda: gs.TensorList(apart)), ("params", lambda: gs.SGD(apart, apart)),
                       ("dst", lambda: gs.ops.cast(apart, apart))):
        with refused(name + message.format(name)):
            call()
    with refused(r"src\['w'\] is worked on in stream 0x9, but dst\['w'\] in 0x1"):
        gs.ops.cast({"w": Cuda(stream=9)}, {"w": Cuda(data=(8192, False))})
    with refused(r"tensors\[1\] is worked on in stream 0x9"):
        gs.ops.unscale_check([Cuda(data=(8192, False)), Cuda(stream=9)], Cuda(shape=()), Cuda(shape=()))
    # Both are the legacy default stream; without a stream there is nothing to wait for.
    together = [Cuda(stream=1), gs.Tensor(8192, 6, "float32", device="cuda:0", stream=0), Cuda(stream=None)]
    with refused("is host memory") if has_gpu() else (
            pytest.raises(gs.UnavailableError)):
        gs.TensorList(together)


@pytest.mark.parametrize("changes", [
    {"data": 4096}, {"data": ("a", False)}, {"data": (-8, False)}, {"shape": None}, {"shape": ("2",)}, {"shape": (-1,)},
    {"shape": (1 << 62, 4)}, {"typestr": 4}, {"typestr": "<f"}, {"typestr": "<f0"}, {"strides": 4}, {"strides": (4,)},
], ids=str)
def test_a_cuda_array_interface_that_is_none(changes):
    with pytest.raises((TypeError, ValueError), match="grads"):
        gs.as_tensor(Cuda(**changes), argument="grads")
    for key in changes:
        if key != "strides":
            array = Cuda()
            del array.__cuda_array_interface__[key]
            with refused(f"grads has a __cuda_array_interface__ that is none.*{key}", TypeError):
                gs.as_tensor(array, argument="grads")


def test_ctypes():
    values = (ctypes.c_float * 3 * 2)()
    tensor = gs.as_tensor(values)
    assert (tensor.address, tensor.count, tensor.shape) == (ctypes.addressof(values), 6, (2, 3))
    kind = ctypes.c_float
    for _ in range(200):
        kind = kind * 1
    with refused("deep", TypeError):
        gs.as_tensor(kind(), argument="deep")


def test_cuda_arrays_of_jax_are_waited_for_and_read_only():
    waited = []
    kind = type("ArrayImpl", (Cuda,), {"__module__": "jaxlib._jax", "block_until_ready": lambda _: waited.append(1)})
    assert gs.as_tensor(kind(version=2, stream=None), writable=False).readonly and waited == [1]
    with refused("read-only", ValueError):
        gs.as_tensor(kind(version=2, stream=None))


REFUSED = [
    (lambda: ones(4, 4)[:, 1:], ValueError, "not contiguous"),
    (lambda: np.ma.masked_array(ones(4), [0, 1, 0, 0]), TypeError, "masked array"),
    (lambda: ones(2, 2).view(np.matrix), TypeError, "is a matrix, a subclass"),
    (lambda: frozen(ones(4)), ValueError, "read-only"),
    (lambda: b"12345678", TypeError, "dtype uint8"),
    (lambda: np.ones(4, np.int64), TypeError, "dtype int64"),
    (lambda: np.ones(4, np.uint16), TypeError, "dtype uint16.*dtype='bfloat16'"),
    (lambda: np.ones(4, ">f4"), TypeError, "dtype >f4"),
    (lambda: np.zeros(3, "O"), TypeError, "dtype object"),
    (lambda: np.zeros(3, "M8[s]"), TypeError, r"dtype datetime64\[s\]"),
    (lambda: np.zeros(3, "V0"), TypeError, "elements without size"),
    (lambda: np.zeros(4, library("ml_dtypes").float8_e4m3fn), TypeError, "dtype float8_e4m3fn; it must be one of"),
    (lambda: swapped("bfloat16"), TypeError, "has its bfloat16 in the other byte order"),
    (lambda: np.ones(4, complex), TypeError, "dtype complex128"),
    (lambda: "text", TypeError, "is str; it must"),
    (lambda: 3.0, TypeError, "is float; it must.*numbers belong into an array"),
    (lambda: library("pandas").Series(ones(3)), TypeError, "is Series; .*pass its to_numpy"),
    (lambda: None, TypeError, "is NoneType; it must"),
    (lambda: Capsule(np.ones(3), True, device=(4, 0)), ValueError, "device of DLPack type 4"),
    (lambda: Capsule(np.ones(3), True, copy=True), ValueError, "cannot be looked into: .* a copy of itself"),
    (lambda: (-1, 3, "fp32"), TypeError, "pointer, count, dtype"),
    (lambda: (1 << 64, 1, "fp32"), TypeError, "pointer, count, dtype"),
    (lambda: (64, 1 << 63, "fp32"), TypeError, "pointer, count, dtype"),
    (lambda: (64, 1.0, "fp32"), TypeError, "pointer, count, dtype"),
    (lambda: (64, 3, "fp8"), TypeError, "dtype is 'fp8'"),
    (lambda: (64, 3, "fp32", "tpu"), ValueError, "device is 'tpu'"),
]


@pytest.mark.parametrize("make, error, message", REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_refusals_name_the_argument(make, error, message):
    good = ones(3)
    if not isinstance(make(), (tuple, type(None))):
        with pytest.raises(error, match=rf"arrays\['b'\].*{message}"):
            gs.TensorList({"a": good, "b": make()})
    with pytest.raises(error, match=message):
        gs.TensorList([good, make()])


def test_wrong_devices_are_refused():
    with refused(r"grads\[0\] is on cuda:0; it must be on cpu", ValueError):
        gs.SGD([ones(6)], [Cuda()])


def test_lists_refuse_what_the_library_refuses():
    values = zeros(6)
    whole = gs.as_tensor(values)
    for address, count, message in ((whole.address + 1, 2, "align"), (0, 3, r"the address of arrays\[0\] is NULL"),
                                    (64, -3, r"the number of elements of arrays\[0\] is -3")):
        with refused(message):
            gs.TensorList([(address, count, "fp32")])


def test_arrays_are_held_and_cannot_be_resized():
    raw = bytearray(16)
    tensors = gs.TensorList(raw, dtype="fp32")
    with pytest.raises(BufferError):
        raw.extend(b"more")
    tensors.close()
    raw.extend(b"more")
    values = ones(1000)
    alive = weakref.ref(values)
    references = sys.getrefcount(values)
    held = gs.TensorList([values])
    assert sys.getrefcount(values) > references
    del values
    gc.collect()
    assert alive() is not None
    del held
    gc.collect()
    assert alive() is None


def test_an_optimizer_holds_arrays_of_closed_lists():
    params, grads = gs.TensorList([ones(3)]), gs.TensorList([ones(3)])
    alive = params[0]
    optimizer = gs.SGD(params, grads, lr=1.0)
    params.close()
    grads.close()
    gc.collect()
    optimizer.step()
    assert gs.ops.norm([alive]) == 0.0


def test_rebind():
    old, new = ones(3), full(5.0, 3)
    params = zeros(3)
    optimizer = gs.SGD([params], [old], lr=1.0)
    optimizer.grads.rebind([new])
    optimizer.step()
    assert params.tolist() == [-5.0] * 3
    references = weakref.ref(old)
    del old
    gc.collect()
    assert references() is None
    for wrong in ([ones(4)], [np.ones(3, np.float16)], []):
        with refused("arrays", ValueError):
            optimizer.grads.rebind(wrong)
    optimizer.step()
    assert params.tolist() == [-10.0] * 3


def test_one_array_mappings_and_names():
    assert len(gs.TensorList(np.ones((2, 3)))) == 1
    assert gs.TensorList({"w": np.ones(2), "b": np.ones(3)}).names == ["w", "b"]
    assert gs.TensorList([np.ones(2)], names=["x"]).names == ["x"]
    assert len(gs.TensorList([])) == 0
    assert len(gs.TensorList(iter([np.ones(2), np.zeros((0, 4))]))) == 2


def test_diagnose_and_recommend():
    values = np.array([0.0, 1.5, np.inf, np.nan, 1e-7, -4.0], np.float16)
    found = gs.diagnose({"w": values}, histogram=True)[0]
    assert (found.name, found.count, found.inf_count, found.nan_count, found.zero_count) == ("w", 6, 1, 1, 1)
    assert (found.subnormal_count, found.first_nonfinite, found.amax) == (1, 2, 4.0)
    assert sum(found.histogram) == 3
    assert found.histogram[2 - gs.EXPONENT_MIN] == 1 and found.histogram[0 - gs.EXPONENT_MIN] == 1
    assert gs.diagnose([frozen(np.ones(3))])[0].histogram == ()
    recommended = gs.recommend_scale([np.full(8, 2.0**-20, np.float16)], 1.0)
    # 2^15 is the last power of two that fp16 holds; two binades below it is 2^13.
    assert recommended.scale == 2.0**33 and recommended.flushed == 0.0


@pytest.mark.parametrize("nbytes", [0, 8])
def test_torch_tensors_that_were_freed_or_resized_are_refused(nbytes, torch):
    values = torch.ones(4)
    # What sharded training does between steps; DLPack hands out the memory nevertheless.
    values.untyped_storage().resize_(nbytes)
    with refused(rf"params\[0\] was freed or resized: its storage has {nbytes} bytes.* 16", ValueError):
        gs.SGD([values], [torch.ones(4)])
    assert len(gs.TensorList([values[:0], torch.ones(4)[2:]])) == 2
    with refused(r"arrays\[0\] is a view that negates", ValueError):
        gs.TensorList([torch._neg_view(torch.ones(3))])
