# SPDX-License-Identifier: Apache-2.0
"""The scale over the steps of a log: as SVG, and as characters for a terminal. Skipped steps are marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 800, 320, 60, 40, 30


def _points(records: Sequence[dict[str, Any]]) -> tuple[list[float], list[bool]]:
    steps = [r for r in records if r["kind"] == "step" and math.isfinite(r["scale"]) and r["scale"] > 0]
    if not steps:
        raise ValueError("the log has no steps")
    return [math.log2(step["scale"]) for step in steps], [bool(step["overflow"]) for step in steps]


def _bounds(exponents: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    return (low - 1, high + 1) if high - low < 2 else (low, high)


def svg(records: Sequence[dict[str, Any]]) -> str:
    """An SVG document."""
    exponents, overflows = _points(records)
    low, high = _bounds(exponents)
    span = max(len(exponents) - 1, 1)

    def x(step: int) -> float:
        return _LEFT + step / span * (_WIDTH - _LEFT - 20)

    def y(exponent: float) -> float:
        return _TOP + (high - exponent) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif"'
             ' font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{_LEFT}" y="18">loss scale; skipped steps in red</text>']
    for mark in range(low, high + 1, max(1, (high - low) // 8)):
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#ddd"/>'
                     f'<text x="{_LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">2^{mark}</text>')
    path = []
    for step, exponent in enumerate(exponents):
        # The scale is constant between updates: steps, not slopes.
        path.append(f"{x(step):.1f},{y(exponents[max(step - 1, 0)]):.1f} {x(step):.1f},{y(exponent):.1f}")
    parts.append(f'<polyline fill="none" stroke="#1f4e8c" stroke-width="1.5" points="{" ".join(path)}"/>')
    parts += [f'<circle cx="{x(step):.1f}" cy="{y(exponents[step]):.1f}" r="3" fill="#c62828"/>'
              for step, overflow in enumerate(overflows) if overflow]
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}">step 0</text><text x="{_WIDTH - 20}" y="{_HEIGHT - 12}"'
                 f' text-anchor="end">step {len(exponents) - 1}</text></svg>')
    return "\n".join(parts) + "\n"


def text(records: Sequence[dict[str, Any]], width: int = 72, height: int = 12) -> str:
    """Lines of characters: ``#`` the scale, ``x`` where a step of that column was skipped."""
    exponents, overflows = _points(records)
    low, high = _bounds(exponents)
    width = min(width, len(exponents))
    rows = [[" "] * width for _ in range(height)]
    for column in range(width):
        begin, end = column * len(exponents) // width, (column + 1) * len(exponents) // width
        mean = sum(exponents[begin:end]) / (end - begin)
        row = round((high - mean) / (high - low) * (height - 1))
        rows[row][column] = "x" if any(overflows[begin:end]) else "#"
    labels = [f"2^{high - row / (height - 1) * (high - low):<6.1f}" for row in range(height)]
    lines = [label + "|" + "".join(row).rstrip() for label, row in zip(labels, rows, strict=True)]
    return "\n".join([*lines, " " * 8 + "+" + "-" * width,
                      f"{'':8} step 0 to {len(exponents) - 1}, x: skipped"]) + "\n"
