# SPDX-License-Identifier: Apache-2.0
"""Optimizers: one step against the formulas in fp64, groups, state, model copies and checkpoints."""

import numpy as np
import pytest

import gradscaler as gs
from conftest import frozen, full, library, ones, refused, zeros

KINDS = [getattr(gs, name) for name in gs.optimizers.__all__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_shows_in_the_group(kind):
    optimizer = kind([ones(2)], [ones(2)])
    group = optimizer.param_groups[0]
    assert len(optimizer.param_groups) == 1 and group.tensors == range(0, 1)
    for key in group:
        if isinstance(group[key], float):
            fixed = key == "ema_decay" or (key == "momentum" and kind in (gs.SGD, gs.RMSprop))
            value = 0.0 if fixed else -0.125 if key == "param_min" else 0.125
            group[key] = value
            assert group[key] == value
    if "betas" in group:
        group["betas"] = (0.5, 0.75)
        assert group["betas"] == (0.5, 0.75)
    with pytest.raises(KeyError, match=f"'nonsense'; {kind.__name__} knows lr, "):
        group["nonsense"] = 1
    with pytest.raises(ValueError):
        group["maximize"] = True
    with refused("lr"):
        group["lr"] = -1.0


def test_param_groups():
    weights, biases = [zeros(3), zeros(2)], {"b": zeros(4)}
    grads = [ones(3), ones(2)], {"b": ones(4)}
    optimizer = gs.SGD([{"params": weights, "grads": grads[0]}, {"params": biases, "grads": grads[1], "lr": 0.5}],
                       lr=1.0)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]
    assert [g.tensors for g in optimizer.param_groups] == [range(0, 2), range(2, 3)]
    optimizer.step()
    optimizer.param_groups[1]["lr"] = 0.25
    optimizer.step()
    assert weights[1].tolist() == [-2.0] * 2 and biases["b"].tolist() == [-0.75] * 4
    with pytest.raises(AttributeError, match="append"):
        optimizer.param_groups.append({"params": [zeros(2)], "grads": [ones(2)]})
    with refused("item assignment", TypeError):
        optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.5}


def test_groups_of_adagrad_begin_at_their_own_value():
    optimizer = gs.Adagrad([{"params": [ones(3)], "grads": [zeros(3)]},
                            {"params": [ones(2)], "grads": [zeros(2)], "initial_accumulator_value": 0.5}],
                           initial_accumulator_value=0.25)
    state = optimizer.state_arrays()
    assert [state[f"sum.{name}"].tolist() for name in optimizer.names] == [[0.25] * 3, [0.5] * 2]


def test_ranges_of_groups():
    params = [full(2.0, 3), full(-2.0, 3), full(2.0, 3)]
    groups = [{"params": [params[0]], "grads": [zeros(3)]},
              {"params": [params[1]], "grads": [zeros(3)], "param_min": -0.25, "param_max": 0.0},
              {"params": [params[2]], "grads": [zeros(3)], "param_min": 0.0, "param_max": 0.0}]
    optimizer = gs.SGD(groups, lr=1.0, param_min=-1.0, param_max=0.5)
    optimizer.step()
    assert [p.tolist() for p in params] == [[0.5] * 3, [-0.25] * 3, [2.0] * 3]
    optimizer.param_groups[2]["param_max"] = 1.0
    optimizer.step()
    assert params[2].tolist() == [1.0] * 3 and optimizer.param_groups[0]["param_max"] == 0.5
    with refused("param_min is 0.5, which is above param_max, 0"):
        gs.SGD([ones(2)], [ones(2)], param_min=0.5)
    with refused("param_max", TypeError):
        gs.SGDScheduleFree([ones(2)], [ones(2)], param_max=1.0)


@pytest.mark.parametrize("kind", [gs.Adam, gs.AdamW, gs.Lion])
def test_cautious_updates(kind):
    params, grads = full(1.0, 3), ones(3)
    optimizer = kind([params], [grads], lr=0.5, weight_decay=0.0, cautious=True)
    optimizer.step()
    before = params.tolist()
    grads[:] = [-0.01, 0.0, 0.01]
    optimizer.step()
    assert params.tolist()[:2] == before[:2] and params.tolist()[2] < before[2]
    assert optimizer.param_groups[0]["cautious"]


@pytest.mark.parametrize("kind", [gs.AdamW, gs.Lion])
def test_cautious_decay(kind):
    params, grads = full(4.0, 2), ones(2)
    grads[1] = -1.0
    kind([params], [grads], lr=0.5, weight_decay=0.5, cautious_decay=True).step()
    assert np.allclose(params, [2.5, 4.5])
    with refused("cautious_decay", TypeError):
        gs.Adam([ones(2)], [ones(2)], cautious_decay=True)


def test_bad_groups():
    one = [ones(2)]
    good = {"params": one, "grads": [ones(2)]}
    for groups, error, message in (([good, {"params": one}], TypeError, r"param_groups\[1\]\['grads'\] is missing"),
                                   ([{**good, "learning_rate": 1}], ValueError, "'learning_rate'"),
                                   ([{**good, "params": 2 * one}], ValueError,
                                    r"param_groups\[0\]\['grads'\]\[1\] is missing")):
        with pytest.raises(error, match=message):
            gs.SGD(groups)


def test_model_copy_and_zero_grads():
    master, model = [full(1.0, 3)], [np.zeros(3, np.float16)]
    grads = [np.full(3, 2.0**-14, np.float16)]
    optimizer = gs.SGD(master, grads, lr=1.0, model_copy=model, zero_grads=True)
    optimizer.step()
    assert master[0].tolist() == [1 - 2.0**-14] * 3
    assert model[0].tolist() == [1.0] * 3 and grads[0].tolist() == [0.0] * 3


def test_write_grads_writes_the_clipped_gradients(pair):
    params, grads = pair(8.0, counts=(4,))
    scaler = gs.GradScaler(init_scale=4.0)
    optimizer = gs.SGD(params, grads, lr=0.0, write_grads=True)
    scaler.clip_grad_norm_(optimizer, 1.0)
    scaler.step_and_update(optimizer)
    np.testing.assert_allclose(grads[0], 0.5, rtol=1e-5)


def test_unchanged_elements_are_counted():
    weights, grads = [np.array([1.0, 1.0, 0.0], np.float16)], [np.array([1.0, 0.0, 1.0], np.float16)]
    optimizer = gs.SGD(weights, grads, lr=2.0**-12, count_unchanged=True)
    optimizer.step()
    assert weights[0].tolist() == [1.0, 1.0, -2.0**-12]
    assert optimizer.unchanged == 2
    optimizer.step()
    assert optimizer.unchanged == 4
    assert gs.SGD(weights, grads, lr=1.0).unchanged == 0


def test_the_average_of_the_weights(pair):
    params, grads = pair(1.0)
    optimizer = gs.SGD(params, grads, lr=1.0, ema_decay=0.75)
    for _ in range(3):
        optimizer.step()
    # The weights were 0, -1 and -2.
    assert np.asarray(optimizer.state["ema"][1]).tolist() == [-0.25 * 0.75 - 0.5] * 5
    assert optimizer.param_groups[0]["ema_decay"] == 0.75 and not optimizer.param_groups[0]["ema_warmup"]
    average = [zeros(3), zeros(5)]
    other = gs.SGD(*pair(1.0), lr=1.0, ema_decay=0.5, ema_warmup=True, state={"ema": average})
    other.load_state_dict({**optimizer.state_dict(), "param_groups": other.state_dict()["param_groups"]})
    assert average[0].tolist() == [-0.6875] * 3 and other.steps == 3
    other.step()
    np.testing.assert_allclose(average[0], -0.6875 * 4 / 13, rtol=1e-6)
    with refused("ema_decay"):
        other.param_groups[0]["ema_decay"] = 0.0
    library("torch")
    with refused("no average of the weights"):
        other.load_state_dict({"state": {}, "param_groups": []})


def test_zero_grad(pair):
    params, grads = pair(8.0)
    optimizer = gs.SGD(params, grads)
    with refused("set_to_none", ValueError):
        optimizer.zero_grad(set_to_none=True)
    optimizer.zero_grad()
    assert not grads[0].any() and not grads[1].any()


def test_read_only_gradients_can_be_stepped_on_but_not_written(pair):
    params, grads = pair(8.0)
    for grad in grads:
        frozen(grad)
    scaler = gs.GradScaler(init_scale=8.0)
    optimizer = gs.SGD(params, grads, lr=1.0)
    scaler.clip_grad_norm_(optimizer, 100.0)
    scaler.step_and_update(optimizer)
    assert params[0].tolist() == [0.0] * 3
    for call in (lambda: scaler.unscale_(optimizer), optimizer.zero_grad):
        with refused("read-only", ValueError):
            call()
    with refused(r"grads\[0\] is read-only", ValueError):
        gs.SGD(params, grads, zero_grads=True)


def test_state_as_arrays_holds_the_optimizer(pair):
    params, grads = pair(2.0)
    optimizer = gs.Adam(params, grads, betas=(0.5, 0.5))
    optimizer.step()
    assert list(optimizer.state) == ["exp_avg", "exp_avg_sq"]
    view = np.asarray(optimizer.state["exp_avg"][1])
    optimizer.close()
    del optimizer
    assert view.tolist() == [1.0] * 5
    view[0] = 3.0
    assert view[0] == 3.0
