#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the built shared library from outside.

exports: its dynamic symbols are exactly the functions of bindings/api.json, in ELF those of gradscaler.h with the
         version GSC_1 and those of experiments with GSCX; or, with --prefix, all start with that, except outside of
         ELF, where a name belongs to its library, for functions of the C ABI.
needed:  it needs only libc, libm, libpthread and libdl (and libstdc++ and libgcc_s when the build links those shared);
         on Windows kernel32 and the C runtime, on macOS libSystem. There its install name is relative to the folders
         that its user names, it names none itself, and for arm64 it is signed, without which it would not be loaded.
floor:   it, or any other ELF file, asks for no symbol newer than those of glibc --glibc.
"""
import argparse
import json
import re
import subprocess
import sys

from library_file import format_of, macho_identity, read

VERSION_NODES = ("GSC_1", "GSCX")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def elf_symbols(arguments):
    """(kind, name with version) of each"""
    lines = output_of(arguments.nm, "-D", "--defined-only", arguments.library).splitlines()
    return [line.split()[-2:] for line in lines]


def exports_with_prefix(arguments):
    if format_of(arguments.library) == "elf":
        names = {symbol for _, symbol in elf_symbols(arguments)}
    else:
        names = {name for name in read(arguments.library)[0] if not name.startswith("gsc_")}
    print(f"{len(names)} exported symbols")
    wrong = sorted(name for name in names if not name.startswith(arguments.prefix))
    return [f"exported: {name}" for name in wrong] if names else ["exports nothing"]


def exports(arguments):
    if arguments.prefix:
        return exports_with_prefix(arguments)
    with open(arguments.api, encoding="utf-8") as file:
        api = json.load(file)
    wanted = {function["name"]: ("T", node)
              for node, declared in zip(VERSION_NODES, (api, api["experimental"]), strict=True)
              for function in declared["functions"]}
    if format_of(arguments.library) == "elf":
        found = {}
        for kind, symbol in elf_symbols(arguments):
            name, _, version = symbol.partition("@@")
            if name not in VERSION_NODES or kind != "A":  # some nm list the version nodes themselves
                found[name] = (kind, version)
    else:
        found = {name: wanted.get(name) for name in read(arguments.library)[0]}
    print(f"{len(found)} exported symbols, {len(wanted)} functions")
    return ([f"missing: {name}" for name in sorted(wanted.keys() - found.keys())]
            + [f"not in the list: {name}" for name in sorted(found.keys() - wanted.keys())]
            + [f"{name}: kind and version are {found[name]}, not {right}" for name, right in sorted(wanted.items())
               if found.get(name, right) != right])


def macho_problems(library):
    name, folders, oldest, signed, arm64 = macho_identity(library)
    print(f"install name {name}, macOS {oldest} or newer, {'signed' if signed else 'not signed'}")
    problems = [f"searches {folder}" for folder in folders]
    if name is None or not re.fullmatch(r"@rpath/libgradscaler[\w.]*\.dylib", name):
        problems.append(f"install name {name}")
    if oldest != "11.0":
        problems.append(f"needs macOS {oldest}")
    return problems + (["not signed, which arm64 requires"] if arm64 and not signed else [])


def needed(arguments):
    kind = format_of(arguments.library)
    if kind != "elf":
        _, libraries = read(arguments.library)
        allowed = {"pe": r"(?i)(kernel32|msvcrt|api-ms-win-crt-[a-z]+-l1-1-0)\.dll",
                   "macho": r"/usr/lib/libSystem\.B\.dylib"}[kind]
        print(f"needs {', '.join(libraries)}")
        problems = [f"needs {name}" for name in libraries if not re.fullmatch(allowed, name)]
        return problems + (macho_problems(arguments.library) if kind == "macho" else [])
    text = output_of(arguments.readelf, "-d", arguments.library)
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    allowed = r"(libc|libm|libpthread|libdl|ld-linux[-\w]*)\.so(\.\d+)*"
    if arguments.run_time == "shared":
        allowed += r"|(libstdc\+\+|libgcc_s)\.so(\.\d+)*"
    print(f"needs {', '.join(libraries)}")
    problems = [f"needs {name}" for name in libraries if not re.fullmatch(allowed, name)]
    if not any(name.startswith("libc.so") for name in libraries):
        problems.append("does not name libc: is this the output of readelf -d?")
    problems += [f"has {tag}" for tag in ("TEXTREL", "RPATH", "RUNPATH") if f"({tag})" in text]
    return problems


def floor(arguments):
    def number(version):
        return tuple(int(part) for part in version.split("."))

    text = output_of(arguments.readelf, "-V", "-W", arguments.library)
    versions = set(re.findall(r"Name: GLIBC_([0-9.]+) ", text))
    print(f"needs glibc {max(versions, key=number, default='of any version')}")
    problems = [f"needs GLIBC_{version}" for version in sorted(versions, key=number)
                if number(version) > number(arguments.glibc)]
    return problems if versions else ["names no version of glibc: is this the output of readelf -V?"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--api")
    parser.add_argument("--prefix")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--run-time", choices=["static", "shared"], default="static")
    parser.add_argument("--glibc")
    parser.add_argument("check", choices=["exports", "needed", "floor"])
    arguments = parser.parse_args()
    problems = {"exports": exports, "needed": needed, "floor": floor}[arguments.check](arguments)
    sys.exit("\n".join(problems) if problems else 0)


if __name__ == "__main__":
    main()
