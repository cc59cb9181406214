# SPDX-License-Identifier: Apache-2.0
"""The library's optimizers as subclasses of ``torch.optim.Optimizer``; users import them from :mod:`gradscaler.torch`.

What PyTorch's base class does is left to it: param groups, hooks, pickling, ``zero_grad``, the form of a state dict.
``state`` holds plain tensors, as with PyTorch (:mod:`._optimizer_state`); the library steps on their memory. Parameters
that step together are in one :class:`~gradscaler.torch._plan.Plan`. Every step checks whether these are still the same,
and :mod:`._plan_builder` makes new ones if not: for other memory, or the first gradient of a parameter. Later it may be
None and is absent then.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import sys
import typing
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper, policy, torch_memory
from .._native import flag, integer, native, real
from ..device import default_context
from ..messages import named_errors, unexpected
from ._grad_check import GradCheck, NormJudge, StepReport, clip_coefficient, gradient_factor, is_underflowed
from ._guards import StepGuard, in_param_order
from ._optimizer_state import OptimizerState
from ._param_groups import groups_restored_on_error, param_label, require_options, require_range
from ._plan import Plan
from ._plan_builder import PlanBuilder
from ._references import held_storages, is_single_threaded, is_state_referenced, is_step_counted, is_step_unwrapped
from ._shards import all_reduce_found_inf, is_dtensor, is_flattened, is_made_by_zero_redundancy, local
from ._state_formats import CODES_SUFFIX, DTYPE_CODES, MASTER, format_of

#: Group keys that decide what steps together. The last two are refused.
_STRUCTURE = ("nesterov", "amsgrad", "maximize", "momentum", "centered", "decoupled_weight_decay", "ema_decay",
              "ema_warmup", "cautious", "cautious_decay", "differentiable", "capturable")
#: In the words of torch.amp.GradScaler, which looks at keywords alone.
NO_CLOSURE = "Closure use is not currently supported if GradScaler is enabled."
#: Decorates work on memory, which torch.compile would follow call by call, for minutes, and gain nothing.
not_compiled: Any = getattr(torch, "_disable_dynamo", lambda function: function)


class Own(TypedDict, total=False):
    """Options of the optimizers beyond PyTorch's arguments. From `state` on, all but `seed` may be in a param group."""

    #: Limit of the L2 norm of all gradients together, in the pass of the step: >= 0. Default None: none. With inf
    #: the norm is measured and nothing is clipped.
    max_grad_norm: float | None
    #: Skip steps whose gradients have an inf or NaN, also without a GradScaler. It takes a pass over the gradients,
    #: which `max_grad_norm` and the next two options take anyway: default None is True with one of these.
    skip_nonfinite: bool | None
    #: Skip steps whose norm is above this: > 0. Default None: none.
    skip_norm: float | None
    #: Skip steps whose norm is above this many times the average norm, and above `spike_deviations`: >= 1. 2 is a
    #: good value. Default None: none.
    spike_factor: float | None
    #: With `spike_factor`: the norm's logarithm must also be so many standard deviations above its mean. Default 5.
    spike_deviations: float
    #: Norms that the average is over; it skips nothing before half as many. Default 128.
    spike_window: int
    #: Norms in the average before any step is skipped, also by `skip_norm`. Default 0.
    spike_warmup: int
    #: Skips in a row after which the step is taken and the average moves there. 0: never. Default 10.
    spike_patience: int
    #: Each step checks its gradients, and :meth:`FusedOptimizer.report` has the norm of each. Default False.
    tensor_norms: bool
    #: Keep a float32 master of every float16 and bfloat16 parameter in its state, and step on that. Default False.
    master_weights: bool
    #: Format of the state (docs/state.md). Default "fp32".
    state: Literal["fp32", "16bit", "8bit"]
    #: For 16-bit parameters: "split" and "split24" keep what the parameters leave out of float32 masters, or of 24 of
    #: their bits; "stochastic" rounds parameters stochastically. Default None.
    master: Literal["split", "split24", "stochastic"] | None
    #: That of stochastic rounding. Default 0.
    seed: int
    #: Decay of a moving average of the parameters in their state, ``ema``, in [0, 1). Default 0: none.
    ema_decay: float
    #: The decay is at most (1 + n) / (10 + n) after n steps. Default False.
    ema_warmup: bool
    #: Of Adam, AdamW and Lion: leave out updates that go against their gradient (Liang et al. 2024). Default False.
    cautious: bool
    #: Of AdamW and Lion: leave out weight decay of what the update moves away from 0 (Chen et al. 2025). Default False.
    cautious_decay: bool
    #: The least value of a parameter, and the largest: finite. Default 0 for both: no range. Not Schedule-Free.
    param_min: float
    param_max: float


class FusedOptimizer(OptimizerState):
    """The base class of the optimizers of :mod:`gradscaler.torch`. Use one of its classes.

    `params` are tensors, named ones or param groups, as in ``torch.optim``: float16, bfloat16, float32 or float64,
    plain or DTensor. `own` are the options of :class:`~gradscaler.torch._optim.Own`. With ``fused=False`` a GradScaler
    unscales the gradients itself, and does not call ``step`` if it skips. Otherwise `fused` and `foreach` change
    nothing. Further `args` and `options` are those of PyTorch's classes. Raises ValueError for `capturable` and
    `differentiable`, and TypeError naming a parameter that cannot be used; the groups are then what they were. Steps
    are enqueued in the current stream.
    """

    #: Options by which a step is skipped for its norm, if there are any.
    _limits: dict[str, Any] = {}
    _skip_nonfinite: bool | None = None
    _tensor_norms = False

    def __init__(self, params: Any, *args: Any, **options: Any) -> None:
        """Called by the classes: `args` and `options` go to PyTorch's, which writes into the groups of `params`; if it
        is refused, they are what they were."""
        given = params if isinstance(params, (torch.Tensor, dict)) else list(params)
        with groups_restored_on_error(given if isinstance(given, list) else ()):
            super().__init__(given, *args, **options)

    def _setup(self, fused: bool | None, **own: Any) -> None:
        """Before the constructor of PyTorch's class, which adds the groups. `own` are the options of :class:`Own`."""
        known = typing.get_type_hints(Own)
        for name in own:
            if name not in known:
                raise unexpected(type(self).__name__, name, [*inspect.signature(type(self).__init__).parameters,
                                                             *known])
        self._set_own(fused, **own)

    def _set_own(self, fused: bool | None, max_grad_norm: float | None = None, master_weights: bool = False,
                 state: str = "fp32", master: str | None = None, seed: int = 0, ema_decay: float = 0.0,
                 ema_warmup: bool = False, cautious: bool = False, cautious_decay: bool = False, param_min: float = 0.0,
                 param_max: float = 0.0, skip_nonfinite: bool | None = None, tensor_norms: bool = False,
                 **limits: Any) -> None:
        hyper.format_code("state", state, hyper.STATE)
        if hyper.format_code("master", master, hyper.MASTER) != native.MASTER_NONE and master_weights:
            raise ValueError(f"master is {master!r}, and master_weights is True; a parameter has one kind of master")
        if not 0.0 <= real("ema_decay", ema_decay) < 1.0:
            raise ValueError(f"ema_decay is {ema_decay}; it must be in [0, 1)")
        require_range(self._KIND, "param_min", "param_max", param_min, param_max)
        # In the groups, which have PyTorch's keys alone where these are not used.
        given = {"state": (state, "fp32"), "master": (master, None), "ema_decay": (ema_decay, 0.0),
                 "ema_warmup": (flag("ema_warmup", ema_warmup), False),
                 "cautious": (flag("cautious", cautious), False),
                 "cautious_decay": (flag("cautious_decay", cautious_decay), False),
                 "param_min": (param_min, 0.0), "param_max": (param_max, 0.0)}
        self._formats = {key: value for key, (value, default) in given.items() if value != default}
        self._seed = integer("seed", seed, -(1 << 63), (1 << 63) - 1)
        options = native.ScalerOptions()
        with named_errors():
            policy.apply(options, limits)
            native.Scaler(default_context("cpu")._handle, options)  # checks them
        self._limits = limits if options.skip_norm or options.spike_factor else {}
        for name, value in {"max_grad_norm": max_grad_norm, **self._limits}.items():
            if value is not None and is_made_by_zero_redundancy():
                raise ValueError(f"{name} is {value}, but ZeroRedundancyOptimizer gives each rank only some of the"
                                 " parameters, whose norm is not that of all; call clip_grad_norm_ before the step")
        self._skip_nonfinite = None if skip_nonfinite is None else flag("skip_nonfinite", skip_nonfinite)
        self._tensor_norms = flag("tensor_norms", tensor_norms)
        if self._limits and self._skip_nonfinite is False:
            raise ValueError("skip_nonfinite is False, but a step with a norm of NaN has no other end with"
                             f" {next(iter(self._limits))}")
        self._reset()
        # The average of the norms: no state dict has it, and loading one leaves it.
        self._judge: NormJudge | None = None
        self.max_grad_norm = max_grad_norm
        self._master_weights = flag("master_weights", master_weights)
        self._fused = fused is not False

    def _reset(self) -> None:
        super()._reset()
        self._process_and_threads = (0, 0)
        # Those that have a gradient now.
        self._active_plans: list[Plan] = []
        # The parameters that have had a gradient.
        self._had_gradient: set[Any] = set()
        # Places of those in a plan that have no elements: the library takes these for present.
        self._empty_indices: list[int] = []
        # The gradients that the plans point at, by parameter: held until the end of the step.
        self._bound_grads: list[Any] = []
        self._grad_check: GradCheck | None = None
        self._scalers: dict[str, Any] = {}
        self._last_check: GradCheck | None = None
        # found_inf of the last step; True before the first one.
        self._last_found_inf: Any = True
        # The versions of 16-bit parameters that have masters, after the last step.
        self._copy_versions: dict[Any, int] = {}
        # A parameter of which FSDP1 has made this rank's part.
        self._flattened_label: str | None = None
        # Whether this package's GradScaler is asking, which does not call a step that is counted.
        self._skip_is_external = False

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """True if a GradScaler may leave unscaling and skipping to the step; PyTorch's asks before each one.

        Else it unscales by itself, and does not call a step that is skipped: trainers learn by that of the skip, and of
        FSDP1 the ranks agree on inf nowhere but in unscale_() of its ShardedGradScaler.
        """
        return self._fused and self._flattened_label is None and (self._skip_is_external or not is_step_counted(self))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        # By the constructors of PyTorch's classes.
        self._fused = value

    @property
    def max_grad_norm(self) -> float | None:
        """Each step limits the L2 norm of all gradients together to this, in its own pass. None: no limit; inf: no
        limit, but :meth:`report` has the norm."""
        return self._max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float | None) -> None:
        limit = None if value is None else real("max_grad_norm", value)
        if limit is not None and not 0.0 <= limit:
            raise ValueError(f"max_grad_norm is {value}; it must be >= 0")
        self._max_grad_norm = limit

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_max_grad_norm": self._max_grad_norm, "_limits": self._limits,
                "_skip_nonfinite": self._skip_nonfinite, "_tensor_norms": self._tensor_norms}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.setdefault("_judge", None)
        super().__setstate__(state)
        self._step_supports_amp_scaling = self.defaults.get("fused") is not False

    def __repr__(self) -> str:
        groups = super().__repr__().removesuffix(")")
        return (f"gradscaler.torch.{groups}max_grad_norm: {self._max_grad_norm}\n"
                f"master_weights: {self._master_weights}\n)")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds `param_group`, as PyTorch's does. Raises TypeError and ValueError for what a step would refuse or
        ignore, and leaves the group as it was."""
        number, flattened = len(self.param_groups), self._flattened_label
        with groups_restored_on_error([param_group]):
            try:
                for key, value in self._formats.items():
                    param_group.setdefault(key, value)
                super().add_param_group(param_group)
                require_options(param_group, f"param_groups[{number}]", self._KIND)
                first: dict[Any, str] = {}
                for position, p in enumerate(param_group["params"]):
                    label = param_label(param_group, number, position)
                    if first.setdefault(p, label) is not label:
                        raise ValueError(f"{label} is a parameter that is given twice, the first time as {first[p]}")
                    self._require_steppable(p, param_group, label)
            except BaseException:
                del self.param_groups[number:]
                self._flattened_label = flattened
                raise
        self._guard = None

    def _require_steppable(self, p: Any, group: dict[str, Any], label: str) -> None:
        if not is_dtensor(p):
            torch_memory.require_plain(p, label)
        if p.dtype not in DTYPE_CODES:
            raise TypeError(f"{label} has dtype {p.dtype}; it must be float16, bfloat16, float32 or float64."
                            " For others use torch.optim with gradscaler.torch.GradScaler")
        if is_flattened(p):
            self._flattened_label = label
        format_of(group, p, label, self._master_weights)

    # The step.

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes a step with the gradients in ``.grad``, and returns what `closure` returned.

        A parameter whose ``.grad`` is None is left as it is. Under a GradScaler (its attributes `grad_scale` and
        `found_inf`) gradients are unscaled in the pass of the step, which is skipped if one is inf or NaN; ``.grad``
        itself is not written. Raises InvalidArgumentError, ValueError or TypeError naming what cannot be used, and
        RuntimeError for a closure under a GradScaler, which has not checked what it computes.
        """
        return self._step(closure)

    @not_compiled  # type: ignore[untyped-decorator, unused-ignore]
    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss, is_marked = None, False
        check, self._grad_check = self._grad_check, None
        if closure is not None:
            if hasattr(self, "found_inf"):
                # PyTorch's scaler leaves them behind, and would multiply the next scale by this one.
                for name in ("grad_scale", "found_inf"):
                    vars(self).pop(name, None)
                raise RuntimeError(NO_CLOSURE)
            with torch.enable_grad():
                loss = closure()
        # Hooks, closures and code around this function may have changed the gradients since.
        if (check is None or self._guard is None or not hasattr(self, "found_inf") or closure is not None
                or self._optimizer_step_pre_hooks or _global_pre_hooks()
                or not is_step_unwrapped(self.step, _OWN_STEP)):
            check = None
            # Of parameters with masters it is asked first whether others have written them.
            is_marked = self._update_plans(None if any(plan.copies for plan in self._plans) else
                                           torch.autograd.graph.increment_version)
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if grad_scale is not None and grad_scale.device.type == "cpu" and is_underflowed(grad_scale):
            # PyTorch's GradScaler has only looked at the gradients, which a loss times 0 makes 0.
            found_inf = torch.ones((), device="cpu")
        needs_check = self._skips_nonfinite or self._max_grad_norm is not None or self._tensor_norms
        if self._flattened_label is not None and (needs_check or found_inf is not None):
            raise ValueError(f"{self._flattened_label} is a part of what FullyShardedDataParallel has flattened, and"
                             " no norm or inf is known here of the other ranks; use fully_shard (FSDP2), or fused=False"
                             " with ShardedGradScaler and the model's own clip_grad_norm_")
        self._last_check, self._last_found_inf = check, found_inf
        if not self._active_plans:
            return loss
        held = self._held_memory()
        inv_scale, factor = None if grad_scale is None else grad_scale.double().reciprocal(), None
        if needs_check:
            if check is None:
                check = self._last_check = GradCheck(self._scalers, self._active_plans, grad_scale,
                                                     self._tensor_norms)
            if self._max_grad_norm is not None and self._max_grad_norm < math.inf:
                factor = clip_coefficient(check, self._max_grad_norm)
            if self._skips_nonfinite:
                found_inf = self._last_found_inf = self._skip_flag(check, found_inf)
        if any(self._copy_versions.get(copy) != copy._version for plan in self._active_plans for copy in plan.copies):
            # Other code wrote them, as model.load_state_dict does.
            self.refresh_master_weights()
        for plan in self._active_plans:
            plan.update_options(self.param_groups)
        self._counts_are_stale = True
        for plan in self._active_plans if not is_marked else ():
            torch.autograd.graph.increment_version(plan.written)
        # A CUDA graph would keep the addresses of the copies.
        in_double = factor is not None and not self._is_captured()
        for plan in self._active_plans:
            if in_double and plan.key.has_float64_grads:
                held.append(plan.use_clipped_copies(self._grads_of(plan), inv_scale, factor))
                plan.step(None, found_inf)
            else:
                plan.step(gradient_factor(inv_scale, factor), found_inf)
        del held
        self._mark_written()
        self._bound_grads = []
        if self._state_is_shared and not self._is_captured():
            # Whoever has it reads it, and what he writes there must not be overwritten later.
            self._write_counts()
        return loss

    @property
    def _skips_nonfinite(self) -> bool:
        """Whether the optimizer itself looks for inf and NaN, and skips."""
        if self._skip_nonfinite is None:
            return bool(self._limits) or self._max_grad_norm is not None
        return self._skip_nonfinite

    def _skip_flag(self, check: GradCheck, found_inf: Any) -> Any:
        """A tensor of one float32 that is not 0 if the step is skipped. `found_inf` is a GradScaler's, or None."""
        if found_inf is None:
            flags = list(check.found_inf.values())
            for plan in self._active_plans:
                for flag_here in flags:
                    all_reduce_found_inf(plan.key.ranks, flag_here)
            found_inf = flags[0]
            for flag_here in flags[1:]:
                found_inf = found_inf + flag_here.to(found_inf.device)
        if not self._limits:
            return found_inf
        if self._judge is None:
            self._judge = NormJudge(self._active_plans[0].context, self._limits)
        return self._judge.judge(check.norm()).to(found_inf.device) + found_inf

    def _is_captured(self) -> bool:
        """Returns whether the step was put into a CUDA graph, and has not run yet."""
        return any(plan.context.device != "cpu" for plan in self._active_plans) and bool(
            torch.cuda.is_current_stream_capturing())

    @property
    def applied(self) -> bool:
        """True if the last step was applied, and not skipped; False before the first one.

        Waits for a CUDA device.
        """
        return self._last_found_inf is None or not bool(self._last_found_inf)

    def report(self) -> StepReport:
        """Reports the last step and the parameters that overflowed in it. Waits for a CUDA device.

        There is a check to report under ``gradscaler.torch.GradScaler``, with `max_grad_norm`, with `tensor_norms` and
        with the options that skip.
        """
        applied = self.applied
        return StepReport(applied) if self._last_check is None else self._last_check.report(applied, self._judge)

    @not_compiled  # type: ignore[untyped-decorator, unused-ignore]
    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def _check_gradients(self, scale: Any) -> dict[Any, Any]:
        """For this package's GradScaler, which then calls :meth:`step`: found_inf by device. Writes no gradient."""
        if self._grad_check is not None and self._skip_is_external:
            # It has asked before, in the same step.
            return self._grad_check.found_inf
        self._update_plans()
        held = self._held_memory()
        # PyTorch's scaler multiplies by a scale that was set before.
        self._grad_check = GradCheck(self._scalers, self._active_plans, scale * getattr(self, "grad_scale", 1),
                                     self._tensor_norms)
        del held
        found = self._grad_check.found_inf
        for plan in self._active_plans:
            for found_inf in found.values():
                all_reduce_found_inf(plan.key.ranks, found_inf)
        return found

    def _skip(self, found_inf: Any) -> None:
        """A step that this package's GradScaler does not call."""
        self._last_check, self._grad_check, self._last_found_inf = self._grad_check, None, found_inf
        self._bound_grads = []

    # The plans.

    def _update_plans(self, mark_written: Any = None) -> bool:
        """Makes the plans those of the parameters and gradients of now.

        Returns whether `mark_written` was called with the parameters that a step writes, which is cheapest here.
        """
        groups = self.param_groups
        # A key that is new may be one that is refused.
        structure = [(len(group), len(group["params"]), group.get("state"), group.get("master"),
                      *(bool(group.get(key)) for key in _STRUCTURE)) for group in groups]
        if self._process_and_threads != (os.getpid(), torch.get_num_threads()):
            # Those of a process that forked would wait for threads that are not here.
            self._write_counts()
            self._plans.clear()
            self._scalers = {}
            self._guard = None
            self._process_and_threads = os.getpid(), torch.get_num_threads()
        if self._state_is_shared:
            if self._guard is not None and not self._is_state_unchanged():
                self._guard = None
            self._state_is_shared = is_state_referenced(self._entries, self._plans)
        params: list[Any] = []
        for group in groups:
            params += group["params"]
        guard: Any = self._guard
        found = None
        if guard is not None and guard.structure == structure:
            found = guard.check(params, mark_written=mark_written)
        if found and not all(map(found[1].present.__getitem__, self._empty_indices)):
            found = None
        is_marked = bool(found and mark_written and guard and guard.marks_written)
        if found is None:
            self._write_counts()
            self._guard, guard = None, StepGuard(params, structure)
            placed = guard.grads()
            are_plain = guard.are_plain_pairs(placed)
            grads = placed if are_plain else list(map(in_param_order, placed, params))
            expected = self._build_plans(params, grads, are_plain)
            found = guard.expect(expected, grads, not all(map(operator.is_, grads, placed)))
            self._guard = guard
        if found is None:
            raise RuntimeError("parameters or gradients were replaced by another thread during the step")
        self._bound_grads, snapshot = found
        for plan in self._plans:
            plan.set_gradients(snapshot if len(plan.indices) == len(params) else snapshot.select(plan.indices))
        self._active_plans = [plan for plan in self._plans if not plan.is_absent]
        return is_marked

    def _build_plans(self, params: list[Any], grads: list[Any], are_plain: bool) -> list[Any]:
        builder = PlanBuilder(self._KIND, self.param_groups, self._entries, self._master_weights, self._choices)
        self._plans = builder.build(grads, self._had_gradient, are_plain, self._seed)
        self._choices = builder.choices
        self._flattened_label = builder.flattened or self._flattened_label
        self._empty_indices = []
        for plan in self._plans:
            self._had_gradient.update(map(params.__getitem__, plan.indices))
            self._empty_indices += [index for index, p in zip(plan.indices, plan.params, strict=True) if not p.numel()]
            for copy in plan.copies:
                # In other memory there may be other values, as after p.data = ...
                self._copy_versions.pop(copy, None)
        return builder.grads

    def _held_memory(self) -> list[Any]:
        """The storages of the plans, to be held while the library works on them and other threads run."""
        if is_single_threaded():
            return []
        return [held_storages(plan, self._grads_of(plan)) for plan in self._active_plans]

    def _grads_of(self, plan: Plan) -> list[Any]:
        return [local(self._bound_grads[index]) for index in plan.indices]

    def _is_state_unchanged(self) -> bool:
        """Returns whether the state is what the plans step on. Blocks on a CUDA device."""
        if self._guard.sharded:
            return False
        if any(plan.take_snapshots() != plan.snapshots for plan in self._plans):
            return False
        for plan in self._plans:
            for i, (index, entry, steps) in enumerate(zip(plan.indices, plan.entries, plan.steps(), strict=True)):
                if self._entries.get(self._guard.tensors[index], {}) is not entry and (entry or plan.state):
                    return False
                if any(entry.get(name) is not values[i] or (
                        name.endswith(CODES_SUFFIX) and name.removesuffix(CODES_SUFFIX) in entry)
                       for name, values in plan.state.items()):
                    return False
                if plan.key.master and entry.get(MASTER) is not plan.params[i]:
                    return False
                if self._KIND != native.SGD and float(entry.get("step", -1)) != steps:
                    return False
        return True

    def _mark_written(self) -> None:
        if self._guard is not None and self._guard.sharded:
            # Their shards were marked, which autograd does not follow.
            torch.autograd.graph.increment_version([p for p in self._guard.tensors if is_dtensor(p)])
        for plan in self._active_plans:
            self._copy_versions.update((copy, copy._version) for copy in plan.copies)


_OWN_STEP = FusedOptimizer.step


def _global_pre_hooks() -> Any:
    return getattr(sys.modules["torch.optim.optimizer"], "_global_optimizer_pre_hooks", None)
