# SPDX-License-Identifier: Apache-2.0
"""Shared by the systems: seeds and lengths of the runs, versions of installed packages, and finding files of packages
whose whole import needs more than a loss scaler does."""

import importlib.metadata
import importlib.util
import os
import sys
import types

# No overflow, nothing else, and one of each kind of pattern (KINDS in record.py); of these, three.
ALL_SEEDS = tuple(range(8))
SOME_SEEDS = (0, 3, 6)
STEPS = 5000
SHORT = 1000


def package_version(package):
    return f"{package} {importlib.metadata.version(package)}"


def package_file(package, path):
    """Path of a file that an installed distribution brought, without importing it."""
    for f in importlib.metadata.files(package):
        if str(f) == path:
            return str(f.locate())
    raise FileNotFoundError(f"{package} has no {path}")


def load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def stub(name, **attributes):
    """Puts an empty module in the place of one that the loss scaler imports but does not need."""
    module = types.ModuleType(name)
    module.__path__ = []
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def drive(update, scale, overflows):
    out = []
    for overflow in overflows:
        update(overflow)
        out.append(float(scale()))
    return out


def source_file(name):
    return os.path.join(os.environ["GSC_CONFORMANCE_SOURCES"], name)
