#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes as arrays of all protocols that the Python package accepts, true and lying.

An accepted array must have the address and the count that it reports, in its own memory, writable if it
will be written. What is refused is a TypeError or ValueError that names the argument.
"""
import array
import ctypes
import functools
import gc
import math
import struct

import driver
import numpy as np

with driver.instrumented():
    from gradscaler.arrays import as_scalar, as_tensor, leaves_of, tensor_array
    from gradscaler.memory import DTYPES, SIZES

ARENA = bytearray(range(256)) * 16
_pin = (ctypes.c_char * len(ARENA)).from_buffer(ARENA)
BEGIN = ctypes.addressof(_pin)
END = BEGIN + len(ARENA)


class Refused(Exception):
    """The protocol itself does not allow what the bytes ask for."""


# --- DLPack, as its specification lays it out.


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DlManaged(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class DlManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", DlTensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype = ctypes.c_char_p
capsule_name.argtypes = [ctypes.py_object]


class Producer:
    def __init__(self, b):
        self.deleted = 0
        self.deleter = Deleter(self._delete) if b.below(8) else Deleter()
        versioned = b.flag()
        self.managed = DlManagedVersioned() if versioned else DlManaged()
        self.managed.deleter = self.deleter
        if versioned:
            self.managed.major = b.choice((1, 1, 1, 0, 2, 99))
            self.managed.flags = b.choice((0, 0, 1, 2, 3))
        t = self.managed.tensor
        self.shape = [b.choice((0, 1, 2, 3, 4, -1, 1 << 62, (1 << 63) - 1)) for _ in range(b.below(5))]
        self.strides = None if b.flag() else [b.choice((0, 1, 2, 3, 4, 6, 8, 12, -1, 1 << 62)) for _ in self.shape]
        self._shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        t.shape = ctypes.addressof(self._shape)
        if self.strides is not None:
            self._strides = (ctypes.c_int64 * len(self.shape))(*self.strides)
            t.strides = ctypes.addressof(self._strides)
        t.ndim = len(self.shape)
        t.data = b.choice((BEGIN, BEGIN, BEGIN + 256, None))
        t.byte_offset = b.choice((0, 0, 4, 256))
        t.code, t.bits, t.lanes = b.below(8), b.choice((32, 16, 64, 8, 0, 4)), b.choice((1, 1, 1, 0, 2))
        t.device_type = b.choice((1, 1, 1, 2, 3, 13, 0, -1, 7))
        self.device = b.choice(((t.device_type, 0), (1, 0), (2, 3), ("cpu", 0), None, (1,), 7, (1.5, "x")))
        self.answer = b.choice(("capsule", "capsule", "capsule", "none", "raise", "used", "text"))
        self.old = b.flag()
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.name = name if self.answer != "used" else b"used_" + name
        self.capsule = new_capsule(ctypes.addressof(self.managed), self.name, None)

    def _delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        if self.old and "max_version" in arguments:
            raise TypeError("max_version")
        if self.answer == "raise":
            raise RuntimeError("sharded")
        return {"none": None, "text": "dltensor"}.get(self.answer, self.capsule)

    def check(self, t):
        tensor = self.managed.tensor
        assert tensor.data is None or t.address == tensor.data + tensor.byte_offset
        assert t.count == math.prod(self.shape)
        assert not t.readonly or self.managed.flags & 1

    def finish(self):
        consumed = capsule_name(self.capsule) != self.name
        assert self.deleted == int(bool(consumed and self.deleter)), f"deleted {self.deleted} times"
        del self.deleter, self.managed  # a callback keeps its object alive, and the other way round


class Cuda:
    def __init__(self, b):
        anything = (None, 0, 1, -1, "x", (), [], {}, 1.5, b"<f4", (1, 2, 3), True, 1 << 80)
        interface = {
            "data": b.choice(((BEGIN, False), (BEGIN, True), (0, False), (None, False), (-5, False), BEGIN)),
            "shape": b.choice(((4,), (2, 2), (), (0,), (-1,), (1 << 62, 4), [4], ("4",))),
            "typestr": b.choice(("<f4", "<f2", "|V2", "<u2", ">f4", "|f4", "f4", "<f", "", "<fx", 4)),
            "version": 3,
            "strides": b.choice((None, None, (4,), (8, 4), (4, 8), (-4,), ("4",), 4)),
            "stream": b.choice((None, 1, 2, 0, "1")), "mask": b.choice((None, None, 1)),
        }
        for _ in range(b.below(3)):
            key = b.choice(list(interface))
            if b.flag():
                interface[key] = b.choice(anything)
            else:
                del interface[key]
                if not interface:
                    break
        self.__cuda_array_interface__ = interface if b.below(8) else b.choice(anything[1:])


def of_memoryview(b):
    view = memoryview(ARENA)[b.below(64):]
    try:
        form = b.choice("BbhHiIlLqQefd?c")
        view = view[:b.below(32) * struct.calcsize(form)].cast(b.choice(("", "@")) + form)
        if b.below(4) == 0:
            view = view.cast("B").cast(form, [b.below(4), b.below(4)])
        if b.below(4) == 0:
            view = view[::b.choice((1, 2, -1, 3))]
    except (TypeError, ValueError, NotImplementedError) as error:
        raise Refused from error
    return view.toreadonly() if b.flag() else view


def of_numpy(b):
    dtype = b.choice(("<f4", "<f2", "<f8", ">f4", ">f2", "<i4", "<i8", "<u2", "<i2", "u1", "V2", "V4", "<c8", "<U1",
                      "<M8[s]", "f4,f4", "(2,)f4", "?", "O"))
    shape = tuple(b.below(4) for _ in range(b.below(4)))
    strides = None if b.flag() else tuple(b.choice((0, 2, 4, 8, 12, 16, -4, 1, 3)) for _ in shape)
    try:
        made = np.ndarray(shape, dtype, ARENA, 512 + b.below(64), strides)
        kind = b.below(8)
        made = made.view(np.recarray) if kind == 1 else np.ma.masked_array(made) if kind == 2 else made
        made.flags.writeable = b.flag()
    except (TypeError, ValueError) as error:
        raise Refused from error
    return made


@functools.cache  # ctypes keeps every type that it has made
def nested(kind, depth, inner):
    kind = kind * inner
    for _ in range(depth):
        kind = kind * 1
    return kind


def of_ctypes(b):
    kind = b.choice((ctypes.c_float, ctypes.c_double, ctypes.c_int16, ctypes.c_uint16, ctypes.c_longdouble,
                     ctypes.c_char, ctypes.c_void_p))
    return nested(kind, b.choice((0, 1, 2, 60, 63, 64, 90)), b.choice((0, 1, 2, 5)))()


def of_raw(b):
    names = ("float32", "float16", "bf16", "int32", "junk", None, 3, np.float64, np.dtype(">f4"))
    devices = ("cpu", "cuda", "cuda:1", "cuda:x", "cpu:0", "", None, 3)
    made = (b.choice((BEGIN, BEGIN + 1, 0, b.integer())), b.choice((4, 0, b.integer(), 1.5, None)), b.choice(names))
    return made + (b.choice(devices),) if b.flag() else made


def of_anything(b):
    return b.choice((None, 0, 1.5, "x", b"abcd", {}, [], (), object(), {1: 2}, [None], range(4), len, Ellipsis,
                     array.array(b.choice("fdhHiu")), bytearray(8), 1 << 100))


SOURCES = (of_memoryview, of_numpy, of_ctypes, of_raw, of_anything, Producer, Cuda)


def check_bytes(value, t, any_order):
    """Arrays of known memory: the tensor is that memory, in its order."""
    if isinstance(value, np.ndarray):
        assert t.readonly == (not value.flags.writeable)
        expected = np.ascontiguousarray(value).tobytes()
        assert t.count == 0 or BEGIN <= t.address <= END - t.nbytes
    elif isinstance(value, memoryview):
        assert t.readonly == value.readonly
        expected = value.tobytes()
    else:
        expected = bytes(memoryview(value).cast("B")) if not isinstance(value, ctypes.Array) else bytes(value)
    found = ctypes.string_at(t.address, t.nbytes) if t.count else b""
    if t.strides is None:
        assert found == expected
    else:
        assert any_order and sorted(found) == sorted(expected)


def expect_refusal(call, *argument_words):
    try:
        return call()
    except (TypeError, ValueError) as error:
        assert any(word in str(error) for word in argument_words), f"names no argument: {error!r}"
        return None


def one_input(data):
    b = driver.Bytes(data[:512])
    source = b.choice(SOURCES)
    try:
        value = source(b)
    except Refused:
        return
    dtype = b.choice((None, None, "float16", "bfloat16", "float32", np.float32, "junk", 7, np.dtype("f8")))
    writable, any_order = b.flag(), b.flag()
    t = expect_refusal(lambda: as_tensor(value, argument="the_array", dtype=dtype, writable=writable,
                                         any_order=any_order), "the_array", "dtype", "device")
    if t is not None:
        assert t.dtype in DTYPES and isinstance(t.count, int) and (t.count >= 0 or isinstance(value, tuple))
        assert t.count < 1 << 63 and 0 <= t.address < 1 << 64 and t.nbytes == t.count * SIZES[t.dtype]
        assert not (writable and t.readonly)
        if isinstance(value, Producer):
            if dtype is None:
                value.check(t)
        elif not isinstance(value, (tuple, Cuda)):
            check_bytes(value, t, any_order)
        tensor_array([t])
    expect_refusal(lambda: as_scalar(value, argument="the_word", dtype=b.choice(("float32", "int32")),
                                     writable=writable),
                   "the_word", "device", "dtype")
    collection = b.choice(([value], {"w": value}, [value, [value]], {"a": {"b": (value, value)}}))
    expect_refusal(lambda: leaves_of(collection, "the_arrays"), "the_arrays")
    if isinstance(value, Producer):
        del t
        gc.collect(0)
        value.finish()


if __name__ == "__main__":
    driver.main(one_input)
