"""What a Relax module means: it is evaluated function by function with numpy, each operator by a rule of
operators.py.

In its own element types, or with every float in float64 (`wide`). Where Relax leaves a result open (an
integer that overflows, a float that no integer holds) the place is written down as a hazard. Slow and plain;
runs in a worker.
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401 - numpy then knows bfloat16 by name
import numpy as np

from opsieve.backends.reference.relax.operators import RULES, Hazards, NoRule
from opsieve.gen.irs.relax.kernels import KINDS, kernel
from opsieve.gen.irs.relax.tree import (
    Attributes,
    Bind,
    Binding,
    Call,
    Constant,
    Expr,
    Extern,
    Function,
    GlobalVar,
    If,
    Module,
    Projection,
    RelaxOperator,
    Scalar,
    Seq,
    ShapeValue,
    Text,
    Tuple,
    Var,
)
from opsieve.gen.irs.relax.types import (
    PrimType,
    RelaxTensorType,
    ShapeType,
    Size,
    Sym,
    TupleType,
    Type,
    size_value,
)
from opsieve.gen.irs.tvm.nodes import ObjectNode, encode

_IDENTITY = frozenset(["vm.builtin.copy", "opsieve.copy_into"])
_DEPTH = 200  # calls within calls


class Mismatched(ValueError):
    """A value that `match_cast` refuses."""


class Closure:
    """A local function with what it reads of its surroundings."""

    def __init__(self, function: Function, scope: "Bindings") -> None:
        self.function, self.scope = function, scope


class Bindings:
    """The values of variables and symbols in one call."""

    def __init__(self, parent: "Bindings | None" = None) -> None:
        self.values: dict[str, Any] = dict(parent.values) if parent else {}
        self.sizes: dict[str, int] = dict(parent.sizes) if parent else {}


class ModuleEvaluator:
    """One module. `wide` computes floats in float64."""

    def __init__(self, module: Module, wide: bool) -> None:
        self.module, self.wide = module, wide
        self.hazards = Hazards()
        self._depth = 0

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The leaves of what main yields; inputs by name, tuples field by field (`pair.0`)."""
        self.hazards.found.clear()
        main = self.module.main
        args = [self.fed(param.type, param.name, inputs) for param in main.params]
        with np.errstate(all="ignore"):
            return list(_leaves(self.function(main, args, Bindings())))

    def fed(self, kind: Type, name: str, inputs: Mapping[str, Any]) -> Any:
        """An argument of main."""
        if isinstance(kind, TupleType):
            return tuple(
                self.fed(field, f"{name}.{place}", inputs) for place, field in enumerate(kind.fields)
            )
        if isinstance(kind, ShapeType):
            return tuple(int(size) for size in inputs[name])
        value = np.asarray(inputs[name])
        return value.item() if isinstance(kind, PrimType) else self.widened(value)

    def widened(self, value: Any) -> Any:
        """A tensor in the type that is computed in."""
        return value.astype(np.float64) if self.wide and value.dtype.kind in "fV" else value

    def function(self, function: Function, args: list[Any], scope: Bindings) -> Any:
        """The result of a call."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise NoRule("calls nest too deep")
        for param, value in zip(function.params, args, strict=True):
            scope.values[param.name] = value
            self.bind_sizes(param.type, value, scope)
        result = self.seq(function.body, scope)
        self._depth -= 1
        return result

    def seq(self, seq: Seq, scope: Bindings) -> Any:
        """The value of a sequence."""
        for binding in seq.bindings():
            scope.values[binding.var.name] = self.binding(binding, scope)
        return self.expr(seq.body, scope)

    def binding(self, binding: Binding, scope: Bindings) -> Any:
        """The value of a binding; a match_cast gives symbols their values."""
        if isinstance(binding, Bind) and isinstance(binding.value, Function):
            closure = Closure(binding.value, scope)
            closure.scope = Bindings(scope)
            closure.scope.values[binding.var.name] = closure
            return closure
        value = self.expr(binding.value, scope)
        if not isinstance(binding, Bind):
            self.bind_sizes(binding.type, value, scope, True)
        return value

    def bind_sizes(self, kind: Type, value: Any, scope: Bindings, check: bool = False) -> None:
        """Give the symbols of a type their values; Mismatched where a size that is known differs."""
        if isinstance(kind, TupleType):
            for field, item in zip(kind.fields, value, strict=True):
                self.bind_sizes(field, item, scope, check)
            return
        sizes = (
            kind.shape
            if isinstance(kind, RelaxTensorType)
            else kind.sizes
            if isinstance(kind, ShapeType)
            else None
        )
        given = value.shape if isinstance(kind, RelaxTensorType) else value
        for size, number in zip(sizes or (), given if sizes else (), strict=sizes is not None):
            if isinstance(size, Sym) and size.name not in scope.sizes:
                scope.sizes[size.name] = int(number)
            elif check and size_value(size, scope.sizes) != number:
                raise Mismatched(f"match_cast wants {size_value(size, scope.sizes)} where there is {number}")

    def expr(self, expr: Expr, scope: Bindings) -> Any:
        """The value of an expression."""
        if isinstance(expr, Var):
            return scope.values[expr.name]
        if isinstance(expr, Constant):
            flat = np.frombuffer(expr.array.data, np.dtype(expr.array.dtype))
            return self.widened(flat.reshape(expr.array.shape))
        if isinstance(expr, Scalar):
            return expr.value if isinstance(expr.value, bool | int | float) else self.size(expr.value, scope)
        if isinstance(expr, ShapeValue):
            return tuple(self.size(size, scope) for size in expr.sizes)
        if isinstance(expr, Tuple):
            return tuple(self.expr(item, scope) for item in expr.fields)
        if isinstance(expr, Projection):
            return self.expr(expr.tuple, scope)[expr.index]
        if isinstance(expr, Function):
            return Closure(expr, scope)
        if isinstance(expr, If):
            return self.seq(expr.then if bool(self.expr(expr.condition, scope)) else expr.other, scope)
        if isinstance(expr, Call):
            return self.call(expr, scope)
        return expr.value if isinstance(expr, Text) else expr

    def size(self, size: Size, scope: Bindings) -> int:
        """The value of a size."""
        return size_value(size, scope.sizes)

    def call(self, call: Call, scope: Bindings) -> Any:
        """The result of a call of any kind."""
        args = [self.expr(arg, scope) for arg in call.args]
        if isinstance(call.op, Var):
            closure = scope.values[call.op.name]
            return self.function(closure.function, args, Bindings(closure.scope))
        if isinstance(call.op, GlobalVar):
            found = self.module.get(call.op.name)
            if not isinstance(found, Function):
                raise NoRule(f"{call.op.name} is no function of Relax")
            return self.function(found, args, Bindings())
        name = call.op.name
        if isinstance(call.op, RelaxOperator) and name in (
            "relax.call_tir",
            "relax.call_dps_packed",
            "relax.call_pure_packed",
        ):
            return self.foreign(name, args, call.type)
        if isinstance(call.op, Extern) or name not in RULES:
            raise NoRule(f"no rule for {name}")
        return self.hazards.watched(
            name, RULES[name], args, call.attrs or Attributes("", ()), self.result(call)
        )

    def result(self, call: Call) -> str:
        """The element type that a call computes in, "" for none."""
        kind = call.type.fields[0] if isinstance(call.type, TupleType) and call.type.fields else call.type
        dtype = kind.dtype if isinstance(kind, RelaxTensorType) else ""
        return "float64" if self.wide and dtype.startswith(("float", "bfloat")) else dtype

    def foreign(self, name: str, args: list[Any], kind: Type) -> Any:
        """A kernel of gen/irs/relax/kernels.py, or a copy."""
        callee = args[0]
        if isinstance(callee, Extern):
            if callee.name not in _IDENTITY:
                raise NoRule(f"no rule for the packed function {callee.name}")
            return args[1][0] if name == "relax.call_dps_packed" else args[1]
        found = self.module.get(callee.name)
        which = _which_kernel(callee.name, found, kind) if isinstance(found, ObjectNode) else ""
        inputs = args[1]
        rules = {"add": np.add, "subtract": np.subtract, "larger": np.maximum, "smaller": np.minimum}
        if which == "exchange":
            return inputs[0]
        if which not in rules:
            raise NoRule(f"no rule for the kernel {callee.name}")
        return self.hazards.watched(
            f"kernel {which}", lambda a, attrs, dtype: rules[which](*a), list(inputs), Attributes("", ()), ""
        )


def _which_kernel(name: str, found: ObjectNode, kind: Type) -> str:
    """Which of KINDS a kernel is, "" for none: it is compared node by node with each."""
    if not isinstance(kind, RelaxTensorType) or not kind.rank:
        return ""
    text = encode(found)
    return next((which for which in KINDS if encode(kernel(name, which, kind)) == text), "")


def _leaves(value: Any) -> Any:
    if isinstance(value, tuple) and not all(isinstance(item, int) for item in value):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, tuple) or value:
        yield np.asarray(value)
