# SPDX-License-Identifier: Apache-2.0
"""The optimizers of :mod:`gradscaler.torch`, with the constructors of ``torch.optim``. See :mod:`._optim`.

The module `_others`, which scripts/gen-api makes from the header, has the classes that torch.optim does not have.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .._native import native
from ..hyper import in_range
from ..policy import Unpack
from ..state_formats import REMAINDER
from ._optim import FusedOptimizer, Own
from ._param_groups import labelled_params
from ._state_formats import MASTER, NARROW_DTYPES, full_dtype

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"]

#: A learning rate: a number, or a tensor of one, which is read in every step.
Rate = Any


class SGD(FusedOptimizer, torch.optim.SGD):  # type: ignore[misc, unused-ignore]
    """Stochastic gradient descent, as ``torch.optim.SGD``."""

    _KIND = native.SGD

    def __init__(self, params: Any, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0,
                 weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
                 **own: Unpack[Own]) -> None:
        self._setup(fused, **own)
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize, foreach=foreach,
                         differentiable=differentiable, fused=fused)


class Adam(FusedOptimizer, torch.optim.Adam):  # type: ignore[misc, unused-ignore]
    """Adam, as ``torch.optim.Adam``."""

    _KIND = native.ADAM

    def __init__(self, params: Any, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None, decoupled_weight_decay: bool = False, **own: Unpack[Own]) -> None:
        self._setup(fused, **own)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused,
                         decoupled_weight_decay=decoupled_weight_decay)


class AdamW(FusedOptimizer, torch.optim.AdamW):  # type: ignore[misc, unused-ignore]
    """Adam with decoupled weight decay, as ``torch.optim.AdamW``."""

    # PyTorch's is an Adam whose groups have decoupled_weight_decay.
    _KIND = native.ADAMW

    def __init__(self, params: Any, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None, **own: Unpack[Own]) -> None:
        self._setup(fused, **own)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
                         capturable=capturable, differentiable=differentiable, fused=fused)


class Adagrad(FusedOptimizer, torch.optim.Adagrad):  # type: ignore[misc, unused-ignore]
    """Adagrad, as ``torch.optim.Adagrad``."""

    _KIND = native.ADAGRAD

    def __init__(self, params: Any, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
                 **own: Unpack[Own]) -> None:
        self._setup(fused, **own)
        super().__init__(params, lr, lr_decay, weight_decay, initial_accumulator_value, eps, foreach,
                         maximize=maximize, differentiable=differentiable, fused=fused)
        for p, group, label in labelled_params(self.param_groups):
            entry, first = self.state[p], group["initial_accumulator_value"]
            if p.dtype in NARROW_DTYPES or first != initial_accumulator_value:
                # PyTorch's has 16 bits, and the value of the constructor in every group.
                entry["sum"] = torch.full_like(p, first, dtype=full_dtype(p), requires_grad=False)
            if p.device.type != "meta":
                self._convert_entry(entry, p, group, label)


class RMSprop(FusedOptimizer, torch.optim.RMSprop):  # type: ignore[misc, unused-ignore]
    """RMSprop, as ``torch.optim.RMSprop``."""

    _KIND = native.RMSPROP

    def __init__(self, params: Any, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False, **own: Unpack[Own]) -> None:
        self._setup(None, **own)
        super().__init__(params, lr, alpha, eps, weight_decay, momentum, centered, capturable, foreach, maximize,
                         differentiable)


class Adadelta(FusedOptimizer, torch.optim.Adadelta):  # type: ignore[misc, unused-ignore]
    """Adadelta, as ``torch.optim.Adadelta``."""

    _KIND = native.ADADELTA

    def __init__(self, params: Any, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False, **own: Unpack[Own]) -> None:
        self._setup(None, **own)
        super().__init__(params, lr, rho, eps, weight_decay, foreach, capturable=capturable, maximize=maximize,
                         differentiable=differentiable)


class Adamax(FusedOptimizer, torch.optim.Adamax):  # type: ignore[misc, unused-ignore]
    """Adamax, as ``torch.optim.Adamax``."""

    _KIND = native.ADAMAX

    def __init__(self, params: Any, lr: Rate = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False, **own: Unpack[Own]) -> None:
        self._setup(None, **own)
        super().__init__(params, lr, betas, eps, weight_decay, foreach, maximize=maximize,
                         differentiable=differentiable, capturable=capturable)


class NAdam(FusedOptimizer, torch.optim.NAdam):  # type: ignore[misc, unused-ignore]
    """NAdam, as ``torch.optim.NAdam``.

    ``mu_product`` is worked out from the count of steps, as if betas and momentum_decay had always been those of now.
    """

    _KIND = native.NADAM

    def __init__(self, params: Any, lr: Rate = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, **own: Unpack[Own]) -> None:
        self._setup(None, **own)
        super().__init__(params, lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, foreach=foreach,
                         maximize=maximize, capturable=capturable, differentiable=differentiable)


class RAdam(FusedOptimizer, torch.optim.RAdam):  # type: ignore[misc, unused-ignore]
    """RAdam, as ``torch.optim.RAdam``."""

    _KIND = native.RADAM

    def __init__(self, params: Any, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 **own: Unpack[Own]) -> None:
        self._setup(None, **own)
        super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay, foreach=foreach,
                         maximize=maximize, capturable=capturable, differentiable=differentiable)


class ScheduleFree(FusedOptimizer):
    """A Schedule-Free optimizer, as those of the package schedulefree, whose state dicts load.

    It begins in training mode, and the sums of weights are state of each parameter, ``average``.
    """

    def eval(self) -> None:
        """Takes the parameters to the averaged weights, to evaluate or to save the model. Steps fail until
        :meth:`train`."""
        self._switch(False)

    def train(self) -> None:
        """Takes the parameters back to those at which gradients are taken."""
        self._switch(True)

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def _switch(self, training: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] == training:
                continue
            beta = group["betas"][0] if "betas" in group else group["momentum"]
            for p in group["params"]:
                entry = self.state.get(p, {})
                if not entry.get("step", 0):
                    continue
                if REMAINDER in entry:
                    raise ValueError("split masters cannot be switched in place; use master_weights=True")
                weights = entry.get(MASTER, p)
                z = entry["z"]
                now = weights.to(z.dtype)
                # As gsc_optimizer_set_evaluating: what has no average stays, for the way back.
                averaged = now.isfinite() & z.isfinite() & (now != z)
                moved = torch.where(averaged, now.lerp(z, 1.0 - (beta if training else 1.0 / beta)), now)
                weights.copy_(moved)
                if weights is not p:
                    p.copy_(moved)
            group["train_mode"] = training

    def _step(self, closure: Any) -> Any:
        if not all(group["train_mode"] for group in self.param_groups):
            raise RuntimeError("the parameters are averaged weights; call train() of the optimizer before the step")
        return super()._step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores `state_dict`, also one of the package schedulefree, which has counts and sums per group."""
        if any("weight_sum" in group for group in state_dict["param_groups"]):
            state_dict = self._converted(state_dict)
        super().load_state_dict(state_dict)

    def _converted(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        state, groups = dict(state_dict["state"]), []
        for group in state_dict["param_groups"]:
            known = {key: value for key, value in group.items() if key in self.defaults or key == "params"}
            groups.append({**self.defaults, **known, "weight_step_power": group["r"]})
            sums = torch.tensor([max(group["lr_max"], 0.0), group["weight_sum"]], dtype=torch.float64)
            for key in group["params"]:
                if "z" in state.get(key, {}):
                    state[key] = {**state[key], "average": sums.clone(), "step": torch.tensor(float(group["k"]))}
        return {**state_dict, "state": state, "param_groups": groups}


def checked(kind: int, /, **options: Any) -> dict[str, Any]:
    """`options` of a kind, or a ValueError with the words of PyTorch's own constructors."""
    lr = options["lr"]
    if isinstance(lr, torch.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    words = {"lr": "learning rate", "eps": "epsilon value"}
    for key, value in options.items():
        if key == "betas":
            for index, beta in enumerate(value):
                if not in_range(kind, f"beta{index + 1}", beta):
                    raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        elif not in_range(kind, key, value):
            raise ValueError(f"Invalid {words.get(key, f'{key} value')}: {value}")
    return options
