# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests on a GPU: when to skip, and a comparison that names the difference.

With GRADSCALER_TEST_DEVICE=cpu those that need no stream run on the CPU, which tests the tests.
"""

import concurrent.futures
import os
import threading

import numpy as np
import pytest

import gradscaler as gs
from conftest import device_or

# Before CUDA starts: cuBLAS then gives the same bits in every run, and JAX leaves memory to the others.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

DEVICE = device_or("cuda")
ON_GPU = DEVICE != "cpu"

#: Streams, graphs and the like.
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")


def require_device(has_one, package):
    """Skips the file unless `package` has a GPU (`has_one`), and the library too."""
    if not ON_GPU:
        return
    if not has_one:
        pytest.skip(f"{package} sees no CUDA device", allow_module_level=True)
    seen = [info.device for info in gs.devices()]
    if "cuda:0" not in seen:
        pytest.skip(f"gradscaler sees no CUDA device, only {seen}: {gs.build_info()}", allow_module_level=True)


def alone_and_together(work, count=3):
    """The results of work(seed) for each seed: one after the other, and on as many threads at once."""
    barrier = threading.Barrier(count)

    def at_once(seed):
        barrier.wait()
        return work(seed)

    alone = [work(seed) for seed in range(count)]
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return alone, list(threads.map(at_once, range(count)))


def on_host(array):
    if hasattr(array, "detach"):
        return array.detach().cpu().contiguous().numpy()
    return array.get() if hasattr(array, "get") and not isinstance(array, np.ndarray) else np.asarray(array)


def same_bits(found, expected, what=""):
    """Fails, saying where, unless arrays of any libraries, or sequences or mappings of them, have the same bits."""
    if isinstance(found, (dict, list, tuple)):
        assert len(found) == len(expected), what
        for key in found if isinstance(found, dict) else range(len(found)):
            same_bits(found[key], expected[key], f"{what}[{key!r}]")
        return
    one, other = (np.atleast_1d(on_host(array)) for array in (found, expected))
    assert (one.dtype, one.shape) == (other.dtype, other.shape), what
    different = np.frombuffer(one.tobytes(), "u1") != np.frombuffer(other.tobytes(), "u1")
    if different.any():
        at = np.flatnonzero(different.reshape(one.size, -1).any(1))
        shown = ", ".join(f"[{i}] {one.reshape(-1)[i]!r} instead of {other.reshape(-1)[i]!r}" for i in at[:4])
        pytest.fail(f"{what}: {len(at)} of {one.size} differ: {shown}", pytrace=False)
