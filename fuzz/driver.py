# SPDX-License-Identifier: Apache-2.0
"""Runs a fuzz target written in Python: under atheris, or, with --replay [FILE...], over these files, else over its
file in seeds/ and over random inputs that are always the same.

Inputs are taken apart here and not by atheris, so that a replay needs nothing else.
"""
import contextlib
import pathlib
import random
import struct
import sys

REPLAY = "--replay" in sys.argv


class Bytes:
    """Bytes one after the other as choices and numbers; zeros when there are none left."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def __bool__(self):
        return self._at < len(self._data)

    def rest(self):
        self._at, begin = len(self._data), self._at
        return self._data[begin:]

    def take(self, form):
        size = struct.calcsize(form)
        raw = self._data[self._at:self._at + size].ljust(size, b"\0")
        self._at += size
        return struct.unpack(form, raw)[0]

    def below(self, n):
        return self.take("<B") % n

    def choice(self, values):
        return values[self.below(len(values))]

    def flag(self):
        return self.below(2) == 1

    def integer(self):
        return self.choice((0, 1, 2, 3, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 70, self.take("<q"),
                            self.below(32)))


def instrumented():
    """A context in which atheris observes the modules of the package that are imported."""
    if REPLAY:
        return contextlib.nullcontext()
    import atheris

    return atheris.instrument_imports(include=["gradscaler"])


def seeds():
    """{file and line: bytes}. An input is a line of bytes in hexadecimal."""
    path = pathlib.Path(__file__).parent / "seeds" / pathlib.Path(sys.argv[0]).name.replace("_fuzz.py", ".txt")
    return {f"{path}:{number}": bytes.fromhex(line) for number, line in enumerate(path.read_text().splitlines(), 1)
            if line and not line.startswith("#")}


def main(one_input):
    """Runs `one_input(bytes)` over inputs; what it raises is a finding."""
    if not REPLAY:
        import atheris

        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
        return
    source = random.Random(1)
    inputs = {file: pathlib.Path(file).read_bytes() for file in sys.argv[2:]}
    inputs = inputs or seeds() | {f"random input {i}": source.randbytes(source.randrange(1 << source.randrange(10)))
                                  for i in range(2000)}
    for name, data in inputs.items():
        try:
            one_input(data)
        except BaseException:
            print(f"{name}:", file=sys.stderr)
            raise
