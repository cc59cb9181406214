# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/recipes.md, each in a process of its own; and with fused=False what trainers see of a skip."""

import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT, library

RECIPES = re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text(), re.M | re.S)


def run(script, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    # Warnings of the trainers are not ours to mend.
    found = subprocess.run([sys.executable, "-B", "-W", "ignore", "-c", script], cwd=tmp_path, env=environment,
                           text=True, capture_output=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("recipe", [pytest.param(code, id=title) for title, code in RECIPES])
def test_recipe(recipe, tmp_path):
    for name in set(re.findall(r"^(?:import|from) (\w+)", recipe, re.M)) - {"gradscaler"}:
        library(name)
    expected = re.findall(r"^print\(.*  # (.*)$", recipe, re.M)
    printed = run(recipe, tmp_path)
    assert expected and all(line in printed.splitlines() for line in expected), printed


@pytest.mark.parametrize("options", ["max_grad_norm=1.0)", "fused=False)"])
@pytest.mark.parametrize("scaler", ["GradScaler", "torch.amp.GradScaler"])
@pytest.mark.parametrize("clip", [True, False])
def test_accelerate_sees_a_skip(options, scaler, clip, tmp_path):
    """And so does the schedule that it has prepared."""
    library("accelerate")
    (recipe,) = [code for title, code in RECIPES if title == "Accelerate"]
    recipe = recipe.replace("max_grad_norm=1.0)", options).replace("scaler = GradScaler", f"scaler = {scaler}").replace(
        "    schedule.step()\n", "    schedule.step()\n    print(step, prepared.step_was_skipped)\n")
    if clip:
        recipe = recipe.replace("    prepared.step()", "    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"
                                                       "    prepared.step()")
    printed = run(recipe, tmp_path)
    assert "0 False\n1 True\n2 False\n3 False\n0.00125 512.0\n" in printed, printed


def test_accelerate_does_not_prepare_what_waits_itself(tmp_path):
    library("accelerate")
    (recipe,) = [code for title, code in RECIPES if title == "Accelerate"]
    recipe += ("from gradscaler.torch import AppliedLR\n"
               "try:\n    accelerator.prepare(AppliedLR(torch.optim.lr_scheduler.StepLR(optimizer, 1)))\n"
               "except TypeError as error:\n    print(error)\n")
    assert "an AppliedLR cannot be prepared by Accelerate" in run(recipe, tmp_path)


def test_there_is_a_recipe_for_each():
    assert [title for title, _ in RECIPES] == ["Accelerate", "Lightning Fabric", "Lightning", "Trainer of transformers"]
