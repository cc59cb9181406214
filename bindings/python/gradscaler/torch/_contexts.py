# SPDX-License-Identifier: Apache-2.0
"""The contexts that work here runs in: on the CPU with as many threads as PyTorch uses, and on its own where possible.

PyTorch's OpenMP threads go on spinning for some milliseconds after each operation. A second pool would have to share
their processors meanwhile, and then wake its own threads.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from ..device import Context, default_context

_contexts: dict[tuple[int, int], Context] = {}


class _TorchContext(Context):
    """A context on PyTorch's threads, or with a separate pool where they are not available."""

    __slots__ = ("on_torch_threads",)

    def _prepare(self, options: Any) -> None:
        #: Whether it has no pool.
        self.on_torch_threads = options.num_threads > 1 and _may_use_openmp() and bool(options.use_torch_threads())


def context_of(device: str) -> Context:
    if device != "cpu":
        return default_context(device)
    # A child has none of the threads of its parent, whose contexts must not be joined there.
    key = os.getpid(), torch.get_num_threads()
    if key not in _contexts:
        _contexts[key] = _TorchContext("cpu", threads=key[1])
    return _contexts[key]


def stream_of(context: Context) -> int:
    """PyTorch's current stream."""
    return 0 if context.device == "cpu" else int(torch.cuda.current_stream(context.device).cuda_stream)


def _may_use_openmp() -> bool:
    """Returns whether PyTorch computes with OpenMP, and this process may too.

    GNU's runtime waits for ever for its threads in the child of a fork, and whether it had any in the
    parent is unknown. So children do without, unless they have become another program since.
    """
    if not sys.platform.startswith("linux") or "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return False
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program is in parentheses and may have some itself. PF_FORKNOEXEC is 0x40 of the flags.
            return not int(file.read().rpartition(")")[2].split()[6]) & 0x40
    except (OSError, ValueError, IndexError):
        return False
