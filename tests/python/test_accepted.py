# SPDX-License-Identifier: Apache-2.0
"""The table of docs/python.md, cell by cell, with the real libraries: what becomes of every kind of object.

A row of the page is `library | object | as gradient | as parameter | scale()`; each cell begins with a word that says
what happens. Rows without an entry here, and entries without a row, fail.
"""

import array
import functools
import re
import sys

import numpy as np
import pytest

import gradscaler as gs
from conftest import ROOT, Cuda, frozen, library, ones

F = np.float32
ROWS = {}
_PAGE = (ROOT / "docs" / "python.md").read_text()
for _line in _PAGE.partition("<!-- accepted -->")[2].partition("<!-- end -->")[0].splitlines():
    _cells = [cell.strip() for cell in _line.strip().strip("|").split("|")]
    if len(_cells) == 5 and not set(_cells[0]) <= set("-") and _cells[0] != "library":
        ROWS[f"{_cells[0]}: {_cells[1]}"] = [re.match(r"\w+", cell)[0] for cell in _cells[2:]]


def torch():
    return library("torch")


def jax():
    return library("jax")


def dtensor():
    torch()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    if not torch().distributed.is_initialized():
        torch().distributed.init_process_group("gloo", store=torch().distributed.HashStore(), rank=0, world_size=1)
    return distribute_tensor(torch().ones(4), init_device_mesh("cpu", (1,)))


def masked():
    return np.ma.masked_array(ones(4), [1, 0, 0, 0])


def deleted():
    values = jax().numpy.ones(4)
    values.delete()
    return values


def traced():
    kept = []
    jax().jit(lambda x: kept.append(x) or x)(jax().numpy.ones(4))
    return kept[0]


MAKERS = {
    "NumPy: float16, float32, float64": lambda: ones(4),
    "NumPy: bfloat16 of ml_dtypes": lambda: np.ones(4, library("ml_dtypes").bfloat16),
    "NumPy: Fortran order, permuted": lambda: np.asfortranarray(ones(2, 2, 3)),
    "NumPy: slices with gaps, reversed, broadcast": lambda: ones(4, 4)[:, 1:],
    "NumPy: read-only": lambda: frozen(ones(4)),
    "NumPy: other byte order": lambda: np.ones(4, ">f4"),
    "NumPy: integers, complex, objects": lambda: np.ones(4, np.int64),
    "NumPy: masked arrays": masked,
    "NumPy: other subclasses": lambda: ones(2, 2).view(np.matrix),
    "NumPy: scalars": lambda: np.float32(1.0),
    "PyTorch: tensors and parameters": lambda: torch().ones(4, requires_grad=True),
    "PyTorch: subclasses of Parameter that override no operation":
        lambda: type("Renamed", (torch().nn.Parameter,), {})(torch().ones(4)),
    "PyTorch: results of autograd": lambda: torch().ones(4, requires_grad=True) * 2,
    "PyTorch: channels_last, transposed": lambda: torch().ones(2, 3, 4, 4).to(memory_format=torch().channels_last),
    "PyTorch: slices with gaps, expanded": lambda: torch().ones(1).expand(4),
    "PyTorch: DTensor": dtensor,
    "PyTorch: other subclasses": lambda: pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor(
        torch().ones(4), torch().ones(4)),
    "PyTorch: sparse, nested": lambda: torch().ones(4).to_sparse(),
    "PyTorch: meta": lambda: torch().ones(4, device="meta"),
    "PyTorch: integers": lambda: torch().ones(4, dtype=torch().int32),
    "PyTorch: resized or freed storage": lambda: (lambda t: (t.untyped_storage().resize_(0), t)[1])(torch().ones(4)),
    "PyTorch: negated views": lambda: torch()._neg_view(torch().ones(4)),
    "JAX: arrays on one device": lambda: jax().numpy.ones(4),
    "JAX: deleted": deleted,
    "JAX: tracers of jit and vmap": traced,
    "pandas: Series, DataFrame": lambda: library("pandas").DataFrame({"a": ones(4)}),
    "pyarrow: Array": lambda: library("pyarrow").array(ones(4)),
    "pyarrow: Array with nulls": lambda: library("pyarrow").array([1.0, None], "float32"),
    "CUDA interface: contiguous": Cuda,
    "CUDA interface: other byte order": lambda: Cuda(typestr=">f2"),
    "CUDA interface: with a mask": lambda: Cuda(mask=Cuda(typestr="|b1")),
    "standard library: array.array": lambda: array.array("f", [1.0] * 4),
    "standard library: bytes of another dtype": lambda: bytearray(8),
    "any: Tensor": lambda: gs.as_tensor(ones(4)),
    "any: None, text, sets": lambda: "text",
}


def test_every_row_has_a_test():
    assert list(ROWS) == list(MAKERS)


def outcome(call, value):
    try:
        return call(value)
    except (TypeError, ValueError) as error:
        assert re.match(r"(arrays|grads|params|outputs).{16}", str(error)), error
        return "refused"


def address_of(value):
    for name in ("data_ptr", "unsafe_buffer_pointer"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value.ctypes.data if type(value) is np.ndarray else None


def listed(value, **options):
    found = gs.TensorList(value, **options)[0]
    assert address_of(value) in (None, found.address)
    return "accepted" if found.address else "refused"


def scaled(value):
    scaler = gs.GradScaler(init_scale=4.0)
    found = scaler.scale(value)
    if getattr(value, "requires_grad", False):
        return "multiplied" if found.requires_grad else "wrong"
    first = found.full_tensor() if hasattr(found, "full_tensor") else getattr(found, "a", found)
    if getattr(first, "is_meta", False) or getattr(first, "is_sparse", False):
        return "multiplied"
    flat = np.asarray(first.float() if hasattr(first, "float") else first).astype(float).ravel()
    assert (flat == (4.0 if flat.size else 0.0)).all() or (flat == -4.0).all(), flat
    own = type(value).__module__.partition(".")[0] in ("torch", "jax", "jaxlib")
    return "multiplied" if own else "copied"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", [0, 1, 2], ids=["gradient", "parameter", "scale"])
@pytest.mark.parametrize("row", ROWS)
def test_cell(row, use):
    value = MAKERS[row]()
    calls = [functools.partial(listed, read_only=True), functools.partial(listed, argument="params"), scaled]
    if row.startswith("CUDA"):
        # A list would stop there: there is no GPU, or no such memory on it.
        calls[:2] = [lambda v: "accepted" if gs.as_tensor(v, argument="arrays").address else "refused"] * 2
    assert outcome(calls[use], value) == ROWS[row][use]


def teardown_module():
    found = sys.modules.get("torch")
    if found is not None and found.distributed.is_initialized():
        found.distributed.destroy_process_group()
