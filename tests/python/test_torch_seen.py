# SPDX-License-Identifier: Apache-2.0
"""What the optimizers of gradscaler.torch remember of tensors that they have inspected."""

import pytest

from conftest import library

torch = library("torch")

from torch_params import params_of, set_grads  # noqa: E402


def test_layouts_say_what_differs():
    from gradscaler.torch._plan import look
    base = torch.zeros(2, 3)
    kinds = [base, base.half(), base[:, :2], base.t(), torch.zeros(6), torch.zeros(2, 3, 1), None, torch.zeros(0, 3)]
    layouts = [look([tensor]).layout for tensor in kinds]
    assert all(layouts[i] != layouts[j] for i in range(len(kinds)) for j in range(i))
    assert look([base]) == look([base.view(2, 3)]) != look([base.clone()])
    assert look([torch._neg_view(torch.ones(1))]).layout != look([torch.ones(1)]).layout


@pytest.mark.parametrize("exchange", [True, False])
def test_what_was_seen_says_whether_it_is_still_so(exchange, monkeypatch):
    from gradscaler.torch._seen import Seen
    if not exchange:
        monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__", raising=False)
    params = params_of([(2, 3)] * 40)
    set_grads(params, 1, missing=(3,))
    groups = [{"params": params[:30]}, {"params": params[30:]}]
    seen = Seen(list(params), [p.grad for p in params], None)
    pointers = [p.grad.data_ptr() if p.grad is not None else 0 for p in params]

    def found():
        addresses = seen.addresses(groups)
        return addresses and list(memoryview(addresses).cast("N"))

    assert found() == pointers
    # New gradients of the same kind are an answer, everything else is None.
    params[35].grad = torch.ones(2, 3, dtype=torch.float64)
    assert found() == [*pointers[:35], params[35].grad.data_ptr(), *pointers[36:]]
    for change, undo in [
            (lambda: setattr(params[3], "grad", torch.ones(2, 3, dtype=torch.float64)),
             lambda: setattr(params[3], "grad", None)),
            (lambda: setattr(params[39], "grad", None), lambda: set_grads(params, 1, missing=(3,))),
            (lambda: groups[1]["params"].append(params[0]), lambda: groups[1]["params"].pop()),
            (lambda: groups[0]["params"].reverse(), lambda: groups[0]["params"].reverse()),
            (lambda: groups.reverse(), lambda: groups.reverse()),
            (lambda: groups.append({"params": []}), lambda: groups.pop()),
            (lambda: setattr(params[38], "data", params[38].data.clone()), lambda: None)]:
        change()
        assert (found() is None) == (groups[-1]["params"] != [])
        undo()
    assert found() is None
