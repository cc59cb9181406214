# SPDX-License-Identifier: Apache-2.0
"""One optimizer of the library over tensors of PyTorch that step together: same device, formula and flags.

Which these are is settled in :mod:`._optim`. Here the memory is looked at once, when a plan is made; afterwards
:func:`look` sees cheaply whether it is still the same. Gradients that are None are absent from a step.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import formats, hyper, optimizers, torch_memory, trees
from .._native import native
from ..arrays import as_tensor, common_device, tensor_array
from ..arrays import numbers as native_numbers
from ..device import Context
from ..errors import InvalidArgumentError
from ..memory import Tensor, same_order
from ..messages import named_errors
from ._threads import context_of

#: Group keys that are options of the library, by kind. Those that are flags, and whether there is momentum, are in the
#: key of a plan.
NUMBERS = {kind._KIND: tuple(key for key in kind._KEYS if key not in hyper.FLAGS)
           for kind in (getattr(optimizers, name) for name in optimizers.__all__)}


class Key(NamedTuple):
    """What all tensors of a plan have in common."""

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
    double: bool
    device: str
    #: Process groups over whose ranks the tensors are sharded.
    shards: tuple[Any, ...]
    #: Those whose ranks take the same steps: of these, and of replicas.
    ranks: tuple[Any, ...]

    @property
    def is_rounded(self) -> bool:
        """Whether a step may round stochastically."""
        return bool(self.master_format) or any(code != native.FP32 for code in self.codes)


class Looked(NamedTuple):
    """A list of tensors. `layout` is equal if dtypes, devices, shapes, strides and places of None are."""

    layout: Any
    addresses: bytes
    #: A byte for each, 0 for None.
    present: bytes

    def each(self) -> Sequence[int]:
        """The addresses as numbers."""
        return memoryview(self.addresses).cast("Q")

    def pick(self, indices: Sequence[int]) -> Looked:
        """Some of them, without a layout."""
        each = self.each()
        return Looked(None, struct.pack(f"={len(indices)}Q", *(each[i] for i in indices)),
                      bytes(self.present[i] for i in indices))


def exchange_api() -> Any:
    """PyTorch's functions for C, which it has since 2.10; None before."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


#: What DLPack knows all of, but whether they are negated.
_TYPES = (torch.Tensor, torch.nn.Parameter)


def look(tensors: list[Any], asks: bool = True) -> Looked:
    """Looks at every tensor of a list, at some 100 ns each.

    Half of it goes to asking whether it is negated, for which no tensor has to be asked that is where it was.
    """
    found = _viewed(tensors, asks, None)
    # Before PyTorch 2.10, or a tensor that DLPack does not know: one that was accepted is read by attributes.
    return _looked(tensors, list(map(_described, tensors))) if found is None else found


def look_again(tensors: list[Any], layout: Any) -> Looked | None:
    """The same of tensors that have a layout, but that each may be None; None if one has another."""
    found = _viewed(tensors, True, layout) if isinstance(layout, bytes) else None
    if found is not None or isinstance(layout, bytes):
        return found
    same = all(tensor is None or _described(tensor) == own for tensor, own in zip(tensors, layout, strict=True))
    return _looked(tensors, layout) if same else None


def _viewed(tensors: list[Any], asks: bool, layout: bytes | None) -> Looked | None:
    exchange = exchange_api()
    if exchange is None:
        return None
    found = native.tensors_view(exchange, tensors, _TYPES, torch.Tensor.is_neg if asks else None, layout)
    return None if found is None else Looked(*found)


def _looked(tensors: list[Any], layout: Any) -> Looked:
    return Looked(layout, struct.pack(f"={len(tensors)}Q", *map(_address, tensors)),
                  bytes(tensor is not None for tensor in tensors))


def _described(tensor: Any) -> Any:
    if tensor is None or tensor.layout is not torch.strided:
        return tensor if tensor is None else tensor.layout
    return type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.is_neg()


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr()) if tensor is not None and torch_memory.is_plain(tensor) and (
        tensor.layout is torch.strided) else 0


@dataclass
class Member:
    """A parameter with its gradient, as plain tensors: of a DTensor the shard of this rank."""

    index: int
    group: int
    #: What messages and reports call it.
    label: str
    #: What is stepped on: the parameter, or its master.
    param: Any
    grad: Any
    #: The 16-bit parameter that is written along, if there is a master.
    copy: Any | None
    #: The memory of the parameter and its gradient.
    memory: Any = None
    #: Index of its first element in stochastic rounding.
    offset: int = 0
    #: State by name: slots, and the scales of those in codes.
    state: dict[str, Any] = field(default_factory=dict)
    #: State that the parameter has from the first applied step on.
    made: dict[str, Any] = field(default_factory=dict)


class Plan:
    """A native optimizer over `members`, which are in the order of their groups."""

    def __init__(self, key: Key, members: Sequence[Member], groups: Sequence[dict[str, Any]], seed: int) -> None:
        self.key = key
        self._seed = seed
        self.context: Context = context_of(key.device)
        self.indices = [member.index for member in members]
        self.labels = [member.label for member in members]
        #: What the library writes, held as long as it may.
        self.params = [member.param for member in members]
        self.copies: list[Any] = [member.copy for member in members] if key.master else []
        #: Those whose gradient is there, of which autograd is told.
        self.written: list[Any] = self.copies or self.params
        self.state = {name: [member.state[name] for member in members] for name in members[0].state}
        self.seen = self.look()
        self.grads_seen = look([member.grad for member in members])._replace(layout=None)
        params = self._in_place([member.memory[0] for member in members], "", self.seen[int(key.master)])
        grads = self._in_place([member.memory[1] for member in members], ".grad", self.grads_seen)
        _require_alike(grads, params, self.labels)
        common_device(grads, self._leaves(".grad"), self.context.device)
        copy = None
        if key.master:
            copy, params = self._list(params, ""), self._like(params, self.params, "", self.seen[0], self.seen[1])
        lists = {"params": self._list(params, ""), "grads": self._list(grads, ".grad")}
        slots = [self._slot(slot, code, params) for slot, code in zip(key.slots, key.codes, strict=True)]
        self.grads = lists["grads"]
        #: First member, number of members, number of the param group and the values that were set, of each group here.
        self._groups: list[tuple[int, int, int]] = []
        for position, member in enumerate(members):
            if not self._groups or self._groups[-1][2] != member.group:
                self._groups.append((position, 0, member.group))
            first, count, number = self._groups[-1]
            self._groups[-1] = (first, count + 1, number)
        self._values = [numbers(key.kind, groups[number]) for _, _, number in self._groups]
        # Kept: gradients may move in every step.
        self._grad_leaves = self._leaves(".grad")
        with named_errors(params=self._leaves(""), grads=self._grad_leaves, model_copy=self._leaves(""),
                          state=[self._leaves(f"'s state {slot!r}") for slot in self.state]):
            self.handle: Any = native.Optimizer(self.context._handle, self._options(0), lists["params"], self.grads,
                                                copy, *slots, *[None] * (4 - len(slots)))
        if key.is_rounded:
            self.handle.set_offsets(native_numbers(member.offset for member in members), self.stream)
        for position, (first, count, _) in enumerate(self._groups[1:], 1):
            with named_errors():
                self.handle.add_group(first, count, self._options(position))

    def _leaves(self, suffix: str) -> trees.Leaves:
        return trees.Leaves("", self.labels, [label + suffix for label in self.labels], self.labels)

    def _in_place(self, tensors: list[Tensor], suffix: str, looked: Looked) -> list[Tensor]:
        """The tensors, which must be where they were looked at."""
        for tensor, address, label in zip(tensors, looked.each(), self.labels, strict=True):
            if tensor.count and tensor.address != address:
                raise replaced(label + suffix)
        return tensors

    def _like(self, params: list[Tensor], tensors: list[Any], suffix: str, looked: Looked, own: Looked) -> list[Tensor]:
        """Tensors like the parameters, which were looked at as `own`."""
        if looked.layout == own.layout and isinstance(own.layout, bytes):
            return [Tensor(address, param.count, param.dtype)
                    for address, param in zip(looked.each(), params, strict=True)]
        found = self._in_place([as_tensor(tensor, argument=label + suffix, any_order=True)
                                for tensor, label in zip(tensors, self.labels, strict=True)], suffix, looked)
        common_device(found, self._leaves(suffix), self.context.device)
        _require_alike(found, params, self.labels, suffix)
        return found

    def _slot(self, slot: str, code: int, params: list[Tensor]) -> Any:
        suffix, seen = f"'s state {slot!r}", dict(zip(self.state, self.seen[2:], strict=True))
        if code == native.FP32:
            return self._list(self._like(params, self.state[slot], suffix, seen[slot], self.seen[0]), suffix)
        found: list[list[Tensor]] = []
        for name in (name for name in (slot, slot + formats.SCALE) if name in seen):
            own = f"'s state {name!r}"
            found.append(self._in_place([torch_memory.look(tensor, label + own, True) for tensor, label in
                                         zip(self.state[name], self.labels, strict=True)], own, seen[name]))
            common_device(found[-1], self._leaves(own), self.context.device)
        if code != native.FP64:
            _require_alike(found[0], params, self.labels, suffix)
        array = native.TensorArray(len(params))
        for i, tensor in enumerate(found[0]):
            array.add(tensor.address, tensor.count, code, None)
            for scales in found[1:]:
                if scales[i].count < formats.groups_of(tensor.count):
                    raise InvalidArgumentError(f"{self.labels[i]}{suffix} has {scales[i].count} scales for"
                                               f" {tensor.count} elements; it needs one for each 32")
                array.set_scales(scales[i].address)
        with named_errors(tensors=self._leaves(suffix)):
            return native.TensorList(self.context._handle, array)

    def _list(self, tensors: list[Tensor], suffix: str) -> Any:
        with named_errors(tensors=self._leaves(suffix)):
            return native.TensorList(self.context._handle, tensor_array(tensors))

    def _options(self, position: int) -> Any:
        options = native.OptimizerOptions(self.key.kind)
        options.flags, options.master_format, options.seed = self.key.flags, self.key.master_format, self._seed
        for name, value in zip(NUMBERS[self.key.kind], self._values[position], strict=True):
            hyper.write(options, name, value)
        return options

    def look(self) -> tuple[Looked, ...]:
        """What the tensors that are written are now."""
        return tuple(look(tensors) for tensors in (self.params, self.copies, *self.state.values()))

    @property
    def stream(self) -> int:
        """CUDA stream of now."""
        if self.context.device == "cpu":
            return 0
        return int(torch.cuda.current_stream(self.context.device).cuda_stream)

    @property
    def is_absent(self) -> bool:
        """Whether all gradients are None."""
        return not any(self.grads_seen.present)

    def point_at(self, seen: Looked) -> None:
        """Points the gradients at those of now."""
        before, self.grads_seen = self.grads_seen, seen._replace(layout=None)
        if self.grads_seen == before:
            return
        with named_errors(data=self._grad_leaves):
            if 0 in before.present or 0 in seen.present:
                self.grads.set_present_at(seen.addresses, seen.present, self.stream)
            else:
                self.grads.set_addresses(seen.addresses, self.stream)
        if seen.present != before.present:
            written = self.copies or self.params
            self.written = [tensor for tensor, here in zip(written, seen.present, strict=True) if here]

    def use(self, groups: Sequence[dict[str, Any]]) -> None:
        """Hands changed hyper-parameters on."""
        for position, (_, _, number) in enumerate(self._groups):
            values = numbers(self.key.kind, groups[number])
            if values == self._values[position]:
                continue
            before, self._values[position] = self._values[position], values
            try:
                with named_errors():
                    self.handle.set_options(position, self._options(position), self.stream)
            except BaseException:
                self._values[position] = before
                raise

    def set_steps(self, steps: list[int]) -> None:
        """Sets the counts that bias corrections go by."""
        self.handle.set_tensor_steps(native_numbers(steps), self.stream)

    def steps(self) -> list[int]:
        """Steps applied of each tensor. Blocks on a CUDA device."""
        found = self.handle.tensor_steps(self.stream)
        return [found.get(i) for i in range(found.count())]

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
        """A device scalar of the library: one float32 on this device."""
        return None if value is None else value.to(self.params[0].device, torch.float32)

    def clip(self, grads: list[Any], inv_scale: Any, factor: Any) -> list[Any]:
        """Points at copies of `grads` times 1/scale and a float64 `factor`, which the library does not take; the caller
        holds them during the step."""
        inverse = None if inv_scale is None else self._scalar(inv_scale).double()
        factor = factor.to(self.params[0].device)
        found = [grad if grad is None else (grad if inverse is None else grad * inverse) * factor for grad in grads]
        self.point_at(look(found))
        return found


def replaced(name: str) -> RuntimeError:
    """The error for a tensor that is not where it was looked at."""
    return RuntimeError(f"{name} was replaced by another thread during the step")


def numbers(kind: int, group: dict[str, Any]) -> tuple[Any, ...]:
    """The hyper-parameters of a group; of tensors, such as the lr of a compiled schedule, their value now."""
    # PyTorch's RMSprop has no eps_root.
    return tuple(_number(group.get(name, 0.0) if name == "eps_root" else group[name]) for name in NUMBERS[kind])


def _number(value: Any) -> Any:
    # A copy of what can be changed where it is.
    if isinstance(value, (tuple, list)):
        return tuple(map(_number, value))
    return float(value) if isinstance(value, torch.Tensor) else value


def _require_alike(found: list[Tensor], params: list[Tensor], labels: list[str], suffix: str = ".grad") -> None:
    for tensor, param, label in zip(found, params, labels, strict=True):
        if tensor.shape != param.shape:
            raise InvalidArgumentError(f"{label}{suffix} has shape {tensor.shape}, but {label} has {param.shape}")
        if not same_order(tensor, param):
            raise InvalidArgumentError(f"{label}{suffix} has its elements in another order than {label}: strides"
                                       f" {tensor.strides}, but {param.strides} (None: C order); pass a copy in that"
                                       " order")
