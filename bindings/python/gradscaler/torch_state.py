# SPDX-License-Identifier: Apache-2.0
"""State of ``torch.optim`` optimizers, to and from.

SGD counts no steps: what matters is whether it has taken its first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import checkpoint, hyper
from .checkpoint import Rename
from .errors import InvalidArgumentError
from .messages import counted
from .optimizer_base import OptimizerBase
from .state_formats import EMA, REMAINDER


def is_torch_state(state_dict: Mapping[str, Any]) -> bool:
    return "kind" not in state_dict and "state" in state_dict and "param_groups" in state_dict


def to_torch(optimizer: OptimizerBase) -> dict[str, Any]:
    import torch  # type: ignore[import-not-found, unused-ignore]

    kind = _kind(optimizer)
    arrays = checkpoint.save(optimizer, full=True)
    counts = optimizer.tensor_steps
    state: dict[int, dict[str, Any]] = {}
    slots = _slots(optimizer)
    for index, (name, steps) in enumerate(zip(optimizer.names, counts, strict=True)):
        entry: dict[str, Any] = {} if kind == "SGD" else {"step": torch.tensor(float(steps))}
        for slot in slots:
            if kind != "SGD" or steps:
                entry[slot] = torch.as_tensor(arrays[f"{slot}.{name}"])
        if kind == "NAdam":
            group = next(group for group in optimizer.param_groups if index in group.tensors)
            product = hyper.momentum_product(group["betas"][0], group["momentum_decay"], steps)
            entry["mu_product"] = torch.tensor(product)
        # PyTorch makes Adagrad's state at once, the others' at the first step.
        if entry and (steps or kind == "Adagrad"):
            state[index] = entry
    groups = []
    for group in optimizer.param_groups:
        if group.get("eps_root"):
            raise InvalidArgumentError(f"torch.optim.{kind} has no eps_root, but it is {group['eps_root']}")
        own = {key: group[key] for key in _needed(optimizer)}
        made: Any = getattr(torch.optim, kind)([torch.zeros(1)], **own)
        found = made.state_dict()["param_groups"][0]
        found["params"] = list(group.tensors)
        if optimizer.params._named_leaves("params").named:
            found["param_names"] = [optimizer.names[index] for index in group.tensors]
        groups.append(found)
    return {"state": state, "param_groups": groups}


def from_torch(optimizer: OptimizerBase, state_dict: Mapping[str, Any], rename: Rename) -> None:
    """Restores a state dict of ``torch.optim``, hyper-parameters included. On error nothing changes."""
    kind = _kind(optimizer)
    if EMA in optimizer._slot_dtypes():
        raise InvalidArgumentError("torch.optim has no average of the weights; an optimizer without ema_decay takes it")
    groups = []
    arrays: dict[str, Any] = {}
    steps: dict[str, int] = {}
    slots = _slots(optimizer)
    names = _names(optimizer, state_dict["param_groups"], rename)
    for number, group in enumerate(state_dict["param_groups"]):
        _require_kind(optimizer, group, f"state_dict['param_groups'][{number}]")
        own: dict[str, Any] = {key: group[key] for key in _needed(optimizer)}
        # A group without momentum has no buffer in PyTorch.
        wanted = [slot for slot in slots if slot != "momentum_buffer" or own["momentum"]]
        # It may be a tensor there. PyTorch has eps outside of the root alone.
        members = [names[index] for index in group["params"]]
        groups.append({"eps_root": 0.0, **own, "lr": float(own["lr"]), "params": members})
        for index in group["params"]:
            label, name = f"state_dict['state'][{index}]", names[index]
            entry = state_dict["state"].get(index, {})
            present = [slot for slot in slots if entry.get(slot) is not None]
            coded = [slot for slot in present if type(entry[slot]) is int]
            if coded:
                raise InvalidArgumentError(f"{label}[{coded[0]!r}] is in codes of gradscaler.torch.{kind}; save"
                                           " fp32_state_dict() of it, which optimizers of every format load")
            missing = [slot for slot in wanted if slot not in present]
            if present and missing:
                raise InvalidArgumentError(f"{label} has no {missing[0]!r}")
            steps[name] = int(entry["step"]) if "step" in entry else int(bool(present))
            arrays.update({f"{slot}.{name}": entry[slot] for slot in present})
    keys = [f"{slot}.{name}" for slot in slots for name in optimizer.names]
    if any(key not in arrays for key in keys):
        # Before the first step of a parameter: what its state begins with.
        fresh = checkpoint.save(optimizer, full=True)
        first = float(groups[0]["initial_accumulator_value"]) if kind == "Adagrad" else 0.0
        arrays = {key: arrays[key] if key in arrays else fresh[key] * 0 + first for key in keys}
    each = {f"steps.{name}": count for name, count in steps.items()}
    checkpoint.load_groups(optimizer, groups, {"steps": max(steps.values(), default=0), **each, **arrays}, None)


def _kind(optimizer: OptimizerBase) -> str:
    import torch  # type: ignore[import-not-found, unused-ignore]

    kind = type(optimizer).__name__
    if not hasattr(torch.optim, kind):
        raise InvalidArgumentError(f"torch.optim has no {kind}")
    return kind


def _slots(optimizer: OptimizerBase) -> list[str]:
    return [slot for slot in optimizer._slot_dtypes() if slot not in (EMA, REMAINDER)]


def _needed(optimizer: OptimizerBase) -> list[str]:
    return [key for key in optimizer._KEYS if key != "eps_root"]


def _require_kind(optimizer: OptimizerBase, group: Mapping[str, Any], label: str) -> None:
    kind = _kind(optimizer)
    for key in _needed(optimizer):
        if key not in group:
            raise InvalidArgumentError(f"{label} has no {key!r}; it is not one of torch.optim.{kind}")
    decoupled = group.get("decoupled_weight_decay")
    if kind in ("Adam", "AdamW") and decoupled is not None and bool(decoupled) != (kind == "AdamW"):
        other = "AdamW" if decoupled else "Adam"
        raise InvalidArgumentError(f"{label} has decoupled_weight_decay={decoupled}; it is one of torch.optim.{other}")


def _names(optimizer: OptimizerBase, groups: Any, rename: Rename) -> dict[Any, str]:
    """The names here of PyTorch's parameters, by their numbers there."""
    indices = [index for group in groups for index in group["params"]]
    given = [name for group in groups for name in group.get("param_names", [])]
    if len(given) == len(indices) and optimizer.params._named_leaves("params").named:
        own = [checkpoint.renamed(str(name), rename) for name in given]
        missing = sorted(set(optimizer.names) - set(own))
        unknown = sorted(set(own) - set(optimizer.names))
        if missing or unknown:
            raise InvalidArgumentError(f"state_dict's param_names lack {missing} and have {unknown} that are unknown;"
                                       " parameters that were renamed need rename=")
        return dict(zip(indices, own, strict=True))
    if rename is not None:
        raise InvalidArgumentError("rename needs names on both sides: param_names in the state dict, and params that"
                                   " are a mapping")
    if len(indices) != len(optimizer.names):
        raise InvalidArgumentError(f"the state dict has {counted(len(indices), 'parameter')}, but the optimizer has"
                                   f" {len(optimizer.names)}")
    return dict(zip(indices, optimizer.names, strict=True))
