"""Interpret a TIR function step by step, by its definition, and find out whether its result is defined.

It is the second oracle for TVM's TIR and neither optimises nor lowers. A program that breaks an assumption of
TVM's passes has no meaning, so differing results on it are not bugs; such a program raises `Undefined` with
the reason: an access outside a buffer, a read of an unwritten value, a division by zero, an integer that
overflows or loses bits in a cast, a false assertion or assumption, iterations of a parallel, vectorised or
thread loop that share memory, and values that are not finite (passes simplify `x - x`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.arguments import arguments
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode

# The limit on statements and expressions: a few seconds, only run if results differ.
STEPS = 1_000_000
_INDEPENDENT = frozenset((N.PARALLEL, N.VECTORIZED, N.THREAD))
_LIMITS = {f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
_LIMITS |= {f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)} | {"bool": (0, 1)}
Number = int | float


class Undefined(Exception):
    """The program has no defined result; the message says why."""


class Unknown(Exception):
    """The program holds something that is not known here; the message says what."""


class _Memory:
    """A live buffer: its elements, a mask of the written ones, and the number of loops that were open when it
    was made.
    """

    __slots__ = ("depth", "elements", "shape", "written")

    def __init__(self, shape: tuple[int, ...], depth: int, elements: list[Number] | None = None):
        self.shape, self.depth = shape, depth
        size = math.prod(shape)
        self.elements: list[Number] = elements if elements is not None else [0] * size
        self.written = bytearray(b"\1" * size if elements is not None else size)


class _Iteration:
    """One loop whose iterations must not meet: which of them is under way, and who touched what."""

    __slots__ = ("depth", "now", "readers", "writers")

    def __init__(self, depth: int):
        self.depth, self.now = depth, 0
        self.writers: dict[tuple[int, int], int] = {}
        self.readers: dict[tuple[int, int], int] = {}


def run(function: ObjectNode, values: Mapping[str, Any], double: bool = False) -> dict[str, Any]:
    """Run a function and return the final values of every argument, by name.

    Floating values are rounded to their types after every operation; with `double` never, and the result is
    in float64.

    Raises:
        Undefined: it has no defined result.
        Unknown: it holds a part that this module does not know.
    """
    wanted = arguments(function)
    if wanted is None:
        raise Unknown("an argument that is not a dense buffer of constant shape")
    machine = _Machine(double)
    for name, of in wanted.items():
        given = np.asarray(values[name])
        convert: Callable[[Any], Number] = float if "float" in N.dtype(of) else int
        # Depth 0: arguments are outside of all loops and so shared by their iterations.
        machine.memory[of] = _Memory(given.shape, 0, [convert(item) for item in given.ravel().tolist()])
    try:
        machine.statement(function.node("body"))
    # Nothing is known of the program then; it is no fault of its own.
    except RecursionError:
        raise Unknown("nested too deep") from None
    except MalformedGraph as error:
        raise Unknown(str(error)) from None
    found = {}
    for name, of in wanted.items():
        kind = "float64" if double and "float" in N.dtype(of) else N.dtype(of)
        found[name] = np.array(machine.memory[of].elements).reshape(machine.memory[of].shape).astype(kind)
    return found


class _Machine:
    def __init__(self, double: bool):
        self.double = double
        self.memory: dict[ObjectNode, _Memory] = {}
        self.values: dict[ObjectNode, Number] = {}
        self.turns: list[_Iteration] = []
        self.depth = 0
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise Unknown("more steps than the reference takes")

    # Statements

    def statement(self, node: ObjectNode) -> None:
        self.step()
        act = _STATEMENTS.get(node.type)
        if act is None:
            raise Unknown(f"a statement {node.type}")
        act(self, node)

    def seq(self, node: ObjectNode) -> None:
        for item in N.list_nodes(node["seq"]):
            self.statement(item)

    def store(self, node: ObjectNode) -> None:
        value = self.expression(node.node("value"))
        into = node.node("buffer")
        memory, at = self.place(into, node)
        self.meet(memory, at, True)
        memory.elements[at] = value
        memory.written[at] = 1

    def loop(self, node: ObjectNode) -> None:
        if node.get("step") is not None:
            raise Unknown("a loop with a step")
        said = node["annotations"]
        # It reorders statements across iterations, which a run in order would not show.
        if any(str(key).startswith("software_pipeline") for key, _ in getattr(said, "items", ())):
            raise Unknown("a software pipeline")
        first, extent = int(self.expression(node.node("min"))), int(self.expression(node.node("extent")))
        kind = node["kind"]
        if kind == N.THREAD:
            thread = node["thread_binding"]
            if not isinstance(thread, ObjectNode) or not str(thread["thread_tag"]).startswith("vthread"):
                raise Unknown("threads of a device")
        self.iterate(node.node("loop_var"), first, extent, node.node("body"), kind in _INDEPENDENT)

    def iterate(self, var: ObjectNode, first: int, extent: int, body: ObjectNode, independent: bool) -> None:
        self.depth += 1
        if independent:
            self.turns.append(_Iteration(self.depth))
        for turn in range(extent):
            if independent:
                self.turns[-1].now = turn
            self.values[var] = first + turn
            self.statement(body)
        if independent:
            self.turns.pop()
        self.depth -= 1

    def attribute(self, node: ObjectNode) -> None:
        key = str(node["attr_key"])
        if key in ("virtual_thread", "thread_extent"):
            about = node.node("node")
            if not str(about["thread_tag"]).startswith("vthread"):
                raise Unknown("threads of a device")
            extent = int(self.expression(node.node("value")))
            self.iterate(about.node("var"), 0, extent, node.node("body"), True)
        elif key.startswith("pragma_") or key in ("double_buffer_scope", "storage_alignment", "extern_scope"):
            self.statement(node.node("body"))
        else:
            raise Unknown(f"an attribute {key}")

    def branch(self, node: ObjectNode) -> None:
        other = node.get("else_case")
        if self.expression(node.node("condition")):
            self.statement(node.node("then_case"))
        elif isinstance(other, ObjectNode):
            self.statement(other)

    def while_(self, node: ObjectNode) -> None:
        while self.expression(node.node("condition")):
            self.statement(node.node("body"))

    def bind(self, node: ObjectNode) -> None:
        self.values[node.node("var")] = self.expression(node.node("value"))

    def allocate(self, node: ObjectNode) -> None:
        self._allocate_buffer(node.node("buffer"))

    def _allocate_buffer(self, of: ObjectNode) -> None:
        sizes = N.shape(of)
        if sizes is None:
            raise Unknown("a buffer whose shape is not a constant")
        self.memory[of] = _Memory(sizes, self.depth)

    def evaluate(self, node: ObjectNode) -> None:
        value = node.node("value")
        if value.type == "ir.Call" and _name(value) == "tirx.assume":
            if not self.expression(N.list_nodes(value["args"])[0]):
                raise Undefined("an assumption that does not hold")
            return
        self.expression(value)

    def assertion(self, node: ObjectNode) -> None:
        if not self.expression(node.node("condition")):
            raise Undefined("an assertion that does not hold")

    def block(self, node: ObjectNode) -> None:
        block = node.node("block")
        if block["match_buffers"]:
            raise Unknown("a matched buffer")
        values = [self.expression(item) for item in N.list_nodes(node["iter_values"])]
        if not self.expression(node.node("predicate")):
            return
        first = True
        for item, value in zip(N.list_nodes(block["iter_vars"]), values, strict=True):
            self.values[item.node("var")] = value
            domain = item.node("dom")
            # a reduction under way
            if item["iter_type"] == 2 and value != self.expression(domain.node("min")):
                first = False
        for of in N.list_nodes(block["alloc_buffers"]):
            # A block in a loop is entered many times and keeps what it allocated.
            if of not in self.memory:
                self._allocate_buffer(of)
        init = block.get("init")
        if isinstance(init, ObjectNode) and first:
            self.statement(init)
        self.statement(block.node("body"))

    # Memory

    def place(self, of: ObjectNode, access: ObjectNode) -> tuple[_Memory, int]:
        memory = self.memory.get(of)
        if memory is None:
            raise Unknown("a buffer with an unknown declaration")
        at = 0
        indices = N.list_nodes(access["indices"])
        if len(indices) != len(memory.shape):
            raise Unknown("an access by another number of indices")
        for index, size in zip(indices, memory.shape, strict=True):
            value = int(self.expression(index))
            if not 0 <= value < size:
                raise Undefined(f"an index {value} outside of a dimension of {size}")
            at = at * size + value
        return memory, at

    def meet(self, memory: _Memory, at: int, writes: bool) -> None:
        """Note an access in every loop around it whose iterations must not meet; raises Undefined
        if they do.
        """
        # The buffer as it lives now: one that is allocated anew in each turn is another.
        key = (id(memory), at)
        for turn in self.turns:
            # Every iteration has its own
            if memory.depth >= turn.depth:
                continue
            writer, reader = turn.writers.get(key, turn.now), turn.readers.get(key, turn.now)
            if writer != turn.now or (writes and reader != turn.now):
                raise Undefined("iterations of a parallel, vectorised or thread loop meet in memory")
            if writes:
                turn.writers[key] = turn.now
            else:
                # -1 for several readers: a writer conflicts with at least one.
                turn.readers[key] = turn.now if reader == turn.now else -1

    # Expressions

    def expression(self, node: ObjectNode) -> Number:
        self.step()
        kind = node.type
        if kind == "ir.Var":
            if node not in self.values:
                raise Unknown(f"a variable {str(node['name'])[:40]} without a value")
            return self.values[node]
        if kind in ("ir.IntImm", "ir.FloatImm"):
            value = node["value"]
            assert isinstance(value, int | float)
            return self.hold_value(value, N.dtype(node)) if kind == "ir.FloatImm" else value
        act = _EXPRESSIONS.get(kind)
        if act is None:
            raise Unknown(f"an expression {kind}")
        return self.hold_value(act(self, node), N.dtype(node))

    def hold_value(self, value: Number, kind: str) -> Number:
        """Return the value as its type stores it."""
        if kind in _LIMITS:
            low, high = _LIMITS[kind]
            whole = int(value)
            if not low <= whole <= high:
                raise Undefined(f"{kind} overflows")
            return whole
        if kind not in ("float16", "float32", "float64"):
            raise Unknown(f"a value of type {kind or 'handle'}")
        value = float(value)
        if not self.double and kind != "float64":
            with np.errstate(over="ignore"):
                value = float(np.dtype(kind).type(value))
        if not math.isfinite(value):
            raise Undefined("a value that is not finite")
        return value

    def load(self, node: ObjectNode) -> Number:
        memory, at = self.place(node.node("source"), node)
        if not memory.written[at]:
            raise Undefined("a value is read before it is written")
        self.meet(memory, at, False)
        return memory.elements[at]

    def cast(self, node: ObjectNode) -> Number:
        value, kind = self.expression(node.node("value")), N.dtype(node)
        if kind == "bool":
            return int(value != 0)
        return math.trunc(value) if kind in _LIMITS else value

    def select(self, node: ObjectNode) -> Number:
        # Both sides are computed, as TVM does it: an invalid one makes the program undefined.
        condition, yes, no = (
            self.expression(node.node(name)) for name in ("condition", "true_value", "false_value")
        )
        return yes if condition else no

    def let(self, node: ObjectNode) -> Number:
        self.values[node.node("var")] = self.expression(node.node("value"))
        return self.expression(node.node("body"))

    def negate_value(self, node: ObjectNode) -> Number:
        value = self.expression(node.node("a"))
        if node.type == "prim.Not":
            return int(not value)
        return ~int(value) if not N.dtype(node).startswith("u") else _LIMITS[N.dtype(node)][1] - int(value)

    def pair(self, node: ObjectNode) -> Number:
        a, b = self.expression(node.node("a")), self.expression(node.node("b"))
        return _pair(node.type.removeprefix("prim."), a, b, N.dtype(node))

    def call(self, node: ObjectNode) -> Number:
        name, args = _name(node), N.list_nodes(node["args"])
        if name == "prim.if_then_else":
            return self.expression(args[1] if self.expression(args[0]) else args[2])
        given = [self.expression(item) for item in args]
        act = CALLS.get(name)
        if act is None:
            raise Unknown(f"an intrinsic {name}")
        if name in ("prim.clz", "tirx.popcount"):
            if name == "prim.clz" and not given[0]:
                # tvm.tirx.clz: "undefined if the input is 0"
                raise Undefined("leading zeros of zero")
            bits = int("".join(filter(str.isdigit, N.dtype(args[0]))) or 32)
            return act(int(given[0]) & ((1 << bits) - 1), bits)
        try:
            return act(*given)
        except (ValueError, OverflowError, ZeroDivisionError):
            raise Undefined(f"{name} outside of where it is defined") from None


def _pair(name: str, a: Number, b: Number, kind: str) -> Number:
    if name in ("Div", "Mod", "FloorDiv", "FloorMod"):
        if b == 0:
            raise Undefined("a division by zero")
        if isinstance(a, float) or isinstance(b, float):
            return {
                "Div": a / b,
                "FloorDiv": float(a // b),
                "FloorMod": float(a % b),
                "Mod": math.fmod(a, b),
            }[name]
        # Towards 0, as C divides; by integers, since a float would lose bits of an int64.
        whole = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return {"Div": whole, "Mod": a - whole * b, "FloorDiv": a // b, "FloorMod": a % b}[name]
    if name in ("LShift", "RShift"):
        bits = int("".join(filter(str.isdigit, kind)) or 32)
        # Undefined in C and in LLVM.
        if not 0 <= b < bits:
            raise Undefined("a shift by more than the bits there are")
        return int(a) << int(b) if name == "LShift" else int(a) >> int(b)
    return _PAIRS[name](a, b)


_PAIRS: dict[str, Callable[[Any, Any], Number]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Min": min,
    "Max": max,
    "EQ": lambda a, b: int(a == b),
    "NE": lambda a, b: int(a != b),
    "LT": lambda a, b: int(a < b),
    "LE": lambda a, b: int(a <= b),
    "GT": lambda a, b: int(a > b),
    "GE": lambda a, b: int(a >= b),
    "And": lambda a, b: int(bool(a) and bool(b)),
    "Or": lambda a, b: int(bool(a) or bool(b)),
    "BitwiseAnd": lambda a, b: int(a) & int(b),
    "BitwiseOr": lambda a, b: int(a) | int(b),
    "BitwiseXor": lambda a, b: int(a) ^ int(b),
}


# `tirx.round` is not among them: half to even or away from zero, TVM has said either.
CALLS: dict[str, Callable[..., Number]] = {
    "tirx.acos": math.acos,
    "tirx.acosh": math.acosh,
    "tirx.asin": math.asin,
    "tirx.asinh": math.asinh,
    "tirx.atan": math.atan,
    "tirx.atanh": math.atanh,
    "prim.ceil": lambda x: float(math.ceil(x)),
    "tirx.cos": math.cos,
    "tirx.cosh": math.cosh,
    "tirx.erf": math.erf,
    "tirx.exp": math.exp,
    "tirx.exp10": lambda x: 10.0**x,
    "tirx.exp2": lambda x: 2.0**x,
    "tirx.fabs": abs,
    "tirx.floor": lambda x: float(math.floor(x)),
    "tirx.log": math.log,
    "tirx.log10": math.log10,
    "tirx.log1p": math.log1p,
    "prim.log2": math.log2,
    "tirx.nearbyint": lambda value: float(round(value)),
    "tirx.rsqrt": lambda x: 1.0 / math.sqrt(x),
    "tirx.sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "tirx.sin": math.sin,
    "tirx.sinh": math.sinh,
    "tirx.sqrt": math.sqrt,
    "tirx.tan": math.tan,
    "tirx.tanh": math.tanh,
    "tirx.trunc": lambda x: float(math.trunc(x)),
    "tirx.atan2": math.atan2,
    "tirx.copysign": math.copysign,
    "tirx.fmod": math.fmod,
    "tirx.hypot": math.hypot,
    "tirx.pow": math.pow,
    "tirx.fma": lambda a, b, c: a * b + c,
    "tirx.ldexp": lambda x, n: math.ldexp(x, int(n)),
    "tirx.isnan": lambda x: int(math.isnan(x)),
    "prim.likely": lambda x: x,
    "tirx.popcount": lambda x, bits: int(x).bit_count(),
    "prim.clz": lambda x, bits: bits - int(x).bit_length(),
}
_STATEMENTS: dict[str, Callable[[_Machine, ObjectNode], None]] = {
    "tirx.SeqStmt": _Machine.seq,
    "tirx.BufferStore": _Machine.store,
    "tirx.For": _Machine.loop,
    "tirx.IfThenElse": _Machine.branch,
    "tirx.While": _Machine.while_,
    "tirx.Bind": _Machine.bind,
    "tirx.AllocBuffer": _Machine.allocate,
    "tirx.Evaluate": _Machine.evaluate,
    "tirx.AssertStmt": _Machine.assertion,
    "tirx.AttrStmt": _Machine.attribute,
    "s_tir.SBlockRealize": _Machine.block,
}
_EXPRESSIONS: dict[str, Callable[[_Machine, ObjectNode], Number]] = {
    **{
        f"prim.{name}": _Machine.pair
        for name in (*_PAIRS, "Div", "Mod", "FloorDiv", "FloorMod", "LShift", "RShift")
    },
    "prim.Not": _Machine.negate_value,
    "prim.BitwiseNot": _Machine.negate_value,
    "prim.Cast": _Machine.cast,
    "prim.Select": _Machine.select,
    "prim.Let": _Machine.let,
    "ir.TensorLoad": _Machine.load,
    "ir.Call": _Machine.call,
}


def _name(node: ObjectNode) -> str:
    op = node["op"]
    return str(op.raw) if isinstance(op, ObjectNode) else ""
