# SPDX-License-Identifier: Apache-2.0
"""The public C header holds nothing that jextract and its likes cannot translate: bit fields, long double, variadic
functions, flexible arrays, unions, types whose size depends on the platform, and structs passed or returned by value.
Argument: the header. Reads declarations only, so it needs no C parser."""

import re
import sys

ALLOWED = {"char", "double", "float", "int32_t", "int64_t", "uint8_t", "uint32_t", "void"}


def declarations(text):
    """Statements outside of comments and directives, braces split off."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.M)
    text = re.sub(r'extern\s+"C"\s*\{', " ", text)
    return [" ".join(part.split()) for part in re.split(r"[;{}]", text) if part.strip()]


def problems(text):
    structs = set(re.findall(r"typedef struct (\w+)", text))
    scalars = ALLOWED | {"gsc_status", "gsc_stream"}
    found = []
    for line in declarations(text):
        if re.search(r":\s*\d", line):
            found.append(("bit field", line))
        if re.search(r"\bunion\b|\[\s*\]|\.\.\.|\blong double\b", line):
            found.append(("union, flexible array, variadic or long double", line))
        call = re.match(r"(?:GSC_API|typedef) (?!struct)(.*?)\(\*?(\w+)\)?\((.*)\)$|GSC_API (.*?)(\w+)\((.*)\)$", line)
        if not call:
            continue
        result = call[1] or call[4]
        arguments = (call[3] or call[6]).split(",")
        for argument in [result + " result", *arguments]:
            words = [w for w in re.findall(r"\w+", argument) if w not in ("const", "struct")]
            if not words:
                continue
            callback = words[0].endswith("_fn")
            if "*" not in argument and words[0] not in scalars and not callback:
                found.append(("by value, or of unknown size", argument.strip() + " in " + line))
            if "*" in argument and words[0] not in scalars | structs:
                found.append(("pointer to unknown type", argument.strip() + " in " + line))
    return found


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    count = len(re.findall(r"^GSC_API", text, flags=re.M))
    assert count > 50, count
    # The check itself must see each kind.
    for bad in ("GSC_API gsc_status f(gsc_report r);", "GSC_API size_t f(void);", "GSC_API int32_t f(int32_t n, ...);",
                "typedef struct s { uint32_t a : 3; } s;", "typedef struct s { int32_t a[]; } s;",
                "typedef void (*gsc_x_fn)(gsc_report r);", "GSC_API gsc_status f(size_t *n);"):
        assert len(problems(text + bad)) == len(problems(text)) + 1, bad
    found = problems(text)
    for kind, where in found:
        print(f"{kind}: {where}")
    return 1 if found else 0


sys.exit(main())
