# SPDX-License-Identifier: Apache-2.0
"""Shared by the comparisons with PyTorch: distances in ulp, and `measured`, which keeps the numbers that a test found.

GSC_MEASURED names a file for the numbers of all test files: `scripts/conformance numerics` makes the tables of
docs/dev/conformance.md of it. The tests themselves only assert bounds.
"""

import json
import os
import pathlib
import sys

import numpy as np
import pytest

_found = {}


def ulp(x):
    """Distance between neighbouring fp32 numbers at the magnitude of x, as fp64."""
    return np.spacing(np.abs(np.asarray(x)).astype(np.float32)).astype(np.float64)


@pytest.fixture
def measured(request):
    """measured(row, column, value): keeps a number, the largest if it comes several times."""
    rows = _found.setdefault(request.path.stem.removeprefix("test_"), {})

    def keep(row, column, value):
        cells = rows.setdefault(row, {})
        cells[column] = max(cells.get(column, value), value)

    return keep


@pytest.fixture
def pytorch_fuses():
    """Skips where PyTorch's vector code has no fused multiply-adds, and so rounds twice where the library does once."""
    torch = pytest.importorskip("torch")
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX"):
        pytest.skip("PyTorch's code for this processor does not fuse multiplication and addition")


@pytest.fixture
def rounded_roots(pytorch_fuses, monkeypatch):
    """Makes torch.Tensor.sqrt round to nearest, which that of MKL does not."""
    root = pytest.importorskip("torch").Tensor.sqrt
    monkeypatch.setattr("torch.Tensor.sqrt", lambda x: root(x.double()).to(x.dtype))
    monkeypatch.setattr("torch.Tensor.sqrt_", lambda x: x.copy_(root(x.double())))


def pytest_sessionfinish(session, exitstatus):
    file = os.environ.get("GSC_MEASURED")
    if not file or exitstatus != 0 or "torch" not in sys.modules:
        return
    torch = sys.modules["torch"]
    _found["environment"] = {"PyTorch": torch.__version__, "its CPU code": torch.backends.cpu.get_cpu_capability()}
    parts = (f'"{name}": {{\n' + ",\n".join(f" {json.dumps(row)}: {json.dumps(cells)}" for row, cells in rows.items())
             for name, rows in sorted(_found.items()))
    pathlib.Path(file).write_text("{\n" + "\n},\n".join(parts) + "\n}\n}\n")
