# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a training log in plain words: what is normal, what is wrong, and what to do about it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .messages import counted

#: Skips among the first steps of a run are the scale finding its place.
_SETTLING = 10
#: A run that only skips for this long is not going to recover.
_HOPELESS = 20
#: More skips than this after settling are too many.
_TOLERABLE = 0.05
#: Less than this share of zeros is not worth a word.
_FLUSHED = 0.1


class Verdict(NamedTuple):
    """One finding; a problem is something to act upon."""

    problem: bool
    text: str


def examine(records: Sequence[dict[str, Any]]) -> list[Verdict]:
    steps = [record for record in records if record["kind"] == "step"]
    if not steps:
        return [Verdict(True, "the log has no steps")]
    return _skips(steps) + _scale(steps) + _gradients([r for r in records if r["kind"] == "gradients"])


def _skips(steps: Sequence[dict[str, Any]]) -> list[Verdict]:
    skipped = [i for i, step in enumerate(steps) if step["overflow"]]
    spikes = [i for i, step in enumerate(steps) if step.get("spike")]
    last = steps[-1]
    run = last["consecutive_skips"]
    if run >= _HOPELESS and last.get("spike"):
        return [Verdict(True, f"the last {run} steps skip: the gradient norm, {last['grad_norm']:.3g}, is above its"
                              f" limit, {last['norm_limit']:.3g}. Raise skip_norm, set spike_patience, or go back to a"
                              " checkpoint from before")]
    if run >= _HOPELESS:
        floor = bool(last["min_scale"]) and last["scale"] <= last["min_scale"]
        if last["nan_count"] or floor or last["scale"] <= 1:
            kind = "NaN" if last["nan_count"] else "inf"
            at = "min_scale" if floor else f"scale {_power(last['scale'])}"
            return [Verdict(True, f"all of the last {run} steps skip at {at}: lowering the scale does not help, the"
                                  f" {kind} is in the forward pass, first in {_tensor(last)}")]
        return [Verdict(True, f"the last {run} steps skip and the scale is still {_power(last['scale'])}: start with a"
                              " lower init_scale")]
    late = [i for i in skipped if i >= _SETTLING]
    verdicts = []
    if len(skipped) > len(late):
        verdicts.append(Verdict(False, f"{counted(len(skipped) - len(late), 'skip')} in the first {_SETTLING} steps:"
                                       " normal settling"))
    rest = len(steps) - _SETTLING
    if rest > 0 and late:
        share = len(late) / rest
        if share > _TOLERABLE and len(late) > 2:
            verdicts.append(Verdict(True, f"{share:.0%} of the steps after the first {_SETTLING} skip: raise"
                                          " growth_interval, or lower growth_factor"))
        else:
            verdicts.append(Verdict(False, f"{counted(len(late), 'skip')} in the {rest} steps after: normal"))
    if spikes:
        worst, step = max((steps[i]["grad_norm"] / steps[i]["norm_limit"], i) for i in spikes)
        verdicts.append(Verdict(False, f"{counted(len(spikes), 'step')} skipped for the gradient norm, the highest"
                                       f" {worst:.3g} times its limit{_grown(steps, step)}"))
    if not skipped and not spikes:
        verdicts.append(Verdict(False, f"no step of {len(steps)} was skipped"))
    return verdicts


def _grown(steps: Sequence[dict[str, Any]], at: int) -> str:
    """Whose gradient has grown most in a step, if the log has the norms of tensors."""
    usual: dict[str, list[float]] = {}
    for step in steps:
        for name, norm in (step.get("tensor_norms") or {}).items():
            if not step["overflow"] and not step.get("spike") and 0 < norm < math.inf:
                usual.setdefault(name, []).append(norm)
    found = [(norm / statistics.median(usual[name]), name)
             for name, norm in (steps[at].get("tensor_norms") or {}).items() if name in usual]
    if not found:
        return ""
    ratio, name = max(found)
    return f", when the gradient of {_printable(name)} had {ratio:.3g} times its usual norm"


def _scale(steps: Sequence[dict[str, Any]]) -> list[Verdict]:
    last = steps[-1]
    if not math.isfinite(last["scale"]) or last["scale"] == 0:
        limit = "min_scale, so that it can recover" if last["scale"] == 0 else "max_scale"
        return [Verdict(True, f"the scale became {last['scale']:g}: set {limit}")]
    if last["consecutive_skips"] >= _HOPELESS:
        return []
    if last["scale"] < 1:
        return [Verdict(True, f"the scale fell to {_power(last['scale'])}, below 1: gradients are larger than their"
                              " dtype holds; clip activations or use bfloat16")]
    return [Verdict(False, f"the scale ends at {_power(last['scale'])}")]


def _gradients(records: Sequence[dict[str, Any]]) -> list[Verdict]:
    """One verdict for each tensor, however often it was found, by the worst look."""
    worst: dict[str, tuple[float, str]] = {}
    times: Counter[str] = Counter()
    for record in records:
        recommended = record["recommended"]
        if recommended is None or recommended <= record["scale"]:
            continue
        for tensor in record["tensors"]:
            share = tensor["zero_count"] / tensor["count"] if tensor["count"] else 0.0
            if share < _FLUSHED:
                continue
            name = tensor["name"]
            times[name] += 1
            text = (f"{share:.0%} of {_printable(name)}'s gradients are zero at scale {_power(record['scale'])}: use >="
                    f" {_power(recommended)}")
            if name not in worst or share > worst[name][0]:
                worst[name] = (share, text)
    return [Verdict(True, text + (f" (in {times[name]} of {len(records)} looks)" if len(records) > 1 else ""))
            for name, (_, text) in worst.items()]


def _tensor(step: dict[str, Any]) -> str:
    if step["first_tensor"] < 0:
        return "a tensor of another rank"
    return f"tensor {_printable(step.get('first_name') or str(step['first_tensor']))}"


def _printable(name: str) -> str:
    """A name for a terminal: on one line, and without commands to it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def _power(scale: float) -> str:
    if not 0.0 < scale < math.inf:
        return f"{scale:g}"
    exponent = math.log2(scale)
    return f"2^{exponent:.0f}" if exponent == round(exponent) and abs(exponent) > 3 else f"{scale:g}"
