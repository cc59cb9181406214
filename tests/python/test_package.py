# SPDX-License-Identifier: Apache-2.0
"""The package itself: what importing it pulls in, what it ships, its types, and that waiting calls release the GIL."""

import ast
import ctypes
import dataclasses
import graphlib
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing

import pytest

import gradscaler as gs
from conftest import ROOT, library


def run(script, *options):
    """A process with the package and nothing else on its path."""
    path = str(pathlib.Path(gs.__file__).parents[1])
    return subprocess.run([sys.executable, *options, "-c", script], env={**os.environ, "PYTHONPATH": path}, text=True,
                          capture_output=True)


@pytest.mark.programs
def test_importing_needs_the_standard_library_only():
    found = run("""
import sys, gradscaler
allowed = set(sys.stdlib_module_names) | {"gradscaler", "_gradscaler", "__main__"}
extra = {name.partition(".")[0] for name in sys.modules} - allowed
print(sorted(name for name in extra if not name.startswith("swig_runtime_data")))
""", "-S")
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


@pytest.mark.programs
@pytest.mark.skipif(sys.implementation.name != "cpython", reason="subinterpreters are CPython's")
def test_subinterpreters_are_refused():
    found = run("""
import sys
interpreters = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
own = interpreters.create()
run = getattr(interpreters, "exec", None) or interpreters.run_string
try:
    print(run(own, f"import sys; sys.path[:] = {sys.path!r}; import gradscaler; print('imported')").formatted)
except interpreters.RunFailedError as error:
    print(error)
""").stdout
    # Those with a GIL of their own are refused by Python itself.
    assert "ImportError" in found and "subinterpreters" in found and "imported" not in found


@pytest.mark.programs
@pytest.mark.parametrize("enabled", [True, False])
def test_a_free_threaded_python_needs_the_gil(enabled):
    found = run(f"import sys; sys._is_gil_enabled = lambda: {enabled}; import gradscaler; print('imported')")
    assert ("ImportError: gradscaler needs the GIL; start Python without PYTHON_GIL=0" in found.stderr) != enabled
    assert ("imported" in found.stdout) == enabled


def imports_of(path, package, modules):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package.split(".")[:len(package.split(".")) - node.level + 1] + [node.module] * bool(node.module)
            for alias in node.names:
                found = ".".join(base)
                yield f"{found}.{alias.name}" if f"{found}.{alias.name}" in modules else found


def test_no_module_imports_itself_by_others():
    root = pathlib.Path(gs.__file__).parent
    modules = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    graph = graphlib.TopologicalSorter()
    for name, path in modules.items():
        # A package is its __init__, which may import everything in it; nothing imports `gradscaler` from inside.
        found = set(imports_of(path, name.rpartition(".")[0], modules)) & modules.keys()
        graph.add(name.removesuffix(".__init__"), *(found - {name}))
    graph.prepare()  # graphlib.CycleError names the circle


def test_versions():
    header = (pathlib.Path(gs.get_include()) / "gradscaler" / "gradscaler.h").read_text()
    assert gs.__version__ == ".".join(re.findall(r"GSC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    assert gs.build_info().startswith(f"gradscaler {gs.__version__}")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_library_can_be_loaded_and_is_the_one_in_use():
    library = ctypes.CDLL(gs.get_library())
    library.gsc_library_get_version.restype = ctypes.c_char_p
    assert library.gsc_library_get_version().decode() == gs.__version__
    with open("/proc/self/maps") as file:
        mapped = {line.rstrip("\n").split(maxsplit=5)[-1] for line in file if "libgradscaler" in line}
    assert mapped == {os.path.realpath(gs.get_library())}


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_c_program_builds_from_the_package(tmp_path):
    source = tmp_path / "user.c"
    source.write_text('#include <gradscaler/gradscaler.h>\n#include <string.h>\n'
                      f'int main(void) {{ return strcmp(gsc_library_get_version(), "{gs.__version__}"); }}\n')
    program, library = tmp_path / "user", gs.get_library()
    subprocess.run(["cc", "-I" + gs.get_include(), str(source), library, "-Wl,-rpath," + os.path.dirname(library),
                    "-o", str(program)], check=True)
    assert subprocess.run([str(program)]).returncode == 0


EXAMPLES = [pytest.param(page, example, id=f"{page.name}-{number}")
            for page in (ROOT / "bindings" / "python" / "README.md", ROOT / "docs" / "python.md",
                         ROOT / "docs" / "pytorch.md", ROOT / "docs" / "jax.md", ROOT / "docs" / "state.md")
            for number, example in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))]


@pytest.mark.parametrize("page, example", EXAMPLES)
def test_the_examples_of_the_documentation_run(page, example, tmp_path, monkeypatch, capsys):
    for name in set(re.findall(r"^(?:import|from) (torch|jax|optax|flax)", example, re.M)):
        library(name)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, page.name, "exec"), {})
    printed = capsys.readouterr().out
    expected = re.findall(r"^print\(.*  # (.*)$", example, re.M)
    assert expected and all(line in printed for line in expected), printed


sys.path.insert(0, str(ROOT / "bindings" / "generate"))
import gen_swig  # noqa: E402

SWIG = ROOT / "bindings" / "swig"
SYNC = [name for name in (ROOT / "capi" / "functions.txt").read_text().split() if name.endswith("_sync")]


def methods():
    """The bodies of the methods that SWIG makes, by `struct::method`, with those of the helpers that they call."""
    helpers = dict(re.findall(r"^static [^;{]*?(\w+)\([^;{]*\) \{\n(.*?)^\}", (SWIG / "support.h").read_text(),
                              re.DOTALL | re.MULTILINE))
    found = {}
    for file in ("objects.i", "python.i"):
        for struct, block in re.findall(r"^%extend (\w+) \{\n(.*?)^\}", gen_swig.expanded((SWIG / file).read_text()),
                                        re.DOTALL | re.MULTILINE):
            for name, body in re.findall(r"^  [\w *]*?(\w+)\([^{]*?\)(?: \{(.*?)(?:\n  )?\}|;)$", block,
                                         re.DOTALL | re.MULTILINE):
                called = [text for helper, text in helpers.items() if f"{helper}(" in body]
                found[f"{struct}::{name}"] = "\n".join([body, *called])
    return found


# On the CPU none of them takes long enough to be seen waiting, so the declarations for SWIG are read.
@pytest.mark.parametrize("function", SYNC)
def test_the_lock_is_released_while_waiting(function):
    released = re.findall(r"^%thread (\S+);", (SWIG / "python.i").read_text(), re.MULTILINE)
    waiting = [name for name, body in methods().items() if f"{function}(" in body]
    assert waiting, "no method calls it"
    assert [name for name in waiting if name not in released] == []


def test_devices():
    cpu = gs.devices()[0]
    assert cpu.device == "cpu" and cpu.units >= 1 and cpu.name
    assert gs.Context(threads=1).threads == 1
    assert gs.Context(cpu_target="baseline").cpu_target == "baseline"


MODULES = [pytest.param(name, needs, id=name) for name, needs in (
    ("gradscaler", None), ("gradscaler.ops", None), ("gradscaler.reducers", None), ("gradscaler.torch", "torch"),
    ("gradscaler.jax", "jax"), ("gradscaler.jax.optax", "optax"))]


def public(name, needs):
    """The things that users find in a module: its functions and classes, and their methods and properties, by name."""
    if needs:
        library(needs)
    module = importlib.import_module(name)
    for word in getattr(module, "__all__", [word for word in vars(module) if not word.startswith("_")]):
        thing = getattr(module, word)
        if getattr(thing, "__module__", "").partition(".")[0] != "gradscaler":
            continue
        yield f"{name}.{word}", thing
        # With what a class has from base classes that users do not see.
        hidden = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith("gradscaler")]
        members = {attribute: member for base in reversed(hidden) for attribute, member in vars(base).items()}
        for attribute, member in members.items():
            # Of a classmethod and a staticmethod the function.
            member = getattr(member, "__func__", member)
            # The fields of dataclasses have comments.
            made = attribute == "__init__" and not dataclasses.is_dataclass(thing)
            # PyTorch wraps an inherited `step` and puts it into the class when its first object is made.
            if any(getattr(member, "__wrapped__", thing) is vars(base).get(attribute) for base in thing.__mro__[1:]):
                continue
            if (made or not attribute.startswith("_")) and (
                    inspect.isfunction(member) or isinstance(member, property)):
                yield f"{name}.{word}.{attribute}", member


def documentation(path, thing):
    """Its docstring; of a constructor that of the class and of those of the package that it is made of."""
    if not path.endswith(".__init__"):
        return thing.__doc__ or ""
    owner = next(found for name, found in public(path.rpartition(".")[0].rpartition(".")[0], None)
                 if name == path.rpartition(".")[0])
    return " ".join(base.__doc__ or "" for base in owner.__mro__ if base.__module__.startswith("gradscaler"))


def originals(text):
    """The parameters of the original that the documentation names: ``torch.optim.SGD``, ``optax.adam``."""
    found = set()
    for name in re.findall(r"\b[Aa]s ``((?:torch|optax)\.[\w.]+)``", text):
        module, _, word = name.rpartition(".")
        found |= set(inspect.signature(getattr(importlib.import_module(module), word)).parameters)
    return found


@pytest.mark.parametrize("module, needs", MODULES)
def test_docstrings_name_what_is_taken(module, needs):
    # Users get these from others.
    made_here = ("gradscaler.Optimizer.__init__", "gradscaler.ParamGroup.__init__")
    checked = 0
    for path, thing in public(module, needs):
        text = documentation(path, thing)
        assert len(text) > 10, f"{path} has no docstring"
        if not inspect.isfunction(thing) or path in made_here:
            continue
        taken = set(inspect.signature(thing).parameters) - {"self", "cls"}
        said = set(re.findall(r"\w+", " ".join(re.findall(r"`+(.+?)`+", text, re.S))))
        missing = taken - said and taken - said - originals(text)
        where = "no docstring of its class and its bases, of which Optimizer in optim.py has the shared ones, says" \
            if path.endswith(".__init__") else "its docstring does not say"
        assert not missing, f"{path}: {where} what {sorted(missing)} are"
        checked += len(taken)
    assert checked > 1


@pytest.mark.parametrize("module, needs", MODULES)
def test_type_hints_can_be_read(module, needs):
    for _, thing in public(module, needs):
        typing.get_type_hints(thing.fget if isinstance(thing, property) else thing)
    assert typing.get_args(gs.policy.Preset) == gs.PRESETS


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy. What it has found of a module is kept for the next time."""
    library("mypy")
    cache = str(tmp_path_factory.mktemp("mypy"))
    parent = str(pathlib.Path(gs.__file__).parents[1])
    # An installed package is found by itself, and mypy refuses to be told.
    path = {} if "site-packages" in parent else {"MYPYPATH": parent}
    return lambda *arguments: subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments], env={**os.environ, **path},
        cwd=os.path.dirname(__file__), text=True, capture_output=True)


def test_types_of_the_package(mypy):
    found = mypy("--config-file", os.devnull, "-p", "gradscaler")
    assert found.returncode == 0, found.stdout + found.stderr


USER = """import gradscaler as gs
scaler = gs.GradScaler(init_scale=2.0, min_scale=1.0)
reveal_type(scaler.report().overflow)
scale: str = scaler.get_scale()
gs.GradScaler(nonsense=1)
gs.GradScaler(floor_action='abort')
gs.GradScaler.from_preset('caffe')
reveal_type(scaler.scale([1.0]))
"""


def test_types_as_users_see_them(tmp_path, mypy):
    script = tmp_path / "user.py"
    script.write_text(USER)
    found = mypy("--config-file", os.devnull, str(script)).stdout.replace("builtins.", "")
    for said in ('Revealed type is "bool"', 'Revealed type is "list[float]"', "user.py:4: error: Incompatible types",
                 "user.py:5: error: Unexpected keyword argument", 'user.py:6: error: Argument "floor_action"',
                 "user.py:7: error: Argument 1"):
        assert said in found
    assert found.count("error:") == 4, found


@pytest.mark.long
def test_types_for_pyright(tmp_path):
    library("basedpyright")
    shutil.copytree(pathlib.Path(gs.__file__).parent, tmp_path / "gradscaler",
                    ignore=shutil.ignore_patterns("_swig.py", "*.so*", "include", "__pycache__"))
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(
        {"include": ["gradscaler", "user.py"], "pythonVersion": "3.10", "typeCheckingMode": "standard"}))
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(tmp_path),
                           "--pythonpath", sys.executable], text=True, capture_output=True)
    found = [(pathlib.Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["severity"], each["message"])
             for each in json.loads(done.stdout)["generalDiagnostics"]]
    errors = [each for each in found if each[2] == "error"]
    assert [(name, line) for name, line, _, _ in errors] == [("user.py", line) for line in (4, 5, 6, 7)], errors
    told = {line: message for name, line, severity, message in found if severity == "information"}
    assert "bool" in told[3] and "list[float]" in told[8], told
