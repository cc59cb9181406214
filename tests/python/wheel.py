# SPDX-License-Identifier: Apache-2.0
"""Installs the package as a user does, by pip from the sources into a clean virtual environment, and tests it there.

Usage: wheel.py SOURCE WORK. The compiler's results are kept in WORK for the next time. CUDA is left out: it would take
minutes, and what is tested here is the packaging. Exit status 0 if everything passed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

# What the package must bring, apart from its modules.
PARTS = ["_gradscaler*.so", "_jax_ffi.so", "lib/libgradscaler.so.*", "include/gradscaler/gradscaler.h", "py.typed"]


def main(source, work):
    source, work = pathlib.Path(source).resolve(), pathlib.Path(work).resolve()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    # A path with a blank and not under the sources, where nothing but what was installed can be found.
    home, shelf = work / "clean environment", work / "wheel"
    shutil.rmtree(shelf, ignore_errors=True)
    venv.create(home, clear=True, with_pip=True)

    def run(*command, **options):
        print("+", *command, flush=True)
        return subprocess.run([str(word) for word in command], check=True, cwd=work, env=environment, **options)

    python = home / "bin" / "python"
    # Not -C: the pip of Debian 12 knows the long name only.
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", shelf, source,
        f"--config-settings=build-dir={work / 'build'}", "--config-settings=cmake.define.GRADSCALER_CUDA=OFF")
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
    run(python, "-B", "-m", "pytest", "-c", source / "pyproject.toml", "--rootdir", source, source / "tests/python")
    run(python, "-B", source / "examples/python/numpy_digits.py", "200")


if __name__ == "__main__":
    main(*sys.argv[1:])
