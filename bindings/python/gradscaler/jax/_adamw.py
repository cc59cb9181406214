# SPDX-License-Identifier: Apache-2.0
"""AdamW as a function of parameters, gradients and state, in one pass that takes the unscaling and the skip with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _handlers
from ._trees import paired, require_floating
from ._untyped import jax, jnp


class AdamWState(NamedTuple):
    """Steps applied (int32), and the averages in the shape of the parameters (float32, float64 for float64)."""

    step: Any
    exp_avg: Any
    exp_avg_sq: Any


def adamw_init(params: Any) -> AdamWState:
    """The state of :func:`adamw` before the first step, on the devices and in the shards of `params`.

    TypeError, naming the leaf, for what :func:`adamw` does not take.
    """
    require_floating("params", params)

    def zeros() -> Any:
        return jax.tree_util.tree_map(lambda p: jnp.zeros_like(p, jnp.promote_types(jnp.result_type(p), jnp.float32)),
                                      params)

    return AdamWState(jnp.zeros((), jnp.int32), zeros(), zeros())


def adamw(params: Any, grads: Any, state: AdamWState, *, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
          eps: float = 1e-8, weight_decay: float = 1e-2, inv_scale: Any = 1.0, found_inf: Any = 0.0
          ) -> tuple[Any, AdamWState]:
    """One step of AdamW in one pass; nothing changes where `found_inf` is not 0.

    `params` is a pytree of float32, float64 or 16-bit arrays; `grads`, of any floating dtype, and the averages of
    `state` have its leaves, by key and shape. Gradients are multiplied by `inv_scale` first. `lr`, `inv_scale` and
    `found_inf` may be traced; `betas`, `eps` and `weight_decay` are numbers of Python. Donate `params` and `state` to
    have them updated in place. Sharded arrays stay as they are; gradients that lie elsewhere are brought to the
    parameters.

    ValueError, naming the first leaf that is missing, superfluous or of another shape; TypeError for one of another
    dtype, and for options that are traced or no numbers.
    """
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(f"betas is {betas!r}; it must be two numbers")
    options = {"beta1": _handlers.fixed("betas[0]", betas[0]), "beta2": _handlers.fixed("betas[1]", betas[1]),
               "eps": _handlers.fixed("eps", eps), "weight_decay": _handlers.fixed("weight_decay", weight_decay)}
    require_floating("params", params)
    leaves, tree = jax.tree_util.tree_flatten(jax.tree_util.tree_map(jnp.asarray, params))
    columns = [paired(name, found, params) for name, found in
               (("grads", grads), ("state.exp_avg", state.exp_avg), ("state.exp_avg_sq", state.exp_avg_sq))]
    found = _handlers.word("found_inf", found_inf)
    new, slots = _handlers.step("ADAMW", columns[0], leaves, columns[1:], lr=lr, inv_scale=inv_scale, found_inf=found,
                                steps=state.step, **options)
    first, second = (jax.tree_util.tree_unflatten(tree, slot) for slot in slots)
    applied = state.step + (found == 0).astype(jnp.int32)
    return jax.tree_util.tree_unflatten(tree, new), AdamWState(applied, first, second)
