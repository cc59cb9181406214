# SPDX-License-Identifier: Apache-2.0
"""Installs the package as a user does, by pip from the sources into a clean virtual environment, and tests it there.

Then once more as a developer does, editable, without isolation of the build. JAX is that of the Python that runs this,
where it has it.

Usage: wheel.py SOURCE WORK [--quick]. The compiler's results are kept in WORK for the next time. CUDA and optimisation
would take minutes, and are left out. --quick runs three test files, without the type checkers.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

PARTS = ["_gradscaler*.so", "_jax_ffi.so", "lib/libgradscaler.so.*", "include/gradscaler/gradscaler.h", "py.typed"]


def settings(work):
    defines = ("GRADSCALER_CUDA=OFF", "GRADSCALER_VULKAN=OFF", "CMAKE_CXX_FLAGS_RELEASE=-O1",
               "GRADSCALER_KERNEL_FLAGS=-O1", "GRADSCALER_KERNEL_SETS=NATIVE")
    return [f"--config-settings=build-dir={work / 'build'}",
            *(f"--config-settings=cmake.define.{each}" for each in defines)]


QUICK = ("test_package.py", "test_scaler.py", "test_optim.py")


def main(source, work, quick=""):
    source, work = pathlib.Path(source).resolve(), pathlib.Path(work).resolve()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    # A path with a blank and not under the sources, where only what was installed can be found.
    home, shelf = work / "clean environment", work / "wheel"
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(shelf, ignore_errors=True)
    venv.create(home, clear=True, with_pip=True)

    def run(*command, check=True, more=None, **options):
        print("+", *command, flush=True)
        return subprocess.run([str(word) for word in command], check=check, cwd=work,
                              env={**environment, **(more or {})}, **options)

    python = home / "bin" / "python"
    # Not -C: the pip of Debian 12 knows the long name only.
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", shelf, source, *settings(work))
    (wheel,) = shelf.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", wheel)
    run(python, "-m", "gradscaler", "info")
    listed = run(python, "-m", "pip", "list", "--format=freeze", stdout=subprocess.PIPE, text=True).stdout
    extra = {line.partition("==")[0] for line in listed.split()} - {"gradscaler", "pip", "setuptools", "wheel"}
    assert not extra, f"installing it brought {extra}"
    found = run(python, "-c", "import gradscaler; print(gradscaler.__file__)", stdout=subprocess.PIPE, text=True).stdout
    package = pathlib.Path(found.strip()).parent
    assert home in package.parents, f"{package} is not what was installed"
    for part in PARTS:
        assert list(package.glob(part)), f"{wheel.name} has no {part}"

    run(python, "-m", "pip", "install", "-q", f"{wheel}[test]")
    tests = source / "tests/python"
    run(python, "-B", "-m", "pytest", "-c", source / "pyproject.toml", "--rootdir", source,
        *([*(tests / name for name in QUICK), "-k", "not test_types_"] if quick else [tests]))
    run(python, "-B", source / "examples/python/numpy_digits.py", "200")
    editable(source, work, run)
    print("installed as a wheel and editable")


def editable(source, work, run):
    home = work / "editable environment"
    venv.create(home, clear=True, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "scikit-build-core>=0.10", "ninja", "swig>=4.2")
    # As for the wheel: what was compiled there is not compiled again.
    run(python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", source,
        *settings(work), more={"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"})
    run(python, "-m", "gradscaler", "info")
    script = work / "found.py"
    script.write_text("import gradscaler, gradscaler.build\n"
                      "print(gradscaler.__file__, gradscaler.get_library(), gradscaler.get_include(),"
                      " gradscaler.build.PACKAGE / '_jax_ffi.so', sep='\\n')\n")
    found = run(python, script, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert pathlib.Path(found[0]) == source / "bindings/python/gradscaler/__init__.py", found
    for path in found[1:]:
        assert pathlib.Path(path).exists() and home in pathlib.Path(path).parents, found
    theirs = {"PYTHONPATH": sysconfig.get_path("purelib")}
    if importlib.util.find_spec("jax"):
        run(python, "-c", "import gradscaler.jax as g, numpy; print(g.unscale_check([numpy.ones(2)], 0.5))",
            more=theirs)


if __name__ == "__main__":
    main(*sys.argv[1:])
