# SPDX-License-Identifier: Apache-2.0
"""Reports and history entries of a scaler, as plain immutable values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import _fields
from ._fields import HistoryEntry as HistoryEntry
from ._native import native
from .arrays import native_items
from .errors import ReportError


@dataclass(frozen=True)
class Report(_fields.Report):
    """The scaler's state, and what the last check found. Gradients are meant unscaled and before clipping."""

    #: Name of that tensor, if it has one and the report is about one list.
    first_name: str | None = None

    def asdict(self) -> dict[str, Any]:
        """The fields as a dictionary, for logs."""
        return asdict(self)


def report_of(found: Any, names: Any = None) -> Report:
    first = found.first_tensor
    return Report(**_fields.report_of(found), first_name=names[first] if names and first >= 0 else None)


def read_report(handle: Any, grads: Any, stream: int, names: Any = None) -> Report:
    """That of a native scaler about a list, or about all. A ReportError has it too."""
    found = native.Report()
    try:
        handle.get_report(grads, found, stream)
    except ReportError as error:
        error.report = report_of(found, names)
        raise
    return report_of(found, names)


def history_of(handle: Any, stream: int) -> list[HistoryEntry]:
    return [HistoryEntry(**_fields.history_entry_of(found)) for found in native_items(handle.history(stream))]

