# SPDX-License-Identifier: Apache-2.0
"""The check pass of :mod:`._optim`: inf and NaN, the norm for clipping, and the names of what overflowed.

It reads the gradients and writes nothing. What it finds stays on the device until it is asked for.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import policy
from .._native import FLOAT32_MAX, native
from ..device import Context
from ..memory import Tensor
from ._contexts import stream_of
from ._plan import Plan
from ._state_formats import DTYPE_CODES


@dataclass(frozen=True)
class StepReport:
    """The result of the last step of an optimizer and of its check."""

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
    #: Whether the scale has become too small to divide by, as 0 is: every step is skipped until it is set.
    scale_underflow: bool = False
    #: Whether the step was skipped because the norm was above its limit, with all gradients finite.
    spike: bool = False
    #: The norm above which the step is skipped; inf if there is no limit, or none yet.
    norm_limit: float = math.inf
    #: Geometric mean of the norms before, without those that lie far off; 0 if there are none.
    norm_average: float = 0.0
    #: With ``tensor_norms=True`` the L2 norm of every unscaled gradient before clipping, by the parameter's name: NaN
    #: or inf where one is in it. Parameters without a gradient are left out.
    tensor_norms: dict[str, float] | None = None


@dataclass
class Totals:
    """Counts and norms over the gradients of several plans."""

    inf_count: int = 0
    nan_count: int = 0
    #: Index of the first parameter with an inf or NaN and of the element in it; its name.
    first: int = -1
    first_element: int = -1
    first_name: str | None = None
    #: Largest finite magnitude, and the L2 norm; None where nothing took them.
    amax: float | None = None
    norm: float | None = None


class GradCheck:
    """One check of the gradients of `plans`."""

    def __init__(self, scalers: dict[str, Any], plans: Sequence[Plan], scale: Any, tensor_norms: bool = False) -> None:
        """`scalers` are native ones by device, made here, which keep nothing from one check to the next. `scale` is a
        tensor, or None for gradients that are unscaled. `tensor_norms`: keep the norm of each, until the next check."""
        self._scalers = scalers
        #: Which tensors of each plan have a gradient; empty if the norm of each is not kept.
        self._present = [plan.grads_snapshot.present for plan in plans] if tensor_norms else []
        self._plans = list(plans)
        # On a CUDA device it is not known here, and the norm is divided by it later.
        host_scale = float(scale) if scale is not None and scale.device.type == "cpu" else None
        self._inv_scale: Any = None
        #: Whether the scale cannot be divided by: a bool, or on a CUDA device a tensor of one.
        self.scale_underflow: Any = host_scale is not None and is_underflowed(host_scale)
        if scale is not None and host_scale is None:
            inverse = self._inv_scale = scale.double().reciprocal()
            self.scale_underflow = ~inverse.float().isfinite()
        #: By device, a tensor of one float32 that is not 0 if there is an inf or NaN.
        self.found_inf: dict[Any, Any] = {}
        #: A number where it is known here, else a tensor: each operation on a tensor of one element costs microseconds.
        self._squares: list[Any] = []
        overflowed: list[str] = []
        for device, plan in {plan.context.device: plan for plan in plans}.items():
            if device not in scalers:
                options = native.ScalerOptions()
                options.history_capacity = 0
                scalers[device] = native.Scaler(plan.context._handle, options)
            # In the stream of the check, which has to see it.
            known = 1.0 if host_scale is None or self.scale_underflow else host_scale
            scalers[device].set_scale(known, plan.stream)
        for plan in plans:
            scaler = scalers[plan.context.device]
            if tensor_norms:
                plan.keep_tensor_norms()
            scaler.check(plan.grads, plan.stream)
            if tensor_norms and plan.key.shards:
                _over_ranks(plan.tensor_norms.square_(), plan.key.shards)
                plan.tensor_norms.sqrt_()
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
                found = scalar_tensor(state.found_inf, "float32", plan.context).clone()
                norm = scalar_tensor(state.grad_norm, "float64", plan.context)
            if self.scale_underflow is not False:
                found += torch.as_tensor(self.scale_underflow, device=found.device)
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

    def totals(self) -> Totals:
        """The totals over all plans. Blocks on a CUDA device."""
        found = Totals()
        # Else nothing can be said of the gradients but which are inf or NaN.
        if not self.scale_underflow:
            found.amax, found.norm = 0.0, float(self.norm()) if self._plans else 0.0
        for plan in self._plans:
            one = native.Report()
            self._scalers[plan.context.device].get_report(plan.grads, one, plan.stream)
            found.inf_count += one.inf_count
            found.nan_count += one.nan_count
            if found.amax is not None:
                found.amax = max(found.amax, one.grad_amax)
            if found.first < 0 <= one.first_tensor:
                found.first, found.first_element = plan.indices[one.first_tensor], one.first_element
                found.first_name = plan.labels[one.first_tensor]
        if self._inv_scale is not None and found.amax:
            found.amax *= float(self._inv_scale)
        return found

    def tensor_norms(self) -> dict[str, float]:
        """The norm of each gradient, by the parameter's name and in their order. Blocks on a CUDA device."""
        found = {}
        inverse = 1.0 if self._inv_scale is None else float(self._inv_scale)
        for plan, present in zip(self._plans, self._present, strict=True):
            rows = zip(plan.indices, plan.labels, plan.tensor_norms.tolist(), present, strict=True)
            found.update({index: (label, norm * inverse) for index, label, norm, here in rows if here})
        return dict(found[index] for index in sorted(found))

    def report(self, applied: bool, judge: NormJudge | None = None) -> StepReport:
        found = self.totals()
        name = found.first_name
        report = StepReport(applied, found.norm, found.inf_count, found.nan_count, name, found.first_element,
                            self._overflowed or (() if name is None else (name,)), bool(self.scale_underflow))
        if self._present:
            report = replace(report, tensor_norms=self.tensor_norms())
        if judge is None:
            return report
        norm = judge.report()
        return replace(report, spike=bool(norm.flags & native.REPORT_SPIKE), norm_limit=norm.norm_limit,
                       norm_average=norm.norm_average)


class NormJudge:
    """Whether a norm is a spike, by the library's rule. Keeps the average of the norms."""

    def __init__(self, context: Context, limits: dict[str, Any]) -> None:
        """`limits` are options of a scaler."""
        options = native.ScalerOptions()
        policy.apply(options, {"enabled": "check", "history_capacity": 0, **limits})
        self._context = context
        self._handle: Any = native.Scaler(context._handle, options)
        # The norm of a list of one number is that number.
        self._probe = torch.zeros(1, dtype=torch.float64, device=context.device)
        self._list = list_of_one(context, self._probe)

    def judge(self, norm: Any) -> Any:
        """A tensor of one float32 on the device that is not 0 if the norm is a spike, inf or NaN. `norm` is a number or
        a tensor of one."""
        stream = stream_of(self._context)
        self._probe.copy_(torch.as_tensor(norm, dtype=torch.float64))
        self._handle.check(self._list, stream)
        self._handle.update(stream)
        state = native.DeviceState()
        self._handle.device_state(self._list, state)
        return scalar_tensor(state.found_inf, "float32", self._context).clone()

    def report(self) -> Any:
        """The library's report of the last norm. Blocks on a CUDA device."""
        found = native.Report()
        self._handle.get_report(self._list, found, stream_of(self._context))
        return found


def is_underflowed(scale: Any) -> bool:
    """Returns whether a scale has no inverse that is a float32: gradients divided by it would all be inf or NaN."""
    return not float(scale) * FLOAT32_MAX >= 1.0


def clip_coefficient(check: GradCheck, max_norm: float) -> Any:
    """The factor that limits the norm, a tensor of one float64; 1 for gradients with an inf or NaN."""
    norm = check.norm()
    if isinstance(norm, torch.Tensor):
        return torch.where(norm.isfinite(), max_norm / (norm + 1e-6), 1.0).clamp(max=1.0)
    # The operations of a tensor, for its bits.
    return torch.tensor(min(1.0 / (norm + 1e-6) * max_norm, 1.0) if math.isfinite(norm) else 1.0, dtype=torch.float64,
                        device="cpu")


def gradient_factor(inv_scale: Any, factor: Any) -> Any:
    """The product by which a step multiplies gradients; either factor may be None."""
    if inv_scale is None or factor is None:
        return factor if inv_scale is None else inv_scale
    return inv_scale.to(factor.device) * factor


def _over_ranks(square: Any, shards: Sequence[Any]) -> Any:
    if shards and not isinstance(square, torch.Tensor):
        square = torch.tensor(square, dtype=torch.float64, device="cpu")
    for group in shards:
        torch.distributed.all_reduce(square, group=group)
    return square


def _overflowed(plan: Plan) -> list[str]:
    found = plan.grads.diagnose(plan.stream)
    entries = map(found.get, range(len(plan.labels)))
    return [label for label, entry in zip(plan.labels, entries, strict=True) if entry.inf_count or entry.nan_count]


def list_of_one(context: Context, number: Any) -> Any:
    """A native list of one tensor with one element, which the caller holds."""
    array = native.TensorArray(1)
    array.add(number.data_ptr(), 1, DTYPE_CODES[number.dtype], None)
    return native.TensorList(context._handle, array)


def scalar_tensor(address: int, dtype: str, context: Context) -> Any:
    """A device scalar of the library as a tensor, which does not hold it."""
    if context.device != "cpu":
        return torch.as_tensor(Tensor(address, 1, dtype, context.device, shape=()), device=context.device)
    kind: Any = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32}[dtype]
    return torch.frombuffer((kind * 1).from_address(address), dtype=getattr(torch, dtype))[0]
