# SPDX-License-Identifier: Apache-2.0
"""The library's optimizers as subclasses of ``torch.optim.Optimizer``; users import them from :mod:`gradscaler.torch`.

What PyTorch's base class does is left to it: param groups, hooks, pickling, ``zero_grad``, the form of a state dict.
``state`` holds plain tensors, as with PyTorch; the library steps on their memory. Parameters that step together are in
one :class:`~gradscaler.torch._plan.Plan`. Whether these are still the same is looked at in every step, and plans are
rebuilt if not: for other memory, or the first gradient of a parameter. Later it may be None and is absent then.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper, torch_memory
from .._enums import SLOTS
from .._native import integer, native, real
from ..arrays import as_tensor
from ..formats import REMAINDER, codes_of, numbers_of
from ._alive import hold, is_alone
from ._check import Check, Checker, StepReport, clip_factor, is_lost
from ._formats import MASTER, all_names, fit, fitted, format_of, fresh, names_of, offsets_of, require_scales
from ._held import is_counted, is_direct, is_state_held
from ._plan import Key, Member, Plan
from ._seen import Seen, in_order, placed_grads
from ._shards import is_dtensor, is_flattened, is_made_for_a_part, local, mesh_groups, overflow_groups, shards_of

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NARROW = (torch.float16, torch.bfloat16)
#: Group keys that decide what steps together. The last two are refused.
_STRUCTURE = ("nesterov", "amsgrad", "maximize", "momentum", "centered", "decoupled_weight_decay", "differentiable",
              "capturable")
#: What works on memory: torch.compile would follow it call by call, for minutes, and gain nothing.
untraced: Any = getattr(torch, "_disable_dynamo", lambda function: function)


class FusedOptimizer(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]
    """What the optimizers of :mod:`gradscaler.torch` have in common. Use one of its classes.

    `params` are tensors, named ones or param groups, as in ``torch.optim``: float16, bfloat16, float32 or float64,
    plain or DTensor. `max_grad_norm` (finite, >= 0) limits the L2 norm of all gradients together, in the pass of the
    step; None does not. `master_weights` keeps a float32 master of every float16 and bfloat16 parameter in its state
    and steps on that. `state`, `master` and `seed` are of :mod:`._optimizers`. With ``fused=False`` a GradScaler
    unscales the gradients itself and does not call ``step`` when it skips; `fused` else, and `foreach`, change nothing.
    Raises ValueError for `capturable` and `differentiable`, and TypeError naming a parameter that cannot be used. Steps
    are enqueued in the current stream.
    """

    _KIND = -1

    def _setup(self, max_grad_norm: float | None, master_weights: bool, fused: bool | None, state: str,
               master: str | None, seed: int) -> None:
        """Before the constructor of PyTorch's class, which adds the groups."""
        hyper.format_code("state", state, hyper.STATE)
        if hyper.format_code("master", master, hyper.MASTER) != native.MASTER_NONE and master_weights:
            raise ValueError(f"master is {master!r}, and master_weights is True; a parameter has one kind of master")
        self._formats = {**({"state": state} if state != "fp32" else {}),
                         **({"master": master} if master is not None else {})}
        self._seed = integer("seed", seed, -(1 << 63), (1 << 63) - 1)
        if max_grad_norm is not None and is_made_for_a_part():
            raise ValueError(f"max_grad_norm is {max_grad_norm}, but ZeroRedundancyOptimizer gives each rank only some"
                             " of the parameters, whose norm is not that of all; call clip_grad_norm_ before the step")
        self._forget()
        self.max_grad_norm = max_grad_norm
        self._master_weights = bool(master_weights)
        self._fused = fused is not False

    def _forget(self) -> None:
        """As if no step had been taken yet; the state in tensors stays."""
        self._plans: list[Plan] = []
        self._process = (0, 0)
        # Those that have a gradient now.
        self._active: list[Plan] = []
        # The parameters that have had a gradient.
        self._used: set[Any] = set()
        self._members: list[tuple[Member, dict[str, Any]]] = []
        self._seen: Any = None
        # The gradients that the plans point at, by parameter: held until the end of the step.
        self._grads: list[Any] = []
        # Whether somebody else may have state, and change it.
        self._lent = True
        # Whether the counts in the state are behind those of the plans.
        self._behind = False
        self._loading: Any = None
        self._check: Check | None = None
        self._checker = Checker()
        self._last_check: Check | None = None
        self._has_stepped = False
        self._last_found: Any = None
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
        """Every step limits the L2 norm of all gradients together to this, in its own pass; None: to nothing."""
        return self._max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float | None) -> None:
        if value is not None and not 0.0 <= real("max_grad_norm", value) < math.inf:
            raise ValueError(f"max_grad_norm is {value}; it must be finite and >= 0")
        self._max_grad_norm = None if value is None else real("max_grad_norm", value)

    # State, as PyTorch keeps it.

    @property
    def state(self) -> Any:
        """State by parameter, as of ``torch.optim``. What is changed in it counts, however long it was held."""
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
        counts = itertools.chain.from_iterable(plan.steps() for plan in self._plans)
        for (member, entry), steps in zip(self._members, counts, strict=True):
            if "step" in entry:
                entry["step"].fill_(steps)
            if self._KIND == native.NADAM and "mu_product" in entry:
                group = self.param_groups[member.group]
                entry["mu_product"].fill_(hyper.momentum_product(group["betas"][0], group["momentum_decay"], steps))
            if steps:
                entry.update(member.made)

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
                for key in ("state", "master"):
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict`, of :meth:`state_dict` here or of the optimizer of this name in ``torch.optim``.

        Tensors are copied, and converted to the format that the parameter's group has here. Masters that were saved
        are dropped where there are none. ValueError, before anything changes, for state of other shapes.
        """

        def take(_: Any, found: dict[str, Any]) -> None:
            self._require_loadable(found)
            self._loading = found

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

    def _labelled(self) -> Iterator[tuple[Any, dict[str, Any], str]]:
        """The parameters with their groups and what they are called."""
        for number, group in enumerate(self.param_groups):
            for position, p in enumerate(group["params"]):
                yield p, group, label_of(group, number, position)

    def _require_loadable(self, state_dict: dict[str, Any]) -> None:
        for number, group in enumerate(state_dict["param_groups"]):
            _require_options(group, f"state_dict['param_groups'][{number}]")
        slots, names = {*SLOTS[self._KIND], MASTER, REMAINDER}, all_names(self._KIND)
        numbers = numbers_of(self._KIND)
        for p, key in self._pairs(state_dict):
            for slot, value in state_dict["state"].get(key, {}).items():
                if slot in names - slots:
                    require_scales(value, p, f"state_dict['state'][{key}][{slot!r}]")
                elif slot in numbers and value is not None and value.numel() != numbers[slot]:
                    raise ValueError(f"state_dict['state'][{key}][{slot!r}] has {value.numel()} numbers; it must have"
                                     f" {numbers[slot]}")
                elif slot in slots - set(numbers) and value is not None and tuple(value.shape) != tuple(p.shape):
                    raise ValueError(f"state_dict['state'][{key}][{slot!r}] has shape {tuple(value.shape)}, but the"
                                     f" parameter has {tuple(p.shape)}")

    def _loaded(self, state_dict: dict[str, Any]) -> Any:
        """The state of a dict: PyTorch's would have the dtype of 16-bit parameters, and share memory with the dict."""
        pairs, names = self._pairs(state_dict), all_names(self._KIND)
        entries: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        entries.update({key: value for key, value in state_dict["state"].items()
                        if key not in {saved for _, saved in pairs}})
        labels = {p: (group, label) for p, group, label in self._labelled()}
        for p, key in pairs:
            if key not in state_dict["state"]:
                continue
            own = entries[p] = {}
            for slot, value in state_dict["state"][key].items():
                if slot == "step":
                    own[slot] = _count(float(value))
                elif isinstance(value, torch.Tensor) and (slot not in names or slot in numbers_of(self._KIND)
                                                          or not value.dtype.is_floating_point
                                                          or f"{slot}_scale" in state_dict["state"][key]):
                    # The user's own, codes, and numbers per tensor.
                    own[slot] = value.detach().to(p.device, copy=True)
                elif isinstance(value, torch.Tensor):
                    dtype = torch.float64 if p.dtype == torch.float64 else torch.float32
                    own[slot] = torch.empty_like(p, dtype=dtype, requires_grad=False).copy_(value.detach())
                else:
                    own[slot] = value
            self._fit(own, p, *labels[p])
        return entries

    def _fit(self, entry: dict[str, Any], p: Any, group: dict[str, Any], label: str) -> None:
        """Converts the state of a parameter to the format of its group."""
        state, master = format_of(group, p, label)
        fit(entry, p, self._KIND, codes_of(self._KIND, state, master), label, self._master_weights)

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def fp32_state_dict(self) -> dict[str, Any]:
        """:meth:`state_dict` with all state in float32, and split masters as ``master_param``: what every format here,
        every number of ranks and the optimizer of this name in ``torch.optim`` load."""
        found = self.state_dict()
        codes = codes_of(self._KIND, "fp32", None)
        for p, key in self._pairs(found):
            if key in found["state"]:
                entry = found["state"][key] = dict(found["state"][key])
                fit(entry, p, self._KIND, codes, f"state[{key}]", True)
        for group in found["param_groups"]:
            group.pop("state", None)
            group.pop("master", None)
        return found

    def __repr__(self) -> str:
        groups = super().__repr__().removesuffix(")")
        return (f"gradscaler.torch.{groups}max_grad_norm: {self._max_grad_norm}\n"
                f"master_weights: {self._master_weights}\n)")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds `param_group`, as PyTorch's does. TypeError and ValueError for what a step would refuse, or ignore."""
        for key, value in self._formats.items():
            param_group.setdefault(key, value)
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        try:
            _require_options(param_group, f"param_groups[{number}]")
            for position, p in enumerate(param_group["params"]):
                label = label_of(param_group, number, position)
                if not is_dtensor(p):
                    torch_memory.require_plain(p, label)
                if p.dtype not in _DTYPES:
                    raise TypeError(f"{label} has dtype {p.dtype}; it must be float16, bfloat16, float32 or float64."
                                    " For others use torch.optim with gradscaler.torch.GradScaler")
                if is_flattened(p):
                    self._flattened = label
                _, master = format_of(param_group, p, label)
                if master is not None and self._master_weights:
                    raise ValueError(f"master is {master!r} in the group of {label}, and master_weights is True; a"
                                     " parameter has one kind of master")
        except BaseException:
            self.param_groups.pop()
            raise
        self._seen = None

    # The step.

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes a step with the gradients in ``.grad``, and returns what `closure` returned.

        A parameter whose ``.grad`` is None is left as it is. Under a GradScaler (its attributes `grad_scale` and
        `found_inf`) gradients are unscaled in the pass of the step, which is skipped if one is inf or NaN; ``.grad``
        itself is not written. InvalidArgumentError, ValueError or TypeError name what cannot be stepped on.
        """
        return self._step(closure)

    @untraced  # type: ignore[untyped-decorator, unused-ignore]
    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        check, self._check = self._check, None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Hooks, closures and code around this function may have changed the gradients since.
        if (check is None or self._seen is None or not hasattr(self, "found_inf") or closure is not None
                or self._optimizer_step_pre_hooks or _global_pre_hooks() or not is_direct(self.step, _OWN_STEP)):
            check = None
            self._bind()
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if grad_scale is not None and grad_scale.device.type == "cpu" and is_lost(grad_scale):
            # PyTorch's GradScaler has only looked at the gradients, which a loss times 0 makes 0.
            found_inf = torch.ones((), device="cpu")
        if self._flattened is not None and not (self._max_grad_norm is None and found_inf is None):
            raise ValueError(f"{self._flattened} is a part of what FullyShardedDataParallel has flattened, and no norm"
                             " or inf is known here of the other ranks; use fully_shard (FSDP2), or fused=False with"
                             " ShardedGradScaler and the model's own clip_grad_norm_")
        self._last_check, self._last_found, self._has_stepped = check, found_inf, True
        if not self._active:
            return loss
        held = self._hold()
        inv_scale, factor = None if grad_scale is None else grad_scale.double().reciprocal(), None
        if self._max_grad_norm is not None:
            if check is None:
                check = self._last_check = Check(self._checker, self._active, grad_scale)
            factor = clip_factor(check, self._max_grad_norm)
        if any(self._versions.get(copy) != copy._version for plan in self._active for copy in plan.copies):
            # Somebody wrote them, as model.load_state_dict does.
            self.refresh_master_weights()
        for plan in self._active:
            plan.use(self.param_groups)
        self._behind = True
        # Before the step, which leaves nothing of them in the caches.
        for plan in self._active:
            torch.autograd.graph.increment_version(plan.written)
        # A CUDA graph would keep the addresses of the copies.
        in_double = factor is not None and not self._is_captured()
        for plan in self._active:
            if in_double and plan.key.double:
                held.append(plan.clip(self._grads_of(plan), inv_scale, factor))
                plan.step(None, found_inf)
            else:
                plan.step(_product(inv_scale, factor), found_inf)
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
        return self._has_stepped and (self._last_found is None or not bool(self._last_found))

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
        self._check = Check(self._checker, self._active, scale * getattr(self, "grad_scale", 1))
        del held
        found = self._check.found_inf
        for plan in self._active:
            for flag in found.values():
                overflow_groups(plan.key.ranks, flag)
        return found

    def _skip(self, found_inf: Any) -> None:
        """A step that this package's GradScaler does not call."""
        self._last_check, self._check = self._check, None
        self._last_found, self._has_stepped = found_inf, True
        self._grads = []

    # What steps together.

    def _bind(self) -> None:
        """Sees to it that the plans are those of the parameters and gradients of now."""
        groups = self.param_groups
        structure = [(len(group["params"]), group.get("state"), group.get("master"),
                      *(bool(group.get(key)) for key in _STRUCTURE)) for group in groups]
        if self._process != (os.getpid(), torch.get_num_threads()):
            # Those of a process that forked would wait for threads that are not here.
            self._write_counts()
            self._plans.clear()
            self._checker = Checker()
            self._seen = None
            self._process = os.getpid(), torch.get_num_threads()
        if self._lent:
            if self._seen is not None and not self._is_state_same():
                self._seen = None
            self._lent = is_state_held(self._entries, self._members, self._plans)
        params = [p for group in groups for p in group["params"]]
        known = self._seen if self._seen is not None and self._seen.is_of(params) else None
        placed = placed_grads(params, any(map(is_dtensor, params)) if known is None else known.sharded)
        grads = list(map(in_order, placed, params)) if known is None or known.copied else placed
        found = None if known is None or known.structure != structure else known.look(grads)
        if found is None:
            self._write_counts()
            self._seen = None
            grads = list(map(in_order, grads, params))
            all_grads = self._settle(params, grads)
            self._seen = Seen(params, all_grads, structure, not all(map(operator.is_, grads, placed)))
            found = self._seen.look(grads)
        self._grads = grads
        for plan in self._plans:
            plan.point_at(found if len(plan.indices) == len(params) else found.pick(plan.indices))
        self._active = [plan for plan in self._plans if not plan.is_absent]

    def _hold(self) -> list[Any]:
        """What keeps the memory of the plans while the library works on it and other threads run."""
        return [] if is_alone() else [hold(plan, self._grads_of(plan)) for plan in self._active]

    def _grads_of(self, plan: Plan) -> list[Any]:
        """The gradients of a plan, as plain tensors."""
        return [local(self._grads[index]) for index in plan.indices]

    def _is_state_same(self) -> bool:
        """Whether the state is what the plans step on. Blocks on a CUDA device."""
        if self._seen.sharded:
            return False
        if any(plan.look() != plan.seen for plan in self._plans):
            return False
        counts = itertools.chain.from_iterable(plan.steps() for plan in self._plans)
        for (member, entry), steps in zip(self._members, counts, strict=True):
            if self._entries.get(self._seen.tensors[member.index], {}) is not entry and (entry or member.state):
                return False
            tensors = {**member.state, **({MASTER: member.param} if member.copy is not None else {})}
            if not all(entry.get(slot) is value for slot, value in tensors.items()):
                return False
            if self._KIND != native.SGD and float(entry.get("step", -1)) != steps:
                return False
        return True

    def _settle(self, params: list[Any], grads: list[Any]) -> list[Any]:
        """Makes the plans, and returns the gradients that they are made of.

        A parameter that has had a gradient is in one; if it has none now, memory like it stands for it.
        """
        sets: dict[Any, list[tuple[Member, dict[str, Any], int]]] = {}
        unseen = [p for p in params if p not in self._entries]
        found: list[Any] = []
        offsets = offsets_of(params)
        try:
            for number, group in enumerate(self.param_groups):
                _require_options(group, f"param_groups[{number}]")
                for position, p in enumerate(group["params"]):
                    grad = grads[len(found)]
                    if grad is None and p in self._used and (self._KIND == native.SGD or p in self._entries):
                        grad = torch.empty_like(p, requires_grad=False)
                    found.append(grad)
                    if grad is not None:
                        member = Member(len(found) - 1, number, label_of(group, number, position), p, grad, None,
                                        offset=offsets[len(found) - 1])
                        key, steps, entry = self._member(member, group)
                        sets.setdefault(key, []).append((member, entry, steps))
            plans = [self._plan(key, [member for member, _, _ in members], [steps for _, _, steps in members])
                     for key, members in sets.items()]
        except BaseException:
            for p in unseen:
                self._entries.pop(p, None)
            raise
        self._plans = plans
        self._members = [(member, entry) for members in sets.values() for member, entry, _ in members]
        self._used.update(params[member.index] for member, _ in self._members)
        for member, _ in self._members:
            # zero_grad() is to free it.
            member.grad = member.memory = None
        return found

    def _member(self, member: Member, group: dict[str, Any]) -> tuple[Key, int, dict[str, Any]]:
        """Fills a member in: the key of its plan, its count of steps, and its entry in the state."""
        p, grad, label = member.param, member.grad, member.label
        shards = shards_of(p, grad, label)
        if is_flattened(p):
            self._flattened = label
        if (shards or is_flattened(p)) and self._KIND in (native.LAMB, native.LARS, native.NOVOGRAD):
            raise ValueError(f"{label} is sharded, but {type(self).__name__} needs the norms of whole tensors; use"
                             " another optimizer")
        if grad.is_sparse:
            raise ValueError(f"{label}.grad is sparse; make it dense, as of nn.Embedding with sparse=False, or use"
                             " torch.optim with gradscaler.torch.GradScaler")
        # Before state is made for it.
        member.memory = (as_tensor(local(p), argument=label, any_order=True),
                         as_tensor(local(grad), argument=f"{label}.grad", any_order=True, writable=False))
        kind = native.ADAMW if self._KIND == native.ADAM and group.get("decoupled_weight_decay") else self._KIND
        flags = sum(bit for name, bit in hyper.FLAGS.items() if group.get(name))
        if kind in (native.ADAM, native.ADAMW):
            flags &= ~native.OPTIMIZER_DECOUPLED_WEIGHT_DECAY
        slots = tuple(slot for slot in SLOTS[kind] if hyper.has_slot(kind, slot, group.get("momentum", 0), flags))
        entry = self._entries.get(p, {})
        state, master_format = format_of(group, p, label)
        codes = codes_of(kind, state, master_format)
        slots += (REMAINDER,) * (REMAINDER in codes)
        steps = self._state_of(member, entry, slots, codes, group)
        if master_format is not None or state != "fp32":
            # By which random bits go, of SGD too.
            entry.setdefault("step", _count(float(steps)))
            steps = int(entry["step"])
        master = self._master_weights and p.dtype in _NARROW
        if master:
            entry[MASTER] = p.detach().float() if entry.get(MASTER) is None else fitted(entry[MASTER], p)
        if entry or slots:
            self._entries[p] = entry
        for slot, value in member.state.items():
            if is_dtensor(p) != is_dtensor(value) and slot not in numbers_of(kind):
                raise TypeError(f"{label}'s state {slot!r} is a {type(value).__name__}, but the parameter is a"
                                f" {type(p).__name__}; load sharded state by torch.distributed.checkpoint")
        member.param, member.copy = (local(entry[MASTER]), local(p)) if master else (local(p), None)
        member.grad = local(grad)
        member.state = {slot: local(value) for slot, value in member.state.items()}
        device = member.param.device
        ranks = mesh_groups(p) if is_dtensor(p) else ()
        key = Key(kind, flags, slots, tuple(codes[slot] for slot in slots), hyper.MASTER[master_format], master,
                  grad.dtype == torch.float64, "cpu" if device.type == "cpu" else str(device), shards, ranks)
        return key, steps, entry

    def _state_of(self, member: Member, entry: dict[str, Any], slots: tuple[str, ...], codes: dict[str, int],
                  group: dict[str, Any]) -> int:
        """Makes the state of a parameter that has none, and returns its count of steps."""
        p, names = member.param, {slot: names_of(slot, codes[slot]) for slot in slots}
        fit(entry, p, self._KIND, codes, member.label, self._master_weights)
        if self._KIND == native.SGD:
            # PyTorch has a buffer from the first applied step on, and none before.
            known = entry.get("momentum_buffer") is not None
            if "momentum_buffer" in slots and not known:
                member.made.update(fresh(p, "momentum_buffer", codes["momentum_buffer"]))
                if "step" in entry:
                    entry["step"].zero_()
            steps = int(entry.get("step", known))
        else:
            if not set(entry) - {MASTER, REMAINDER}:
                entry["step"] = _count(0.0)
                if self._KIND == native.NADAM:
                    entry["mu_product"] = torch.tensor(1.0, device="cpu")
                for slot in slots:
                    if slot != REMAINDER:
                        entry.update(fresh(p, slot, codes[slot], group.get("initial_accumulator_value", 0.0)))
            if self._KIND == native.RMSPROP and "momentum_buffer" in slots and entry.get("momentum_buffer") is None:
                # Centered, the library has a buffer that PyTorch has with momentum alone.
                entry.update(fresh(p, "momentum_buffer", codes["momentum_buffer"]))
            for name in ("step", *itertools.chain.from_iterable(names.values())):
                if name not in entry:
                    raise ValueError(f"the state of {member.label} has no {name!r}; it has"
                                     f" {', '.join(map(str, entry))}")
            steps = int(entry["step"])
        state = {**entry, **member.made}
        member.state = {name: state[name] for name in itertools.chain.from_iterable(names.values())}
        return steps

    def _plan(self, key: Key, members: list[Member], steps: list[int]) -> Plan:
        plan = Plan(key, members, self.param_groups, self._seed)
        plan.set_steps(steps)
        for copy in plan.copies:
            # In other memory there may be other values, as after p.data = ...
            self._versions.pop(copy, None)
        return plan

    # 16-bit parameters with masters.

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def refresh_master_weights(self) -> None:
        """Masters take over what was written to their 16-bit parameters; elements that agree keep all their bits.

        A step does this by itself where PyTorch counted the writing; it does not for ``p.data``, of which nobody is
        told.
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


def _count(steps: float) -> Any:
    # The dtype that PyTorch's have.
    return torch.tensor(steps, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32,
                        device="cpu")


def label_of(group: dict[str, Any], number: int, position: int) -> str:
    """What messages and reports call a parameter."""
    names = group.get("param_names")
    return str(names[position]) if names else f"param_groups[{number}]['params'][{position}]"


def _require_options(group: dict[str, Any], label: str) -> None:
    for key, why in (("differentiable", "autograd does not follow the step"),
                     ("capturable", "its counts of steps are not on the device")):
        if group.get(key):
            raise ValueError(f"{label} has {key}=True, which is not supported: {why}; use torch.optim")


def _product(inv_scale: Any, factor: Any) -> Any:
    if inv_scale is None or factor is None:
        return factor if inv_scale is None else inv_scale
    return inv_scale.to(factor.device) * factor
