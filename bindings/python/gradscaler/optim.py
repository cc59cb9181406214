# SPDX-License-Identifier: Apache-2.0
"""The base class of the optimizers over your arrays, with their checkpoints; the classes are in :mod:`.optimizers`.

Parameter groups work as in PyTorch: instead of arrays pass mappings with ``"params"``, ``"grads"`` and the
hyper-parameters of the group, and change ``optimizer.param_groups[0]["lr"]`` at any time. Parameters may be fp32 or
fp64 master weights, or 16-bit weights directly; arithmetic is in fp32 (fp64 for fp64). `model_copy` receives the
updated parameters, rounded to its dtype, in the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import checkpoint, torch_state
from .optimizer_base import OptimizerBase
from .optimizer_base import ParamGroup as ParamGroup


class Optimizer(OptimizerBase):
    """The interface of all optimizers; make one of the classes of :mod:`gradscaler.optimizers`.

    `params`, `grads`, `model_copy` and the entries of `state` are arrays or collections of arrays, paired by name: two
    mappings by key, two sequences by position. Shapes must be the same; dtypes may differ. For PyTorch's ``.grad``
    there are the optimizers of ``gradscaler.torch``.

    Arrays are float16, bfloat16, float32 or float64. They are held, not copied, and written by steps only.

    Hyper-parameters have the names and the meaning of ``torch.optim``: `lr`, `momentum`, `dampening`, `weight_decay`,
    `nesterov`, `betas`, `eps`, `amsgrad`, `lr_decay`, `initial_accumulator_value`, `alpha`, `centered`, `rho`,
    `momentum_decay`, `decoupled_weight_decay` and `maximize`, of which each class takes its own, and optax's
    `eps_root`. AdEMAMix has the slow mean's decay `beta3` and weight `alpha`, which grow over `beta3_warmup` and
    `warmup_steps` steps. Of Schedule-Free optimizers `warmup_steps` is that of the learning rate, and
    `weight_step_power` (the package's r) and `weight_lr_power` weigh the average. LARS has `trust_coefficient`, and
    NovoGrad `bias_correction`. With ``zero_grads=True`` a step clears the gradients in the same pass; with
    ``write_grads=True`` it writes the unscaled and clipped gradients back; with ``count_unchanged=True`` `unchanged`
    has a count. With an `ema_decay` above 0 the state has ``ema``, the moving average of the parameters, which
    `ema_warmup` lets begin faster. `param_min` and `param_max` are a range that the parameters of a group stay in; none
    if both are 0. Adam, AdamW and Lion have `cautious`, which leaves out updates against their gradient. AdamW and Lion
    have `cautious_decay`, which leaves out weight decay of what the update moves away from 0.

    `state` maps slot names to arrays of yours, in the parameters' shapes, or is the format of the library's:
    ``"fp32"``, ``"16bit"`` or ``"8bit"``. `master` is None, or for 16-bit parameters ``"split"``, ``"split24"`` or
    ``"stochastic"``, and `seed` that of stochastic rounding: docs/state.md. `device` is a context or a device's name,
    by default the parameters'.

    Raises ValueError and TypeError naming the array that cannot be used, and InvalidArgumentError for pairs that do not
    fit, memory that overlaps, and hyper-parameters out of range.
    """

    __slots__ = ()

    def state_arrays(self) -> dict[str, Any]:
        """Copies of the state by name: ``exp_avg.<parameter>`` ..., and ``steps`` and ``skipped_steps``. Blocks.

        PyTorch's parameters give tensors of PyTorch, others arrays of NumPy if it was imported, else ``array.array``.
        They are contiguous, in the parameters' shapes, and float32, float64 or codes, whose scales are
        ``exp_avg_scale.<parameter>``. State on a CUDA device needs PyTorch or CuPy to be imported.
        """
        return checkpoint.save(self)

    def load_state_arrays(self, arrays: Mapping[str, Any], *, rename: checkpoint.Rename = None) -> None:
        """Restores `arrays`, which :meth:`state_arrays` gave, paired by name. Blocks.

        `rename` maps names of saved parameters to those of here. Arrays may be of any library, and of a narrower dtype.
        Raises InvalidArgumentError naming what is missing, unknown or of another shape; nothing changes then.
        """
        checkpoint.load(self, arrays, rename, "arrays")

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs: hyper-parameters and :meth:`state_arrays`. Blocks."""
        found = [{**group, "params": [self.names[index] for index in group.tensors]} for group in self.param_groups]
        return {"kind": type(self).__name__, "param_groups": found, "state": self.state_arrays()}

    def fp32_state_dict(self) -> dict[str, Any]:
        """:meth:`state_dict` with all state in float32, that of float64 parameters in float64. Optimizers of every
        format load it. Split masters are left out: they begin as their weights."""
        return {**self.state_dict(), "state": checkpoint.save(self, full=True)}

    def load_state_dict(self, state_dict: Mapping[str, Any], *, rename: checkpoint.Rename = None) -> None:
        """Restores `state_dict`, of :meth:`state_dict` or of the optimizer of this name in ``torch.optim``. Blocks.

        Parameters are paired by name, whatever their order; `rename` maps names of saved ones to those of here. Without
        names they are paired by position. Everything is checked first; on error nothing changes.
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"state_dict is {type(state_dict).__name__}; it must be a mapping")
        checkpoint.require_param_groups(state_dict)
        if torch_state.is_torch_state(state_dict):
            torch_state.from_torch(self, state_dict, rename)
            return
        try:
            kind, saved, arrays = state_dict["kind"], state_dict["param_groups"], state_dict["state"]
        except KeyError as error:
            raise ValueError(f"the state dict has no {error}; it is not one of a gradscaler optimizer") from None
        if kind != type(self).__name__:
            raise ValueError(f"the state dict is of {kind}, but this is {type(self).__name__}")
        checkpoint.load_groups(self, saved, arrays, rename)
