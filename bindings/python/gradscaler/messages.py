# SPDX-License-Identifier: Apache-2.0
"""The library's messages with the users' names of arguments and tensors. docs/dev/bindings.md has the form of the
references that they replace. The rest of a message is copied."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Union

from .errors import GradscalerError
from .trees import Leaves

#: What an argument of C was made of: tensors, or what gives them, those of each state slot, or one thing that messages
#: call so.
Named = Union[Leaves, Callable[[], Leaves], "list[Leaves | Callable[[], Leaves]]", str]
#: Arguments of C that are one struct, whose fields are arguments of Python; and what the fields are called there.
_STRUCTS = ("options", "state")
_FIELDS = {"beta1": "betas[0]", "beta2": "betas[1]", "flags": "the optimizer"}
#: Fields of a tensor: "tensors[1].data" is of the tensor that stands for "tensors[1]".
_OF_TENSORS = {"data": "the address of {}", "count": "the number of elements of {}", "dtype": "the dtype of {}"}
# As the library writes an argument: name, entry, tensor and field.
_REFERENCE = r"\b({})((?:\[\d+\])*)(?:\.(\w+))?"
# Constants of C that are words of Python in lower case: flags and devices.
_WORD = r"\b(?:GSC_DEVICE_(\w+)|(NESTEROV|ZERO_GRADS|WRITE_GRADS)\b)"


def counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@contextmanager
def named_errors(fields: Mapping[str, str] | None = None, **arguments: Named) -> Iterator[None]:
    """Inside, errors of the library name arguments of Python.

    `arguments` are what C's were made of. `fields` are the names of fields, where they are not the arguments' own.
    """
    try:
        yield
    except GradscalerError as error:
        message = str(error)
        subject = _subject(error)
        if subject and message.startswith(subject):
            named = _name(error.argument or "", [n for n in (error.index, error.tensor) if n is not None],
                          error.field, arguments, fields or {})
            error.args = (named + _rest(message[len(subject):], arguments, fields or {}), *error.args[1:])
        raise


def _subject(error: GradscalerError) -> str:
    entries = "".join(f"[{n}]" for n in (error.index, error.tensor) if n is not None)
    return f"{error.argument or ''}{entries}{'.' + error.field if error.field else ''}"


def _rest(text: str, arguments: Mapping[str, Named], fields: Mapping[str, str]) -> str:
    """The rest of the message, with references to other arguments and flags replaced."""
    def reference(found: re.Match[str]) -> str:
        entries = [int(n) for n in re.findall(r"\d+", found[2])]
        known = found[1] in arguments or found[1] in _STRUCTS
        return _name(found[1], entries, found[3], arguments, fields) if known and (entries or found[3]) else found[0]

    text = re.sub(_REFERENCE.format("|".join([*_STRUCTS, *arguments])), reference, text)
    return re.sub(_WORD, lambda found: (found[1] or found[2]).lower(), text)


def _name(argument: str, entries: list[int], field: str | None, arguments: Mapping[str, Named],
          fields: Mapping[str, str]) -> str:
    given = arguments.get(argument)
    if isinstance(given, list):
        given, entries = (given[entries[0]], entries[1:]) if entries and entries[0] < len(given) else (None, entries)
    if callable(given):
        given = given()
    if isinstance(given, Leaves):
        if not entries or entries[0] >= len(given.paths):
            return given.argument or argument
        # Of addresses alone, as of set_pointers, there is no field.
        field, given = field or ("data" if argument == "data" else None), given.label(entries[0])
    if isinstance(given, str):
        return _OF_TENSORS.get(field or "", "{}").format(given)
    if argument in _STRUCTS and field and not entries:
        return fields.get(field) or _FIELDS.get(field, field)
    return f"{argument}{''.join(f'[{n}]' for n in entries)}{'.' + field if field else ''}"


def unexpected(call: str, name: str, known: Iterable[str]) -> TypeError:
    """An argument that `call` does not have, with the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), 1)
    return TypeError(f"{call} got an unexpected keyword argument '{name}'"
                     + (f"; did you mean '{close[0]}'?" if close else ""))
