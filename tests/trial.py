#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the recipes of CONTRIBUTING.md in a copy of the last commit.

  tests/trial.py [field | getter | optimizer | dtype]...

A trial edits the copy (build/trial), runs scripts/gen-api, builds, runs the tests of what it touched, and takes the
edits back. It prints the files that it edited, those that gen-api wrote, and what the tests said. Exit status 1 if one
failed.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/trial"
HEADER = "include/gradscaler/gradscaler.h"
LANGUAGES = "java.(Exceptions|Scaler|PublicApi)Test|csharp.ScalerTests|rust.tests|python.(optim|scaler|package)$"


# The number of kinds of optimizer.
KINDS = next(len(enum["items"]) for enum in json.loads((ROOT / "bindings/api.json").read_text())["enums"]
             if enum.get("type") == "OptimizerKind")
KIND = f""",
  /**
   * A trial.
   * @name{{Trial}}
   * @slots{{exp_avg: moment}}
   * @options{{lr 1e-4, beta1 0.9, weight_decay 0}}
   */
  GSC_TRIAL = {KINDS}
}};

/** Bits of gsc_optimizer_options.flags"""
EQUATIONS = """**Trial** (nobody, never)

```
LR = lr    B1 = 1 - b1    K = 1 - lr * wd
m = b1 * m + B1 * g
p = p * K - LR * sign(m)                        (0, -0 and NaN stay)
```

"""


SIGNUM = '''def trial(p, state, g, t, lr, beta1, weight_decay):
    m = beta1 * state[0] + (1 - beta1) * g
    doubtful = np.abs(m) <= 2.0**-22 * (np.abs(beta1 * state[0]) + np.abs((1 - beta1) * g))
    return p - lr * (np.sign(m) + weight_decay * p), (m,), doubtful

'''


def formula(read):
    """Lion made into signSGD with momentum, which has one beta, with a coefficient of its own."""
    text = read("core/rules/optim/lion.h").replace("Lion", "Trial").replace("LION", "TRIAL")
    for before, after in (
            ("  static constexpr bool kInBatches = true;\n", ""),
            ("kStates = 1;\n", "kStates = 1;\n  enum Own : int32_t { kShare, kOwnCount };\n"),
            ("    return common_coefficients(h, lr, maximize);\n",
             "    Coefficients<double> c = common_coefficients(h, lr, maximize);\n"
             "    c.own[kShare] = c.one_minus_beta1;\n    return c;\n"),
            ("return c.one_minus_beta2;", "return c.one_minus_beta1;"),
            ("c.one_minus_beta1 * g", "c.own[kShare] * g"),
            ("state[0] = c.beta2 * state[0] + c.one_minus_beta2 * g;", "state[0] = blend;")):
        if before not in text:
            sys.exit(f"trial: lion.h does not have {before!r}")
        text = text.replace(before, after)
    return text


# By name: edits (file, anchor, what replaces it; without an anchor the whole file); tests.
TRIALS = {
    "field": ([
        (HEADER, "  int32_t reserved;\n};\n\n/** PyTorch's policy.",
         "  /** A trial. @range{>= 1} @none{0} @default{0} */\n  int32_t trial;\n};\n\n/** PyTorch's policy."),
        ("core/objects/scaler_options.cpp",
         '  if (o.reserved != 0) refuse_value(kOptions.field("reserved"), o.reserved, "0");\n', ""),
        ("tests/oracle/world.py", '"enabled": [1]}', '"enabled": [1], "trial": [0, 1]}'),
        ("tests/capi/option_limits_test.cpp", "{GSC_FIELD(O, reserved), {0}, {-1, 1}},\n  };\n#define GSC_ROW",
         "{GSC_FIELD(O, trial), {0, 1, kMaxInt}, {-1}},\n  };\n#define GSC_ROW"),
    ], f"abi|capi_bad_input|cpp_|bindings|oracle|{LANGUAGES}"),
    "getter": ([
        (HEADER, "/** Number of state slots. */\n", "/** Seven. */\nGSC_API gsc_status gsc_optimizer_get_trial(const "
         "gsc_optimizer *optimizer, int32_t *out_trial);\n/** Number of state slots. */\n"),
        ("core/objects/optimizer.h", "  int32_t group_count() const",
         "  int32_t trial() const { return 7; }\n  int32_t group_count() const"),
        ("tests/cpp/optimizer_test.cpp", "  EXPECT_EQ(sgd_.get_group_count(), 1);\n",
         "  EXPECT_EQ(sgd_.get_group_count(), 1);\n  EXPECT_EQ(sgd_.get_trial(), 7);\n"),
        ("tests/parity.py", '"Python": {\n', '"Python": {\n        "gsc_optimizer_get_trial": "a trial",\n'),
    ], f"abi|cpp_|capi_reliability|capi_contracts|bindings|{LANGUAGES}"),
    "optimizer": ([
        ("core/rules/optim/trial.h", None, formula),
        (HEADER, "\n};\n\n/** Bits of gsc_optimizer_options.flags", KIND),
        ("tests/support/reference_formulas.h", "      case GSC_LION: {",
         "      case GSC_TRIAL:\n        s[0] = times(b1, s[0]) + times(B1, g);\n        p = times(p, K) - "
         "times(LR, s[0] > 0 ? T(1) : s[0] < 0 ? T(-1) : s[0]);\n        return;\n      case GSC_LION: {"),
        ("docs/reference/semantics.md", "**LAMB** (", EQUATIONS + "**LAMB** ("),
        ("docs/reference/semantics.md", "| Lion |", "| Trial | `exp_avg` | 4 | 24 | nobody | 2.1 ulp |\n| Lion |"),
        ("tests/oracle/oracle.py", f") = KINDS = range({KINDS})", f", TRIAL) = KINDS = range({KINDS + 1})"),
        ("tests/oracle/oracle.py", 'LION: ["exp_avg"]', 'LION: ["exp_avg"], TRIAL: ["exp_avg"]'),
        ("tests/oracle/oracle.py", "    if o.kind == LION:",
         "    if o.kind == TRIAL:\n        m = b1 * state[0] + B1 * g\n"
         "        return p * K - LR * np.where(m > 0, T(1), np.where(m < 0, T(-1), m)), [m]\n    if o.kind == LION:"),
        ("tests/conformance/python/test_papers.py", "def lamb(", SIGNUM + "\ndef lamb("),
        ("tests/conformance/python/test_papers.py", 'RULES = {', 'RULES = {"Trial": (trial, gs.Trial, ("exp_avg",)), '),
        ("tests/conformance/python/test_papers.py", 'CASES = [',
         'CASES = [("Trial", dict(lr=1e-3, beta1=0.9, weight_decay=0.1)),\n         '),
        ("bindings/python/gradscaler/optim.py", "`nesterov`, `betas`,", "`nesterov`, `betas`, `beta1`,"),
        ("docs/performance.md", "Adagrad, Lion, RMSprop", "Adagrad, Lion, Trial, RMSprop"),
        ("docs/pytorch.md", "`Lion`, `LAMB`", "`Lion`, `Trial`, `LAMB`"),
        ("README.md", "AdEMAMix, Lion,", "AdEMAMix, Lion, Trial,"),
        ("benchmarks/optimizers.cpp", '    {"lion",', '    {"trial", {.kind = trial}, 1},\n    {"lion",'),
        ("benchmarks/gpu/bench.cpp", '        {"Lion",', '        {"Trial", trial, 20},\n        {"Lion",'),
    ], f"abi|core.optimizer_places|capi_optimizer|capi_bad_input|core.kernels.*(KernelApply|Formulas)|oracle|"
       f"docs.pages|bindings|python.torch_formats|conformance.python.papers|{LANGUAGES}"),
    "dtype": ([
        ("core/rules/convert.h", "GSC_HD float bf16_to_fp32(uint16_t value) {",
         "GSC_HD float bf16_to_fp32(uint16_t value);\n"
         "GSC_HD float trial_to_fp32(uint16_t value) { return bf16_to_fp32(value); }\n"
         "GSC_HD float bf16_to_fp32(uint16_t value) {"),
        ("core/rules/dtypes.h", "struct Fp32 {",
         "struct Trial16 : Bf16 {\n  static constexpr int32_t kCode = GSC_TRIAL16;\n"
         '  static constexpr const char *kName = "trial16";\n'
         "  GSC_HD static Value widen(Stored x) { return trial_to_fp32(x); }\n};\n\nstruct Fp32 {"),
        ("core/rules/dtypes.h", "X(Fp16) ", "X(Fp16) X(Trial16) "),
        (HEADER, "  GSC_UINT8_SQRT = 13\n", "  GSC_UINT8_SQRT = 13,\n  /** A trial: bfloat16 under another name. */\n"
         "  GSC_TRIAL16 = 14\n"),
    ], f"abi|capi_elementwise|capi_optimizer|{LANGUAGES}"),
}


def run(*command, **options):
    done = subprocess.run(command, cwd=COPY, capture_output=True, text=True, check=False, **options)
    return done.returncode == 0, done.stdout + done.stderr


def fresh_copy():
    """Keeps the builds of earlier trials: only files that differ are written again."""
    if not (COPY / ".git").exists():
        add = ["git", "worktree", "add", "--force", "--detach", COPY]
        subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    run("git", "reset", "--hard", head.strip())
    run("git", "clean", "-fd")
    for name in ("frameworks", "toolkit"):
        if (ROOT / "build" / name).exists() and not (COPY / "build" / name).exists():
            (COPY / "build").mkdir(exist_ok=True)
            (COPY / "build" / name).symlink_to(ROOT / "build" / name)


def follow(edits):
    for name, anchor, text in edits:
        path = COPY / name
        if anchor is None:
            path.write_text(text(lambda other: (COPY / other).read_text()))
            continue
        before = path.read_text()
        if anchor not in before:
            sys.exit(f"trial: {name} does not have {anchor!r}")
        path.write_text(before.replace(anchor, text))
    return {name for name, _, _ in edits}


def trial(name):
    edits, tests = TRIALS[name]
    fresh_copy()
    by_hand = follow(edits)
    steps = [("scripts/gen-api",),
             ("cmake", "--preset", "dev"),
             ("cmake", "--build", "--preset", "dev", "-j", str(os.cpu_count()), "--", "-k", "0"),
             ("ctest", "--preset", "dev", "-j", str(os.cpu_count()), "-R", f"^({tests})")]
    said = ""
    for step in steps:
        fine, said = run(*step)
        if not fine:
            why = re.findall(r"^(?:FAILED:|.*\berror:|.*\*\*\*Failed|.*\*\*\*Not Run).*", said, re.M)
            said = f"{' '.join(step[:3])} FAILED\n" + "\n".join(why[:40] or [said[-3000:]])
            break
    else:
        said = next(line for line in said.splitlines() if "tests passed" in line)
    changed = {line[3:] for line in run("git", "status", "--porcelain")[1].splitlines()}
    print(f"{name}: by hand {' '.join(sorted(by_hand))}; by gen-api {' '.join(sorted(changed - by_hand))}; {said}",
          flush=True)
    fresh_copy()
    return fine


if __name__ == "__main__":
    sys.exit(not all([trial(name) for name in sys.argv[1:] or TRIALS]))
