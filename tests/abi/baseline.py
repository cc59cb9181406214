#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C ABI as it was released, tests/abi/baseline.txt, and the check that it has only been extended.

  tests/abi/baseline.py          record the ABI of gradscaler.h (after a release that extended it)
  tests/abi/baseline.py --check  fail if anything recorded was removed or changed, or if an altered header passes

The record has a line for each function and callback, with its types, and for each struct, with the types and names of
its fields; tests/abi/layout.inc has offsets and constants. Experiments, whose headers are not read, are in neither.
Before the first release there is no record.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/generate"))
import read_header  # noqa: E402

RECORD = ROOT / "tests/abi/baseline.txt"
# Edits of the header, and whether they break compiled callers.
EDITS = [
    (r"(GSC_API gsc_status gsc_scaler_step\()", r"GSC_API gsc_status gsc_added(gsc_scaler *scaler);\n\1", False),
    (r"(struct gsc_report \{.*?)(\n\})", r"\1\n  int64_t added;\2", False),
    (r"(struct gsc_tensor \{.*?)(\n\})", r"\1\n  int64_t added;\2", True),
    (r"(struct gsc_report \{.*?)  float scale;", r"\1  int32_t scale;", True),
    (r"(struct gsc_optimizer_options \{.*?\n)(  /\*\*[^/]*\*/\n  double lr;)", r"\1  double added;\n\2", True),
    (r"(struct gsc_report \{.*?)  int64_t nan_count;", r"\1", True),
    (r"gsc_scaler_set_scale\(gsc_scaler \*scaler, float", "gsc_scaler_set_scale(gsc_scaler *scaler, double", True),
    (r"gsc_scaler_discard\(gsc_scaler \*scaler,", "gsc_scaler_discard(gsc_scaler *scaler, int32_t more,", True),
    (r"\(\*gsc_log_fn\)\(void \*user, int32_t level", "(*gsc_log_fn)(void *user, int64_t level", True),
    (r"/\*\*(?:(?!\*/).)*\*/\nGSC_API gsc_status gsc_scaler_discard\([^;]*;", "", True),
]


def declarations(header):
    """{name: what compiled callers rely on}."""
    api, found = read_header.read(header), {}
    for kind, mark in (("functions", ""), ("callbacks", "(*)")):
        for function in api[kind]:
            types = ", ".join(parameter["type"] for parameter in function["parameters"])
            found[function["name"]] = f"{function['result']} {mark}({types})"
    for struct in api["structs"]:
        found[struct["name"]] = "; ".join(f"{field['type']} {field['name']}[{field.get('elements', '')}]"
                                          for field in struct["fields"])
    return found


def changes(old, new):
    """A struct with struct_size may gain fields at its end."""
    def is_kept(before, after):
        return after == before or before.startswith("uint32_t struct_size") and after.startswith(before + "; ")
    return [f"{name}: was {before}, is {new.get(name, 'gone')}" for name, before in old.items()
            if not is_kept(before, new.get(name, ""))]


def main():
    header = (ROOT / "include/gradscaler/gradscaler.h").read_text()
    now = declarations(header)
    if "--check" not in sys.argv:
        RECORD.write_text("".join(f"{name}: {text}\n" for name, text in now.items()))
        return
    for pattern, replacement, breaks in EDITS:
        altered = re.sub(pattern, replacement, header, count=1, flags=re.S)
        if altered == header or bool(changes(now, declarations(altered))) != breaks:
            sys.exit(f"baseline: an edit of {pattern} is {'missed' if breaks else 'refused'}")
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    if lost := changes(dict(line.split(": ", 1) for line in lines), now):
        sys.exit("\n".join(lost) + "\nbaseline: compiled callers break. Add a function or grow a struct at its end "
                 "instead; docs/reference/abi.md has the rules.")
    print(f"baseline: {len(now)} declarations, of which {len(lines)} are recorded and unchanged")


if __name__ == "__main__":
    main()
