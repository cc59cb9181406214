# SPDX-License-Identifier: Apache-2.0
"""Optimizers over your arrays: SGD, Adam, AdamW, Adagrad, Lion and LAMB.

Each steps on `params` with gradients `grads`, entry by entry, in place. What PyTorch's optimizers call param groups
works the same here: pass mappings with ``"params"``, ``"grads"`` and hyper-parameters of their own instead of arrays,
and change ``optimizer.param_groups[0]["lr"]`` at any time. Parameters may be fp32 or fp64 master weights, or 16-bit
weights directly; arithmetic is in fp32 (fp64 for fp64). `model_copy` receives the updated parameters rounded to its
own dtype in the same pass. The arrays are held as long as the optimizer lives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from ._native import Closeable, native, real
from .arrays import Tensor, is_array
from .device import Context, DeviceLike
from .tensors import TensorList, native_tensor

_FLAGS = {"nesterov": native.OPTIMIZER_NESTEROV, "amsgrad": native.OPTIMIZER_AMSGRAD,
          "maximize": native.OPTIMIZER_MAXIMIZE, "zero_grads": native.OPTIMIZER_ZERO_GRADS,
          "write_grads": native.OPTIMIZER_WRITE_GRADS}
_WRITING = native.OPTIMIZER_ZERO_GRADS | native.OPTIMIZER_WRITE_GRADS


class ParamGroup(MutableMapping[str, Any]):
    """Hyper-parameters of a range of tensors, live: setting one takes effect with the next step."""

    def __init__(self, owner: Optimizer, index: int, first: int, count: int) -> None:
        self._owner = owner
        self._index = index
        #: Indices of the group's tensors in the optimizer's lists.
        self.tensors = range(first, first + count)

    def _options(self) -> Any:
        options = native.OptimizerOptions(self._owner._kind)
        self._owner._handle.get_options(self._index, options)
        return options

    def __getitem__(self, key: str) -> Any:
        if key not in self._owner._keys:
            raise KeyError(key)
        return _read(self._options(), key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._owner._keys:
            raise KeyError(key)
        if key in _FLAGS:
            raise ValueError(f"{key} is fixed when the optimizer is made")
        if key == "lr":
            self._owner._handle.set_lr(self._index, real("lr", value), self._owner.stream)
            return
        options = self._options()
        _write(options, key, value)
        self._owner._handle.set_options(self._index, options, self._owner.stream)

    def __delitem__(self, key: str) -> None:
        raise TypeError("hyper-parameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner._keys)

    def __len__(self) -> int:
        return len(self._owner._keys)

    def __repr__(self) -> str:
        return f"ParamGroup({dict(self)!r})"


class Optimizer(Closeable):
    """What all optimizers have; make one of the classes below.

    ``zero_grads=True`` clears the gradients in the same pass as the step, ``write_grads=True`` writes the unscaled and
    clipped gradients back in it. `state` maps slot names to arrays of yours; by default the library makes the state.
    """

    __slots__ = ("params", "grads", "model_copy", "stream", "context", "_kind", "_keys", "_owners", "_groups")

    _KIND = -1
    _KEYS: tuple[str, ...] = ()
    _SLOTS: tuple[str, ...] = ()

    def __init__(self, params: Any, grads: Any, arguments: dict[str, Any], *, model_copy: Any = None,
                 state: Mapping[str, Any] | None = None, device: DeviceLike = None) -> None:
        if self._KIND < 0:
            raise TypeError("Optimizer is a base class; use SGD, Adam, AdamW, Adagrad, Lion or LAMB")
        self._kind = self._KIND
        self._keys = self._KEYS + tuple(flag for flag in ("zero_grads", "write_grads") if flag in arguments)
        options = native.OptimizerOptions(self._kind)
        _apply(options, arguments)
        ranges, params, grads, model_copy = _flatten(params, grads, model_copy)
        writes = bool(options.flags & _WRITING)
        #: What is updated.
        self.params: TensorList = _list_of(params, "params", device, writes_to=True)
        #: The context that everything lies on.
        self.context: Context = self.params.context
        #: The gradients stepped on.
        self.grads: TensorList = _list_of(grads, "grads", self.context, writes_to=writes)
        #: The 16-bit weights written along with the parameters, if any.
        self.model_copy: TensorList | None = (
            None if model_copy is None else _list_of(model_copy, "model_copy", self.context, writes_to=True))
        #: CUDA stream that steps are enqueued on, 0 for the default stream. The producer's, unless you set it.
        self.stream: int = self.params.stream
        slots = self._state_lists(options, state)
        ranges = ranges or [(0, len(self.params), {})]
        group_options = []
        for first, count, overrides in ranges:
            own = native.OptimizerOptions(self._kind)
            _apply(own, {**arguments, **self._checked(overrides)})
            group_options.append((first, count, own))
        lists = [slot._handle for slot in slots] + [None] * (3 - len(slots))
        copy = self.model_copy._handle if self.model_copy else None
        super().__init__(native.Optimizer(self.context._handle, group_options[0][2],
                                          self.params._handle, self.grads._handle, copy, *lists))
        # The memory itself, also when the lists are closed.
        self._owners = [found._keep for found in (self.params, self.grads, self.model_copy, *slots) if found]
        # Ranges only: groups that held their optimizer here would make it garbage to be collected.
        self._groups = [(first, count) for first, count, _ in ranges]
        for first, count, own in group_options[1:]:
            self._h.add_group(first, count, own)

    def _state_lists(self, options: Any, state: Mapping[str, Any] | None) -> list[TensorList]:
        if state is None:
            return []
        wanted = [slot for slot in self._SLOTS if _has_slot(slot, options)]
        if sorted(state) != sorted(wanted):
            raise ValueError(f"state has {sorted(state)}; this optimizer keeps {sorted(wanted)}")
        return [_list_of(state[slot], f"state[{slot!r}]", self.context, writes_to=True) for slot in wanted]

    def _checked(self, overrides: dict[str, Any]) -> dict[str, Any]:
        for key in overrides:
            if key not in self._keys:
                raise ValueError(f"a param group has {key!r}; {type(self).__name__} knows {', '.join(self._keys)}")
        return overrides

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The groups in order, live."""
        return [ParamGroup(self, index, first, count) for index, (first, count) in enumerate(self._groups)]

    @property
    def steps(self) -> int:
        """Steps applied so far. Blocks on a CUDA device."""
        return int(self._handle.steps_applied(self.stream))

    @property
    def skipped_steps(self) -> int:
        """Steps skipped so far. Blocks on a CUDA device."""
        return int(self._handle.steps_skipped(self.stream))

    def step(self) -> None:
        """Applies a step without a scaler: no check, no unscaling."""
        self._handle.step(self.stream)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Sets the gradients to zero. They are your arrays, so they cannot become None."""
        if set_to_none:
            raise ValueError("set_to_none is not possible: the gradients are arrays of yours")
        if self.grads.read_only:
            raise ValueError("grads are read-only")
        self._handle.zero_grads(self.stream)

    @property
    def state(self) -> dict[str, list[Tensor]]:
        """The state tensors by slot, such as ``exp_avg``. They hold the optimizer."""
        found: dict[str, list[Tensor]] = {}
        for slot in range(self._handle.state_count()):
            tensors = []
            for index in range(len(self.params)):
                tensor = native.Tensor()
                self._h.state_tensor(slot, index, tensor)
                tensors.append(native_tensor(tensor, self._h, self.context.device))
            found[self._h.state_name(slot)] = tensors
        return found

    def state_view(self, slot: str, index: int) -> memoryview:
        """State tensor `index` of a slot as a writable view, on the CPU only."""
        if self.context.device != "cpu":
            raise ValueError(f"the state is on {self.context.device}; a view needs the CPU")
        tensors = self.state
        if slot not in tensors:
            raise ValueError(f"slot is {slot!r}; this optimizer keeps {', '.join(tensors)}")
        return host_view(tensors[slot][index])

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs: hyper-parameters, and step counts and state as bytes. Blocks."""
        data = bytearray(self._handle.save_size())
        self._h.save(data, self.stream)
        return {"kind": type(self).__name__, "param_groups": [dict(group) for group in self.param_groups],
                "state": bytes(data)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` gave. Everything is checked first; on error nothing changes. Blocks."""
        try:
            kind, groups, data = state_dict["kind"], state_dict["param_groups"], state_dict["state"]
        except KeyError as error:
            raise ValueError(f"the state dict has no {error}; it is not one of a gradscaler optimizer") from None
        if kind != type(self).__name__:
            raise ValueError(f"the state dict is of {kind}, but this is {type(self).__name__}")
        if len(groups) != len(self._groups):
            raise ValueError(f"the state dict has {len(groups)} param groups, but there are {len(self._groups)}")
        before = [group._options() for group in self.param_groups]
        try:
            for group, values in zip(self.param_groups, groups, strict=True):
                for key in self._keys:
                    if key in _FLAGS and bool(values[key]) != group[key]:
                        raise ValueError(f"the state dict has {key}={values[key]}, but here it is {group[key]}")
                options = group._options()
                _apply(options, {key: values[key] for key in self._keys})
                self._handle.set_options(group._index, options, self.stream)
            self._handle.load(data, self.stream)
        except BaseException as error:
            for index, options in enumerate(before):
                self._h.set_options(index, options, self.stream)
            if isinstance(error, KeyError):
                raise ValueError(f"a param group of the state dict has no {error}") from None
            raise

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} holds addresses and cannot be pickled; pickle its state_dict()")

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<gradscaler.{type(self).__name__} {len(self.params)} tensors, {len(self._groups)} groups{state}>"


def host_view(tensor: Tensor) -> memoryview:
    """Memory of the CPU as a writable view that holds it; 16-bit elements as their bits."""
    code = {"float32": "f", "float64": "d"}.get(tensor.dtype, "H")
    raw = (ctypes.c_char * tensor.nbytes).from_address(tensor.address)
    # A view of the array holds the array, which holds the memory.
    raw._gradscaler_owner = tensor.owner  # type: ignore[attr-defined]
    return memoryview(raw).cast("B").cast(code)  # type: ignore[call-overload, no-any-return]


def _list_of(arrays: Any, argument: str, device: DeviceLike, *, writes_to: bool) -> TensorList:
    if isinstance(arrays, TensorList):
        if writes_to and arrays.read_only:
            raise ValueError(f"{argument} is a read-only list, but it would be written")
        return arrays
    # Gradients are read where nothing asks for them to be written, so that immutable ones will do.
    return TensorList(arrays, device=device, read_only=not writes_to, argument=argument)


def _flatten(params: Any, grads: Any, model_copy: Any) -> tuple[list[tuple[int, int, dict[str, Any]]], Any, Any, Any]:
    """Ranges of the groups, with what each overrides, and the arrays of all groups one after the other."""
    if isinstance(params, (TensorList, Mapping)) or is_array(params):
        groups = None
    else:
        params = list(params)
        groups = params if params and all(isinstance(p, Mapping) and "params" in p for p in params) else None
    if groups is None:
        if grads is None:
            raise TypeError("grads is missing")
        return [], params, grads, model_copy
    if grads is not None or model_copy is not None:
        raise TypeError("with param groups, grads and model_copy belong into the groups")
    ranges: list[tuple[int, int, dict[str, Any]]] = []
    all_params: list[Any] = []
    all_grads: list[Any] = []
    all_copies: list[Any] = []
    for number, group in enumerate(groups):
        rest = dict(group)
        own = _group_arrays(rest.pop("params"))
        if "grads" not in rest:
            raise TypeError(f"param group {number} has no 'grads'")
        ranges.append((len(all_params), len(own), rest))
        all_params += own
        all_grads += _group_arrays(rest.pop("grads"))
        if len(all_grads) != len(all_params):
            raise ValueError(f"param group {number} has different numbers of params and grads")
        all_copies += _group_arrays(rest.pop("model_copy", []))
    if all_copies and len(all_copies) != len(all_params):
        raise ValueError("either every param group or none has a 'model_copy'")
    return ranges, all_params, all_grads, all_copies or None


def _group_arrays(arrays: Any) -> list[Any]:
    if isinstance(arrays, Mapping):
        return list(arrays.values())
    return [arrays] if is_array(arrays) else list(arrays)


def _has_slot(slot: str, options: Any) -> bool:
    if slot == "momentum_buffer":
        return bool(options.momentum)
    return slot != "max_exp_avg_sq" or bool(options.flags & native.OPTIMIZER_AMSGRAD)


def _read(options: Any, key: str) -> Any:
    if key == "betas":
        return (options.beta1, options.beta2)
    if key in _FLAGS:
        return bool(options.flags & _FLAGS[key])
    return getattr(options, key)


def _write(options: Any, key: str, value: Any) -> None:
    if key == "betas":
        try:
            beta1, beta2 = value
        except (TypeError, ValueError):
            raise ValueError(f"betas is {value!r}; it must be two numbers") from None
        options.beta1, options.beta2 = real("betas[0]", beta1), real("betas[1]", beta2)
    elif key in _FLAGS:
        bit = _FLAGS[key]
        options.flags = options.flags | bit if value else options.flags & ~bit
    else:
        setattr(options, key, real(key, value))


def _apply(options: Any, arguments: Mapping[str, Any]) -> None:
    for key, value in arguments.items():
        _write(options, key, value)
