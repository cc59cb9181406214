#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translates nvcc's PTX of core/cuda into C++: one function per kernel, run once by every thread.

  translate.py OUT.cpp FILE.ptx...

It supports only what nvcc emits for the library. Any other directive, instruction or modifier is an error, so that
nothing is silently ignored: rounding, saturation and flushing to zero are part of an instruction's name. Instructions
that access memory, wait at a barrier or order memory become calls of machine.h, which get the instruction's index in
the file's table of source lines; arithmetic is in instructions.h.
"""
import dataclasses
import functools
import pathlib
import re
import sys

CPP_TYPES = {
    "pred": "bool",
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t",
    "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t",
    "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double",
}
# Instructions whose result is an expression of their operands: in floating point, those of ROUNDED to nearest, and of
# integers, those of WRAPPING unsigned.
FLOAT = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "fma": "std::fma({}, {}, {})",
         "sqrt": "std::sqrt({})", "rcp": "static_cast<{type}>(1) / {}", "abs": "std::fabs({})", "neg": "-{}",
         "min": "smaller<{type}>({}, {})", "max": "larger<{type}>({}, {})"}
ROUNDED = {"add", "sub", "mul", "div", "fma", "sqrt", "rcp"}
INTEGER = {"add": "{} + {}", "sub": "{} - {}", "and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}", "not": "~{}",
           "neg": "0 - {}", "div": "divide<{type}>({}, {})", "rem": "remainder<{type}>({}, {})",
           "min": "smaller<{type}>({}, {})", "max": "larger<{type}>({}, {})"}
WRAPPING = {"add", "sub", "and", "or", "xor", "not", "neg"}
PREDICATE = {"and": "{} && {}", "or": "{} || {}", "xor": "{} != {}", "not": "!{}"}
INTEGER_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
FLOAT_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
SHARED = r"\.shared\s+\.align\s+(\d+)\s+\.([bu]\d+)\s+([\w$]+)(?:\[(\d+)\])?;"
CACHE_HINTS = {"cs", "cg", "L1::no_allocate"}
VECTORS = {"v2": 2, "v4": 4}
SPECIAL_REGISTERS = {"%tid.x": "t.index", "%ntid.x": "t.block_threads", "%ctaid.x": "t.block_index",
                     "%nctaid.x": "t.grid_blocks"}
DROPPED_DIRECTIVES = (".version", ".file", ".target", ".address_size", ".maxntid", ".minnctapersm", ".reqntid",
                      ".pragma", ".weak", ".extern .func")


class Unknown(Exception):
    """PTX that this translator does not support."""


def require(supported, what="modifiers"):
    if not supported:
        raise Unknown(what)


def size_of(kind):
    return int(kind[1:]) // 8


def is_float(kind):
    return kind in ("f32", "f64")


def unsigned(kind):
    """The integer type in which wrapping arithmetic on `kind` is done."""
    return "u" + kind[1:]


def integer(kind):
    """An integer type for untyped bits."""
    return kind if kind[0] in "su" else unsigned(kind)


def identifier(name):
    return re.sub(r"\W", "_", name)


@dataclasses.dataclass
class Variable:
    """The location of a parameter or a shared variable."""
    offset: int
    size: int


def add_variable(variables, end, name, size, alignment):
    """Places a variable behind the others, which end there, and returns where it ends."""
    offset = (end + alignment - 1) // alignment * alignment
    variables[name] = Variable(offset, size)
    return offset + size


@dataclasses.dataclass
class Instruction:
    text: str
    source: str  # "core/cuda/check.cu:210" of the source line it comes from, "" if unknown


class Kernel:
    def __init__(self, name):
        self.name = name
        self.parameters = {}
        self.parameter_bytes = 0
        self.registers = {}  # prefix -> (type, count)
        self.shared = {}
        self.shared_bytes = 0
        self.body = []  # Instruction, or str for a label

    def add_parameter(self, name, size, alignment):
        self.parameter_bytes = add_variable(self.parameters, self.parameter_bytes, name, size, alignment)

    def add_shared(self, name, size, alignment):
        self.shared_bytes = add_variable(self.shared, self.shared_bytes, name, size, alignment)


class Module:
    """One PTX file."""

    def __init__(self, path, root):
        self.path = path
        self.root = root
        self.kernels = []
        self.constants = {}  # name -> (alignment, list of bytes as text)
        self.shared = {}  # module-wide shared variables: name -> (size, alignment)
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        self.lines = [re.sub(r"//.*", "", line).strip() for line in text.split("\n")]
        # They stand at the end.
        self.files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"(.*?)"', text, flags=re.M))
        self.at = 0
        while self.at < len(self.lines):
            self.parse_directive()
        for kernel in self.kernels:
            text = "\n".join(x.text for x in kernel.body if isinstance(x, Instruction))
            for name, (size, alignment) in self.shared.items():
                if name in text:
                    kernel.add_shared(name, size, alignment)

    def next(self):
        self.at += 1
        return self.lines[self.at - 1]

    def unknown(self, line):
        return Unknown(f"{self.path}:{self.at}: unknown PTX: {line}")

    def place(self, file, line):
        path = pathlib.Path(self.files.get(file, file))
        return f"{path.relative_to(self.root) if self.root in path.parents else path}:{line}"

    def parse_directive(self):
        line = self.next()
        if not line or line.startswith(DROPPED_DIRECTIVES):
            return
        if match := re.fullmatch(SHARED, line):
            self.shared[match[3]] = (int(match[4] or 1) * size_of(match[2]), int(match[1]))
        elif match := re.fullmatch(r"\.global\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]\s*=\s*\{(.*)\};", line):
            self.constants[match[2]] = (int(match[1]), match[4])
        elif match := re.match(r"(?:\.visible\s+)?\.entry\s+([\w$]+)\((.*)", line):
            self.parse_kernel(match[1], match[2])
        elif match := re.fullmatch(r"\.section\s+\.debug\w*", line):
            while self.next() != "}":
                pass
        else:
            raise self.unknown(line)

    def parse_kernel(self, name, head):
        kernel = Kernel(name)
        while ")" not in head:
            head += " " + self.next()
        for text in head.split(")")[0].split(","):
            pattern = (r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?"
                       r"([\w$]+)(?:\[(\d+)\])?")
            match = re.fullmatch(pattern, text.strip())
            if match:
                size = size_of(match[2])
                kernel.add_parameter(match[3], size * int(match[4] or 1), int(match[1] or size))
            elif text.strip():
                raise self.unknown(text)
        while (line := self.next()) != "{":
            if line and not line.startswith(DROPPED_DIRECTIVES):
                raise self.unknown(line)
        self.parse_body(kernel)
        self.kernels.append(kernel)

    def parse_body(self, kernel):
        depth = 1
        source = ""
        while depth > 0:
            line = self.next()
            if match := re.fullmatch(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,.*inlined_at (\d+) (\d+) \d+)?", line):
                source = self.place(match[1], match[2])
                if match[3] and not source.startswith("core/"):  # a function of the toolkit: where it was called
                    source = self.place(match[3], match[4])
            elif match := re.fullmatch(r"\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>;", line):
                kernel.registers[match[2]] = (match[1], int(match[3]))
            elif match := re.fullmatch(SHARED, line):
                kernel.add_shared(match[3], int(match[4] or 1) * size_of(match[2]), int(match[1]))
            elif match := re.fullmatch(r"(\$?[\w$]+):", line):
                kernel.body.append(match[1])
            elif line == "{":
                depth += 1
            elif line == "}":
                depth -= 1
            elif line and not line.startswith(DROPPED_DIRECTIVES):
                # Inline assembly stands in separate braces.
                match = re.fullmatch(r"\{\s*(cvt[^;{}]*);\s*\}|([^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);", line)
                if not match:
                    raise self.unknown(line)
                kernel.body.append(Instruction((match[1] or match[2]).strip(), source))


def split_operands(text):
    return [x.strip() for x in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)] if text else []


class Writer:
    """The C++ function of one kernel. `table` collects the source lines of instructions that the machine sees."""

    def __init__(self, module, kernel, function, table):
        self.module = module
        self.kernel = kernel
        self.function = function
        self.table = table
        self.source = ""

    def number(self, what):
        """This instruction's index in the table."""
        self.table.append((what, self.source))
        return len(self.table) - 1

    def register_type(self, name):
        return self.kernel.registers[re.sub(r"\d+$", "", name)][0]

    def read(self, operand, kind):
        """An operand as a C++ expression of PTX type `kind`."""
        cpp = CPP_TYPES[kind]
        if operand in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[operand]
        if match := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", operand):
            return f"as<float>(0x{match[1]}U)" if is_float(kind) else f"static_cast<{cpp}>(0x{match[1]}U)"
        if match := re.fullmatch(r"0[dD]([0-9A-Fa-f]{16})", operand):
            bits = f"uint64_t{{0x{match[1]}U}}"
            return f"as<double>({bits})" if is_float(kind) else f"static_cast<{cpp}>({bits})"
        if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+U?|\d+)", operand):
            require(not is_float(kind), f"integer {operand} as {kind}")
            value = int(operand.rstrip("U"), 0) & ((1 << 64) - 1)
            return f"static_cast<{cpp}>(uint64_t{{{value}U}})"
        if operand.startswith("%"):
            name = operand[1:]
            held = self.register_type(name)
            if held == kind:
                return name
            return f"{'as' if is_float(held) or is_float(kind) else 'static_cast'}<{cpp}>({name})"
        return f"static_cast<{cpp}>({self.address_of(operand)})"

    def address_of(self, variable, offset=0):
        """The address of a variable, as a C++ expression."""
        if variable in self.kernel.shared:
            return f"uintptr_t{{{self.kernel.shared[variable].offset + offset}}}"
        if variable in self.kernel.parameters:
            return f"reinterpret_cast<uintptr_t>(p + {self.kernel.parameters[variable].offset + offset})"
        require(variable in self.module.constants, f"variable {variable}")
        return f"reinterpret_cast<uintptr_t>({constant_name(self.module, variable)} + {offset})"

    def write(self, operand, expression, kind):
        """A statement that sets a register from an expression of PTX type `kind`."""
        require(operand.startswith("%"), f"destination {operand}")
        name = operand[1:]
        held = self.register_type(name)
        value = f"static_cast<{CPP_TYPES[kind]}>({expression})"
        if is_float(held) != is_float(kind) and held != "pred":
            return f"{name} = as<{CPP_TYPES[held]}>({value});"
        if kind[0] == "s" and held[0] == "b":  # a load into a wider register extends the sign
            value = f"static_cast<{CPP_TYPES['s' + held[1:]]}>({value})"
        return f"{name} = static_cast<{CPP_TYPES[held]}>({value});"

    def address(self, operand):
        """[register+offset] or [variable+offset] as a C++ expression."""
        match = re.fullmatch(r"\[([%\w$]+)(?:\+(-?\d+))?\]", operand)
        require(match, f"address {operand}")
        base, offset = match[1], int(match[2] or 0)
        if base.startswith("%"):
            kind = "u64" if self.register_type(base[1:]) == "b64" else "u32"
            return f"static_cast<uintptr_t>({self.read(base, kind)} + ({offset}))"
        return self.address_of(base, offset)

    def translate(self, instruction):
        self.source = instruction.source
        match = re.fullmatch(r"(?:@(!?)%(\w+)\s+)?(\S+)\s*(.*)", instruction.text)
        guard = f"if ({match[1]}{match[2]}) " if match[2] else ""
        parts = match[3].split(".")
        operands = split_operands(match[4])
        name, kind = parts[0], parts[-1]
        method = getattr(self, "do_" + name, functools.partial(self.arithmetic, name))
        return guard + "{ " + method(parts[1:], kind, operands) + " }"

    @staticmethod
    def only(modifiers, *allowed):
        """Refuses a modifier that is not one of `allowed`."""
        require(set(modifiers) <= set(allowed))

    # Control flow.

    def do_bra(self, modifiers, _, operands):
        self.only(modifiers, "uni")
        return f"goto {identifier(operands[0])};"

    def do_ret(self, modifiers, *_):
        self.only(modifiers)
        return "return;"

    # Memory.

    def memory(self, modifiers):
        """(space, flags, elements) of a load or store."""
        space, flags, elements = "generic", [], 1
        for modifier in modifiers[:-1]:
            if modifier in ("global", "shared", "param"):
                space = modifier
            elif modifier in VECTORS:
                elements = VECTORS[modifier]
            elif modifier in ("nc", "volatile"):
                flags.append(modifier)
            else:
                require(modifier in CACHE_HINTS)
        return space, flags, elements

    def do_ld(self, modifiers, kind, operands):
        space, flags, elements = self.memory(modifiers)
        registers = split_operands(operands[0].strip("{}"))
        target = f"{CPP_TYPES[kind]} w[{elements}]; "
        where = self.address(operands[1])
        if space == "param":
            load = f"std::memcpy(w, reinterpret_cast<const void *>({where}), sizeof w); "
        else:
            call = space + ("_nc" if "nc" in flags else "")
            load = f"load_{call}(t, {where}, w, sizeof w, {self.number('ld')}); "
        return target + load + " ".join(self.write(r, f"w[{i}]", kind) for i, r in enumerate(registers))

    def do_st(self, modifiers, kind, operands):
        space, _, elements = self.memory(modifiers)
        require(space != "param")
        values = ", ".join(self.read(x, kind) for x in split_operands(operands[1].strip("{}")))
        return (f"const {CPP_TYPES[kind]} w[{elements}] = {{{values}}}; "
                f"store_{space}(t, {self.address(operands[0])}, w, sizeof w, {self.number('st')});")

    def atomic(self, modifiers, kind, address, operand):
        """(the call of an atomic operation, the type of what it returns)."""
        if modifiers[:2] == ["relaxed", "gpu"]:  # as it is without saying so
            modifiers = modifiers[2:]
        space, what = modifiers[0], modifiers[1]
        require(space in ("global", "shared") and what in ("add", "max", "inc") and len(modifiers) == 3)
        k = integer(kind)
        return (f"atomic_{what}_{space}<{CPP_TYPES[k]}>(t, {self.address(address)}, {self.read(operand, k)}, "
                f"{self.number('atom')})"), k

    def do_atom(self, modifiers, kind, operands):
        return self.write(operands[0], *self.atomic(modifiers, kind, *operands[1:]))

    def do_red(self, modifiers, kind, operands):
        return self.atomic(modifiers, kind, *operands)[0] + ";"

    def do_membar(self, modifiers, *_):
        require(modifiers == ["gl"])
        return f"fence(t, {self.number('membar')});"

    # Meeting other threads.

    def do_bar(self, modifiers, _, operands):
        if modifiers == ["warp", "sync"]:
            return f"warp_barrier(t, {self.read(operands[0], 'u32')}, {self.number('bar.warp')});"
        require(modifiers == ["sync"] and operands == ["0"], "barrier")
        return f"block_barrier(t, {self.number('bar')});"

    def do_shfl(self, modifiers, _, operands):
        require(modifiers[0] == "sync" and modifiers[1] in ("bfly", "down", "idx") and modifiers[2:] == ["b32"])
        target, _, valid = operands[0].partition("|")
        arguments = ", ".join(self.read(x, "u32") for x in operands[1:5])
        text = (f"bool ok = false; const uint32_t v = shuffle_{modifiers[1]}(t, {arguments}, ok, "
                f"{self.number('shfl')}); {self.write(target, 'v', 'u32')}")
        return text + (f" {valid[1:]} = ok;" if valid else "")

    # Arithmetic.

    def do_mov(self, modifiers, kind, operands):
        self.only(modifiers, kind)
        target, value = operands
        packs = value.startswith("{")
        if packs or target.startswith("{"):
            names = split_operands((value if packs else target).strip("{}"))
            width = int(kind[1:]) // len(names)
            if packs:
                pieces = [f"static_cast<uint64_t>({self.read(x, f'u{width}')}) << {width * i}"
                          for i, x in enumerate(names)]
                return self.write(target, " | ".join(pieces), unsigned(kind))
            pieces = [self.write(x, f"bits >> {width * i}", f"u{width}") for i, x in enumerate(names) if x != "_"]
            return f"const uint64_t bits = {self.read(value, unsigned(kind))}; " + " ".join(pieces)
        if kind == "pred":
            return f"{target[1:]} = {value[1:] if value.startswith('%') else value};"
        return self.write(target, self.read(value, kind), kind)

    def do_cvta(self, modifiers, _, operands):
        self.only(modifiers, "to", "global", "shared", "u64")
        value = self.read(operands[1], "u64")
        if "shared" in modifiers:
            value += " - t.shared_address()" if "to" in modifiers else " + t.shared_address()"
        return self.write(operands[0], value, "u64")

    def arithmetic(self, name, modifiers, kind, operands):
        """An instruction of the tables."""
        if kind == "pred":
            return f"{operands[0][1:]} = {PREDICATE[name].format(*(x[1:] for x in operands[1:]))};"
        rounding = ["rn"] if is_float(kind) and name in ROUNDED else []
        require(modifiers[:-1] == rounding)
        k = unsigned(kind) if not is_float(kind) and name in WRAPPING else kind
        template = (FLOAT if is_float(kind) else INTEGER)[name]
        values = [self.read(x, k) for x in operands[1:]]
        return self.write(operands[0], template.format(*values, type=CPP_TYPES[k]), k)

    def do_mul(self, modifiers, kind, operands):
        if is_float(kind):
            return self.arithmetic("mul", modifiers, kind, operands)
        return self.multiply(modifiers, kind, operands, None)

    def do_mad(self, modifiers, kind, operands):
        return self.multiply(modifiers, kind, operands, operands[3])

    def multiply(self, modifiers, kind, operands, addend):
        self.only(modifiers, "lo", "wide", kind)
        wide = f"{kind[0]}{2 * int(kind[1:])}" if "wide" in modifiers else unsigned(kind)
        factors = [f"static_cast<{CPP_TYPES[wide]}>({self.read(x, kind)})" for x in operands[1:3]]
        # Unsigned, so that it wraps.
        cpp = CPP_TYPES[unsigned(wide)]
        product = " * ".join(f"static_cast<{cpp}>({x})" for x in factors)
        if addend is not None:
            product += f" + {self.read(addend, unsigned(wide))}"
        return self.write(operands[0], product, unsigned(wide))

    def do_max(self, modifiers, kind, operands):
        if kind == "u16x2":
            self.only(modifiers, kind)
            arguments = ", ".join(self.read(x, "b32") for x in operands[1:])
            return self.write(operands[0], f"larger_halves({arguments})", "b32")
        return self.arithmetic("max", modifiers, kind, operands)

    def shift(self, function, modifiers, kind, operands):
        self.only(modifiers, kind)
        k = integer(kind)
        target, value, count = operands
        return self.write(target, f"{function}<{CPP_TYPES[k]}>({self.read(value, k)}, {self.read(count, 'u32')})", k)

    def do_shl(self, *arguments):
        return self.shift("shift_left", *arguments)

    def do_shr(self, *arguments):
        return self.shift("shift_right", *arguments)

    def do_selp(self, modifiers, kind, operands):
        self.only(modifiers, kind)
        target, a, b, condition = operands
        return self.write(target, f"{condition[1:]} ? {self.read(a, kind)} : {self.read(b, kind)}", kind)

    def do_setp(self, modifiers, kind, operands):
        comparison = modifiers[0]
        require(len(modifiers) == 2 and "|" not in operands[0])
        k = kind if is_float(kind) else integer(kind)
        a, b = (self.read(x, k) for x in operands[1:])
        if is_float(kind):
            require(comparison in FLOAT_COMPARISONS)
            return f"{operands[0][1:]} = is_{comparison}({a}, {b});"
        return f"{operands[0][1:]} = {a} {INTEGER_COMPARISONS[comparison]} {b};"

    def do_cvt(self, modifiers, source, operands):
        target = modifiers[-2]
        rounding = modifiers[:-2]
        if target in ("f16", "bf16") and source == "f32" and rounding == ["rn"]:
            return self.write(operands[0], f"to_{target}({self.read(operands[1], 'f32')})", "u16")
        if source == "f16" and target == "f32" and not rounding:
            return self.write(operands[0], f"from_f16({self.read(operands[1], 'u16')})", "f32")
        value = self.read(operands[1], source)
        if is_float(source) and is_float(target):
            exact = (source, target) == ("f32", "f64")
            require(rounding == ([] if exact else ["rn"]))
        elif is_float(source):
            require(rounding == ["rzi"] and (source, target) in (("f64", "s64"), ("f32", "s64"), ("f32", "s32")))
            value = f"truncate_to_{target}({value})"
        else:
            require(rounding == (["rn"] if is_float(target) else []))
        return self.write(operands[0], value, target)

    def do_bfi(self, modifiers, kind, operands):
        self.only(modifiers, kind)
        u = unsigned(kind)
        arguments = ", ".join(self.read(x, k) for x, k in zip(operands[1:], (u, u, "u32", "u32"), strict=True))
        return self.write(operands[0], f"insert_bits<{CPP_TYPES[u]}>({arguments})", u)

    def do_prmt(self, modifiers, _, operands):
        self.only(modifiers, "b32")
        arguments = ", ".join(self.read(x, "u32") for x in operands[1:4])
        return self.write(operands[0], f"permute_bytes({arguments})", "u32")

    def text(self):
        lines = [f"static void {self.function}([[maybe_unused]] Thread &t, [[maybe_unused]] const char *p) {{"]
        for prefix, (kind, count) in self.kernel.registers.items():
            names = ", ".join(f"{prefix}{i}{{}}" for i in range(count))
            lines.append(f"  [[maybe_unused]] {CPP_TYPES[kind]} {names};")
        for item in self.kernel.body:
            if isinstance(item, str):
                lines.append(f"{identifier(item)}:;")
                continue
            try:
                lines.append("  " + self.translate(item))
            except (Unknown, KeyError, IndexError, ValueError) as error:
                raise Unknown(f"{self.module.path}: cannot translate `{item.text}`: {error}") from error
        return "\n".join([*lines, "}"])


def constant_name(module, name):
    return f"constant_{identifier(module.path.stem)}_{identifier(name)}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parents[3]
    out = ["// Made by translate.py.", '#include "instructions.h"', '#include "machine.h"',
           "namespace gsc::cuda::ptx {"]
    rows = {}
    table = []
    for path in map(pathlib.Path, sys.argv[2:]):
        module = Module(path, root)
        for name, (alignment, values) in module.constants.items():
            out.append(f"alignas({alignment}) static const unsigned char {constant_name(module, name)}[] = "
                       f"{{{values}}};")
        for kernel in module.kernels:
            if kernel.name in rows:  # a template that several files instantiate
                continue
            function = f"kernel_{len(rows)}"
            first = len(table)
            out.append(Writer(module, kernel, function, table).text())
            parameters = ", ".join(f"{{{x.offset}, {x.size}}}" for x in kernel.parameters.values())
            rows[kernel.name] = (f'{{"{kernel.name}", {function}, {kernel.shared_bytes}, {kernel.parameter_bytes}, '
                                 f"{len(kernel.parameters)}, {{{parameters}}}, {first}, {len(table)}}}")
    out.append("const Kernel kKernels[] = {\n  " + ",\n  ".join(rows.values()) + "};")
    out.append("const int kKernelCount = static_cast<int>(sizeof kKernels / sizeof *kKernels);")
    sites = ",\n  ".join(f'{{"{what}", "{source}"}}' for what, source in table)
    out.append(f"const Site kSites[] = {{\n  {sites}}};")
    out.append("}  // namespace gsc::cuda::ptx\n")
    pathlib.Path(sys.argv[1]).write_text("\n".join(out))
    print(f"{len(rows)} kernels, {len(table)} instructions that touch memory or meet other threads")


if __name__ == "__main__":
    try:
        main()
    except Unknown as error:
        sys.exit(f"translate.py: {error}")
