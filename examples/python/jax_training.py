# SPDX-License-Identifier: Apache-2.0
"""Training under jax.jit with an fp16 backward pass: the scale, the check and AdamW all run inside the compiled step.

Exit status 1 if the network has not learnt.
"""

import functools
import sys

import jax
import jax.numpy as jnp

from gradscaler.jax import DynamicScale, adamw, adamw_init


def loss_function(params, x, y):
    half = jax.tree_util.tree_map(lambda p: p.astype(jnp.float16), params)
    hidden = jax.nn.relu(x.astype(jnp.float16) @ half["w1"] + half["b1"])
    return jnp.mean((hidden @ half["w2"] - y.astype(jnp.float16)) ** 2)


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(scale, params, state, x, y):
    scale, found_inf, loss, grads = scale.value_and_grad(loss_function)(params, x, y)
    params, state = adamw(params, grads, state, lr=1e-2, found_inf=found_inf)
    return scale, params, state, loss, found_inf


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    params = {"w1": jax.random.normal(keys[0], (16, 64)) / 4, "b1": jnp.zeros(64),
              "w2": jax.random.normal(keys[1], (64, 1)) / 8}
    x = jax.random.normal(keys[2], (512, 16))
    y = jnp.sin(x[:, :4].sum(1, keepdims=True))
    scale, state, skipped = DynamicScale.create(init_scale=2.0**24, growth_interval=100), adamw_init(params), 0

    for step in range(300):
        scale, params, state, loss, found_inf = train_step(scale, params, state, x, y)
        skipped += int(found_inf)
        if step % 100 == 0:
            print(f"step {step}: loss {float(loss):.4f}, scale {float(scale.scale):g}")
    print(f"at the end: loss {float(loss):.4f}, scale {float(scale.scale):g}, skipped {skipped}, "
          f"applied {int(state.step)}")
    return 0 if loss < 0.05 and skipped > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
