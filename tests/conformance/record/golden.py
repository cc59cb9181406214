# SPDX-License-Identifier: Apache-2.0
"""The golden files: trajectories of loss scales under overflow patterns, one JSON file a system, all in goldens/.
README.md in the folder above documents the format."""

import itertools
import json
import math
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "goldens"


def runs(booleans):
    """Run lengths, starting with the length of the first run of False (which may be 0)."""
    lengths = [len(list(run)) for _, run in itertools.groupby(booleans)]
    return lengths if booleans and not booleans[0] else [0, *lengths]


def to_float32(x):
    """The fp32 value nearest to x; past the largest one, inf."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def encode_scale(x):
    """A power of two as its exponent, any other number as the hexadecimal digits of its fp32 bits: short, and exact."""
    x = to_float32(x)
    mantissa, exponent = math.frexp(x)
    if mantissa == 0.5:
        return exponent - 1
    return struct.pack(">f", x).hex()


def held_scales(scales):
    found = [(scale, len(list(updates))) for scale, updates in itertools.groupby(map(encode_scale, scales))]
    return [scale for scale, _ in found], [updates for _, updates in found]


def write(path, header, recorded):
    """`recorded`: dicts of a run each. One line a run keeps the diff readable."""
    with open(path, "w", encoding="ascii") as f:
        f.write("{\n")
        for key, value in header.items():
            f.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
        f.write('"runs": [\n')
        f.write(",\n".join(json.dumps(run, separators=(",", ":")) for run in recorded))
        f.write("\n]\n}\n")


def read_all():
    return [json.loads(path.read_text(encoding="ascii")) for path in sorted(FOLDER.glob("*.json"))]
