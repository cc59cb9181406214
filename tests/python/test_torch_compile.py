# SPDX-License-Identifier: Apache-2.0
"""A training step under torch.compile: as many steps as without, and nothing that Dynamo warns of."""

import copy

import pytest

from conftest import DEVICE
from torch_params import gst, ids, torch


def training(model, optimizer, scaler, unscale):
    """A step on ones."""
    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        if scaler is None:
            loss.backward()
            optimizer.step()
            return
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return step


# Of Dynamo itself, where backward is compiled.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("kind", [gst.AdamW, torch.optim.AdamW], **ids)
@pytest.mark.parametrize("unscale", [False, True])
def test_a_compiled_step_is_the_step(kind, unscale):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    trained = []
    for compiled in (False, True):
        own, scaler = copy.deepcopy(model), gst.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)
        step = training(own, kind(own.parameters(), lr=0.1), scaler, unscale)
        torch._dynamo.reset()
        if compiled:
            step = torch.compile(step, backend="eager")
        for _ in range(3):
            step()
        trained.append((own.weight.tolist(), scaler.get_scale()))
    assert trained[0] == trained[1] and trained[0][1] == 16.0


def breaks(kind, scaler_of, unscale):
    """The graph breaks of Dynamo in a compiled training step."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.nn.Linear(4, 3)
    scaler = scaler_of and scaler_of(DEVICE, init_scale=8.0)
    step = torch.compile(training(model, kind(model.parameters(), lr=0.1), scaler, unscale), backend="eager")
    for _ in range(3):
        step()
    return sum(torch._dynamo.utils.counters["graph_break"].values())


# Of PyTorch, where it traces its own optimizer.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor", "ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("scaled, unscale", [(False, False), (True, False), (True, True)])
def test_no_more_graph_breaks_than_with_pytorchs_own(scaled, unscale):
    theirs = breaks(torch.optim.AdamW, torch.amp.GradScaler if scaled else None, unscale)
    for kind in (gst.AdamW, torch.optim.AdamW):
        assert 0 < breaks(kind, gst.GradScaler if scaled else None, unscale) <= theirs
