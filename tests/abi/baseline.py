#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recorded C ABI, tests/abi/baseline.abi.xz, and the check that it has only been extended.

  tests/abi/baseline.py              record the ABI of gradscaler.h and api.h again (after a release that extended it)
  tests/abi/baseline.py --check      fail if anything was removed or changed since it was recorded
  tests/abi/baseline.py --self-test  show on altered copies of the header that --check detects what it must
  --cc CC                           the C compiler; gcc or clang

The record is made from a stub library with debug information, which scripts/gen-api generates from the headers: empty
functions of the right types. So it does not depend on how the real library was built or on its opaque types. That the
real library has the same functions is checked elsewhere: capi/api_table.cpp takes the address of each, and tests/abi
compares its exports with the list. Exit status 77: skipped because a tool is missing, with the reason.
"""
import argparse
import lzma
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = ROOT / "tests/abi/baseline.abi.xz"
HEADER = pathlib.Path("include/gradscaler/gradscaler.h")
# The bits of abidiff's exit status.
TOOL_FAILED, ABI_CHANGED = 1 | 2, 4 | 8


def leave_out(reason):
    print(f"abi-baseline: left out, {reason}")
    sys.exit(77)


def run(*command):
    subprocess.run([str(part) for part in command], check=True)


def record(tree, work, cc):
    """Writes the ABI of a source tree's headers to work/current.abi and returns that path."""
    stub, library, result = work / "stub.c", work / "libgradscaler_abi.so", work / "current.abi"
    run(sys.executable, ROOT / "scripts/gen-api", "--root", tree, "--stub", stub)
    run(cc, "-std=c99", "-g", "-O0", "-w", "-shared", "-fPIC", f"-I{tree / 'include'}", stub, "-o", library)
    run("abidw", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--no-elf-needed", "--no-parameter-names",
        "--type-id-style", "hash", "--out-file", result, library)
    result.write_text(result.read_text().replace(str(stub), stub.name))  # the folder is a new one every time
    return result


class Record:
    """The structs of a recorded ABI."""

    def __init__(self, path):
        self.root = xml.etree.ElementTree.parse(path).getroot()
        self.types = {node.get("id"): node for node in self.root.iter() if node.get("id")}
        structs = (node for node in self.root.iter("class-decl") if node.find("data-member") is not None)
        self.members = {node.get("name"): self.members_of(node) for node in structs}

    def describe(self, type_id):
        """A type in words, down to the names of structs, whose members are compared separately."""
        node = self.types[type_id]
        inner = self.describe(node.get("type-id")) if node.get("type-id") and node.tag != "function-type" else ""
        if node.tag == "function-type":
            parameters = [self.describe(p.get("type-id")) for p in node.iter("parameter")]
            return f"{self.describe(node.find('return').get('type-id'))}({', '.join(parameters)})"
        if node.tag == "pointer-type-def":
            return f"{inner} *"
        if node.tag == "qualified-type-def":
            return f"{inner} const"
        if node.tag == "array-type-def":
            return f"{inner}[{node.get('size-in-bits')} bits]"
        return inner or node.get("name")

    def members_of(self, node):
        return [(int(member.get("layout-offset-in-bits")) // 8, member.find("var-decl").get("name"),
                 self.describe(member.find("var-decl").get("type-id"))) for member in node.iter("data-member")]

    def growing(self):
        """Structs with a struct_size may gain fields at the end, and so may the function table."""
        return [name for name, members in self.members.items() if members[0][1] == "struct_size"]


def differences(tree, work, cc, baseline):
    """"" if there were only additions since the baseline; else a report of the other changes."""
    current = record(tree, work, cc)
    old, new = Record(baseline), Record(current)
    # Compared here because abidiff misses these; its rule for members at the end also lets changed ones pass.
    suppressions = work / "growing.suppr"
    suppressions.write_text(f"[suppress_type]\n  name_regexp = ^({'|'.join(old.growing())})$\n  type_kind = struct\n"
                            "  has_data_member_inserted_at = end\n")
    found = ""
    for name in old.growing():
        members = new.members.get(name, [])
        for i, member in enumerate(old.members[name]):
            if members[i:i + 1] != [member]:
                found += f"{name}: was {member}, is {members[i] if i < len(members) else 'gone'} (offset, name, type)\n"
    process = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", str(suppressions), str(baseline),
                              str(current)], capture_output=True, text=True)
    if process.returncode & TOOL_FAILED:
        sys.exit(f"abi-baseline: abidiff failed\n{process.stdout}{process.stderr}")
    return found + (process.stdout if process.returncode & ABI_CHANGED else "")


def altered(work, name, edit):
    """A copy of the C headers and the function list, with gradscaler.h edited and the table regenerated."""
    tree = work / name
    for part in ("include", "capi"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("cpp"))
    before = (tree / HEADER).read_text()
    after = edit(before)
    if after == before:
        sys.exit(f"abi-baseline: the self-test `{name}` no longer finds what it edits in {HEADER}")
    (tree / HEADER).write_text(after)
    # A function that is gone stops gen-api as well; take it off the list to see abidiff's message.
    functions = tree / "capi/functions.txt"
    lines = [line for line in functions.read_text().splitlines() if not line.startswith("gsc_") or f"{line}(" in after]
    functions.write_text("\n".join(lines) + "\n")
    subprocess.run([sys.executable, ROOT / "scripts/gen-api", "--root", tree], check=True, stdout=subprocess.DEVNULL)
    return tree


def self_test(work, cc):
    def replace(old, new):
        return lambda text: text.replace(old, new, 1)

    def in_struct(struct, old, new):
        def edit(text):
            start = text.index(f"struct {struct} {{")
            end = text.index("\n}", start)
            return text[:start] + text[start:end].replace(old, new, 1) + text[end:]
        return edit

    def grow(struct):
        def edit(text):
            end = text.index("\n}", text.index(f"struct {struct} {{")) + 1
            return text[:end] + "  int64_t added;\n" + text[end:]
        return edit

    new_function = ("GSC_API gsc_status gsc_scaler_added(gsc_scaler *scaler, int32_t value);\n"
                    "/** Pointers to all functions above")
    cases = [
        ("a function was appended", False, replace("/** Pointers to all functions above", new_function)),
        ("a struct with struct_size grew at its end", False, grow("gsc_report")),
        ("options grew at their end", False, grow("gsc_scaler_options")),
        ("a struct that arrays are made of grew", True, grow("gsc_tensor")),
        ("a history entry grew", True, grow("gsc_history_entry")),
        ("a field went from float to double", True, in_struct("gsc_report", "  float scale;", "  double scale;")),
        ("a field went from int32_t to float", True,
         in_struct("gsc_scaler_options", "  int32_t enabled;", "  float enabled;")),
        ("a field changed while its struct grew", True,
         lambda text: grow("gsc_report")(in_struct("gsc_report", "  double grad_norm;", "  int64_t grad_norm;")(text))),
        ("a field was inserted in the middle", True,
         in_struct("gsc_optimizer_options", "  double lr;", "  double added;\n  double lr;")),
        ("a field was removed", True, in_struct("gsc_report", "  int64_t nan_count;\n", "")),
        ("a parameter changed its type", True,
         replace("gsc_scaler_set_scale(gsc_scaler *scaler, float", "gsc_scaler_set_scale(gsc_scaler *scaler, double")),
        ("a parameter was added", True,
         replace("gsc_scaler_discard(gsc_scaler *scaler,", "gsc_scaler_discard(gsc_scaler *scaler, int32_t more,")),
        ("a callback changed its type", True,
         replace("(*gsc_log_fn)(void *user, int32_t level,", "(*gsc_log_fn)(void *user, int64_t level,")),
        ("a function was removed", True,
         lambda text: re.sub(r"GSC_API gsc_status gsc_scaler_discard\([^;]*;\n", "", text)),
    ]
    original = record(ROOT, work, cc).rename(work / "original.abi")
    record_of_original = Record(original)
    if not {"gsc_api", "gsc_report"} <= set(record_of_original.growing()) or len(record_of_original.members) < 12:
        sys.exit(f"abi-baseline: the record lacks structs; it has {sorted(record_of_original.members)}")
    wrong = 0
    for number, (name, must_be_caught, edit) in enumerate(cases):
        found = differences(altered(work, f"{number}", edit), work, cc, original)
        good = bool(found) == must_be_caught
        wrong += not good
        print(f"{'ok  ' if good else 'WRONG'} {name}: {'caught' if found else 'allowed'}")
        if not good:
            print(found)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--cc", default="cc")
    arguments = parser.parse_args()
    for tool in ("abidw", "abidiff", arguments.cc):
        if not shutil.which(tool):
            leave_out(f"{tool} was not found (package abigail-tools)" if tool.startswith("abi")
                      else f"no compiler {tool}")
    if platform.machine() != "x86_64":
        leave_out(f"the record is of x86_64, this is {platform.machine()}")

    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        if arguments.self_test:
            sys.exit(1 if self_test(work, arguments.cc) else 0)
        if arguments.check:
            baseline = work / "baseline.abi"
            baseline.write_bytes(lzma.decompress(BASELINE.read_bytes()))
            found = differences(ROOT, work, arguments.cc, baseline)
            if found:
                sys.exit(f"{found}\nabi-baseline: the C ABI changed in a way that breaks compiled callers. Undo it; "
                         "add a function or grow a struct at its end instead. See docs on the ABI policy.")
            print("abi-baseline: nothing but additions since the record")
            return
        BASELINE.write_bytes(lzma.compress(record(ROOT, work, arguments.cc).read_bytes(), preset=9))
        print(f"abi-baseline: wrote {BASELINE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
