# SPDX-License-Identifier: Apache-2.0
"""The C ABI as far as the benchmarks in Python need it, by ctypes. An array is (address, elements, dtype): of a torch
tensor, or of a NumPy array in a dry run. What is measured, and against what, is the benchmark's business."""
import ctypes

FP16, FP32 = 1, 3
ADAMW = 2
NORM_L2 = 2


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_int64), ("dtype", ctypes.c_int32),
                ("scale_dtype", ctypes.c_int32), ("scale", ctypes.c_void_p), ("scale_block", ctypes.c_int32 * 2),
                ("columns", ctypes.c_int64), ("reserved", ctypes.c_int64 * 2)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("device_type", ctypes.c_int32),
                ("device_index", ctypes.c_int32), ("num_threads", ctypes.c_int32), ("cpu_target", ctypes.c_int32),
                ("pointers", ctypes.c_void_p * 8)]


class OptimizerOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("kind", ctypes.c_int32),
                ("state_format", ctypes.c_int32), ("values", ctypes.c_double * 9), ("seed", ctypes.c_int64),
                ("master_format", ctypes.c_int32), ("reserved", ctypes.c_int32), ("more", ctypes.c_double * 5),
                ("warmups", ctypes.c_int64 * 2), ("last", ctypes.c_double * 4)]


class Library:
    """One loaded library with a context; every call raises with the library's sentence."""

    def __init__(self, path, cuda=False, threads=0):
        self.handle = ctypes.CDLL(str(path))
        self.handle.gsc_error_get_message.restype = ctypes.c_char_p
        self.handle.gsc_library_get_build_info.restype = ctypes.c_char_p
        options = ContextOptions()
        self.call("context_options_init", ctypes.byref(options), ctypes.c_uint32(ctypes.sizeof(options)))
        options.device_type = 1 if cuda else 0
        options.num_threads = threads
        self.context = ctypes.c_void_p()
        self.call("context_create", ctypes.byref(options), ctypes.byref(self.context))

    def call(self, name, *arguments):
        if getattr(self.handle, "gsc_" + name)(*arguments) != 0:
            raise RuntimeError(self.handle.gsc_error_get_message().decode())

    def build_info(self):
        return self.handle.gsc_library_get_build_info().decode()

    def tensors(self, arrays):
        """arrays: (address, elements, dtype) triples."""
        return (Tensor * len(arrays))(*[Tensor(*array) for array in arrays])

    def close(self):
        self.handle.gsc_context_destroy(self.context)

    def list(self, arrays):
        out = ctypes.c_void_p()
        self.call("tensor_list_create", self.context, self.tensors(arrays), ctypes.c_int64(len(arrays)), None,
                  ctypes.byref(out))
        return out


class Step:
    """A scaler and an optimizer over lists of arrays. states: the caller's own, one list of arrays each; formats: those
    of the library's own state and of master weights."""

    def __init__(self, library, kind, params, grads, copies=None, states=(), formats=(0, 0)):
        self.library = library
        self.params, self.grads = library.list(params), library.list(grads)
        self.copies = library.list(copies) if copies else None
        self.states = [library.list(state) for state in states]
        options = OptimizerOptions()
        library.call("optimizer_options_init", ctypes.byref(options), ctypes.c_uint32(ctypes.sizeof(options)),
                     ctypes.c_int32(kind))
        options.state_format, options.master_format = formats
        self.optimizer, self.scaler = ctypes.c_void_p(), ctypes.c_void_p()
        library.call("optimizer_create", library.context, ctypes.byref(options), self.params, self.grads, self.copies,
                     (ctypes.c_void_p * len(states))(*(state.value for state in self.states)) if states else None,
                     ctypes.c_int32(len(states)), ctypes.byref(self.optimizer))
        library.call("scaler_create", library.context, None, ctypes.byref(self.scaler))

    def apply(self, stream):
        self.library.call("optimizer_step", self.optimizer, stream)

    def tail(self, stream, max_norm=1.0):
        self.library.call("scaler_clip_grad_norm", self.scaler, self.grads, ctypes.c_double(max_norm),
                          ctypes.c_int32(NORM_L2), stream)
        self.library.call("scaler_step_and_update", self.scaler, self.optimizer, stream)

    def set_scale(self, value, stream):
        self.library.call("scaler_set_scale", self.scaler, ctypes.c_float(value), stream)

    def close(self):
        handle = self.library.handle
        handle.gsc_optimizer_destroy(self.optimizer)
        handle.gsc_scaler_destroy(self.scaler)
        for tensors in (self.params, self.grads, self.copies, *self.states):
            handle.gsc_tensor_list_destroy(tensors)
