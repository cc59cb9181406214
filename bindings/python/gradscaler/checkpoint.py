# SPDX-License-Identifier: Apache-2.0
"""OptimizerBase state as arrays by name, for torch.save, safetensors, npz and Orbax, and back.

A state array is called ``<slot>.<parameter>``, such as ``exp_avg.layer.weight``. ``steps`` and ``skipped_steps`` are
numbers, and so is ``steps.<parameter>``, for a parameter that was absent from some steps, and ``codes`` beside codes.
Everything is checked before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import hyper, state_formats, torch_memory
from ._native import integer, native
from .array_factories import StandardArrays, factory_of, other_order
from .array_protocols import inspect_array
from .arrays import as_tensor, tensor_array
from .errors import BadStateError, InvalidArgumentError
from .memory import SIZES, Tensor, same_order
from .messages import counted
from .optimizer_base import COMMON_KEYS, OptimizerBase
from .scale_outputs import is_cupy

#: Saved names to those of here, or a function that maps them.
Rename = Mapping[str, str] | Callable[[str], str] | None

_COUNTS = ("steps", "skipped_steps")
#: Saved with state that has scales: by it codes of squares are known from those of an earlier version, which may have
#: the same dtypes.
_CODES, _CODES_OF_NOW = "codes", 2
_MOST = 1 << 53
#: Dtypes that arrays of every library have.
_FLOATING = (native.FP32, native.FP64)


def save(optimizer: OptimizerBase, full: bool = False) -> dict[str, Any]:
    """Copies of all state. With `full` codes become float32, and remainders are left out."""
    _require_training(optimizer)
    factory = factory_of(optimizer.params, optimizer.context.device)
    sources, source_dtypes = _state_tensors(optimizer), optimizer._slot_dtypes()
    targets, target_dtypes = sources, source_dtypes
    if full:
        target_dtypes = {slot: code if code == native.FP64 else native.FP32 for slot, code in source_dtypes.items()
                         if slot != state_formats.REMAINDER}
        targets = {name: tensor if tensor.dtype == "float64" else replace(tensor, dtype="float32")
                   for name, tensor in sources.items() if name.partition(".")[0] in target_dtypes}
    copies = {name: factory.empty(tensor) for name, tensor in targets.items()}
    factory.synchronize(optimizer.context.device)
    _copy(optimizer, sources, source_dtypes, {name: _inspected(copy, name) for name, copy in copies.items()},
          target_dtypes)
    # After the copies, whose stream these wait for.
    applied = optimizer.steps
    found: dict[str, Any] = {"steps": factory.number(applied), "skipped_steps": factory.number(optimizer.skipped_steps)}
    found.update({f"steps.{name}": factory.number(steps)
                  for name, steps in zip(optimizer.names, optimizer.tensor_steps, strict=True) if steps != applied})
    if any(map(_is_scale, targets)):
        found[_CODES] = factory.number(_CODES_OF_NOW)
    for name in targets:
        # One after the other, so that there are never two copies of all.
        found[name] = factory.contiguous(copies.pop(name))
    return found


def load(optimizer: OptimizerBase, arrays: Mapping[str, Any], rename: Rename, argument: str) -> None:
    """Restores the arrays of :func:`save`, paired by name, in any order."""
    _require_training(optimizer)
    if not hasattr(arrays, "items"):
        raise InvalidArgumentError(f"{argument} is {type(arrays).__name__}; it must be a mapping from names to arrays")
    given = _renamed(arrays, rename, argument)
    targets = {name: tensor for name, tensor in _state_tensors(optimizer).items() if not _is_scale(name)}
    # Scales go with their slots, and masters may begin as their weights.
    of_slot = {name for name in given if _is_scale(name) and name.replace(state_formats.SCALE + ".", ".", 1) in targets}
    optional = {name for name in targets if name.startswith(state_formats.REMAINDER + ".")}
    known = {*_COUNTS, _CODES, *targets, *of_slot, *(f"steps.{name}" for name in optimizer.names)}
    missing = [name for name in [*_COUNTS[:1], *targets] if name not in given and name not in optional]
    unknown = [name for name in given if name not in known]
    if missing:
        extra = f"; unknown there is {unknown[0]!r}" if unknown else ""
        raise InvalidArgumentError(f"{argument}[{missing[0]!r}] is missing{extra}; parameters that were renamed need"
                                   " rename=")
    if unknown:
        raise InvalidArgumentError(f"{argument}[{unknown[0]!r}] is unknown: this optimizer has no such state")
    is_of_now = integer(f"{argument}[{_CODES!r}]", given.get(_CODES, 0), 0, _MOST) == _CODES_OF_NOW
    counts = [integer(f"{argument}[{name!r}]", given.get(name, 0), 0, _MOST) for name in _COUNTS]
    each = [integer(f"{argument}['steps.{name}']", given[f"steps.{name}"], 0, counts[0])
            if f"steps.{name}" in given else counts[0] for name in optimizer.names]
    factory = factory_of(optimizer.params, optimizer.context.device)
    target_dtypes, staged = optimizer._slot_dtypes(), {}
    for name, tensor in targets.items():
        scales = given.get(_scales_of(name))
        if target_dtypes[name.partition(".")[0]] in _FLOATING and scales is None and not _has_bits(given[name]):
            staged[name] = _in_parameter_order(given[name], tensor, f"{argument}[{name!r}]", factory, optimizer)
        else:
            staged.update(_in_slot_format(given.get(name), scales, name, tensor, f"{argument}[{name!r}]", factory,
                                          optimizer, is_of_now))
    factory.synchronize(optimizer.context.device)
    # From here on nothing can be wrong.
    _copy(optimizer, {name: _inspected(value, argument) for name, value in staged.items()}, target_dtypes,
          _state_tensors(optimizer), target_dtypes)
    optimizer._handle.set_steps(*counts, optimizer.stream)
    if any(steps != counts[0] for steps in each):
        # The largest count of a tensor may be less than that of the optimizer.
        optimizer.tensor_steps = each
    _wait(optimizer)


def load_groups(optimizer: OptimizerBase, saved: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any],
                rename: Rename) -> None:
    """Restores param groups and the arrays of :func:`save`, paired by the names of the parameters. On error nothing
    changes."""
    if len(saved) != len(optimizer._group_ranges):
        raise ValueError(f"the state dict has {counted(len(saved), 'param group')}, but the optimizer has"
                         f" {len(optimizer._group_ranges)}")
    by_names = {}
    for number, values in enumerate(saved):
        if "params" not in values:
            raise ValueError(f"param group {number} of the state dict has no 'params'")
        by_names[frozenset(renamed(name, rename) for name in values["params"])] = values
    before = [group._options() for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            names = frozenset(optimizer.names[index] for index in group.tensors)
            if names not in by_names:
                raise ValueError(f"the state dict has no param group of {sorted(names)}; parameters that were"
                                 " renamed need rename=")
            values = by_names[names]
            for key in optimizer._keys:
                if key in hyper.FLAGS and key in values and bool(values[key]) != group[key]:
                    raise ValueError(f"the state dict has {key}={values[key]}, but here it is {group[key]}")
            options = group._options()
            hyper.apply(options, {key: values[key] for key in optimizer._keys
                                  if key not in hyper.FLAGS and (key in values or key not in COMMON_KEYS)})
            optimizer._handle.set_options(group._index, options, optimizer.stream)
        load(optimizer, arrays, rename, "state_dict['state']")
    except BaseException as error:
        for index, options in enumerate(before):
            optimizer._h.set_options(index, options, optimizer.stream)
        if isinstance(error, KeyError):
            raise ValueError(f"a param group of the state dict has no {error}") from None
        raise


def require_param_groups(state_dict: Mapping[str, Any]) -> None:
    """TypeError unless the param groups of a state dict are a list of mappings, with parameters in lists."""
    groups = state_dict["param_groups"] if "param_groups" in state_dict else []
    if not isinstance(groups, (list, tuple)):
        raise TypeError(f"state_dict['param_groups'] is {type(groups).__name__}; it must be a list")
    for number, group in enumerate(groups):
        if not hasattr(group, "keys"):
            raise TypeError(f"state_dict['param_groups'][{number}] is {type(group).__name__}; it must be a mapping")
        if "params" in group and not isinstance(group["params"], (list, tuple)):
            raise TypeError(f"state_dict['param_groups'][{number}]['params'] is {type(group['params']).__name__}; it"
                            " must be a list")


def _require_training(optimizer: OptimizerBase) -> None:
    if optimizer._handle.evaluating():
        raise BadStateError("the parameters are averaged weights; call train() before state is saved or loaded")


def _state_tensors(optimizer: OptimizerBase) -> dict[str, Tensor]:
    return {f"{slot}.{name}": tensor for slot, found in optimizer.state.items()
            for name, tensor in zip(optimizer.names, found, strict=True)}


def _has_bits(value: Any) -> bool:
    """Returns whether an array has the bits of bfloat16, which NumPy does not have."""
    return getattr(value, "typecode", str(getattr(value, "dtype", ""))) in ("H", "uint16")


def _is_scale(name: str) -> bool:
    return name.partition(".")[0].endswith(state_formats.SCALE)


def _scales_of(name: str) -> str:
    return name.replace(".", state_formats.SCALE + ".", 1)


def _inspected(value: Any, argument: str, writable: bool = True) -> Tensor:
    return inspect_array(value, argument, None, writable, None)


def _copy(optimizer: OptimizerBase, sources: Mapping[str, Tensor], source_dtypes: Mapping[str, int],
          targets: Mapping[str, Tensor], target_dtypes: Mapping[str, int]) -> None:
    """Copies state from slots of `source_dtypes` into slots of `target_dtypes`, with their scales."""

    def array(tensors: Mapping[str, Tensor], name: str, code: int) -> Any:
        tensor, scales = tensors[name], tensors.get(_scales_of(name))
        return state_formats.state_array(tensor.address, tensor.count, code, None if scales is None else scales.address)

    plain = []
    for name in targets:
        slot = name.partition(".")[0]
        if _is_scale(name):
            continue
        if source_dtypes[slot] in _FLOATING and target_dtypes[slot] in _FLOATING:
            plain.append(name)
        else:
            optimizer.context._handle.convert_state(array(sources, name, source_dtypes[slot]), None,
                                                    array(targets, name, target_dtypes[slot]), optimizer.stream)
    _cast(optimizer, [sources[name] for name in plain], [targets[name] for name in plain])


def _in_slot_format(value: Any, scales: Any, name: str, target: Tensor, argument: str, factory: StandardArrays,
                    optimizer: OptimizerBase, is_of_now: bool) -> dict[str, Any]:
    """A slot in the format that the optimizer has it in, of what was saved in any; None is zeros. `is_of_now` says that
    its codes are."""
    slot, target_dtypes = name.partition(".")[0], optimizer._slot_dtypes()
    found = {name: factory.empty(target)}
    if target_dtypes[slot] in state_formats.SCALES:
        groups, dtype = state_formats.groups_of(target.count), state_formats.SCALES[target_dtypes[slot]]
        found[_scales_of(name)] = factory.empty(Tensor(0, groups, dtype, target.device, shape=(groups,)))
    if value is None:
        if hasattr(found[name], "shape"):
            found[name][...] = 0
        return found
    value, scales = (None if each is None else _on_device(each, target.device, factory) for each in (value, scales))
    source = _inspected(value, argument, writable=False)
    _require_shape(source, target, argument)
    if not same_order(source, target):
        raise other_order(argument)
    sources, found_scales, scale_dtype, fits = {name: source}, "", None, True
    if scales is not None:
        scale_tensor = sources[_scales_of(name)] = _inspected(scales, argument, writable=False)
        scale_dtype, fits = scale_tensor.dtype, scale_tensor.count == state_formats.groups_of(source.count)
        found_scales = f" and {scale_tensor.count} scales of {scale_dtype}"
    code = state_formats.saved_code(optimizer._kind, slot, source.dtype, scale_dtype)
    if scales is not None and not is_of_now and (
            state_formats.code_in(optimizer._kind, slot, source.dtype) in state_formats.SQUARES):
        raise TypeError(f"{argument} are {state_formats.EARLIER}")
    if code is None or not fits:
        raise TypeError(f"{argument} has dtype {source.dtype}{found_scales}, which is no format of {slot}")
    factory.synchronize(target.device)
    _copy(optimizer, sources, {slot: code}, {key: _inspected(each, argument) for key, each in found.items()},
          target_dtypes)
    _wait(optimizer)
    return found


def _require_shape(found: Tensor, target: Tensor, argument: str) -> None:
    if found.count != target.count or None not in (found.shape, target.shape) and found.shape != target.shape:
        raise InvalidArgumentError(f"{argument} has shape {found.shape}, but the parameter has {target.shape}")


def _on_device(value: Any, device: str, factory: StandardArrays) -> Any:
    if torch_memory.is_torch(value):
        return value.detach().to(device)
    if is_cupy(value):
        return value.get() if device == "cpu" else value
    return value if device == "cpu" else factory.on_device(value, device)


def _cast(optimizer: OptimizerBase, sources: list[Tensor], targets: list[Tensor]) -> None:
    optimizer.context._handle.cast(tensor_array(sources), tensor_array(targets), optimizer.stream)


def _wait(optimizer: OptimizerBase) -> None:
    """The library of the arrays may free what was read, and fill it, in another stream."""
    if optimizer.context.device != "cpu":
        _ = optimizer.steps


def _renamed(arrays: Mapping[str, Any], rename: Rename, argument: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in arrays.items():
        name = str(key)
        slot, dot, parameter = name.partition(".")
        if dot and rename is not None:
            name = f"{slot}.{renamed(parameter, rename)}"
        if name in found:
            raise InvalidArgumentError(f"rename makes two entries of {argument} {name!r}")
        found[name] = value
    return found


def renamed(name: str, rename: Rename) -> str:
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def _in_parameter_order(value: Any, target: Tensor, argument: str, factory: StandardArrays,
                        optimizer: OptimizerBase) -> Any:
    """A copy of `value` in the dtype and order of `target`, on its device; only exact conversions."""
    if torch_memory.is_torch(value):
        value = value.detach().to(target.device)
    elif is_cupy(value) and target.device == "cpu":
        value = value.get()
    found = as_tensor(value, argument=argument, writable=False, any_order=True)
    _require_shape(found, target, argument)
    if SIZES[found.dtype] > SIZES[target.dtype]:
        raise TypeError(f"{argument} has dtype {found.dtype}, which does not fit into {target.dtype}")
    if found.device == "cpu" != target.device:
        value = factory.on_device(value, target.device)
        found = as_tensor(value, argument=argument, writable=False, any_order=True)
    if found.device != target.device:
        raise ValueError(f"{argument} is on {found.device}; it must be on {target.device}")
    copy = factory.empty(target)
    if same_order(found, target):
        factory.synchronize(target.device)
        _cast(optimizer, [found], [_inspected(copy, argument)])
        _wait(optimizer)
    else:
        factory.fill(copy, value, argument)
    return copy
