# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests on a GPU: when to skip, and comparisons that name the difference.

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
    """What work(seed) returns for each seed: one after the other, and on as many threads at once."""
    barrier = threading.Barrier(count)

    def at_once(seed):
        barrier.wait()
        return work(seed)

    alone = [work(seed) for seed in range(count)]
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return alone, list(threads.map(at_once, range(count)))


def on_host(array):
    """A copy in NumPy; bfloat16 as float32, which holds it."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        return (array.float() if str(array.dtype) == "torch.bfloat16" else array).contiguous().numpy()
    if hasattr(array, "get") and not isinstance(array, np.ndarray):
        return array.get()
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def same_bits(found, expected, what=""):
    """Fails, saying where and by how much, unless two arrays of whatever libraries have the same bits.

    All NaN are equal; -0.0 and 0.0 are not.
    """
    one, other = np.atleast_1d(on_host(found)), np.atleast_1d(on_host(expected))
    assert (one.dtype, one.shape) == (other.dtype, other.shape), (
        f"{what}: {one.dtype} {one.shape} instead of {other.dtype} {other.shape}")
    one, other = one.reshape(-1), other.reshape(-1)
    different = one != other
    if one.dtype.kind == "f":
        different &= ~(np.isnan(one) & np.isnan(other))
        different |= (one == 0) & (other == 0) & (np.signbit(one) != np.signbit(other))
    if different.any():
        at = np.flatnonzero(different)
        shown = ", ".join(f"[{i}] {one[i]!r} instead of {other[i]!r}" for i in at[:4])
        pytest.fail(f"{what}: {len(at)} of {len(one)} differ: {shown}", pytrace=False)


def all_same_bits(found, expected, what=""):
    """The same of two sequences or mappings of arrays."""
    if isinstance(found, dict):
        assert found.keys() == expected.keys(), f"{what}: {sorted(found)} instead of {sorted(expected)}"
        pairs = [(f"{what}[{key!r}]", found[key], expected[key]) for key in found]
    else:
        pairs = [(f"{what}[{i}]", one, other) for i, (one, other) in enumerate(zip(found, expected, strict=True))]
    for name, one, other in pairs:
        (all_same_bits if isinstance(one, (dict, list, tuple)) else same_bits)(one, other, name)
