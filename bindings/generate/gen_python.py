# SPDX-License-Identifier: Apache-2.0
"""Python: the words for enumerations, the fields of options, reports and states, and the optimizers, in modules that
the build makes. Part of scripts/gen-api."""
import re
import textwrap

import header

TYPES = {"float": "float", "double": "float", "int32_t": "int", "int64_t": "int"}
# Those whose names are arguments in Python. Its dtypes and norms are NumPy's and PyTorch's, its optimizers are classes.
IN_PYTHON = {"HysteresisRefill", "GrowthTiming", "FloorAction", "Preset", "DeviceType", "CpuTarget"}


def make_python(enums):
    lines = ["# SPDX-License-Identifier: Apache-2.0",
             f'"""The words for the constants of the library. {header.NOTE}"""', "",
             "from __future__ import annotations", "", "from ._native import Names, native", ""]
    for enum in enums:
        if enum.name not in IN_PYTHON:
            continue
        variable = header.constant_name(enum.name)
        names = ", ".join(f'"{name.lower()}"' for _, name, _ in enum.items)
        call = f'{variable} = Names("{enum.prefix[len("GSC_"):]}", {names})'
        lines += [f"#: {line}" for line in textwrap.wrap(enum.comment, header.WIDTH - 3)]
        lines += textwrap.wrap(call, header.WIDTH, subsequent_indent=" " * (call.index("(") + 1))
    lines += ["#: The state slots of each kind of optimizer.", "SLOTS: dict[int, tuple[str, ...]] = {"]
    for kind in header.kinds_of(enums):
        slots = ", ".join(f'"{slot}"' for slot in kind.slots)
        lines.append(f"    native.{kind.constant}: ({slots}{',' * (len(kind.slots) == 1)}),")
    return "\n".join([*lines, "}", ""])


# Arguments of PyTorch's GradScaler, which are not among the keywords of a policy.
PYTORCHS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
# None in what gradscaler.torch's scaler reports, which does not always take them.
NOT_ALWAYS_TAKEN = {"gsc_report": ("grad_norm", "grad_amax"), "gsc_history_entry": ("grad_norm", "nonfinite_count")}


def doc(struct, text):
    def member(kind, name):
        return f":attr:`gradscaler.{kind}.{header.method(name)}`"

    text = header.words(text, struct, "`{}`".format, member, lambda _, name: f'"{name.lower()}"', "None")
    for enum in struct.enums:
        text = re.sub(rf"\b{enum.name}\b",
                      ", ".join(f'"{name.lower()}"' for _, name, _ in enum.items[:-1])
                      + f' or "{enum.items[-1][1].lower()}"', text)
    text = text.replace("Default true", "Default True")
    return header.wrapped(text, "#: ")


def may_be_none(field):
    """A limit of the scale whose 0 is none."""
    return field.ctype == "float" and "0: none" in field.text


def opposite(flag):
    """no_finite_guard is the argument finite_guard."""
    return flag.name.startswith("no_")


def type_of(field):
    if field.enum:
        return "Literal[" + ", ".join(f'"{name.lower()}"' for _, name, _ in field.enum.items) + "]"
    if field.boolean:
        return "bool"
    return TYPES[field.ctype] + " | None" * may_be_none(field)


def keywords(struct):
    """The keys of a TypedDict."""
    lines = []
    for field in struct.all:
        name, text = field.name, field.text.replace("0: none. Default 0", "None: none. Default None")
        if field.name in PYTORCHS:
            continue
        if opposite(field):
            name, text = name.removeprefix("no_"), f"False: {text[0].lower()}{text[1:]}"
        lines += [*doc(struct, text), f"{name}: {type_of(field)}"]
    return lines


def names(title, comment, found):
    line = f"{title} = ({', '.join(found)})"
    return [comment, *textwrap.wrap(line, header.WIDTH, subsequent_indent=" " * (len(title) + 4))]


def tables(struct):
    """The names of the arguments by what they are."""
    plain = [field for field in struct.fields if not field.enum and not field.boolean]
    lines = ["#: Arguments that are words.", "WORDS = {"]
    lines += [f'    "{field.name}": {header.constant_name(field.enum.name)},' for field in struct.fields if field.enum]
    lines += ["}"]
    lines += names("INTEGERS", "#: 32-bit integers.", [f'"{f.name}"' for f in plain if f.ctype == "int32_t"])
    lines += names("REALS", "#: Numbers.", [f'"{f.name}"' for f in plain if f.ctype != "int32_t"])
    lines += names("SCALES", "#: Of these the fp32.", [f'"{f.name}"' for f in plain if f.ctype == "float"])
    lines += names("LIMITS", "#: Of these the ones that may be None, the library's 0.",
                   [f'"{f.name}"' for f in plain if may_be_none(f)])
    lines += ["#: By argument: the flag, and whether the argument is its opposite.", "FLAGS = {"]
    lines += [f'    "{flag.name.removeprefix("no_")}": (native.{flag.constant}, {opposite(flag)}),'
              for flag in struct.flags]
    return [*lines, "}"]


def values(struct):
    """Fields of a dataclass."""
    lines = []
    for field in struct.fields + struct.flags:
        missing = field.name in NOT_ALWAYS_TAKEN.get(struct.name, ())
        lines += [*doc(struct, field.text + " None if it was not taken." * missing),
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
{header.NOTE}"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ._enums import FLOOR_ACTION, GROWTH_TIMING, HYSTERESIS_REFILL
from ._native import native

'''

# What a dataclass has before the library's fields.
BEFORE = {"gsc_tensor_diagnosis": ["name: str | None"]}


def make_fields(text, enums):
    """The tables of policy.py and hyper.py, and the dataclasses of report.py and tensors.py."""
    options, state, optimizer = (header.Struct(f"gsc_{name}", text, enums)
                                 for name in ("scaler_options", "scaler_state", "optimizer_options"))
    beyond = [f'"{f.name}"' for f in state.fields if f.name not in (*PYTORCHS, "scale", "growth_tracker")]
    presets = next(enum for enum in enums if enum.name == "Preset")
    lines = [*tables(options),
             *names("COUNTERS", "#: What a state of the scaler has beyond PyTorch's state dict.", beyond),
             "OPTIMIZER_FLAGS = {",
             *(f'    "{flag.name}": native.{flag.constant},' for flag in optimizer.flags), "}",
             *packed("Preset = Literal[", [f'"{name.lower()}"' for _, name, _ in presets.items], "]"), "", "",
             "class Policy(TypedDict, total=False):",
             '    """Options of :class:`gradscaler.GradScaler` beyond PyTorch\'s. Each has the default that is'
             ' PyTorch\'s policy."""', "", *(f"    {line}" for line in keywords(options))]
    for name in ("report", "history_entry", "tensor_diagnosis"):
        struct = header.Struct(f"gsc_{name}", text, enums)
        lines += ["", "", "@dataclass(frozen=True)", f"class {header.pascal(name)}:",
                  '    """The library\'s fields."""', "",
                  *(f"    {line}" for line in [*BEFORE.get(struct.name, []), *values(struct)]), "", "",
                  f"def {name}_of(found: Any) -> dict[str, Any]:", '    """Their values in the library\'s struct."""',
                  "    return dict(", *(f"        {line}" for line in read(struct)), "    )"]
    return FIELDS_HEAD + "\n".join([*lines, ""])


# The arguments of each optimizer, with PyTorch's names and in its order; `maximize` follows. Flags are booleans.
ARGUMENTS = {
    "SGD": "lr momentum dampening weight_decay nesterov",
    "Adam": "lr betas eps weight_decay amsgrad",
    "AdamW": "lr betas eps weight_decay amsgrad",
    "Adagrad": "lr lr_decay weight_decay initial_accumulator_value eps",
    "Lion": "lr betas weight_decay",
    "LAMB": "lr betas eps weight_decay",
    "RMSprop": "lr alpha eps weight_decay momentum centered eps_root",
    "Adadelta": "lr rho eps weight_decay",
    "Adamax": "lr betas eps weight_decay",
    "NAdam": "lr betas eps weight_decay momentum_decay decoupled_weight_decay",
    "RAdam": "lr betas eps weight_decay decoupled_weight_decay",
    "AdaBelief": "lr betas eps weight_decay eps_root decoupled_weight_decay",
    "AdEMAMix": "lr betas eps weight_decay beta3 alpha warmup_steps beta3_warmup",
    "AdamWScheduleFree": "lr betas eps weight_decay warmup_steps weight_step_power weight_lr_power",
    "SGDScheduleFree": "lr momentum weight_decay warmup_steps weight_step_power weight_lr_power",
    "LARS": "lr momentum weight_decay trust_coefficient eps nesterov",
    "NovoGrad": "lr betas eps weight_decay dampening decoupled_weight_decay bias_correction",
}


OPTIMIZERS_HEAD = f'''\
# SPDX-License-Identifier: Apache-2.0
"""The optimizers: their arguments, with PyTorch's names and defaults. What they share is in :mod:`.optim`.
{header.NOTE}"""

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
    for kind in header.kinds_of(struct.enums):
        name = class_of(kind)
        keys = ARGUMENTS[name].split()
        parameters = ["self", "params: Any", "grads: Any = None", *(argument(struct, kind, key) for key in keys), "*",
                      "maximize: bool = False", "model_copy: Any = None", "zero_grads: bool = False",
                      "write_grads: bool = False", "count_unchanged: bool = False", "ema_decay: float = 0.0",
                      "ema_warmup: bool = False", 'state: _State = "fp32"',
                      "master: str | None = None", "seed: int = 0", "device: DeviceLike = None"]
        taken = (*keys, "maximize", "zero_grads", "write_grads", "count_unchanged", "ema_decay", "ema_warmup")
        assigned = [f"{key}={key}" for key in taken]
        state = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b|^sum\b", lambda m: f"``{m[0]}``", kind.state)
        lines += ["", "", f"class {name}(Optimizer):", f'    """{kind.text}', "", f"    State: {state}.", '    """', "",
                  "    __slots__ = ()", f"    _KIND = native.{kind.constant}",
                  *packed("    _KEYS = (", [f'"{key}"' for key in (*keys, "maximize")], ")"),
                  f"    _SLOTS = SLOTS[native.{kind.constant}]", "",
                  *packed("    def __init__(", parameters, ") -> None:"),
                  *packed("        super().__init__(params, grads, dict(", assigned, "),"),
                  f"{'':25}model_copy=model_copy, state=state, master=master, seed=seed, device=device)"]
    lines = [*packed("__all__ = [", [f'"{name}"' for name in ARGUMENTS], "]"), *lines]
    return OPTIMIZERS_HEAD + "\n".join([*lines, ""])


OTHERS_HEAD = f'''\
# SPDX-License-Identifier: Apache-2.0
"""The optimizers that torch.optim does not have. What all have in common is in :mod:`._optimizers`.
{header.NOTE}

Their numbers are >= 0, decays in [0, 1), and `maximize` steps up the gradient. LAMB takes no sharded parameters, whose
norms no rank knows.
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
    for kind in header.kinds_of(struct.enums):
        name = class_of(kind)
        if name in IN_TORCH:
            continue
        names.append(f'"{name}"')
        keys = ARGUMENTS[name].split()
        parameters = ["self", "params: Any", *(argument(struct, kind, key) for key in keys), "*",
                      "maximize: bool = False", "fused: bool | None = None", "**own: Unpack[Own]"]
        parameters[2] = parameters[2].replace("float", "Rate")
        options = [f"{key}={key}" for key in (*keys, "maximize", "fused")]
        options += ["train_mode=True"] * ("average" in kind.slots)
        slots = [f"``{slot}``" for slot in kind.slots]
        base = "ScheduleFree" if "average" in kind.slots else "FusedOptimizer"
        state = ", ".join(["``step``", *slots[:-1]]) + f" and {slots[-1]}"
        lines += ["", "", f"class {name}({base}):", f'    """{kind.text}', "", f"    State: {state}.",
                  *header.wrapped(f"{', '.join(f'`{key}`' for key in (*keys, 'maximize'))}: see"
                                  " :class:`gradscaler.Optimizer`.", "    "),
                  '    """', "", f"    _KIND = native.{kind.constant}", "",
                  *packed("    def __init__(", parameters, ") -> None:"),
                  "        self._setup(fused, **own)",
                  *packed("        super().__init__(params, checked(", options, "))")]
    return OTHERS_HEAD + "\n".join([*packed("__all__ = [", names, "]"), *lines, ""])


def class_of(kind):
    """The name of a kind's class."""
    name = next((name for name in ARGUMENTS if name.upper() == kind.constant.replace("_", "")), None)
    if name is None:
        header.fail(f"GSC_{kind.constant} has no line in ARGUMENTS of bindings/generate/gen_python.py")
    return name


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
        if len(lines[-1]) + len(f", {piece}{end}") <= header.WIDTH:
            lines[-1] += f", {piece}"
        else:
            lines[-1] += ","
            lines.append(" " * len(head) + piece)
    return [*lines[:-1], lines[-1] + tail]


def sources(text, _):
    """{name: text} of the modules that the build adds to the package."""
    enums = header.enums_of(text)
    options = header.Struct("gsc_optimizer_options", text, enums)
    return {"_enums.py": make_python(enums), "_fields.py": make_fields(text, enums),
            "optimizers.py": make_optimizers(options), "torch/_others.py": make_others(options)}
