# SPDX-License-Identifier: Apache-2.0
"""Pairing by name: of params, grads, copies, state, sources and targets, in every kind of tree."""

import collections

import numpy as np
import pytest

import gradscaler as gs
from conftest import full, library, refused, zeros
from gradscaler import trees

Layer = collections.namedtuple("Layer", "weight bias")


def step(params, grads, **more):
    optimizer = gs.SGD(params, grads, lr=1.0, **more)
    optimizer.step()
    return optimizer


def test_mappings_are_paired_by_key():
    w, b = full(0), full(0)
    # JAX returns dicts with sorted keys.
    step({"w": w, "b": b}, {"b": full(1), "w": full(2)})
    assert w.tolist() == [-2.0] * 3 and b.tolist() == [-1.0] * 3


@pytest.mark.parametrize("make", [
    lambda w, b: {"layer": {"w": w, "b": b}},
    lambda w, b: {"layer": {"b": b, "w": w}},
    lambda w, b: {"layer.b": b, "layer.w": w},
    lambda w, b: collections.OrderedDict([("layer.w", w), ("layer.b", b)]),
    lambda w, b: iter([("layer.b", b), ("layer.w", w)]),
])
def test_trees_of_names(make):
    w, b = full(0), full(0, 2)
    step({"layer": {"w": w, "b": b}}, make(full(2), full(1, 2)))
    assert w.tolist() == [-2.0] * 3 and b.tolist() == [-1.0] * 2


def test_sequences_and_named_tuples():
    w, b, c = full(0), full(0), full(0)
    step([{"w": w}, (b, c)], ({"w": full(1)}, [full(2), full(3)]))
    assert [x[0] for x in (w, b, c)] == [-1.0, -2.0, -3.0]
    step(Layer(w, b), Layer(bias=full(5), weight=full(4)))
    assert [x[0] for x in (w, b)] == [-5.0, -7.0]
    step(full(0), [full(0)])


REFUSED = [
    ({"w": full(0), "b": full(0)}, {"w": full(1)}, r"grads\['b'\] is missing, but there is params\['b'\]"),
    ({"w": full(0)}, {"w": full(1), "c": full(1)}, r"grads\['c'\] is unknown: params has no such entry"),
    ({"w": full(0)}, {"v": full(1)}, r"grads and params have no name in common: grads has 'v'; params has 'w'"),
    ({"w": full(0), "b": full(0)}, {"w": full(1), "B": full(1)}, r"grads\['b'\] is missing.*unknown there is .*'B'"),
    ({"a": {"w": full(0)}}, {"a": {"w": full(0, 2)}}, r"grads\['a'\]\['w'\] has shape \(2,\), but params\['a'\]"),
    ([full(0, 2, 3)], [full(0, 3, 2)], r"grads\[0\] has shape \(3, 2\), but params\[0\] has \(2, 3\)"),
    ([full(0, 2, 3)], [full(0, 6)], r"grads\[0\] has shape \(6,\), but params\[0\] has \(2, 3\)"),
    ([full(0), full(0)], [full(0)], r"grads\[1\] is missing, but there is params\[1\]"),
    ([[full(0), full(0)], [full(0)]], [[full(0)], [full(0), full(0)]], r"grads\[0\]\[1\] is missing"),
    ({"w": full(0)}, [full(1)], r"params has names \('w'\), but grads is a sequence without"),
    ([full(0)], {"w": full(1)}, r"grads has names \('w'\), but params is a sequence without"),
    ({1: full(0), "1": full(0)}, [full(0), full(0)], r"params\[1\] and params\['1'\] have the same name"),
]


@pytest.mark.parametrize("params, grads, message", REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_what_does_not_belong_together_is_refused(params, grads, message):
    with refused(message):
        gs.SGD(params, grads)


def test_sets_have_no_order():
    with refused("grads is a set, which has no order", TypeError):
        gs.SGD([full(0)], {1, 2})


def test_copies_and_state_are_paired_by_key():
    w, b = full(0), full(0)
    copy = {"b": np.zeros(3, np.float16), "w": np.zeros(3, np.float16)}
    state = {"momentum_buffer": {"b": full(10), "w": full(20)}}
    optimizer = gs.SGD({"w": w, "b": b}, {"b": full(1), "w": full(2)}, lr=1.0, momentum=1.0, model_copy=copy,
                       state=state)
    optimizer.steps = 1
    optimizer.step()
    assert (w[0], b[0]) == (-22.0, -11.0) and (copy["w"][0], copy["b"][0]) == (-22.0, -11.0)
    assert (state["momentum_buffer"]["w"][0], state["momentum_buffer"]["b"][0]) == (22.0, 11.0)
    for wrong, name in ((dict(momentum=1.0, state={"momentum_buffer": {"w": full(0)}}), r"state\['momentum_buffer'\]"),
                        (dict(model_copy={"w": copy["w"]}), "model_copy")):
        with refused(name + r"\['b'\] is missing"):
            gs.SGD({"w": w, "b": b}, {"b": full(1), "w": full(2)}, **wrong)


def test_groups_are_paired_by_key():
    w, b, c = full(0), full(0), full(0)
    step([{"params": {"w": w, "b": b}, "grads": {"b": full(1), "w": full(2)}},
          {"params": {"c": c}, "grads": {"c": full(3)}, "lr": 2.0}], None)
    assert (w[0], b[0], c[0]) == (-2.0, -1.0, -6.0)
    for params, message in (([{"w": w, "b": b}], r"param_groups\[0\]\['grads'\]\['b'\] is missing"),
                            ([{"w": w}, {"w": b}], "two param groups have a tensor named 'w'")):
        with refused(message):
            gs.SGD([{"params": each, "grads": {"w": full(2)}} for each in params])


def test_lists_made_before_keep_their_order():
    w, b = full(0), full(0)
    grads = gs.TensorList({"b": full(1), "w": full(2)})
    with refused("grads is a TensorList in another order than params"):
        gs.SGD({"w": w, "b": b}, grads)
    step(gs.TensorList({"w": w, "b": b}), {"b": full(1), "w": full(2)})
    assert (w[0], b[0]) == (-2.0, -1.0)
    # `names` are keys where the other side has keys, and labels where it has none.
    with refused("another order"):
        gs.SGD({"w": w, "b": b}, gs.TensorList([full(1), full(2)], names=["b", "w"]))
    step([w, b], gs.TensorList([full(1), full(2)], names=["b", "w"]))
    assert (w[0], b[0]) == (-3.0, -3.0)
    grads.rebind({"w": full(8), "b": full(4)})
    assert gs.ops.norms(list(grads), np.inf) == (4.0, 8.0)
    with refused("sequence without"):
        grads.rebind([full(8), full(4)])


def test_stateless_operations_pair_by_key():
    out = {"w": full(0), "b": full(0, 2)}
    gs.ops.scale({"b": full(1, 2), "w": full(2)}, out, 2.0)
    assert out["w"][0] == 4.0 and out["b"][0] == 2.0
    gs.ops.axpby(1.0, {"b": full(1, 2), "w": full(2)}, 1.0, out)
    assert out["w"][0] == 6.0 and out["b"][0] == 3.0
    for call in (lambda: gs.ops.cast({"w": full(0)}, out), lambda: gs.ops.cast([full(0), full(0, 2)], out),
                 lambda: gs.ops.scale([full(0, 2, 3)], [full(0, 3, 2)], 1.0)):
        with refused("src"):
            call()


def test_dense_arrays_in_another_order_need_partners_in_that_order():
    params = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    step([params], [params.copy("F")])
    assert not params.any()
    with refused(r"grads\[0\] has its elements in another order than params\[0\]"):
        gs.SGD([params], [zeros(2, 3)])
    with refused("different orders", ValueError):
        gs.ops.scale([params], [zeros(2, 3)], 1.0)
    with refused("arrays is not contiguous in C order", ValueError):
        gs.as_tensor(params, argument="arrays")
    torch = library("torch")
    weights = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    grads = torch.arange(96.0).reshape(2, 3, 4, 4)
    step([weights], [grads.to(memory_format=torch.channels_last)])
    assert torch.equal(weights, 1 - grads)
    with refused("another order"):
        gs.SGD([weights], [grads])


def test_registered_pytrees():
    jax = library("jax")

    @jax.tree_util.register_pytree_with_keys_class
    class Module:
        def __init__(self, w, b):
            self.w, self.b = w, b

        def tree_flatten_with_keys(self):
            key = jax.tree_util.GetAttrKey
            return ((key("b"), self.b), (key("w"), self.w)), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*reversed(children))

    w, b = full(0), full(0)
    step({"m": Module(w, b)}, {"m": {"w": full(2), "b": full(1)}})
    assert (w[0], b[0]) == (-2.0, -1.0)
    # A child that is None is no parameter.
    step(Module(w, None), Module(full(2), None))
    with refused(r"grads\.b is missing, but there is params\.b|grads.* is None"):
        gs.SGD(Module(w, b), Module(full(2), None))
    with refused("params is object", TypeError):
        gs.SGD(object(), [full(0)])


def test_pytrees_registered_with_torch():
    pytree = pytest.importorskip("torch.utils._pytree", reason="needs PyTorch")

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c),
                                serialized_type_name="gradscaler.tests.Pair")
    w, b = full(0), full(0)
    step({"p": Pair(w, b)}, {"p": [full(1), full(2)]})
    assert (w[0], b[0]) == (-1.0, -2.0)


def test_none_is_nothing_where_that_is_asked_for():
    leaves = trees.flatten({"a": None, "b": 1}, "tree", none_is_leaf=False)
    assert leaves.names == ["b"] and leaves.empty == ["a"]
    with refused(r"tree\['a'\] is None, but there is other\['a'\]"):
        trees.pair(leaves, trees.flatten({"a": 1, "b": 1}, "other"))
    with refused(r"grads\['a'\] is NoneType", TypeError):
        gs.SGD({"a": full(0)}, {"a": None})
