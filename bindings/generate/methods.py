# SPDX-License-Identifier: Apache-2.0
"""The functions that Java and C# call alike: they return a status alone and end with a stream. gen_java.py and
gen_csharp.py make methods of them."""
import re

import header

# What a facade adds to, and writes by hand.
BY_HAND = ("gsc_optimizer_set_lr", "gsc_optimizer_set_device_lr", "gsc_tensor_list_set_present")
OPTIONAL = {("gsc_optimizer_step_scaled", "inv_scale"), ("gsc_optimizer_step_scaled", "found_inf"),
            ("gsc_ops_convert_state", "weights")}
FLAGS = {"evaluating"}
ENUMS = {"norm_type": "Norm"}


class Argument:
    """`kind`: list, optimizer, struct, tensors, numbers, scalar (of device memory), enum, flag or number."""

    def __init__(self, function, ctype, pointer, name):
        self.name, self.ctype = name.removesuffix("_type"), ctype
        self.optional = (function, name) in OPTIONAL
        self.type = header.CLASSES.get(ctype) or ENUMS.get(name)
        self.kind = ("struct" if ctype in header.CLASSES else "enum" if name in ENUMS else "flag" if name in FLAGS else
                     {"gsc_tensor_list": "list", "gsc_optimizer": "optimizer", "gsc_tensor": "tensors"}.get(ctype) or
                     ("number" if not pointer else "numbers" if ctype == "int64_t" else "scalar"))


class Method:
    """`name` is C's without the object's prefix."""

    def __init__(self, function, owner):
        self.name = function.name.removeprefix(owner + "_")
        self.arguments = []
        for parameter in function.parameters[1:-1]:
            argument = Argument(function.name, *re.fullmatch(r"(?:const )?(\w+) (\*?)(\w+)", parameter).groups())
            # An array has its length.
            if argument.name != "count" or not any(a.kind in ("tensors", "numbers") for a in self.arguments):
                self.arguments.append(argument)
        names = "|".join(argument.name for argument in self.arguments)
        text = re.sub(rf"\*(?={names}\b)", "", function.text) if names else function.text
        text = re.sub(r" \(stages: section \d\)", "", text).replace("`count` ", "").replace("norm_type", "norm")
        text = re.sub(r"\bgsc_(?:scaler|optimizer)_options\b(?!\.\w)", lambda m: header.CLASSES[m[0]], text)
        text = re.sub(r"\bGSC_(SCALER|OPTIMIZER)_([A-Z_]+)\b", lambda m: f"gsc_{m[1]}_options.{m[2]}".lower(), text)
        # Exceptions in place of statuses.
        self.text = re.sub(r"\b[A-Z_]{6,}\b", lambda m: header.EXCEPTIONS.get(m[0], m[0]), text)

        self.arrays = [argument for argument in self.arguments if argument.kind in ("tensors", "numbers")]
        self.scalars = [argument for argument in self.arguments if argument.kind == "scalar"]

    def words(self, text, of_argument, of_member):
        """A contract with the language's names for arguments, and for fields and functions that it names shortly."""
        names = {argument.name for argument in self.arguments}

        def spell(match):
            if match[0].startswith("gsc_"):
                return match[0]
            return (of_argument if match[0] in names else of_member)(match[0])

        return re.sub(r"(?<![\w(.])[a-z0-9]+(?:_[a-z0-9]+)+\b", spell, text)


def methods_of(owner, text):
    """In the order of the header."""
    return [Method(function, owner) for function in header.functions_of(text)[0]
            if function.name.startswith(owner + "_") and function.name not in BY_HAND
            and function.result == "gsc_status " and function.parameters[-1] == "gsc_stream stream"
            and not re.search(r"\bvoid\b|\bout_", " ".join(function.parameters))]
