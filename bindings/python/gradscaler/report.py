# SPDX-License-Identifier: Apache-2.0
"""What a scaler says about itself: reports and history entries, as plain immutable values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import errors
from ._native import native


@dataclass(frozen=True)
class Report:
    """The scaler's state, and what the last check found. Gradients are meant unscaled and before clipping."""

    #: The scale now.
    scale: float
    #: Clean steps since the scale last changed.
    growth_tracker: int
    #: Overflows left before the scale backs off.
    hysteresis_tracker: int
    #: Skipped updates in a row.
    consecutive_skips: int
    #: Updates in all, and those that found an overflow.
    updates: int
    skipped: int
    #: An inf or NaN was found: the step was, or will be, skipped.
    overflow: bool
    #: The scale cannot be lowered and the patience is used up.
    at_floor: bool
    #: L2 norm; inf or NaN if they overflowed. None if it was not taken.
    grad_norm: float | None
    #: Largest finite magnitude; None if it was not taken.
    grad_amax: float | None
    nonfinite_count: int
    inf_count: int
    nan_count: int
    #: Index of the first tensor with an inf or NaN and of the element in it, -1 if there is none.
    first_tensor: int
    first_element: int
    #: Name of that tensor, if it has one and the report is about one list.
    first_name: str | None = None

    def asdict(self) -> dict[str, Any]:
        """The fields as a dictionary, for logs."""
        return asdict(self)


@dataclass(frozen=True)
class HistoryEntry:
    """One update."""

    #: Number of the update, from 0.
    update: int
    #: The scale that it left behind.
    scale: float
    #: Whether it found an overflow.
    overflow: bool
    #: None under :class:`gradscaler.torch.GradScaler`, which does not keep them.
    grad_norm: float | None
    nonfinite_count: int | None


def report_of(native_report: Any, names: Any = None) -> Report:
    """A :class:`Report` from the library's."""
    found = native_report
    first = found.first_tensor
    return Report(found.scale, found.growth_tracker, found.hysteresis_tracker, found.consecutive_skips, found.updates,
                  found.skipped, bool(found.flags & native.REPORT_OVERFLOW), bool(found.flags & native.REPORT_AT_FLOOR),
                  found.grad_norm, found.grad_amax, found.nonfinite_count, found.inf_count, found.nan_count, first,
                  found.first_element, names[first] if names and first >= 0 else None)


# Named in the annotations there, which this module cannot be imported for.
errors.Report = Report  # type: ignore[attr-defined]
