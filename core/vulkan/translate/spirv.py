# SPDX-License-Identifier: Apache-2.0
"""Changes to SPIR-V as glslangValidator writes it: floating-point arithmetic is kept from contraction, rounding is to
nearest even, subnormals and NaN are preserved, and names are removed."""

import struct

HEADER = 5
CAPABILITY, ENTRY_POINT, EXECUTION_MODE, DECORATE = 17, 15, 16, 71
NAMES = {3, 4, 5, 6, 7, 8, 317, 330}  # OpSource, OpName and their like
ARITHMETIC = {127, 129, 131, 133, 136}  # OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv
NO_CONTRACTION = 42
CONTROLS = {4464: 4459, 4466: 4461, 4467: 4462}  # capability: execution mode
WIDTHS = (32, 64)
ANNOTATIONS_END = {19, 20, 21, 22, 23, 24, 28, 29, 30, 32, 39}  # declarations of types; OpTypeForwardPointer


def instructions(words):
    at = HEADER
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at : at + length]
        at += length


def instruction(opcode, *operands):
    return [(len(operands) + 1) << 16 | opcode, *operands]


def adjust(data):
    """`data` is the module in bytes; returns its words."""
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    parts = list(instructions(words))
    exact = [part[2] for opcode, part in parts if opcode in ARITHMETIC]
    decorated = {(part[1], part[2]) for opcode, part in parts if opcode == DECORATE}
    result = words[:HEADER]
    for capability in CONTROLS:
        result += instruction(CAPABILITY, capability)
    is_annotated = False
    for opcode, part in parts:
        if opcode in NAMES:
            continue
        if opcode in ANNOTATIONS_END and not is_annotated:
            is_annotated = True
            for identity in exact:
                if (identity, NO_CONTRACTION) not in decorated:
                    result += instruction(DECORATE, identity, NO_CONTRACTION)
        result += part
        if opcode == ENTRY_POINT:
            for mode in CONTROLS.values():
                for width in WIDTHS:
                    result += instruction(EXECUTION_MODE, part[2], mode, width)
    return result
