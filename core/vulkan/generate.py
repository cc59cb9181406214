#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the kernels: translates the functions of rules.h that a kernel calls, compiles the kernel with glslangValidator
and writes the SPIR-V of all as one C++ file. `--glsl DIR` keeps the GLSL."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from translate.functions import Function, Unit  # noqa: E402
from translate.spirv import adjust  # noqa: E402
from translate.syntax import Refused, Tree  # noqa: E402

HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by core/vulkan/generate.py.
#include "core/vulkan/rules.h"

namespace gsc::vulkan {
"""


def with_includes(text):
    return re.sub(r'^#include "(.*)"$', lambda m: with_includes((HERE / m[1]).read_text()), text, flags=re.M)


def kernel_bodies():
    """The text of each kernel in kernels.h. The sweeps of a step are made from one text in each arithmetic."""
    for name in re.findall(r"X\(k\w+, (\w+), \w+\)", (HERE / "kernels.h").read_text()):
        base, _, arithmetic = name.partition("_")
        real = "double" if arithmetic == "fp64" else "float"
        head = f"#define REAL {real}\n#define COEFFICIENTS Coefficients_{real}\n#define OF(name) name##_{real}\n"
        head += f"#define CODED {int(arithmetic == 'coded')}\nconst bool kIsWide = {str(real == 'double').lower()};\n"
        yield name, (head if arithmetic else "") + with_includes((HERE / f"{base}.comp").read_text())


def assemble(unit, constants, body):
    translated = unit.text()
    exact = [(HERE / "exact.glsl").read_text()] if "exact_" in translated else []
    return "\n".join(["#version 460", (HERE / "memory.glsl").read_text(), *constants, *exact, translated, body])


class Kernels:
    def __init__(self, tree):
        self.tree = tree
        self.in_memory = set()  # structs of all kernels, to check their sizes

    def source(self, body):
        """The whole of a kernel, from the text that calls translated functions."""
        words = set(re.findall(r"(?<!\.)\b\w+", body))
        # OF(name) is name_float or name_double.
        real = re.search(r"#define OF\(name\) name##(\w+)", body)
        if real:
            words |= {name + real[1] for name in re.findall(r"OF\((\w+)\)", body)}
        unit = Unit(self.tree)
        for word in sorted(words):
            access = re.fullmatch(r"(load|store)_([A-Z]\w+)", word)
            if access:
                kind = unit.types.parse(access[2], "a kernel")
                (unit.loader if access[1] == "load" else unit.storer)(kind)
            else:
                unit.entry(word)
        own = set(re.findall(r"const \w+ (k\w+) =", body))
        constants = [self.constant(unit, w) for w in sorted(words - own) if re.match("k[A-Z]", w)]
        self.in_memory |= unit.in_memory
        return assemble(unit, filter(None, constants), body)

    def constant(self, unit, name):
        variable = self.tree.constants.get(name)
        if variable is None:
            return None
        kind = unit.types.of(variable["type"], variable["_at"])
        holder = Function.__new__(Function)
        holder.unit, holder.tree, holder.types, holder.names = unit, self.tree, unit.types, {}
        holder.pre, holder.post = [], []
        return f"const {kind.glsl} {name} = {kind.glsl}({holder.constant(variable)});"


def compile_glsl(arguments, name, source, folder):
    path = folder / f"{name}.comp"
    path.write_text(source)
    binary = folder / f"{name}.spv"
    command = [arguments.glslang, "--quiet", "-S", "comp", "--target-env", "vulkan1.2", "-o", str(binary), str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{name}: glslangValidator says:\n{done.stdout.decode()}{done.stderr.decode()}")
    words = adjust(binary.read_bytes())
    if arguments.validator:
        binary.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
        command = [arguments.validator, "--target-env", "vulkan1.2", str(binary)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise Refused(f"{name}: spirv-val says:\n{done.stdout.decode()}{done.stderr.decode()}")
    return words


def array_text(name, words):
    lines = [", ".join(f"{w:#x}" for w in words[i : i + 12]) for i in range(0, len(words), 12)]
    return f"static const uint32_t {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def sizes_text(structs):
    """That the structs have the layout which the kernels take them to have."""
    return "".join(
        f"static_assert(sizeof({name}) == {size} && alignof({name}) == {align});\n"
        for name, size, align in sorted(structs)
        if "<" not in name
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the C++ file")
    parser.add_argument("--clang", default="clang++")
    parser.add_argument("--glslang", default="glslangValidator")
    parser.add_argument("--validator", help="spirv-val")
    parser.add_argument("--glsl", type=Path)
    arguments = parser.parse_args()
    root = HERE.parent.parent
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.glsl or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "rules.cpp"
        source.write_text('#include "core/vulkan/rules.h"\n')
        tree = Tree(arguments.clang, source, [root, root / "include"])
        kernels = Kernels(tree)
        names, texts = [], [HEAD]
        for name, body in kernel_bodies():
            names.append(name)
            words = compile_glsl(arguments, name, kernels.source(body), folder)
            texts.append(array_text(name, words))
        texts.append(sizes_text(kernels.in_memory))
        rows = ",\n".join(f'    {{"{n}", {n}, static_cast<int32_t>(sizeof {n} / sizeof {n}[0])}}' for n in names)
        texts.append(f"\nconst Shader kShaders[kKernelCount] = {{\n{rows}}};\n\n}}  // namespace gsc::vulkan\n")
    arguments.output.write_text("\n".join(texts))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as refused:
        sys.exit(str(refused))
