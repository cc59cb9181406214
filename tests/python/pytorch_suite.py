# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of GradScaler with gradscaler.torch.GradScaler in place of PyTorch's class.

The two functions that the class is built on, which some tests call, are replaced as well.

Usage: pytorch_suite.py [--original] FILE...; FILE is test/test_torch.py of PyTorch's sources, which are not part of
this project. Its tests for the CPU are run. A test is taken if its body names GradScaler or the functions under it, or
calls a helper that does. With --original PyTorch's class stays, to tell what fails because the sources and the
installed PyTorch differ in version. Exit status 0 if nothing failed and something passed. Needs `expecttest`.
"""

import argparse
import ast
import importlib
import importlib.util
import os
import pathlib
import re
import sys
import unittest

# Read by PyTorch's test machinery when it makes a class of tests for each device.
os.environ.update(PYTORCH_TESTING_DEVICE_ONLY_FOR="cpu")

import torch  # noqa: E402

ABOUT = re.compile(r"GradScaler|grad_scaler|_amp_(foreach|update)")


def swap():
    from gradscaler import ops
    from gradscaler.torch import _scaler as ours

    torch._amp_foreach_non_finite_check_and_unscale_ = ours._unscale
    torch._amp_update_scale_ = ops.update_scale
    original = torch.amp.GradScaler
    for module in (torch, torch.amp, torch.amp.grad_scaler):
        module.GradScaler = ours.GradScaler
    # The deprecated names are subclasses that add a default for the device and a warning.
    for module in (torch.cpu.amp, torch.cuda.amp):
        assert module.GradScaler.__bases__ == (original,)
        module.GradScaler.__bases__ = (ours.GradScaler,)


def names_about_it(source):
    """Names of the test methods of a file that are about GradScaler, through helpers too."""
    bodies = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            bodies[node.name] = bodies.get(node.name, "") + ast.get_source_segment(source, node)
    found = {name for name, body in bodies.items() if ABOUT.search(body)}
    while True:
        helpers = {name for name in found if not name.startswith("test_")}
        more = {name for name, body in bodies.items() if any(f"self.{helper}(" in body for helper in helpers)}
        if more <= found:
            return {name for name in found if name.startswith("test_")}
        found |= more


def absent(name):
    def stand_in(*arguments, **_):
        skip = unittest.skip(f"the installed PyTorch has no {name}")
        return skip(*arguments) if len(arguments) == 1 and callable(arguments[0]) else skip

    return stand_in


def prepare(source):
    """Makes the helpers of PyTorch's tests fit for a file of another version, or for another device."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.testing._internal."):
            helpers = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(helpers, alias.name):
                    print(f"the installed PyTorch has no {node.module}.{alias.name}")
                    setattr(helpers, alias.name, absent(alias.name))
    common = importlib.import_module("torch.testing._internal.common_device_type")
    instantiate = common.instantiate_device_type_tests
    # Makers of other devices keep copies of the tests that are instantiated for theirs alone.
    common.instantiate_device_type_tests = lambda template, scope, **_: instantiate(template, scope, only_for="cpu")


def load(path):
    prepare(path.read_text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # Where the tests' classes, and what they pickle, look for themselves.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", action="store_true", help="keep PyTorch's class")
    parser.add_argument("file", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    if not arguments.original:
        swap()
    selected = unittest.TestSuite()
    for path in arguments.file:
        wanted = names_about_it(path.read_text())
        # A test for a device, and perhaps of a dtype, has both in its name.
        pattern = re.compile("|".join(rf"{re.escape(name)}(_\w*cpu\w*)?" for name in sorted(wanted)) or "(?!)")
        # One by one: PyTorch's way of loading a file refuses to be run by another.
        kinds = [kind for kind in vars(load(path)).values() if isinstance(kind, type)]
        for kind in [kind for kind in kinds if issubclass(kind, unittest.TestCase)]:
            selected.addTests(kind(name) for name in dir(kind) if pattern.fullmatch(name))
    result = unittest.TextTestRunner(verbosity=2).run(selected)
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped) - len(result.expectedFailures)
    print(f"torch {torch.__version__}, {'torch.amp' if arguments.original else 'gradscaler.torch'}.GradScaler:"
          f" {result.testsRun} tests, {passed} passed, {failed} failed,"
          f" {len(result.skipped)} cannot apply")
    for case, reason in result.skipped:
        print(f"  {case.id()}: {reason}")
    return 0 if result.wasSuccessful() and passed else 1


if __name__ == "__main__":
    sys.exit(main())
