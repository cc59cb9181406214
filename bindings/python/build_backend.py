# SPDX-License-Identifier: Apache-2.0
"""scikit-build-core with decisions that depend on the machine.

On Python 3.11 or later the wheel is for all later versions of Python too (abi3). This needs SWIG 4.2, which comes from
PyPI if the machine has none or an older one, as Debian 12 does. Builds without isolation take nothing from PyPI and
print the cost of an older SWIG. Metadata needs no compilation, and a source distribution does not read what it leaves
out.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig

from scikit_build_core import build as _backend

_PYPI_SWIG = "swig>=4.2"
_ABI3_SWIG = (4, 2)


def _swig_version():
    swig = shutil.which("swig")
    if swig is None:
        return None
    found = re.search(r"(\d+)\.(\d+)", subprocess.run([swig, "-version"], capture_output=True, text=True).stdout)
    return (int(found[1]), int(found[2])) if found else None


def _extra_requirements():
    version = _swig_version()
    return [] if version is not None and version >= _ABI3_SWIG else [_PYPI_SWIG]


def _settings(config_settings):
    settings = dict(config_settings or {})
    version = _swig_version()
    if sys.version_info < (3, 11) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        # A free-threaded CPython has no abi3.
        return settings
    if version is not None and version >= _ABI3_SWIG:
        settings.setdefault("wheel.py-api", "cp311")
    elif version is not None:
        print(f"gradscaler: SWIG {version[0]}.{version[1]} is older than 4.2, so the wheel is for Python"
              f" {sys.version_info[0]}.{sys.version_info[1]} alone", file=sys.stderr)
    return settings


def _require_compiler():
    """A sentence instead of a page of CMake."""
    if os.environ.get("CXX") or any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl", "icpx")):
        return
    raise SystemExit("gradscaler: no C++ compiler was found; install g++ (Debian, Ubuntu: apt install g++, Fedora: dnf"
                     " install gcc-c++), or set CXX to one")


def get_requires_for_build_wheel(config_settings=None):
    """The requirements of scikit-build-core, and the above."""
    return [*_backend.get_requires_for_build_wheel(config_settings), *_extra_requirements()]


def get_requires_for_build_editable(config_settings=None):
    """As for a wheel."""
    return [*_backend.get_requires_for_build_editable(config_settings), *_extra_requirements()]


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The wheel's metadata, which must name the same versions of Python as the wheel."""
    return _backend.prepare_metadata_for_build_wheel(metadata_directory, _settings(config_settings))


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """As for a wheel."""
    return _backend.prepare_metadata_for_build_editable(metadata_directory, _settings(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel."""
    _require_compiler()
    return _backend.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds an editable wheel: the Python sources stay here, what is compiled is installed."""
    _require_compiler()
    return _backend.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def get_requires_for_build_sdist(config_settings=None):
    """The first scikit-build-core that does not look into excluded folders: build/ is large, and has links to /."""
    return [*_backend.get_requires_for_build_sdist(config_settings), "scikit-build-core>=0.12"]


def build_sdist(sdist_directory, config_settings=None):
    """Builds the source distribution."""
    settings = {"minimum-version": "0.12", "sdist.inclusion-mode": "default", **(config_settings or {})}
    return _backend.build_sdist(sdist_directory, settings)
