# SPDX-License-Identifier: Apache-2.0
"""``python -m gradscaler info | demo | plot LOG | doctor LOG``."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from typing import Any

from . import build, demo, doctor, plot
from ._native import native
from .device import devices
from .log import read_log

_TROUBLESHOOTING = "https://github.com/gradscaler/gradscaler/blob/main/docs/troubleshooting.md"


def _info() -> int:
    print(build.build_info())
    print(f"Python {platform.python_version()} on {platform.platform()}")
    try:
        print(f"library: {build.get_library()}")
    except FileNotFoundError:
        print("library: not in the package")
    for found in devices():
        memory = f", {found.memory_bytes / 2**30:.0f} GiB" if found.memory_bytes else ""
        print(f"{found.device}: {found.name}, {found.units} {'threads' if found.device == 'cpu' else 'processors'}"
              f"{memory}")
    for name in ("numpy", "jax", "jaxlib", "optax", "flax"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: not installed")
    if importlib.util.find_spec("torch") is not None:
        try:
            importlib.import_module("gradscaler.torch")
            print(f"PyTorch {sys.modules['torch'].__version__}: tensors are inspected by DLPack")
        except ImportError as error:
            print(error)
    else:
        print("PyTorch: not installed")
    return 0


def _demo(log: str | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log") if log is None else log
        print("\n".join(demo.main(path)))
        records = read_log(path)
    if log is not None:
        print(f"log: {log}")
    print(plot.text(records), end="")
    return _verdicts(records)


def _plot(log: str, output: str | None) -> int:
    records = read_log(log)
    if output is not None:
        with open(output, "w", encoding="utf-8") as file:
            file.write(plot.svg(records, title=os.path.basename(log)))
        print(f"wrote {output}", file=sys.stderr)
    print(plot.text(records), end="")
    return 0


def _verdicts(records: list[dict[str, Any]]) -> int:
    found = doctor.examine(records)
    for verdict in found:
        print(("problem: " if verdict.problem else "ok: ") + verdict.text)
    problem = any(verdict.problem for verdict in found)
    if problem:
        print(f"What to do about it: {_TROUBLESHOOTING}")
    return int(problem)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; the exit status: 1 if the doctor found a problem, 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m gradscaler", description="Tools around training logs.")
    parser.add_argument("--version", action="version", version=f"gradscaler {native.version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="build and devices, for bug reports")
    demo_parser = commands.add_parser("demo", help="a small run in fp16, with plot and verdicts")
    demo_parser.add_argument("--log", help="write its log here, to try plot and doctor on")
    plot_parser = commands.add_parser("plot", help="the scale over a log, in the terminal and as SVG")
    plot_parser.add_argument("log")
    plot_parser.add_argument("-o", "--output", help="SVG file to write")
    doctor_parser = commands.add_parser("doctor", help="verdicts on a log; exit status 1 if something is wrong")
    doctor_parser.add_argument("log")
    options = parser.parse_args(arguments)
    try:
        if options.command == "info":
            return _info()
        if options.command == "demo":
            return _demo(options.log)
        if options.command == "plot":
            return _plot(options.log, options.output)
        return _verdicts(read_log(options.log))
    except (OSError, ValueError) as error:
        print(f"gradscaler: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
