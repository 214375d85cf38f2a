"""Generate expressions of a wanted type and size from the variables in scope (the generator of Tzer, section
3.2).

An index is always inside its buffer, a divisor is never zero, and a shift is narrower than its type;
everything else is random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.scope import RATES, Scope
from opsieve.gen.irs.tvm.nodes import ObjectNode

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


_BITS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "uint32": 32, "int64": 64}
# All are exact in every float type, so that folding constants must not change a result.
_REALS = (0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 0.125, 10.0)
# Around powers of two, where strength reduction and vectorisation choose other code.
_WHOLES = (0, 1, 2, 3, 4, 5, 7, 8, 16)


def constant(rng: Rng, kind: str) -> ObjectNode:
    """Return a small constant."""
    if kind == "bool":
        return N.integer(rng.below(2), kind)
    if "float" in kind:
        return N.real(rng.choice(_REALS), kind)
    value = rng.choice(_WHOLES)
    return N.integer(-value if rng.chance(RATES.negative) and not kind.startswith("u") else value, kind)


def expression(rng: Rng, scope: Scope, kind: str, fuel: int) -> ObjectNode:
    """Make an expression of a type with about `fuel` operators at most."""
    if fuel <= 0 or rng.chance(RATES.leaf):
        return _leaf(rng, scope, kind)
    forms = giving(kind)
    return build_operator(rng, scope, rng.choice(forms), kind, fuel) if forms else _leaf(rng, scope, kind)


def build_operator(
    rng: Rng,
    scope: Scope,
    form: IntrinsicSignature,
    kind: str,
    fuel: int,
    given: Sequence[ObjectNode] = (),
) -> ObjectNode:
    """Make an operator of a form that gives `kind`; nodes in `given` become arguments where their types
    fit.
    """
    chosen = kind if form.gives == "T" else rng.choice(form.of) if form.of else ""
    left = list(given)
    # Fuel is shared, so that the size of an expression is bounded by it.
    each = max(0, (fuel - 1) // max(1, len(form.args)))

    def argument(wanted: str, inner: Scope = scope) -> ObjectNode:
        wanted = {"T": chosen, "any": rng.choice(TYPES)}.get(wanted, wanted)
        for item in left:
            if N.dtype(item) == wanted:
                left.remove(item)
                return item
        return expression(rng, inner, wanted, each)

    if form.name == "Let":
        value = argument("any")
        var = N.variable(f"t{rng.below(1000)}", N.dtype(value))
        return N.let(var, value, argument(kind, scope.with_variable(var)))
    args = [argument(item) for item in form.args]
    return operation(form.name, kind, _guard_last(rng, form, args, chosen))


def operation(name: str, kind: str, args: Sequence[ObjectNode]) -> ObjectNode:
    """Return the node of an operator by its short name, or the call of an intrinsic."""
    if name == "Cast":
        return N.cast(args[0], kind)
    if name == "Not":
        return N.negation(args[0])
    if name == "Select":
        return N.select(*args)
    if name == "BitwiseNot":
        return ObjectNode("prim.BitwiseNot", {"span": None, "ty": N.prim(kind), "a": args[0]})
    return N.call(name, kind, *args) if "." in name else N.binary(name, *args)


def _guard_last(rng: Rng, form: IntrinsicSignature, args: list[ObjectNode], kind: str) -> list[ObjectNode]:
    """Return the arguments with the last one restricted to the values that the operator accepts."""
    # The guard is in the program: a divisor from memory may be any number.
    if form.guard == "nonzero":
        last = N.integer(rng.choice((1, 2, 3, 4, 7, 8)), kind)
        if rng.chance(RATES.divisor_kept_positive):
            last = N.binary("Max", args[-1], N.integer(1, kind))
        return [*args[:-1], last]
    if form.guard == "positive":
        return [N.binary("Max", args[0], N.integer(1, kind))]
    if form.guard == "shift":
        if rng.chance(RATES.constant_shift):
            return [*args[:-1], N.integer(rng.below(min(8, _BITS[kind])), kind)]
        # A shift by the width or more is undefined, and the mask keeps the low bits only.
        return [*args[:-1], N.binary("BitwiseAnd", args[-1], N.integer(_BITS[kind] - 1, kind))]
    how, _, limit = form.guard.partition(":")
    if limit:
        first = args[0]
        if how in ("below", "inside"):
            first = N.binary("Min", first, N.real(float(limit), kind))
        if how in ("above", "inside"):
            first = N.binary("Max", first, N.real(float(limit) if how == "above" else -float(limit), kind))
        return [first, *args[1:]]
    if form.guard == "q":
        # `q_multiply_shift` takes two numbers, their fractional bits and a shift.
        return [args[0], args[1], N.integer(31), N.integer(rng.below(8))]
    return args


def _leaf(rng: Rng, scope: Scope, kind: str) -> ObjectNode:
    variables, buffers = scope.of(kind), [item for item in scope.buffers if N.dtype(item) == kind]
    way = rng.random()
    if buffers and way < 0.5:
        return element(rng, scope, rng.choice(buffers))
    if variables and way < 0.8:
        return rng.choice(variables)
    if way > 0.9 and scope.buffers and kind != "bool":
        other = rng.choice(scope.buffers)
        if N.dtype(other) in TYPES:
            return N.cast(element(rng, scope, other), kind)
    return constant(rng, kind)


def element(rng: Rng, scope: Scope, of: ObjectNode) -> ObjectNode:
    """Return a load from a buffer of constant shape, inside its bounds."""
    return N.load(of, *(index(rng, scope, size) for size in N.shape(of) or ()))


def index(rng: Rng, scope: Scope, size: int, fuel: int = 2) -> ObjectNode:
    """Make an int32 from 0 to `size` - 1: a loop's variable in that range, a sum of two, a constant, or
    anything modulo `size`.
    """
    fitting = [
        (var, high) for var, low, high in scope.ranges if low >= 0 and high < size and N.dtype(var) == "int32"
    ]
    way = rng.random()
    # A plain loop variable is what vectorisers look for.
    if fitting and way < 0.6:
        var, high = rng.choice(fitting)
        room = size - 1 - high
        if room and rng.chance(RATES.index_moved):
            return N.binary("Add", var, N.integer(rng.between(1, room)))
        if rng.chance(RATES.index_backwards):
            return N.binary("Sub", N.integer(size - 1), var)
        return var
    if way < 0.75:
        return N.integer(rng.below(size))
    counting = [var for var, low, _ in scope.ranges if low >= 0 and N.dtype(var) == "int32"]
    inner = _affine(rng, counting) if counting else expression(rng, scope, "int32", fuel)
    # Both ways stay inside the buffer; passes simplify them by different rules.
    if rng.chance(RATES.index_wrapped):
        return N.binary("FloorMod", inner, N.integer(size))
    return N.binary("Max", N.binary("Min", inner, N.integer(size - 1)), N.integer(0))


def _affine(rng: Rng, counting: Sequence[ObjectNode]) -> ObjectNode:
    scaled = N.binary("Mul", rng.choice(counting), N.integer(rng.choice((1, 2, 3, 4, 8))))
    if rng.chance(RATES.index_divided):
        scaled = N.binary(rng.choice(("FloorDiv", "FloorMod")), scaled, N.integer(rng.choice((2, 3, 4))))
    return N.binary(
        "Add", scaled, rng.choice(counting) if rng.chance(RATES.index_of_two) else N.integer(rng.below(8))
    )
