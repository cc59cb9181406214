# SPDX-License-Identifier: Apache-2.0
"""One optimizer of the library over tensors of PyTorch that step together: same device, formula and flags.

:mod:`._plan_builder` decides which these are. The memory is checked here once, when a plan is made, in C for all
tensors together; what cannot be used there is checked one by one, for an error that names it. Gradients that are None
are absent from a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper, optimizers, state_formats, torch_memory, trees
from .._native import native
from ..arrays import as_tensor, common_device, native_integers, native_items, require_alike
from ..device import Context
from ..errors import InvalidArgumentError
from ..memory import Tensor
from ..messages import named_errors
from ._contexts import context_of
from ._guards import Snapshot, take_snapshot
from ._state_formats import tensor_names

#: Options of every kind, which PyTorch's groups lack.
_COMMON_KEYS = ("ema_decay", "param_min", "param_max")
#: All that PyTorch's groups lack.
OPTIONAL_KEYS = ("eps_root", *_COMMON_KEYS)
#: Those that schedules change and no format depends on.
_WITHOUT_FORMAT = ("lr", "weight_decay", *_COMMON_KEYS)
#: Group keys that are options of the library, by kind. Those that are flags, and whether there is momentum, are in the
#: key of a plan.
OPTION_KEYS = {kind._KIND: (*_COMMON_KEYS, *(key for key in kind._KEYS if key not in hyper.FLAGS))
               for kind in (getattr(optimizers, name) for name in optimizers.__all__)}


class PlanKey(NamedTuple):
    """The properties that all tensors of a plan have in common."""

    kind: int
    flags: int
    #: State slots in the library's order, and their dtypes there.
    slots: tuple[str, ...]
    codes: tuple[int, ...]
    #: GSC_MASTER_*.
    master_format: int
    #: Whether what is stepped on are masters of 16-bit parameters.
    master: bool
    #: Whether the gradients are float64.
    has_float64_grads: bool
    device: str
    #: Process groups over whose ranks the tensors are sharded.
    shards: tuple[Any, ...]
    #: Those whose ranks take the same steps: of these, and of replicas.
    ranks: tuple[Any, ...]

    @property
    def is_rounded(self) -> bool:
        return bool(self.master_format) or any(code != native.FP32 for code in self.codes)


@dataclass
class PlanMembers:
    """The parameters of a plan in columns, as plain tensors: of a DTensor the shard of this rank."""

    #: Names of the tensors of state: slots, and the scales of those in codes.
    state: dict[str, list[Any]]
    #: Places among all parameters, and numbers of their param groups.
    indices: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    #: What messages and reports call them.
    labels: list[str] = field(default_factory=list)
    #: What is stepped on: the parameters, or their masters. Then `copies` are the parameters, which are written along.
    params: list[Any] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)
    grads: list[Any] = field(default_factory=list)
    #: Steps taken.
    steps: list[int] = field(default_factory=list)
    #: The optimizer's state of each, and what becomes a part of it with the first applied step.
    entries: list[dict[str, Any]] = field(default_factory=list)
    pending_state: list[dict[str, Any]] = field(default_factory=list)


class Plan:
    """A native optimizer over `members`, which are in the order of their groups."""

    def __init__(self, key: PlanKey, members: PlanMembers, groups: Sequence[dict[str, Any]], seed: int,
                 offsets: Sequence[int]) -> None:
        """`offsets` are the indices of all parameters' first elements in stochastic rounding, where there is any."""
        self.key = key
        self._seed = seed
        self.context: Context = context_of(key.device)
        self.indices, self.labels = members.indices, members.labels
        #: What the library writes, held as long as it may.
        self.params, self.copies, self.state = members.params, members.copies, members.state
        self.entries, self.pending_state, self.groups = members.entries, members.pending_state, members.groups
        #: Those whose gradient is there, of which autograd is told.
        self.written: list[Any] = self.copies or self.params
        # What DLPack does not know, where it is None, is refused below.
        self.snapshots: Any = self.take_snapshots()
        grads_snapshot: Any = take_snapshot(members.grads)
        self.grads_snapshot: Any = grads_snapshot and grads_snapshot._replace(layout=b"")
        # What all else has to be like: the parameters themselves.
        self._param_snapshot: Snapshot | None = self.snapshots[int(key.master)]
        own = self._array(self.written, self._param_snapshot, "", is_of_user=True)
        grads = self._array(members.grads, grads_snapshot, ".grad", writable=False, is_of_user=True)
        params = self._array(self.params, self.snapshots[0], "'s state 'master_param'") if key.master else own
        self.grads = self._list(grads, ".grad")
        copy = self._list(own, "") if key.master else None
        stepped_on = self._list(params, "")
        slots = [self._slot(slot, code) for slot, code in zip(key.slots, key.codes, strict=True)]
        #: First member, number of members and number of the param group, of each group here.
        self._group_ranges: list[tuple[int, int, int]] = []
        first = 0
        for number, count in Counter(members.groups).items():
            self._group_ranges.append((first, count, number))
            first += count
        self._values = [option_values(key.kind, groups[number]) for _, _, number in self._group_ranges]
        with named_errors(params=self._leaves(""), grads=self._leaves(".grad"), model_copy=self._leaves(""),
                          state=[self._leaves(f"'s state {slot!r}") for slot in self.state]):
            self.handle: Any = native.Optimizer(self.context._handle, self._options(0), stepped_on, self.grads, copy,
                                                *slots, *[None] * (4 - len(slots)))
        if key.is_rounded:
            self.handle.set_offsets(native_integers(offsets[index] for index in self.indices), self.stream)
        for position, (first, count, _) in enumerate(self._group_ranges[1:], 1):
            with named_errors():
                self.handle.add_group(first, count, self._options(position))
        if any(members.steps):
            self.handle.set_tensor_steps(native_integers(members.steps), self.stream)
        # zero_grad() is to free them.
        members.grads.clear()
        #: Norms of the tensors at the last check, float64 on the device; None: not kept.
        self.tensor_norms: Any = None

    def _leaves(self, suffix: str) -> Callable[[], trees.Leaves]:
        """The names of the tensors in errors, worked out when there is one."""
        return lambda: trees.Leaves("", self.labels, [label + suffix for label in self.labels], self.labels)

    def _list(self, array: Any, suffix: str) -> Any:
        with named_errors(tensors=self._leaves(suffix)):
            return native.TensorList(self.context._handle, array)

    def _array(self, tensors: list[Any], snapshot: Snapshot | None, suffix: str, code: int = 0, scales: str = "",
               writable: bool = True, is_of_user: bool = False) -> Any:
        """Tensors like the parameters, for the library. `suffix` follows the parameter's name in errors.

        `code` is their dtype there if it is not their own, `scales` the name of their scales. `is_of_user` if users
        made them, who may have freed them.
        """
        like = snapshot if code == native.FP64 else self._param_snapshot  # That is of numbers per tensor.
        scales_snapshot = dict(zip(self.state, self.snapshots[2:], strict=True)).get(scales)
        if snapshot and like and (scales_snapshot or scales not in self.state) and (
                not is_of_user or all(map(torch_memory.has_storage, tensors))):
            found = native.tensors_array(snapshot.layout, snapshot.addresses, like.layout, code,
                                         *(scales_snapshot[:2] if scales_snapshot else (b"", b"")))
            if found is not None:
                return found
        self._raise_for_first(tensors, suffix, code, scales, writable)

    def _raise_for_first(self, tensors: list[Any], suffix: str, code: int, scales: str, writable: bool) -> NoReturn:
        """Raises an error that names the first of `tensors` that cannot be used."""

        def inspected(found: list[Any], own: str, narrow: bool, writable: bool = True) -> list[Tensor]:
            return [torch_memory.inspect_tensor(tensor, label + own, writable) if narrow else
                    as_tensor(tensor, argument=label + own, any_order=True, writable=writable)
                    for tensor, label in zip(found, self.labels, strict=True)]

        each = inspected(tensors, suffix, bool(code), writable)
        common_device(each, self._leaves(suffix)(), self.context.device)
        if code != native.FP64:
            require_alike(self._leaves(suffix)(), each, self._leaves("")(), inspected(self.written, "", False))
        for tensor, scale, label in zip(each, inspected(self.state.get(scales, []), f"'s state {scales!r}", True),
                                        self.labels, strict=False):
            if scale.dtype != state_formats.SCALES[code] or scale.count < state_formats.groups_of(tensor.count):
                raise InvalidArgumentError(f"{label}{suffix} has {scale.count} scales of {scale.dtype} for"
                                           f" {tensor.count} elements; it needs one of {state_formats.SCALES[code]}"
                                           " for each 32")
        raise RuntimeError(f"one of {self.labels[0]}{suffix} to {self.labels[-1]}{suffix} is unknown to DLPack, or was"
                           " replaced by another thread during the step")

    def _slot(self, slot: str, code: int) -> Any:
        name, snapshots = tensor_names(slot, code)[0], dict(zip(self.state, self.snapshots[2:], strict=True))
        suffix = f"'s state {name!r}"
        return self._list(self._array(self.state[name], snapshots[name], suffix, 0 if code == native.FP32 else code,
                                      slot + state_formats.SCALE), suffix)

    def _options(self, position: int) -> Any:
        options = native.OptimizerOptions(self.key.kind)
        options.flags, options.master_format, options.seed = self.key.flags, self.key.master_format, self._seed
        for name, value in zip(OPTION_KEYS[self.key.kind], self._values[position], strict=True):
            hyper.write(options, name, value)
        return options

    def take_snapshots(self) -> tuple[Snapshot | None, ...]:
        return tuple(take_snapshot(tensors) for tensors in (self.params, self.copies, *self.state.values()))

    @property
    def stream(self) -> int:
        if self.context.device == "cpu":
            return 0
        return int(torch.cuda.current_stream(self.context.device).cuda_stream)

    @property
    def is_absent(self) -> bool:
        return not any(self.grads_snapshot.present)

    def set_gradients(self, snapshot: Snapshot) -> None:
        before, self.grads_snapshot = self.grads_snapshot, snapshot._replace(layout=b"")
        if self.grads_snapshot == before:
            return
        with named_errors(data=self._leaves(".grad")):
            if 0 in before.present or 0 in snapshot.present:
                self.grads.set_present_at(snapshot.addresses, snapshot.present, self.stream)
            else:
                self.grads.set_addresses(snapshot.addresses, self.stream)
        if snapshot.present != before.present:
            written = self.copies or self.params
            self.written = [tensor for tensor, here in zip(written, snapshot.present, strict=True) if here]

    def keep_tensor_norms(self) -> None:
        """From the next check on it writes `tensor_norms`."""
        if self.tensor_norms is None:
            count = len(self.labels)
            self.tensor_norms = torch.zeros(count, dtype=torch.float64, device=self.context.device)
            self.grads.set_device_norms(self.tensor_norms.data_ptr(), count)

    def update_options(self, groups: Sequence[dict[str, Any]]) -> None:
        for position, (_, _, number) in enumerate(self._group_ranges):
            values = option_values(self.key.kind, groups[number])
            if values == self._values[position]:
                continue
            before, self._values[position] = self._values[position], values
            try:
                with named_errors():
                    self.handle.set_options(position, self._options(position), self.stream)
            except BaseException:
                self._values[position] = before
                raise

    def steps(self) -> list[int]:
        """Steps applied of each tensor. Blocks on a CUDA device."""
        return native_items(self.handle.tensor_steps(self.stream))

    def step(self, inv_scale: Any, found_inf: Any) -> None:
        """Steps; with device scalars, which are tensors of one element, or None."""
        stream = self.stream
        if inv_scale is None and found_inf is None:
            self.handle.step(stream)
            return
        inv_scale, found_inf = self._scalar(inv_scale), self._scalar(found_inf)
        self.handle.step_scaled(None if inv_scale is None else inv_scale.data_ptr(),
                                None if found_inf is None else found_inf.data_ptr(), stream)

    def _scalar(self, value: Any) -> Any:
        return None if value is None else value.to(self.params[0].device, torch.float32)

    def use_clipped_copies(self, grads: list[Any], inv_scale: Any, factor: Any) -> list[Any]:
        """Points at copies of `grads` times 1/scale and a float64 `factor`, which the library does not take; the caller
        holds them during the step."""
        inverse = None if inv_scale is None else self._scalar(inv_scale).double()
        factor = factor.to(self.params[0].device)
        found = [grad if grad is None else (grad if inverse is None else grad * inverse) * factor for grad in grads]
        snapshot = take_snapshot(found)
        assert snapshot is not None
        self.set_gradients(snapshot)
        return found


class FormatChoice(NamedTuple):
    """What the library chooses the dtypes of a group's state by."""

    state: str
    has_momentum: bool
    options: state_formats.Options


def format_choice(kind: int, group: dict[str, Any], before: FormatChoice | None) -> FormatChoice:
    """That of a group; `before`, by which its state was made, if only hyper-parameters have changed since."""
    state, has_momentum = group.get("state", "fp32"), bool(group.get("momentum"))
    if before is not None and before[:2] == (state, has_momentum):
        return before
    options = () if state == "fp32" else zip(OPTION_KEYS[kind], option_values(kind, group), strict=True)
    return FormatChoice(state, has_momentum, tuple(pair for pair in options if pair[0] not in _WITHOUT_FORMAT))


def option_values(kind: int, group: dict[str, Any]) -> tuple[Any, ...]:
    """The hyper-parameters of a group; of tensors, such as the lr of a compiled schedule, their value now."""
    return tuple(_value(group.get(name, 0.0) if name in OPTIONAL_KEYS else group[name]) for name in OPTION_KEYS[kind])


def _value(value: Any) -> Any:
    # A copy of what can be changed where it is.
    if isinstance(value, (tuple, list)):
        return tuple(map(_value, value))
    return float(value) if isinstance(value, torch.Tensor) else value
