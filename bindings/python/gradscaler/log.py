# SPDX-License-Identifier: Apache-2.0
"""Training logs: one JSON object a line, written from reports; and their reader.

``python -m gradscaler plot LOG`` draws one, ``python -m gradscaler doctor LOG`` judges it. Numbers that JSON lacks are
the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Protocol, Union

from .errors import ReportError
from .report import Report
from .tensors import TensorList

_LOST = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# The fields that readers count on, of a record and of each of its tensors, and their types.
_STEP: dict[str, type] = {"scale": float, "min_scale": float, "overflow": bool, "consecutive_skips": int,
                          "nan_count": int, "first_tensor": int}
_OPTIONAL = ("min_scale",)
_TENSOR: dict[str, type] = {"name": str, "count": int, "zero_count": int}
Path = Union[str, "os.PathLike[str]"]


class Scaler(Protocol):
    """The methods that a log calls of a scaler: a GradScaler of ``gradscaler`` or of ``gradscaler.torch``."""

    @property
    def options(self) -> dict[str, Any]: ...

    def get_scale(self) -> float: ...

    def report(self, optimizer: Any = None) -> Report: ...


class LogWriter:
    """Appends a record for each step to the file `path`, and to TensorBoard if `tensorboard` names a directory.

    TensorBoard needs the ``tensorboard`` package. `writers` get the numbers of each step too, as ``gradscaler/<name>``:
    anything with ``add_scalar``, such as torch.utils.tensorboard.SummaryWriter, or a run of wandb. You close them, and
    commit a run of wandb: numbers go to its current step. Each record waits for the report.
    """

    def __init__(self, path: Path, *, tensorboard: Path | None = None, writers: Sequence[Any] = ()) -> None:
        for number, writer in enumerate(writers):
            if not hasattr(writer, "add_scalar") and not hasattr(writer, "log"):
                raise TypeError(f"writers[{number}] is {type(writer).__name__}; it must have add_scalar, or log as a"
                                " run of wandb has")
        self._writers = list(writers)
        self._board: Any = None
        if tensorboard is not None:
            try:
                from tensorboard.summary import Writer  # type: ignore[import-not-found, import-untyped, unused-ignore]
            except ImportError:
                raise ImportError("tensorboard=... needs the tensorboard package") from None
            self._board = Writer(os.fspath(tensorboard))
            self._writers.append(self._board)
        self._file: IO[str] = open(path, "a", encoding="utf-8")
        self._step = 0

    def step(self, scaler: Scaler, optimizer: Any = None, **more: Any) -> None:
        """Writes a record of the step that ``update`` of `scaler`, any GradScaler of this package, just ended. Blocks.

        The record is about the gradients of `optimizer`, by default about all. `more` are further entries: what JSON
        holds, and numbers and arrays of NumPy, PyTorch and JAX. ``tensor_norms=``, norms by name, tells the doctor
        which gradient a spike is in. Raises TypeError for anything else, and for a name that the record already has.
        """
        try:
            found = scaler.report(optimizer)
        except ReportError as error:
            # A log is for finding out why; update() and report() are where this error belongs.
            if error.report is None:
                raise
            found = error.report
        record = {**found.asdict(), "step": self._step, "min_scale": scaler.options["min_scale"]}
        for name in more:
            if name in record or name == "kind":
                raise TypeError(f"{name} is a field of the record itself; call it otherwise")
            record[name] = _value(name, more[name])
        self._write("step", record)
        numbers = {f"gradscaler/{key}": float(value) for key, value in record.items()
                   if isinstance(value, (int, float)) and math.isfinite(value) and key != "step"}
        for writer in self._writers:
            if hasattr(writer, "add_scalar"):
                for key, value in numbers.items():
                    writer.add_scalar(key, value, self._step)
            else:
                writer.log(numbers, commit=False)
        self._step += 1

    def gradients(self, scaler: Scaler, optimizer: Any) -> None:
        """Writes a diagnosis of each gradient of `optimizer`, and the scale that suits them. Blocks.

        They are still scaled by `scaler`. All are read. Raises InvalidArgumentError for a ``.grad`` that is None.
        """
        # gradscaler.torch's, whose optimizers have no list.
        gradients_of = getattr(scaler, "_gradients_of", None)
        grads: TensorList = (gradients_of(optimizer) if gradients_of is not None else
                             optimizer if isinstance(optimizer, TensorList) else optimizer.grads)
        current = scaler.get_scale()
        found = [{"name": d.name or f"tensor {i}", "count": d.count, "zero_count": d.zero_count,
                  "nan_count": d.nan_count, "inf_count": d.inf_count, "subnormal_count": d.subnormal_count,
                  "amax": d.amax} for i, d in enumerate(grads.diagnose())]
        # At scale 0 all gradients are 0 or NaN, and say nothing about another scale.
        recommended = grads.recommend_scale(current).scale if 0.0 < current < math.inf else None
        self._write("gradients", {"step": self._step, "scale": current, "tensors": found, "recommended": recommended})

    def flush(self) -> None:
        """Hands everything to the operating system."""
        self._file.flush()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Flushes and closes."""
        self._file.close()
        if self._board is not None:
            self._board.close()
            self._board = None

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        self._file.write(json.dumps({"kind": kind, **_plain(record)}, allow_nan=False) + "\n")


def _value(name: str, value: Any) -> Any:
    found = _plain(value)
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; it must be what JSON holds, or an array") from None
    return found


def _plain(value: Any) -> Any:
    # Numbers and arrays of NumPy, PyTorch and JAX.
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _checked(record: dict[str, Any], fields: dict[str, type]) -> None:
    """Numbers where numbers belong, counts as the library has them; KeyError, TypeError, ValueError or
    OverflowError otherwise."""
    for name, kind in fields.items():
        value = record[name]
        if name in _OPTIONAL and value is None:
            continue
        if kind is float:
            value = _LOST.get(value, value)
            value = float(value) if type(value) is int else value
        if type(value) is not kind:
            raise TypeError(name)
        if isinstance(value, int) and not -2**63 <= value < 2**63:
            raise ValueError(name)
        record[name] = value


def _norms(found: Any) -> Any:
    """Norms of tensors by name, as the doctor reads them; None for anything else."""
    if not isinstance(found, dict):
        return None
    norms = {name: _LOST.get(norm, norm) if isinstance(norm, str) else norm for name, norm in found.items()}
    return norms if all(type(norm) in (int, float) for norm in norms.values()) else None


def _record(line: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line)
    kind = record["kind"]
    if kind in ("step", "gradients"):
        record.update({key: _LOST[record[key]] for key in ("grad_norm", "grad_amax") if record.get(key) in _LOST})
    if kind == "step":
        _checked(record, _STEP)
        if not isinstance(record.get("first_name"), (str, type(None))):
            raise TypeError("first_name")
        if "tensor_norms" in record:
            record["tensor_norms"] = _norms(record["tensor_norms"])
    elif kind == "gradients":
        _checked(record, {"scale": float, "tensors": list})
        if record["recommended"] is not None:
            _checked(record, {"recommended": float})
        for tensor in record["tensors"]:
            _checked(tensor, _TENSOR)
    return record


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of the log at `path`, a dictionary each. ValueError with the number of a line that is not a record.

    A last line that was cut short is dropped.
    """
    records = []
    with open(path, "rb") as file:
        lines = file.readlines()
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise ValueError(f"{os.fspath(path)}:{number} is no record of a log") from None
    return records
