# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax on a GPU: the handlers under jit against the CPU's, bit for bit; overflows, many calls and
threads, and what docs/jax.md says is different on CUDA. scripts/gpu runs tests/python/test_jax*.py there too."""

import functools
import re

import numpy as np
import pytest

from conftest import ROOT, library

jax = library("jax")
jnp = jax.numpy

from on_device import ON_GPU, alone_and_together, on_host, require_device, same_bits  # noqa: E402

import gradscaler as gs  # noqa: E402
import gradscaler.jax as gj  # noqa: E402


def gpus():
    try:
        return jax.devices("cuda")
    except RuntimeError:
        return []


require_device(bool(gpus()), "JAX")
HERE, CPU = (gpus() or jax.devices("cpu"))[0], jax.devices("cpu")[0]
DTYPES = ["float16", "bfloat16", "float32"]
SHAPES = {"b": (7,), "w": (6, 9), "x": (0, 3), "y": (70_001,), "z": ()}


@pytest.fixture(autouse=True)
def here():
    with jax.default_device(HERE):
        yield


def tree(seed, dtype="float32", device=HERE, scale=1.0):
    rng = np.random.default_rng(seed)
    return {name: jax.device_put(jnp.asarray(rng.normal(size=shape) * scale, dtype), device)
            for name, shape in SHAPES.items()}


def same_trees(found, expected, what=""):
    one, structure = jax.tree_util.tree_flatten_with_path(found)
    other, expected_structure = jax.tree_util.tree_flatten_with_path(expected)
    assert structure == expected_structure
    for (path, left), (_, right) in zip(one, other, strict=True):
        assert left.dtype == right.dtype
        same_bits(left, right, what + jax.tree_util.keystr(path))


def on(device, call, *arguments, **options):
    """What a compiled function returns on a device."""
    with jax.default_device(device):
        placed = jax.device_put(arguments, device)
        found = jax.jit(call, **options)(*placed)
        for leaf in jax.tree_util.tree_leaves(found):
            assert leaf.devices() == {device}, leaf.devices()
        return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [None, np.inf, -np.inf, np.nan])
def test_unscale_check(dtype, bad):
    grads = tree(0, dtype)
    if bad is not None:
        grads["y"] = grads["y"].at[65_000].set(bad)
    found, expected = (on(device, gj.unscale_check, grads, 0.3) for device in (HERE, CPU))
    assert float(found[1]) == float(bad is not None)
    same_trees(found, expected)
    eager = gj.unscale_check(grads, 0.3)
    same_trees(eager, expected, "without jit: ")
    assert float(gj.unscale_check(grads, 0.3, 1.0)[1]) == 1.0
    with np.errstate(all="ignore"):
        by_hand = (np.asarray(grads["w"], np.float32) * np.float32(0.3)).astype(grads["w"].dtype)
    same_bits(found[0]["w"], by_hand, "beside NumPy: ")


def test_update_scale():
    scale, tracker, flags = jnp.float32(1000.0), jnp.int32(0), np.random.default_rng(0).uniform(size=300) < 0.1

    def run(scale, tracker, flags):
        def body(carry, found):
            carry = gj.update_scale(*carry, found, growth_factor=1.7, backoff_factor=0.3, growth_interval=4)
            return carry, carry
        return jax.lax.scan(body, (scale, tracker), flags)[1]

    found, expected = (on(device, run, scale, tracker, flags.astype(np.float32)) for device in (HERE, CPU))
    same_trees(found, expected)
    assert len(np.unique(np.asarray(found[0]))) > 20


def adamw_run(device, param_dtype, grad_dtype):
    params = tree(0, param_dtype, device)
    state = gj.adamw_init(params)
    step = jax.jit(functools.partial(gj.adamw, weight_decay=0.1), donate_argnums=(0, 2))
    for turn in range(20):
        grads = tree(1 + turn, grad_dtype, device, 4.0)
        params, state = step(params, grads, state, lr=0.1 / (1 + turn), inv_scale=0.25, found_inf=float(turn == 3))
    return params, state


@pytest.mark.parametrize("param_dtype, grad_dtype", [("float32", "float32"), ("float32", "float16"),
                                                     ("float32", "bfloat16"), ("float16", "float16"),
                                                     ("bfloat16", "bfloat16")])
def test_adamw_has_the_bits_of_the_cpu(param_dtype, grad_dtype):
    with jax.default_device(HERE):
        found = adamw_run(HERE, param_dtype, grad_dtype)
    with jax.default_device(CPU):
        expected = adamw_run(CPU, param_dtype, grad_dtype)
    assert int(found[1].step) == 19
    same_trees(found, expected)


def test_float64():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        results = []
        for device in (HERE, CPU):
            params, grads = ({"w": jax.device_put(jnp.asarray(np.random.default_rng(s).normal(size=1000)), device),
                              "v": jax.device_put(jnp.ones(3, jnp.bfloat16), device)} for s in (0, 1))
            with jax.default_device(device):
                state = gj.adamw_init(params)
                for _ in range(3):
                    params, state = jax.jit(gj.adamw)(params, grads, state, lr=0.1)
                assert state.exp_avg["w"].dtype == jnp.float64
            results.append((params, state, on(device, gj.unscale_check, grads, 0.3)))
        same_trees(*results)


def train(device, steps=60):
    """Losses, scales and parameters of a network in fp16; the 20th batch overflows, and so does a scale of 2**24."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(64, 8)), rng.normal(size=(64, 1))
    params = {"w1": rng.normal(size=(8, 32)) / 3, "b1": np.zeros(32), "w2": rng.normal(size=(32, 1)) / 6}
    params = jax.tree_util.tree_map(lambda p: jax.device_put(jnp.asarray(p, jnp.float32), device), params)

    def loss(params, x, y):
        half = jax.tree_util.tree_map(lambda p: p.astype(jnp.float16), params)
        out = jnp.tanh(x.astype(jnp.float16) @ half["w1"] + half["b1"]) @ half["w2"]
        return jnp.mean((out.astype(jnp.float32) - y) ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def train_step(scale, params, state, x, y):
        scale, found_inf, value, grads = scale.value_and_grad(loss)(params, x, y)
        params, state = gj.adamw(params, grads, state, lr=0.02, found_inf=found_inf)
        return scale, params, state, value, found_inf

    scale, state = gj.DynamicScale.create(2.0**24, growth_interval=10), gj.adamw_init(params)
    log = []
    for turn in range(steps):
        batch = jnp.asarray(np.where(turn == 20, np.inf, x), jnp.float32)
        before = jax.tree_util.tree_map(np.asarray, (params, state)) if turn == 20 else None
        scale, params, state, value, found_inf = train_step(scale, params, state, batch, jnp.asarray(y, jnp.float32))
        if before is not None:
            assert float(found_inf) == 1.0
            same_trees((params, state), before, "skipped: ")
        log.append((float(value), float(scale.scale), float(found_inf)))
    return log, int(state.step)


def test_training():
    log, steps = train(HERE)
    with jax.default_device(CPU):
        expected, _ = train(CPU)
    flags = [found for _, _, found in log]
    assert flags[0] == 1.0 and steps == len(flags) - sum(flags) and sum(flags) >= 3, flags
    # By the rule, whatever the rounding of the GPU.
    scale, tracker = 2.0**24, 0
    for turn, (_, after, found) in enumerate(log):
        scale, tracker = (scale / 2, 0) if found else (scale, tracker + 1)
        if tracker == 10:
            scale, tracker = scale * 2, 0
        assert after == scale, f"step {turn}: scale {after} instead of {scale}"
    assert log[-1][0] < 0.5 * log[19][0] or log[-1][0] < 0.7
    assert abs(log[-1][0] - expected[-1][0]) < 0.1, (log[-1], expected[-1])


def test_many_parameters_and_many_calls():
    params = [jnp.full(10 + i % 7, float(i)) for i in range(120)]
    grads = [p + 1.0 for p in params]
    state = gj.adamw_init(params)
    step = jax.jit(lambda p, g, s: gj.adamw(p, g, s, lr=1e-3), donate_argnums=(0, 2))
    sizes = []
    for turn in range(60):
        params, state = step(params, grads, state)
        jax.block_until_ready(params)
        if turn in (5, 30, 59) and ON_GPU:
            sizes.append(HERE.memory_stats()["bytes_in_use"])
    assert len(set(sizes)) <= 1, f"bytes in use grow: {sizes}"
    again, expected = gj.adamw_init([p for p in params]), None
    with jax.default_device(CPU):
        expected = jax.device_put([jnp.full(10 + i % 7, float(i)) for i in range(120)], CPU)
        constant, again = [p + 1.0 for p in expected], gj.adamw_init(expected)
        for _ in range(60):
            expected, again = step(expected, constant, again)
    same_trees((params, state), (expected, again))


def test_calls_of_several_threads():
    step = jax.jit(lambda p, g, s: gj.adamw(p, g, s, lr=0.1))

    def work(seed):
        with jax.default_device(HERE):
            params = tree(seed)
            state = gj.adamw_init(params)
            for turn in range(20):
                params, state = step(params, tree(turn), state)
            return params, state

    for seed, (one, other) in enumerate(zip(*alone_and_together(work), strict=True)):
        same_trees(other, one, f"thread {seed}: ")


POLICIES = [
    *({"preset": preset} for preset in gs.PRESETS),
    {"growth_factor": 1.7, "backoff_factor": 0.3, "min_scale": 0.1, "max_scale": 3e4, "init_scale": 1e3},
    {"growth_factor": 1.7, "backoff_factor": 0.3, "fp32_products": True, "min_scale": 0.1},
    {"growth_factor": 1e20, "finite_guard": False, "hysteresis": 2, "growth_timing": "one_later"},
    {"overflow_tolerance": 1 / 3, "recovery_threshold": 64.0, "recovery_interval": 2},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.get("preset", "+".join(p)))
def test_policies_have_the_bits_of_the_cpu(policy):
    rng = np.random.default_rng(6)
    overflows = np.float32(rng.uniform(size=300) < np.where(np.arange(300) // 50 % 2, 0.05, 0.4))

    def step(scale, found_inf):
        scale = scale.update(found_inf)
        return scale, scale

    start = gj.DynamicScale.create(**{"growth_interval": 3, **policy})
    found, expected = (on(device, functools.partial(jax.lax.scan, step), start, overflows) for device in (HERE, CPU))
    same_trees(found, expected)
    assert len(np.unique(on_host(found[1].scale))) > 2
    batch = jax.tree_util.tree_map(lambda leaf: jnp.stack([leaf] * 2), start)
    found, expected = (on(device, jax.vmap(gj.DynamicScale.update), batch, np.float32([0.0, 1.0]))
                       for device in (HERE, CPU))
    same_trees(found, expected)


# The page, and other libraries.

PAGE = ROOT / "docs" / "jax.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if PAGE.exists() else []


@pytest.mark.filterwarnings("default::DeprecationWarning")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_page_run(number, capsys):
    example = EXAMPLES[number]
    for name in sorted(set(re.findall(r"^(?:import|from) (optax|flax)", example, re.M))):
        pytest.importorskip(name)
    exec(compile(example, PAGE.name, "exec"), {})
    printed, expected = capsys.readouterr().out, re.findall(r"^print\(.*  # (.*)$", example, re.M)
    assert expected and all(line in printed for line in expected), printed


def test_shards_of_one_device():
    mesh = jax.sharding.Mesh(np.array([HERE]), ("data",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    params = {"w": jax.device_put(jnp.ones(16), spread)}
    stepped, _ = jax.jit(gj.adamw)(params, params, gj.adamw_init(params))
    expected, _ = jax.jit(gj.adamw)({"w": jnp.ones(16)}, {"w": jnp.ones(16)}, gj.adamw_init({"w": jnp.ones(16)}))
    same_bits(stepped["w"], expected["w"], "sharded")
