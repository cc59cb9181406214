# SPDX-License-Identifier: Apache-2.0
"""Logs, plots, verdicts and the command line."""

import importlib.util
import json
import math
import re
import xml.etree.ElementTree

import numpy as np
import pytest

import gradscaler as gs
from conftest import ROOT, full, library, run_python, zeros
from gradscaler import demo, doctor, plot
from gradscaler.__main__ import main


def train(path, poison, steps=60, **policy):
    """A log of a run whose gradients `poison(step, scale)` makes: a value, inf or NaN in tensor `layer3.weight`."""
    params, grads = ({"layer1.weight": zeros(4), "layer3.weight": zeros(4)} for _ in range(2))
    scaler = gs.GradScaler(**policy)
    optimizer = gs.SGD(params, gs.TensorList(grads), lr=0.0)
    with gs.LogWriter(path) as log:
        for step in range(steps):
            grads["layer3.weight"][:] = poison(step, scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
            log.step(scaler, optimizer, loss=1.5)
    return gs.read_log(path)


@pytest.fixture
def stepped(pair):
    scaler, optimizer = gs.GradScaler(), gs.SGD(*pair())
    scaler.step_and_update(optimizer)
    return scaler, optimizer


def verdicts(records):
    return [(v.problem, v.text) for v in doctor.examine(records)]


def test_a_look_at_gradients_is_at_those_of_now(tmp_path, torch):
    from gradscaler import torch as gst
    params = {"w": torch.ones(3, requires_grad=True), "b": torch.ones(2, requires_grad=True)}
    optimizer, scaler = gst.SGD(params.items(), lr=0.0), gst.GradScaler("cpu", init_scale=1.0)
    with gs.LogWriter(tmp_path / "log") as log:
        for value in (1.0, 2.0**-20):
            for param in params.values():
                param.grad = torch.full_like(param, value)
            log.gradients(scaler, optimizer)
    records = gs.read_log(tmp_path / "log")
    assert [[tensor["amax"] for tensor in record["tensors"]] for record in records] == [[1.0] * 2, [2.0**-20] * 2]


def test_diagnose_follows_the_memory_of_tensors(torch):
    weights = torch.ones(3)
    found = gs.TensorList([weights])
    weights.data = torch.full((3,), 2.0)
    assert found.diagnose()[0].amax == 2.0


def test_log(tmp_path):
    records = train(tmp_path / "log", lambda step, scale: math.nan if step == 1 else 1.0, steps=3, init_scale=4.0)
    assert [r["step"] for r in records] == [0, 1, 2] and [r["scale"] for r in records] == [4.0, 2.0, 2.0]
    assert [r["overflow"] for r in records] == [False, True, False] and records[0]["loss"] == 1.5
    assert records[0]["min_scale"] is None
    assert math.isnan(records[1]["grad_norm"]) and records[1]["first_name"] == "layer3.weight"
    for line in (tmp_path / "log").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("name", ["overflow", "scale", "step", "min_scale", "kind", "first_name"])
def test_a_record_keeps_its_own_fields(tmp_path, name, stepped):
    with gs.LogWriter(tmp_path / "log") as log:
        with pytest.raises(TypeError, match=f"{name} is a field of the record itself"):
            log.step(*stepped, **{name: "no"})
        log.step(*stepped, overflows="no")
    assert [(r["step"], r["overflow"], r["overflows"]) for r in gs.read_log(tmp_path / "log")] == [(0, False, "no")]


def numbers_of_numpy():
    return [(np.float32(1.5), 1.5), (np.float16(np.inf), "inf"), (np.float64(0.1), 0.1), (np.int64(-3), -3),
            (np.bool_(True), True), (np.array(2.5), 2.5), (np.array([1.0, np.nan]), [1.0, "nan"])]


def numbers_of_torch():
    torch = library("torch")
    return [(torch.tensor(1.5, requires_grad=True), 1.5), (torch.tensor(2.0, dtype=torch.bfloat16), 2.0),
            (torch.tensor(-3), -3), (torch.tensor([1.0, 2.0]), [1.0, 2.0])]


def numbers_of_jax():
    return [(library("jax").numpy.float32(1.5), 1.5)]


class Recorder:
    def __init__(self):
        self.seen = {}

    def add_scalar(self, key, value, step):
        self.seen[key] = value


@pytest.mark.parametrize("numbers", [numbers_of_numpy, numbers_of_torch, numbers_of_jax])
def test_numbers_of_other_libraries_are_written(tmp_path, numbers, stepped):
    writer = Recorder()
    for number, expected in numbers():
        path, writer.seen = tmp_path / "log", {}
        path.unlink(missing_ok=True)
        with gs.LogWriter(path, writers=[writer]) as log:
            log.step(*stepped, loss=number, more={"deep": [number]})
        record = json.loads(path.read_text())
        assert (record["loss"], record["more"]) == (expected, {"deep": [expected]})
        assert type(record["loss"]) is type(expected)
        drawn = isinstance(expected, (int, float))
        assert writer.seen.get("gradscaler/loss") == (expected if drawn else None)


@pytest.mark.parametrize("value", [object(), {1}, 1j, np.complex64(1j), [b"x"]], ids=str)
def test_what_json_does_not_hold_is_refused_by_name(tmp_path, value, stepped):
    with gs.LogWriter(tmp_path / "log") as log:
        with pytest.raises(TypeError, match=r"loss is .*; it must be what JSON holds, or an array"):
            log.step(*stepped, loss=value)
        log.step(*stepped, loss=1)
    assert [(r["step"], r["loss"]) for r in gs.read_log(tmp_path / "log")] == [(0, 1)]


def test_a_line_cut_short_is_dropped_and_a_bad_one_is_named(tmp_path):
    path = tmp_path / "log"
    records = train(path, lambda step, scale: 1.0, steps=2)
    whole = path.read_text()
    path.write_text(whole + whole[:20])
    assert gs.read_log(path) == records
    path.write_text("nonsense\n" + whole)
    with pytest.raises(ValueError, match=r"log:1 is no record"):
        gs.read_log(path)


@pytest.mark.parametrize("line", [
    b"\xff", b"[" * 100000, b'{"kind": "step"}', b'{"kind": "gradients", "scale": 1, "recommended": 2}',
    b'{"kind": "gradients", "scale": 1, "recommended": 2, "tensors": [{"name": 3}]}', b'"kind"', b"{}",
    b'{"kind": "gradients", "scale": 1, "recommended": 2, "tensors": [{"name": "w", "count": 1, "zero_count": %d}]}'
    % 10**400,
    *(dict([field]) for field in (
        ("scale", "x"), ("scale", None), ("min_scale", "0"), ("scale", 10**400), ("scale", True), ("min_scale", []),
        ("overflow", 1), ("consecutive_skips", "many"), ("nan_count", None), ("first_tensor", 0.5), ("first_name", 7))),
], ids=lambda line: str(line)[:60])
def test_lines_that_are_no_records(tmp_path, line):
    path = tmp_path / "log"
    good = train(path, lambda step, scale: 1.0, steps=2)[1]
    line = json.dumps({**good, **line}).encode() if isinstance(line, dict) else line
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(ValueError, match=r"log:3 is no record"):
        gs.read_log(path)


def test_names_cannot_command_the_terminal(tmp_path):
    step = train(tmp_path / "log", lambda step, scale: 1.0, steps=1)[0]
    step.update(overflow=True, consecutive_skips=30, nan_count=1, first_tensor=0, first_name="a\x1b[2J\nok: fine")
    [verdict] = doctor.examine([step])
    assert verdict.text.endswith(r"tensor a\x1b[2J\nok: fine")


def test_settling_is_normal(tmp_path):
    records = train(tmp_path / "log", lambda step, scale: math.inf if scale > 2**13 else 1.0)
    assert verdicts(records) == [(False, "3 skips in the first 10 steps: normal settling"),
                                 (False, "the scale ends at 2^13")]


def test_nan_in_the_forward_pass(tmp_path):
    records = train(tmp_path / "log", lambda step, scale: math.nan, init_scale=4.0, min_scale=1.0)
    (found,) = verdicts(records)
    assert found == (True, "all of the last 60 steps skip at min_scale: lowering the scale does not help, the NaN is in"
                           " the forward pass, first in tensor layer3.weight")


def test_other_problems(tmp_path):
    often = train(tmp_path / "a", lambda step, scale: math.inf if step % 4 == 0 else 1.0, growth_interval=2)
    assert any(problem and "24% of the steps" in text for problem, text in verdicts(often)), verdicts(often)
    high = train(tmp_path / "b", lambda step, scale: math.inf, init_scale=2.0**100, steps=40)
    assert verdicts(high) == [
        (True, "the last 40 steps skip and the scale is still 2^60: start with a lower init_scale")]
    low = train(tmp_path / "c", lambda step, scale: math.inf if scale >= 0.25 else 1.0, init_scale=4.0)
    assert any(problem and "below 1" in text for problem, text in verdicts(low))
    calm = train(tmp_path / "d", lambda step, scale: 1.0)
    assert verdicts(calm)[0] == (False, "no step of 60 was skipped")
    assert verdicts([]) == [(True, "the log has no steps")]


@pytest.mark.parametrize("policy", [dict(init_scale=2.0**-140), dict(init_scale=2.0**-140, min_scale=2.0**-149),
                                    dict(init_scale=4.0, min_scale=1.0, floor_action="error", floor_patience=2)])
@pytest.mark.filterwarnings("ignore:the loss scale .* is too small:RuntimeWarning")
def test_a_collapsed_scale_is_logged_and_judged(tmp_path, policy):
    path, value = tmp_path / "log", full(np.nan, 4)
    scaler = gs.GradScaler(**policy)
    params = [zeros(4)]
    optimizer = gs.SGD(params, [value], lr=0.0)
    with gs.LogWriter(path) as log:
        for _ in range(40):
            log.gradients(scaler, optimizer)
            scaler.step(optimizer)
            scaler.update()
            log.step(scaler, optimizer)
    records = gs.read_log(path)
    assert len(records) == 80
    found = verdicts(records)
    assert found[0][0] and "all of the last 40 steps skip at" in found[0][1]
    if scaler.get_scale() == 0.0:
        assert records[-2]["recommended"] is None
        assert found[1] == (True, "the scale became 0: set min_scale, so that it can recover")
    assert plot.text(records) and plot.svg(records)


def test_a_finding_is_told_once(tmp_path):
    grads = {"layer0": np.full(100, 2.0**-20, np.float16), "layer1": np.full(100, 2.0**-20, np.float16)}
    scaler = gs.GradScaler(init_scale=1.0)
    params = {name: zeros(100) for name in grads}
    optimizer = gs.SGD(params, gs.TensorList(grads), lr=0.0)
    with gs.LogWriter(tmp_path / "log") as log:
        for step in range(5):
            grads["layer0"][:20 + step] = 0
            scaler.step_and_update(optimizer)
            log.step(scaler, optimizer)
            log.gradients(scaler, optimizer)
    records = gs.read_log(tmp_path / "log")
    found = [text for problem, text in verdicts(records) if problem]
    assert found == ["24% of layer0's gradients are zero at scale 1: use >= 2^33 (in 5 of 5 looks)"]
    assert verdicts(records[:2])[-1] == (True, "20% of layer0's gradients are zero at scale 1: use >= 2^33")


def test_plots(tmp_path):
    records = train(tmp_path / "log", lambda step, scale: math.inf if step == 5 else 1.0, growth_interval=10)
    picture = xml.etree.ElementTree.fromstring(plot.svg(records))
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert tags.count("circle") == 1 and tags.count("polyline") == 1
    words = [element.text for element in picture.iter() if element.tag.endswith("}text")]
    assert "Loss scale" in words and "step" in words and "1 skipped step of 60" in words
    assert [word for word in words if word and word.isdigit() and word != "2"] == ["0", "10", "20", "30", "40", "50"]
    assert "Loss scale, &lt;run&gt;" in plot.svg(records, title="<run>")
    drawn = plot.text(records)
    assert drawn.count("x:") == 1 and drawn.count("x") == 2 and "step 0 to 59" in drawn
    with pytest.raises(ValueError, match="no steps"):
        plot.text([])


def test_command_line(tmp_path, capsys):
    path = str(tmp_path / "log")
    train(path, lambda step, scale: math.nan, init_scale=4.0, min_scale=1.0)
    assert main(["doctor", path]) == 1
    said = capsys.readouterr().out
    assert "layer3.weight" in said and (ROOT / re.search(r"docs/[\w/]+\.md", said)[0]).exists()
    assert main(["plot", path, "-o", path + ".svg"]) == 0
    assert (tmp_path / "log.svg").read_text().startswith("<svg") and "wrote " in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"gradscaler {gs.__version__}\n"
    assert main(["info"]) == 0 and gs.build_info() in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "none")]) == 2 and "none" in capsys.readouterr().err


@pytest.mark.programs
def test_demo(tmp_path):
    path = str(tmp_path / "log")
    assert demo.run(gs.GradScaler(init_scale=1.0, growth_interval=1 << 30))[0] < 0.9
    for _ in range(2):
        found = run_python("-m", "gradscaler", "demo", "--log", path)
        assert "with gradscaler: 100%" in found and "normal settling" in found
        assert len(gs.read_log(path)) == 200


def test_demo_leaves_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0 and "with gradscaler: 100%" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_tensorboard(tmp_path, stepped):
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(ImportError, match="needs the tensorboard package"):
            gs.LogWriter(tmp_path / "log", tensorboard=tmp_path / "board")
        return
    with gs.LogWriter(tmp_path / "log", tensorboard=tmp_path / "board") as log:
        log.step(*stepped)
    data = b"".join(file.read_bytes() for file in (tmp_path / "board").iterdir())
    assert b"gradscaler/scale" in data


@pytest.mark.filterwarnings("ignore")
def test_run_of_wandb(tmp_path, monkeypatch, pair):
    wandb = library("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    params, grads = pair()
    scaler, optimizer = gs.GradScaler(init_scale=8.0), gs.SGD(params, grads)
    with wandb.init(mode="offline", dir=tmp_path, project="gradscaler") as run:
        with gs.LogWriter(tmp_path / "log", writers=[run]) as log:
            for loss in (0.5, math.inf):
                scaler.step_and_update(optimizer)
                log.step(scaler, optimizer, loss=loss)
        run.log({"loss": 1.0})
        assert run.summary["gradscaler/scale"] == 8.0 and run.summary["gradscaler/updates"] == 2.0
    with pytest.raises(TypeError, match=r"writers\[0\] is int; it must have add_scalar"):
        gs.LogWriter(tmp_path / "log", writers=[3])
