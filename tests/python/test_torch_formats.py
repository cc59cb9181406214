# SPDX-License-Identifier: Apache-2.0
"""Optimizers of gradscaler.torch with state in 16 and 8 bits: trains, saves, loads, converts, in torch's ways."""

import copy
import io
import pickle
import re

import pytest

from conftest import ROOT, kinds_of_table, run_python
from gradscaler._enums import SLOTS
from torch_params import KINDS, copied, equal, gst, ids, params_of, set_grads, started, torch

#: What the slots of each kind hold, by the table of gradscaler.h.
HOLDS = {name: {slot["holds"] for slot in kind["slots"]} for name, kind in kinds_of_table().items()}
STATES, MASTERS = ["fp32", "16bit", "8bit"], [None, "split", "split24", "stochastic"]
SHAPES = ((8, 64), (5,), (4, 32, 3, 3), (7, 9))
FORMATS = [(state, master) for state in STATES for master in MASTERS if (state, master) != ("fp32", None)]


def made(kind=gst.AdamW, dtype=torch.bfloat16, shapes=SHAPES, steps=3, **options):
    params = params_of(shapes, dtype)
    options.setdefault("lr", 0.01)
    if kind is gst.SGD:
        options.setdefault("momentum", 0.9)
    optimizer = kind(params, **options)
    step(optimizer, params, range(steps))
    return optimizer, params


def step(optimizer, params, seeds):
    for seed in seeds:
        set_grads(params, seed)
        optimizer.step()


def tensors(optimizer):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return {(key, name): value for key, p in enumerate(params) for name, value in optimizer.state.get(p, {}).items()
            if value is not None}


def same(left, right):
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert value.dtype == right[key].dtype and torch.equal(value, right[key]), key


@pytest.mark.parametrize("state", STATES[1:])
def test_centered_rmsprop_keeps_its_means_in_full(state):
    for options in (dict(), dict(momentum=0.9)):
        optimizer, params = made(gst.RMSprop, torch.float32, centered=True, state=state, **options)
        found = tensors(optimizer)
        assert found[0, "square_avg"].dtype == found[0, "grad_avg"].dtype == torch.float32
        momentum = "momentum_buffer_codes" if state == "8bit" else "momentum_buffer"
        assert options == {} or found[0, momentum].dtype != torch.float32
        other, theirs = made(gst.RMSprop, torch.float32, steps=0, centered=True, state=state, **options)
        with torch.no_grad():
            for p, q in zip(theirs, params, strict=True):
                p.copy_(q)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        step(optimizer, params, [7])
        step(other, theirs, [7])
        assert equal(params, theirs)


#: A kind, a slot that may move slowly, and the hyper-parameters with which it does not and does.
SLOW = [(gst.AdamW, "exp_avg", {"betas": (0.99, 0.999)}, {"betas": (0.999, 0.999)}),
        (gst.AdEMAMix, "exp_avg_slow", {"beta3": 0.99}, {"beta3": 0.9999}),
        (gst.Lion, "exp_avg", {"betas": (0.9, 0.99)}, {"betas": (0.9, 0.995)}),
        (gst.SGD, "momentum_buffer", {"momentum": 0.99}, {"momentum": 0.999})]


def format_of(optimizer, slot):
    """"codes", or the dtype of a slot of the first parameter."""
    entry = optimizer.state[optimizer.param_groups[0]["params"][0]]
    assert (slot + "_codes" in entry) == (slot + "_scale" in entry) == (slot not in entry)
    return "codes" if slot + "_codes" in entry else entry[slot].dtype


@pytest.mark.parametrize("kind, slot, fast, slow", SLOW, **ids)
def test_slow_means_are_bfloat16_in_8_bits(kind, slot, fast, slow):
    params = params_of(SHAPES, torch.bfloat16)
    optimizer = kind([{"params": params[:1], **fast}, {"params": params[1:], **slow}], lr=0.01, state="8bit")
    step(optimizer, params, range(2))
    entries = [optimizer.state[p] for p in params]
    assert entries[0][slot + "_codes"].dtype == entries[0][slot + "_scale"].dtype == torch.uint8
    for entry, shape in zip(entries[1:], SHAPES[1:], strict=True):
        assert entry[slot].dtype == (torch.bfloat16 if shape == (4, 32, 3, 3) else torch.float32)
        assert slot + "_scale" not in entry
    for name, value in entries[0].items():
        assert not name.endswith("_scale") or value.dtype == (torch.int16 if "sq" in name else torch.uint8)
    for options in (fast, slow):
        other = kind(map(torch.nn.Parameter, copied(params)), lr=0.5, state="8bit", **options)
        saved = optimizer.state_dict()
        # One group has all.
        saved["param_groups"] = [{**other.state_dict()["param_groups"][0], **options}]
        other.load_state_dict(saved)
        assert format_of(other, slot) == ("codes" if options is fast else torch.bfloat16)
        near(other.fp32_state_dict()["state"], optimizer.fp32_state_dict()["state"], (slot,), "8bit")


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("kind, slot, fast, slow", SLOW, **ids)
def test_a_format_stays_as_it_was_made_until_state_is_loaded(kind, slot, fast, slow, turn):
    first, later = (slow, fast) if turn else (fast, slow)
    formats = ("codes", torch.bfloat16)[::-1 if turn else 1]
    optimizer, params = made(kind, state="8bit", **first)
    optimizer.param_groups[0].update(later)
    saved = optimizer.state_dict()
    assert (slot + "_codes" in saved["state"][0]) == (not turn)
    others = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    for each in (optimizer, *others):
        own = each.param_groups[0]["params"]
        step(each, own, [3])
        # Other memory needs another plan.
        own[1].data = own[1].detach().clone()
        step(each, own, [4])
        assert format_of(each, slot) == formats[0]
        same(tensors(each), tensors(optimizer))
    before = optimizer.fp32_state_dict()["state"]
    optimizer.load_state_dict(optimizer.state_dict())
    assert format_of(optimizer, slot) == formats[1]
    near(optimizer.fp32_state_dict()["state"], before, (slot,), "8bit")
    step(optimizer, params, [5])
    assert format_of(optimizer, slot) == formats[1]
    # A format that is set goes by the hyper-parameters of then.
    optimizer.param_groups[0].update(first, state="16bit")
    step(optimizer, params, [6])
    assert format_of(optimizer, slot) == torch.bfloat16
    optimizer.param_groups[0]["state"] = "8bit"
    step(optimizer, params, [7])
    assert format_of(optimizer, slot) == formats[0]


@pytest.mark.parametrize("kind", [gst.Adam, gst.AdamW], **ids)
def test_squares_beside_their_maximum_have_16_bits_by_group(kind):
    params = params_of(((2, 32), (4, 32)), torch.bfloat16)
    optimizer = kind([{"params": params[:1], "amsgrad": True}, {"params": params[1:]}], lr=0.01, state="8bit")
    step(optimizer, params, range(2))
    with_maximum, without = (optimizer.state[p] for p in params)
    for slot in ("exp_avg_sq", "max_exp_avg_sq"):
        assert with_maximum[slot + "_codes"].dtype == torch.int16 and with_maximum[slot + "_scale"].dtype == torch.uint8
    assert without["exp_avg_sq_codes"].dtype == torch.uint8 and without["exp_avg_sq_scale"].dtype == torch.int16
    assert with_maximum["exp_avg_codes"].dtype == without["exp_avg_codes"].dtype == torch.uint8
    saved = optimizer.state_dict()["state"]
    assert {slot: value for slot, value in saved[0].items() if type(value) is int} == {
        "exp_avg": 8, "exp_avg_sq": 32, "max_exp_avg_sq": 32}
    assert {slot: value for slot, value in saved[1].items() if type(value) is int} == {"exp_avg": 8, "exp_avg_sq": 24}
    # The flags of a state dict are loaded, and the format with them.
    for state in ("16bit", "8bit"):
        other = kind([{"params": params[:1]}, {"params": params[1:], "amsgrad": True}], lr=0.5, state=state)
        other.load_state_dict(optimizer.state_dict())
        for name in ("exp_avg_sq_codes", "exp_avg_sq_scale", "max_exp_avg_sq_codes", "max_exp_avg_sq_scale"):
            assert torch.equal(other.state[params[0]][name], with_maximum[name])
        assert other.state[params[1]]["exp_avg_sq_codes"].dtype == (torch.int16 if state == "16bit" else torch.uint8)
        step(other, params, [2])
    # Without a maximum from now on.
    before = optimizer.fp32_state_dict()["state"]
    optimizer.param_groups[0]["amsgrad"] = False
    near(optimizer.state_dict()["state"] and optimizer.fp32_state_dict()["state"], before, ("exp_avg_sq",), "fp32")
    step(optimizer, params, [3])
    assert optimizer.state[params[0]]["exp_avg_sq_codes"].dtype == torch.uint8


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_torch_distributed_checkpoint_does_not_take_squares_of_another_width(turn, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = torch.nn.Linear(64, 8, bias=False).bfloat16()
    first, second = (gst.AdamW(model.parameters(), state="8bit", amsgrad=each) for each in (turn, not turn))
    step(first, list(model.parameters()), range(2))
    first.zero_grad()
    dcp.save({"optimizer": get_optimizer_state_dict(model, first)}, checkpoint_id=tmp_path)
    found = {"optimizer": get_optimizer_state_dict(model, second)}
    with pytest.raises((CheckpointException, ValueError), match=r"exp_avg_sq_codes'\] is uint8, which" if turn else
                       "Missing key .*max_exp_avg_sq"):
        dcp.load(found, checkpoint_id=tmp_path)
        set_optimizer_state_dict(model, second, found["optimizer"])


@pytest.mark.parametrize("state, master", [("fp32", None), *FORMATS])
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_state_is_small_tensors_and_training_goes_on_from_every_copy(kind, state, master):
    options = dict(state=state, master=master, seed=3, max_grad_norm=1.0)
    optimizer, params = made(kind, **options)
    found = tensors(optimizer)
    first = next(slot for slot in SLOTS[kind._KIND] if slot != "z")
    if first != "average":  # SGDScheduleFree has no moments.
        is_moment = first in ("exp_avg", "momentum_buffer")
        has_scales = state == "8bit" or (state == "16bit" and not is_moment)
        assert found[0, first + "_codes" * has_scales].dtype == {
            "fp32": torch.float32, "16bit": torch.bfloat16 if is_moment else torch.int16, "8bit": torch.uint8}[state]
        assert ((0, first + "_scale") in found) == has_scales and ((0, first) in found) == (not has_scales)
    assert found.get((0, "remainder"), params[0]).dtype == {"split": torch.int16, "split24": torch.int8}.get(
        master, torch.bfloat16)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    others = [(copy.deepcopy(optimizer), None), (pickle.loads(pickle.dumps(optimizer)), None)]
    again = list(map(torch.nn.Parameter, copied(params)))
    loaded = kind(again, lr=0.5, **options, **({"momentum": 0.9} if kind is gst.SGD else {}))
    loaded.load_state_dict(torch.load(io.BytesIO(saved.getvalue())))
    same(tensors(loaded), found)
    others.append((loaded, again))
    step(optimizer, params, range(3, 6))
    for other, own in others:
        assert other.max_grad_norm == 1.0 and other._step_supports_amp_scaling
        own = own or [p for group in other.param_groups for p in group["params"]]
        step(other, own, range(3, 6))
        same(tensors(other), tensors(optimizer))
        assert equal(own, params)


@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.parametrize("first", STATES)
@pytest.mark.parametrize("second", STATES)
def test_torchs_state_goes_through_every_two_formats_and_comes_out(first, second, master):
    theirs_params, params = params_of(SHAPES, torch.float32), params_of(SHAPES, torch.float16)
    theirs = torch.optim.AdamW(theirs_params, lr=0.02, weight_decay=0.1, amsgrad=True)
    step(theirs, theirs_params, range(3))
    ours = gst.AdamW(params, state=first, master=master)
    ours.load_state_dict(theirs.state_dict())
    assert [ours.param_groups[0].get(key) for key in ("lr", "state", "master")] == [
        0.02, None if first == "fp32" else first, master]
    again = list(map(torch.nn.Parameter, copied(params)))
    other = gst.AdamW(again, state=second, master=master)
    other.load_state_dict(ours.state_dict())
    back = torch.optim.AdamW(theirs_params)
    back.load_state_dict(other.fp32_state_dict())
    assert not {"state", "master"} & set(back.param_groups[0])
    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    near(back.state_dict()["state"], theirs.state_dict()["state"], slots, max(first, second, key=STATES.index))
    step(ours, params, [4])
    for p, q in zip(again, params, strict=True):
        p.data.copy_(q)
    other.load_state_dict(ours.state_dict())
    found, expected = (each.fp32_state_dict()["state"] for each in (other, ours))
    near(found, expected, slots, second)
    near(found, expected, ("master_param",) if master in ("split", "split24") else (), "fp32")
    step(other, again, [5])
    assert all(other.state[p]["step"] == 5.0 for p in again)


def near(found, expected, slots, state):
    """Codes of means of gradients have subnormals: 2^-10 of the largest of 32, at most."""
    bound = {"fp32": 0.0, "16bit": 2.0 ** -8, "8bit": 2.0 ** -4}[state]
    for key, entry in expected.items():
        for slot in slots:
            assert found[key][slot].dtype == torch.float32
            torch.testing.assert_close(found[key][slot], entry[slot], rtol=bound,
                                       atol=2.0 ** -10 * entry[slot].abs().max().item() * (state == "8bit"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("master_bytes", [3, 4])
def test_flashoptims_state_loads(master_bytes, dtype):
    """Its compressed state dict, as FlashOptim 0.1 decodes it: dequantize and _apply_error_correction."""
    optimizer, params = made(dtype=dtype, steps=0, state="fp32", master="split")
    most, saved, expected, masters = {3: 127, 4: 32767}[master_bytes], {}, {}, {}
    for key, p in enumerate(params):
        draws = torch.Generator().manual_seed(key)
        groups = -(-p.numel() // 32)
        scales = torch.rand(groups, generator=draws).half()
        each = scales.float().repeat_interleave(32)[:p.numel()].reshape(p.shape)
        m = torch.randint(-127, 128, p.shape, generator=draws).to(torch.int8)
        v = torch.randint(0, 256, p.shape, generator=draws).to(torch.uint8)
        errors = torch.randint(1 - most, most, p.shape, generator=draws)
        # Below a power of two the spacing is half of it, and errors are smaller.
        errors[torch.frexp(p.detach().abs().float()).mantissa == 0.5] //= 2
        kept = errors.to(torch.int16).view(dtype) if master_bytes == 4 else errors.to(dtype)
        saved[key] = {"step": torch.tensor(7.0), "error_bits": kept, "exp_avg::quantized": m, "exp_avg::scales": scales,
                      "exp_avg_sq::quantized": v, "exp_avg_sq::scales": scales}
        y = m.float() / 127
        expected[key] = (y / (2 - y.abs()) * each, (v.float() / 255 * each)**2)
        weight = p.detach().double()
        spacing = 2.0**torch.floor(torch.log2(weight.abs().clamp_min(1e-30))) * torch.finfo(dtype).eps
        masters[key] = weight + errors.double() / most * spacing / 2
    dump = optimizer.state_dict()
    dump["state"] = saved
    for group in dump["param_groups"]:
        group["master_bytewidth"] = master_bytes
    optimizer.load_state_dict(dump)
    for key, entry in optimizer.fp32_state_dict()["state"].items():
        for name, value in zip(("exp_avg", "exp_avg_sq"), expected[key], strict=True):
            assert torch.equal(entry[name].cpu(), value), (key, name)
        assert torch.allclose(entry["master_param"].cpu().double(), masters[key], rtol=2**-22, atol=0), key
        assert int(entry["step"]) == 7
    broken = copy.deepcopy(dump)
    broken["state"][0]["exp_avg::scales"] = broken["state"][0]["exp_avg::scales"][:-1]
    with pytest.raises(ValueError, match="exp_avg::quantized.*scales"):
        optimizer.load_state_dict(broken)


@pytest.mark.parametrize("master", ["split", "split24"])
def test_masters_become_remainders_and_remainders_masters(master):
    wide, params = made(master_weights=True)
    narrow = gst.AdamW(params, master=master)
    narrow.load_state_dict(wide.state_dict())
    assert "master_param" not in narrow.state[params[0]]
    back = gst.AdamW(params, master_weights=True)
    back.load_state_dict(narrow.state_dict())
    for p in params:
        before, after = wide.state[p]["master_param"], back.state[p]["master_param"]
        if master == "split":
            assert torch.equal(before, after)
        else:
            assert ((before - after).abs() <= before.abs() * 2.0 ** -15).all() and not torch.equal(before, after)
        assert "remainder" not in back.state[p]


@pytest.mark.parametrize("kind", KINDS, **ids)
@pytest.mark.parametrize("options", [{}, {"ema_warmup": True}, {"master_weights": True},
                                     {"state": "8bit", "master": "stochastic"}], ids=str)
def test_the_average_of_the_weights_is_pytorchs(kind, options):
    swa_utils = pytest.importorskip("torch.optim.swa_utils")
    params = params_of(SHAPES, torch.bfloat16 if options.keys() - {"ema_warmup"} else torch.float32)

    def wide():
        return torch.nn.ParameterList([optimizer.state[p].get("master_param", p).detach().float() for p in params])

    def warm(averaged, current, count):
        return averaged.lerp(current, 1 - min(0.9, (1 + count.item()) / (10 + count.item())))

    optimizer = kind(params, lr=0.05, ema_decay=0.9, **options)
    average = swa_utils.AveragedModel(wide(), **({"avg_fn": warm} if "ema_warmup" in options else {
        "multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}))
    for seed in range(6):
        set_grads(params, seed)
        if seed == 2:
            params[0].grad[0, 0] = float("inf")
            started(init_scale=1.0).step(optimizer)
            assert not optimizer.applied
        else:
            optimizer.step()
            average.update_parameters(wide())
        if seed == 3:
            saved, optimizer = optimizer.state_dict(), kind(params, lr=0.5, ema_decay=0.9, **options)
            optimizer.load_state_dict(copy.deepcopy(saved))
        for p, expected in zip(params, average.module, strict=True):
            torch.testing.assert_close(optimizer.state[p]["ema"], expected.detach(), rtol=3e-7, atol=3e-7)


def test_an_average_begins_with_the_parameters_and_is_left_out_elsewhere():
    theirs_params, params = params_of(SHAPES, torch.float32), params_of(SHAPES, torch.float32)
    theirs, ours = torch.optim.AdamW(theirs_params), gst.AdamW(params, ema_decay=0.5)
    step(theirs, theirs_params, [0])
    ours.load_state_dict(theirs.state_dict())
    before = copied(params)
    step(ours, params, [1])
    for p, q in zip(params, before, strict=True):
        torch.testing.assert_close(ours.state[p]["ema"], (p.detach() + q) / 2)
    for other in (theirs, gst.AdamW(theirs_params)):
        other.load_state_dict(copy.deepcopy(ours.state_dict()))
        step(other, theirs_params, [2])
    assert "ema" not in other.state[theirs_params[0]] and "ema_decay" not in other.param_groups[0]
    narrow = params_of(SHAPES, torch.bfloat16)
    with pytest.raises(ValueError, match="max_exp_avg_sq, ema, remainder, and 4 of these are possible"):
        step(gst.AdamW(narrow, amsgrad=True, ema_decay=0.5, master="split"), narrow, [0])


@pytest.mark.parametrize("options", [{}, {"state": "8bit"}, {"master": "split"}, {"master_weights": True},
                                     {"state": "8bit", "master": "stochastic"}], ids=str)
def test_ranges_of_groups(options):
    params = params_of(SHAPES, torch.bfloat16)
    half = len(params) // 2
    optimizer = gst.AdamW([{"params": params[:half]}, {"params": params[half:], "param_min": 0.0, "param_max": 0.25}],
                          lr=0.5, param_min=-0.5, param_max=0.5, **options)
    assert [group["param_max"] for group in optimizer.param_groups] == [0.5, 0.25]
    for seed in range(3):
        step(optimizer, params, [seed])
        for p in params[:half]:
            assert -0.5 <= p.min() and p.max() <= 0.5
        for p in params[half:]:
            assert 0.0 <= p.min() and p.max() <= 0.25
    optimizer.param_groups[0].update(param_min=1.0, param_max=2.0)
    # What a state dict has does not change it.
    plain = gst.AdamW([{"params": params[:half]}, {"params": params[half:]}], **options)
    optimizer.load_state_dict(plain.state_dict())
    assert "param_max" not in plain.state_dict()["param_groups"][0]
    step(optimizer, params, [3])
    assert all(1.0 <= p.min() for p in params[:half]) and all(p.max() <= 0.25 for p in params[half:])


@pytest.mark.parametrize("kind, decays", [(gst.Adam, False), (gst.AdamW, True), (gst.Lion, True)], **ids)
def test_cautious_updates_and_decay(kind, decays):
    params = [torch.nn.Parameter(torch.tensor([4.0, 4.0])) for _ in range(2)]
    optimizer = kind([{"params": params[:1], "cautious": True}, {"params": params[1:], "cautious": False}], lr=0.5)
    for p in params:
        p.grad = torch.ones(2)
    optimizer.step()
    before = params[0].tolist()
    for p in params:
        p.grad = torch.tensor([-0.01, 0.01])
    optimizer.step()
    assert params[0].tolist()[0] == pytest.approx(before[0], rel=6e-3) and params[0].tolist()[1] < before[1] - 0.1
    assert all(now < then - 0.1 for now, then in zip(params[1].tolist(), before, strict=True))
    params = [torch.nn.Parameter(torch.tensor([4.0, 4.0]))]
    if not decays:
        with pytest.raises(ValueError, match=r"param_groups\[0\] has cautious_decay=True, which Adam does not take"):
            kind(params, lr=0.5, cautious_decay=True)
        params[0].grad = torch.tensor([1.0, -1.0])
        kind(params, lr=0.5, weight_decay=0.5, cautious_decay=True, decoupled_weight_decay=True).step()
    else:
        params[0].grad = torch.tensor([1.0, -1.0])
        kind(params, lr=0.5, weight_decay=0.5, cautious_decay=True).step()
    torch.testing.assert_close(params[0].detach(), torch.tensor([2.5, 4.5]))


def test_who_has_no_range_and_no_caution():
    p = params_of(((3,),), torch.float32)[0]
    with pytest.raises(ValueError, match=r"param_groups\[0\] has cautious=True, which SGD does not take"):
        gst.SGD([p], lr=0.1, cautious=True)
    with pytest.raises(ValueError, match="param_max is 1.0, but SGDScheduleFree takes no range of parameters"):
        gst.SGDScheduleFree([p], param_max=1.0)


def test_formats_by_group_and_later():
    params = params_of(SHAPES, torch.bfloat16)
    optimizer = gst.AdamW([{"params": params[:1], "state": "fp32", "master": None}, {"params": params[1:3]}],
                          state="8bit", master="split")
    optimizer.add_param_group({"params": params[3:], "state": "16bit", "master": "stochastic"})
    step(optimizer, params, range(2))
    found = [optimizer.state[p] for p in params]
    for slot in ("exp_avg", "exp_avg_sq"):
        held = [entry[slot + "_codes" * (i == 2)].dtype for i, entry in enumerate(found)]
        assert held == [torch.float32, torch.float32, torch.uint8, torch.float32]
    assert ["remainder" in entry for entry in found] == [False, True, True, False]
    optimizer.param_groups[0]["state"] = "8bit"
    before = optimizer.state[params[0]]["exp_avg"].clone()
    step(optimizer, params, [2])
    entry = optimizer.state[params[0]]
    assert entry["exp_avg_codes"].dtype == torch.uint8 and entry["exp_avg_scale"].shape == (8, 2)
    assert "exp_avg" not in entry
    full = optimizer.fp32_state_dict()["state"][0]["exp_avg"]
    expected = before * 0.9 + 0.1 * params[0].grad.float()
    assert ((full - expected).abs() <= 0.07 * (expected.abs() + before.abs()) + 1e-3).all()


#: Shapes of which shards of the first dimension may cut a group of 32 elements, and others.
UNGROUPED = [(768,), (64,), (1,), (10, 20), (16, 3, 3, 3), (0,)]
OTHERS = [(3, 32), (1, 64), (16, 32, 3, 3), (5, 2, 16), (0, 32)]


@pytest.mark.parametrize("shape", [*UNGROUPED, *OTHERS], ids=str)
@pytest.mark.parametrize("kind", KINDS, **ids)
def test_only_state_that_every_number_of_ranks_can_have_is_in_codes_with_scales(kind, shape):
    for state in ("16bit", "8bit"):
        optimizer, params = made(kind, shapes=(shape, (4, 32)), state=state)
        names = {name for key, name in tensors(optimizer) if key == 0}
        whole = {name for key, name in tensors(optimizer) if key == 1}
        scales = {name for name in whole if name.endswith("_scale")}
        plain = {name.removesuffix("_codes") for name in whole - scales}
        # Means of gradients have scales in 8 bits, those of squares in both.
        with_scales = {"second_moment", *["moment"] * (state == "8bit")}
        assert bool(scales) == bool(HOLDS[kind.__name__] & with_scales)
        assert names == (plain if shape in UNGROUPED else whole)
        assert shape not in UNGROUPED or not {torch.bfloat16, torch.uint8, torch.int16} & {
            value.dtype for (key, _), value in tensors(optimizer).items() if key == 0}
        # Codes of an earlier version become numbers.
        if shape == (64,) and "exp_avg_scale" in scales:
            saved = optimizer.state_dict()
            exact = saved["state"][0]["exp_avg"].clone()
            other, others = made(kind, shapes=((2, 32), (4, 32)), state=state)
            for name, held in (("exp_avg", "exp_avg_codes"), ("exp_avg_scale", "exp_avg_scale")):
                saved["state"][0][name] = other.state[others[0]][held].flatten()
            optimizer.load_state_dict(saved)
            found = optimizer.state[params[0]]
            assert found["exp_avg"].dtype == torch.float32 and "exp_avg_scale" not in found
            assert 0 < (found["exp_avg"] - exact).abs().max() < 0.5


@pytest.mark.parametrize("kind", [gst.AdamW, gst.Adagrad, gst.SGD], **ids)
@pytest.mark.parametrize("saved_as", FORMATS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_what_copies_tensors_by_name_does_not_take_codes_for_numbers(kind, saved_as, tmp_path):
    """torch.distributed.checkpoint and torch.optim, into every other format."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    def build(state, master, seeds=()):
        model = torch.nn.Linear(64, 8).bfloat16()
        options = {"momentum": 0.9} if kind is gst.SGD else {}
        optimizer = kind(model.parameters(), lr=0.01, state=state, master=master, **options)
        step(optimizer, list(model.parameters()), seeds)
        optimizer.zero_grad()
        return model, optimizer

    model, optimizer = build(*saved_as, seeds=range(2))
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=tmp_path)
    exact, refusals = optimizer.fp32_state_dict()["state"], 0
    for wanted in [("fp32", None), *FORMATS]:
        other_model, other = build(*wanted)
        other_model.load_state_dict(model.state_dict())
        found = {"optimizer": get_optimizer_state_dict(other_model, other)}
        try:
            dcp.load(found, checkpoint_id=tmp_path)
            set_optimizer_state_dict(other_model, other, found["optimizer"])
        except CheckpointException as error:
            # Keys that the checkpoint does not have.
            assert "Missing key in checkpoint" in str(error) and wanted != saved_as
            continue
        except ValueError as error:
            assert re.search(r"torch.distributed.checkpoint copies numbers and converts no formats\. Load it into an"
                             r" optimizer with .*, whose state_dict\(\) load_state_dict\(\) converts", str(error))
            refusals += 1
            continue
        held = other.fp32_state_dict()["state"]
        for key, entry in exact.items():
            for name in set(entry) & set(held[key]) - {"step"}:
                assert torch.allclose(held[key][name].float(), entry[name].float(), rtol=1e-6), (wanted, name)
    has_codes = any(name.endswith("_scale") for _, name in tensors(optimizer))
    assert refusals or not has_codes
    theirs = getattr(torch.optim, kind.__name__)(model.parameters(), lr=0.01, **({"momentum": 0.9} if kind is gst.SGD
                                                                                else {}))
    theirs.load_state_dict(optimizer.state_dict())
    set_grads(list(model.parameters()), 7)
    if has_codes:
        with pytest.raises(AttributeError, match="'int' object"):
            theirs.step()
    # What is meant for it.
    theirs.load_state_dict(optimizer.fp32_state_dict())
    theirs.step()


@pytest.mark.parametrize("state, master", FORMATS)
def test_a_state_dict_has_the_format_that_its_group_has_now(state, master):
    """Also if it was set after the last step, or before the first."""
    for seeds in ([], [0, 1]):
        optimizer, params = made(steps=0)
        step(optimizer, params, seeds)
        optimizer.param_groups[0].update(state=state, master=master)
        found = [optimizer.state_dict()]
        step(optimizer, params, [2] if not seeds else [])
        made_so, others = made(steps=0, state=state, master=master)
        made_so.load_state_dict(optimizer.state_dict())
        found += [optimizer.state_dict(), made_so.state_dict()]
        for saved in found:
            assert saved["param_groups"][0].get("codes") == (2 if state != "fp32" else None)
            loaded, _ = made(steps=0, state=state, master=master)
            loaded.load_state_dict(copy.deepcopy(saved))
            same(tensors(loaded), tensors(made_so) if saved is not found[0] or seeds else {})
        # And back.
        made_so.param_groups[0].update(state="fp32", master=None)
        saved = made_so.state_dict()
        assert "codes" not in saved["param_groups"][0]
        assert {name for entry in saved["state"].values() for name in entry} == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("state, master", [("16bit", None), ("8bit", "split")])
@pytest.mark.parametrize("how", [{}, {"full_state_dict": True, "cpu_offload": True},
                                 {"flatten_optimizer_state_dict": True}], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_every_way_of_torch_distributed_checkpoint_gives_the_state_back(state, master, how, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    model, options = torch.nn.Linear(64, 8).bfloat16(), StateDictOptions(**how)
    first, second = (gst.AdamW(model.parameters(), lr=0.01, state=state, master=master) for _ in range(2))
    step(first, list(model.parameters()), range(2))
    first.zero_grad()
    dcp.save({"optimizer": get_optimizer_state_dict(model, first, options=options)}, checkpoint_id=tmp_path)
    found = {"optimizer": get_optimizer_state_dict(model, second, options=options)}
    dcp.load(found, checkpoint_id=tmp_path)
    set_optimizer_state_dict(model, second, found["optimizer"], options=options)
    same(tensors(second), tensors(first))


@pytest.mark.parametrize("kind, slot", [(gst.AdamW, "exp_avg"), (gst.SGD, "momentum_buffer")])
def test_numbers_that_are_set_beside_codes_take_their_place(kind, slot):
    optimizer, params = made(kind, shapes=((2, 32),), state="8bit", lr=0.0)
    optimizer.state[params[0]][slot] = torch.full((2, 32), 5.0)
    params[0].grad = torch.zeros_like(params[0])
    optimizer.step()
    assert slot not in optimizer.state[params[0]] and slot + "_codes" in optimizer.state[params[0]]
    assert optimizer.fp32_state_dict()["state"][0][slot].eq(4.5).all()


def test_numbers_and_codes_of_one_slot_are_refused():
    optimizer, _ = made(shapes=((2, 32),), state="8bit")
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"step", *(slot + suffix for slot in ("exp_avg", "exp_avg_sq")
                                                for suffix in ("", "_codes", "_scale"))}
    saved["state"][0]["exp_avg"] = torch.zeros(2, 32)
    with pytest.raises(ValueError, match=r"'exp_avg'\] are numbers, and 'exp_avg_codes' is there too"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_torch_distributed_checkpoint_does_not_take_codes_for_a_slow_mean(turn, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = torch.nn.Linear(64, 8, bias=False).bfloat16()
    fast, slow = (gst.AdamW(model.parameters(), state="8bit", betas=(beta, 0.999)) for beta in (0.9, 0.999))
    first, second = (slow, fast) if turn else (fast, slow)
    step(first, list(model.parameters()), range(2))
    first.zero_grad()
    dcp.save({"optimizer": get_optimizer_state_dict(model, first)}, checkpoint_id=tmp_path)
    found = {"optimizer": get_optimizer_state_dict(model, second)}
    with pytest.raises(CheckpointException if turn else ValueError, match="Missing key .*exp_avg_codes" if turn else
                       r"'exp_avg'\] is 8, for codes of .* optimizer with the `state`, `master` and betas that were"):
        dcp.load(found, checkpoint_id=tmp_path)
        set_optimizer_state_dict(model, second, found["optimizer"])
    second.load_state_dict(first.state_dict())
    near(second.fp32_state_dict()["state"], first.fp32_state_dict()["state"], ("exp_avg",), "fp32")


@pytest.mark.parametrize("state", STATES[1:])
@pytest.mark.parametrize("target", STATES)
@pytest.mark.parametrize("how", [{}, {"flatten_optimizer_state_dict": True}], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_squares_of_an_earlier_version_are_refused(state, target, how, tmp_path):
    """Their scales were bytes, and the codes other ones. torch.distributed.checkpoint copies them by name. In 16 bits
    they have the dtypes of now."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    def build(state):
        model = torch.nn.Linear(64, 8, bias=False).bfloat16()
        optimizer = gst.AdamW(model.parameters(), state=state)
        step(optimizer, list(model.parameters()), range(2))
        optimizer.zero_grad()
        return model, optimizer

    def earlier(entry, prefix=""):
        name = prefix + "exp_avg_sq"
        entry[name] = 8 * entry[name + "_codes"].element_size()
        entry[name + "_scale"] = entry[name + "_scale"].to(torch.uint8)

    def of_earlier_version(group, prefix=""):
        assert group.pop(prefix + "codes") == 2
        group[prefix + "ungrouped"] = "fp32"

    model, optimizer = build(state)
    options = StateDictOptions(**how)
    saved, checkpoint = optimizer.state_dict(), get_optimizer_state_dict(model, optimizer, options=options)
    earlier(saved["state"][0])
    of_earlier_version(saved["param_groups"][0])
    if how:
        earlier(checkpoint, "state.weight.")
        of_earlier_version(checkpoint, "param_groups.weight.")
    else:
        earlier(checkpoint["state"]["weight"])
        of_earlier_version(checkpoint["param_groups"][0])
    dcp.save({"optimizer": checkpoint}, checkpoint_id=tmp_path)
    model, other = build(target)
    message = "'exp_avg_sq_codes'] are codes of an earlier version, .*; load them there and save fp32_state_dict()"
    message = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(saved)
    if state == "8bit":
        number = saved["state"][0].pop("exp_avg_sq")
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(saved)
        saved["state"][0]["exp_avg_sq"] = number
    # Before that, codes were called as their slot.
    saved["state"][0]["exp_avg_sq"] = saved["state"][0].pop("exp_avg_sq_codes")
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(saved)
    found = {"optimizer": get_optimizer_state_dict(model, other, options=options)}
    with pytest.raises((ValueError, CheckpointException), match="Missing key .*codes" if target != "fp32" else None):
        dcp.load(found, checkpoint_id=tmp_path)
        set_optimizer_state_dict(model, other, found["optimizer"], options=options)


@pytest.mark.parametrize("state", STATES[1:])
def test_pickles_of_an_earlier_version_are_refused_for_their_squares(state):
    for kind in (gst.AdamW, gst.Lion, gst.SGD):
        optimizer, _ = made(kind, state=state)
        held = optimizer.__getstate__()
        assert held.pop("_choices")
        other = kind.__new__(kind)
        if kind is gst.AdamW:
            with pytest.raises(ValueError, match="the state 'exp_avg_sq_codes' are codes of an earlier version"):
                other.__setstate__(held)
        else:
            other.__setstate__(held)
            same(tensors(other), tensors(optimizer))


def test_bits_do_not_depend_on_which_parameters_step_together():
    """Random bits go by the place among all parameters."""
    results = []
    for missing in ((), (0,)):
        params = params_of(SHAPES, torch.bfloat16)
        optimizer = gst.AdamW(params, lr=0.01, state="8bit", master="stochastic", seed=5)
        for seed in range(3):
            set_grads(params, seed, missing)
            optimizer.step()
        results.append([tensors(optimizer)[1, name] for name in ("exp_avg", "exp_avg_sq")] + [params[1].detach()])
    assert equal(*results)


def test_memory_order_of_parameters_may_change():
    shape = ((8, 32, 5, 5),)
    optimizer, params = made(shapes=shape, state="8bit", master="split")
    full = optimizer.fp32_state_dict()["state"][0]
    params[0].data = params[0].data.contiguous(memory_format=torch.channels_last)
    before = params[0].detach().clone()
    params[0].grad = torch.zeros_like(params[0])
    optimizer.param_groups[0].update(lr=0.0)
    optimizer.step()
    entry = optimizer.state[params[0]]
    assert entry["exp_avg_codes"].is_contiguous(memory_format=torch.channels_last)
    assert entry["exp_avg_scale"].shape == (200,)
    now = optimizer.fp32_state_dict()["state"][0]
    assert ((now["exp_avg"] - 0.9 * full["exp_avg"]).abs() <= 0.14 * full["exp_avg"].abs() + 1e-3).all()
    assert torch.equal(params[0], before) and torch.equal(now["master_param"], full["master_param"])


@pytest.mark.parametrize("options, dtype, message", [
    (dict(state="4bit"), torch.float32, "state is '4bit'; it must be one of 'fp32', '16bit', '8bit'"),
    (dict(state=None), torch.float32, "state is None; it must be one of"),
    (dict(state=[]), torch.float32, "state is []; it must be one of"),
    (dict(ema_decay=1.0), torch.float32, "ema_decay is 1.0; it must be in [0, 1)"),
    (dict(master="fp32"), torch.bfloat16, "master is 'fp32'; it must be one of None, 'split', 'split24', 'stochastic'"),
    (dict(master="split"), torch.float32, "master is 'split', but first is float32; it must be float16 or bfloat16"),
    (dict(state="8bit"), torch.float64, "state is '8bit', but first is float64, whose state is float64"),
    (dict(master="split", master_weights=True), torch.bfloat16, "master is 'split', and master_weights is True"),
    (dict(seed=1 << 63), torch.bfloat16, "seed is 9223372036854775808; it must be in"),
])
def test_bad_options_are_named(options, dtype, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        gst.AdamW([("first", params_of(((3,),), dtype)[0])], **options)


def test_bad_groups_are_named():
    wide, narrow = params_of(((3,),), torch.float32), params_of(((3,),), torch.bfloat16)
    optimizer = gst.AdamW(narrow, master="split")
    with pytest.raises(ValueError, match=r"master is 'split', but param_groups\[1\]\['params'\]\[0\] is float32"):
        optimizer.add_param_group({"params": wide})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": wide, "master": None})
    optimizer.param_groups[1]["state"] = "4bit"
    set_grads(narrow + wide, 0)
    with pytest.raises(ValueError, match="state is '4bit'"):
        optimizer.step()
    with pytest.raises(ValueError, match="in the group of"):
        gst.AdamW([{"params": narrow, "master": "split"}], master_weights=True)


def test_bad_state_is_named():
    optimizer, params = made(shapes=((2, 32),), state="8bit", master="split")
    for name, size, dtype in (("exp_avg", 63, torch.uint8), ("exp_avg_codes", 63, torch.uint8),
                              ("remainder", 63, torch.int16), ("exp_avg_scale", 1, torch.uint8),
                              ("exp_avg_scale", 2, torch.int16), ("exp_avg_sq_scale", 2, torch.int32)):
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0][name] = torch.zeros(size, dtype=dtype)
        other = gst.AdamW(params_of(((2, 32),), torch.bfloat16), state="8bit", master="split")
        with pytest.raises(ValueError, match=f"'{name}'"):
            other.load_state_dict(saved)
        assert not other.state
    optimizer.state[params[0]]["exp_avg_scale"] = torch.zeros(1, dtype=torch.uint8)
    set_grads(params, 7)
    with pytest.raises(ValueError, match="exp_avg"):
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS, **ids)
def test_memory_is_what_state_takes(kind):
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(100, 64), torch.nn.Linear(64, 3))
    table = gst.memory(model, kind)
    elements = sum(p.numel() for p in model.parameters())
    assert table[0].weights == 4 * elements and str(table).count("\n") == len(table)
    for row, (state, master) in zip(table[2:], [("fp32", "split"), ("16bit", "split"), ("8bit", "split"),
                                                ("8bit", "split24"), ("8bit", "stochastic")], strict=True):
        assert row.name == f"{kind.__name__}(state={state!r}, master={master!r})"
        optimizer, _ = made(kind, shapes=[p.shape for p in model.parameters()], steps=1, state=state, master=master)
        held = [value for (_, name), value in tensors(optimizer).items() if name not in ("step", "mu_product")]
        assert row.optimizer == sum(value.numel() * value.element_size() for value in held)
        assert row.weights == row.gradients == 2 * elements


@pytest.mark.long
def test_benchmark_of_quality():
    row = ["--row", "gradscaler 8bit, split"]
    table = run_python(ROOT / "benchmarks/torch_quality.py", "--steps", 2, "--seeds", 1, *row)
    assert re.search(r"\| 5\.\d+ \| 1\.05, 1\.12 \|", table), table
