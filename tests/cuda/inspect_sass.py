#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of the kernels that move most of the bytes against a budget: instructions per element on the
shortest path through the inner loop, 128-bit loads and stores. inspect_resources.py looks for local memory.

  inspect_sass.py CUOBJDUMP OBJECT...   of which it reads those of BUDGETS, such as check.cu.o, for sm_90
  inspect_sass.py --self-test           code that breaks each rule is detected

nvdisasm must be beside cuobjdump or in PATH. The shortest path is that of the cheapest dtypes with the loads and stores
of a budget, without slow paths of divisions.
"""
import dataclasses
import heapq
import os
import re
import subprocess
import sys
import tempfile

ARCHITECTURE = "sm_90"
LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")


@dataclasses.dataclass
class Instruction:
    guard: str
    name: str
    operands: str

    def targets(self):
        """Labels that it names."""
        return re.findall(r"\.L_\w+", self.operands)

    def moves(self):
        """("load", 16), ("store", 8), ...: what it moves to or from global memory, in bytes, or None."""
        if not re.match(r"(LDG?|STG?)\.", self.name):
            return None
        match = re.search(r"\.(128|64|U?S?16|U?S?8)\b", self.name)
        bits = int(re.sub(r"\D", "", match[1])) if match else 32
        return ("load" if self.name.startswith("L") else "store", bits // 8)


@dataclasses.dataclass
class Function:
    code: list  # Instruction
    labels: dict  # label: index of the instruction behind it


def parse(text):
    """{name: Function} of what nvdisasm prints."""
    functions = {}
    current = None
    for line in text.splitlines():
        if match := re.match(r"\.text\.([\w$]+):", line):
            current = functions.setdefault(match[1], Function([], {}))
        elif current is not None and (match := re.match(r"(\.L_\w+):", line)):
            current.labels[match[1]] = len(current.code)
        elif current is not None and (match := LINE.match(line)):
            current.code.append(Instruction((match[1] or "").strip(), match[2], match[3].strip()))
    return functions


def successors(function):
    """For each instruction the indices of those that may follow it. Calls, the slow paths, are not followed."""
    code = function.code
    joins = {}
    for x in code:
        if x.name.startswith("BSSY"):
            joins.setdefault(x.operands.split(",")[0], set()).update(function.labels[t] for t in x.targets())
    result = []
    for i, x in enumerate(code):
        kind = x.name.split(".")[0]
        behind = [i + 1] if i + 1 < len(code) else []
        to = [function.labels[t] for t in x.targets() if t in function.labels]
        if ".DIV" in x.name:  # to where lanes of a warp that has fallen apart wait for each other
            result.append(behind)
        elif kind == "BRA":
            conditional = x.guard or re.match(r"!?U?P\d", x.operands)
            result.append(to + (behind if conditional else []))
        elif kind in ("BRX", "BRXU", "JMX", "JMXU", "JMP"):
            if not to:
                raise ValueError(f"{x.name} {x.operands}: a jump that this script does not follow")
            result.append(to)
        elif kind == "BSYNC":
            places = joins.get(x.operands, set())
            result.append(behind if i + 1 in places or not places else sorted(places))
        elif kind in ("EXIT", "RET", "KILL"):
            result.append(behind if x.guard else [])
        elif kind == "CALL" or x.name.startswith("WARPSYNC.COLLECTIVE"):
            result.append([])
        else:
            result.append(behind)
    return result


def shortest_loop(function, wanted):
    """Instructions of the shortest path through a loop with exactly these moves, {("load", 16): 4, ...}; None: there is
    none. Moves of other widths are not allowed on it. A key may also be the name of an instruction, of which there
    are to be so many at least."""
    code, follow = function.code, successors(function)
    kinds = list(wanted)
    goal = tuple(wanted[kind] for kind in kinds)

    def after(state, i):
        """The states that are possible after instruction i: it may be left out if it has a guard, and must not be one
        move more."""
        kind = code[i].moves() or code[i].name
        states = [state] if code[i].guard or isinstance(kind, str) and kind not in wanted else []
        if kind in wanted:
            at = kinds.index(kind)
            if state[at] < goal[at]:
                states.append(state[:at] + (state[at] + 1,) + state[at + 1:])
            elif isinstance(kind, str):
                states.append(state)
        return states

    heads = {j for i in range(len(code)) for j in follow[i] if j <= i}
    best = None
    for head in heads:
        queue, seen = [(1, head, state) for state in after((0,) * len(goal), head)], set()
        while queue:
            length, i, state = heapq.heappop(queue)
            if (i, state) in seen or (best is not None and length >= best):
                continue
            seen.add((i, state))
            for j in follow[i]:
                if j == head and state == goal:
                    best = length  # shorter than what was found before, or it would have been left out
                for new in after(state, j):
                    heapq.heappush(queue, (length + 1, j, new))
    return best


@dataclasses.dataclass
class Budget:
    """The shortest path through a loop with these moves takes at most `most` instructions per element."""
    what: str
    source: str
    function: str  # a regular expression
    moves: dict  # see shortest_loop
    elements: int
    most: float


LOAD, STORE = ("load", 16), ("store", 16)
# The casts show that a thread has 48 bytes in flight: six packs of 8 bytes, or three of 16, before anything is stored.
BUDGETS = [
    Budget("check fp16", "check", "check_kernelILb0E", {LOAD: 4, "HADD2.F32": 32}, 32, 6),
    Budget("AdamW, fp32 gradients", "adam", "apply_kernel.*AdamFamilyILb1ELb0EEEfE", {LOAD: 4, STORE: 3}, 4, 90),
    Budget("AdamW, 16-bit gradients and copy", "adam", "apply_kernel.*AdamFamilyILb1ELb0EEEfE",
           {LOAD: 3, ("load", 8): 1, STORE: 3, ("store", 8): 1}, 4, 90),
    # Without Philox and the bytes of the scales, which are behind branches. The first with split masters or in fp32.
    Budget("AdamW, 16-bit state", "adam", "apply_coded_kernel.*AdamFamilyILb1ELb0EE",
           {LOAD: 5, STORE: 4}, 8, 90),
    Budget("AdamW, 8-bit state and remainders", "adam", "apply_coded_kernel.*AdamFamilyILb1ELb0EE",
           {LOAD: 2, ("load", 8): 3, STORE: 1, ("store", 8): 3}, 8, 95),
    Budget("cast fp16 to fp32", "elementwise", "elementwise_kernel", {("load", 8): 6, STORE: 6}, 24, 20),
    Budget("scale fp32", "elementwise", "elementwise_kernel", {LOAD: 3, STORE: 3}, 12, 20),
]


def inspect(functions, budgets, say=print):
    """The sentences about what breaks a budget. functions: {source: {name: Function}}."""
    errors = []
    for budget in budgets:
        matching = [f for name, f in functions[budget.source].items() if re.search(budget.function, name)]
        if len(matching) != 1:
            errors.append(f"{budget.what}: {len(matching)} functions are called {budget.function}")
            continue
        loop = shortest_loop(matching[0], budget.moves)
        if loop is None:
            errors.append(f"{budget.what}: no loop with " + ", ".join(
                f"{n} {kind if isinstance(kind, str) else f'{8 * kind[1]}-bit {kind[0]}s'}"
                for kind, n in budget.moves.items()))
            continue
        found = f"{budget.what}: {loop / budget.elements:.1f} instructions an element, at most {budget.most}"
        say(found)
        if loop > budget.most * budget.elements:
            errors.append(found)
    return errors


def disassemble(cuobjdump, file):
    cuobjdump = os.path.abspath(cuobjdump)
    nvdisasm = os.path.join(os.path.dirname(cuobjdump), "nvdisasm")
    with tempfile.TemporaryDirectory() as here:
        subprocess.run([cuobjdump, "-xelf", "all", "-arch", ARCHITECTURE, os.path.abspath(file)], check=True, cwd=here,
                       stdout=subprocess.DEVNULL)
        text = ""
        for cubin in os.listdir(here):
            text += subprocess.run([nvdisasm if os.path.exists(nvdisasm) else "nvdisasm", "-c", cubin], check=True,
                                   cwd=here, capture_output=True, text=True).stdout
    return parse(text)


SAMPLE = """
.text.loop:
        /*0000*/                   MOV R1, RZ ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @P1  BRA `(.L_x_1) ;
        /*0030*/                   FADD R4, R4, R5 ;
        /*0040*/                   FADD R4, R4, R5 ;
        /*0050*/                   BRA `(.L_x_2) ;
.L_x_1:
        /*0060*/                   FMUL R4, R4, R5 ;
.L_x_2:
        /*0070*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0080*/              @!P0 BRA `(.L_x_0) ;
        /*0090*/                   EXIT ;
"""


def self_test():
    def errors(most=100, change=("", ""), moves=None):
        code = {"x": parse(SAMPLE.replace(*change))}
        return inspect(code, [Budget("sample", "x", "loop", moves or {LOAD: 1, STORE: 1}, 1, most)], lambda _: None)

    assert shortest_loop(parse(SAMPLE)["loop"], {LOAD: 1, STORE: 1}) == 5
    assert errors(most=5) == []
    assert "5.0 instructions an element" in errors(most=4)[0]
    assert errors(most=5, change=("LDG", "@P2 LDG")) == []
    assert "no loop" in errors(change=("LDG.E.128 R4", "@P2 LDG.E.64 R4"))[0]
    assert "no loop" in errors(moves={LOAD: 2, STORE: 1})[0]
    assert "no loop" in errors(change=("LDG.E.128", "LDG.E.64"))[0]
    assert "are called" in errors(change=(".text.loop", ".text.other"))[0]
    try:
        errors(change=("@!P0 BRA `(.L_x_0)", "BRX R2 -0x80"))
    except ValueError as error:
        assert "does not follow" in str(error)
    else:
        raise AssertionError("an unknown jump was passed over")
    print("self-test: ok")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cuobjdump, *objects = sys.argv[1:]
    sources = {os.path.basename(file).removesuffix(".cu.o"): file for file in objects}
    functions = {source: disassemble(cuobjdump, sources[source]) for source in {budget.source for budget in BUDGETS}}
    errors = inspect(functions, BUDGETS)
    for error in errors:
        print("error:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
