# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for the device let other threads of Python run meanwhile: all whose C function ends in _sync.

On the CPU none of them takes long enough to be seen waiting, so the declarations for SWIG are read.
"""

import re

import pytest

from conftest import ROOT

SWIG = ROOT / "bindings" / "swig"
SYNC = [name for name in (ROOT / "capi" / "functions.txt").read_text().split() if name.endswith("_sync")]


def methods():
    """The bodies of the methods that SWIG makes, by `struct::method`, with those of the helpers that they call."""
    helpers = dict(re.findall(r"^static [^;{]*?(\w+)\([^;{]*\) \{\n(.*?)^\}", (SWIG / "support.h").read_text(),
                              re.DOTALL | re.MULTILINE))
    found = {}
    for file in ("objects.i", "python.i"):
        for struct, block in re.findall(r"^%extend (\w+) \{\n(.*?)^\}", (SWIG / file).read_text(),
                                        re.DOTALL | re.MULTILINE):
            for name, body in re.findall(r"^  [\w *]*?(\w+)\([^{]*?\)(?: \{(.*?)(?:\n  )?\}|;)$", block,
                                         re.DOTALL | re.MULTILINE):
                called = [text for helper, text in helpers.items() if f"{helper}(" in body]
                found[f"{struct}::{name}"] = "\n".join([body, *called])
    return found


@pytest.mark.parametrize("function", SYNC)
def test_the_lock_is_released_while_waiting(function):
    released = re.findall(r"^%thread (\S+);", (SWIG / "python.i").read_text(), re.MULTILINE)
    waiting = [name for name, body in methods().items() if f"{function}(" in body]
    assert waiting, "no method calls it"
    assert [name for name in waiting if name not in released] == []
