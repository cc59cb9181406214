#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if Python or C# lacks a function of the C ABI or an option. Usage: parity.py <root of the sources>

bindings/swig calls the C functions, and the sources of the languages call its methods. So a function is there if a
method in bindings/swig calls it, directly or by helpers, and the language's sources call that method. An option is
there if the language's classes of options have its name. First the script shows that it sees a function and a field
that are missing. Java's test is ExceptionsTest, that of C++ tests/cpp/covers_c_header.py.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bindings/generate"))
import api  # noqa: E402
import gen_swig  # noqa: E402

# The folder of the sources, their spelling of a method, and the beginning of a call of the native layer.
LANGUAGES = {
    "Python": ("bindings/python/gradscaler", "*.py", lambda method: method,
               r"(?:_h|handle|native|_diagnosed\(\))"),
    "C#": ("bindings/csharp/src", "*.cs", lambda method: "".join(word.capitalize() for word in method.split("_")), ""),
}
# The functions that a language does without, and the reasons.
LEFT_OUT = {
    "Python": {
        "gsc_context_set_log": "errors are exceptions; the library logs for C programs",
        "gsc_scaler_read_report_async": "needs pinned memory",
        "gsc_optimizer_get_group_count": "an optimizer has its groups",
        "gsc_tensor_list_get_name": "a list has its names", "gsc_context_get_device": "a context has its device",
        "gsc_optimizer_set_device_lr": "the learning rate is a number of param_groups",
        "gsc_optimizer_get_save_size": "state_dict has the arrays", "gsc_optimizer_save_sync": "state_dict",
        "gsc_optimizer_load_sync": "load_state_dict", "gsc_status_get_name": "errors are classes",
    },
    "C#": {"gsc_status_get_name": "Status is an enumeration",
           "gsc_library_get_abi_version": "the package has its library"},
}
# Options that are not the caller's, and words of another name.
NOT_OPTIONS = {"struct_size", "flags", "reserved"}
PYTHON_WORDS = {"beta1": "betas", "beta2": "betas", "kind": "_KIND"}


def sources(folder, pattern):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob(pattern)))


def bodies(text):
    return {m[1]: m[2] for m in re.finditer(r"^\w[\w *]*?\b(\w+)\([^;{}]*\) \{\n(.*?)^\}", text, re.M | re.S)}


def methods():
    """{method: what it calls} of bindings/swig, by the name that languages see, without its last underscore."""
    swig = sources("bindings/swig", "*.i")
    found = {name: {function} for name, function in re.findall(r"^%rename\((\w+)\) (gsc_\w+);", swig, re.M)}
    found |= {name: {name} for name in bodies(swig)}
    entries = r'EntryPoint="(\w+)"\)\]\s+internal static extern \w+ (\w+)'
    found |= {name: {entry} for entry, name in re.findall(entries, swig)}
    for struct, block in re.findall(r"^%extend (gsc_\w+) \{\n(.*?)^\}", gen_swig.expanded(swig), re.M | re.S):
        for name, body in re.findall(r"^  (?!return|if)[^\n(]*?(\w+)\([^)]*\)(;| \{[^\n]*\}$| \{\n.*?^  \}$)", block,
                                     re.M | re.S):
            name = name.rstrip("_")
            called = {f"{struct}_{name}"} if body == ";" else set(re.findall(r"\bgsc_\w+", body))
            found.setdefault(name, set()).update(called)
    return found


def reachable(names, helpers):
    """C functions behind names, through the helpers of bindings/swig."""
    seen, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += re.findall(r"\b\w+", helpers.get(name, ""))
    return seen


def missing_functions(language, functions):
    folder, pattern, spelled, caller = LANGUAGES[language]
    text = sources(folder, pattern)
    helpers = bodies(sources("bindings/swig", "*.[hi]"))
    there = {"gsc_error_clear", "gsc_error_get_message", "gsc_error_get_last"}  # in every call
    there |= {f"gsc_{kind}_{verb}" for kind in ("context", "tensor_list", "scaler", "optimizer")
             for verb in ("create", "destroy")}
    for method, called in methods().items():
        if re.search(rf"{caller}\.({spelled(method)}|{method})\b", text):
            there |= reachable(called, helpers)
    there |= {f"gsc_{kind}_options_init" for kind in ("context", "scaler", "optimizer")}
    return [f for f in functions if f not in there]


def missing_options(language, fields):
    folder, pattern, spelled, _ = LANGUAGES[language]
    text = sources(folder, "*Options*.cs" if language == "C#" else pattern)
    names = {field: spelled(field) if language == "C#" else PYTHON_WORDS.get(field, field) for field in fields}
    wanted = r"public \w+ {}\b" if language == "C#" else r"\b{}\b"
    return [field for field, name in names.items()
            if field not in NOT_OPTIONS and not re.search(wanted.format(name), text)]


def main():
    listed = (ROOT / "capi/functions.txt").read_text(encoding="utf-8").splitlines()
    functions = [line for line in listed if line.startswith("gsc_")]
    structs = api.load(ROOT).structs
    fields = [field["name"] for name in ("gsc_scaler_options", "gsc_optimizer_options")
              for field in structs[name]["fields"]]
    errors = []
    for language in LANGUAGES:
        if missing_functions(language, ["gsc_scaler_trial"]) != ["gsc_scaler_trial"]:
            errors.append(f"{language}: a function that it lacks passes")
        if missing_options(language, ["trial_option"]) != ["trial_option"]:
            errors.append(f"{language}: an option that it lacks passes")
        missing = {*missing_functions(language, functions), *missing_options(language, fields)}
        left_out = LEFT_OUT[language].keys()
        errors += [f"{language} lacks {name}: add it, or the reason to LEFT_OUT in tests/parity.py"
                   for name in missing - left_out]
        errors += [f"{language} has {name}, which LEFT_OUT names" for name in left_out - missing]
    print(f"{len(functions)} functions, {len(fields)} options")
    print("\n".join(errors))
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
