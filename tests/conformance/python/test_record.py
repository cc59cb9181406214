# SPDX-License-Identifier: Apache-2.0
"""The recorder makes the committed goldens again: one of a model, and one of a system that runs here."""

import json
import pathlib
import subprocess
import sys

import pytest

RECORD = pathlib.Path(__file__).resolve().parents[1] / "record"
sys.path.append(str(RECORD))

import golden  # noqa: E402


@pytest.mark.parametrize("system", ["apex_hysteresis", "torch"])
def test_same_runs(system, tmp_path):
    if system == "torch":
        pytest.importorskip("torch")
    recorded = tmp_path / "golden.json"
    subprocess.run([sys.executable, "-B", str(RECORD / "record.py"), system, str(recorded)], check=True)
    committed = {file["system"]: file["runs"] for file in golden.read_all()}
    assert json.loads(recorded.read_text())["runs"] == committed[system]
