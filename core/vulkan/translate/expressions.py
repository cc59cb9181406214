# SPDX-License-Identifier: Apache-2.0
"""Expressions of C++ as expressions of GLSL. A value is text with a type; in memory, it is the text of its address."""

import struct as binary
from dataclasses import dataclass

from .syntax import Refused, initializer
from .types import BOOL, FLOAT, ULONG, Array, Lambda, Pointer, Struct, is_erased

TRANSPARENT = {
    "ParenExpr",
    "ExprWithCleanups",
    "MaterializeTemporaryExpr",
    "ConstantExpr",
    "SubstNonTypeTemplateParmExpr",
    "CXXBindTemporaryExpr",
}
CASTS = {"ImplicitCastExpr", "CXXStaticCastExpr", "CXXFunctionalCastExpr", "CStyleCastExpr", "CXXConstCastExpr"}
KEEPS_VALUE = {
    "NoOp",
    "FunctionToPointerDecay",
    "BuiltinFnToFnPtr",
    "BitCast",
    "UncheckedDerivedToBase",
    "DerivedToBase",
    "ConstructorConversion",
    "ArrayToPointerDecay",
    "ToVoid",
    "UserDefinedConversion",
}


@dataclass
class Value:
    text: str
    type: object
    in_memory: bool = False


def float_literal(value, kind):
    """The value to the bit. GLSL has no literal for inf."""
    value = float(value)
    if kind is FLOAT:
        bits = binary.unpack("<I", binary.pack("<f", value))[0]
        return f"uintBitsToFloat({bits:#x}u)" if value in (float("inf"), -float("inf")) else f"{_float_text(value)}f"
    low, high = binary.unpack("<II", binary.pack("<d", value))
    if value != value or value in (float("inf"), -float("inf")):
        return f"packDouble2x32(uvec2({low:#x}u, {high:#x}u))"
    return f"{_float_text(value)}lf"


def _float_text(value):
    text = repr(value)
    return text if any(c in text for c in ".en") else text + ".0"


def integer_literal(value, kind):
    value = int(value)
    if kind.glsl == "bool":
        return "true" if value else "false"
    if kind.glsl == "int":
        return f"int({value & 0xFFFFFFFF:#x}u)" if value == -(2**31) else str(value)
    if kind.glsl == "uint":
        return f"{value & 0xFFFFFFFF:#x}u"
    if kind.glsl == "int64_t":
        return f"int64_t({value & (2**64 - 1):#x}ul)" if value < 0 else f"{value}l"
    return f"{value & (2**64 - 1):#x}ul"


def zero(kind):
    if isinstance(kind, Struct):
        parts = [field_default(f) for f in kind.fields if not is_erased(f[1])]
        return f"{kind.glsl}({', '.join(parts)})"
    if isinstance(kind, Array):
        return f"{kind.glsl}({', '.join([zero(kind.element)] * kind.count)})"
    if kind.is_float:
        return float_literal(0.0, kind)
    return integer_literal(0, kind)


def field_default(entry):
    return zero(entry[1])


def convert(text, source, target):
    """A conversion between scalars, as C++ does it."""
    if target is BOOL or target.glsl == "bool":
        return text if source.glsl == "bool" else f"({text} != {zero(source)})"
    if target.is_float:
        return text if source.glsl == target.glsl else f"{target.glsl}({text})"
    if target.size == 1 and target.glsl == "int" or target.size == 2 and target.glsl == "int":
        return f"bitfieldExtract(int({text}), 0, {8 * target.size})"
    if target.size < 4:
        return f"(uint({text}) & {(1 << 8 * target.size) - 1:#x}u)"
    if source.glsl == target.glsl:
        return text
    if target.size == 8 and source.glsl == "int" and target.glsl == "uint64_t":
        return f"uint64_t(int64_t({text}))"
    return f"{target.glsl}({text})"


class Expressions:
    """Mixed into Function, which has: tree, types, unit, names (values by the id of a declaration), pre, post."""

    def load(self, value):
        if not value.in_memory:
            return value.text
        return f"{self.unit.loader(value.type)}({value.text})"

    def rvalue(self, node):
        return self.load(self.value(node))

    def type_of(self, node):
        return self.types.of(node["type"], node["_at"])

    def refuse(self, node, why):
        raise Refused(f"{node['_at']}: {why} has no translation")

    def value(self, node):
        kind = node["kind"]
        if kind in TRANSPARENT:
            return self.value(node["inner"][-1])
        if kind in CASTS:
            return self.cast(node)
        method = getattr(self, "on_" + kind, None)
        if method is None:
            self.refuse(node, kind)
        return method(node)

    def cast(self, node):
        how, inner = node["castKind"], node["inner"][0]
        if how == "LValueToRValue":
            value = self.value(inner)
            return Value(self.load(value), value.type)
        if how == "NullToPointer":
            return Value("0ul", Pointer(None))
        if how in KEEPS_VALUE:
            value = self.value(inner)
            if how == "BitCast":
                return Value(self.load(value), self.type_of(node))
            return value
        if how in (
            "IntegralCast",
            "FloatingCast",
            "IntegralToFloating",
            "FloatingToIntegral",
            "IntegralToBoolean",
            "FloatingToBoolean",
            "PointerToBoolean",
        ):
            value, target = self.value(inner), self.type_of(node)
            return Value(convert(self.load(value), value.type, target), target)
        return self.refuse(node, f"the cast {how}")

    def on_IntegerLiteral(self, node):
        kind = self.type_of(node)
        return Value(integer_literal(node["value"], kind), kind)

    def on_FloatingLiteral(self, node):
        kind = self.type_of(node)
        return Value(float_literal(node["value"], kind), kind)

    def on_CXXBoolLiteralExpr(self, node):
        return Value("true" if node["value"] else "false", BOOL)

    def on_RequiresExpr(self, node):
        return Value("true" if node["satisfied"] else "false", BOOL)

    def on_CXXNullPtrLiteralExpr(self, _node):
        return Value("0ul", Pointer(None))

    def on_ImplicitValueInitExpr(self, node):
        kind = self.type_of(node)
        return Value(self.default_of(kind), kind)

    on_CXXScalarValueInitExpr = on_ImplicitValueInitExpr

    def default_of(self, kind):
        """A value-initialised object, with the initializers of its fields."""
        if not isinstance(kind, Struct):
            return zero(kind)
        parts = [self.field_default(entry) for entry in kind.fields if not is_erased(entry[1])]
        return f"{kind.glsl}({', '.join(parts)})"

    def field_default(self, entry):
        start = initializer(entry[3])
        if start is None or start["kind"] == "InitListExpr" and not start.get("inner"):
            return self.default_of(entry[1])
        return self.rvalue(start)

    def on_InitListExpr(self, node):
        kind = self.type_of(node)
        items = node.get("inner", [])
        if "array_filler" in node:
            items = [c for c in node["array_filler"] if c.get("kind") != "ImplicitValueInitExpr"]
        if isinstance(kind, Array):
            texts = [self.rvalue(item) for item in items]
            texts += [zero(kind.element)] * (kind.count - len(texts))
            return Value(f"{kind.glsl}({', '.join(texts)})", kind)
        if not isinstance(kind, Struct):
            return self.value(items[0]) if items else Value(zero(kind), kind)
        if len(items) == 1 and self.type_of(items[0]) is kind:
            return self.value(items[0])
        texts = []
        position = 0
        for item in items:
            if item["kind"] == "InitListExpr" and position == 0 and len(items) != len(kind.fields):
                self.refuse(node, "a base in an initializer")
            entry = kind.fields[position]
            position += 1
            if not is_erased(entry[1]):
                is_default = item["kind"] == "CXXDefaultInitExpr"
                texts.append(self.field_default(entry) if is_default else self.rvalue(item))
        texts += [self.field_default(entry) for entry in kind.fields[position:]]
        return Value(f"{kind.glsl}({', '.join(texts)})", kind)

    def on_CXXConstructExpr(self, node):
        if node.get("inner"):
            return self.value(node["inner"][0])
        kind = self.type_of(node)
        return Value(self.default_of(kind) if not is_erased(kind) else "", kind)

    on_CXXTemporaryObjectExpr = on_CXXConstructExpr

    def on_DeclRefExpr(self, node):
        target = node["referencedDecl"]
        if target["kind"] == "EnumConstantDecl":
            kind = self.type_of(node)
            return Value(integer_literal(self.tree.enum_values[target["id"]], kind), kind)
        if target["id"] in self.names:
            return self.names[target["id"]]
        kind = self.type_of(node)
        if isinstance(kind, Lambda) or is_erased(kind):
            return Value("", kind)
        variable = self.tree.of_id.get(target["id"])
        if target["kind"].startswith("Var") and variable and variable.get("inner"):
            return Value(self.constant(variable), self.types.of(variable["type"], variable["_at"]))
        return self.refuse(node, f"'{target.get('name')}' here")

    def constant(self, variable):
        start = initializer(variable)
        if start is None:
            self.refuse(variable, f"the constant {variable['name']}")
        return f"({self.rvalue(start)})"

    def on_CXXThisExpr(self, _node):
        return self.this

    def on_MemberExpr(self, node):
        base = self.value(node["inner"][0])
        name = node["name"]
        if base.type is None or not isinstance(base.type, (Struct, Pointer)):
            self.refuse(node, f"the member {name}")
        if node.get("isArrow") and isinstance(base.type, Pointer):
            base = Value(self.load(base), base.type.pointee, True)
        declared = self.tree.of_id[node["referencedMemberDecl"]]
        if declared["kind"] == "VarDecl":
            return Value(self.constant(declared), self.types.of(declared["type"], declared["_at"]))
        entry = next(f for f in base.type.fields if f[3]["name"] == name)
        if base.in_memory:
            return Value(f"({base.text} + {entry[2]}ul)" if entry[2] else base.text, entry[1], True)
        return Value(f"{base.text}.{entry[0]}", entry[1])

    def on_ArraySubscriptExpr(self, node):
        base, index = (self.value(c) for c in node["inner"])
        where = self.load(index)
        if isinstance(base.type, Array):
            if base.in_memory:
                offset = f"uint64_t({where}) * {base.type.element.size}ul"
                return Value(f"({base.text} + {offset})", base.type.element, True)
            return Value(f"{base.text}[{where}]", base.type.element)
        return Value(self.moved(base, where), base.type.pointee, True)

    def moved(self, pointer, elements, sign="+"):
        size = pointer.type.pointee.size
        offset = f"uint64_t(int64_t({elements}) * {size}l)"
        return f"({self.load(pointer)} {sign} {offset})"

    def on_UnaryOperator(self, node):
        code, inner = node["opcode"], node["inner"][0]
        value = self.value(inner)
        if code == "*":
            if isinstance(value.type, Array):
                return Value(f"{value.text}[0]", value.type.element)
            return Value(self.load(value), value.type.pointee, True)
        if code in ("++", "--"):
            if value.in_memory:
                self.refuse(node, f"{code} of memory")
            text = f"{value.text}{code}" if node.get("isPostfix") else f"{code}{value.text}"
            return Value(text, value.type)
        if code == "&" and value.in_memory:
            return Value(value.text, Pointer(value.type))
        if code in ("-", "!", "~", "+"):
            return Value(f"({code}{self.load(value)})", value.type)
        return self.refuse(node, f"the operator {code}")

    def on_BinaryOperator(self, node):
        code = node["opcode"]
        left_node, right_node = node["inner"]
        if code == "=":
            return self.assign(self.value(left_node), self.rvalue(right_node))
        if code == ",":
            self.refuse(node, "a comma")
        left = self.value(left_node)
        before = len(self.pre)
        right = self.value(right_node)
        if code in ("&&", "||") and len(self.pre) != before:
            self.refuse(node, f"a change of memory behind {code}")
        kind = self.type_of(node)
        if isinstance(left.type, Pointer) and code in ("+", "-"):
            return Value(self.moved(left, self.load(right), code), left.type)
        a, b = self.load(left), self.load(right)
        if code == "/" and kind.is_float:
            return Value(f"exact_divide({a}, {b})", kind)
        if code in ("<<", ">>"):
            b = f"int({b})" if right.type.glsl != "int" else b
        return Value(f"({a} {code} {b})", kind)

    def assign(self, target, text):
        if is_erased(target.type):
            return Value("", target.type)
        if target.in_memory:
            self.pre.append(f"{self.unit.storer(target.type)}({target.text}, {text});")
            return Value("", target.type)
        return Value(f"{target.text} = {text}", target.type)

    def on_CompoundAssignOperator(self, node):
        target, right = (self.value(c) for c in node["inner"])
        code = node["opcode"][:-1]
        kind = self.types.of(node["computeResultType"], node["_at"])
        left = convert(self.load(target), target.type, kind)
        b = self.load(right)
        if code in ("<<", ">>"):
            b = f"int({b})"
        result = f"exact_divide({left}, {b})" if code == "/" and kind.is_float else f"({left} {code} {b})"
        return self.assign(target, convert(result, kind, target.type))

    def on_ConditionalOperator(self, node):
        condition = self.rvalue(node["inner"][0])
        before = len(self.pre)
        yes, no = (self.value(c) for c in node["inner"][1:])
        if yes.type is None:  # calls without a result
            return Value(f"if ({condition}) {yes.text}; else {no.text}", None)
        if len(self.pre) != before:
            self.refuse(node, "a change of memory in ?:")
        return Value(f"({condition} ? {self.load(yes)} : {self.load(no)})", yes.type)

    def on_UnaryExprOrTypeTraitExpr(self, node):
        kind = self.types.of(node["argType"], node["_at"]) if "argType" in node else self.type_of(node["inner"][0])
        return Value(integer_literal(kind.size, ULONG), ULONG)

    def on_BuiltinBitCastExpr(self, node):
        source, target = self.value(node["inner"][0]), self.type_of(node)
        text = self.load(source)
        if isinstance(target, Struct):
            return Value(self.same_leaves(source, target, node), target)
        pair = (source.type.glsl, target.glsl)
        functions = {
            ("float", "uint"): "floatBitsToUint",
            ("uint", "float"): "uintBitsToFloat",
            ("double", "uint64_t"): "double_bits",
            ("uint64_t", "double"): "bits_double",
        }
        if pair not in functions:
            self.refuse(node, f"a bit cast from {pair[0]} to {pair[1]}")
        return Value(f"{functions[pair]}({text})", target)

    def same_leaves(self, source, target, node):
        """A bit cast between structs of the same numbers in the same order."""
        name = self.temporary(source.type, self.load(source))
        leaves = list(_leaves(name, source.type))
        shape = [kind for _, kind in _leaves("", target)]
        if [kind for _, kind in leaves] != shape:
            self.refuse(node, "a bit cast between unlike structs")
        texts = iter([text for text, _ in leaves])
        return _build(target, texts)

    def on_LambdaExpr(self, node):
        return Value("", Lambda(node["inner"][0]["id"]))

    def on_CallExpr(self, node):
        callee = node["inner"][0]
        while callee["kind"] != "DeclRefExpr":
            callee = callee["inner"][0]
        target = callee["referencedDecl"]
        name = target["name"]
        if name.startswith("__builtin_"):
            return self.builtin(node, name)
        return self.call(target["id"], node, node["inner"][1:], None)

    def builtin(self, node, name):
        values = [self.rvalue(c) for c in node["inner"][1:]]
        kind = self.type_of(node)
        if name in ("__builtin_fabs", "__builtin_fabsf"):
            return Value(f"abs({values[0]})", kind)
        if name in ("__builtin_sqrt", "__builtin_sqrtf"):
            return Value(f"exact_root({values[0]})", kind)
        if name in ("__builtin_inf", "__builtin_inff", "__builtin_huge_val"):
            return Value(float_literal("inf", kind), kind)
        if name == "__builtin_unreachable":
            return Value("", None)
        return self.refuse(node, name)

    def on_CXXOperatorCallExpr(self, node):
        callee = node["inner"][0]
        while callee["kind"] != "DeclRefExpr":
            callee = callee["inner"][0]
        target = callee["referencedDecl"]
        if target["name"] == "operator=":
            return self.assign(self.value(node["inner"][1]), self.rvalue(node["inner"][2]))
        if target["name"] != "operator()":
            self.refuse(node, target["name"])
        return self.call(target["id"], node, node["inner"][2:], None)

    def on_CXXMemberCallExpr(self, node):
        member = node["inner"][0]
        this = self.value(member["inner"][0])
        return self.call(member["referencedMemberDecl"], node, node["inner"][1:], Value(self.load(this), this.type))


def _leaves(text, kind):
    if isinstance(kind, Struct):
        for entry in kind.fields:
            yield from _leaves(f"{text}.{entry[0]}", entry[1])
    elif isinstance(kind, Array):
        for i in range(kind.count):
            yield from _leaves(f"{text}[{i}]", kind.element)
    else:
        yield text, kind


def _build(kind, texts):
    if isinstance(kind, Struct):
        return f"{kind.glsl}({', '.join([_build(e[1], texts) for e in kind.fields])})"
    if isinstance(kind, Array):
        return f"{kind.glsl}({', '.join([_build(kind.element, texts) for _ in range(kind.count)])})"
    return next(texts)
