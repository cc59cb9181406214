# SPDX-License-Identifier: Apache-2.0
"""Dynamic loss scaling and the fused tail of a mixed-precision training step, over any array.

``GradScaler`` has PyTorch's methods; optimizers step on arrays of NumPy, JAX, CuPy, PyTorch or raw pointers without
copying. Importing it needs nothing but the standard library. ``gradscaler.torch`` and ``gradscaler.ops`` have the rest.
"""

from . import ops, reducers
from ._native import native as _native
from .arrays import as_tensor
from .build import build_info, get_include, get_library
from .device import Context, devices
from .errors import (
    BadStateError,
    CallbackError,
    ClosedError,
    DeviceError,
    GradscalerError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    ReportError,
    ScaleFloorError,
    SpikesError,
    UnavailableError,
    UnsupportedError,
)
from .log import LogWriter, read_log
from .memory import Tensor
from .ops import clip_grad_norm_, clip_grad_value_
from .optim import Optimizer, ParamGroup
from .optimizers import *  # noqa: F403
from .optimizers import __all__ as _optimizers
from .policy import PRESETS
from .report import Report
from .scaler import GradScaler
from .tensors import EXPONENT_MIN, Diagnosis, TensorList, diagnose, recommend_scale

__version__: str = _native.version()

__all__ = [
    *_optimizers, "Optimizer", "ParamGroup",
    "GradScaler", "PRESETS", "Report",
    "Diagnosis", "EXPONENT_MIN", "Tensor", "TensorList", "as_tensor", "diagnose",
    "recommend_scale",
    "clip_grad_norm_", "clip_grad_value_", "ops", "reducers",
    "LogWriter", "read_log",
    "Context", "devices",
    "build_info", "get_include", "get_library",
    "BadStateError", "CallbackError", "ClosedError", "DeviceError", "GradscalerError", "InternalError",
    "InvalidArgumentError", "OutOfMemoryError", "ReportError", "ScaleFloorError", "SpikesError",
    "UnavailableError", "UnsupportedError",
]
