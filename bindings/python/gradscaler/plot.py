# SPDX-License-Identifier: Apache-2.0
"""The scale over the steps of a log: as SVG, and as characters for a terminal. Skipped steps are marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from .messages import counted

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 800, 320, 60, 40, 30


def _points(records: Sequence[dict[str, Any]]) -> tuple[list[float], list[bool]]:
    steps = [r for r in records if r["kind"] == "step" and math.isfinite(r["scale"]) and r["scale"] > 0]
    if not steps:
        raise ValueError("the log has no steps")
    skipped = [step["overflow"] or step.get("spike", False) for step in steps]
    return [math.log2(step["scale"]) for step in steps], skipped


def _bounds(exponents: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    return (low - 1, high + 1) if high - low < 2 else (low, high)


def svg(records: Sequence[dict[str, Any]], title: str = "") -> str:
    """An SVG document: the loss scale over the steps, powers of two upwards, skipped steps as red dots."""
    exponents, overflows = _points(records)
    low, high = _bounds(exponents)
    span = max(len(exponents) - 1, 1)
    right, bottom = _WIDTH - 20, _HEIGHT - _BOTTOM

    def x(step: int) -> float:
        return _LEFT + step / span * (right - _LEFT)

    def y(exponent: float) -> float:
        return _TOP + (high - exponent) / (high - low) * (bottom - _TOP)

    heading = escape(f"Loss scale, {title}" if title else "Loss scale")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif"'
             ' font-size="12">', f"<title>{heading}</title>", '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{_LEFT}" y="20" font-size="15">{heading}</text>']
    for mark in range(low, high + 1, max(1, -(-(high - low) // 8))):
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#ddd"/>'
                     f'<text x="{_LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">2<tspan dy="-5" font-size="9">'
                     f"{str(mark).replace('-', chr(0x2212))}</tspan></text>")
    for step in range(0, len(exponents), _tick(len(exponents))):
        parts.append(f'<line x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#888"/>'
                     f'<text x="{x(step):.1f}" y="{bottom + 17}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">step</text>')
    # The scale is constant between updates: steps, not slopes.
    path = [f"{x(step):.1f},{y(exponents[max(step - 1, 0)]):.1f} {x(step):.1f},{y(exponent):.1f}"
            for step, exponent in enumerate(exponents)]
    parts.append(f'<polyline fill="none" stroke="#1f4e8c" stroke-width="1.5" points="{" ".join(path)}"/>')
    parts += [f'<circle cx="{x(step):.1f}" cy="{y(exponents[step]):.1f}" r="3" fill="#c62828"/>'
              for step, overflow in enumerate(overflows) if overflow]
    parts.append(f'<text x="{right}" y="20" text-anchor="end" fill="#c62828">'
                 f"{counted(sum(overflows), 'skipped step')} of {len(exponents)}</text></svg>")
    return "\n".join(parts) + "\n"


def _tick(steps: int) -> int:
    """A distance of 1, 2 or 5 times a power of ten that gives some ten marks."""
    wanted = max(1, steps // 10)
    unit = int(10 ** math.floor(math.log10(wanted)))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= wanted)


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
