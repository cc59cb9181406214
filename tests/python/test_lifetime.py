# SPDX-License-Identifier: Apache-2.0
"""Use after close, orders of destruction, leaks, threads and forks."""

import concurrent.futures
import copy
import gc
import os
import pickle
import sys
import threading
import time
import weakref

import pytest

import gradscaler as gs
from conftest import ones, run_python, zeros
from gradscaler._native import native
from gradscaler.device import default_context

needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


WITH_OPTIMIZER = "unscale_ check step step_and_update should_step".split()
ALONE = ("update discard get_scale is_enabled report history state_dict get_growth_factor get_backoff_factor"
         " get_growth_interval").split()


@pytest.mark.parametrize("name", [*WITH_OPTIMIZER, *ALONE, "scale"])
def test_a_closed_scaler_refuses(world, name):
    scaler, optimizer, _, _ = world()
    scaler.close()
    scaler.close()
    assert scaler.closed and "closed" in repr(scaler)
    with pytest.raises(gs.ClosedError, match="GradScaler is closed"):
        getattr(scaler, name)(*[optimizer] * (name in WITH_OPTIMIZER), *[1.0] * (name == "scale"))


def test_closed_arguments_are_refused(world):
    scaler, optimizer, params, grads = world()
    context = gs.Context(threads=1)
    gradients = gs.TensorList(grads)
    for closed in (optimizer, gradients, context):
        closed.close()
    for name, call in (("SGD", lambda: scaler.step(optimizer)), ("SGD", optimizer.step),
                       ("SGD", lambda: optimizer.param_groups[0].update(lr=1.0)),
                       ("TensorList", lambda: scaler.unscale_(gradients)),
                       ("TensorList", lambda: gs.SGD(params, gradients)), ("Context", lambda: gs.GradScaler(context))):
        with pytest.raises(gs.ClosedError, match=f"{name} is closed"):
            call()
    assert all("closed" in repr(closed) for closed in (optimizer, gradients, context))


def test_any_order_of_closing(pair):
    for order in ("cspgo", "ogpsc", "pgcos", "scopg"):
        params, grads = pair()
        context = gs.Context(threads=2)
        objects = {"c": context, "s": gs.GradScaler(context), "p": gs.TensorList(params, device=context),
                   "g": gs.TensorList(grads, device=context)}
        objects["o"] = gs.SGD(objects["p"], objects["g"])
        objects["s"].step_and_update(objects["o"])
        for key in order:
            objects[key].close()


def test_context_managers():
    with gs.Context() as context, gs.GradScaler(context) as scaler:
        pass
    assert context.closed and scaler.closed


def test_errors_survive_their_objects():
    with pytest.raises(gs.BadStateError) as caught:
        gs.GradScaler().update()
    gc.collect()
    assert "no list was checked" in str(caught.value)


def test_optimizers_and_lists_cannot_be_pickled(pair):
    params, grads = pair()
    for thing in (gs.SGD(params, grads), gs.TensorList(params), gs.Context()):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="pickled; "):
                attempt(thing)


@needs_proc
def test_no_leak_over_many_lives(pair):
    params, grads = pair(counts=(2,))
    word = zeros(1)
    state = gs.GradScaler().state_dict()

    def live(times):
        for _ in range(times):
            scaler = gs.GradScaler(history_capacity=1)
            optimizer = gs.SGD(params, grads, lr=0.0)
            try:
                gs.GradScaler(growth_interval=0)
            except gs.InvalidArgumentError:
                pass
            if scaler.step_and_update(optimizer) is None:
                scaler.report(optimizer), scaler.history(), scaler.load_state_dict(state)
        gc.collect()

    def objects(times):
        for _ in range(times):
            native.Scaler(context, None)
            native.buffer_view(word)
            native.dlpack_view(word.__dlpack__())

    context = default_context()._handle
    references = sys.getrefcount(word), sys.getrefcount(grads[0])
    live(2000), objects(2000)
    before = resident_bytes()
    objects(100_000)
    live(8000)
    grown = resident_bytes() - before
    # One leaked object of 64 bytes a turn would be 6 MB.
    assert grown < 4 << 20, f"{grown} bytes in 10^5 lives"
    assert (sys.getrefcount(word), sys.getrefcount(grads[0])) == references


def test_the_gil_is_released_while_a_step_runs():
    count = 1 << 23
    context = gs.Context(threads=1, cpu_target="baseline")
    params, grads = zeros(count), ones(count)
    scaler = gs.GradScaler(context, init_scale=1.0)
    optimizer = gs.AdamW([params], [grads], device=context)
    scaler.step_and_update(optimizer)
    turns, done = [], threading.Event()

    def watch():
        while not done.wait(0.0005):
            turns.append(True)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, before = time.perf_counter(), len(turns)
    while time.perf_counter() - start < 0.2:
        scaler.step_and_update(optimizer)
    seen = len(turns) - before
    done.set()
    watcher.join()
    # A step takes longer than the interpreter's switch interval; without the release the watcher runs once a step.
    steps = optimizer.steps
    assert seen > 2 * steps, (seen, steps)


def test_closing_while_another_thread_steps():
    def work(optimizer):
        with pytest.raises(gs.ClosedError):
            while True:
                optimizer.step()

    with concurrent.futures.ThreadPoolExecutor() as threads:
        for _ in range(20):
            params, grads = [zeros(1 << 18)], [ones(1 << 18)]
            optimizer = gs.SGD(params, grads, lr=0.0)
            stopped = threads.submit(work, optimizer)
            optimizer.close()
            stopped.result(30)


@pytest.mark.programs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_pool_of_its_own():
    run_python("-c", """
import os, numpy as np, gradscaler as gs
def step():
    p, g = np.zeros(1 << 20, np.float32), np.ones(1 << 20, np.float32)
    gs.GradScaler(init_scale=1.0).step_and_update(gs.SGD([p], [g], lr=1.0))
    return p[-1] == -1.0
assert step()
child = os.fork()
if child == 0:
    os._exit(0 if step() else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")


def test_arrays_of_a_list_that_is_closed_during_a_call_stay_until_it_returns():
    values = ones(3)
    held, grads = weakref.ref(values), gs.TensorList([values])
    del values
    alive = []

    def close(_):
        grads.close()
        alive.append(held() is not None)

    scaler = gs.GradScaler()
    scaler.set_reducer(close)
    scaler.check(grads)
    assert alive == [True] and held() is None


@needs_proc
def test_exceptions_of_a_reducer_leave_nothing_behind(world):
    class Lost(Exception):
        alive = 0

        def __init__(self):
            super().__init__("rank 3 is gone")
            Lost.alive += 1

        def __del__(self):
            Lost.alive -= 1

    def lose(values):
        raise Lost

    def fail(times):
        for _ in range(times):
            with pytest.raises(gs.CallbackError) as caught:
                scaler.step(optimizer)
            assert isinstance(caught.value.__cause__, Lost)
            del caught

    scaler, optimizer, params, _ = world()
    scaler.set_reducer(lose)
    fail(500)
    gc.collect()
    assert Lost.alive == 0
    # The list of all objects is megabytes itself in a process that has run other tests: not between the measurements.
    objects = len(gc.get_objects())
    before = resident_bytes()
    fail(10_000)
    gc.collect()
    grown = resident_bytes() - before
    assert Lost.alive == 0
    assert len(gc.get_objects()) - objects < 100
    assert grown < 4 << 20, f"{grown} bytes in 10^4 failures"
    scaler.set_reducer(None)
    scaler.step_and_update(optimizer)
    assert params[0][0] == 0.0
