# SPDX-License-Identifier: Apache-2.0
"""What every language with a garbage collector meets, in a host that loads the library by ctypes: finalizers that run
after unloading, the last error of another thread, callbacks. docs/dev/bindings.md has the rules that are tested here.

Usage: collected_test.py libgradscaler.so
"""

import _ctypes
import ctypes
import gc
import os
import sys
import threading
import unittest
import weakref
from concurrent.futures import ThreadPoolExecutor

LIBRARY = os.path.realpath(sys.argv.pop())
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, TASK, ctypes.c_void_p)
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
FP32 = 3


class ContextOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("cpu_target", ctypes.c_int32),
        ("parallel_for", PARALLEL_FOR),
        ("parallel_for_user", ctypes.c_void_p),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("allocator_user", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_user", ctypes.c_void_p),
        ("device_pool", ctypes.c_void_p),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("rest", ctypes.c_char * 44),
    ]


class Failure(Exception):
    """A status and the sentence that belongs to it."""


class Library:
    """The loaded library. It knows its living objects, so that close() can destroy them before it unloads."""

    def __init__(self):
        self.cdll = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.cdll.gsc_error_get_message.restype = ctypes.c_char_p
        self.objects = weakref.WeakSet()
        self.late = 0

    def call(self, name, *arguments):
        """The call and the reading of its message, with nothing in between that could move to another thread."""
        status = getattr(self.cdll, name)(*arguments)
        if status != 0:
            raise Failure(self.cdll.gsc_error_get_message().decode())

    def close(self):
        for one in list(self.objects):
            one.close()
        handle, self.cdll = self.cdll._handle, None
        _ctypes.dlclose(handle)

    @staticmethod
    def is_mapped():
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return any(LIBRARY in line for line in maps)


class Object:
    """A handle, destroyed by close() or by the collector, whichever comes first."""

    def __init__(self, library, destroy, handle, keeps=()):
        self.library, self.destroy, self.handle, self.keeps = library, destroy, handle, keeps
        library.objects.add(self)

    def close(self):
        if self.handle is not None:
            getattr(self.library.cdll, self.destroy)(self.handle)
        self.handle = None

    def __del__(self):
        if self.library.cdll is None:
            self.library.late += 1
        self.close()


def make_context(library, **fields):
    """Callbacks among the fields are kept by the object: the library knows their addresses only."""
    options = ContextOptions()
    library.call("gsc_context_options_init", ctypes.byref(options), ctypes.sizeof(options))
    for name, value in fields.items():
        setattr(options, name, value)
    handle = ctypes.c_void_p()
    library.call("gsc_context_create", ctypes.byref(options), ctypes.byref(handle))
    return Object(library, "gsc_context_destroy", handle, tuple(fields.values()))


def make_list(library, context, array):
    tensor = Tensor(ctypes.addressof(array), len(array), FP32)
    handle = ctypes.c_void_p()
    library.call("gsc_tensor_list_create", context.handle, ctypes.byref(tensor), 1, None, ctypes.byref(handle))
    return Object(library, "gsc_tensor_list_destroy", handle, (array,))


def make_scaler(library, context):
    handle = ctypes.c_void_p()
    library.call("gsc_scaler_create", context.handle, None, ctypes.byref(handle))
    return Object(library, "gsc_scaler_destroy", handle)


class Finalizers(unittest.TestCase):
    def setUp(self):
        """What a finalizer raises is only printed otherwise."""
        self.raised = []
        hook, sys.unraisablehook = sys.unraisablehook, self.raised.append
        self.addCleanup(setattr, sys, "unraisablehook", hook)
        self.addCleanup(lambda: self.assertEqual(self.raised, []))

    def test_after_unloading(self):
        """Objects in cycles outlive close(); their finalizers must not call into what is no longer there."""
        library = Library()
        for _ in range(10):
            context = make_context(library, num_threads=1)
            scaler = make_scaler(library, context)
            context.cycle, scaler.cycle = scaler, context
        del context, scaler
        library.close()
        if sys.platform == "linux":
            self.assertFalse(Library.is_mapped(), "something was not destroyed, or keeps the library")
        gc.collect()
        self.assertGreater(library.late, 0, "no finalizer ran after unloading, so that nothing was tested")

    def test_in_any_order(self):
        library = Library()
        array = (ctypes.c_float * 100)()
        context = make_context(library, num_threads=1)
        grads, scaler = make_list(library, context, array), make_scaler(library, context)
        context.close()
        library.call("gsc_scaler_check", scaler.handle, grads.handle, None)
        del scaler, grads
        library.close()

    def test_from_the_collectors_thread(self):
        library = Library()
        made = [make_scaler(library, make_context(library, num_threads=1)) for _ in range(5)]
        thread = threading.Thread(target=lambda: (made.clear(), gc.collect()))
        thread.start()
        thread.join()
        self.assertEqual(len(library.objects), 0)
        library.close()


class LastError(unittest.TestCase):
    def test_belongs_to_the_thread(self):
        """A call on one thread, its message read on another: that thread's message, or none."""
        library = Library()
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            status = first.submit(library.cdll.gsc_scaler_update, None, None).result()
            self.assertEqual(status, 1)
            self.assertEqual(second.submit(library.cdll.gsc_error_get_message).result(), b"")
            with self.assertRaisesRegex(Failure, "^gsc_scaler_update: scaler "):
                second.submit(library.call, "gsc_scaler_update", None, None).result()
        library.close()


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.threads = set()
        self.blocks = {}
        self.allocate = ALLOCATE(self.on_allocate)
        self.release = RELEASE(self.on_release)

    def on_allocate(self, _user, size, alignment):
        self.threads.add(threading.get_native_id())
        block = (ctypes.c_char * (size + alignment))()
        address = (ctypes.addressof(block) + alignment - 1) // alignment * alignment
        self.blocks[address] = block
        return address

    def on_release(self, _user, address, _size, _alignment):
        self.threads.add(threading.get_native_id())
        del self.blocks[address]

    def train(self, library, **fields):
        """A check of a million elements, on threads of the library's own unless the fields say otherwise."""
        array = (ctypes.c_float * 1_000_000)()
        context = make_context(library, num_threads=4, allocate=self.allocate, release=self.release, **fields)
        grads, scaler = make_list(library, context, array), make_scaler(library, context)
        library.call("gsc_scaler_check", scaler.handle, grads.handle, None)
        library.call("gsc_scaler_update", scaler.handle, None)

    def test_come_on_the_calling_thread_only(self):
        """Never on a thread of the library's pool, which no language's run time would know."""
        library = Library()
        self.train(library)
        self.assertEqual(self.threads, {threading.get_native_id()})
        with ThreadPoolExecutor(1) as other:
            other.submit(self.train, library).result()
            self.assertEqual(self.threads, {threading.get_native_id(), other.submit(threading.get_native_id).result()})
        gc.collect()
        library.close()
        self.assertEqual(self.blocks, {})

    def test_are_kept_by_the_object(self):
        """The function object of a callback must live as long as the context."""
        library = Library()
        calls = []

        def run(_user, count, body, argument):
            calls.append(count)
            for index in range(count):
                body(argument, index)

        self.train(library, parallel_for=PARALLEL_FOR(run))
        gc.collect()
        self.assertTrue(calls and min(calls) > 1)
        library.close()


if __name__ == "__main__":
    unittest.main()
