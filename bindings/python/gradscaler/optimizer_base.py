# SPDX-License-Identifier: Apache-2.0
"""The base of the optimizers over arrays: their lists, param groups, steps and state. Checkpoints are in :mod:`.optim`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from . import hyper, state_formats
from ._native import Streamed, integer, native, real
from .arrays import common_stream, leaves_of, native_integers, native_items
from .device import Context, DeviceLike
from .memory import Tensor
from .messages import counted, named_errors
from .param_groups import ListSource, collect_arrays, pair_list, require_like
from .tensors import TensorList, native_tensor

#: The options that most classes take, apart from the hyper-parameters of their kind.
COMMON_KEYS = ("zero_grads", "write_grads", "count_unchanged", "ema_decay", "ema_warmup", "cautious", "cautious_decay",
               "param_min", "param_max")


class ParamGroup(MutableMapping[str, Any]):
    """Hyper-parameters of a range of tensors, live: setting one takes effect with the next step.

    From :attr:`Optimizer.param_groups`. Raises InvalidArgumentError for a value out of range, ValueError for a flag
    such as ``nesterov``.
    """

    def __init__(self, owner: OptimizerBase, index: int, first: int, count: int) -> None:
        self._owner = owner
        self._index = index
        #: Indices of the group's tensors in the optimizer's lists.
        self.tensors = range(first, first + count)

    def _options(self) -> Any:
        options = native.OptimizerOptions(self._owner._kind)
        self._owner._handle.get_options(self._index, options)
        return options

    def __getitem__(self, key: str) -> Any:
        if key == "params":
            raise KeyError(f"{key!r}; the optimizer has them in its `params`, and gradscaler.torch."
                           f"{type(self._owner).__name__} has PyTorch's param groups")
        if key not in self._owner._keys:
            raise KeyError(key)
        return hyper.read(self._options(), key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._owner._keys:
            raise KeyError(f"{key!r}; {type(self._owner).__name__} knows {', '.join(self._owner._keys)}")
        if key in hyper.FLAGS:
            raise ValueError(f"{key} is fixed when the optimizer is made")
        if key == "lr":
            with named_errors():
                self._owner._handle.set_lr(self._index, real("lr", value), self._owner.stream)
            return
        options = self._options()
        hyper.write(options, key, value)
        with named_errors():
            self._owner._handle.set_options(self._index, options, self._owner.stream)

    def __delitem__(self, key: str) -> None:
        raise TypeError("hyper-parameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner._keys)

    def __len__(self) -> int:
        return len(self._owner._keys)

    def __repr__(self) -> str:
        return f"ParamGroup({dict(self)!r})"


class OptimizerBase(Streamed):
    """A native optimizer over lists of arrays. :class:`gradscaler.Optimizer` describes the arguments."""

    __slots__ = ("params", "grads", "model_copy", "context", "_kind", "_keys", "_held_memory", "_group_ranges",
                 "_written_lists", "_steps_taken", "_stepped_rebinds", "_state_and_master", "names")

    _KIND = -1
    _KEYS: tuple[str, ...] = ()
    _SLOTS: tuple[str, ...] = ()

    def __init__(self, params: Any, grads: Any, arguments: dict[str, Any], *, model_copy: Any = None,
                 state: Mapping[str, Any] | str = "fp32", master: str | None = None, seed: int = 0,
                 device: DeviceLike = None) -> None:
        if self._KIND < 0:
            raise TypeError("Optimizer is a base class; use one of gradscaler.optimizers")
        self._kind = self._KIND
        self._keys = self._KEYS + tuple(key for key in COMMON_KEYS if key in arguments)
        if type(grads) in (int, float):
            raise TypeError(f"grads is {type(grads).__name__}, {grads}; pass the learning rate by name, lr={grads}, or"
                            f" use gradscaler.torch.{type(self).__name__}, which has the arguments of torch.optim")
        #: The formats of the state that the library makes, and of masters.
        self._state_and_master = (state if isinstance(state, str) else "fp32", master)

        def options_of(overrides: Mapping[str, Any]) -> Any:
            for key in overrides:
                if key not in self._keys:
                    raise ValueError(f"a param group has {key!r}; {type(self).__name__} knows {', '.join(self._keys)}")
            found = native.OptimizerOptions(self._kind)
            found.state_format = hyper.format_code("state", self._state_and_master[0], hyper.STATE)
            found.master_format = hyper.format_code("master", master, hyper.MASTER)
            found.seed = integer("seed", seed, -(1 << 63), (1 << 63) - 1)
            hyper.apply(found, {**arguments, **overrides})
            return found

        options = options_of({})
        arrays = collect_arrays(params, grads, model_copy)
        writes = bool(options.flags & hyper.WRITING)
        #: What is updated.
        self.params: TensorList = _list_of(arrays.params, "params", device, writes_to=True)
        #: The context that everything lies on.
        self.context: Context = self.params.context
        labels = self.params._named_leaves("params")
        #: The parameters' names: keys, or else positions. State and checkpoints are by name.
        self.names: list[str] = labels.names
        #: The gradients stepped on.
        self.grads: TensorList = _list_of(arrays.grads, "grads", self.context, writes_to=writes)
        #: The 16-bit weights written along with the parameters, if any.
        self.model_copy: TensorList | None = (
            None if arrays.model_copy is None else _list_of(arrays.model_copy, "model_copy", self.context,
                                                           writes_to=True))
        # Steps taken, and the gradients of the last by how often the list had been pointed elsewhere.
        self._steps_taken = 0
        self._stepped_rebinds: int | None = None
        for argument, found in (("grads", self.grads), ("model_copy", self.model_copy)):
            if found is not None:
                require_like(found, argument, self.params)
                streams = [tensor for one in (self.params, found) for tensor in one._tensors
                           if tensor.stream is not None]
                common_stream([*streams[:1], *streams[-1:]], ["params", argument].__getitem__)
        self._stream = self.params._stream
        slots = self._state_lists(options, state)
        ranges = arrays.ranges or [(0, len(self.params), {})]
        group_options = [(first, count, options_of(overrides)) for first, count, overrides in ranges]
        lists = [slot._handle for slot in slots] + [None] * (4 - len(slots))
        copied = self.model_copy
        copy = copied._handle if copied is not None else None
        with named_errors(
                {"state_format": "state", "master_format": "master"},
                params=self.params._labels("params"), grads=self.grads._labels("grads"),
                model_copy=copied._labels("model_copy") if copied is not None else "model_copy",
                state=[slot._labels("state") for slot in slots]):
            super().__init__(native.Optimizer(self.context._handle, group_options[0][2],
                                              self.params._handle, self.grads._handle, copy, *lists))
        # The memory itself, also when the lists are closed.
        self._held_memory = [found._tensors for found in (self.params, self.grads, self.model_copy, *slots) if found]
        written = [self.params, self.model_copy, self.grads if writes else None, *slots]
        self._written_lists = [found for found in written if found is not None]
        # Ranges only: groups that held their optimizer here would make it garbage to be collected.
        self._group_ranges = [(first, count) for first, count, _ in ranges]
        with named_errors():
            for first, count, own in group_options[1:]:
                self._h.add_group(first, count, own)

    def _state_lists(self, options: Any, state: Mapping[str, Any] | str | None) -> list[TensorList]:
        if state is None or isinstance(state, str):
            return []
        wanted = [slot for slot in self._SLOTS if hyper.has_slot(self._kind, slot, options.momentum, options.flags)]
        wanted += [state_formats.EMA] * (options.ema_decay > 0)
        if sorted(state) != sorted(wanted):
            raise ValueError(f"state has {sorted(state)}; this optimizer keeps {sorted(wanted)}")
        found = []
        for slot in wanted:
            argument = f"state[{slot!r}]"
            given = state[slot]
            source = given if isinstance(given, TensorList) else leaves_of(given, argument)
            paired = pair_list(source, argument, self.params, "params")
            found.append(_list_of(paired, argument, self.context, writes_to=True))
            if slot not in state_formats.numbers_per_tensor(self._kind):
                require_like(found[-1], argument, self.params)
        return found

    def _gradients(self) -> TensorList:
        grads = self.grads
        grads._refresh(gradients=True, uses=self._steps_taken if self._stepped_rebinds == grads._rebinds else 0)
        return grads

    def _before_step(self) -> None:
        """Before a step: follows tensors whose memory was replaced, and refuses arrays without another reference.

        Where all arrays are held as they were passed, and can be written, this is done at once.
        """
        grads, params, taken = self.grads, self.params, self._steps_taken
        # With a copy, the masters need no other reference.
        read = params if self.model_copy is None else self.model_copy
        if not (taken >= grads._next_count or taken >= read._next_count or grads._torch_indices
                or params._torch_indices or read._torch_indices or grads._immutable is not None):
            return
        self._gradients()
        if taken:
            read._require_readers(taken)
        params._refresh()
        read._refresh()

    def _after_step(self) -> None:
        self._stepped_rebinds = self.grads._rebinds
        self._steps_taken += 1
        for found in self._written_lists:
            if found._torch_indices:
                found._mark_written()

    @property
    def param_groups(self) -> tuple[ParamGroup, ...]:
        """The groups in order, live. Their number is fixed when the optimizer is made."""
        return tuple(ParamGroup(self, index, first, count) for index, (first, count) in enumerate(self._group_ranges))

    @property
    def steps(self) -> int:
        """Steps applied so far, which bias corrections use; may be set. Blocks on a CUDA device."""
        return int(self._handle.steps_applied(self.stream))

    @steps.setter
    def steps(self, value: int) -> None:
        self._handle.set_steps(integer("steps", value, 0, 1 << 53), self.skipped_steps, self.stream)

    @property
    def tensor_steps(self) -> list[int]:
        """Steps applied so far in which each tensor was present; may be set. Blocks on a CUDA device."""
        return native_items(self._handle.tensor_steps(self.stream))

    @tensor_steps.setter
    def tensor_steps(self, values: Sequence[int]) -> None:
        with named_errors(steps=self.params._labels("params")):
            self._handle.set_tensor_steps(native_integers(integer(f"tensor_steps[{i}]", value, 0, 1 << 53)
                                                  for i, value in enumerate(values)), self.stream)

    @property
    def unchanged(self) -> int:
        """Elements whose parameter an applied step left as it was, summed over the steps. 0 without
        ``count_unchanged=True``. If nearly all are, updates are too small for the parameters' format. Blocks on a CUDA
        device.
        """
        return int(self._handle.unchanged(self.stream))

    @property
    def skipped_steps(self) -> int:
        """Steps skipped so far. Blocks on a CUDA device."""
        return int(self._handle.steps_skipped(self.stream))

    def step(self) -> None:
        """Applies a step without a scaler: no check, no unscaling.

        Raises InvalidArgumentError for an array that nothing else holds, since its result would be lost; BadStateError
        if a scaler has checked the gradients and not unscaled them, or a clip is pending.
        """
        self._before_step()
        self._handle.step(self._stream)
        self._after_step()

    def eval(self) -> None:
        """Takes the parameters of a Schedule-Free optimizer, and model copies, to the averaged weights.

        Evaluate and save the model with these. Steps fail until :meth:`train`.
        """
        self._set_evaluating(True)

    def train(self) -> None:
        """Takes the parameters of a Schedule-Free optimizer back to those at which gradients are taken."""
        self._set_evaluating(False)

    def _set_evaluating(self, evaluating: bool) -> None:
        self._before_step()
        self._handle.set_evaluating(int(evaluating), self.stream)
        for found in self._written_lists:
            found._mark_written()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Sets the gradients to zero, in the optimizer's stream. ValueError for gradients that are read-only, and for
        `set_to_none`."""
        if set_to_none:
            raise ValueError("set_to_none is not possible: the gradients are arrays of yours")
        if self.grads.read_only:
            raise ValueError("grads are read-only")
        self._gradients()
        self._handle.zero_grads(self.stream)
        self.grads._mark_written()

    @property
    def state(self) -> dict[str, list[Tensor]]:
        """The state tensors by slot, such as ``exp_avg``. They keep the optimizer alive. ``exp_avg_scale`` has the
        scales of codes."""
        found: dict[str, list[Tensor]] = {}
        for slot in range(self._handle.state_count()):
            name = self._h.state_name(slot)
            for index, like in enumerate(self.params._tensors):
                tensor = native.Tensor()
                self._h.state_tensor(slot, index, tensor)
                found.setdefault(name, []).append(native_tensor(tensor, self._h, self.context.device, like))
                if tensor.dtype in state_formats.SCALES:
                    scales = state_formats.groups_of(tensor.count)
                    found.setdefault(name + state_formats.SCALE, []).append(Tensor(
                        self._h.state_scales(slot, index), scales, state_formats.SCALES[tensor.dtype],
                        self.context.device, owner=self._h, shape=(scales,)))
        return found

    def _slot_dtypes(self) -> dict[str, int]:
        found, tensor = {}, native.Tensor()
        for slot in range(self._handle.state_count() if len(self.params) else 0):
            self._h.state_tensor(slot, 0, tensor)
            found[self._h.state_name(slot)] = int(tensor.dtype)
        return found

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} holds addresses and cannot be pickled; pickle its state_dict()")

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return (f"<gradscaler.{type(self).__name__} {counted(len(self.params), 'tensor')},"
                f" {counted(len(self._group_ranges), 'group')}{state}>")


def _list_of(arrays: ListSource, argument: str, device: DeviceLike, *, writes_to: bool) -> TensorList:
    if isinstance(arrays, TensorList):
        if writes_to and arrays.read_only:
            raise ValueError(f"{argument} is a read-only list, but it would be written")
        return arrays
    # Gradients are read where nothing asks for them to be written, so that immutable ones will do.
    return TensorList(arrays, device=device, read_only=not writes_to, argument=argument)
