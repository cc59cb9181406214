# SPDX-License-Identifier: Apache-2.0
"""Python: the words for enumerations, the fields of options, reports and states, and the optimizers, in modules of
their own. Part of scripts/gen-api."""
import textwrap

import api

FOLDER = "bindings/python/gradscaler"

TYPES = {"float": "float", "double": "float", "int32_t": "int", "int64_t": "int"}
# Those whose names are arguments in Python. Its dtypes and norms are NumPy's and PyTorch's, its optimizers are classes.
IN_PYTHON = {"HysteresisRefill", "GrowthTiming", "FloorAction", "SpikeAction", "Preset", "DeviceType", "CpuTarget"}


def make_python(interface):
    lines = ["# SPDX-License-Identifier: Apache-2.0",
             f'"""The words for the constants of the library. {api.NOTE}"""', "",
             "from __future__ import annotations", "", "from ._native import Names, native", ""]
    for enum in interface.enums:
        if enum.name not in IN_PYTHON:
            continue
        variable = api.constant_name(enum.name)
        names = ", ".join(f'"{item.name.lower()}"' for item in enum.items)
        call = f'{variable} = Names("{enum.prefix[len("GSC_"):]}", {names})'
        lines += [f"#: {line}" for line in textwrap.wrap(enum.text, api.WIDTH - 3)]
        lines += textwrap.wrap(call, api.WIDTH, subsequent_indent=" " * (call.index("(") + 1))
    lines += ["#: The state slots of each kind of optimizer.", "SLOTS: dict[int, tuple[str, ...]] = {"]
    for kind in interface.kinds:
        slots = ", ".join(f'"{slot}"' for slot in kind.slot_names)
        lines.append(f"    native.{kind.constant}: ({slots}{',' * (len(kind.slots) == 1)}),")
    lines += ["}", "#: Those that a kind has only with a flag, or, None, with momentum.",
              "SLOT_NEEDS: dict[int, dict[str, int | None]] = {"]
    for kind in interface.kinds:
        needs = [f'"{slot["name"]}": '
                 + ("None" if slot["if"] in kind.options else f"native.OPTIMIZER_{slot['if'].upper()}")
                 for slot in kind.slots if "if" in slot]
        if needs:
            lines += packed(f"    native.{kind.constant}: {{", needs, "},")
    lines += ["}", "#: Kinds whose steps need the norms of whole tensors, and their names."]
    layerwise = [f'native.{kind.constant}: "{kind.name}"' for kind in interface.kinds if kind.norms]
    lines += packed("LAYERWISE = {", layerwise, "}")
    return "\n".join([*lines, ""])


# Arguments of PyTorch's GradScaler, which are not among the keywords of a policy.
PYTORCHS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
# None in what gradscaler.torch's scaler reports, which does not always take them.
NOT_ALWAYS_TAKEN = {"gsc_report": ("grad_norm", "grad_amax"), "gsc_history_entry": ("grad_norm", "nonfinite_count")}


PYTHON = api.Language("`{}`".format, lambda kind, name: f":attr:`gradscaler.{kind}.{api.method(name)}`",
                      lambda _, item: f'"{item.name.lower()}"', "None", "True", "False")


def may_be_none(field):
    """A limit whose 0 is none."""
    return field.none is not None


def opposite(flag):
    """no_finite_guard is the argument finite_guard."""
    return flag.name.startswith("no_")


def type_of(field):
    if field.enum:
        return "Literal[" + ", ".join(f'"{item.name.lower()}"' for item in field.enum.items) + "]"
    if field.boolean:
        return "bool"
    return TYPES[field.ctype] + " | None" * may_be_none(field)


def keywords(struct):
    """The keys of a TypedDict."""
    lines = []
    for field in struct.all:
        name, text = field.name, PYTHON.described(field, struct, "None")
        if field.name in PYTORCHS:
            continue
        if opposite(field):
            name, text = name.removeprefix("no_"), f"False: {text[0].lower()}{text[1:]}"
        lines += [*api.wrapped(text, "#: "), f"{name}: {type_of(field)}"]
    return lines


def names(title, comment, found):
    line = f"{title} = ({', '.join(found)})"
    return [comment, *textwrap.wrap(line, api.WIDTH, subsequent_indent=" " * (len(title) + 4))]


def tables(struct):
    """The names of the arguments by what they are."""
    plain = [field for field in struct.fields if not field.enum and not field.boolean]
    lines = ["#: Arguments that are words.", "WORDS = {"]
    lines += [f'    "{field.name}": {api.constant_name(field.enum.name)},' for field in struct.fields if field.enum]
    lines += ["}"]
    lines += names("INTEGERS", "#: 32-bit integers.", [f'"{f.name}"' for f in plain if f.ctype == "int32_t"])
    lines += names("REALS", "#: Numbers.", [f'"{f.name}"' for f in plain if f.ctype != "int32_t"])
    lines += names("SCALES", "#: Of these the fp32.", [f'"{f.name}"' for f in plain if f.ctype == "float"])
    lines += names("LIMITS", "#: Of these the ones that may be None, the library's 0.",
                   [f'"{f.name}"' for f in plain if may_be_none(f)])
    applied = [f'"{field.name.removeprefix("no_")}"' for field in struct.all if field.jax]
    lines += names("JAX", "#: Arguments that gradscaler.jax applies on the device.", applied)
    lines += ["#: By argument: the flag, and whether the argument is its opposite.", "FLAGS = {"]
    lines += [f'    "{flag.name.removeprefix("no_")}": (native.{flag.constant}, {opposite(flag)}),'
              for flag in struct.flags]
    return [*lines, "}"]


def ends(text):
    """A range of the header in Python: (low, high, whether it has low, whether it has high)."""
    found = api.range_of(text)
    low, high = (end and (end.replace("^", "**") if "^" in end else float(end)) for end in found[:2])
    return f"({'-inf' if low is None else low}, {'inf' if high is None else high}, {found.has_low}, {found.has_high})"


def ranges(struct):
    """Those of an optimizer's options, and those that are narrower for a kind."""
    lines = ["#: Ranges of options: their ends, and whether these belong to them.",
             "RANGES: dict[str, tuple[float, float, bool, bool]] = {"]
    lines += [f'    "{field.name}": {ends(field.range)},' for field in struct.fields if field.range]
    lines += ["}", "#: And those that are narrower for a kind.", "NARROWER_RANGES = {"]
    for kind in struct.api.kinds:
        narrower = [f'"{name}": {ends(option["range"])}' for name, option in kind.options.items() if "range" in option]
        if narrower:
            lines += packed(f"    native.{kind.constant}: {{", narrower, "},")
    lines += ["}", "#: Flags that are arguments by keyword, by kind.", "KEYWORD_FLAGS = {"]
    lines += [packed(f"    native.{kind.constant}: (", [f'"{name}"' for name in keyword_flags_of(kind)],
                     "," * (len(keyword_flags_of(kind)) == 1) + "),")[0]
              for kind in struct.api.kinds if keyword_flags_of(kind)]
    return [*lines, "}"]


def values(struct):
    """Fields of a dataclass."""
    lines = []
    for field in struct.fields + struct.flags:
        missing = field.name in NOT_ALWAYS_TAKEN.get(struct.name, ())
        text = PYTHON.words(field.text, struct) + " None if it was not taken." * missing
        lines += [*api.wrapped(text, "#: "),
                  f"{field.name}: {type_of(field)}" + " | None" * missing]
    return lines


def read(struct):
    """The same from the library's struct `found`."""
    return [f"{field.name}=bool(found.{field.name})," if field.boolean else f"{field.name}=found.{field.name},"
            for field in struct.fields] + [
        f"{flag.name}=bool(found.flags & native.{flag.constant})," for flag in struct.flags]


FIELDS_HEAD = f'''\
# SPDX-License-Identifier: Apache-2.0
"""The fields of options, reports and states: names of arguments, keys and values.
{api.NOTE}"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypedDict

from ._enums import $WORDS
from ._native import native

'''

# What a dataclass has before the library's fields.
BEFORE = {"gsc_tensor_diagnosis": ["name: str | None"]}


def make_fields(interface):
    """The tables of policy.py and hyper.py, and the dataclasses of report.py and tensors.py."""
    options, state, optimizer = (interface.type(f"gsc_{name}")
                                 for name in ("scaler_options", "scaler_state", "optimizer_options"))
    beyond = [f'"{f.name}"' for f in state.fields if f.name not in (*PYTORCHS, "scale", "growth_tracker")]
    lines = [*tables(options),
             *names("COUNTERS", "#: What a state of the scaler has beyond PyTorch's state dict.", beyond),
             "OPTIMIZER_FLAGS = {",
             *(f'    "{flag.name}": native.{flag.constant},' for flag in optimizer.flags), "}",
             *ranges(optimizer),
             *packed("Preset = Literal[", [f'"{item.name.lower()}"' for item in interface.enum("Preset").items], "]"),
             "", "",
             "class Policy(TypedDict, total=False):",
             '    """Options of :class:`gradscaler.GradScaler` beyond PyTorch\'s. Each has the default that is'
             ' PyTorch\'s policy."""', "", *(f"    {line}" for line in keywords(options))]
    for name in ("report", "history_entry", "tensor_diagnosis"):
        struct = interface.type(f"gsc_{name}")
        lines += ["", "", "@dataclass(frozen=True)", f"class {api.pascal(name)}:",
                  '    """The library\'s fields."""', "",
                  *(f"    {line}" for line in [*BEFORE.get(struct.name, []), *values(struct)]), "", "",
                  f"def {name}_of(found: Any) -> dict[str, Any]:", '    """Their values in the library\'s struct."""',
                  "    return dict(", *(f"        {line}" for line in read(struct)), "    )"]
    words = sorted(api.constant_name(field.enum.name) for field in options.fields if field.enum)
    return FIELDS_HEAD.replace("$WORDS", ", ".join(words)) + "\n".join([*lines, ""])


#: Flags that no class of torch.optim has: arguments by keyword, and in gradscaler.torch options of any class.
KEYWORD_FLAGS = ("cautious", "cautious_decay")


def keyword_flags_of(kind):
    return [name for name in KEYWORD_FLAGS if name in kind.arguments]


def arguments_of(kind):
    """The arguments of an optimizer, in the order of its options in the header. Two betas are one."""
    arguments = [name for name in kind.arguments if name not in KEYWORD_FLAGS]
    if "beta2" not in kind.options:
        return arguments
    return [{"beta1": "betas"}.get(name, name) for name in arguments if name != "beta2"]


OPTIMIZERS_HEAD = f'''\
# SPDX-License-Identifier: Apache-2.0
"""The optimizers: their arguments, with PyTorch's names and defaults. What they share is in :mod:`.optim`.
{api.NOTE}"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._enums import SLOTS
from ._native import native
from .device import DeviceLike
from .optim import Optimizer

_State = Mapping[str, Any] | str

'''


def make_optimizers(struct):
    """The class of each kind."""
    lines = []
    for kind in struct.api.kinds:
        name, keys = kind.name, arguments_of(kind)
        keywords = [*keyword_flags_of(kind), *(["param_min", "param_max"] if "average" not in kind.slot_names else [])]
        parameters = ["self", "params: Any", "grads: Any = None", *(argument(struct, kind, key) for key in keys), "*",
                      "maximize: bool = False", "model_copy: Any = None", "zero_grads: bool = False",
                      "write_grads: bool = False", "count_unchanged: bool = False", "ema_decay: float = 0.0",
                      "ema_warmup: bool = False", *(argument(struct, kind, key) for key in keywords),
                      'state: _State = "fp32"',
                      "master: str | None = None", "seed: int = 0", "device: DeviceLike = None"]
        taken = (*keys, "maximize", "zero_grads", "write_grads", "count_unchanged", "ema_decay", "ema_warmup",
                 *keywords)
        assigned = [f"{key}={key}" for key in taken]
        lines += ["", "", f"class {name}(Optimizer):", f'    """{kind.text}', "",
                  f"    State: {api.slots_of(kind, '``')}.", '    """', "",
                  "    __slots__ = ()", f"    _KIND = native.{kind.constant}",
                  *packed("    _KEYS = (", [f'"{key}"' for key in (*keys, "maximize")], ")"),
                  f"    _SLOTS = SLOTS[native.{kind.constant}]", "",
                  *packed("    def __init__(", parameters, ") -> None:"),
                  *packed("        super().__init__(params, grads, dict(", assigned, "),"),
                  f"{'':25}model_copy=model_copy, state=state, master=master, seed=seed, device=device)"]
    lines = [*packed("__all__ = [", [f'"{kind.name}"' for kind in struct.api.kinds], "]"), *lines]
    return OPTIMIZERS_HEAD + "\n".join([*lines, ""])


OTHERS_HEAD = f'''\
# SPDX-License-Identifier: Apache-2.0
"""The optimizers that torch.optim does not have. What all have in common is in :mod:`._optimizers`.
{api.NOTE}

Their numbers are in the ranges of docs/reference/options.md, and `maximize` steps up the gradient.
{{LAYERWISE}} take no sharded parameters, whose norms no rank knows.
"""

from __future__ import annotations

from typing import Any

from .._native import native
from ..policy import Unpack
from ._optim import FusedOptimizer, Own
from ._optimizers import Rate, ScheduleFree, checked

'''

# The kinds whose classes in gradscaler.torch are written by hand: subclasses of torch.optim's.
IN_TORCH = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam")


def make_others(struct):
    """The class in gradscaler.torch of each kind that torch.optim does not have."""
    lines, names = [], []
    for kind in struct.api.kinds:
        name, keys = kind.name, arguments_of(kind)
        if name in IN_TORCH:
            continue
        names.append(f'"{name}"')
        parameters = ["self", "params: Any", *(argument(struct, kind, key) for key in keys), "*",
                      "maximize: bool = False", "fused: bool | None = None", "**own: Unpack[Own]"]
        parameters[2] = parameters[2].replace("float", "Rate")
        options = [f"{key}={key}" for key in (*keys, "maximize", "fused")]
        options += ["train_mode=True"] * ("average" in kind.slot_names)
        slots = [f"``{slot}``" for slot in kind.slot_names]
        base = "ScheduleFree" if "average" in kind.slot_names else "FusedOptimizer"
        state = ", ".join(["``step``", *slots[:-1]]) + f" and {slots[-1]}"
        lines += ["", "", f"class {name}({base}):", f'    """{kind.text}', "", f"    State: {state}.",
                  *api.wrapped(f"{', '.join(f'`{key}`' for key in (*keys, 'maximize'))}: see"
                                  " :class:`gradscaler.Optimizer`.", "    "),
                  '    """', "", f"    _KIND = native.{kind.constant}", "",
                  *packed("    def __init__(", parameters, ") -> None:"),
                  "        self._setup(fused, **own)",
                  *packed("        super().__init__(params, checked(", ["self._KIND", *options], "))")]
    layerwise = api.listed([kind.name for kind in struct.api.kinds if kind.norms])
    return OTHERS_HEAD.replace("{LAYERWISE}", layerwise) + "\n".join([*packed("__all__ = [", names, "]"), *lines, ""])


def argument(struct, kind, key):
    """A parameter of a constructor."""
    if key in {flag.name for flag in struct.flags}:
        return f"{key}: bool = False"
    if key == "betas":
        return f"betas: tuple[float, float] = ({kind.defaults['beta1']}, {kind.defaults['beta2']})"
    if key in {field.name for field in struct.fields if field.ctype == "int64_t"}:
        return f"{key}: int = {kind.defaults.get(key, 0)}"
    return f"{key}: float = {kind.defaults.get(key, '0.0')}"


def packed(head, pieces, tail):
    """`head` piece, piece `tail`, broken between pieces and aligned with the first."""
    lines = [head + pieces[0]]
    for i, piece in enumerate(pieces[1:], 2):
        end = tail if i == len(pieces) else ","
        if len(lines[-1]) + len(f", {piece}{end}") <= api.WIDTH:
            lines[-1] += f", {piece}"
        else:
            lines[-1] += ","
            lines.append(" " * len(head) + piece)
    return [*lines[:-1], lines[-1] + tail]


def files(interface, _):
    """{path: text} of the modules."""
    options = interface.type("gsc_optimizer_options")
    return {f"{FOLDER}/_enums.py": make_python(interface), f"{FOLDER}/_fields.py": make_fields(interface),
            f"{FOLDER}/optimizers.py": make_optimizers(options), f"{FOLDER}/torch/_others.py": make_others(options)}
