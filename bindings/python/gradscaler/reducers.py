# SPDX-License-Identifier: Apache-2.0
"""Reducers over the ranks of a job for :meth:`gradscaler.GradScaler.set_reducer`: PyTorch's process groups, and MPI.

    scaler.set_reducer(gradscaler.reducers.torch_distributed())

Every rank then checks its own gradients, and all skip if one has an inf or NaN; clipping uses the norm over all ranks.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["mpi", "torch_distributed"]

#: Replaces float64 values by their sums over all ranks, in place.
Reducer = Callable[[Any], None]


class Sums:
    """The values to be summed, where they lie on a CUDA device; valid during the call.

    `count` float64 values at `address`. Work on them belongs on `stream`. ``torch.as_tensor`` and ``cupy.asarray`` take
    it without a copy; ``torch.cuda.ExternalStream(values.stream)`` and ``cupy.cuda.Stream.from_external(values)`` are
    the stream.
    """

    def __init__(self, address: int, count: int, stream: int) -> None:
        self.stream = stream
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f8", "data": (address, False), "version": 3,
                                         "stream": stream or 1}

    def __cuda_stream__(self) -> tuple[int, int]:
        """The stream, by the CUDA stream protocol, version 0."""
        return 0, self.stream


def call(reduce: Reducer, address: int, count: int, stream: int, device: str) -> None:
    """Calls `reduce` for `count` float64 values at `address`: with :class:`Sums` on `stream`, or a copy if `device` is
    ``"cpu"``, since the memory is the library's and `reduce` may keep what it is given."""
    if device != "cpu":
        reduce(Sums(address, count, stream))
        return
    memory = memoryview((ctypes.c_double * count).from_address(address)).cast("B").cast("d")
    values = array.array("d", memory)
    view = memoryview(values)
    try:
        reduce(view)
    finally:
        with contextlib.suppress(BufferError):  # There are views of the view.
            view.release()
    memory[:] = memoryview(values)


def torch_distributed(group: Any = None) -> Reducer:
    """Sums over `group`, a process group of ``torch.distributed``, by default the default one, by its backend."""
    torch: Any = importlib.import_module("torch")

    def reduce(values: Any) -> None:
        if isinstance(values, memoryview):
            torch.distributed.all_reduce(torch.frombuffer(values, dtype=torch.float64), group=group)
            return
        with torch.cuda.stream(torch.cuda.ExternalStream(values.stream)):
            torch.distributed.all_reduce(torch.as_tensor(values, device="cuda"), group=group)

    return reduce


def mpi(communicator: Any) -> Reducer:
    """Sums over `communicator`, one of mpi4py. Values on a CUDA device need an MPI that knows them."""
    mpi4py: Any = importlib.import_module("mpi4py.MPI")

    def reduce(values: Any) -> None:
        if not isinstance(values, memoryview):
            # MPI knows no streams.
            torch: Any = importlib.import_module("torch")
            torch.cuda.ExternalStream(values.stream).synchronize()
        communicator.Allreduce(mpi4py.IN_PLACE, values)

    return reduce
