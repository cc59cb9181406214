# SPDX-License-Identifier: Apache-2.0
"""A :class:`Context` is an open device. Most programs never make one: everything takes ``device="cpu"`` or
``device="cuda:1"`` and shares one context for each device. Make your own to choose threads or the instruction set."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from ._enums import CPU_TARGET, DEVICE_TYPE
from ._native import Closeable, flag, integer, native
from .errors import GradscalerError
from .messages import named_errors


@dataclass(frozen=True)
class DeviceInfo:
    """The properties of a device."""

    #: ``"cpu"`` or ``"cuda:<n>"``.
    device: str
    #: The processor's or the GPU's name.
    name: str
    #: CPU: threads that this process may run on. CUDA: multiprocessors.
    units: int
    #: CPU: number of the best instruction set. CUDA: 10 * major + minor compute capability.
    level: int
    #: Bytes of memory, 0 if unknown.
    memory_bytes: int


class TorchDevice(Protocol):
    """The attributes of a ``torch.device`` that are used."""

    @property
    def type(self) -> str: ...

    @property
    def index(self) -> Any: ...


# Those whose arrays Python has: tensors of Vulkan are addresses of an engine.
DEVICES = ("cpu", "cuda")


def _cuda_advice(device: str) -> str:
    """The advice, at the end of a message, if the library was built without support for a GPU."""
    if device == "cpu" or "CUDA: none" not in native.build_info():
        return ""
    return ("; `pip install .` where nvcc is found makes a package with CUDA, and until then use torch.optim or arrays"
            " on the CPU")


def parse_device(device: str | TorchDevice) -> tuple[int, int]:
    """Type and index of ``"cpu"``, ``"cuda"``, ``"cuda:<n>"`` or a ``torch.device``.

    ``torch.device("cuda")`` is PyTorch's current device. ValueError for anything else.
    """
    if isinstance(device, str):
        word, colon, index = device.partition(":")
    else:
        word, number = getattr(device, "type", None) or "", getattr(device, "index", None)
        colon, index = ("", "") if number is None else (":", str(number))
    if word not in DEVICES or (colon and not index.isdigit()):
        raise ValueError(f"device is {device!r}; it must be 'cpu', 'cuda', 'cuda:<n>' or a torch.device")
    if not isinstance(device, str) and word == "cuda" and not colon:
        # To PyTorch this is the current device, here the first.
        index = str(sys.modules["torch"].cuda.current_device())
    return DEVICE_TYPE.code("device", word), int(index or 0)


def device_name(device_type: int, device_index: int) -> str:
    """The inverse of :func:`parse_device`."""
    word = DEVICE_TYPE.word(device_type)
    return word if word == "cpu" else f"{word}:{device_index}"


class Context(Closeable):
    """An open device, shared by all objects on it and safe to use from several threads.

    `device` is ``"cpu"``, ``"cuda"``, ``"cuda:<n>"`` or a ``torch.device``; ValueError for others. `threads` is how
    many CPU threads a call may use, the calling one included; 0 takes all that the process may run on. `cpu_target`
    requires an instruction set: ``"best"``, ``"baseline"``, ``"avx2"``, ``"avx512"`` or ``"neon_bf16"``; all give the
    same bits. `use_current_context` works in the CUDA context that is current on this thread, not in the device's
    primary one: for programs that create CUDA contexts, whose memory and streams are invalid in the primary one. That
    context must outlive this one and its objects. Raises UnavailableError if there is no such device, and
    InvalidArgumentError if no CUDA context is current, or one of another device.
    """

    __slots__ = ("device",)

    def __init__(
        self, device: str | TorchDevice = "cpu", *, threads: int = 0, cpu_target: str = "best",
        use_current_context: bool = False,
    ) -> None:
        options = native.ContextOptions()
        options.device_type, options.device_index = parse_device(device)
        options.num_threads = integer("threads", threads, 0, 1 << 16)
        options.cpu_target = CPU_TARGET.code("cpu_target", cpu_target)
        options.flags = native.CONTEXT_USE_CURRENT if flag("use_current_context", use_current_context) else 0
        self._prepare(options)
        #: ``"cpu"`` or ``"cuda:<n>"``.
        self.device: str = device_name(options.device_type, options.device_index)
        try:
            with named_errors():
                super().__init__(native.Context(options))
        except GradscalerError as error:
            if error.field in ("device_type", "device_index"):
                # The reason stands behind the number, which is no word of Python.
                error.args = (f"device is {str(device)!r}, {str(error).partition(', ')[2]}{_cuda_advice(self.device)}",)
            raise

    def _prepare(self, options: Any) -> None:
        """For subclasses: the last word on the options."""
        options.warn()

    @property
    def threads(self) -> int:
        """CPU threads that a call may use."""
        return int(self._handle.num_threads())

    @property
    def cpu_target(self) -> str:
        """The instruction set in use."""
        return CPU_TARGET.word(self._handle.cpu_target())

    @property
    def host_bytes(self) -> int:
        """Host memory that the library holds for this context and its objects; on the CPU all of it."""
        return int(self._handle.host_bytes())

    @property
    def device_bytes(self) -> int:
        """Memory of a CUDA device that it holds for them, without scratch."""
        return int(self._handle.device_bytes())

    def __reduce__(self) -> Any:
        raise TypeError("a Context cannot be copied or pickled; make one of its device")

    def __repr__(self) -> str:
        return f"<gradscaler.Context {self.device}{' closed' if self.closed else ''}>"


#: A context, a device's name, a ``torch.device``, or None for what the arrays lie on.
DeviceLike = str | TorchDevice | Context | None

_defaults: dict[str, Context] = {}
_before_fork: list[Context] = []
_lock = threading.Lock()


def default_context(device: str | TorchDevice = "cpu") -> Context:
    """The context of `device` that everything shares unless it is given another one. UnavailableError if there is none.
    """
    name = device_name(*parse_device(device))
    with _lock:
        context = _defaults.get(name)
        if context is None or context.closed:
            context = _defaults[name] = Context(name)
        return context


def resolve_context(device: DeviceLike, fallback: str | None = None) -> Context:
    """A context from what users pass: a context, a device's name, or None for `fallback` or the CPU."""
    if isinstance(device, Context):
        return device
    return default_context(device if device is not None else fallback or "cpu")


def _after_fork() -> None:
    # The threads of these pools do not exist in a child, and joining them would wait for ever.
    global _lock
    _lock = threading.Lock()
    _before_fork.extend(_defaults.values())
    _defaults.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def devices() -> list[DeviceInfo]:
    """All devices that this build can use here, the CPU first."""
    found = []
    for word in DEVICES:
        kind = DEVICE_TYPE.code("device", word)
        for index in range(native.device_count(kind)):
            info = native.DeviceInfo()
            native.device_info(kind, index, info)
            found.append(DeviceInfo(device_name(kind, index), info.name, info.units, info.level, info.memory_bytes))
    return found
