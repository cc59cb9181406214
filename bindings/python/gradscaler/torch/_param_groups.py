# SPDX-License-Identifier: Apache-2.0
"""Param groups of PyTorch's optimizers: names of parameters, and checks of options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import optimizers
from .._fields import KEYWORD_FLAGS
from .._native import flag, native, real
from ..hyper import in_range


def param_label(group: Mapping[str, Any], number: int, position: int) -> str:
    """The name of a parameter in messages and reports."""
    names = group.get("param_names")
    return str(names[position]) if names else f"param_groups[{number}]['params'][{position}]"


def labelled_params(groups: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """Each parameter with its group and its name in messages."""
    for number, group in enumerate(groups):
        for position, p in enumerate(group["params"]):
            yield p, group, param_label(group, number, position)


#: Options of an optimizer, which a group would have in vain.
_OPTIMIZER_OPTIONS = ("max_grad_norm", "master_weights", "seed", "skip_nonfinite", "skip_norm", "spike_factor",
                      "spike_deviations", "spike_window", "spike_warmup", "spike_patience", "tensor_norms")


#: The names of the classes by kind.
_NAMES = {getattr(optimizers, name)._KIND: name for name in optimizers.__all__}


def require_range(kind: int, low_label: str, high_label: str, low: Any, high: Any) -> None:
    """ValueError and TypeError for the ends of a range of parameters that an optimizer of this kind does not take."""
    for label, key, value in ((low_label, "param_min", low), (high_label, "param_max", high)):
        if not in_range(kind, key, real(label, value)):
            raise ValueError(f"{label} is {value}; it must be finite")
        if value and kind in (native.ADAMW_SCHEDULE_FREE, native.SGD_SCHEDULE_FREE):
            raise ValueError(f"{label} is {value}, but {_NAMES[kind]} takes no range of parameters")
    if low > high:
        raise ValueError(f"{low_label} is {low}, which is above param_max, {high}")


def require_options(group: Mapping[str, Any], label: str, kind: int) -> None:
    """ValueError and TypeError for options that a param group of an optimizer of this kind must not have."""
    for key in _OPTIMIZER_OPTIONS:
        if key in group:
            raise ValueError(f"{label} has {key!r}, which is one for all groups; pass it to the optimizer")
    if not 0.0 <= real(f"{label}['ema_decay']", group.get("ema_decay", 0.0)) < 1.0:
        raise ValueError(f"{label}['ema_decay'] is {group['ema_decay']}; it must be in [0, 1)")
    flag(f"{label}['ema_warmup']", group.get("ema_warmup", False))
    require_range(kind, f"{label}['param_min']", f"{label}['param_max']", group.get("param_min", 0.0),
                  group.get("param_max", 0.0))
    own = native.ADAMW if kind == native.ADAM and group.get("decoupled_weight_decay") else kind
    for key in ("cautious", "cautious_decay"):
        if flag(f"{label}[{key!r}]", group.get(key, False)) and key not in KEYWORD_FLAGS.get(own, ()):
            raise ValueError(f"{label} has {key}=True, which {_NAMES[own]} does not take")
    for key, why in (("differentiable", "autograd does not follow the step"),
                     ("capturable", "its counts of steps are not on the device")):
        if group.get(key):
            raise ValueError(f"{label} has {key}=True, which is not supported: {why}; use torch.optim")


@contextlib.contextmanager
def groups_restored_on_error(groups: Iterable[Any]) -> Iterator[None]:
    """Gives the param groups of a caller back as they were if the block raises: PyTorch's classes write every option
    into them before all is checked. Parameters that an iterator has yielded stay in a list."""
    before = []
    for group in groups:
        if isinstance(group, dict):
            if isinstance(group.get("params"), Iterator):
                group["params"] = list(group["params"])
            before.append((group, dict(group)))
    try:
        yield
    except BaseException:
        for group, kept in before:
            group.clear()
            group.update(kept)
        raise
