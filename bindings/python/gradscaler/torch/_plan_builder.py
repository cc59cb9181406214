# SPDX-License-Identifier: Apache-2.0
"""Builds the plans of an optimizer from parameters that step together, and the state of parameters that have none.

The specification of the state is worked out once for all parameters of one param group, dtype and device
(:class:`StateSpec`): a model may have 100 000 parameters, and in its first step each costs some microseconds.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper
from .._enums import LAYERWISE, SLOTS
from .._native import native
from ..arrays import as_tensor
from ..state_formats import EMA, REMAINDER, SCALE, numbers_per_tensor
from ._param_groups import require_options
from ._plan import FormatChoice, Plan, PlanKey, PlanMembers, format_choice
from ._shards import is_dtensor, is_flattened, local, mesh_groups, shards_of
from ._state_formats import (
    MASTER,
    NARROW_DTYPES,
    convert_state,
    format_of,
    full_dtype,
    in_full_precision,
    initial_state,
    may_split_groups,
    offsets_of,
    param_slot_dtypes,
    slot_tensor,
    step_counter,
    tensor_names,
)

#: Lists of state that the native module takes.
MOST_SLOTS = 4
#: What most entries get with the first applied step.
_NO_STATE: dict[str, Any] = {}


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class StateSpec(NamedTuple):
    """The plan and the state that parameters of one param group, dtype and device have."""

    key: PlanKey
    #: The library's dtypes of the slots that state of this format may have.
    codes: Mapping[str, int]
    #: The names of the tensors of state, by slot and together.
    slots: Mapping[str, tuple[str, ...]]
    names: tuple[str, ...]
    #: What the slots begin with.
    initial: float
    #: Whether steps are counted in the state: of SGD only where random bits or an average go by them.
    counts: bool
    #: Whether the group has had another format with state in fewer bits until now.
    was_small: bool


class PlanBuilder:
    """Sorts the parameters of `groups` into plans, and completes their state in `entries`. `choices` are those by which
    the state of groups was made, by their numbers."""

    def __init__(self, kind: int, groups: Sequence[dict[str, Any]], entries: dict[Any, dict[str, Any]],
                 master_weights: bool, choices: Mapping[int, FormatChoice]) -> None:
        self._kind, self._groups, self._entries, self._master_weights = kind, groups, entries, master_weights
        #: Those of now.
        self.choices = dict(choices)
        self._choices_before = choices
        self._members_of: dict[PlanKey, PlanMembers] = {}
        # Parameters whose entries were made here.
        self._new: list[Any] = []
        self._zero = step_counter(0.0)
        #: The gradients that the plans are made of. Memory like a parameter stands for one that is absent.
        self.grads: list[Any] = []
        #: A parameter of which FSDP1 has made this rank's part.
        self.flattened: str | None = None

    def build(self, grads: Sequence[Any], used: set[Any], are_plain: bool, seed: int) -> list[Plan]:
        """The plans for parameters with these gradients, and for those of `used`, which had one before.

        `are_plain` says that all are plain, each gradient like its parameter. On errors state is what it was.
        """
        try:
            for number, group in enumerate(self._groups):
                require_options(group, f"param_groups[{number}]", self._kind)
                specs: dict[Any, StateSpec] = {}
                has_codes = group.get("state", "fp32") != "fp32"
                labels = group.get("param_names") or (
                    f"param_groups[{number}]['params'][{position}]" for position in itertools.count())
                for p, label in zip(group["params"], labels, strict=False):
                    grad, is_absent = grads[len(self.grads)], grads[len(self.grads)] is None
                    if is_absent and p in used and (self._kind == native.SGD or p in self._entries):
                        grad = torch.empty_like(p, requires_grad=False)
                    self.grads.append(grad)
                    if grad is None:
                        continue
                    ranks = None if are_plain else self._ranks(p, grad, label)
                    kinds = p.dtype, grad.dtype, p.device, has_codes and may_split_groups(p)
                    if kinds not in specs:
                        specs[kinds] = self._state_spec(group, number, p, grad, label)
                    if is_absent and not local(p).numel():
                        # Without elements it would count as present. The plan keeps its place: on ranks with elements
                        # it has this parameter.
                        self.grads[-1] = None
                        self._members(specs[kinds], ranks)
                        continue
                    self._add(specs[kinds], ranks, number, label, p, grad)
            offsets: Sequence[int] = ()
            if any(key.is_rounded for key in self._members_of):
                offsets = offsets_of([p for group in self._groups for p in group["params"]])
            return [Plan(key, members, self._groups, seed, offsets) for key, members in self._members_of.items()
                    if members.params]
        except BaseException:
            for p in self._new:
                self._entries.pop(p, None)
            raise

    def _state_spec(self, group: dict[str, Any], number: int, p: Any, grad: Any, label: str) -> StateSpec:
        """The specification for parameters like `p`, the first of them, which is checked: its device may be unknown."""
        as_tensor(local(p), argument=label, any_order=True)
        as_tensor(local(grad), argument=f"{label}.grad", any_order=True, writable=False)
        kind = native.ADAMW if self._kind == native.ADAM and group.get("decoupled_weight_decay") else self._kind
        flags = hyper.flags_of(group)
        if kind in (native.ADAM, native.ADAMW):
            flags &= ~native.OPTIMIZER_DECOUPLED_WEIGHT_DECAY
        state, master_format = format_of(group, p, label, self._master_weights)
        before = self._choices_before.get(number)
        choice = self.choices[number] = format_choice(kind, group, before)
        codes = {**param_slot_dtypes(p, kind, state, master_format, flags, choice.options), EMA: native.FP32}
        slots = tuple(slot for slot in SLOTS[kind] if hyper.has_slot(kind, slot, group.get("momentum", 0), flags))
        slots += (EMA,) * bool(group.get("ema_decay")) + (REMAINDER,) * (REMAINDER in codes)
        if len(slots) > MOST_SLOTS:
            raise ValueError(f"{label} would have the state {', '.join(slots)}, and {MOST_SLOTS} of these are possible:"
                             " leave out ema_decay, or have master_weights instead of a split master")
        names = {slot: tensor_names(slot, codes[slot]) for slot in slots}
        device = local(p).device
        key = PlanKey(kind, flags, slots, tuple(codes[slot] for slot in slots), hyper.MASTER[master_format],
                      self._master_weights and p.dtype in NARROW_DTYPES, grad.dtype == torch.float64,
                      "cpu" if device.type == "cpu" else str(device), (), ())
        return StateSpec(key, codes, names, tuple(itertools.chain.from_iterable(names.values())),
                         group.get("initial_accumulator_value", 0.0),
                         master_format is not None or state != "fp32" or EMA in slots,
                         before is not None and before.state not in ("fp32", state))

    def _add(self, spec: StateSpec, ranks: tuple[Any, Any] | None, number: int, label: str, p: Any, grad: Any) -> None:
        """Adds a parameter to those that step with it. `ranks` is None if it is plain, and like its gradient."""
        key, members = self._members(spec, ranks)
        is_new = p not in self._entries
        entry = {} if is_new else self._entries[p]
        steps, pending = self._state(spec, entry, p, label)
        if key.master:
            entry[MASTER] = p.detach().float() if entry.get(MASTER) is None else in_full_precision(entry[MASTER], p)
        if EMA in spec.slots and entry.get(EMA) is None:
            # The first step of all replaces it; later ones go on from the parameters.
            ema = entry[EMA] = torch.empty_like(p, dtype=full_dtype(p), requires_grad=False)
            ema.copy_(entry.get(MASTER, p).detach())
        if is_new and (entry or spec.slots):
            self._entries[p] = entry
            self._new.append(p)
        for name, column in members.state.items():
            value = entry.get(name) if name in entry else pending[name]
            if ranks is not None and is_dtensor(p) != is_dtensor(value) and name not in numbers_per_tensor(self._kind):
                raise TypeError(f"{label}'s state {name!r} is a {type(value).__name__}, but the parameter is a"
                                f" {type(p).__name__}; load sharded state by torch.distributed.checkpoint")
            column.append(value if ranks is None else local(value))
        members.indices.append(len(self.grads) - 1)
        members.groups.append(number)
        members.labels.append(label)
        members.params.append(local(entry[MASTER] if key.master else p))
        if key.master:
            members.copies.append(local(p))
        members.grads.append(local(grad))
        members.steps.append(steps)
        members.entries.append(entry)
        members.pending_state.append(pending)

    def _members(self, spec: StateSpec, ranks: tuple[Any, Any] | None) -> tuple[PlanKey, PlanMembers]:
        key = spec.key if ranks is None else spec.key._replace(shards=ranks[0], ranks=ranks[1])
        members = self._members_of.get(key)
        if members is None:
            members = self._members_of[key] = PlanMembers({name: [] for name in spec.names})
        return key, members

    def _ranks(self, p: Any, grad: Any, label: str) -> tuple[Any, Any]:
        """`shards` and `ranks` of the key of a parameter that may be a shard, or unlike its gradient."""
        shards, flattened = shards_of(p, grad, label), is_flattened(p)
        if flattened:
            self.flattened = label
        if (shards or flattened) and self._kind in LAYERWISE:
            raise ValueError(f"{label} is sharded, but {LAYERWISE[self._kind]} needs the norms of whole tensors; use"
                             " another optimizer")
        if grad.is_sparse:
            raise ValueError(f"{label}.grad is sparse; make it dense, as of nn.Embedding with sparse=False, or use"
                             " torch.optim with gradscaler.torch.GradScaler")
        return shards, mesh_groups(p) if is_dtensor(p) else ()

    def _require_width(self, spec: StateSpec, entry: dict[str, Any], p: Any, label: str) -> None:
        """Refuses state of a parameter that has become another, and tells of state that other code has narrowed."""
        for slot in spec.slots:
            value = entry.get(slot)
            if value is None or spec.codes[slot] != native.FP32:
                continue
            if value.dtype in NARROW_DTYPES and (spec.was_small or any(name.endswith(SCALE) for name in entry)):
                # Ours of 16 bits, of a group that has another format now.
                continue
            if value.dtype in NARROW_DTYPES:
                warnings.warn(f"{label}'s state {slot!r} is {_name(value.dtype)} and becomes {_name(full_dtype(p))};"
                              " for state in 16 bits make the optimizer with state='16bit'", UserWarning, stacklevel=2)
            elif value.dtype.is_floating_point and value.dtype != full_dtype(p):
                raise ValueError(f"{label}'s state {slot!r} is {_name(value.dtype)}, but that of a parameter of"
                                 f" {_name(p.dtype)} is {_name(full_dtype(p))}; after model.double() or model.float()"
                                 " call optimizer.load_state_dict(optimizer.state_dict()), which converts it")

    def _state(self, spec: StateSpec, entry: dict[str, Any], p: Any, label: str) -> tuple[int, dict[str, Any]]:
        """Makes the state of a parameter that has none. Returns its count of steps, and what its entry gets with the
        first applied one."""
        codes, slots = spec.codes, spec.slots
        if entry:
            self._require_width(spec, entry, p, label)
        if entry or REMAINDER in codes:
            convert_state(entry, p, self._kind, codes, label, self._master_weights)
        if self._kind == native.SGD:
            # PyTorch has a buffer from the first applied step on, and none before.
            known = slot_tensor(entry, "momentum_buffer") is not None
            pending = _NO_STATE
            if "momentum_buffer" in slots and not known:
                pending = initial_state(p, "momentum_buffer", codes["momentum_buffer"])
                if "step" in entry:
                    entry["step"].zero_()
            if spec.counts:
                entry.setdefault("step", step_counter(float(known)))
            return int(entry.get("step", known)), pending
        if not entry or not set(entry) - {MASTER, REMAINDER}:
            entry["step"] = self._zero.clone()
            if self._kind == native.NADAM:
                entry["mu_product"] = torch.tensor(1.0, device="cpu")
            for slot in slots:
                if slot not in (REMAINDER, EMA):
                    entry.update(initial_state(p, slot, codes[slot], spec.initial))
            return 0, _NO_STATE
        for name in ("step", *spec.names):
            if name not in entry and name != EMA:
                raise ValueError(f"the state of {label} has no {name!r}; it has {', '.join(map(str, entry))}")
        return int(entry["step"]), _NO_STATE
