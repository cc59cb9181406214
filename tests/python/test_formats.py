# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits of the optimizers over arrays: NumPy, array.array and PyTorch's tensors."""

import array
import copy

import numpy as np
import pytest

import gradscaler as gs
from conftest import library, refused

KINDS = [getattr(gs, name) for name in gs.optimizers.__all__]
COUNTS = (100, 7)
FORMATS = [(state, master) for state in ("fp32", "16bit", "8bit")
           for master in (None, "split", "split24", "stochastic")]


def made(kind=gs.AdamW, steps=3, **options):
    if kind is gs.SGD:
        options.setdefault("momentum", 0.9)
    params = {f"p{n}": np.linspace(-1, 1, n).astype(np.float16) for n in COUNTS}
    grads = {name: np.zeros(p.shape, np.float32) for name, p in params.items()}
    optimizer = kind(params, grads, lr=0.01, **options)
    step(optimizer, grads, range(steps))
    return optimizer, params, grads


def step(optimizer, grads, seeds):
    for seed in seeds:
        for name, grad in grads.items():
            grad[...] = np.random.default_rng([seed, len(name)]).standard_normal(grad.shape)
        optimizer.step()


def same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert np.asarray(value).dtype == np.asarray(right[name]).dtype and np.array_equal(value, right[name]), name


@pytest.mark.parametrize("state, master", FORMATS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_codes_are_arrays_that_training_goes_on_from(kind, state, master):
    optimizer, params, grads = made(kind, state=state, master=master, seed=4)
    saved = copy.deepcopy(optimizer.state_dict())
    slots = {name.partition(".")[0] for name in saved["state"].keys() - {"steps", "skipped_steps", "codes"}}
    assert slots == {*optimizer.state}
    other, others, other_grads = made(kind, steps=0, state=state, master=master, seed=4)
    for name, p in params.items():
        others[name][...] = p
    other.load_state_dict(saved)
    step(optimizer, grads, range(3, 5))
    step(other, other_grads, range(3, 5))
    same(other.state_arrays(), optimizer.state_arrays())
    same(others, params)


@pytest.mark.parametrize("source", ["fp32", "16bit", "8bit"])
@pytest.mark.parametrize("target", ["fp32", "16bit", "8bit"])
def test_every_format_loads_every_other(source, target):
    optimizer, params, _ = made(state=source)
    other, _, grads = made(steps=0, state=target)
    other.load_state_dict(optimizer.state_dict())
    left, right = (each.fp32_state_dict()["state"] for each in (optimizer, other))
    for name in ("exp_avg.p100", "exp_avg_sq.p100", "exp_avg.p7", "exp_avg_sq.p7"):
        assert right[name].dtype == np.float32
        np.testing.assert_allclose(right[name], left[name], rtol=0.0 if target == "fp32" else 2.0 ** -4,
                                   atol=0.0 if target == "fp32" else np.abs(left[name]).max() * 2.0 ** -10)
    assert other.steps == 3
    step(other, grads, [5])
    again, _, _ = made(steps=0)
    again.load_state_dict(other.fp32_state_dict())
    assert again.steps == 4


def test_state_of_float64_parameters_stays_as_it_is():
    params = [np.ones(3, np.float32), np.ones(3, np.float64)]
    optimizer = gs.AdamW(params, [np.full(3, 0.5, np.float32), np.full(3, 0.25, np.float64)], lr=0.1)
    optimizer.step()
    same(optimizer.fp32_state_dict()["state"], optimizer.state_arrays())


def test_masters_begin_as_their_weights_and_are_not_dropped():
    plain, _, _ = made(state="8bit")
    split, _, _ = made(state="8bit", master="split")
    few, _, _ = made(steps=0, state="16bit", master="split24")
    few.load_state_dict(split.state_dict())
    wide, narrow = split.state_arrays()["remainder.p100"], few.state_arrays()["remainder.p100"]
    assert wide.dtype == np.int16 and narrow.dtype == np.int8 and narrow.any()
    with refused(r"'remainder.p100'\] is unknown"):
        plain.load_state_dict(split.state_dict())
    split.load_state_dict(plain.state_dict())
    assert not split.state_arrays()["remainder.p100"].any()


def test_state_of_plain_arrays_and_views():
    params, grads = array.array("f", [1.0] * 40), array.array("f", [0.5] * 40)
    optimizer = gs.AdamW([params], [grads], state="8bit")
    optimizer.step()
    assert {slot: tensors[0].dtype for slot, tensors in optimizer.state.items()} == {
        "exp_avg": "uint8", "exp_avg_scale": "uint8", "exp_avg_sq": "uint8", "exp_avg_sq_scale": "int16"}
    codes, scales = (np.asarray(optimizer.state[slot][0]) for slot in ("exp_avg", "exp_avg_scale"))
    # 0.05 is between two codes.
    assert codes.dtype == np.uint8 and codes.size == 40 and scales.size == 2 and codes.min() == codes.max() - 1 > 0


def dtypes(optimizer):
    return {slot: tensors[0].dtype for slot, tensors in optimizer.state.items()}


@pytest.mark.parametrize("kind, slot, fast, slow", [
    (gs.AdamW, "exp_avg", {"betas": (0.99, 0.999)}, {"betas": (0.9902, 0.999)}),
    (gs.AdEMAMix, "exp_avg_slow", {"beta3": 0.99}, {}),
    (gs.Lion, "exp_avg", {}, {"betas": (0.9, 0.995)}),
    (gs.SGD, "momentum_buffer", {"momentum": 0.99}, {"momentum": 0.999}),
], ids=lambda value: getattr(value, "__name__", None))
def test_slow_means_are_bfloat16_in_8_bits_and_go_into_codes_and_back(kind, slot, fast, slow):
    (small, _, _), (wide, _, grads) = (made(kind, state="8bit", **options) for options in (fast, slow))
    assert dtypes(small)[slot] == "uint8" and dtypes(small)[slot + "_scale"] == "uint8"
    assert dtypes(wide)[slot] == "bfloat16" and slot + "_scale" not in dtypes(wide)
    assert wide.state_arrays()[slot + ".p100"].dtype == np.uint16
    for source, options in ((small, slow), (wide, fast)):
        target, _, grads = made(kind, steps=0, state="8bit", **options)
        before = dtypes(target)
        # The hyper-parameters come along, and the formats stay as they were made.
        target.load_state_dict(source.state_dict())
        assert dict(target.param_groups[0]) == dict(source.param_groups[0]) and dtypes(target) == before
        left, right = (each.fp32_state_dict()["state"][slot + ".p100"] for each in (source, target))
        np.testing.assert_allclose(right, left, rtol=2.0 ** -4, atol=np.abs(left).max() * 2.0 ** -9)
        step(target, grads, [5])
        again, _, _ = made(kind, steps=0, state="8bit", **options)
        again.load_state_dict(target.state_dict())
        same(again.state_arrays(), target.state_arrays())


@pytest.mark.parametrize("kind", [gs.Adam, gs.AdamW], ids=lambda kind: kind.__name__)
def test_squares_beside_their_maximum_have_16_bits(kind):
    optimizer, _, grads = made(kind, state="8bit", amsgrad=True)
    assert dtypes(optimizer) == {"exp_avg": "uint8", "exp_avg_scale": "uint8", "exp_avg_sq": "int16",
                                 "exp_avg_sq_scale": "uint8", "max_exp_avg_sq": "int16",
                                 "max_exp_avg_sq_scale": "uint8"}
    for state in ("16bit", "8bit"):
        other, _, _ = made(kind, steps=0, state=state, amsgrad=True)
        other.load_state_dict(optimizer.state_dict())
        for name, value in optimizer.state_arrays().items():
            assert "sq" not in name or np.array_equal(other.state_arrays()[name], value)


def test_pytorchs_tensors_and_torch_optim_both_ways():
    torch = library("torch", "cpu")
    from gradscaler.torch import optimizer_state_dict
    p = torch.nn.Parameter(torch.ones(4, 16))
    theirs = torch.optim.AdamW([p], lr=0.1)
    p.grad = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    theirs.step()
    q, grad = p.detach().clone(), p.grad.clone()
    optimizer = gs.AdamW([q], [grad], state="8bit")
    optimizer.load_state_dict(theirs.state_dict())
    assert optimizer.state_arrays()["exp_avg.0"].dtype == torch.uint8 and optimizer.param_groups[0]["lr"] == 0.1
    back = optimizer_state_dict(optimizer)
    for slot in ("exp_avg", "exp_avg_sq"):
        expected = theirs.state[p][slot]
        torch.testing.assert_close(back["state"][0][slot], expected, rtol=2 ** -4, atol=1e-3 * expected.max().item())


def test_bad_state_is_named():
    optimizer, _, _ = made(state="8bit")
    for name, value, message in [("exp_avg_scale.p7", np.zeros(2, np.uint8), "is no format of"),
                                 ("exp_avg_scale.p7", np.zeros(1, np.int16), "1 scales of int16, which is no format"),
                                 ("exp_avg_sq_scale.p7", np.zeros(1, np.uint16), "is no format of exp_avg_sq"),
                                 ("exp_avg.p7", np.zeros(7, np.float16), "is no format of"),
                                 ("exp_avg.p7", np.zeros(6, np.uint8), "has shape"),
                                 ("exp_avg_scale.p8", np.zeros(1, np.uint8), "is unknown")]:
        saved = optimizer.state_dict()
        saved["state"][name] = value
        before = optimizer.state_arrays()
        with pytest.raises((gs.InvalidArgumentError, TypeError), match=message):
            optimizer.load_state_dict(saved)
        same(optimizer.state_arrays(), before)


@pytest.mark.parametrize("state", ["16bit", "8bit"])
@pytest.mark.parametrize("target", ["fp32", "16bit", "8bit"])
def test_squares_of_an_earlier_version_are_refused(state, target):
    """Their scales were bytes, and the codes other ones. A number tells it: in 16 bits the dtypes are the same."""
    optimizer, _, _ = made(state=state)
    other, _, _ = made(steps=1, state=target)
    saved, before = optimizer.state_dict(), other.state_arrays()
    assert saved["state"].pop("codes") == 2 and ("codes" in before) == (target != "fp32")
    for name in ("exp_avg_sq_scale.p100", "exp_avg_sq_scale.p7"):
        saved["state"][name] = saved["state"][name].astype(np.uint8)
    with pytest.raises(TypeError, match=r"'exp_avg_sq.p100'\] are codes of an earlier version, .*; load them there and"
                                        r" save fp32_state_dict\(\)"):
        other.load_state_dict(saved)
    same(other.state_arrays(), before)


def test_means_of_an_earlier_version_are_what_they_were():
    (optimizer, _, _), (other, _, _) = made(gs.Lion, state="8bit"), made(gs.Lion, steps=0, state="8bit")
    saved = optimizer.state_dict()
    del saved["state"]["codes"]
    other.load_state_dict(saved)
    same(other.state_arrays(), optimizer.state_arrays())
