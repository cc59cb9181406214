# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one for each status of the C library.

All derive from :class:`GradscalerError`, and from the built-in exception of the same meaning, so that ``except
ValueError`` catches a bad argument.
"""

from __future__ import annotations

from typing import Any


class GradscalerError(Exception):
    """Base of everything that the library reports. ``status`` is the number of the C status.

    The rest is what the message is about, in the names of the C interface (``gsc_error`` in ``gradscaler.h``); None
    where that is not known, such as for errors that Python finds.
    """

    status: int = -1
    #: The C function that failed.
    function: str | None = None
    #: Its parameter, such as ``"tensors"`` or ``"options"``.
    argument: str | None = None
    #: The member of a struct, such as ``"growth_interval"`` of ``options``.
    field: str | None = None
    #: The state slot, parameter group or bin.
    index: int | None = None
    #: The position in a list of tensors.
    tensor: int | None = None


class InvalidArgumentError(GradscalerError, ValueError):
    """An argument is out of range, inconsistent or of an unknown kind."""

    status = 1


class BadStateError(GradscalerError, RuntimeError):
    """The call is not allowed now, such as unscaling twice between two updates."""

    status = 2


class OutOfMemoryError(GradscalerError, MemoryError):
    """Allocation of host or device memory failed."""

    status = 3


class UnavailableError(GradscalerError, RuntimeError):
    """There is no such device, or the library was built without it."""

    status = 4


class UnsupportedError(GradscalerError, NotImplementedError):
    """A combination that this version does not do."""

    status = 5


class DeviceError(GradscalerError, RuntimeError):
    """The device runtime reported an error."""

    status = 6


class ReportError(GradscalerError, ArithmeticError):
    """What a report was asked for calls for an exception."""

    #: The :class:`gradscaler.Report` that was asked for; None if none was.
    report: Any = None


class ScaleFloorError(ReportError):
    """The scale could not be lowered any further."""

    status = 7


class CallbackError(GradscalerError, RuntimeError):
    """A callback returned an error."""

    status = 8


class InternalError(GradscalerError, RuntimeError):
    """A defect of the library. Please report it."""

    status = 9


class SpikesError(ReportError):
    """Steps were skipped for their gradient norm, as many in a row as ``spike_patience``."""

    status = 10


class ClosedError(GradscalerError, ValueError):
    """The object was closed."""


#: Exception classes in the order of the C statuses; entry 0 is never raised.
BY_STATUS = (
    GradscalerError,
    InvalidArgumentError,
    BadStateError,
    OutOfMemoryError,
    UnavailableError,
    UnsupportedError,
    DeviceError,
    ScaleFloorError,
    CallbackError,
    InternalError,
    SpikesError,
)
