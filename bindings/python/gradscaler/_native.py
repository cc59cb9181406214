# SPDX-License-Identifier: Apache-2.0
"""The generated module, with its exceptions set and its ABI checked; and the base of everything that can be closed.

The rest of the package reaches the library through here only.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from operator import index
from types import TracebackType
from typing import Any, TypeVar

from . import _swig
from .errors import BY_STATUS, ClosedError, InvalidArgumentError

#: The generated module.
native: Any = _swig

if not native.is_in_main_interpreter():
    raise ImportError("gradscaler does not work in subinterpreters; import it in the main one")
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    # A free-threaded CPython turns the GIL on for this package, unless its user has turned it off.
    raise ImportError("gradscaler needs the GIL; start Python without PYTHON_GIL=0 and -X gil=0")
if native.abi_version() != native.ABI_VERSION:
    raise ImportError(
        f"gradscaler was built for ABI {native.ABI_VERSION} of libgradscaler, "
        f"but the library that was found speaks {native.abi_version()}"
    )
native.set_error_classes(BY_STATUS)


def _warn(message: str) -> None:
    """Tells the user of what the library has logged: once for each scaler that a scale has become too small, after
    which it does nothing. What a report says of a floor was asked for."""
    if "too small to divide by" not in message:
        return
    for word, ours in (("gsc_scaler_set_scale", "update(new_scale) sets one"), ("options.min_scale", "min_scale="),
                       ("NaN in tensor ", "NaN in gradient ")):
        message = message.replace(word, ours)
    # The line that has called this package.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"the {message}", RuntimeWarning, stacklevel=level)


native.set_warner(_warn)

#: The largest number of a float32, which scales are.
FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127

_Self = TypeVar("_Self", bound="Closeable")


class Closeable:
    """Owns a native object until :meth:`close` or the end of its life, whichever is first.

    Closing gives up the reference. A call that is still running on another thread keeps the native object until it
    returns, so that closing is safe at any time.
    """

    __slots__ = ("_h", "__weakref__")

    def __init__(self, handle: Any) -> None:
        self._h: Any = handle

    @property
    def _handle(self) -> Any:
        handle = self._h
        if handle is None:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return handle

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._h is None

    def close(self) -> None:
        """Gives the native object back. Calling it again does nothing; other methods then raise ClosedError."""
        self._h = None

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Streamed(Closeable):
    """The base of objects that are worked on in a CUDA stream, which users may set."""

    __slots__ = ("_stream",)

    @property
    def stream(self) -> int:
        """CUDA stream that its work is enqueued on, 0 for the default stream. The producer's, unless you set it."""
        return self._stream

    @stream.setter
    def stream(self, stream: int) -> None:
        self._stream: int = stream_number(stream)


class Names:
    """Words of a C enumeration, both ways, with an error that lists them."""

    def __init__(self, prefix: str, *words: str) -> None:
        self._codes = {word: int(getattr(native, prefix + word.upper())) for word in words}
        self._words = {code: word for word, code in self._codes.items()}

    def code(self, argument: str, word: object) -> int:
        """The number of `word`; `argument` is named in the error."""
        if isinstance(word, str) and word.lower() in self._codes:
            return self._codes[word.lower()]
        raise ValueError(f"{argument} is {word!r}; it must be one of {', '.join(self._codes)}")

    def word(self, code: int) -> str:
        return self._words[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)


def integer(argument: str, value: object, low: int, high: int) -> int:
    """`value` as an int in [low, high]; anything else is an error that names the argument."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{argument} is {value!r}; it must be an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{argument} is {number}; it must be in [{low}, {high}]")
    return int(number)


def stream_number(stream: object) -> int:
    """The address of a CUDA stream. TypeError and ValueError for what is none, such as an object of another library."""
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            raise TypeError(f"stream is {type(stream).__name__}; it must be an integer: pass its {name}")
    return integer("stream", stream, 0, (1 << 64) - 1)


def flag(argument: str, value: object) -> bool:
    """`value` as a bool; an error that names the argument for all but bools and 0 and 1, such as the word "False"."""
    # NumPy's is called bool too, or bool_.
    if type(value).__name__ in ("bool", "bool_") or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{argument} is {value!r}; it must be True or False")


def real(argument: str, value: object, most: float = math.inf) -> float:
    """`value` as a float; anything that is not a number is an error that names the argument, and so is a finite one
    beyond what the library's field holds, `most`."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{argument} is {value!r}; it must be a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{argument} is {value!r}; it must be a number") from None
    except OverflowError:
        raise InvalidArgumentError(f"{argument} is too large for a float") from None
    if most < abs(number) < math.inf:
        raise InvalidArgumentError(f"{argument} is {number:g}; it must not be beyond {most:g}")
    return number
