#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what rules_test runs: for each translated function without memory a kernel that calls it on many arguments, and
the same call in C++."""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "core/vulkan"))

import generate  # noqa: E402
from translate.functions import Function, Unit, declaration  # noqa: E402
from translate.syntax import Tree  # noqa: E402
from translate.types import Array, Pointer, Struct  # noqa: E402


def leaves(kind, name, offset):
    """(suffix of the loader, name, offset) of every number of a type."""
    if isinstance(kind, Struct):
        for entry in kind.fields:
            yield from leaves(entry[1], entry[0], offset + entry[2])
    elif isinstance(kind, Array):
        for i in range(kind.count):
            yield from leaves(kind.element, name, offset + i * kind.element.size)
    else:
        yield kind.load if not isinstance(kind, Pointer) else "pointer", name, offset


def laid_out(kinds):
    offset, places = 0, []
    for kind in kinds:
        offset = (offset + 7) // 8 * 8
        places.append(offset)
        offset += kind.size
    return places, (offset + 7) // 8 * 8


BODY = """#include "workgroup.glsl"
void main() {
  const int i = int(WORKGROUP) * kThreads + THREAD;
  if (i >= load_i32(push.args + 24ul)) return;
  const uint64_t from = load_u64(push.args) + uint64_t(i * load_i32(push.args + 16ul));
  const uint64_t to = load_u64(push.args + 8ul) + uint64_t(i * load_i32(push.args + 20ul));
  CALL
}
"""


class Calls:
    def __init__(self, tree, arguments, folder):
        self.tree, self.arguments, self.folder = tree, arguments, folder
        self.texts, self.rows = [], []

    def add(self, name):
        unit = Unit(self.tree)
        function = Function(unit, self.tree.functions[f"gsc::vulkan::{name}"][0])
        parameters = function.parameters()
        kinds = [unit.types.of(p["type"], p["_at"]) for p in parameters]
        inputs, size = laid_out(kinds)
        reads = [leaf for k, p, o in zip(kinds, parameters, inputs, strict=True) for leaf in leaves(k, p["name"], o)]
        outputs = [i for i, p in enumerate(parameters) if function.is_written(p)]
        results = [kinds[i] for i in outputs] + ([function.result] if function.result else [])
        if any(leaf[0] == "pointer" for leaf in reads) or isinstance(function.result, Pointer) or not results:
            return
        places, result_size = laid_out(results)
        writes = [leaf for k, o in zip(results, places, strict=True) for leaf in leaves(k, "", o)]
        unit.entry(name)
        call = f"{name}({', '.join(f'p{i}' for i in range(len(kinds)))});"
        texts = [f"p{i}" for i in outputs] + (["result"] if function.result else [])

        glsl = [f"{declaration(k, f'p{i}')} = {unit.loader(k)}(from + {inputs[i]}ul);" for i, k in enumerate(kinds)]
        glsl.append(f"{function.result.glsl} result = {call}" if function.result else call)
        glsl += [f"{unit.storer(k)}(to + {o}ul, {t});" for k, o, t in zip(results, places, texts, strict=True)]
        body = generate.with_includes(BODY.replace("CALL", "\n  ".join(glsl)))
        words = generate.compile_glsl(self.arguments, name, generate.assemble(unit, (), body), self.folder)

        cpp_kinds = [f"std::remove_cvref_t<Parameter<{i}, decltype({name})>>" for i in range(len(kinds))]
        cpp = [f"auto &p{i} = at<{k}>(from, {o});" for i, (k, o) in enumerate(zip(cpp_kinds, inputs, strict=True))]
        cpp.append(f"auto result = {call}" if function.result else call)
        cpp += [f"put(to, {o}, {t});" for o, t in zip(places, texts, strict=True)]
        lines = "\n  ".join(cpp)
        self.texts.append(f"void call_{name}(char *from, char *to) {{\n  {lines}\n}}")
        self.texts.append(generate.array_text(f"words_{name}", words))
        row = f'"{name}", {size}, {result_size}, {self.leaf_texts(reads)}, {self.leaf_texts(writes)}'
        self.rows.append(f"{{{row}, call_{name}, words_{name}, sizeof words_{name}}}")

    @staticmethod
    def leaf_texts(parts):
        return "{" + ", ".join(f'{{"{kind}", "{name}", {offset}}}' for kind, name, offset in parts) + "}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--clang", default="clang++")
    parser.add_argument("--glslang", default="glslangValidator")
    parser.add_argument("--validator")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = folder / "rules.cpp"
        source.write_text('#include "tests/vulkan/rules_entries.h"\n')
        tree = Tree(arguments.clang, source, [ROOT, ROOT / "include"])
        calls = Calls(tree, arguments, folder)
        for name, nodes in tree.functions.items():
            is_template = tree.parent[nodes[0]["id"]]["kind"] == "FunctionTemplateDecl"
            is_ours = name.startswith("gsc::vulkan::") and name.count("::") == 2 and "/rules" in nodes[0]["_at"]
            if is_ours and not is_template and len(nodes) == 1:
                calls.add(name.removeprefix("gsc::vulkan::"))
    rows = ",\n".join(calls.rows)
    arguments.output.write_text("\n".join([*calls.texts, f"const Call kCalls[] = {{\n{rows}}};\n"]))


if __name__ == "__main__":
    main()
