# SPDX-License-Identifier: Apache-2.0
"""The functions that Java and C# call alike: they return a status alone and end with a stream. gen_java.py and
gen_csharp.py make methods of them."""
from api import CLASSES, camel

# What a facade adds to, and writes by hand.
BY_HAND = ("gsc_optimizer_set_lr", "gsc_optimizer_set_device_lr", "gsc_tensor_list_set_present")
OBJECTS = {"gsc_tensor_list": "list", "gsc_optimizer": "optimizer", "gsc_tensor": "tensors"}


class Argument:
    """`kind`: list, optimizer, struct, tensors, numbers, scalar (of device memory), enum, flag or number."""

    def __init__(self, parameter):
        words = [word for word in parameter.type.split() if word != "const"]
        self.ctype, facts = words[0], parameter.facts
        self.optional, self.count = facts.get("nullable", False), facts.get("count")
        self.name = parameter.name.removesuffix("_type") if "enum" in facts else parameter.name
        self.type = CLASSES.get(self.ctype) or facts.get("enum")
        self.kind = ("struct" if self.ctype in CLASSES else "enum" if "enum" in facts else
                     "flag" if "bool" in facts else OBJECTS.get(self.ctype) or
                     ("scalar" if "device" in facts else "numbers" if "count" in facts else "number"))


class Method:
    """`name` is C's without the object's prefix."""

    def __init__(self, function, owner):
        self.name, self.text = function.name.removeprefix(owner + "_"), function.text
        parameters = function.parameters[1:-1]
        lengths = {parameter.facts.get("count") for parameter in parameters}
        # An array has its length.
        arguments = {parameter.name: Argument(parameter) for parameter in parameters if parameter.name not in lengths}
        self.arguments = [*arguments.values()]
        self.arrays = [argument for argument in self.arguments if argument.kind in ("tensors", "numbers")]
        self.scalars = [argument for argument in self.arguments if argument.kind == "scalar"]
        self.names = {name: camel(argument.name) for name, argument in arguments.items()}


def methods_of(owner, api):
    """In the order of the header."""
    return [Method(function, owner) for function in api.functions
            if function.name.startswith(owner + "_") and function.name not in BY_HAND
            and function.result == "gsc_status" and function.parameters[-1].name == "stream"
            and not any("void" in p.type or p.name.startswith("out_") for p in function.parameters[:-1])]
