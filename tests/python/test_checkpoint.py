# SPDX-License-Identifier: Apache-2.0
"""Optimizer state as arrays by name, through the formats people keep it in, and to and from torch.optim."""

import io

import numpy as np
import pytest

import gradscaler as gs
from conftest import library, ones, refused, zeros

KINDS = {"SGD": dict(lr=0.1, momentum=0.9, dampening=0.25), "Adam": dict(lr=0.1, weight_decay=0.1),
         "AdamW": dict(lr=0.1, amsgrad=True), "Adagrad": dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5),
         "RMSprop": dict(lr=0.1, momentum=0.9, centered=True), "Adadelta": dict(lr=0.1, rho=0.8),
         "Adamax": dict(lr=0.1), "NAdam": dict(lr=0.1, momentum_decay=0.1), "RAdam": dict(lr=0.1, betas=(0.8, 0.99))}
SHAPES = {"layer.weight": (4, 3), "layer.bias": (4,), "scalar": ()}


def arrays(seed, names=SHAPES):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=SHAPES[name]).astype(np.float32) for name in names}


def run(optimizer, grads, seeds):
    for seed in seeds:
        for name, value in arrays(seed).items():
            grads[name][...] = value
        optimizer.step()


def trained(kind="AdamW", steps=3, **more):
    params, grads = arrays(100), arrays(0)
    optimizer = getattr(gs, kind)(params, grads, **{**KINDS.get(kind, {}), **more})
    run(optimizer, grads, range(steps))
    return optimizer, params, grads


def continues(state, load, kind="AdamW"):
    """Returns whether a second optimizer, of parameters in another order, goes on from `state` as the first does."""
    first, params, grads = trained(kind)
    copies = {name: params[name].copy() for name in reversed(params)}
    other = {name: grads[name] for name in sorted(grads)}
    second = getattr(gs, kind)(copies, other, **KINDS.get(kind, {}))
    load(second, state(first))
    assert second.steps == 3
    run(first, grads, [7])
    run(second, grads, [7])
    for name in params:
        np.testing.assert_array_equal(params[name], copies[name])


def test_names_shapes_and_counts():
    optimizer, _, _ = trained()
    found = optimizer.state_arrays()
    assert set(found) == {"steps", "skipped_steps"} | {
        f"{slot}.{name}" for slot in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") for name in SHAPES}
    assert found["exp_avg.layer.weight"].shape == (4, 3) and found["exp_avg.scalar"].shape == ()
    assert found["steps"] == 3 and found["exp_avg.layer.weight"].dtype == np.float32
    np.testing.assert_array_equal(found["exp_avg.layer.weight"], np.asarray(optimizer.state["exp_avg"][0]))
    found["exp_avg.scalar"][...] = 7.0
    assert optimizer.state_arrays()["exp_avg.scalar"] != 7.0
    assert optimizer.state_dict()["param_groups"][0]["params"] == list(SHAPES)
    listed = gs.SGD([ones(2)], [ones(2)], momentum=0.5)
    assert set(listed.state_arrays()) == {"steps", "skipped_steps", "momentum_buffer.0"}


@pytest.mark.parametrize("kind", gs.optimizers.__all__)
def test_state_dicts_load_in_another_order(kind):
    continues(lambda o: o.state_dict(), lambda o, s: o.load_state_dict(s), kind)


def by_npz(arrays, path):
    np.savez(path / "state.npz", **arrays)
    return np.load(path / "state.npz")


def by_safetensors(arrays, path):
    numpy = library("safetensors.numpy")
    numpy.save_file(arrays, path / "state")
    return numpy.load_file(path / "state")


def by_jax(arrays, _):
    jax = library("jax")
    return jax.tree.map(jax.numpy.asarray, arrays)


@pytest.mark.parametrize("saved", [by_npz, by_safetensors, by_jax])
def test_state_arrays_are_what_others_save(saved, tmp_path):
    continues(lambda o: saved(o.state_arrays(), tmp_path), lambda o, s: o.load_state_arrays(s))


def test_torch_save(torch):

    def save(optimizer):
        file = io.BytesIO()
        as_torch = {name: torch.as_tensor(value) for name, value in optimizer.state_arrays().items()}
        torch.save({**optimizer.state_dict(), "state": as_torch}, file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    continues(save, lambda o, s: o.load_state_dict(s))
    grads = {"p": torch.ones(2, 3)}
    own = gs.Adam({"p": torch.ones(2, 3)}, grads)
    own.step()
    found = own.state_dict()["state"]
    assert isinstance(found["exp_avg.p"], torch.Tensor) and found["exp_avg.p"].shape == (2, 3)


def test_renamed_parameters():
    first, params, grads = trained()
    table = {"layer.weight": "fc.weight", "layer.bias": "fc.bias"}
    copies = {table.get(name, name): params[name].copy() for name in params}
    other = {table.get(name, name): grads[name] for name in grads}
    for rename in (table, lambda name: name.replace("layer", "fc")):
        second = gs.AdamW(copies, other, **KINDS["AdamW"])
        with refused("renamed need rename=", ValueError):
            second.load_state_dict(first.state_dict())
        assert second.steps == 0
        second.load_state_dict(first.state_dict(), rename=rename)
        assert second.steps == 3
        np.testing.assert_array_equal(second.state_arrays()["exp_avg.fc.weight"],
                                      first.state_arrays()["exp_avg.layer.weight"])
    with refused("rename makes two entries.*exp_avg.x"):
        second.load_state_arrays(first.state_arrays(), rename=lambda name: "x")


def test_groups_are_found_by_their_parameters():
    def make(**lrs):
        return gs.Adam([{"params": {name: ones(2)}, "grads": {name: ones(2)}, "lr": lr} for name, lr in lrs.items()])

    first, second = make(a=0.25, b=0.5), make(b=1.0, a=1.0)
    second.load_state_dict(first.state_dict())
    assert [group["lr"] for group in second.param_groups] == [0.5, 0.25]


BAD = [
    ({"exp_avg.layer.bias": zeros(3)}, ValueError, r"\['exp_avg.layer.bias'\] has shape \(3,\)"),
    ({"exp_avg.layer.bias": zeros(2, 2)}, ValueError, r"has shape \(2, 2\), but the parameter"),
    ({"exp_avg.layer.bias": np.zeros(4, np.float64)}, TypeError, "float64, which does not fit into float32"),
    ({"exp_avg.layer.bias": np.zeros(4, np.int32)}, TypeError, "dtype int32"),
    ({"exp_avg.layer.bias": "text"}, TypeError, r"\['exp_avg.layer.bias'\] is str"),
    ({"exp_avg.other": zeros(4)}, ValueError, r"\['exp_avg.other'\] is unknown"),
    ({"steps": 1.5}, TypeError, r"\['steps'\]"), ({"steps": -1}, ValueError, r"\['steps'\] is -1"),
]
#: Of the whole state dict.
BAD_WHOLE = [
    ({"kind": "Adam"}, "is of Adam, but this is AdamW"), ({"state": b""}, "is bytes; it must be a mapping"),
    ({"state": {}}, r"\['steps'\] is missing"), ({"param_groups": []}, "has 0 param groups"),
    ({"param_groups": [{}]}, "param group 0 of the state dict has no 'params'"),
    ({"param_groups": [{"params": list(SHAPES)}]}, "a param group of the state dict has no 'lr'"),
    ({"lr": -1.0}, "lr is -1"), ({"amsgrad": False}, "has amsgrad=False, but here it is True"),
]


def require_same(optimizer, before):
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"] and after["state"].keys() == before["state"].keys()
    assert all((after["state"][name] == value).all() for name, value in before["state"].items())


@pytest.mark.parametrize("change, error, message", BAD, ids=[row[2] for row in BAD])
def test_bad_state_changes_nothing(change, error, message):
    optimizer, _, _ = trained()
    before = optimizer.state_dict()
    state = before["state"]
    with pytest.raises(error, match=message):
        optimizer.load_state_arrays({**state, "exp_avg.layer.weight": state["exp_avg.layer.weight"] + 1, **change})
    require_same(optimizer, before)


@pytest.mark.parametrize("change, message", BAD_WHOLE, ids=[row[1] for row in BAD_WHOLE])
def test_bad_state_dicts_change_nothing(change, message):
    optimizer, _, _ = trained()
    before = optimizer.state_dict()
    if not change.keys() & before.keys():
        change = {"param_groups": [{**before["param_groups"][0], **change}]}
    with refused(message, ValueError):
        optimizer.load_state_dict({**before, **change})
    require_same(optimizer, before)
    with refused("the state dict has no 'kind'", ValueError):
        optimizer.load_state_dict({})


def test_narrower_dtypes_and_other_orders_are_converted():
    optimizer, _, _ = trained("Lion")
    optimizer.load_state_arrays({**optimizer.state_arrays(), "exp_avg.layer.bias": np.full(4, 0.5, np.float16)})
    assert optimizer.state_arrays()["exp_avg.layer.bias"].tolist() == [0.5] * 4
    params = np.asfortranarray(zeros(2, 3))
    other = gs.Lion({"w": params}, {"w": np.zeros_like(params)})
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    other.load_state_arrays({"steps": 1, "exp_avg.w": values})
    assert np.asarray(other.state["exp_avg"][0]).ravel("K").tolist() == [0, 3, 1, 4, 2, 5]
    np.testing.assert_array_equal(other.state_arrays()["exp_avg.w"], values)


def test_steps_can_be_set():
    params, grads = [ones(1)], [ones(1)]
    optimizer = gs.Adam(params, grads, lr=1.0, eps=0.0)
    optimizer.steps = 9
    optimizer.step()
    m, v = 0.1 / (1 - 0.9**10), 0.001 / (1 - 0.999**10)
    np.testing.assert_allclose(params[0], 1 - m / v**0.5, rtol=1e-6)
    assert optimizer.steps == 10 and optimizer.skipped_steps == 0
    for bad, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="steps"):
            optimizer.steps = bad
    assert optimizer.steps == 10


def torch_params(torch, values):
    return {name: torch.nn.Parameter(torch.from_numpy(value.copy())) for name, value in values.items()}


def torch_run(torch, kind, steps, optimizer=None, params=None):
    if optimizer is None:
        params = torch_params(torch, arrays(100))
        optimizer = getattr(torch.optim, kind)(params.values(), foreach=False, **KINDS[kind])
    for seed in steps:
        for name, value in arrays(seed).items():
            params[name].grad = torch.from_numpy(value)
        optimizer.step()
    return optimizer, params


def stay_close(torch, kind, ours, copies, grads, theirs, params):
    """The same bits for SGD; PyTorch's square root may be an ulp off, which moves an update by a few at most."""
    torch_run(torch, kind, range(10, 14), theirs, params)
    run(ours, grads, range(10, 14))
    for name, value in copies.items():
        other = params[name].detach().numpy()
        bound = 0.0 if kind == "SGD" else 4 * np.spacing(np.abs(other).max().astype(np.float32))
        assert np.abs(value.astype(float) - other).max() <= bound, name


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_from_torch(kind, before, torch):
    theirs, params = torch_run(torch, kind, range(before))
    copies, grads = {name: p.detach().numpy().copy() for name, p in params.items()}, arrays(0)
    ours = getattr(gs, kind)(copies, grads, **{**KINDS[kind], "lr": 0.5})
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.1 and ours.steps == (min(before, 1) if kind == "SGD" else before)
    stay_close(torch, kind, ours, copies, grads, theirs, params)


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_to_torch(kind, before, torch):
    from gradscaler.torch import optimizer_state_dict
    ours, copies, grads = trained(kind, before)
    params = torch_params(torch, copies)
    theirs = getattr(torch.optim, kind)(params.values(), foreach=False, **{**KINDS[kind], "lr": 0.5})
    theirs.load_state_dict(optimizer_state_dict(ours))
    assert theirs.param_groups[0]["lr"] == 0.1
    stay_close(torch, kind, ours, copies, grads, theirs, params)


def test_torch_names_are_paired(torch):
    params = torch_params(torch, arrays(100))
    theirs = torch.optim.Adam(list(params.items()), lr=0.1, foreach=False)
    torch_run(torch, "Adam", range(2), theirs, params)
    ours = gs.Adam({name: p.detach().numpy().copy() for name, p in reversed(params.items())}, arrays(0))
    ours.load_state_dict(theirs.state_dict())
    for i, name in enumerate(params):
        expected = theirs.state_dict()["state"][i]["exp_avg"]
        np.testing.assert_array_equal(ours.state_arrays()[f"exp_avg.{name}"], expected)
    with refused("param_names lack .*'scalar'.* rename="):
        ours.load_state_dict({**theirs.state_dict(), "param_groups": [
            {**theirs.state_dict()["param_groups"][0], "param_names": ["layer.weight", "layer.bias", "other"]}]})


def test_parameters_that_were_absent_keep_their_counts(torch):
    from gradscaler.torch import optimizer_state_dict
    theirs, _ = torch_run(torch, "Adam", range(3))
    grads = arrays(0)
    ours = gs.Adam(arrays(100), grads, **KINDS["Adam"])
    ours.load_state_dict(theirs.state_dict())
    ours.tensor_steps = [3, 1, 0]
    assert ours.tensor_steps == [3, 1, 0]
    saved = ours.state_dict()
    assert sorted(key for key in saved["state"] if "steps." in key) == ["steps.layer.bias", "steps.scalar"]
    other = gs.Adam(arrays(100), arrays(0), **KINDS["Adam"])
    other.load_state_dict(saved)
    assert (other.tensor_steps, other.steps) == ([3, 1, 0], 3)
    # To PyTorch, where one without steps has no state, and back.
    state = optimizer_state_dict(ours)
    assert {index: int(entry["step"]) for index, entry in state["state"].items()} == {0: 3, 1: 1}
    other.tensor_steps = [5, 5, 5]
    other.load_state_dict(state)
    assert other.tensor_steps == [3, 1, 0]
    assert not other.state_arrays()["exp_avg.scalar"].any()
    ours.grads.set_present([True, False, True])
    run(ours, grads, [11])
    assert ours.tensor_steps == [4, 1, 1]
    with refused("is 2, but the list has 3"):
        ours.grads.set_present([True, False])


def test_torch_state_that_does_not_fit_is_refused(torch):
    from gradscaler.torch import optimizer_state_dict
    theirs, _ = torch_run(torch, "Adam", range(3))

    def ours(kind):
        return getattr(gs, kind)(arrays(0), arrays(1))

    for optimizer, message in (
            (ours("AdamW"), "decoupled_weight_decay=False; it is one of torch.optim.Adam"),
            (ours("SGD"), "has no 'momentum'; it is not one of torch.optim.SGD"),
            (ours("Lion"), "torch.optim has no Lion"),
            (gs.Adam([ones(2)], [ones(2)]), "has 3 parameters, but the optimizer has 1")):
        with refused(message):
            optimizer.load_state_dict(theirs.state_dict())
        assert optimizer.steps == 0
    with refused("torch.optim has no LAMB"):
        optimizer_state_dict(ours("LAMB"))


def test_state_that_is_out_of_reach_says_what_helps():
    from gradscaler.array_factories import NumpyArrays, StandardArrays
    tensor = gs.Tensor(4096, 3, "float32", "cuda:0", shape=(3,))
    for make in (StandardArrays(), NumpyArrays()):
        for call in (lambda: make.empty(tensor), lambda: make.on_device(np.zeros(3), "cuda:0")):  # noqa: B023
            with refused("the state is on cuda:0; import cupy or torch first, which copies it", ValueError):
                call()
