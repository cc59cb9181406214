# SPDX-License-Identifier: Apache-2.0
"""A table of the memory that a model, its gradients and its optimizer take, by the format of state."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper
from .._native import native
from ._optim import FusedOptimizer
from ._optimizers import AdamW
from ._state_formats import initial_state, param_slot_dtypes

#: Weights of 16 bits in one of these, after what most train with today: float32 weights and state, and masters of them.
_FORMATS = (("fp32", "split"), ("16bit", "split"), ("8bit", "split"), ("8bit", "split24"), ("8bit", "stochastic"))


class MemoryRow(NamedTuple):
    """Bytes of what a model is trained with."""

    name: str
    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.gradients + self.optimizer


class MemoryTable(tuple[MemoryRow, ...]):
    """Rows, the first of which is what most train with today. ``print`` it."""

    __slots__ = ()

    def __str__(self) -> str:
        unit, word = (1e9, "GB") if self[0].total >= 1e9 else (1e6, "MB")
        lines = [f"{word:<48}{'weights':>9}{'gradients':>11}{'optimizer':>11}{'together':>10}"]
        lines += [f"{row.name:<48}{row.weights / unit:>9.2f}{row.gradients / unit:>11.2f}{row.optimizer / unit:>11.2f}"
                  f"{row.total / unit:>10.2f}{row.total / self[0].total:>6.0%}" for row in self]
        return "\n".join(lines)


def memory(model: torch.nn.Module, optimizer: type[FusedOptimizer] = AdamW) -> MemoryTable:
    """Bytes that `model` takes with `optimizer`, an optimizer class of this module, in each format.

    `model` may be on the ``meta`` device; nothing is allocated. Counts trained parameters, their gradients and the
    state with the default options (SGD with momentum), but not activations.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    elements = sum(p.numel() for p in params)
    kind, name = optimizer._KIND, optimizer.__name__
    theirs = "torch.optim." if hasattr(torch.optim, name) else "gradscaler.torch."
    full = _state_bytes(params, kind, "fp32", None)
    rows = [MemoryRow(f"{theirs}{name}, float32 weights", 4 * elements, 4 * elements, full),
            MemoryRow("16-bit weights, float32 masters", 2 * elements, 2 * elements, full + 4 * elements)]
    rows += [MemoryRow(f"{name}(state={state!r}, master={master!r})", 2 * elements, 2 * elements,
                       _state_bytes(params, kind, state, master)) for state, master in _FORMATS]
    return MemoryTable(rows)


def _state_bytes(params: list[Any], kind: int, state: str, master: str | None) -> int:
    return sum(_bytes(tuple(p.shape), slot, code) for p in params
               for slot, code in param_slot_dtypes(p, kind, state, master).items()
               if hyper.has_slot(kind, slot, kind in (native.SGD, native.LARS), 0))


@functools.lru_cache(maxsize=1024)
def _bytes(shape: tuple[int, ...], slot: str, code: int) -> int:
    p = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    return sum(value.numel() * value.element_size() for value in initial_state(p, slot, code).values())
