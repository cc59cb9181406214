# SPDX-License-Identifier: Apache-2.0
"""The layers of the package's modules, as docs/dev/bindings.md has them: imports go up in its table, in no circle."""

import ast
import pathlib
import re

import gradscaler as gs
from conftest import ROOT

PACKAGE = pathlib.Path(gs.__file__).parent
#: Modules that are compiled or made by SWIG, which import nothing of the package.
COMPILED = {"_gradscaler", "_swig"}


def layers_of(page):
    """{module: number of its layer}"""
    rows = re.findall(r"^\| [^|]+ \| ((?:`[\w.]+`(?:, )?)+) \|$", page, re.MULTILINE)
    found = [(name, number) for number, row in enumerate(rows) for name in re.findall(r"`([\w.]+)`", row)]
    assert len(dict(found)) == len(found), "a module is in two layers"
    return dict(found)


def sources_of(package):
    """{module: its source}; the package itself is called gradscaler."""
    found = {}
    for file in package.rglob("*.py"):
        *folders, stem = file.relative_to(package).with_suffix("").parts
        name = ".".join(folders if stem == "__init__" else [*folders, stem]) or "gradscaler"
        if name not in COMPILED:
            found[name] = (file.read_text(encoding="utf-8"), file.name == "__init__.py")
    return found


def imports_of(name, source, is_package, modules):
    """The modules of the package that a source imports anywhere: in functions, and for type checkers alone, too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("gradscaler.") for alias in node.names
                      if alias.name.partition(".")[0] == "gradscaler"}
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            folders = [] if name == "gradscaler" else name.split(".")
            folders = folders[:len(folders) - node.level + is_package]
        elif (node.module or "").partition(".")[0] == "gradscaler":
            folders = []
        else:
            continue
        base = ".".join([*folders, *(node.module or "").removeprefix("gradscaler").strip(".").split(".")]).strip(".")
        inner = {f"{base}.{alias.name}".strip(".") for alias in node.names}
        # `from .module import name`, or `from . import module`.
        found |= inner & modules
        if inner - modules - COMPILED:
            found.add(base or "gradscaler")
    return found - COMPILED - {name}


def errors_of(layers, sources):
    errors = [f"{name} is in no layer of docs/dev/bindings.md" for name in sources.keys() - layers.keys()]
    errors += [f"{name} of docs/dev/bindings.md is no module" for name in layers.keys() - sources.keys()]
    imports = {name: imports_of(name, *source, sources.keys()) for name, source in sources.items()}
    for name, imported in imports.items():
        errors += [f"{name} imports {other}, of a later layer" for other in imported
                   if layers.get(other, 0) > layers.get(name, len(layers))]
    # What is left when all have gone whose imports have gone.
    while free := {name for name, imported in imports.items() if not imported & imports.keys()}:
        imports = {name: imported for name, imported in imports.items() if name not in free}
    return errors + [f"{name} imports {', '.join(sorted(imports[name] & imports.keys()))} in a circle"
                     for name in sorted(imports)]


def test_modules_are_in_layers():
    layers = layers_of((ROOT / "docs" / "dev" / "bindings.md").read_text(encoding="utf-8"))
    assert not errors_of(layers, sources_of(PACKAGE))


def test_circles_and_imports_of_later_layers_are_seen():
    layers = {"errors": 0, "report": 1, "torch._plan": 2}
    sources = {"errors": ("if TYPE_CHECKING:\n    from .report import Report\n", False),
               "report": ("def late():\n    from . import errors\n", False),
               "torch._plan": ("from .. import report, _swig\nimport gradscaler.errors\n", False)}
    assert errors_of(layers, sources) == ["errors imports report, of a later layer",
                                          "errors imports report in a circle", "report imports errors in a circle",
                                          "torch._plan imports errors, report in a circle"]
    sources["errors"] = ("from typing import Any\n", False)
    assert not errors_of(layers, sources)
    assert errors_of({"errors": 0}, sources)
