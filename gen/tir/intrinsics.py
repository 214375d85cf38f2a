"""Operators and intrinsics that expressions are made of: what types each takes and gives.

Those that code for a CPU is generated for, of apache-tvm 0.27 (`include/tvm/tirx/op.h` says what each means).
"""

from collections.abc import Sequence
from dataclasses import dataclass

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "int16", "int8", "uint8", "uint32")
TYPES = ("float32", "int32", "bool", "int64", "float64", "float16", "int8", "uint8", "int16", "uint32")


@dataclass(frozen=True, slots=True)
class Form:
    """An operator with argument types and a result type; "T" is the one type of all, drawn from `of`.

    `guard` says what its last argument has to be: `nonzero`, a `shift` amount, `likely` needs nothing.
    """

    name: str
    args: tuple[str, ...]
    gives: str
    of: Sequence[str] = ()
    guard: str = ""


_UNARY = [
    "tirx.acos",
    "tirx.acosh",
    "tirx.asin",
    "tirx.asinh",
    "tirx.atan",
    "tirx.atanh",
    "prim.ceil",
    "tirx.cos",
    "tirx.cosh",
    "tirx.erf",
    "tirx.exp",
    "tirx.exp10",
    "tirx.exp2",
    "tirx.fabs",
    "tirx.floor",
    "tirx.log",
    "tirx.log10",
    "tirx.log1p",
    "prim.log2",
    "tirx.nearbyint",
    "tirx.round",
    "tirx.rsqrt",
    "tirx.sigmoid",
    "tirx.sin",
    "tirx.sinh",
    "tirx.sqrt",
    "tirx.tan",
    "tirx.tanh",
    "tirx.trunc",
]
_FLOAT_PAIR = ("tirx.atan2", "tirx.copysign", "tirx.fmod", "tirx.hypot", "tirx.nextafter", "tirx.pow")

INTRINSICS: tuple[Form, ...] = (
    *(Form(name, ("T",), "T", FLOATS) for name in _UNARY),
    *(Form(name, ("T", "T"), "T", ("float32", "float64")) for name in _FLOAT_PAIR),
    Form("tirx.fma", ("T", "T", "T"), "T", ("float32", "float64")),
    Form("tirx.ldexp", ("float32", "int32"), "float32"),
    Form("tirx.isnan", ("T",), "bool", ("float32", "float64")),
    Form("tirx.popcount", ("T",), "T", ("int32", "int64", "uint32")),
    Form("prim.clz", ("T",), "int32", ("int32", "int64")),
    Form("prim.likely", ("bool",), "bool"),
    Form("prim.if_then_else", ("bool", "T", "T"), "T", TYPES),
    Form("tirx.q_multiply_shift", ("int32", "int32", "int32", "int32"), "int32", (), "q"),
)
OPERATORS: tuple[Form, ...] = (
    *(Form(name, ("T", "T"), "T", (*FLOATS, *INTS)) for name in ("Add", "Sub", "Mul", "Min", "Max")),
    Form("Div", ("T", "T"), "T", FLOATS),
    *(Form(name, ("T", "T"), "T", INTS, "nonzero") for name in ("Div", "Mod", "FloorDiv", "FloorMod")),
    *(Form(name, ("T", "T"), "bool", (*FLOATS, *INTS)) for name in ("EQ", "NE", "LT", "LE", "GT", "GE")),
    *(Form(name, ("bool", "bool"), "bool") for name in ("And", "Or")),
    *(Form(name, ("T", "T"), "T", INTS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(Form(name, ("T", "T"), "T", INTS, "shift") for name in ("LShift", "RShift")),
    Form("BitwiseNot", ("T",), "T", INTS),
    Form("Not", ("bool",), "bool"),
    Form("Select", ("bool", "T", "T"), "T", TYPES),
    Form("Cast", ("any",), "T", TYPES),
    Form("Let", ("any", "T"), "T", TYPES),
)
EVERY = OPERATORS + INTRINSICS


def giving(kind: str) -> list[Form]:
    """The forms that can give a value of this type."""
    return [form for form in EVERY if form.gives == kind or (form.gives == "T" and kind in form.of)]
