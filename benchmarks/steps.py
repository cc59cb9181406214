# SPDX-License-Identifier: Apache-2.0
"""A test: every kind of optimizer in gradscaler.h has a row in gradscaler_bench, and its step ends without an error.

  benchmarks/steps.py <gradscaler_bench>
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bindings/generate"))

import api  # noqa: E402


def main():
    # Google Benchmark reports an error and exits with 0.
    only = "--benchmark_filter=^step/.*/fp32/threads:1/log2_bytes:20/"
    run = subprocess.run([sys.argv[1], "--quick", only, "--benchmark_format=json"], check=True, stdout=subprocess.PIPE)
    rows = {row["name"].split("/")[1]: row for row in json.loads(run.stdout)["benchmarks"]}
    failed = [f"{name}: {row['error_message']}" for name, row in rows.items() if row.get("error_occurred")]
    missing = [f"{kind.constant} has no row" for kind in api.load(ROOT).kinds if kind.constant.lower() not in rows]
    sys.exit("\n".join(failed + missing) or 0)


if __name__ == "__main__":
    main()
