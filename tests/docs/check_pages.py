#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every Markdown page: relative links and their anchors resolve, and names of C exist."""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The files where a gsc_* or GSC_* of a page must stand, and of docs/reference/abi.md every name in backticks with an
# underscore.
SOURCES = ("include", "core", "capi", "tests/abi", "tests/support")


def pages():
    """The project's pages: those that git knows, or in an unpacked archive all outside build/."""
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT,
                                capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    return [path for path in ROOT.rglob("*.md") if "build" not in path.relative_to(ROOT).parts]


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(path.read_text(encoding="utf-8")), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def broken_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            yield f"{page.relative_to(ROOT)}: {target}: no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{page.relative_to(ROOT)}: {target}: no such heading"


def unknown_names(documentation):
    sources = [ROOT / "CMakeLists.txt", *(p for name in SOURCES for p in (ROOT / name).rglob("*") if p.is_file())]
    known = set()
    for path in sources:
        known.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    for page in documentation:
        text = page.read_text(encoding="utf-8")
        names = set(re.findall(r"\b(?:gsc|GSC)_\w*[A-Za-z0-9]\b(?![*_])", text))
        if page == ROOT / "docs/reference/abi.md":
            names.update(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", text))
        yield from (f"{page.relative_to(ROOT)}: {name} is not in the sources" for name in sorted(names - known))


def main():
    docs = ROOT / "docs"
    found = [line for page in pages() for line in broken_links(page)]
    found += unknown_names([ROOT / "README.md", *sorted(docs.rglob("*.md"))])
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
