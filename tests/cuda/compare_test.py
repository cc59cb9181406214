#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A dry run of benchmarks/gpu/bench.py on the CPU, and goals.py over its rows: every case and contender that there is
takes the same step, each has a row in each process, and each goal that needs them finds them. Usage: compare_test.py
<libgradscaler>. Exit status 77: there is no PyTorch."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/gpu"), str(ROOT / "benchmarks")]
import goals  # noqa: E402

try:
    import torch  # noqa: F401
except ImportError:
    sys.exit(77)
import bench  # noqa: E402

PROCESSES = 2
SMALL_LIST = "1000 x 1024"

with tempfile.TemporaryDirectory() as folder:
    rows = pathlib.Path(folder) / "raw.jsonl"
    command = [sys.executable, "-B", bench.__file__, "--library", sys.argv[1], "--rows", str(rows), "--dry-run",
               "--processes", str(PROCESSES), "--only"]
    for only in ("AdamW apply", f"tail: {SMALL_LIST}", f"tail: {goals.MODELS[0]}"):
        done = subprocess.run([*command, only], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no module" in done.stdout.lower() or all(name in rows.read_text() for name in bench.RIVALS), done.stdout
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    keys = {"case", "who", "process", "us", "p10", "p90"}
    assert all(row.keys() == keys and row["p10"] <= row["us"] <= row["p90"] for row in found), found
    half = f"{goals.MODELS[0]}, {goals.HALF}"
    seen = {(row["case"], row["who"], row["process"]) for row in found}
    assert len(seen) == len(found), "a case was measured twice"
    for process in range(PROCESSES):
        for who in ("gradscaler", "torch fused", "torch foreach", "torch compiled"):
            assert ("AdamW apply, fp32 grads", who, process) in seen, who
            for case in (half, f"{SMALL_LIST}, fp32 grads"):
                for way in ("eager", "graph"):
                    assert (f"tail, {way}: {case}", who, process) in seen, (way, case, who)
        for who in bench.SMALL:
            assert (f"tail, graph: {half}", who, process) in seen, who
    subprocess.run([sys.executable, "-B", goals.__file__, folder], check=True)
    judged = json.loads((pathlib.Path(folder) / "goals.json").read_text())["goals"]
    measured = {(g["goal"], g["case"], g["figure"]) for g in judged if g["measured"] is not None}
    for goal, bits in (("H1", 16), ("H2", 8)):
        for reference in ("torch", "gradscaler"):
            key = (goal, f"tail, graph: {half}", f"gradscaler, {bits}-bit state: times {reference}")
            assert key in measured, key
    assert ("G5", f"tail, eager: {half}", "times torch") in measured
    table = (pathlib.Path(folder) / "table.md").read_text()
    assert f"| tail, graph: {half}: gradscaler, 8-bit state |" in table, table
