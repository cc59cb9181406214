# SPDX-License-Identifier: Apache-2.0
"""Reports and history entries of a scaler, as plain immutable values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import errors
from ._native import native


@dataclass(frozen=True)
class Report:
    """The scaler's state, and what the last check found. Gradients are meant unscaled and before clipping."""

    # gen-api: values gsc_report
    #: The scale now.
    scale: float
    #: Clean steps since the scale last changed.
    growth_tracker: int
    #: Overflows left before the scale backs off.
    hysteresis_tracker: int
    #: Skipped updates in a row, the last one included; 0 if it was clean.
    consecutive_skips: int
    #: Updates so far, including those of a restored state.
    updates: int
    #: How many of these found an overflow.
    skipped: int
    #: L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. With a reducer, over all ranks.
    #: None if it was not taken.
    grad_norm: float | None
    #: Largest magnitude of this rank's unscaled gradients. Gradients stored as inf or NaN do not count. None if it was
    #: not taken.
    grad_amax: float | None
    #: Number of non-finite gradients; with a reducer, over all ranks.
    nonfinite_count: int
    #: Of these, on this rank: +inf, -inf, and values that become inf when unscaled.
    inf_count: int
    #: Of these, on this rank: NaN.
    nan_count: int
    #: Index in its list of the first tensor with a non-finite gradient on this rank; -1 if none.
    first_tensor: int
    #: Index in that tensor of its first non-finite gradient; -1 if none.
    first_element: int
    #: An inf or NaN was found: the step was, or will be, skipped.
    overflow: bool
    #: The scale cannot be lowered further and `floor_patience` has run out (needs "report" or "error").
    at_floor: bool
    # gen-api: end
    #: Name of that tensor, if it has one and the report is about one list.
    first_name: str | None = None

    def asdict(self) -> dict[str, Any]:
        """The fields as a dictionary, for logs."""
        return asdict(self)


@dataclass(frozen=True)
class HistoryEntry:
    """One update."""

    # gen-api: values gsc_history_entry
    #: Number of the update, counted from 0, including those of a restored state.
    update: int
    #: L2 norm of the unscaled gradients of all its lists. None if it was not taken.
    grad_norm: float | None
    #: Number of non-finite gradients in all its lists. None if it was not taken.
    nonfinite_count: int | None
    #: The scale after that update.
    scale: float
    #: Whether that update found an overflow.
    overflow: bool
    # gen-api: end


def report_of(found: Any, names: Any = None) -> Report:
    """A :class:`Report` from the library's."""
    first = found.first_tensor
    return Report(
        # gen-api: read gsc_report
        scale=found.scale,
        growth_tracker=found.growth_tracker,
        hysteresis_tracker=found.hysteresis_tracker,
        consecutive_skips=found.consecutive_skips,
        updates=found.updates,
        skipped=found.skipped,
        grad_norm=found.grad_norm,
        grad_amax=found.grad_amax,
        nonfinite_count=found.nonfinite_count,
        inf_count=found.inf_count,
        nan_count=found.nan_count,
        first_tensor=found.first_tensor,
        first_element=found.first_element,
        overflow=bool(found.flags & native.REPORT_OVERFLOW),
        at_floor=bool(found.flags & native.REPORT_AT_FLOOR),
        # gen-api: end
        first_name=names[first] if names and first >= 0 else None)


def history_of(entries: Any) -> list[HistoryEntry]:
    """From the library's entries."""
    return [HistoryEntry(
        # gen-api: read gsc_history_entry
        update=found.update,
        grad_norm=found.grad_norm,
        nonfinite_count=found.nonfinite_count,
        scale=found.scale,
        overflow=bool(found.overflow),
        # gen-api: end
    ) for found in entries]


# Named in the annotations there, which this module cannot be imported for.
errors.Report = Report  # type: ignore[attr-defined]
