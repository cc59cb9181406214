# SPDX-License-Identifier: Apache-2.0
"""The state of the optimizers of :mod:`._optim`: tensors as PyTorch keeps them, state dicts, and master weights."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper
from .._enums import SLOTS
from .._native import native
from ..state_formats import EARLIER, EMA, REMAINDER, SCALE, slot_dtypes
from ._param_groups import labelled_params, require_options
from ._plan import OPTION_KEYS, OPTIONAL_KEYS, FormatChoice, Plan, format_choice
from ._shards import local
from ._state_dicts import has_squares, loaded_state, require_loadable, with_code_bits, without_code_bits
from ._state_formats import (
    CODES_SUFFIX,
    CODES_VERSION,
    FORMAT_KEYS,
    MASTER,
    convert_state,
    format_of,
    param_slot_dtypes,
)


class OptimizerState(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]
    """The state of an optimizer by parameter, which its plans step on."""

    _KIND = -1

    _entries: Any
    # Options of the optimizer that the state depends on.
    _formats: dict[str, Any]
    _master_weights: bool
    _seed: int
    # By which the formats of the state were chosen when it was made or loaded, by the number of the group.
    _choices: dict[int, FormatChoice]

    def _reset(self) -> None:
        """Forgets the steps taken, but not the state in tensors."""
        self._plans: list[Plan] = []
        # Compares parameters and gradients with those of the plans; None where new plans are needed.
        self._guard: Any = None
        # Whether other code may have state, and change it.
        self._state_is_shared = True
        # Whether the counts in the state are behind those of the plans.
        self._counts_are_stale = False
        self._loading: Any = None
        self.__dict__.setdefault("_choices", {})

    @property
    def state(self) -> Any:
        """State by parameter, as in ``torch.optim``. Edits take effect at the next step."""
        self._write_counts()
        self._state_is_shared = True
        return self._entries

    @state.setter
    def state(self, entries: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._entries = entries
        self._guard = None
        self._state_is_shared = True
        # What the plans counted belongs to the state that was.
        self._counts_are_stale = False

    def _write_counts(self) -> None:
        """Brings the step counts in the state, and what comes with the first applied step, up to those of the plans."""
        if not self._counts_are_stale:
            return
        self._counts_are_stale = False
        for plan in self._plans:
            for entry, number, pending, steps in zip(plan.entries, plan.groups, plan.pending_state, plan.steps(),
                                                     strict=True):
                if "step" in entry:
                    entry["step"].fill_(steps)
                if self._KIND == native.NADAM and "mu_product" in entry:
                    group = self.param_groups[number]
                    entry["mu_product"].fill_(
                        hyper.momentum_product(group["betas"][0], group["momentum_decay"], steps))
                if steps:
                    entry.update(pending)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_master_weights": self._master_weights, "_formats": self._formats,
                "_seed": self._seed, "_choices": self._choices}

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
            entries, self._choices = self._loaded_state(loading, state["param_groups"])
        elif "_choices" not in state:
            # Pickled by an earlier version.
            for entry, slot in itertools.product((entries or {}).values(), SLOTS[self._KIND]):
                if isinstance(entry, dict) and has_squares(self._KIND, entry, slot):
                    raise ValueError(f"the state {slot + CODES_SUFFIX!r} are {EARLIER}")
        self._reset()
        if entries is not None:
            self._entries = entries
        self.__dict__.setdefault("_formats", {})
        self.__dict__.setdefault("_seed", 0)
        super().__setstate__(state)

    def state_dict(self) -> dict[str, Any]:
        """As PyTorch's. Beside ``exp_avg_codes`` and ``exp_avg_scale``, ``exp_avg`` is a number, of the code."""
        found: dict[str, Any] = super().state_dict()
        state, own = found["state"], iter(labelled_params(self.param_groups))
        for number, group in enumerate(found["param_groups"]):
            group.pop("ungrouped", None)
            group.pop("codes", None)
            has_codes = group.get("state", "fp32") != "fp32"
            group.update(CODES_VERSION if has_codes else {})
            for key, (p, settings, label) in zip(group["params"], own, strict=False):
                if state.get(key) and (has_codes or group.get("master") or any(
                        name == REMAINDER or name.endswith(SCALE) for name in state[key])):
                    # The format of the group may have been set since the last step.
                    entry = dict(state[key])
                    self._convert_entry(entry, p, settings, label, self._choices.get(number))
                    state[key] = with_code_bits(self._KIND, entry)
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict`, of :meth:`state_dict` here or of the optimizer of this name in ``torch.optim``, or in
        FlashOptim, after the model's weights.

        Tensors are copied, and converted to the format that the parameter's group has here. Masters that were saved
        are dropped where there are none. ValueError, before anything changes, for state of other shapes.
        """

        def take(_: Any, found: dict[str, Any]) -> dict[str, Any]:
            found = {**found, "state": without_code_bits(self._KIND, found)}
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
            require_options(group, label, self._KIND)
            for name in OPTION_KEYS[self._KIND]:
                if name not in group and name not in OPTIONAL_KEYS and name in self.defaults:
                    raise ValueError(f"{label} has no {name!r}; it is not one of {type(self).__name__}")
            for name in hyper.FLAGS:
                if group.get(name) and name not in self.defaults and name not in FORMAT_KEYS:
                    raise ValueError(f"{label} has {name}={group[name]}, which {type(self).__name__} does not take")
        for p, key in self._pairs(state_dict):
            require_loadable(self._KIND, p, state_dict["state"].get(key, {}), f"state_dict['state'][{key!r}]")

    def _loaded_state(self, state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> tuple[Any, Any]:
        """The saved state in the formats of `groups`, those of now with the hyper-parameters that were saved."""
        pairs = self._pairs(state_dict)
        keys = {key for _, key in pairs}
        entries: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        entries.update({key: value for key, value in state_dict["state"].items() if key not in keys})
        choices = {number: format_choice(self._KIND, group, None) for number, group in enumerate(groups)}
        numbers = [number for number, group in enumerate(groups) for _ in group["params"]]
        own = {p: (group, label, choices[number])
               for (p, group, label), number in zip(labelled_params(groups), numbers, strict=True)}
        # Of FlashOptim's masters.
        widths = {key: group.get("master_bytewidth") for group in state_dict["param_groups"] for key in group["params"]}
        for p, key in pairs:
            if key in state_dict["state"]:
                entries[p] = loaded_state(self._KIND, p, state_dict["state"][key], widths.get(key),
                                          f"state_dict['state'][{key!r}]")
                self._convert_entry(entries[p], p, *own[p])
        return entries, choices

    def _convert_entry(self, entry: dict[str, Any], p: Any, group: dict[str, Any], label: str,
                       choice: FormatChoice | None = None) -> None:
        """`choice`: by which the state of the group was made, if it was."""
        state, master = format_of(group, p, label)
        options = format_choice(self._KIND, group, choice).options
        codes = param_slot_dtypes(p, self._KIND, state, master, hyper.flags_of(group), options)
        convert_state(entry, p, self._KIND, codes, label, self._master_weights)
        if not group.get("ema_decay"):
            entry.pop(EMA, None)

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def fp32_state_dict(self) -> dict[str, Any]:
        """:meth:`state_dict` with all state in float32, and split masters as ``master_param``. Every format here, every
        number of ranks and the optimizer of this name in ``torch.optim`` load it."""
        found = super().state_dict()
        codes = slot_dtypes(self._KIND, "fp32", None)
        for p, key in self._pairs(found):
            if key in found["state"]:
                entry = found["state"][key] = dict(found["state"][key])
                convert_state(entry, p, self._KIND, codes, f"state[{key}]", True)
        for group in found["param_groups"]:
            for key in FORMAT_KEYS:
                group.pop(key, None)
        return found

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
