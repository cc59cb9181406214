# SPDX-License-Identifier: Apache-2.0
"""The check pass of :mod:`._optim`: inf and NaN, the norm for clipping, and the names of what overflowed.

It reads the gradients and writes nothing. What it finds stays on the device until somebody asks.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .._native import native
from ..device import Context
from ._plan import Plan


@dataclass(frozen=True)
class StepReport:
    """What the last step of an optimizer did, and what its check found."""

    #: Whether the step was applied, and not skipped because of an inf or NaN. False before the first one.
    applied: bool
    #: L2 norm of the unscaled gradients before clipping, over all ranks for DTensors; None if nothing took it.
    grad_norm: float | None = None
    #: Of this rank's gradients.
    inf_count: int = 0
    nan_count: int = 0
    #: The first parameter with an inf or NaN in its gradient on this rank, and the index of the element there.
    first_name: str | None = None
    first_element: int = -1
    #: All such parameters, in their order; on the CPU only.
    overflowed: tuple[str, ...] = ()


class Checker:
    """Makes checks, with a native scaler for each device that keeps nothing from one check to the next."""

    def __init__(self) -> None:
        self._scalers: dict[str, Any] = {}

    def scaler(self, context: Context) -> Any:
        """The scaler of a device."""
        found = self._scalers.get(context.device)
        if found is None:
            options = native.ScalerOptions()
            options.history_capacity = 0
            found = self._scalers[context.device] = native.Scaler(context._handle, options)
        return found


class Check:
    """The result of one check of the gradients of some plans."""

    def __init__(self, checker: Checker, plans: Sequence[Plan], scale: Any) -> None:
        """`scale` is a tensor, or None for gradients that are unscaled."""
        self._checker = checker
        self._plans = list(plans)
        # On a CUDA device it is not known here, and the norm is divided by it later.
        on_host = scale is not None and scale.device.type == "cpu"
        self._inv_scale: Any = None if scale is None or on_host else scale.double().reciprocal()
        #: By device, a tensor of one float32 that is not 0 if there is an inf or NaN.
        self.found_inf: dict[Any, Any] = {}
        #: A number where it is known here, else a tensor: each operation on a tensor of one element costs microseconds.
        self._squares: list[Any] = []
        overflowed: list[str] = []
        for plan in {plan.context.device: plan for plan in plans}.values():
            # In the stream of the check, which has to see it.
            checker.scaler(plan.context).set_scale(float(scale) if scale is not None and on_host else 1.0, plan.stream)
        for plan in plans:
            scaler, stream = checker.scaler(plan.context), plan.stream
            scaler.check(plan.grads, stream)
            # What was found stays readable, and the list may be pointed elsewhere.
            scaler.discard(plan.grads)
            state = native.DeviceState()
            scaler.device_state(plan.grads, state)
            # Copies: the words are also those of the next check.
            if plan.context.device == "cpu":
                found = torch.tensor(ctypes.c_float.from_address(state.found_inf).value, dtype=torch.float32,
                                     device="cpu")
                norm: Any = ctypes.c_double.from_address(state.grad_norm).value
            else:
                found = _word(state.found_inf, torch.float32, plan.context).clone()
                norm = _word(state.grad_norm, torch.float64, plan.context)
            before = self.found_inf.get(found.device)
            self.found_inf[found.device] = found if before is None else before + found
            self._squares.append(_over_ranks(norm * norm, plan.key.shards))
            if plan.context.device == "cpu" and bool(found):
                overflowed += _overflowed(plan)
        self._overflowed = tuple(overflowed)

    def norm(self) -> Any:
        """The L2 norm of the unscaled gradients of all plans: a number, or a tensor of one float64 on the device."""
        tensors = [square for square in self._squares if isinstance(square, torch.Tensor)]
        if not tensors and self._inv_scale is None:
            return math.sqrt(sum(self._squares))
        device = tensors[0].device if tensors else self._inv_scale.device
        norm = torch.stack([torch.as_tensor(square, dtype=torch.float64, device=device)
                            for square in self._squares]).sum().sqrt()
        return norm if self._inv_scale is None else norm * self._inv_scale.to(device)

    def report(self, applied: bool) -> StepReport:
        """What was found. Blocks on a CUDA device."""
        inf_count = nan_count = 0
        first_name, first_element = None, -1
        for plan in self._plans:
            found = native.Report()
            self._checker.scaler(plan.context).get_report(plan.grads, found, plan.stream)
            inf_count += found.inf_count
            nan_count += found.nan_count
            if first_name is None and found.first_tensor >= 0:
                first_name, first_element = plan.labels[found.first_tensor], found.first_element
        return StepReport(applied, float(self.norm()) if self._plans else 0.0, inf_count, nan_count, first_name,
                          first_element, self._overflowed or (() if first_name is None else (first_name,)))


def clip_factor(check: Check, max_norm: float) -> Any:
    """The factor that limits the norm, a tensor of one float64; 1 for gradients with an inf or NaN."""
    norm = check.norm()
    if isinstance(norm, torch.Tensor):
        return torch.where(norm.isfinite(), max_norm / (norm + 1e-6), 1.0).clamp(max=1.0)
    # The operations of a tensor, for its bits.
    return torch.tensor(min(1.0 / (norm + 1e-6) * max_norm, 1.0) if math.isfinite(norm) else 1.0, dtype=torch.float64,
                        device="cpu")


def _over_ranks(square: Any, shards: Sequence[Any]) -> Any:
    if shards and not isinstance(square, torch.Tensor):
        square = torch.tensor(square, dtype=torch.float64, device="cpu")
    for group in shards:
        torch.distributed.all_reduce(square, group=group)
    return square


def _overflowed(plan: Plan) -> list[str]:
    found = plan.grads.diagnose(plan.stream)
    entries = [found.get(index) for index in range(len(plan.labels))]
    return [label for label, entry in zip(plan.labels, entries, strict=True) if entry.inf_count or entry.nan_count]


class _Words:
    """Device scalars of the library, as CUDA's array interface has them; PyTorch takes none that are read-only."""

    def __init__(self, address: int, typestr: str) -> None:
        self.__cuda_array_interface__ = {"shape": (), "typestr": typestr, "data": (address, False), "version": 3}


def _word(address: int, dtype: Any, context: Context) -> Any:
    """A CUDA device scalar of the library as a tensor, which does not hold it."""
    return torch.as_tensor(_Words(address, "<f4" if dtype is torch.float32 else "<f8"), device=context.device)
