# SPDX-License-Identifier: Apache-2.0
"""Drives the loss scaler of another system with the overflow patterns and writes its golden file.

    python record.py SYSTEM OUTPUT.json

Run by scripts/conformance, in an environment that has the system. A system is a module in systems/ with
    PROOF      "executed" or "modelled"
    SOURCE     where the rule is: package and class, or file of the project
    version()  what was run
    CASES      [(name, options, seeds, steps)], options in terms of gsc_scaler_options on top of the system's preset
    PRESET     name of the preset
    trajectory(options, overflows)  the scales after each update
"""

import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import golden  # noqa: E402
import patterns  # noqa: E402


def main():
    name, path = sys.argv[1:]
    system = importlib.import_module(f"systems.{name}")
    recorded = []
    for case, options, seeds, steps in system.CASES:
        for seed in seeds:
            overflows = patterns.pattern(seed, steps)
            scales = system.trajectory(dict(options), overflows)
            assert len(scales) == steps, (name, case, seed)
            recorded.append(
                {
                    "case": case,
                    "seed": seed,
                    "options": options,
                    "overflow": golden.runs(overflows),
                    "scale": golden.changes(scales),
                }
            )
    header = {
        "system": name,
        "preset": system.PRESET,
        "proof": system.PROOF,
        "source": system.SOURCE,
        "version": system.version(),
        "command": f"scripts/conformance {name}",
    }
    golden.write(path, header, recorded)


if __name__ == "__main__":
    main()
