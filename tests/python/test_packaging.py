# SPDX-License-Identifier: Apache-2.0
"""The decisions of the build of wheels before it compiles, and the package's description on PyPI."""

import importlib.util
import re
import sys
import types

import pytest

from conftest import ROOT

BACKEND = ROOT / "bindings" / "python" / "build_backend.py"


@pytest.fixture
def backend(monkeypatch):
    """The backend on top of one that records what it is asked; scikit-build-core itself is tested by python.wheel."""
    asked = []

    def record(name):
        return lambda *arguments: asked.append((name, arguments)) or []

    names = ("build_wheel", "build_editable", "build_sdist", "get_requires_for_build_sdist",
             "get_requires_for_build_wheel", "get_requires_for_build_editable", "prepare_metadata_for_build_wheel",
             "prepare_metadata_for_build_editable")
    build = types.SimpleNamespace(**{name: record(name) for name in names})
    monkeypatch.setitem(sys.modules, "scikit_build_core", types.SimpleNamespace(build=build))
    monkeypatch.setitem(sys.modules, "scikit_build_core.build", build)
    spec = importlib.util.spec_from_file_location("build_backend", BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.asked = asked
    return module


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_a_missing_compiler_is_said_in_a_sentence(backend, monkeypatch, tmp_path, hook):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SystemExit, match=r"no C\+\+ compiler was found; install g\+\+"):
        getattr(backend, hook)(str(tmp_path))
    assert backend.asked == []


@pytest.mark.parametrize("version, required, tag", [(None, ["swig>=4.2"], None), ((4, 1), ["swig>=4.2"], None),
                                                    ((4, 2), [], "cp311"), ((4, 10), [], "cp311")])
def test_an_old_swig_does_not_cost_abi3_silently(backend, monkeypatch, capsys, version, required, tag):
    monkeypatch.setattr(backend, "_swig_version", lambda: version)
    monkeypatch.setattr(backend, "_require_compiler", lambda: None)
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    assert backend.get_requires_for_build_wheel() == backend.get_requires_for_build_editable() == required
    backend.build_wheel("there", {"build-dir": "x"})
    name, arguments = backend.asked[-1]
    assert name == "build_wheel" and arguments[1].get("wheel.py-api") == tag and arguments[1]["build-dir"] == "x"
    monkeypatch.setattr(backend.sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    backend.build_wheel("there")
    assert "wheel.py-api" not in backend.asked[-1][1][1]
    said = capsys.readouterr().err
    assert ("SWIG 4.1 is older than 4.2, so the wheel is for Python 3.12 alone" in said) == (version == (4, 1))


def test_the_source_distribution_passes_by_what_is_excluded(backend):
    # scikit-build-core before 0.12 looks into excluded folders too, and follows links there: wine's leads to /.
    assert "scikit-build-core>=0.12" in backend.get_requires_for_build_sdist()
    backend.build_sdist("there", {"sdist.reproducible": "false"})
    assert backend.asked[-1] == ("build_sdist", ("there", {"minimum-version": "0.12", "sdist.inclusion-mode": "default",
                                                           "sdist.reproducible": "false"}))


def test_metadata_needs_no_compiler(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    backend.prepare_metadata_for_build_wheel(str(tmp_path))
    assert backend.asked[-1][0] == "prepare_metadata_for_build_wheel"


def test_the_description_is_the_readme_of_the_package_and_stands_alone():
    project = (ROOT / "pyproject.toml").read_text()
    assert 'readme = "bindings/python/README.md"' in project and "authors = " in project
    text = (ROOT / "bindings" / "python" / "README.md").read_text()
    # PyPI has no files next to it.
    assert "```python" in text and not re.findall(r"\]\((?!https?://)", text)
