# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/recipes.md, each in a separate process; and with fused=False what trainers see of a skip."""

import re

import pytest

from conftest import ROOT, library, run_python

RECIPES = re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text(), re.M | re.S)


def run(script, tmp_path):
    # Warnings of the trainers are not ours to mend.
    return run_python("-W", "ignore", "-c", script, cwd=tmp_path, HF_HUB_OFFLINE="1")


#: What makes the optimizers of a script print the dtypes of their first moments.
DTYPES = """
import gc
import gradscaler.torch
optimizers = [found for found in gc.get_objects() if isinstance(found, gradscaler.torch.FusedOptimizer)]
entries = [entry for found in optimizers for entry in found.state.values()]
print(sorted({str(entry.get("exp_avg_codes", entry.get("exp_avg")).dtype) for entry in entries}))
"""


#: Those that import little.
QUICK = ("Accelerate", "Roll back", "Norms of tensors")


@pytest.mark.parametrize("recipe", [
    pytest.param(code, id=title, marks=[] if title in QUICK else pytest.mark.long) for title, code in RECIPES])
def test_recipe(recipe, tmp_path):
    """With state of 32 and of 8 bits, in one process, since importing a trainer takes longest."""
    for name in set(re.findall(r"^(?:import|from) (\w+)", recipe, re.M)) - {"gradscaler"}:
        library(name)
    assert recipe.count("max_grad_norm=1.0)") == 1
    states = {"fp32": ["torch.float32"], "8bit": ["torch.float32", "torch.uint8"]}
    scripts = [recipe.replace("max_grad_norm=1.0)", f'max_grad_norm=1.0, state="{state}")') + DTYPES
               for state in states]
    # Only weights whose rows are multiples of 32 elements have codes.
    scripts[1] = re.sub(r"\b8\)", "32)", scripts[1].replace("Linear(8, 1)", "Linear(32, 1)"))
    end = "end of a script"
    printed = run("import gc\n" + "".join(f"exec({script!r}, {{}})\ngc.collect()\nprint({end!r})\n"
                                          for script in scripts), tmp_path)
    expected = re.findall(r"^print\(.*  # (.*)$", recipe, re.M)
    *parts, rest = printed.split(end + "\n")
    assert expected and rest == "" and len(parts) == len(states), printed
    for part, dtypes in zip(parts, states.values(), strict=True):
        assert part.splitlines()[-2:] == [expected[-1], str(dtypes)], printed


def test_accelerate_sees_a_skip(tmp_path):
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


def test_rolling_back(tmp_path):
    """Weights and state are what they were, to the bit; if a part is not restored, the same check says so."""
    library("torch")
    (recipe,) = [code for title, code in RECIPES if title == "Roll back"]
    (expected,) = re.findall(r"^print\(.*  # (.*)$", recipe, re.M)
    take, restore = "        snapshots.take(step)\n", "        restored.append(snapshots.restore())\n"
    load = "        part.load_state_dict(state)\n"
    bits = ("[t.clone() for t in (*model.parameters(), *(value for p in model.parameters() for value in"
            " optimizer.state[p].values()))]")
    checked = recipe.replace(take, f"{take}        found[step] = {bits}\n").replace(
        restore, f"{restore}        print(all(map(torch.equal, {bits}, found[restored[-1]])))\n")
    assert checked.count(bits) == 2 and load in checked
    variants = [checked, *(checked.replace(load, f"        {condition}:\n        {load}")
                           for condition in ("if False", "if part is not model", "if part is not optimizer"))]
    printed = run("\n".join(f"exec({code!r}, {{'found': {{}}}})" for code in variants), tmp_path).splitlines()
    assert printed[:2] == ["True", expected] and printed[3] != expected
    assert printed[2::2] == ["False"] * 3


def test_there_is_a_recipe_for_each():
    assert [title for title, _ in RECIPES] == ["Accelerate", "Lightning Fabric", "Lightning", "Trainer of transformers",
                                           "Roll back", "Norms of tensors"]
