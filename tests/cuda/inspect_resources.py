#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks ptxas's report on the kernels (the .usage files of cmake/record_resources.sh): the same kernels on every
architecture, no spills and no local memory, on sm_90 at most 64 registers for fp32 steps and 128 for steps over state
in codes. The library is below 25 MB and needs neither libcuda nor libcudart.
Usage: inspect_resources.py <readelf> <nvcc's version> <library> <usage files...>."""
import os
import pathlib
import re
import subprocess
import sys

MAX_BYTES = 25 << 20
OPTIM = pathlib.Path(__file__).resolve().parents[2] / "core/rules/optim"
# A kernel's name -> what its instances are called, and the registers that they may need on sm_90.
FORMULAS = {r"apply_kernel.*I\w*fE": ("fp32 apply", 64), "apply_coded_kernel": ("coded apply", 128)}
# nvcc's major version, part of a kernel's name -> bytes that it may spill: up to three registers, written once per
# launch and read once per chunk, outside the loops over elements. Alone in its file Adagrad's kernel does not spill.
KNOWN_SPILLS = {("12", "apply_kernelINS_5optim7AdagradEfE"): 4,
                ("12", "apply_kernelINS_5optim10AdamFamilyILb0ELb1EEEfE"): 4,
                ("13", "apply_kernelINS_5optim10AdamFamilyILb0ELb0EEEfE"): 4,
                ("13", "apply_kernelINS_5optim10AdamFamilyILb0ELb1EEEfE"): 8,
                ("13", "apply_kernelINS_5optim10AdamFamilyILb1ELb1EEEfE"): 4,
                ("13", "apply_kernelINS_5optim8AdEMAMixEfE"): 12,
                ("13", "apply_kernelINS_5optim5NadamEfE"): 8,
                ("13", "apply_kernelINS_5optim15RmspropMomentumILb1EEEfE"): 8,
                ("13", "apply_kernelINS_5optim17ScheduleFreeAdamWEfE"): 12}  # sm_75; 4 on sm_90


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sweep_count():
    """Formulas in the lists of core/rules/optim, but for those that share the kernels of another."""
    texts = [path.read_text(encoding="utf-8") for path in OPTIM.glob("*.h") if path.name != "formula_list.h"]
    rows = sum(len(re.findall(r"X\(k\w+, optim::", text)) for text in texts)
    return rows - sum(text.count("using Sweep = ") for text in texts)


def read_usage(files):
    """{architecture: {kernel: {"registers": 62, "stack": 0, "spills": 0}}}; a kernel that was compiled in several files
    keeps its largest numbers."""
    kernels = {}
    for file in files:
        current = None
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
                    found = kernels.setdefault(match.group(2), {})
                    current = found.setdefault(match.group(1), {"registers": 0, "stack": 0, "spills": 0})
                elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
                    current["stack"] = max(current["stack"], int(match.group(1)))
                    current["spills"] = max(current["spills"], int(match.group(2)))
                elif match := re.search(r"Used (\d+) registers", line):
                    current["registers"] = max(current["registers"], int(match.group(1)))
    return kernels


def main():
    readelf, version, library, *files = sys.argv[1:]
    allowed = {part: spilled for (major, part), spilled in KNOWN_SPILLS.items() if major == version.split(".")[0]}
    errors = []
    kernels = read_usage(files)
    if not kernels:
        errors.append("no device code found")
    names = {architecture: set(found) for architecture, found in kernels.items()}
    for architecture, found in sorted(kernels.items()):
        if names[architecture] != set.union(*names.values()):
            errors.append(f"{architecture} lacks kernels that others have")
        for name, usage in found.items():
            most = next((spilled for part, spilled in allowed.items() if part in name), 0)
            if usage["spills"] > most or (usage["stack"] and not most):
                errors.append(f"{architecture}: {name} spills: {usage}")
        print(f"{architecture}: {len(found)} kernels")
        for pattern, (what, limit) in FORMULAS.items():
            apply = {name: usage["registers"] for name, usage in found.items() if re.search(pattern, name)}
            if len(apply) < sweep_count():
                errors.append(f"{architecture}: only {len(apply)} {what} kernels found")
            errors += [f"{architecture}: {name} needs {registers} registers, at most {limit}"
                       for name, registers in apply.items() if architecture == "sm_90" and registers > limit]
            print(f"{architecture}: {what} at most {max(apply.values(), default=0)} registers")
    size = os.path.getsize(library)
    print(f"{size / (1 << 20):.1f} MB")
    if size > MAX_BYTES:
        errors.append(f"the library has {size} bytes, at most {MAX_BYTES}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run(readelf, "-d", library))
    errors += [f"needs {name}" for name in needed if name.startswith(("libcuda", "libnv"))]
    for error in errors:
        print("error:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
