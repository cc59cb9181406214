# SPDX-License-Identifier: Apache-2.0
"""The library's optimizers as subclasses of ``torch.optim.Optimizer``; users import them from :mod:`gradscaler.torch`.

What PyTorch's base class does is left to it: param groups, hooks, pickling, ``zero_grad``, the form of a state dict.
``state`` holds plain tensors, as with PyTorch; the library steps on their memory. Parameters that step together are in
one :class:`~gradscaler.torch._plan.Plan`. Every step checks whether these are still the same, and :mod:`._settle`
makes new ones if not: for other memory, or the first gradient of a parameter. Later it may be None and is absent then.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import sys
import typing
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper, torch_memory
from .._native import flag, integer, native, real
from ..formats import EMA, REMAINDER, SCALE, codes_of
from ..messages import unexpected
from ._check import Check, StepReport, clip_factor, is_lost, product
from ._formats import (
    CODED,
    CODES,
    FORMAT_KEYS,
    MASTER,
    UNGROUPED,
    codes_for,
    fit,
    format_of,
    loaded,
    require_loadable,
    told,
    untold,
)
from ._held import hold, is_alone, is_counted, is_direct, is_state_held
from ._plan import NOT_ALWAYS, NUMBERS, Plan
from ._seen import Seen, in_order
from ._settle import Settlement, label_of, labelled, require_options, unchanged_if_refused
from ._shards import is_dtensor, is_flattened, is_made_for_a_part, local, overflow_groups

#: Group keys that decide what steps together. The last two are refused.
_STRUCTURE = ("nesterov", "amsgrad", "maximize", "momentum", "centered", "decoupled_weight_decay", "ema_decay",
              "ema_warmup", "differentiable", "capturable")
#: In the words of torch.amp.GradScaler, which looks at keywords alone.
NO_CLOSURE = "Closure use is not currently supported if GradScaler is enabled."
#: What works on memory: torch.compile would follow it call by call, for minutes, and gain nothing.
untraced: Any = getattr(torch, "_disable_dynamo", lambda function: function)


class Own(TypedDict, total=False):
    """What the optimizers take besides PyTorch's arguments. From `state` on, all but `seed` may be in a param group."""

    #: Limit of the L2 norm of all gradients together, in the pass of the step: >= 0. Default None: none. With inf
    #: the norm is measured and nothing is clipped.
    max_grad_norm: float | None
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


class FusedOptimizer(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]
    """What the optimizers of :mod:`gradscaler.torch` have in common. Use one of its classes.

    `params` are tensors, named ones or param groups, as in ``torch.optim``: float16, bfloat16, float32 or float64,
    plain or DTensor. `own` are the options of :class:`~gradscaler.torch._optim.Own`. With ``fused=False`` a GradScaler
    unscales the gradients itself, and does not call ``step`` if it skips. Otherwise `fused` and `foreach` change
    nothing. Further `args` and `options` are those of PyTorch's classes. Raises ValueError for `capturable` and
    `differentiable`, and TypeError naming a parameter that cannot be used; the groups are then what they were. Steps
    are enqueued in the current stream.
    """

    _KIND = -1

    def __init__(self, params: Any, *args: Any, **options: Any) -> None:
        """Called by the classes: `args` and `options` go to PyTorch's, which writes into the groups of `params`; if it
        is refused, they are what they were."""
        given = params if isinstance(params, (torch.Tensor, dict)) else list(params)
        with unchanged_if_refused(given if isinstance(given, list) else ()):
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
                 ema_warmup: bool = False) -> None:
        hyper.format_code("state", state, hyper.STATE)
        if hyper.format_code("master", master, hyper.MASTER) != native.MASTER_NONE and master_weights:
            raise ValueError(f"master is {master!r}, and master_weights is True; a parameter has one kind of master")
        if not 0.0 <= real("ema_decay", ema_decay) < 1.0:
            raise ValueError(f"ema_decay is {ema_decay}; it must be in [0, 1)")
        # In the groups, which have PyTorch's keys alone where these are not used.
        given = {"state": (state, "fp32"), "master": (master, None), "ema_decay": (ema_decay, 0.0),
                 "ema_warmup": (flag("ema_warmup", ema_warmup), False)}
        self._formats = {key: value for key, (value, default) in given.items() if value != default}
        self._seed = integer("seed", seed, -(1 << 63), (1 << 63) - 1)
        if max_grad_norm is not None and is_made_for_a_part():
            raise ValueError(f"max_grad_norm is {max_grad_norm}, but ZeroRedundancyOptimizer gives each rank only some"
                             " of the parameters, whose norm is not that of all; call clip_grad_norm_ before the step")
        self._forget()
        self.max_grad_norm = max_grad_norm
        self._master_weights = flag("master_weights", master_weights)
        self._fused = fused is not False

    def _forget(self) -> None:
        """As if no step had been taken yet; the state in tensors stays."""
        self._plans: list[Plan] = []
        self._process = (0, 0)
        # Those that have a gradient now.
        self._active: list[Plan] = []
        # The parameters that have had a gradient.
        self._used: set[Any] = set()
        # Places of those in a plan that have no elements: the library takes these for present.
        self._empty: list[int] = []
        self._seen: Any = None
        # The gradients that the plans point at, by parameter: held until the end of the step.
        self._grads: list[Any] = []
        # Whether other code may have state, and change it.
        self._lent = True
        # Whether the counts in the state are behind those of the plans.
        self._behind = False
        self._loading: Any = None
        self._check: Check | None = None
        self._scalers: dict[str, Any] = {}
        self._last_check: Check | None = None
        # found_inf of the last step; True before the first one.
        self._last_found: Any = True
        # The versions of 16-bit parameters that have masters, after the last step.
        self._versions: dict[Any, int] = {}
        # A parameter of which FSDP1 has made this rank's part.
        self._flattened: str | None = None
        # Whether this package's GradScaler is asking, which does not call a step that is counted.
        self._skips_outside = False

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether a GradScaler may leave unscaling and skipping to the step; PyTorch's asks before each one.

        Else it unscales by itself, and does not call a step that is skipped: trainers learn by that of the skip, and of
        FSDP1 the ranks agree on inf nowhere but in unscale_() of its ShardedGradScaler.
        """
        return self._fused and self._flattened is None and (self._skips_outside or not is_counted(self))

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

    # State, as PyTorch keeps it.

    @property
    def state(self) -> Any:
        """State by parameter, as in ``torch.optim``. Edits take effect at the next step."""
        self._write_counts()
        self._lent = True
        return self._entries

    @state.setter
    def state(self, entries: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._entries = entries
        self._seen = None
        self._lent = True
        # What the plans counted belongs to the state that was.
        self._behind = False

    def _write_counts(self) -> None:
        if not self._behind:
            return
        self._behind = False
        for plan in self._plans:
            for entry, number, made, steps in zip(plan.entries, plan.groups, plan.made, plan.steps(), strict=True):
                if "step" in entry:
                    entry["step"].fill_(steps)
                if self._KIND == native.NADAM and "mu_product" in entry:
                    group = self.param_groups[number]
                    entry["mu_product"].fill_(
                        hyper.momentum_product(group["betas"][0], group["momentum_decay"], steps))
                if steps:
                    entry.update(made)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_max_grad_norm": self._max_grad_norm,
                "_master_weights": self._master_weights, "_formats": self._formats, "_seed": self._seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        entries = state.pop("state", None)
        loading = self.__dict__.get("_loading")
        if loading is not None:
            # Formats are of this optimizer, whatever was saved.
            for group, own in zip(state["param_groups"], self.param_groups, strict=True):
                for key in FORMAT_KEYS:
                    group.pop(key, None)
                    if key in own:
                        group[key] = own[key]
            entries = self._loaded(loading)
        self._forget()
        if entries is not None:
            self._entries = entries
        self.__dict__.setdefault("_formats", {})
        self.__dict__.setdefault("_seed", 0)
        super().__setstate__(state)
        self._step_supports_amp_scaling = self.defaults.get("fused") is not False

    def state_dict(self) -> dict[str, Any]:
        """As PyTorch's. Beside ``exp_avg_codes`` and ``exp_avg_scale``, ``exp_avg`` is the bits of a code, 8 or 16."""
        found: dict[str, Any] = super().state_dict()
        state, own = found["state"], iter(labelled(self.param_groups))
        for group in found["param_groups"]:
            group.pop("ungrouped", None)
            has_codes = group.get("state", "fp32") != "fp32"
            group.update(UNGROUPED if has_codes else {})
            for key, (p, settings, label) in zip(group["params"], own, strict=False):
                if state.get(key) and (has_codes or group.get("master") or any(
                        name == REMAINDER or name.endswith(SCALE) for name in state[key])):
                    # The format of the group may have been set since the last step.
                    entry = dict(state[key])
                    self._fit(entry, p, settings, label)
                    state[key] = told(entry)
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict`, of :meth:`state_dict` here or of the optimizer of this name in ``torch.optim``, or in
        FlashOptim, after the model's weights.

        Tensors are copied, and converted to the format that the parameter's group has here. Masters that were saved
        are dropped where there are none. ValueError, before anything changes, for state of other shapes.
        """

        def take(_: Any, found: dict[str, Any]) -> dict[str, Any]:
            found = {**found, "state": untold(self._KIND, found)}
            self._require_loadable(found)
            self._loading = found
            return found

        # After the hooks of users, which may give another one.
        handle = self.register_load_state_dict_pre_hook(take)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
            self._loading = None

    def _pairs(self, state_dict: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Parameters with the keys of their state there. Lengths that differ are PyTorch's to refuse."""
        own = [p for group in self.param_groups for p in group["params"]]
        saved = [key for group in state_dict["param_groups"] for key in group["params"]]
        return list(zip(own, saved, strict=False))

    def _require_loadable(self, state_dict: dict[str, Any]) -> None:
        for number, group in enumerate(state_dict["param_groups"]):
            label = f"state_dict['param_groups'][{number}]"
            require_options(group, label)
            for name in NUMBERS[self._KIND]:
                if name not in group and name not in NOT_ALWAYS and name in self.defaults:
                    raise ValueError(f"{label} has no {name!r}; it is not one of {type(self).__name__}")
            for name in hyper.FLAGS:
                if group.get(name) and name not in self.defaults and name not in FORMAT_KEYS:
                    raise ValueError(f"{label} has {name}={group[name]}, which {type(self).__name__} does not take")
        for p, key in self._pairs(state_dict):
            require_loadable(self._KIND, p, state_dict["state"].get(key, {}), f"state_dict['state'][{key!r}]")

    def _loaded(self, state_dict: dict[str, Any]) -> Any:
        pairs = self._pairs(state_dict)
        entries: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        entries.update({key: value for key, value in state_dict["state"].items()
                        if key not in {saved for _, saved in pairs}})
        labels = {p: (group, label) for p, group, label in labelled(self.param_groups)}
        # Of FlashOptim's masters.
        widths = {key: group.get("master_bytewidth") for group in state_dict["param_groups"] for key in group["params"]}
        for p, key in pairs:
            if key in state_dict["state"]:
                entries[p] = loaded(self._KIND, p, state_dict["state"][key], widths.get(key),
                                    f"state_dict['state'][{key!r}]")
                self._fit(entries[p], p, *labels[p])
        return entries

    def _fit(self, entry: dict[str, Any], p: Any, group: dict[str, Any], label: str) -> None:
        codes = codes_for(p, self._KIND, *format_of(group, p, label), bool(group.get("centered")))
        fit(entry, p, self._KIND, codes, label, self._master_weights)
        if not group.get("ema_decay"):
            entry.pop(EMA, None)

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def fp32_state_dict(self) -> dict[str, Any]:
        """:meth:`state_dict` with all state in float32, and split masters as ``master_param``: what every format here,
        every number of ranks and the optimizer of this name in ``torch.optim`` load."""
        found = super().state_dict()
        codes = codes_of(self._KIND, "fp32", None)
        for p, key in self._pairs(found):
            if key in found["state"]:
                entry = found["state"][key] = dict(found["state"][key])
                fit(entry, p, self._KIND, codes, f"state[{key}]", True)
        for group in found["param_groups"]:
            for key in FORMAT_KEYS:
                group.pop(key, None)
        return found

    def __repr__(self) -> str:
        groups = super().__repr__().removesuffix(")")
        return (f"gradscaler.torch.{groups}max_grad_norm: {self._max_grad_norm}\n"
                f"master_weights: {self._master_weights}\n)")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds `param_group`, as PyTorch's does. Raises TypeError and ValueError for what a step would refuse or
        ignore, and leaves the group as it was."""
        number, flattened = len(self.param_groups), self._flattened
        with unchanged_if_refused([param_group]):
            try:
                for key, value in self._formats.items():
                    param_group.setdefault(key, value)
                super().add_param_group(param_group)
                require_options(param_group, f"param_groups[{number}]")
                first: dict[Any, str] = {}
                for position, p in enumerate(param_group["params"]):
                    label = label_of(param_group, number, position)
                    if first.setdefault(p, label) is not label:
                        raise ValueError(f"{label} is a parameter that is given twice, the first time as {first[p]}")
                    self._require_steppable(p, param_group, label)
            except BaseException:
                del self.param_groups[number:]
                self._flattened = flattened
                raise
        self._seen = None

    def _require_steppable(self, p: Any, group: dict[str, Any], label: str) -> None:
        if not is_dtensor(p):
            torch_memory.require_plain(p, label)
        if p.dtype not in CODES:
            raise TypeError(f"{label} has dtype {p.dtype}; it must be float16, bfloat16, float32 or float64."
                            " For others use torch.optim with gradscaler.torch.GradScaler")
        if is_flattened(p):
            self._flattened = label
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

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss, is_told = None, False
        check, self._check = self._check, None
        if closure is not None:
            if hasattr(self, "found_inf"):
                # PyTorch's scaler leaves them behind, and would multiply the next scale by this one.
                for name in ("grad_scale", "found_inf"):
                    vars(self).pop(name, None)
                raise RuntimeError(NO_CLOSURE)
            with torch.enable_grad():
                loss = closure()
        # Hooks, closures and code around this function may have changed the gradients since.
        if (check is None or self._seen is None or not hasattr(self, "found_inf") or closure is not None
                or self._optimizer_step_pre_hooks or _global_pre_hooks() or not is_direct(self.step, _OWN_STEP)):
            check = None
            # Of parameters with masters it is asked first whether others have written them.
            is_told = self._bind(None if any(plan.copies for plan in self._plans) else
                                 torch.autograd.graph.increment_version)
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if grad_scale is not None and grad_scale.device.type == "cpu" and is_lost(grad_scale):
            # PyTorch's GradScaler has only looked at the gradients, which a loss times 0 makes 0.
            found_inf = torch.ones((), device="cpu")
        if self._flattened is not None and not (self._max_grad_norm is None and found_inf is None):
            raise ValueError(f"{self._flattened} is a part of what FullyShardedDataParallel has flattened, and no norm"
                             " or inf is known here of the other ranks; use fully_shard (FSDP2), or fused=False with"
                             " ShardedGradScaler and the model's own clip_grad_norm_")
        self._last_check, self._last_found = check, found_inf
        if not self._active:
            return loss
        held = self._hold()
        inv_scale, factor = None if grad_scale is None else grad_scale.double().reciprocal(), None
        if self._max_grad_norm is not None:
            if check is None:
                check = self._last_check = Check(self._scalers, self._active, grad_scale)
            if self._max_grad_norm < math.inf:
                factor = clip_factor(check, self._max_grad_norm)
        if any(self._versions.get(copy) != copy._version for plan in self._active for copy in plan.copies):
            # Other code wrote them, as model.load_state_dict does.
            self.refresh_master_weights()
        for plan in self._active:
            plan.use(self.param_groups)
        self._behind = True
        for plan in self._active if not is_told else ():
            torch.autograd.graph.increment_version(plan.written)
        # A CUDA graph would keep the addresses of the copies.
        in_double = factor is not None and not self._is_captured()
        for plan in self._active:
            if in_double and plan.key.double:
                held.append(plan.clip(self._grads_of(plan), inv_scale, factor))
                plan.step(None, found_inf)
            else:
                plan.step(product(inv_scale, factor), found_inf)
        del held
        self._mark_written()
        self._grads = []
        if self._lent and not self._is_captured():
            # Whoever has it reads it, and what he writes there must not be overwritten later.
            self._write_counts()
        return loss

    def _is_captured(self) -> bool:
        """Whether the step was put into a CUDA graph, and has not run yet."""
        return any(plan.context.device != "cpu" for plan in self._active) and bool(
            torch.cuda.is_current_stream_capturing())

    @property
    def applied(self) -> bool:
        """Whether the last step was applied, and not skipped for an inf or NaN; False before the first one.

        Waits for a CUDA device.
        """
        return self._last_found is None or not bool(self._last_found)

    def report(self) -> StepReport:
        """What the last step did, and which parameters overflowed first. Waits for a CUDA device.

        There is a check to report under ``gradscaler.torch.GradScaler`` and with `max_grad_norm`.
        """
        applied = self.applied
        return StepReport(applied) if self._last_check is None else self._last_check.report(applied)

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def _check_gradients(self, scale: Any) -> dict[Any, Any]:
        """For this package's GradScaler, which then calls :meth:`step`: found_inf by device. Writes no gradient."""
        if self._check is not None and self._skips_outside:
            # It has asked before, in the same step.
            return self._check.found_inf
        self._bind()
        held = self._hold()
        # PyTorch's scaler multiplies by a scale that was set before.
        self._check = Check(self._scalers, self._active, scale * getattr(self, "grad_scale", 1))
        del held
        found = self._check.found_inf
        for plan in self._active:
            for found_inf in found.values():
                overflow_groups(plan.key.ranks, found_inf)
        return found

    def _skip(self, found_inf: Any) -> None:
        """A step that this package's GradScaler does not call."""
        self._last_check, self._check, self._last_found = self._check, None, found_inf
        self._grads = []

    # What steps together.

    def _bind(self, tell: Any = None) -> bool:
        """Sees to it that the plans are those of the parameters and gradients of now.

        Returns whether `tell` was called with the parameters that a step writes, which is cheapest here.
        """
        groups = self.param_groups
        # A key that is new may be one that is refused.
        structure = [(len(group), len(group["params"]), group.get("state"), group.get("master"),
                      *(bool(group.get(key)) for key in _STRUCTURE)) for group in groups]
        if self._process != (os.getpid(), torch.get_num_threads()):
            # Those of a process that forked would wait for threads that are not here.
            self._write_counts()
            self._plans.clear()
            self._scalers = {}
            self._seen = None
            self._process = os.getpid(), torch.get_num_threads()
        if self._lent:
            if self._seen is not None and not self._is_state_same():
                self._seen = None
            self._lent = is_state_held(self._entries, self._plans)
        params: list[Any] = []
        for group in groups:
            params += group["params"]
        seen: Any = self._seen
        found = None if seen is None or seen.structure != structure else seen.look(params, tell=tell)
        if found and not all(map(found[1].present.__getitem__, self._empty)):
            found = None
        is_told = bool(found and tell and seen and seen.tells)
        if found is None:
            self._write_counts()
            self._seen, seen = None, Seen(params, structure)
            placed = seen.grads()
            alike = seen.are_alike(placed)
            grads = placed if alike else list(map(in_order, placed, params))
            found = seen.use(self._settle(params, grads, alike), grads, not all(map(operator.is_, grads, placed)))
            self._seen = seen
        if found is None:
            raise RuntimeError("parameters or gradients were replaced by another thread during the step")
        self._grads, looked = found
        for plan in self._plans:
            plan.point_at(looked if len(plan.indices) == len(params) else looked.pick(plan.indices))
        self._active = [plan for plan in self._plans if not plan.is_absent]
        return is_told

    def _settle(self, params: list[Any], grads: list[Any], alike: bool) -> list[Any]:
        settlement = Settlement(self._KIND, self.param_groups, self._entries, self._master_weights)
        self._plans = settlement.plans(grads, self._used, alike, self._seed)
        self._flattened = settlement.flattened or self._flattened
        self._empty = []
        for plan in self._plans:
            self._used.update(map(params.__getitem__, plan.indices))
            self._empty += [index for index, p in zip(plan.indices, plan.params, strict=True) if not p.numel()]
            for copy in plan.copies:
                # In other memory there may be other values, as after p.data = ...
                self._versions.pop(copy, None)
        return settlement.grads

    def _hold(self) -> list[Any]:
        """What keeps the memory of the plans while the library works on it and other threads run."""
        return [] if is_alone() else [hold(plan, self._grads_of(plan)) for plan in self._active]

    def _grads_of(self, plan: Plan) -> list[Any]:
        return [local(self._grads[index]) for index in plan.indices]

    def _is_state_same(self) -> bool:
        """Whether the state is what the plans step on. Blocks on a CUDA device."""
        if self._seen.sharded:
            return False
        if any(plan.look() != plan.seen for plan in self._plans):
            return False
        for plan in self._plans:
            for i, (index, entry, steps) in enumerate(zip(plan.indices, plan.entries, plan.steps(), strict=True)):
                if self._entries.get(self._seen.tensors[index], {}) is not entry and (entry or plan.state):
                    return False
                if any(entry.get(name) is not values[i] or (name.endswith(CODED) and name.removesuffix(CODED) in entry)
                       for name, values in plan.state.items()) or (
                        plan.key.master and entry.get(MASTER) is not plan.params[i]):
                    return False
                if self._KIND != native.SGD and float(entry.get("step", -1)) != steps:
                    return False
        return True

    # 16-bit parameters with masters.

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def refresh_master_weights(self) -> None:
        """Copies what was written to 16-bit parameters into their masters. Elements that agree keep all their bits.

        Call it after writing ``p.data``, which PyTorch does not count. After other writes the next step does it.
        """
        for group in self.param_groups:
            for p in group["params"]:
                master = self._entries.get(p, {}).get(MASTER)
                if master is not None:
                    narrow, wide = local(p.detach()), local(master)
                    wide.copy_(torch.where(wide.to(narrow.dtype) == narrow, wide, narrow.float()))

    def _mark_written(self) -> None:
        if self._seen is not None and self._seen.sharded:
            # Their shards were marked, which autograd does not follow.
            torch.autograd.graph.increment_version([p for p in self._seen.tensors if is_dtensor(p)])
        for plan in self._active:
            self._versions.update((copy, copy._version) for copy in plan.copies)


_OWN_STEP = FusedOptimizer.step


def _global_pre_hooks() -> Any:
    return getattr(sys.modules["torch.optim.optimizer"], "_global_optimizer_pre_hooks", None)
