# SPDX-License-Identifier: Apache-2.0
"""The optimizers: their arguments, with PyTorch's names and defaults. What they share is in :mod:`.optim`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._enums import SLOTS
from ._native import native
from .device import DeviceLike
from .optim import Optimizer

_State = Mapping[str, Any] | str


# gen-api: optimizers gsc_optimizer_options
__all__ = ["SGD", "Adam", "AdamW", "Adagrad", "Lion", "LAMB", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam",
           "AdaBelief", "AdEMAMix", "AdamWScheduleFree", "SGDScheduleFree", "LARS", "NovoGrad"]


class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD.

    State: ``momentum_buffer``, if momentum is not 0.
    """

    __slots__ = ()
    _KIND = native.SGD
    _KEYS = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
    _SLOTS = SLOTS[native.SGD]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                             nesterov=nesterov, maximize=maximize, zero_grads=zero_grads,
                                             write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class Adam(Optimizer):
    """Adam, as torch.optim.Adam: weight decay is added to the gradient.

    State: ``exp_avg``, ``exp_avg_sq``, and ``max_exp_avg_sq`` with AMSGrad.
    """

    __slots__ = ()
    _KIND = native.ADAM
    _KEYS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")
    _SLOTS = SLOTS[native.ADAM]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
                 model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32",
                 master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                             maximize=maximize, zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.

    State: ``exp_avg``, ``exp_avg_sq``, and ``max_exp_avg_sq`` with AMSGrad.
    """

    __slots__ = ()
    _KIND = native.ADAMW
    _KEYS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")
    _SLOTS = SLOTS[native.ADAMW]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32",
                 master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                             maximize=maximize, zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class Adagrad(Optimizer):
    """Adagrad, as torch.optim.Adagrad.

    State: ``sum``, which starts at ``initial_accumulator_value``.
    """

    __slots__ = ()
    _KIND = native.ADAGRAD
    _KEYS = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize")
    _SLOTS = SLOTS[native.ADAGRAD]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-2, lr_decay: float = 0.0,
                 weight_decay: float = 0.0, initial_accumulator_value: float = 0.0, eps: float = 1e-10, *,
                 maximize: bool = False, model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False,
                 state: _State = "fp32", master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
                                             initial_accumulator_value=initial_accumulator_value, eps=eps,
                                             maximize=maximize, zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class Lion(Optimizer):
    """Lion (Chen et al. 2023, arXiv:2302.06675).

    State: ``exp_avg``.
    """

    __slots__ = ()
    _KIND = native.LION
    _KEYS = ("lr", "betas", "weight_decay", "maximize")
    _SLOTS = SLOTS[native.LION]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
                 weight_decay: float = 0.0, *, maximize: bool = False, model_copy: Any = None, zero_grads: bool = False,
                 write_grads: bool = False, state: _State = "fp32", master: str | None = None, seed: int = 0,
                 device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class LAMB(Optimizer):
    """LAMB (You et al. 2020, arXiv:1904.00962).

    State: ``exp_avg``, ``exp_avg_sq``.
    """

    __slots__ = ()
    _KIND = native.LAMB
    _KEYS = ("lr", "betas", "eps", "weight_decay", "maximize")
    _SLOTS = SLOTS[native.LAMB]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-6, weight_decay: float = 1e-2, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class RMSprop(Optimizer):
    """RMSprop, as torch.optim.RMSprop; with eps_root in place of eps as TensorFlow's and Keras's.

    State: ``square_avg``, ``momentum_buffer``, ``grad_avg``, which depend on momentum and centered.
    """

    __slots__ = ()
    _KIND = native.RMSPROP
    _KEYS = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "eps_root", "maximize")
    _SLOTS = SLOTS[native.RMSPROP]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, eps_root: float = 0.0, *,
                 maximize: bool = False, model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False,
                 state: _State = "fp32", master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                                             centered=centered, eps_root=eps_root, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta.

    State: ``square_avg``, ``acc_delta``.
    """

    __slots__ = ()
    _KIND = native.ADADELTA
    _KEYS = ("lr", "rho", "eps", "weight_decay", "maximize")
    _SLOTS = SLOTS[native.ADADELTA]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0.0, *, maximize: bool = False, model_copy: Any = None, zero_grads: bool = False,
                 write_grads: bool = False, state: _State = "fp32", master: str | None = None, seed: int = 0,
                 device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2015), as torch.optim.Adamax.

    State: ``exp_avg``, ``exp_inf``.
    """

    __slots__ = ()
    _KIND = native.ADAMAX
    _KEYS = ("lr", "betas", "eps", "weight_decay", "maximize")
    _SLOTS = SLOTS[native.ADAMAX]

    def __init__(self, params: Any, grads: Any = None, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class NAdam(Optimizer):
    """NAdam (Dozat 2016), as torch.optim.NAdam.

    State: ``exp_avg``, ``exp_avg_sq``.
    """

    __slots__ = ()
    _KIND = native.NADAM
    _KEYS = ("lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize")
    _SLOTS = SLOTS[native.NADAM]

    def __init__(self, params: Any, grads: Any = None, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                             momentum_decay=momentum_decay,
                                             decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class RAdam(Optimizer):
    """RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam.

    State: ``exp_avg``, ``exp_avg_sq``.
    """

    __slots__ = ()
    _KIND = native.RADAM
    _KEYS = ("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
    _SLOTS = SLOTS[native.RADAM]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *,
                 maximize: bool = False, model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False,
                 state: _State = "fp32", master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                             decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class AdaBelief(Optimizer):
    """AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief.

    State: ``exp_avg``, ``exp_avg_var``.
    """

    __slots__ = ()
    _KIND = native.ADABELIEF
    _KEYS = ("lr", "betas", "eps", "weight_decay", "eps_root", "decoupled_weight_decay", "maximize")
    _SLOTS = SLOTS[native.ADABELIEF]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-16, weight_decay: float = 0.0, eps_root: float = 1e-16,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, eps_root=eps_root,
                                             decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
                                             zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class AdEMAMix(Optimizer):
    """AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137).

    State: ``exp_avg``, ``exp_avg_sq``, ``exp_avg_slow``.
    """

    __slots__ = ()
    _KIND = native.ADEMAMIX
    _KEYS = ("lr", "betas", "eps", "weight_decay", "beta3", "alpha", "warmup_steps", "beta3_warmup", "maximize")
    _SLOTS = SLOTS[native.ADEMAMIX]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, beta3: float = 0.9999, alpha: float = 5.0,
                 warmup_steps: int = 0, beta3_warmup: int = 0, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, beta3=beta3,
                                             alpha=alpha, warmup_steps=warmup_steps, beta3_warmup=beta3_warmup,
                                             maximize=maximize, zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class AdamWScheduleFree(Optimizer):
    """Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree.

    State: z, ``exp_avg_sq``, average.
    """

    __slots__ = ()
    _KIND = native.ADAMW_SCHEDULE_FREE
    _KEYS = ("lr", "betas", "eps", "weight_decay", "warmup_steps", "weight_step_power", "weight_lr_power", "maximize")
    _SLOTS = SLOTS[native.ADAMW_SCHEDULE_FREE]

    def __init__(self, params: Any, grads: Any = None, lr: float = 2.5e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, warmup_steps: int = 0, weight_step_power: float = 0.0,
                 weight_lr_power: float = 2.0, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                             warmup_steps=warmup_steps, weight_step_power=weight_step_power,
                                             weight_lr_power=weight_lr_power, maximize=maximize, zero_grads=zero_grads,
                                             write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class SGDScheduleFree(Optimizer):
    """Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree.

    State: z, average.
    """

    __slots__ = ()
    _KIND = native.SGD_SCHEDULE_FREE
    _KEYS = ("lr", "momentum", "weight_decay", "warmup_steps", "weight_step_power", "weight_lr_power", "maximize")
    _SLOTS = SLOTS[native.SGD_SCHEDULE_FREE]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1.0, momentum: float = 0.9,
                 weight_decay: float = 0.0, warmup_steps: int = 0, weight_step_power: float = 0.0,
                 weight_lr_power: float = 2.0, *, maximize: bool = False, model_copy: Any = None,
                 zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32", master: str | None = None,
                 seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, momentum=momentum, weight_decay=weight_decay,
                                             warmup_steps=warmup_steps, weight_step_power=weight_step_power,
                                             weight_lr_power=weight_lr_power, maximize=maximize, zero_grads=zero_grads,
                                             write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class LARS(Optimizer):
    """LARS (You et al. 2017, arXiv:1708.03888), as optax.lars.

    State: ``momentum_buffer``.
    """

    __slots__ = ()
    _KIND = native.LARS
    _KEYS = ("lr", "momentum", "weight_decay", "trust_coefficient", "eps", "nesterov", "maximize")
    _SLOTS = SLOTS[native.LARS]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1.0, momentum: float = 0.9,
                 weight_decay: float = 0.0, trust_coefficient: float = 1e-3, eps: float = 0.0, nesterov: bool = False,
                 *, maximize: bool = False, model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False,
                 state: _State = "fp32", master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, momentum=momentum, weight_decay=weight_decay,
                                             trust_coefficient=trust_coefficient, eps=eps, nesterov=nesterov,
                                             maximize=maximize, zero_grads=zero_grads, write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)


class NovoGrad(Optimizer):
    """NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd.

    State: ``exp_avg``, ``exp_avg_sq``.
    """

    __slots__ = ()
    _KIND = native.NOVOGRAD
    _KEYS = ("lr", "betas", "eps", "weight_decay", "dampening", "decoupled_weight_decay", "bias_correction", "maximize")
    _SLOTS = SLOTS[native.NOVOGRAD]

    def __init__(self, params: Any, grads: Any = None, lr: float = 1e-2, betas: tuple[float, float] = (0.95, 0.98),
                 eps: float = 1e-8, weight_decay: float = 0.0, dampening: float = 0.0,
                 decoupled_weight_decay: bool = False, bias_correction: bool = False, *, maximize: bool = False,
                 model_copy: Any = None, zero_grads: bool = False, write_grads: bool = False, state: _State = "fp32",
                 master: str | None = None, seed: int = 0, device: DeviceLike = None) -> None:
        super().__init__(params, grads, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                             dampening=dampening, decoupled_weight_decay=decoupled_weight_decay,
                                             bias_correction=bias_correction, maximize=maximize, zero_grads=zero_grads,
                                             write_grads=write_grads),
                         model_copy=model_copy, state=state, master=master, seed=seed, device=device)
# gen-api: end
