"""The semantics of a Relax module: it is run function by function, with each operator spelled in ONNX.

The run is recorded as an ONNX model of these inputs (onnx_trace.py): branches are taken, functions inlined,
and symbols have their values. Slow and plain; runs in a worker.
"""

from collections.abc import Mapping
from typing import Any

# numpy then knows bfloat16 by name
import ml_dtypes  # noqa: F401
import numpy as np
from onnx import ModelProto

from opsieve.backends.reference import forbidden, tir
from opsieve.backends.reference.relax.onnx_trace import OnnxTrace, PortableTrace
from opsieve.gen.irs.relax import catalogue, kernels, tree as R, types as T
from opsieve.gen.irs.relax.spellings.spelling import SpelledCall
from opsieve.gen.irs.tir.arguments import arguments, with_own_names
from opsieve.gen.irs.tir.nodes import dtype, integer, is_buffer, replace_node, shape, with_fields
from opsieve.gen.irs.tvm import nodes, program

_IDENTITY = frozenset(["vm.builtin.copy", "opsieve.copy_into"])
# Recursive functions of a module end by a counter. The limit keeps a wrong one from overflowing Python's
# stack.
_DEPTH = 200
# The kernels of gen/irs/relax/kernels.py in ONNX.
_KERNELS = {"add": "Add", "subtract": "Sub", "larger": "Max", "smaller": "Min", "exchange": "Identity"}

# Stands for a tensor whose memory nothing has written.
UNWRITTEN = object()


class Closure:
    """A local function with the outer values that it reads."""

    def __init__(self, function: R.Function, scope: "Bindings") -> None:
        self.function, self.scope = function, scope


class Bindings:
    """The values of variables and symbols in one call."""

    def __init__(self, parent: "Bindings | None" = None) -> None:
        self.values: dict[str, Any] = dict(parent.values) if parent else {}
        self.sizes: dict[str, int] = dict(parent.sizes) if parent else {}


class ModuleEvaluator:
    """One module, run once. With `portable` the trace is for other compilers than the reference."""

    def __init__(self, module: R.Module, portable: bool = False) -> None:
        self.module, self.portable = module, portable
        self.onnx = PortableTrace() if portable else OnnxTrace()
        self._depth = 0

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run main and return the leaves of its result; inputs are given by name, tuples field by field
        (`pair.0`).
        """
        main = self.module.main
        args = [self.fed(param.type, param.name, inputs) for param in main.params]
        with np.errstate(all="ignore"):
            leaves = list(_leaves(self.function(main, args, Bindings())))
        return {f"output_{place}": leaf for place, leaf in enumerate(leaves)}

    def trace(self, inputs: Mapping[str, Any]) -> ModelProto:
        """Return the ONNX model that computes the same as the module with these inputs.

        Raises:
            NotImplementedError: an operator has no spelling.
            Forbidden: a `match_cast` refuses a value.
        """
        return self.onnx.build_model(self.run(inputs))

    def fed(self, kind: T.Type, name: str, inputs: Mapping[str, Any]) -> Any:
        """Return an argument of main; shapes and scalars become numbers of the model."""
        if isinstance(kind, T.TupleType):
            return tuple(
                self.fed(field, f"{name}.{place}", inputs) for place, field in enumerate(kind.fields)
            )
        if isinstance(kind, T.ShapeType):
            return tuple(int(size) for size in inputs[name])
        value = np.asarray(inputs[name])
        return value.item() if isinstance(kind, T.PrimType) else self.onnx.add_input(name, value)

    def function(self, function: R.Function, args: list[Any], scope: Bindings) -> Any:
        """Return the result of a call."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise NotImplementedError("calls nest too deep")
        for param, value in zip(function.params, args, strict=True):
            scope.values[param.name] = value
            self.bind_sizes(param.type, value, scope)
        result = self.seq(function.body, scope)
        self._depth -= 1
        return result

    def seq(self, seq: R.Seq, scope: Bindings) -> Any:
        """Return the value of a sequence."""
        for binding in seq.bindings():
            scope.values[binding.var.name] = self.binding(binding, scope)
        return self.expr(seq.body, scope)

    def binding(self, binding: R.Binding, scope: Bindings) -> Any:
        """Return the value of a binding; a match_cast gives symbols their values."""
        if isinstance(binding, R.Bind) and isinstance(binding.value, R.Function):
            closure = Closure(binding.value, scope)
            # A scope of its own that holds the function itself, which may be recursive.
            closure.scope = Bindings(scope)
            closure.scope.values[binding.var.name] = closure
            return closure
        value = self.expr(binding.value, scope)
        if not isinstance(binding, R.Bind):
            self.bind_sizes(binding.type, value, scope, True)
        return value

    def bind_sizes(self, kind: T.Type, value: Any, scope: Bindings, check: bool = False) -> None:
        """Give the symbols of a type their values; raises Forbidden if a known size differs."""
        if isinstance(kind, T.TupleType):
            for field, item in zip(kind.fields, value, strict=True):
                self.bind_sizes(field, item, scope, check)
            return
        sizes = (
            kind.shape
            if isinstance(kind, T.RelaxTensorType)
            else kind.sizes
            if isinstance(kind, T.ShapeType)
            else None
        )
        given = value.shape if isinstance(kind, T.RelaxTensorType) else value
        for size, number in zip(sizes or (), given if sizes else (), strict=sizes is not None):
            # The first occurrence of a symbol fixes it.
            if isinstance(size, T.Sym) and size.name not in scope.sizes:
                scope.sizes[size.name] = int(number)
            elif check and T.size_value(size, scope.sizes) != number:
                wanted = T.size_value(size, scope.sizes)
                raise forbidden.Forbidden(f"match_cast wants {wanted} where there is {number}")

    def expr(self, expr: R.Expr, scope: Bindings) -> Any:
        """Return the value of an expression."""
        if isinstance(expr, R.Var):
            return scope.values[expr.name]
        if isinstance(expr, R.Constant):
            flat = np.frombuffer(expr.array.data, np.dtype(expr.array.dtype))
            return flat.reshape(expr.array.shape)
        if isinstance(expr, R.Scalar):
            return expr.value if isinstance(expr.value, bool | int | float) else self.size(expr.value, scope)
        if isinstance(expr, R.ShapeValue):
            return tuple(self.size(size, scope) for size in expr.sizes)
        if isinstance(expr, R.Tuple):
            return tuple(self.expr(item, scope) for item in expr.fields)
        if isinstance(expr, R.Projection):
            return self.expr(expr.tuple, scope)[expr.index]
        if isinstance(expr, R.Function):
            return Closure(expr, scope)
        if isinstance(expr, R.If):
            return self.take_branch(expr, scope)
        if isinstance(expr, R.Call):
            return self.call(expr, scope)
        return expr.value if isinstance(expr, R.Text) else expr

    def take_branch(self, expr: R.If, scope: Bindings) -> Any:
        """Return the value of the side that is taken.

        Rounding may take the other side where floats decide. So a portable trace has both then, and chooses.
        """
        condition = self.expr(expr.condition, scope)
        sides = (expr.then, expr.other) if bool(condition) else (expr.other, expr.then)
        taken = self.seq(sides[0], scope)
        # Integers are exact in every compiler, so that all take the same side.
        if not self.portable or not self.onnx.rests_on_floats(condition):
            return taken
        pair = taken, self.seq(sides[1], scope)
        return self.merge_sides(condition, *(pair if bool(condition) else pair[::-1]))

    def merge_sides(self, condition: Any, then: Any, other: Any) -> Any:
        """Return one of two values by a condition, leaf by leaf."""
        if isinstance(then, tuple) and isinstance(other, tuple) and len(then) == len(other):
            return tuple(self.merge_sides(condition, *pair) for pair in zip(then, other, strict=True))
        tensors = [value for value in (then, other) if isinstance(value, np.ndarray)]
        if len(tensors) == 2 and then.shape == other.shape and then.dtype == other.dtype:
            return self.onnx("Where", condition, then, other)
        # ONNX's Where wants one type and shape.
        if tensors or then != other:
            raise NotImplementedError("floats decide on a branch whose sides are of several types")
        return then

    def size(self, size: T.Size, scope: Bindings) -> int:
        """Return the value of a size."""
        return T.size_value(size, scope.sizes)

    def call(self, call: R.Call, scope: Bindings) -> Any:
        """Return the result of a call of any kind."""
        args = [self.expr(arg, scope) for arg in call.args]
        if isinstance(call.op, R.Var):
            closure = scope.values[call.op.name]
            return self.function(closure.function, args, Bindings(closure.scope))
        if isinstance(call.op, R.GlobalVar):
            found = self.module.get(call.op.name)
            if not isinstance(found, R.Function):
                raise NotImplementedError(f"{call.op.name} is not a function of Relax")
            return self.function(found, args, Bindings())
        name = call.op.name
        # Kernels that write such a tensor are called by their name, which has no spelling.
        if name == "relax.builtin.alloc_tensor":
            return UNWRITTEN
        # For what it raises: everything else reads its arguments.
        list(_leaves(tuple(args)))
        if isinstance(call.op, R.RelaxOperator) and name in (
            "relax.call_tir",
            "relax.call_dps_packed",
            "relax.call_pure_packed",
        ):
            return self.foreign(name, args, call.type, scope)
        spelling = None if isinstance(call.op, R.Extern) else catalogue.spelling_of(name)
        if spelling is None:
            raise NotImplementedError(f"no spelling of {name} in ONNX")
        kind = call.type.fields[0] if isinstance(call.type, T.TupleType) and call.type.fields else call.type
        element = kind.dtype if isinstance(kind, T.RelaxTensorType) else ""
        self.onnx.label = name
        return spelling(SpelledCall(self.onnx, args, dict(call.attrs.items) if call.attrs else {}, element))

    def foreign(self, name: str, args: list[Any], kind: T.Type, scope: Bindings) -> Any:
        """Return the result of a kernel of TIR, or of a packed function that copies."""
        callee = args[0]
        if isinstance(callee, R.Extern):
            if callee.name not in _IDENTITY:
                raise NotImplementedError(f"no spelling of the packed function {callee.name}")
            return args[1][0] if name == "relax.call_dps_packed" else args[1]
        found = self.module.get(callee.name)
        if not isinstance(found, nodes.ObjectNode):
            raise NotImplementedError(f"no spelling of the kernel {callee.name}")
        which = _which_kernel(callee.name, found, kind)
        if which in _KERNELS:
            self.onnx.label = f"kernel_{which}"
            return self.onnx(_KERNELS[which], *args[1])
        if self.portable or len(args) != 2:
            raise NotImplementedError(f"no spelling of the kernel {callee.name}")
        results = kind.fields if isinstance(kind, T.TupleType) else (kind,)
        shapes = [
            tuple(self.size(size, scope) for size in getattr(of, "shape", None) or ()) for of in results
        ]
        return run_kernel(found, args[1], shapes)


def run_kernel(found: nodes.ObjectNode, given: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Any:
    """Return the results of any kernel, by the reference of TIR: constants of the trace, in the kernel's own
    types.

    Raises:
        tir.Undefined: a part of a result stays unwritten, or has no defined value.
    """
    function = bind_shapes(with_own_names(found), [*map(np.shape, given), *shapes])
    known = arguments(function) or {}
    if len(known) != len(given) + len(shapes):
        raise NotImplementedError("a kernel with arguments other than dense tensors")
    runs = []
    # Twice on different memory: an unwritten element shows as a difference.
    for fill in (0, 1):
        empty = [np.full(shape(of) or (), fill, dtype(of)) for of in list(known.values())[len(given) :]]
        runs.append(list(tir.run(function, dict(zip(known, [*given, *empty], strict=True))).values()))
    first, second = (results[len(given) :] for results in runs)
    if not all(map(np.array_equal, first, second)):
        raise tir.Undefined("a kernel leaves a part of its result unwritten")
    return first[0] if len(shapes) == 1 else tuple(first)


def bind_shapes(function: nodes.ObjectNode, shapes: list[tuple[int, ...]]) -> nodes.ObjectNode:
    """Return the kernel with the sizes of its arguments in place of their symbols."""
    for param, given in zip(program.object_nodes(function["params"]), shapes, strict=False):
        kind = param["ty"]
        if shape(param) is None and isinstance(kind, nodes.ObjectNode) and is_buffer(param):
            symbols = list(program.object_nodes(kind["shape"]))
            sizes = tuple(map(integer, given, map(dtype, symbols)))
            of = with_fields(param, ty=with_fields(kind, shape=sizes))
            for old, new in zip([param, *symbols], [of, *sizes], strict=False):
                function = replace_node(function, old, new)
    return function


def _which_kernel(name: str, found: nodes.ObjectNode, kind: T.Type) -> str:
    """Find the kernel of KINDS that a function equals node by node; "" if it equals none."""
    if not isinstance(kind, T.RelaxTensorType) or not kind.rank:
        return ""
    # As text, since nodes are compared by identity.
    text = nodes.encode(found)
    return next(
        (which for which in kernels.KINDS if nodes.encode(kernels.kernel(name, which, kind)) == text), ""
    )


def _leaves(value: Any) -> Any:
    if value is UNWRITTEN:
        raise tir.Undefined("the module reads a tensor that nothing has written")
    if isinstance(value, tuple) and not all(isinstance(item, int) for item in value):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, tuple) or value:
        yield np.asarray(value)
