# SPDX-License-Identifier: Apache-2.0
"""Getters of a number of an optimizer: capi/gsc_optimizer_getters.cpp, which calls the object's method of the getter's
name, and their list for tests. Part of scripts/gen-api."""
from api import NOTE

SOURCE, TESTS = "capi/gsc_optimizer_getters.cpp", "tests/support/getters.h"
SOURCE_HEAD = f"""\
// SPDX-License-Identifier: Apache-2.0
// Getters of a number of an optimizer: what its method of that name returns.
// {NOTE}
#include "capi/guard.h"
#include "core/objects/optimizer.h"

using namespace gsc;
using namespace gsc::capi;

// clang-format off
"""
TESTS_HEAD = f"""\
// SPDX-License-Identifier: Apache-2.0
// The getters of a number of an optimizer: X(function, type).
// {NOTE}
#ifndef GRADSCALER_TESTS_SUPPORT_GETTERS_H
#define GRADSCALER_TESTS_SUPPORT_GETTERS_H

"""


def definition(getter, out):
    head = f"gsc_status {getter.function}(const gsc_optimizer *optimizer, {getter.ctype} *{out}) {{"
    body = f'*require({out}, "{out}") = object<Optimizer>(optimizer, "optimizer").{getter.name}();'
    return ["", head, "  return guard(__func__, [&] {", f"    {body}", "  });", "}"]


def files(api, root):
    """{path: text}; the list only if there are tests, which a source package does not have."""
    outs = {function.name: function.parameters[-1].name for function in api.functions if function.parameters}
    getters = api.type("gsc_optimizer").getters
    lines = [line for getter in getters for line in definition(getter, outs[getter.function])]
    rows = [f"  X({getter.function}, {getter.ctype})" for getter in getters]
    macro = ["#define GSC_OPTIMIZER_GETTERS(X)", *rows]
    width = max(map(len, macro)) + 1
    rows = [*(f"{line:{width}}\\" for line in macro[:-1]), macro[-1]]
    found = {SOURCE: SOURCE_HEAD + "\n".join([*lines, ""])}
    if (root / "tests/support").exists():
        found[TESTS] = TESTS_HEAD + "\n".join([*rows, "", "#endif  // GRADSCALER_TESTS_SUPPORT_GETTERS_H", ""])
    return found
