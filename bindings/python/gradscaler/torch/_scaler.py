# SPDX-License-Identifier: Apache-2.0
"""The drop-in for ``torch.amp.GradScaler``; users import it from :mod:`gradscaler.torch`."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.amp.grad_scaler import OptState  # type: ignore[import-not-found, unused-ignore]

from .. import torch_memory
from .._native import native
from ..device import Context
from ._held import is_counted
from ._optim import FusedOptimizer, label_of, untraced
from ._shards import dtensor, is_flattened, mesh_groups, overflow_groups
from ._threads import context_of

_CODES = {torch.float16: native.FP16, torch.bfloat16: native.BF16, torch.float32: native.FP32,
          torch.float64: native.FP64}


class GradScaler(torch.amp.GradScaler):  # type: ignore[misc, unused-ignore]
    """``torch.amp.GradScaler`` on this library's kernels; see PyTorch's documentation of it."""

    # found_inf of each optimizer's last step, which stays where it is until somebody asks.
    _found: weakref.WeakKeyDictionary[Any, list[Any]] | None = None

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients of `optimizer` and steps, unless one of them is inf or NaN.

        `args` and `kwargs` go to its ``step``, whose result is returned. Errors are those of ``torch.amp.GradScaler``.
        """
        if isinstance(optimizer, FusedOptimizer):
            done = self._step_fused(optimizer, args, kwargs)
        else:
            done = super().step(optimizer, *args, **kwargs)
        if self._enabled:
            this: Any = self
            if self._found is None:
                self._found = weakref.WeakKeyDictionary()
            self._found[optimizer] = list(this._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
        return done

    def _step_fused(self, optimizer: FusedOptimizer, args: Any, kwargs: Any) -> Any:
        optimizer._check, optimizer._skips_outside = None, True
        try:
            return None if self._is_skipped(optimizer) else super().step(optimizer, *args, **kwargs)
        finally:
            # If the step was not reached, the next one must not go by this check.
            optimizer._check, optimizer._skips_outside = None, False

    def _is_skipped(self, optimizer: FusedOptimizer) -> bool:
        """Whether a step that is counted must not be called. Waits for a CUDA device if it is."""
        if not self._enabled or not is_counted(optimizer) or not optimizer._step_supports_amp_scaling:
            return False
        this: Any = self
        state = this._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        elif state["stage"] is OptState.STEPPED:
            # PyTorch has the error for it.
            return False
        found = [flag for flag in state["found_inf_per_device"].values() if bool(flag)]
        if found:
            optimizer._skip(found[0])
            state["stage"] = OptState.STEPPED
        return bool(found)

    def applied(self, optimizer: Any) -> bool:
        """Whether the last :meth:`step` of `optimizer` was applied, and not skipped; also after :meth:`update`.

        Waits for a CUDA device, and nothing here does before. ValueError if this scaler has not stepped on it yet: of
        an optimizer that a trainer has wrapped, pass the original.
        """
        if not self._enabled:
            return True
        found = None if self._found is None else self._found.get(optimizer)
        if found is None:
            raise ValueError(f"this scaler has taken no step of that {type(optimizer).__name__} yet")
        return not any(bool(flag) for flag in found)

    def overflowed(self, optimizer: Any) -> tuple[str, ...]:
        """The parameters of `optimizer` whose ``.grad`` has an inf or NaN now, in their order. Waits for the device.

        Ask before ``zero_grad()``. They are called by name if the optimizer was made of ``named_parameters()``. An
        optimizer of this module has more in its ``report()``, at any time.
        """
        return tuple(label_of(group, number, position)
                     for number, group in enumerate(optimizer.param_groups)
                     for position, param in enumerate(group["params"])
                     if param.grad is not None and not bool(_values(param.grad).isfinite().all()))

    def __repr__(self) -> str:
        disabled = "" if self._enabled else " disabled"
        return f"<gradscaler.torch.GradScaler scale={self.get_scale():g}{disabled}>"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_found", None)
        return state

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        return _readable(self._unscaled(optimizer, inv_scale, found_inf, allow_fp16), found_inf.device)

    def _unscaled(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        grads = _grads_by_device(optimizer, allow_fp16)
        shards = {device: [_local(grad) for grad in found] for device, found in grads.items()}
        if any(_context(device) is None for device in grads) or any(
                grad is None or grad.dtype not in _CODES for found in shards.values() for grad in found):
            # PyTorch knows what the library does not: other devices, dtypes and subclasses of tensors.
            return dict(super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16))
        flags = {}
        with torch.no_grad():
            for device, found in grads.items():
                here = inv_scale.device == device
                flag = found_inf if here else found_inf.to(device, copy=True)
                factor = inv_scale if here else inv_scale.to(device)
                _unscale(shards[device], flag, factor)
                _reduce(found, flag)
                flags[device] = flag
        return flags

    def _check_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        if not isinstance(optimizer, FusedOptimizer) or not self._enabled:
            return dict(super()._check_inf_per_device(optimizer))
        # The optimizer's own check reads the gradients and leaves them as they are.
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        found: Any = _readable(optimizer._check_gradients(scale), scale.device)
        this: Any = self
        this._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found  # type: ignore[no-any-return]

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    def update(self, new_scale: Any = None) -> None:
        """Ends the iteration, or with `new_scale` replaces the scale."""
        if not self._enabled or new_scale is not None:
            super().update(new_scale)
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        # PyTorch's attribute, whose type it keeps to itself.
        this: Any = self
        flags = [flag for state in this._per_optimizer_states.values()
                 for flag in state["found_inf_per_device"].values()]
        if _context(scale.device) is None or not flags:
            # Without flags PyTorch raises what its users expect.
            super().update()
            return
        found_inf = torch.stack([flag.to(scale.device, non_blocking=True) for flag in flags]).sum()
        _update(scale, tracker, found_inf, self._growth_factor, self._backoff_factor, self._growth_interval)
        # Every optimizer is ready again; PyTorch's own factory keeps the scaler picklable.
        this._per_optimizer_states = defaultdict(this._per_optimizer_states.default_factory)


def _readable(flags: dict[Any, Any], device: Any) -> dict[Any, Any]:
    """Flags that PyTorch may copy to the scale's `device` without waiting, and read there at once.

    A scale is on the CPU if the first loss was; to there such a copy would be read before it is done.
    """
    return flags if device.type != "cpu" else {key: flag.cpu() for key, flag in flags.items()}


def _context(device: Any) -> Context | None:
    """The library's context of a device; None if it has none."""
    if device.type == "cpu":
        return context_of("cpu")
    if device.type == "cuda" and torch.version.hip is None and device.index < native.device_count(native.DEVICE_CUDA):
        return context_of(f"cuda:{device.index}")
    return None


def _stream(device: Any) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0


def _grads_by_device(optimizer: Any, allow_fp16: bool) -> dict[Any, list[Any]]:
    """All gradients of an optimizer, the values alone of sparse ones."""
    found: dict[Any, list[Any]] = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if is_flattened(param):
                raise ValueError("optimizer has a parameter that FullyShardedDataParallel has flattened, and its ranks"
                                 " would not agree on inf; use ShardedGradScaler of torch.distributed.fsdp, or"
                                 " fully_shard (FSDP2)")
            if grad.dtype == torch.float16 and not allow_fp16:
                raise ValueError("Attempting to unscale FP16 gradients.")
            if grad.is_sparse:
                # Duplicates add up, and in fp16 their sum may be what overflows.
                if grad.dtype == torch.float16:
                    grad = param.grad = grad.coalesce()
                grad = grad._values()
            found.setdefault(grad.device, []).append(grad)
    return found


def _local(grad: Any) -> Any:
    """The plain tensor to work on: the gradient, or this rank's shard of a DTensor; None for other subclasses."""
    if type(grad) is dtensor():
        grad = grad.to_local()
    return grad if torch_memory.is_plain(grad) else None


def _reduce(grads: list[Any], found_inf: Any) -> None:
    """The largest `found_inf` of the ranks that hold other parts of the same gradients, or replicas.

    PyTorch's leaves replicas out, which then differ for ever if one alone finds an inf.
    """
    groups = {id(group): group for grad in grads if not torch_memory.is_plain(grad) for group in mesh_groups(grad)}
    overflow_groups(groups.values(), found_inf)


def _values(grad: Any) -> Any:
    """The elements of a gradient that this rank has."""
    grad = grad.coalesce().values() if grad.is_sparse else grad
    return grad.to_local() if hasattr(grad, "to_local") else grad


def _is_dense(grad: Any) -> bool:
    """Whether the elements, and not their negatives, fill one piece of memory, in whatever order."""
    channels_last = grad.dim() == 4 and grad.is_contiguous(memory_format=torch.channels_last)
    return bool((grad.is_contiguous() or channels_last) and not grad.is_neg())


def _unscale(grads: list[Any], found_inf: Any, inv_scale: Any) -> None:
    """What torch._amp_foreach_non_finite_check_and_unscale_ does, on a device that the library has."""
    copies: list[tuple[Any, Any]] = []
    array = native.TensorArray(len(grads))
    for grad in grads:
        target = grad
        if not _is_dense(grad):
            target = grad.resolve_neg().contiguous()
            copies.append((grad, target))
        array.add(target.data_ptr(), target.numel(), _CODES[target.dtype], None)
    context: Any = _context(found_inf.device)
    context._handle.unscale_check(array, found_inf.data_ptr(), inv_scale.data_ptr(), _stream(found_inf.device))
    for grad, copy in copies:
        grad.copy_(copy)
    torch.autograd.graph.increment_version([*grads, found_inf])


def _update(scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int) -> None:
    """What torch._amp_update_scale_ does, on a device that the library has."""
    context: Any = _context(scale.device)
    context._handle.update_scale(scale.data_ptr(), tracker.data_ptr(), found_inf.data_ptr(), growth, backoff, interval,
                                 _stream(scale.device))
