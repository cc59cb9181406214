#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on batches of which some are bad, with and without skipping their steps.

  benchmarks/torch_spikes.py [--steps N] [--seeds N] [--arm NAME...] [--output spikes.json]
  benchmarks/torch_spikes.py --tables spikes.json
  benchmarks/torch_spikes.py --plot spikes.svg spikes.json

The model is the byte-level one of torch_quality.py at half its width, in bf16 by autocast, with fp32 weights. All runs
of a seed have the same weights, batches and schedule. The arms differ in whether there are anomalies, in what is
skipped, and in whether gradients are clipped; in one the script itself leaves the steps of the anomalies out. These are
at fixed shares of a run: four single batches and two rows of eight, all of random bytes and with a loss ten times too
large, and three clean batches after which one element of one gradient is NaN or inf. A bad batch takes the place of a
clean one. The first comes after the 64 steps from which on spikes are judged.

A run's number is the loss on the last tenth of the text; null if it is not finite, with which the run ends early.
`curve` has the mean loss on the clean batches of each 1/50 of the run, `skipped` the steps that were skipped, `ratio`
the norms of the bad batches over the median of the clean ones before. Runs are added to an existing --output, which is
written after each one, so that a run that was stopped can go on. It uses one thread.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import records
import table
import torch
import torch_quality
from torch_quality import LENGTH, Model

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH, WIDTH = 4, 128
LR, WARMUP, BETAS, MAX_NORM = 3e-3, 50, (0.9, 0.95), 1.0
#: Where the anomalies are, in thousandths of the run.
SINGLE, ROWS, ROW, NONFINITE = (250, 400, 550, 700), (450, 850), 8, {350: math.nan, 650: math.inf, 950: math.nan}
#: By how much the loss of a bad batch is too large.
FACTOR = 10.0
POINTS = 50
OFF, FOLLOW = {"skip_nonfinite": False}, {"spike_factor": 2.0}
NONE, LEFT_OUT, THERE = range(3)
#: What becomes of the anomalies, the limit of the norm, and arguments of gradscaler's AdamW; None: PyTorch's.
ARMS = {
    "clipped: no anomalies": (NONE, MAX_NORM, {}),
    "clipped: anomalies left out by hand": (LEFT_OUT, MAX_NORM, {}),
    "clipped: NaN, inf and spikes skipped": (THERE, MAX_NORM, FOLLOW),
    "clipped: NaN and inf skipped": (THERE, MAX_NORM, {}),
    "clipped: nothing skipped": (THERE, MAX_NORM, OFF),
    "clipped: torch.optim.AdamW, clip_grad_norm_": (THERE, MAX_NORM, None),
    "not clipped: no anomalies": (NONE, math.inf, {}),
    "not clipped: NaN, inf and spikes skipped": (THERE, math.inf, FOLLOW),
    "not clipped: NaN and inf skipped": (THERE, math.inf, {}),
}
#: Of the plot.
TITLES = {"not clipped": "gradients not clipped", "clipped": "gradients clipped to a norm of 1"}
COLOURS = {"no anomalies": "#000000", "NaN, inf and spikes skipped": "#2ca02c", "NaN and inf skipped": "#d62728",
           "nothing skipped": "#ff7f0e"}


def anomalies(steps):
    """The steps with a bad batch, and what is written into a gradient at which step."""
    first = [at * steps // 1000 for at in SINGLE]
    rows = [at * steps // 1000 + i for at in ROWS for i in range(ROW)]
    return {*first, *rows}, {at * steps // 1000: value for at, value in NONFINITE.items()}


def make_optimizer(params, clip, options):
    known = {"lr": LR, "betas": BETAS, "weight_decay": 0.1}
    if options is None:
        return torch.optim.AdamW(params, fused=True, **known)
    from gradscaler.torch import AdamW

    return AdamW(params, max_grad_norm=clip, **known, **options)


def held_out_loss(model, text):
    with torch.no_grad():
        pieces = text[:len(text) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
        return statistics.fmean(model(part).item() for part in pieces.split(64))


def train(arm, seed, steps):
    """What a run leaves: see above."""
    kind, clip, options = ARMS[arm]
    bad, nonfinite = anomalies(steps) if kind != NONE else ((), {})
    torch.manual_seed(seed)
    data = torch_quality.text()
    known, held_out = data[:len(data) * 9 // 10], data[len(data) * 9 // 10:]
    model = Model(WIDTH)
    adamw = make_optimizer(model.parameters(), clip, options)
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: min(1.0, (step + 1) / WARMUP) * (
        0.55 + 0.45 * math.cos(math.pi * step / steps)))
    batches, noise = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    curve, losses, skipped, norms, ratios = [], [], [], [], []
    for step in range(steps):
        places = torch.randint(len(known) - LENGTH - 1, (BATCH,), generator=batches)
        batch = torch.stack([known[place:place + LENGTH + 1] for place in places])
        if kind == LEFT_OUT and (step in bad or step in nonfinite):
            schedule.step()
            continue
        if step in bad:
            batch = torch.randint(256, batch.shape, generator=noise)
        adamw.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(batch)
        (loss * FACTOR if step in bad else loss).backward()
        if step in nonfinite:
            model.blocks[1].up.weight.grad[3, 5] = nonfinite[step]
        if options is None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item()
            adamw.step()
        else:
            adamw.step()
            norm = adamw.report().grad_norm
            if not adamw.applied:
                skipped.append(step)
        schedule.step()
        if step in bad:
            ratios.append(round(norm / statistics.median(norms), 1))
        elif math.isfinite(norm):
            norms.append(norm)
        if step not in bad:
            losses.append(loss.item())
        if not math.isfinite(loss.item()):
            return {"loss": None, "stopped": step, "skipped": skipped, "ratio": ratios, "curve": curve}
        if (step + 1) // (steps // POINTS) > len(curve):
            curve.append(round(statistics.fmean(losses), 3))
            losses = []
    return {"loss": round(held_out_loss(model, held_out), 4), "skipped": skipped, "ratio": ratios, "curve": curve}


def summary(results, arm):
    """Of all seeds: mean and standard deviation of the loss or None, skips, and clean steps among them."""
    runs, steps = results["runs"][arm].values(), results["context"]["steps"]
    bad, nonfinite = anomalies(steps) if ARMS[arm][0] == THERE else ((), {})
    losses = [run["loss"] for run in runs]
    wrong = sum(len(set(run["skipped"]) - set(bad) - set(nonfinite)) for run in runs)
    skipped = [len(run["skipped"]) for run in runs]
    found = None if None in losses else (statistics.fmean(losses), statistics.stdev(losses) if losses[1:] else 0.0)
    return found, skipped, wrong


def tables(results):
    context = results["context"]
    bad, nonfinite = anomalies(context["steps"])
    ratios = [ratio for arm in results["runs"] if "spikes" in arm
              for run in results["runs"][arm].values() for ratio in run["ratio"]]
    lines = [f"{context['processor']}, torch {context['torch']}, {context['parameters']} parameters,"
             f" {context['steps']} steps of {BATCH * LENGTH} bytes, {len(bad)} bad batches, {len(nonfinite)} NaN, inf"]
    if ratios:
        lines.append(f"norms of bad batches: {min(ratios):.0f} to {max(ratios):.0f} times the median")
    lines += ["", "| | held-out loss | skipped | clean steps of these, all seeds |", "| --- | ---: | ---: | ---: |"]
    for arm in results["runs"]:
        found, skipped, wrong = summary(results, arm)
        loss = "NaN" if found is None else f"{found[0]:.3f} ± {found[1]:.3f}"
        counts = f"{min(skipped)}" if len(set(skipped)) == 1 else f"{min(skipped)} to {max(skipped)}"
        lines.append(f"| {arm} | {loss} | {counts} | {wrong} |")
    return "\n".join(lines)


def mean_curve(runs, steps):
    """[(step, mean loss of all seeds)], as long as all of them have one."""
    each = zip(*(run["curve"] for run in runs.values()), strict=False)
    return [((i + 1) * steps // POINTS, statistics.fmean(losses)) for i, losses in enumerate(each)]


def plot(results):
    """The document: one panel without clipping and one with it."""
    sys.path.append(str(ROOT / "examples/c/gpt"))
    import curves

    steps, height, low, high = results["context"]["steps"], 190, 1.8, 3.2
    pitch, edge = height + 46, curves.WIDTH - curves.RIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{curves.WIDTH}" height="{curves.TOP + 2 * pitch + 14}"'
             ' font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    bad, nonfinite = anomalies(steps)
    for number, (panel, title) in enumerate(TITLES.items()):
        top = curves.TOP + number * pitch
        parts.append(f'<text x="{curves.LEFT}" y="{top - 10}" font-size="15">Loss, nats a byte: {title}</text>')
        for marked, colour in ((bad, "#f3d6d6"), (nonfinite, "#ffd9b3")):
            parts += [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height}" stroke="{colour}"/>'
                      for x in (curves.LEFT + step / steps * (edge - curves.LEFT) for step in sorted(marked))]
        shown = [(name, colour) for name, colour in COLOURS.items() if f"{panel}: {name}" in results["runs"]]
        parts += curves.panel([(mean_curve(results["runs"][f"{panel}: {name}"], steps), colour, 1.5)
                               for name, colour in shown], top, height, low, high, steps, (2, 2.4, 2.8, 3.2))
        parts += [f'<text x="{edge + 10}" y="{top + 16 * i + 10}" fill="{colour}">{name}</text>'
                  for i, (name, colour) in enumerate(shown)]
        parts += [f'<text x="{curves.LEFT + part / 4 * (edge - curves.LEFT):.0f}" y="{top + height + 16}"'
                  f' text-anchor="middle">{steps * part // 4}</text>' for part in range(5)]
    parts.append(f'<text x="{(curves.LEFT + edge) / 2:.0f}" y="{curves.TOP + 2 * pitch + 4}" text-anchor="middle">step;'
                 ' shaded: bad batches (red), NaN or inf in a gradient (orange)</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arm", action="append", choices=ARMS)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    parser.add_argument("--plot", nargs=2, type=pathlib.Path, metavar=("SVG", "JSON"))
    arguments = parser.parse_args()
    if arguments.steps < ROW * POINTS or arguments.steps % POINTS:
        parser.error(f"--steps is {arguments.steps}; it must be a multiple of {POINTS}, and at least {ROW * POINTS}")
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    if arguments.plot:
        arguments.plot[0].write_text(plot(json.loads(arguments.plot[1].read_text())))
        return
    torch.set_num_threads(1)
    context = {"processor": table.processor(), "torch": torch.__version__, "steps": arguments.steps,
               "parameters": sum(p.numel() for p in Model(WIDTH).parameters()), "bytes": len(torch_quality.text()),
               "date": time.strftime("%Y-%m-%d")}
    results = records.resumed({"context": context, "runs": {}}, arguments.output)
    for seed in map(str, range(1, arguments.seeds + 1)):
        for arm in arguments.arm or ARMS:
            runs = results["runs"].setdefault(arm, {})
            if seed not in runs:
                runs[seed] = train(arm, int(seed), arguments.steps)
                if arguments.output:
                    arguments.output.write_text(records.laid_out(results) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main()
