# SPDX-License-Identifier: Apache-2.0
"""The policy behind :class:`~gradscaler.torch.GradScaler`: a scaler of the library that updates the scale and counts.

PyTorch's class has its own tensors for the scale and the growth tracker. They are copied from the library after every
update. If they were written since, they are copied to the library before the next update.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import policy
from .._native import native
from ..device import Context
from ..report import HistoryEntry, Report, history_of, read_report
from ._contexts import stream_of
from ._grad_check import list_of_one, scalar_tensor


class ScaleUpdater:
    """Updates a scale on the device of `context` by `options`, beginning with the counters of a state dict, if any."""

    def __init__(self, context: Context, options: Any, counters: dict[str, int] | None) -> None:
        self.context = context
        self._handle: Any = native.Scaler(context._handle, options)
        # An inf here is what the library sees of an overflow.
        self._probe = torch.zeros(1, dtype=torch.float32, device=context.device)
        self._list = list_of_one(context, self._probe)
        found = native.DeviceState()
        self._handle.device_state(None, found)
        self._scalars = [scalar_tensor(found.scale, "float32", context),
                         scalar_tensor(found.growth_tracker, "int32", context)]
        # The tensors that these were copied to, and their versions then.
        self._last_written: list[tuple[Any, int]] = []
        self._factors = options.growth_factor, options.backoff_factor, options.growth_interval
        if counters:
            self._set_state(**counters)

    def update(self, scale: Any, tracker: Any, flags: list[Any], factors: tuple[float, float, int]) -> None:
        """Updates `scale` and `tracker` by whether one of `flags` is not 0, with PyTorch's two factors and interval."""
        stream = stream_of(self.context)
        if factors != self._factors:
            options = native.ScalerOptions()
            self._handle.get_options(options)
            options.growth_factor, options.backoff_factor, options.growth_interval = self._factors = factors
            self._handle.set_options(options, stream)
        if not self._last_written or any(
                found is not tensor or tensor._version != version
                for found, (tensor, version) in zip((scale, tracker), self._last_written, strict=True)):
            self._set_state(scale=float(scale), growth_tracker=int(tracker))
        if self.context.device == "cpu":
            # Each operation on a tensor costs microseconds.
            self._probe.fill_(math.inf if any(map(bool, flags)) else 0.0)
        else:
            found_inf = torch.stack([flag.to(scale.device, non_blocking=True) for flag in flags]).sum()
            self._probe.copy_(torch.where(found_inf != 0, math.inf, 0.0))
        self._handle.check(self._list, stream)
        self._handle.update(stream)
        for tensor, value in zip((scale, tracker), self._scalars, strict=True):
            tensor.copy_(value)
        self._last_written = [(tensor, tensor._version) for tensor in (scale, tracker)]

    def _set_state(self, **changes: Any) -> None:
        state = self._state()
        for name, value in changes.items():
            setattr(state, name, value)
        self._handle.set_state(state, stream_of(self.context))

    def _state(self) -> Any:
        state = native.ScalerState()
        self._handle.get_state(state, stream_of(self.context))
        return state

    def counters(self) -> dict[str, int]:
        """The entries of a state dict beyond PyTorch's. Blocks."""
        state = self._state()
        return {name: getattr(state, name) for name in policy.COUNTERS}

    def report(self) -> Report:
        """The scaler's state after the last update; its numbers of gradients are those of the probe. Blocks."""
        return read_report(self._handle, None, stream_of(self.context))

    def history(self) -> list[HistoryEntry]:
        """The newest updates. Norms and counts are None, since no gradients are kept."""
        entries = history_of(self._handle, stream_of(self.context))
        return [replace(entry, grad_norm=None, nonfinite_count=None) for entry in entries]


def is_torch_policy(options: dict[str, Any]) -> bool:
    """Returns whether this is PyTorch's policy, with whatever factors, interval and first scale."""
    own = policy.describe(native.ScalerOptions())
    pytorchs = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled", "history_capacity")
    return all(value == own[name] for name, value in options.items() if name not in pytorchs)
