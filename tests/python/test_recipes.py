# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/recipes.md, each in a separate process; and with fused=False what trainers see of a skip."""

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


#: What makes the optimizers of a script print the dtypes of their first moments.
DTYPES = """
import gc
import gradscaler.torch
optimizers = [found for found in gc.get_objects() if isinstance(found, gradscaler.torch.FusedOptimizer)]
print({str(entry["exp_avg"].dtype) for found in optimizers for entry in found.state.values()})
"""


@pytest.mark.parametrize("recipe", [pytest.param(code, id=title) for title, code in RECIPES])
def test_recipe_with_8_bit_state(recipe, tmp_path):
    for name in set(re.findall(r"^(?:import|from) (\w+)", recipe, re.M)) - {"gradscaler"}:
        library(name)
    assert recipe.count("max_grad_norm=1.0)") == 1
    printed = run(recipe.replace("max_grad_norm=1.0)", 'max_grad_norm=1.0, state="8bit")') + DTYPES, tmp_path)
    expected = re.findall(r"^print\(.*  # (.*)$", recipe, re.M)
    assert [*printed.splitlines()[-2:]] == [*expected, "{'torch.uint8'}"], printed


RESUMED = {"transformers": """
import torch
from transformers import Trainer, TrainingArguments
from gradscaler.torch import AdamW

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 4).bfloat16()

    def forward(self, x, labels):
        out = self.layer(x.bfloat16()).float()
        return {"loss": (out - labels).square().mean(), "logits": out}

def train(resume):
    torch.manual_seed(0)
    model = Model()
    data = [{"x": torch.randn(64), "labels": torch.zeros(4)} for _ in range(32)]
    arguments = TrainingArguments("out", use_cpu=True, max_steps=8, per_device_train_batch_size=4, max_grad_norm=0.0,
                                  save_strategy="steps", save_steps=4, report_to="none", disable_tqdm=True,
                                  logging_strategy="no")
    optimizer = AdamW(model.named_parameters(), lr=1e-2, max_grad_norm=1.0, state="8bit", master="split")
    Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None)).train(resume_from_checkpoint=resume)
    return model.layer.weight, optimizer

whole, parts = train(None), train("out/checkpoint-4")
""", "accelerate": """
import torch
from accelerate import Accelerator
from gradscaler.torch import AdamW, GradScaler

def train(first, save=None):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = GradScaler("cpu", init_scale=1024.0)
    model = torch.nn.Linear(64, 4).bfloat16()
    optimizer = AdamW(model.named_parameters(), lr=1e-2, max_grad_norm=1.0, state="8bit", master="split")
    model, prepared = accelerator.prepare(model, optimizer)
    if first:
        accelerator.load_state("saved")
    for step in range(first, 8):
        torch.manual_seed(step)
        prepared.zero_grad()
        accelerator.backward(model(torch.randn(4, 64).bfloat16()).float().square().mean())
        prepared.step()
        if step == 3:
            accelerator.save_state("saved")
    return model.weight, optimizer

whole, parts = train(0), train(4)
"""}


@pytest.mark.parametrize("trainer", RESUMED)
def test_a_run_that_was_interrupted_has_the_same_bits(trainer, tmp_path):
    """With masters and moments in codes, saved and loaded by the trainer."""
    library(trainer)
    compare = ("(p, first), (q, second) = whole, parts\n"
               "states = first.state[p], second.state[q]\n"
               "print(torch.equal(p, q), *(str(k) for k in states[0] if not torch.equal(states[0][k], states[1][k])))\n"
               "print(*sorted(states[1]))\n")
    printed = run(RESUMED[trainer] + compare, tmp_path)
    assert printed.splitlines()[-2:] == [
        "True", "exp_avg exp_avg_scale exp_avg_sq exp_avg_sq_scale remainder step"], printed


def test_accelerate_sees_a_skip(tmp_path):
    """And so does the schedule that it has prepared."""
    library("accelerate")
    (recipe,) = [code for title, code in RECIPES if title == "Accelerate"]
    said = "    schedule.step()\n    print(step, prepared.step_was_skipped)\n"
    recipe = recipe.replace("    schedule.step()\n", said)
    clip = "    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n    prepared.step()"
    variants = [recipe.replace("max_grad_norm=1.0)", options).replace("    prepared.step()", step).replace(
        "scaler = GradScaler", f"scaler = {scaler}") for options in ("max_grad_norm=1.0)", "fused=False)")
        for scaler in ("GradScaler", "torch.amp.GradScaler") for step in ("    prepared.step()", clip)]
    assert len(set(variants)) == 8
    refused = ("from gradscaler.torch import AppliedLR\n"
               "try:\n    accelerator.prepare(AppliedLR(torch.optim.lr_scheduler.StepLR(optimizer, 1)))\n"
               "except TypeError as error:\n    print(error)\n")
    printed = run("\n".join(f"exec({code!r}, {{}})" for code in [*variants, recipe + refused]), tmp_path)
    assert printed.count("0 False\n1 True\n2 False\n3 False\n0.00125 512.0\n") == 9, printed
    assert "an AppliedLR cannot be prepared by Accelerate" in printed


def test_there_is_a_recipe_for_each():
    assert [title for title, _ in RECIPES] == ["Accelerate", "Lightning Fabric", "Lightning", "Trainer of transformers"]
