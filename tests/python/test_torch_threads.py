# SPDX-License-Identifier: Apache-2.0
"""Steps of gradscaler.torch on PyTorch's own threads: the same bits on any number of them, in forked children, and in
several Python threads at once.

Each test is a script in a new process.
"""

import sys

import pytest

from conftest import library, run_python

library("torch")

START = """
import concurrent.futures, os, threading, torch, weakref
from gradscaler.torch import AdamW

# PyTorch works alone on tensors of this size, so that children can make some.
def make(seed=0):
    generator = torch.Generator().manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(n, generator=generator)) for n in [3, 4096, *[20_001] * 12]]
    return params, AdamW(params, lr=0.1, max_grad_norm=1.0)

def take(params, optimizer, steps=range(3)):
    for step in steps:
        generator = torch.Generator().manual_seed(100 + step)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach().clone() for p in params]

def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

def on_torch_threads(optimizer):
    return optimizer._active_plans[0].context.on_torch_threads

def wait(child):
    assert os.waitpid(child, 0)[1] == 0

torch.set_num_threads(1)
params, optimizer = make()
EXPECTED = take(params, optimizer)
assert not on_torch_threads(optimizer)
torch.set_num_threads(2)
"""

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PyTorch's threads are used on Linux")


def run(script, **env):
    run_python("-c", START + script, **env)


@linux
@pytest.mark.parametrize("env", [{}, {"OMP_WAIT_POLICY": "passive", "OMP_THREAD_LIMIT": "1"}], ids=str)
def test_no_threads_beside_pytorchs(env):
    run("""
torch.ones(1 << 22).exp_()
before = len(os.listdir("/proc/self/task"))
for threads in (2, 3, 1, 2):
    torch.set_num_threads(threads)
    torch.ones(1 << 22).exp_()
    before = max(before, len(os.listdir("/proc/self/task")))
    params, optimizer = make()
    assert same(take(params, optimizer), EXPECTED)
    assert on_torch_threads(optimizer) == (threads > 1)
    assert len(os.listdir("/proc/self/task")) <= before

params, optimizer = make()
for step, threads in enumerate((3, 1, 2)):
    torch.set_num_threads(threads)
    take(params, optimizer, [step])
    assert optimizer._active_plans[0].context.threads == threads
assert same(params, EXPECTED)
""", **env)


def test_python_threads_step_at_once():
    run("""
def work(_):
    torch.set_num_threads(2)
    return [take(*make()) for _ in range(5)]
with concurrent.futures.ThreadPoolExecutor(3) as threads:
    assert all(same(one, EXPECTED) for found in threads.map(work, range(3)) for one in found)
""")


def test_memory_that_another_thread_frees_meanwhile():
    """An error or a step; never a step on memory that the system has taken back.

    Not of gradients that become None, nor of ``.data``: PyTorch 2.13 itself crashes on these, with its own step too.
    """
    run("""
def attack(dtype, **options):
    count, stop = 1 << 20, threading.Event()
    params = [torch.nn.Parameter(torch.zeros(count, dtype=dtype)) for _ in range(4)]
    optimizer = AdamW(params, **options)
    def replace():
        while not stop.wait(0.0001):
            for p in params:
                p.grad = torch.ones(count, dtype=dtype)
    thread = threading.Thread(target=replace)
    thread.start()
    for _ in range(40):
        for p in params:
            p.grad = torch.ones(count, dtype=dtype)
        try:
            optimizer.step()
        except RuntimeError as error:
            assert "was replaced by another thread during the step" in str(error), error
    stop.set()
    thread.join()

attack(torch.float32)
attack(torch.float32, max_grad_norm=1.0)
attack(torch.bfloat16, max_grad_norm=1.0, master_weights=True)
""")


def test_what_was_replaced_before_the_step_is_named():
    run("""
stop = threading.Event()
threading.Thread(target=stop.wait).start()
params, optimizer = make()
take(params, optimizer)
bind = optimizer._update_plans
p = params[1]
for name, owner, value in (("", p, torch.ones(4096)), (".grad", p.grad, torch.ones(4096)),
                           ("'s state 'exp_avg'", optimizer.state[p]["exp_avg"], torch.ones(4096))):
    def meanwhile(*arguments):
        bind()
        owner.data = value
    optimizer._update_plans = meanwhile
    try:
        optimizer.step()
    except RuntimeError as error:
        assert str(error) == f"param_groups[0]['params'][1]{name} was replaced by another thread during the step", error
    else:
        raise AssertionError(name)
    optimizer._update_plans = bind
    optimizer.step()
# Gradients are those of the beginning of the step.
held = weakref.ref(p.grad)
def meanwhile(*arguments):
    bind()
    for p in params:
        p.grad = None
optimizer._update_plans, before = meanwhile, p.detach().clone()
optimizer.step()
assert held() is None and not torch.equal(p, before)
stop.set()
""")


def test_children_of_a_fork_have_threads_of_their_own():
    """PyTorch's do not survive a fork: a region that is opened on them in the child never ends."""
    run("""
torch.ones(1 << 22).exp_()
params, optimizer = make()
take(params, optimizer, [0])
child = os.fork()
if not child:
    # Even a context of the parent's, which no step here comes to use, ends its regions.
    optimizer._active_plans[0].step(None, None)
    params, fresh = make()
    good = same(take(params, fresh), EXPECTED) and not on_torch_threads(fresh)
    optimizer.step()
    grandchild = os.fork()
    if not grandchild:
        optimizer.step()
        os._exit(0)
    wait(grandchild)
    os._exit(0 if good else 1)
wait(child)
params, optimizer = make()
assert same(take(params, optimizer), EXPECTED)
""")


def test_a_child_that_is_the_first_to_import_has_them_too():
    run_python("-c", """
import os, torch
torch.set_num_threads(2)
torch.ones(1 << 22).exp_()
child = os.fork()
if not child:
    from gradscaler.torch import SGD
    params = [torch.nn.Parameter(torch.zeros(20_000)) for _ in range(12)]
    for p in params:
        p.grad = torch.ones(20_000)
    SGD(params, lr=1.0).step()
    assert all(p[-1] == -1 for p in params)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")


def test_without_pytorchs_threads_there_is_a_pool(monkeypatch):
    from gradscaler.torch import _contexts

    monkeypatch.setattr(_contexts, "_may_use_openmp", lambda: False)
    context = _contexts._TorchContext("cpu", threads=2)
    assert context.threads == 2 and not context.on_torch_threads
