#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the measured figures on the pages with benchmarks/results. FIGURES lists the sentences that make a claim to
users, with their figures left out, and the figures as the results have them. Fails if a page has other figures.
benchmarks/compare.py checks the tables of goals.
"""
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/gpu")]

import goals  # noqa: E402
import records  # noqa: E402
import table  # noqa: E402

RESULTS = ROOT / "benchmarks/results"
ZEN3, ZEN4, ZEN5 = "amd-epyc-family-25-model-1", "amd-epyc-family-25-model-17", "amd-epyc-family-26-model-2"
INTEL = ("intel-xeon-processor-family-6-model-167", "intel-xeon-processor-family-6-model-207")
CPU = {name: table.Results(records.load(RESULTS / name / "cpu.json"), None) for name in (ZEN4, ZEN5, *INTEL)}
HALF = "fp16 grads, 16-bit copy"
XL, LLAMA = goals.MODELS


with open(RESULTS / "nvidia-h200/raw.jsonl", encoding="utf-8") as rows:
    GPU = goals.join(rows)


def cell(case, column, digits):
    return f"{GPU[case][column]:.{digits}f}"


def spread(values, digits=0):
    """The least and the greatest, rounded."""
    return f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"


def tails(way, model, grads):
    return cell(f"tail, {way}: {model}, {grads}", "times torch", 2)


def times_torch(name, model):
    return [case["vs_torch"] for case in CPU[name].cases if case["model"] == model]


def percent_of_flat(name, key):
    return [100 * CPU[name].find(key, threads)["vs_flat"] for threads in (1, 2)]


def all_times(prefix):
    return [row["us"] for case, row in GPU.items() if case.startswith(prefix)]


def lost_by_misalignment(prefix):
    return [100 - 100 * row["GB/s"] / GPU[case.removesuffix(", misaligned")]["GB/s"] for case, row in GPU.items()
            if case.startswith(prefix) and case.endswith("misaligned")]


def results(name, processor=ZEN5):
    return json.loads((RESULTS / processor / f"{name}.json").read_text())


def through_pytorch(model):
    cases = results("torch")["models"][model]
    ratios = [statistics.median(cases[case]["torch fused"]) / statistics.median(cases[case]["gradscaler"])
              for case in ("step", "tail")]
    return [f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}" for ratio in ratios]


ALL_TAILS = [float(tails(way, model, grads)) for way in ("eager", "graph") for model in (XL, LLAMA)
             for grads in ("fp32 grads", HALF)]
GPT2 = [ratio for name in (ZEN4, ZEN5, INTEL[0]) for ratio in times_torch(name, "gpt2_124m")]
SMALL = ("model/10000x64/fp32", "model/10000x64/fp16_master")
PERFORMANCE, README, STATE = "docs/performance.md", "README.md", "docs/state.md"
CONCEPTS, RECIPES = "docs/concepts.md", "docs/recipes.md"
QUALITY, FORMATS = [results("quality", name) for name in (ZEN3, ZEN4)], results("state")["models"]["gpt2_124m"]


def demo(factor):
    """Mean accuracies of a row of docs/demo.md."""
    row = re.search(rf"^\| {factor} \|.*$", (ROOT / "docs/demo.md").read_text(), re.M)[0]
    return re.findall(r"([\d.]+) % \(", row)


def trained(row):
    """A row of docs/state.md: mean, least and greatest loss of all seeds, and two ratios of second moments."""
    quality = next(quality for quality in QUALITY if row in quality["loss"])
    found = quality["loss"][row].values()
    return [*(f"{loss:.3f}" for loss in (statistics.fmean(found), min(found), max(found))),
            *(f"{ratio:.2f}" for ratio in quality["freeze"][row])]


#: Rows of docs/concepts.md: an arm of torch_spikes.py without its first word, and whether it ran without clipping too.
SPIKES = {"without anomalies": ("no anomalies", True),
          "their steps left out by hand": ("anomalies left out by hand", False),
          "NaN, inf and spikes skipped: `spike_factor=2`": ("NaN, inf and spikes skipped", True),
          "NaN and inf skipped": ("NaN and inf skipped", True)}
SPIKE_RUNS = results("spikes", ZEN4)["runs"]
SKIPPING = [run for arm, runs in SPIKE_RUNS.items() if arm.endswith("spikes skipped") for run in runs.values()]


def spike_loss(arm, of=statistics.fmean):
    return of([run["loss"] for run in SPIKE_RUNS[arm].values()])


def spikes(arm, without):
    """Mean and standard deviation of the loss with clipping, and without it."""
    return [f"{spike_loss(f'{kind}: {arm}', of):.3f}" for kind in ("clipped", "not clipped")[:1 + without]
            for of in (statistics.fmean, statistics.stdev)]


#: Rows of docs/state.md with the speed of a step, by the name in gradscaler_bench.
SPEEDS = {"split16_fp32": "`SPLIT16`, fp32 state", "split16_16bit": "`SPLIT16`, `BITS16`",
          "split16_8bit": "`SPLIT16`, `BITS8`", "stochastic_8bit": "`STOCHASTIC`, `BITS8`",
          "fp32_16bit": "fp32 weights, `BITS16`", "fp32_8bit": "fp32 weights, `BITS8`"}


def of_formats(name):
    """Speed against fp32 state with AVX-512 and AVX2, with one thread and two."""
    return [f"{results(file, ZEN4)['rows'][f'state/adamw/{name}/log2_elements:24/threads:{threads}']['vs_fp32']:.2f}"
            for file in ("state_avx512", "state_avx2") for threads in (1, 2)]


def by_format(row):
    """A row of docs/state.md: bytes a parameter, and nanoseconds of a step and of a tail."""
    return [f"{statistics.median(run[key] for run in FORMATS[row]):.2f}" for key in ("memory", "step", "tail")]


def snapshot(row, run):
    """A row of docs/recipes.md: bytes a parameter, and steps that take as long."""
    state, master = row.removeprefix("gradscaler ").split(", ")
    return (f'| `state="{state}", master="{master}"` | {{}} | {{}} optimizer steps |',
            [f"{run['bytes']:.2f}", f"{run['take'] / run['step']:.1f}"])


def overhead(shapes, row):
    """Time with an option over time without."""
    return [f"{statistics.median(shape[row]['with']) / statistics.median(shape[row]['without']):.3f}"
            for shape in shapes.values()]


OVERHEAD = results("option_overhead", ZEN4)["rows"]

FIGURES = [
    *[(PERFORMANCE, f"| {row.replace(': ', ' | ')} | {{}} | {{}} |", overhead(OVERHEAD, row))
      for row in OVERHEAD["16 x 4 Mi"]],
    *[(CONCEPTS, f"| {row} | {{}} ± {{}} | {'{} ± {} ' if without else ''}|", spikes(arm, without))
      for row, (arm, without) in SPIKES.items()],
    (CONCEPTS, "Spikes that are taken cost {} with clipping, which does most of the work, and {} without",
     [f"{spike_loss(f'{kind}: NaN and inf skipped') - spike_loss(f'{kind}: NaN, inf and spikes skipped'):.2f}"
      for kind in ("clipped", "not clipped")]),
    (CONCEPTS, "Norms of bad batches were {} to {} times the median",
     spread([ratio for run in SKIPPING for ratio in run["ratio"]])),
    (CONCEPTS, "So were {} of {} clean steps",
     [str(sum(len(run["skipped"]) - 23 for run in SKIPPING)), str(len(SKIPPING) * (1000 - 23))]),
    *[(STATE, f"| {row} | {{}} B | {{}} | {{}} |", by_format(row)) for row in FORMATS],
    *[(STATE, f"| {row} | {{}} ({{}} to {{}}) | {{}} | {{}} |", trained(row)) for quality in QUALITY
      for row in quality["loss"]],
    *[(STATE, f"| {row} | {{}} | {{}} | {{}} | {{}} |", of_formats(name)) for name, row in SPEEDS.items()],
    *[(RECIPES, *snapshot(row, run)) for row, run in results("snapshot", ZEN4)["rows"].items()],
    (README, "{} to {} times PyTorch's step tail on an H200, {} to {} times on one or two cores of a CPU.",
     [*spread(ALL_TAILS, 1), *spread(GPT2, 1)]),
    *[(README, f"| {factor} | {{}} % | {{}} % | {{}} % |", demo(factor)) for factor in ("1", "3e-5", "1e-5", "1e-6")],
    *[(PERFORMANCE, f"{model} | {label} | {{}}; {{}} |", [tails("eager", key, grads), tails("graph", key, grads)])
      for model, key in (("GPT-2 XL", XL), ("1/8 of Llama 7B", LLAMA))
      for label, grads in (("fp32", "fp32 grads"), ("fp16, with copy", HALF))],
    *[(PERFORMANCE, f"| {label} | GPT-2 124M | fp32 | {{}}; {{}} |",
       [f"{ratio:.2f}" for ratio in times_torch(name, "gpt2_124m")])
      for label, name in (("Zen 4, 1 and 2 threads", ZEN4), ("Zen 5, 1 and 2 threads", ZEN5),
                          ("Intel family 6 model 167, 1 and 2 threads", INTEL[0]))],
    (PERFORMANCE, "With 1000 tensors of 1024 elements the CPU tail is {} to {} times as fast",
     spread([ratio for name in (ZEN4, ZEN5, INTEL[0]) for ratio in times_torch(name, "1000x1024")])),
    *[(PERFORMANCE, f"| {label} | {{}} | {{}} |", through_pytorch(model))
      for label, model in (("1000 x 1024", "1000x1024"), ("10000 x 64", "10000x64"), ("ResNet-50", "resnet50"),
                           ("GPT-2 124M", "gpt2_124m"))],
    (PERFORMANCE, "On an H200 a tail costs {} to {} us of host time, a replay of a CUDA graph {} to {} us",
     [*spread(all_times("tail, host:")), *spread(all_times("tail, graph host:"))]),
    (PERFORMANCE, "On an H200 they cost up to {} % of a check and {} % of an AdamW step",
     [f"{max(lost_by_misalignment(prefix)):.0f}" for prefix in ("check", "AdamW")]),
    (PERFORMANCE, "10000 tensors of 64 elements reach {} to {} % of the speed of one flat tensor",
     spread([value for name in CPU for key in SMALL for value in percent_of_flat(name, key)])),
    (PERFORMANCE, "the tail of 10000 x 64 takes {} us", [cell("tail, eager: 10000 x 64, fp32 grads", "us", 0)]),
]


def main():
    pages = {page: re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8")) for page, _, _ in FIGURES}
    found = []
    for page, sentence, expected in FIGURES:
        pattern = re.escape(sentence).replace(r"\{\}", r"([\d.]+)").replace(r"\ ", " ")
        matches = list(re.finditer(pattern, pages[page]))
        if len(matches) != 1:
            found.append(f"{page}: {len(matches)} times: {sentence}")
        elif list(matches[0].groups()) != list(expected):
            found.append(f"{page}: {matches[0][0]}: the results have {', '.join(expected)}")
    print(f"{sum(len(expected) for _, _, expected in FIGURES)} figures compared")
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
