# SPDX-License-Identifier: Apache-2.0
"""scikit-build-core with decisions that depend on the machine.

SWIG comes from PyPI if the machine has none. With SWIG 4.2 or later on Python 3.11 or later the wheel is for all later
versions of Python too (abi3); otherwise it is for this one.
"""

import re
import shutil
import subprocess
import sys

from scikit_build_core import build as _backend
from scikit_build_core.build import build_editable, build_sdist, get_requires_for_build_sdist  # noqa: F401

_PYPI_SWIG = "swig>=4.2"


def _swig_version():
    swig = shutil.which("swig")
    if swig is None:
        return None
    found = re.search(r"(\d+)\.(\d+)", subprocess.run([swig, "-version"], capture_output=True, text=True).stdout)
    return (int(found[1]), int(found[2])) if found else None


def _extra_requirements():
    return [] if _swig_version() else [_PYPI_SWIG]


def _settings(config_settings):
    settings = dict(config_settings or {})
    version = _swig_version()
    if version is not None and version >= (4, 2) and sys.version_info >= (3, 11):
        settings.setdefault("wheel.py-api", "cp311")
    return settings


def get_requires_for_build_wheel(config_settings=None):
    """What scikit-build-core needs, and the above."""
    return [*_backend.get_requires_for_build_wheel(config_settings), *_extra_requirements()]


def get_requires_for_build_editable(config_settings=None):
    """As for a wheel."""
    return [*_backend.get_requires_for_build_editable(config_settings), *_extra_requirements()]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel."""
    return _backend.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)
