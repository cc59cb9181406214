# SPDX-License-Identifier: Apache-2.0
"""The drop-in for ``torch.amp.GradScaler``; users import it from :mod:`gradscaler.torch`."""

from __future__ import annotations

import math
import warnings
import weakref
from collections import defaultdict
from dataclasses import replace
from typing import Any, Literal

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.amp.grad_scaler import OptState  # type: ignore[import-not-found, unused-ignore]

from .. import policy as _policy
from .. import torch_memory
from .._native import native
from ..arrays import gradients_of
from ..device import Context, default_context
from ..errors import ReportError, UnavailableError
from ..messages import named_errors
from ..optim import Optimizer
from ..policy import Unpack
from ..report import HistoryEntry, Report, report_of
from ..tensors import TensorList
from ._contexts import context_of, stream_of
from ._grad_check import Totals, is_underflowed
from ._optim import NO_CLOSURE, FusedOptimizer, not_compiled
from ._param_groups import labelled_params, param_label
from ._references import is_step_counted
from ._scale_updater import ScaleUpdater, is_torch_policy
from ._shards import all_reduce_found_inf, dtensor, is_flattened, mesh_groups
from ._state_formats import DTYPE_CODES


class GradScaler(torch.amp.GradScaler):  # type: ignore[misc, unused-ignore]
    """``torch.amp.GradScaler`` on this library's kernels; see PyTorch's documentation of it.

    `device`, `init_scale`, `growth_factor`, `backoff_factor`, `growth_interval` and `enabled` are PyTorch's arguments,
    `policy` the options of :class:`gradscaler.policy.Policy`, by default PyTorch's. InvalidArgumentError and TypeError
    name one that is out of range or unknown. :meth:`from_preset` has the policies of other systems.
    """

    # found_inf of each optimizer's last step, on the device until it is asked for.
    _found_inf_of: weakref.WeakKeyDictionary[Any, list[Any]] | None = None
    # Those of the iteration under way, or of the last one.
    _recent_optimizers: list[weakref.ref[Any]] = []
    _iteration_is_over = True
    # Options beyond PyTorch's, and the first scale that they were checked with.
    _extra_options: dict[str, Any] = {}
    # What updates the scale, from the first update on, and the counters that it is to begin with.
    _updater: ScaleUpdater | None = None
    _counters: dict[str, int] | None = None
    _warned = False
    _warned_of_no_gradients = False
    # Whether a state was loaded, so that there is a scale before the first loss.
    _has_loaded = False

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool | Literal["check"] = True,
                 **policy: Unpack[_policy.Policy]) -> None:
        plain = _policy.describe(native.ScalerOptions())
        for name, value in policy.items():
            if name.startswith(("skip_", "spike_")) and value != plain.get(name):
                raise TypeError(f"{name} is an argument of the optimizers of gradscaler.torch, which measure the norm;"
                                " they skip by it under any GradScaler, and without one")
        if isinstance(enabled, str) and enabled == "check":
            enabled, init_scale, policy["static_scale"] = True, 1.0, True
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        if policy:
            self._extra_options = {"init_scale": init_scale, **policy}
            with named_errors():
                # Checks them.
                native.Scaler(default_context("cpu")._handle, self._native_options(growth_factor, backoff_factor,
                                                                                   growth_interval))

    @classmethod
    def from_preset(cls, preset: _policy.Preset, *, device: str = "cuda", **overrides: Any) -> GradScaler:
        """As :meth:`gradscaler.GradScaler.from_preset`, of the same `preset`, `device` and `overrides`."""
        return cls(device, **_policy.of_preset(preset, overrides))

    def _native_options(self, growth_factor: float, backoff_factor: float, growth_interval: int) -> Any:
        options = native.ScalerOptions()
        _policy.apply(options, {**self._extra_options, "growth_factor": growth_factor, "backoff_factor": backoff_factor,
                                "growth_interval": growth_interval})
        return options

    @property
    def options(self) -> dict[str, Any]:
        """All options, as the constructor takes them; of PyTorch's, what they are now."""
        if not self._enabled:
            return {**_policy.describe(native.ScalerOptions()), "enabled": False}
        found = _policy.describe(self._native_options(*self._factors()))
        return {**found, "init_scale": self._extra_options.get("init_scale", self._init_scale)}

    def _factors(self) -> tuple[float, float, int]:
        return self._growth_factor, self._backoff_factor, self._growth_interval

    @not_compiled  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients of `optimizer` and steps, unless one of them is inf or NaN.

        `args` and `kwargs` go to its ``step``, whose result is returned. Errors are those of ``torch.amp.GradScaler``,
        and a closure is refused by position, too.
        """
        _require_torch_optimizer(optimizer)
        if self._enabled and any(map(callable, args)):
            raise RuntimeError(NO_CLOSURE)
        if isinstance(optimizer, FusedOptimizer):
            done = self._step_fused(optimizer, args, kwargs)
        else:
            done = super().step(optimizer, *args, **kwargs)
        if self._enabled:
            if self._found_inf_of is None:
                self._found_inf_of = weakref.WeakKeyDictionary()
            state = self._per_optimizer_states[id(optimizer)]
            self._found_inf_of[optimizer] = list(state["found_inf_per_device"].values())
            recent = [] if self._iteration_is_over else self._recent_optimizers
            self._recent_optimizers = [*recent, weakref.ref(optimizer)]
            self._iteration_is_over = False
        return done

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of `optimizer` by the scale in place, as PyTorch's class does."""
        _require_torch_optimizer(optimizer)
        super().unscale_(optimizer)

    def _step_fused(self, optimizer: FusedOptimizer, args: Any, kwargs: Any) -> Any:
        optimizer._grad_check, optimizer._skip_is_external = None, True
        try:
            return None if self._is_skipped(optimizer) else super().step(optimizer, *args, **kwargs)
        finally:
            # If the step was not reached, the next one must not go by this check.
            optimizer._grad_check, optimizer._skip_is_external, optimizer._bound_grads = None, False, []

    def _is_skipped(self, optimizer: FusedOptimizer) -> bool:
        """Returns whether a step that is counted must not be called. Waits for a CUDA device if it is."""
        if not self._enabled or not is_step_counted(optimizer) or not optimizer._step_supports_amp_scaling:
            return False
        state = self._per_optimizer_states[id(optimizer)]
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
        """Returns whether the last :meth:`step` of `optimizer` was applied, and not skipped; also after :meth:`update`.

        Waits for a CUDA device. Raises ValueError if this scaler has not stepped on it yet. If a trainer has wrapped
        the optimizer, pass the original.
        """
        if not self._enabled:
            return True
        found = (self._found_inf_of or {}).get(optimizer)
        if found is None:
            raise ValueError(f"this scaler has taken no step of that {type(optimizer).__name__} yet")
        is_skipped = isinstance(optimizer, FusedOptimizer) and not optimizer.applied
        return not is_skipped and not self._overflowed(optimizer)

    def report(self, optimizer: Any = None) -> Report:
        """As :meth:`gradscaler.GradScaler.report`, of `optimizer` or of all. Blocks.

        For optimizers of other packages, counts and name come from ``.grad`` as it is now, and the norm is None.
        """
        if not self._enabled:
            return replace(report_of(native.Report()), scale=1.0)
        found = self._updater_on(torch.device("cpu") if self._scale is None else self._scale.device)
        optimizers = self._recent() if optimizer is None else [_require_torch_optimizer(optimizer)]
        try:
            return self._completed(found.report(), optimizers)
        except ReportError as error:
            assert error.report is not None
            error.report = self._completed(error.report, optimizers)
            raise

    def _completed(self, found: Report, optimizers: list[Any]) -> Report:
        totals = [_grad_totals(one, not self._overflowed(one)) for one in optimizers]
        norms = [one.norm for one in totals if one.norm is not None]
        largest = [one.amax for one in totals if one.amax is not None]
        first = next((one for one in totals if one.first >= 0), Totals())
        infs, nans = sum(one.inf_count for one in totals), sum(one.nan_count for one in totals)
        return replace(
            found, scale=self.get_scale(), growth_tracker=self._get_growth_tracker(),
            overflow=found.overflow if len(totals) != 1 else self._overflowed(optimizers[0]),
            grad_norm=math.hypot(*norms) if len(norms) == len(totals) > 0 else None,
            grad_amax=max(largest) if len(largest) == len(totals) > 0 else None,
            nonfinite_count=infs + nans, inf_count=infs, nan_count=nans,
            first_tensor=first.first, first_element=first.first_element, first_name=first.first_name)

    def _recent(self) -> list[Any]:
        return [optimizer for optimizer in (found() for found in self._recent_optimizers) if optimizer is not None]

    def _overflowed(self, optimizer: Any) -> bool:
        return any(bool(flag) for flag in (self._found_inf_of or {}).get(optimizer, ()))

    def history(self) -> list[HistoryEntry]:
        """As :meth:`gradscaler.GradScaler.history`, but norms and counts are None: no gradients are kept. Blocks.

        Loading a state or setting a scale clears it.
        """
        return [] if self._updater is None else self._updater.history()

    def _gradients_of(self, optimizer: Any) -> TensorList:
        return TensorList(gradients_of(_named_params(optimizer), "optimizer"), read_only=True)

    def overflowed(self, optimizer: Any) -> tuple[str, ...]:
        """The parameters of `optimizer` whose ``.grad`` has an inf or NaN now, in their order. Waits for the device.

        Ask before ``zero_grad()``. Gives names if the optimizer was made from ``named_parameters()``. For optimizers of
        this module ``report()`` has more, at any time.
        """
        _require_torch_optimizer(optimizer)
        return tuple(name for name, p in _named_params(optimizer) if not _is_finite(p))

    def __repr__(self) -> str:
        disabled = "" if self._enabled else " disabled"
        return f"<gradscaler.torch.GradScaler scale={self.get_scale():g}{disabled}>"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in ("_found_inf_of", "_recent_optimizers", "_iteration_is_over"):
            state.pop(name, None)
        if state.pop("_updater", None) is not None:
            state["_counters"] = self._saved_counters()
        return state

    def _saved_counters(self) -> dict[str, int]:
        return (self._counters or {}) if self._updater is None else self._updater.counters()

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's keys, and for another policy ours under ``"gradscaler"``; empty if disabled. Blocks."""
        found: dict[str, Any] = super().state_dict()
        if found and not is_torch_policy(self.options):
            found["gradscaler"] = self._saved_counters()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores `state_dict`, of any GradScaler. Blocks. RuntimeError for an empty one, ValueError for unknown
        counters."""
        super().load_state_dict(state_dict)
        if self._enabled:
            counters = dict(state_dict.get("gradscaler", {}))
            unknown = sorted(set(counters) - set(_policy.COUNTERS))
            if unknown:
                raise ValueError(f"state_dict['gradscaler'] has {unknown[0]!r}, which is unknown")
            self._updater, self._counters = None, counters
            self._has_loaded = True

    def _check_scale_growth_tracker(self, funcname: str) -> Any:
        if self._scale is None and self._has_loaded:
            self._lazy_init_scale_growth_tracker(torch.device(self._device))
        return super()._check_scale_growth_tracker(funcname)

    @not_compiled  # type: ignore[untyped-decorator, unused-ignore]
    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        return _on_scale_device(self._unscaled(optimizer, inv_scale, found_inf, allow_fp16), found_inf.device)

    def _unscaled(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        grads = _grads_by_device(optimizer, allow_fp16)
        shards = {device: [_local(grad) for grad in found] for device, found in grads.items()}
        if any(_context(device) is None for device in grads) or any(
                grad is None or grad.dtype not in DTYPE_CODES for found in shards.values() for grad in found):
            # PyTorch knows what the library does not: other devices, dtypes and subclasses of tensors.
            return dict(super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16))
        flags = {}
        with torch.no_grad():
            for device, found in grads.items():
                here = inv_scale.device == device
                flag = found_inf if here else found_inf.to(device, copy=True)
                factor = inv_scale if here else inv_scale.to(device)
                _unscale(shards[device], flag, factor)
                _all_reduce_found_inf(found, flag)
                flags[device] = flag
        return flags

    def _check_inf_per_device(self, optimizer: Any) -> dict[str, Any]:
        if not isinstance(optimizer, FusedOptimizer) or not self._enabled:
            return dict(super()._check_inf_per_device(optimizer))
        # The optimizer's own check reads the gradients and leaves them as they are.
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        found: Any = _on_scale_device(optimizer._check_gradients(scale), scale.device)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found  # type: ignore[no-any-return]

    @not_compiled  # type: ignore[untyped-decorator, unused-ignore]
    def update(self, new_scale: Any = None) -> None:
        """Ends the iteration, or with `new_scale` replaces the scale."""
        self._iteration_is_over = True
        if not self._enabled or new_scale is not None:
            super().update(new_scale)
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        # PyTorch types it as a dict; it is a defaultdict of dicts.
        states: Any = self._per_optimizer_states
        flags = [flag for state in states.values() for flag in state["found_inf_per_device"].values()]
        if not flags and states and all(state["stage"] is OptState.STEPPED for state in states.values()):
            # Optimizers without a single gradient: there is nothing that the scale could go by.
            self._per_optimizer_states = defaultdict(states.default_factory)
            if not self._warned_of_no_gradients:
                self._warned_of_no_gradients = True
                warnings.warn("no parameter that was stepped on has a gradient: nothing is trained, and the scale"
                              " stays. Call backward() before step(), and give the optimizer the parameters that the"
                              " loss depends on", RuntimeWarning, stacklevel=2)
            return
        if (_context(scale.device) is None and not self._extra_options) or not flags:
            # Without flags PyTorch raises what its users expect.
            super().update()
            return
        with torch.no_grad(), named_errors():
            self._updater_on(scale.device).update(scale, tracker, flags, self._factors())
        # Every optimizer is ready again; PyTorch's own factory keeps the scaler picklable.
        self._per_optimizer_states = defaultdict(states.default_factory)
        if scale.device.type == "cpu" and not self._warned and is_underflowed(scale):
            self._warn(float(scale))

    def _updater_on(self, device: Any) -> ScaleUpdater:
        context = _context(device)
        if context is None:
            raise UnavailableError(f"the scale is on {device}, where the library has no policy but PyTorch's")
        if self._updater is None or self._updater.context is not context:
            self._updater = ScaleUpdater(context, self._native_options(*self._factors()), self._saved_counters())
        return self._updater

    def _warn(self, scale: float) -> None:
        self._warned = True
        names = [name for optimizer in self._recent() for name in self.overflowed(optimizer)]
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        where = f"; inf or NaN in the gradients of {shown} did not go away with a lower scale" if names else ""
        warnings.warn(f"the loss scale is {scale:g}, too small to divide by, and every step is skipped{where}. Mend"
                      " that, then set a scale with update(new_scale); min_scale= is a lower limit", RuntimeWarning,
                      stacklevel=2)


def _require_torch_optimizer(optimizer: Any) -> Any:
    if isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer is gradscaler.{kind}; use gradscaler.GradScaler with it, or"
                        f" gradscaler.torch.{kind}")
    return optimizer


def _named_params(optimizer: Any) -> list[tuple[str, Any]]:
    return [(label, p) for p, _, label in labelled_params(optimizer.param_groups)]


def _grad_totals(optimizer: Any, is_applied: bool) -> Totals:
    if isinstance(optimizer, FusedOptimizer) and optimizer._last_check is not None:
        return optimizer._last_check.totals()
    found = Totals()
    for index, (name, p) in enumerate([] if is_applied else _named_params(optimizer)):
        if _is_finite(p):
            continue
        values = _values(p.grad).flatten()
        found.inf_count += int(values.isinf().sum())
        found.nan_count += int(values.isnan().sum())
        if found.first < 0:
            found.first, found.first_element = index, int((~values.isfinite()).nonzero()[0])
            found.first_name = name
    return found


def _on_scale_device(flags: dict[Any, Any], device: Any) -> dict[Any, Any]:
    """Flags that PyTorch may copy to the scale's `device` without waiting, and read there at once.

    A scale is on the CPU if the first loss was; to there such a copy would be read before it is done.
    """
    return flags if device.type != "cpu" else {key: flag.cpu() for key, flag in flags.items()}


def _context(device: Any) -> Context | None:
    """The library's context of a device; None if it has none."""
    if device.type == "cpu":
        return context_of("cpu")
    if device.type == "cuda" and torch.version.hip is None:
        if device.index < native.device_count(native.DEVICE_CUDA):
            return context_of(f"cuda:{device.index}")
        _warn_of_unsupported(str(device))
    return None


_unsupported_devices: set[str] = set()


def _warn_of_unsupported(device: str) -> None:
    """Says once that PyTorch's own scaler does the work on a GPU, and what to do about it."""
    if device in _unsupported_devices:
        return
    _unsupported_devices.add(device)
    try:
        default_context(device)
    except UnavailableError as error:
        warnings.warn(f"gradscaler.torch.GradScaler uses PyTorch's own kernels: {error}", RuntimeWarning, stacklevel=2)


def _grads_by_device(optimizer: Any, allow_fp16: bool) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for number, group in enumerate(optimizer.param_groups):
        for position, param in enumerate(group["params"]):
            grad = param.grad
            if grad is None:
                continue
            if grad.is_complex():
                label, dtype = param_label(group, number, position), str(grad.dtype).rpartition(".")[2]
                raise RuntimeError(f"{label}.grad is {dtype}; a GradScaler unscales no complex gradients: step on the"
                                   " parameter without a scaler, or keep it as real numbers and use"
                                   " torch.view_as_complex of them in the forward pass")
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


def _all_reduce_found_inf(grads: list[Any], found_inf: Any) -> None:
    """The largest `found_inf` of the ranks that hold other parts of the same gradients, or replicas.

    PyTorch's leaves replicas out, which then differ for ever if one alone finds an inf.
    """
    groups = {id(group): group for grad in grads if not torch_memory.is_plain(grad) for group in mesh_groups(grad)}
    all_reduce_found_inf(groups.values(), found_inf)


def _values(grad: Any) -> Any:
    grad = grad.coalesce().values() if grad.is_sparse else grad
    return grad.to_local() if hasattr(grad, "to_local") else grad


def _is_finite(p: Any) -> bool:
    return p.grad is None or bool(_values(p.grad).isfinite().all())


def _is_dense(grad: Any) -> bool:
    """Returns whether the elements, and not their negatives, fill one piece of memory, in whatever order."""
    channels_last = grad.dim() == 4 and grad.is_contiguous(memory_format=torch.channels_last)
    return bool((grad.is_contiguous() or channels_last) and not grad.is_neg())


def _unscale(grads: list[Any], found_inf: Any, inv_scale: Any) -> None:
    """Does the work of torch._amp_foreach_non_finite_check_and_unscale_, on a device that the library has."""
    copies: list[tuple[Any, Any]] = []
    array = native.TensorArray(len(grads))
    for grad in grads:
        target = grad
        if not _is_dense(grad):
            target = grad.resolve_neg().contiguous()
            copies.append((grad, target))
        array.add(target.data_ptr(), target.numel(), DTYPE_CODES[target.dtype], None)
    context: Any = _context(found_inf.device)
    context._handle.unscale_check(array, found_inf.data_ptr(), inv_scale.data_ptr(), stream_of(context))
    for grad, copy in copies:
        grad.copy_(copy)
    torch.autograd.graph.increment_version([*grads, found_inf])
