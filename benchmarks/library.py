# SPDX-License-Identifier: Apache-2.0
"""The objects of C that the benchmarks in Python need. An array is (address, elements, dtype) of a torch tensor."""
import ctypes
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))
from c_library import CLibrary  # noqa: E402


class Library(CLibrary):
    """One loaded library with a context; every call raises with the library's sentence."""

    def __init__(self, path, cuda=False, threads=0):
        super().__init__(path)
        options = self.struct("gsc_context_options")
        self.must(self.context_options_init(ctypes.byref(options), options.struct_size))
        options.device_type = self.DEVICE_CUDA if cuda else self.DEVICE_CPU
        options.num_threads = threads
        self.context = ctypes.c_void_p()
        self.must(self.context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def close(self):
        self.context_destroy(self.context)

    def list(self, arrays):
        """arrays: (address, elements, dtype) triples."""
        tensors = (self.gsc_tensor * len(arrays))(*[self.gsc_tensor(*array) for array in arrays])
        out = ctypes.c_void_p()
        self.must(self.tensor_list_create(self.context, tensors, len(arrays), None, ctypes.byref(out)))
        return out


class Step:
    """A scaler and an optimizer over lists of arrays. states: the caller's own, one list of arrays each; formats: those
    of the library's own state and of master weights."""

    def __init__(self, library, kind, params, grads, copies=None, states=(), formats=(0, 0)):
        self.library = library
        self.params, self.grads = library.list(params), library.list(grads)
        self.copies = library.list(copies) if copies else None
        self.states = [library.list(state) for state in states]
        options = library.struct("gsc_optimizer_options")
        library.must(library.optimizer_options_init(ctypes.byref(options), options.struct_size, kind))
        options.state_format, options.master_format = formats
        self.optimizer, self.scaler = ctypes.c_void_p(), ctypes.c_void_p()
        slots = (ctypes.c_void_p * len(states))(*(state.value for state in self.states)) if states else None
        library.must(library.optimizer_create(library.context, ctypes.byref(options), self.params, self.grads,
                                              self.copies, slots, len(states), ctypes.byref(self.optimizer)))
        library.must(library.scaler_create(library.context, None, ctypes.byref(self.scaler)))

    def apply(self, stream):
        self.library.must(self.library.optimizer_step(self.optimizer, stream))

    def tail(self, stream, max_norm=1.0):
        lib = self.library
        lib.must(lib.scaler_clip_grad_norm(self.scaler, self.grads, max_norm, lib.NORM_L2, stream))
        lib.must(lib.scaler_step_and_update(self.scaler, self.optimizer, stream))

    def set_scale(self, value, stream):
        self.library.must(self.library.scaler_set_scale(self.scaler, value, stream))

    def close(self):
        self.library.optimizer_destroy(self.optimizer)
        self.library.scaler_destroy(self.scaler)
        for tensors in (self.params, self.grads, self.copies, *self.states):
            self.library.tensor_list_destroy(tensors)
