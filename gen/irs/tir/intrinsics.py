"""Operators and intrinsics that expressions are made of: what types each takes and gives.

Those that code for a CPU is generated for, of apache-tvm 0.27 (`include/tvm/tirx/op.h` says what each means).
"""

from collections.abc import Sequence
from dataclasses import dataclass

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "int16", "int8", "uint8", "uint32")
TYPES = ("float32", "int32", "bool", "int64", "float64", "float16", "int8", "uint8", "int16", "uint32")


@dataclass(frozen=True, slots=True)
class IntrinsicSignature:
    """An operator with argument types and a result type; "T" is the one type of all, drawn from `of`.

    `guard` says what an argument is held to: the last one `nonzero` or a `shift` amount, the first one
    `above:X`, `inside:X` (from -X to X) or `below:X`.
    """

    name: str
    args: tuple[str, ...]
    gives: str
    of: Sequence[str] = ()
    guard: str = ""


# The values that each argument is held to, so that results are mostly finite. `asinh`, `fmod` and some others
# are missing, because TVM generates no code for them on a CPU.
_UNARY = {
    "tirx.acos": "inside:0.9", "tirx.acosh": "above:1.1", "tirx.asin": "inside:0.9", "tirx.atan": "",
    "tirx.atanh": "inside:0.9", "prim.ceil": "", "tirx.cos": "", "tirx.cosh": "inside:4", "tirx.erf": "",
    "tirx.exp": "below:4", "tirx.exp10": "below:3", "tirx.exp2": "below:5", "tirx.fabs": "", "tirx.floor": "",
    "tirx.log": "above:0.1", "tirx.log10": "above:0.1", "tirx.log1p": "above:-0.9", "prim.log2": "above:0.1",
    "tirx.nearbyint": "", "tirx.round": "", "tirx.rsqrt": "above:0.1", "tirx.sigmoid": "inside:9",
    "tirx.sin": "", "tirx.sinh": "inside:4", "tirx.sqrt": "above:0", "tirx.tan": "inside:1.2",
    "tirx.tanh": "", "tirx.trunc": "",
}  # fmt: skip
_FLOAT_PAIR = {
    "tirx.atan2": "",
    "tirx.copysign": "",
    "tirx.hypot": "",
    "tirx.nextafter": "",
    "tirx.pow": "above:0.1",
}

INTRINSICS: tuple[IntrinsicSignature, ...] = (
    *(IntrinsicSignature(name, ("T",), "T", FLOATS, guard) for name, guard in _UNARY.items()),
    *(
        IntrinsicSignature(name, ("T", "T"), "T", ("float32", "float64"), guard)
        for name, guard in _FLOAT_PAIR.items()
    ),
    IntrinsicSignature("tirx.fma", ("T", "T", "T"), "T", ("float32", "float64")),
    IntrinsicSignature("tirx.ldexp", ("float32", "int32"), "float32"),
    IntrinsicSignature("tirx.isnan", ("T",), "bool", ("float32", "float64")),
    IntrinsicSignature("tirx.popcount", ("T",), "T", ("int32", "int64", "uint32")),
    IntrinsicSignature("prim.clz", ("T",), "int32", ("int32", "int64"), "positive"),
    IntrinsicSignature("prim.likely", ("bool",), "bool"),
    IntrinsicSignature("prim.if_then_else", ("bool", "T", "T"), "T", TYPES),
    IntrinsicSignature("tirx.q_multiply_shift", ("int32", "int32", "int32", "int32"), "int32", (), "q"),
)
OPERATORS: tuple[IntrinsicSignature, ...] = (
    *(
        IntrinsicSignature(name, ("T", "T"), "T", (*FLOATS, *INTS))
        for name in ("Add", "Sub", "Mul", "Min", "Max")
    ),
    # Only integers need a guard: their division by zero ends the process, that of floats gives an infinity.
    IntrinsicSignature("Div", ("T", "T"), "T", FLOATS),
    *(
        IntrinsicSignature(name, ("T", "T"), "T", INTS, "nonzero")
        for name in ("Div", "Mod", "FloorDiv", "FloorMod")
    ),
    *(
        IntrinsicSignature(name, ("T", "T"), "bool", (*FLOATS, *INTS))
        for name in ("EQ", "NE", "LT", "LE", "GT", "GE")
    ),
    *(IntrinsicSignature(name, ("bool", "bool"), "bool") for name in ("And", "Or")),
    *(IntrinsicSignature(name, ("T", "T"), "T", INTS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(IntrinsicSignature(name, ("T", "T"), "T", INTS, "shift") for name in ("LShift", "RShift")),
    IntrinsicSignature("BitwiseNot", ("T",), "T", INTS),
    IntrinsicSignature("Not", ("bool",), "bool"),
    IntrinsicSignature("Select", ("bool", "T", "T"), "T", TYPES),
    IntrinsicSignature("Cast", ("any",), "T", TYPES),
    IntrinsicSignature("Let", ("any", "T"), "T", TYPES),
)
EVERY = OPERATORS + INTRINSICS


def giving(kind: str) -> list[IntrinsicSignature]:
    """Return the forms that can give a value of this type."""
    return [form for form in EVERY if form.gives == kind or (form.gives == "T" and kind in form.of)]
