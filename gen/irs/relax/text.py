"""A module as text that reads like TVMScript, for people; compilers get TVM's JSON."""

import numpy as np

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.tvm.nodes import Array, ObjectNode, Value

# The most elements of a constant that are shown.
_SHOWN = 16
_INDENT = "    "


def module_text(module: R.Module) -> str:
    """Return the functions, one after the other; a kernel of TIR by its signature alone."""
    lines = ["@I.ir_module", "class Module:"]
    for name, function in module.functions:
        if isinstance(function, R.Function):
            # TVMScript marks a function as private that has no symbol to link.
            private = "" if dict(function.attrs).get("global_symbol") else "(private=True)"
            lines += [f"{_INDENT}@R.function{private}", *_indent_lines(_function(name, function))]
        else:
            lines += [
                f"{_INDENT}@T.prim_func(s_tir=True)",
                f"{_INDENT}def {_label(name)}{_kernel(function)}: ...",
            ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def type_text(kind: T.Type) -> str:
    """Return a type as TVMScript writes it."""
    if isinstance(kind, T.RelaxTensorType):
        if kind.shape is None:
            rank = [f"ndim={kind.rank}"] if kind.rank >= 0 else []
            return f"R.Tensor({', '.join([*([repr(kind.dtype)] if kind.dtype else []), *rank])})"
        return f"R.Tensor({_sizes(kind.shape)}, {kind.dtype!r})"
    if isinstance(kind, T.ShapeType):
        return (
            f"R.Shape(ndim={kind.rank})"
            if kind.sizes is None
            else f"R.Shape([{', '.join(map(T.size_text, kind.sizes))}])"
        )
    if isinstance(kind, T.TupleType):
        return f"R.Tuple({', '.join(map(type_text, kind.fields))})"
    if isinstance(kind, T.FuncType):
        params = "" if kind.params is None else f"({', '.join(map(type_text, kind.params))}), "
        return f"R.Callable({params}{type_text(kind.result)})"
    if isinstance(kind, T.PrimType):
        return f"R.Prim({kind.dtype!r})"
    return {T.StringType: "R.String", T.AnyType: "R.Object"}[type(kind)]


def _sizes(shape: tuple[object, ...]) -> str:
    texts = [T.size_text(size) for size in shape]  # type: ignore[arg-type]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _function(name: str, function: R.Function) -> list[str]:
    params = ", ".join(f"{param.name}: {type_text(param.type)}" for param in function.params)
    return [
        f"def {_label(name)}({params}) -> {type_text(function.result)}:",
        *_indent_lines(_seq(function.body, "return {}")),
    ]


def _seq(seq: R.Seq, ending: str) -> list[str]:
    lines: list[str] = []
    for block in seq.blocks:
        inner = [line for binding in block.bindings for line in _binding(binding)]
        if block.dataflow:
            # Only these are visible behind the block.
            out = [binding.var.name for binding in block.bindings if not binding.var.dataflow]
            inner = ["with R.dataflow():", *_indent_lines([*inner, f"R.output({', '.join(out)})"])]
        lines += inner
    return [*lines, ending.format(expr_text(seq.body))]


def _binding(binding: R.Binding) -> list[str]:
    name, value = binding.var.name, binding.value
    if not isinstance(binding, R.Bind):
        return [f"{name} = R.match_cast({expr_text(value)}, {type_text(binding.type)})"]
    if isinstance(value, R.If):
        then, other = (_indent_lines(_seq(side, f"{name} = {{}}")) for side in (value.then, value.other))
        return [f"if {expr_text(value.condition)}:", *then, "else:", *other]
    if isinstance(value, R.Function):
        return ["@R.function", *_function(name, value)]
    return [f"{name}: {type_text(binding.var.type)} = {expr_text(value)}"]


def expr_text(expr: R.Expr) -> str:
    """Return an expression on one line; a branch or a local function is only named."""
    if isinstance(expr, R.Constant):
        return array_text(expr.array)
    if isinstance(expr, R.Scalar):
        value = T.size_text(expr.value) if not isinstance(expr.value, bool | float) else str(expr.value)
        # TVMScript takes a bare number for int64.
        return f"R.prim_value({value})" if expr.dtype == "int64" else f"R.prim_value(T.{expr.dtype}({value}))"
    if isinstance(expr, R.ShapeValue):
        return f"R.shape([{', '.join(map(T.size_text, expr.sizes))}])"
    if isinstance(expr, R.Text):
        return f"R.str({expr.value!r})"
    if isinstance(expr, R.Tuple):
        return f"({', '.join(map(expr_text, expr.fields))}{',' * (len(expr.fields) == 1)})"
    if isinstance(expr, R.Projection):
        return f"{expr_text(expr.tuple)}[{expr.index}]"
    if isinstance(expr, R.GlobalVar | R.Extern):
        return f"Module.{_label(expr.name)}" if isinstance(expr, R.GlobalVar) else repr(expr.name)
    if isinstance(expr, R.Call):
        op = (
            f"R.{expr.op.name.removeprefix('relax.')}"
            if isinstance(expr.op, R.RelaxOperator)
            else expr_text(expr.op)
        )
        parts = [expr_text(arg) for arg in expr.args]
        parts += [f"{name}={_value(value)}" for name, value in (expr.attrs.items if expr.attrs else ())]
        parts += [f"out_ty={type_text(kind)}" for kind in expr.type_args]
        return f"{op}({', '.join(parts)})"
    if isinstance(expr, R.If | R.Function):
        return f"<{type(expr).__name__.lower()}>"
    return expr.name


def array_text(array: Array) -> str:
    """Return a constant with its first elements."""
    try:
        flat = np.frombuffer(array.data, np.dtype(array.dtype))
    except TypeError:
        # numpy lacks some element types of TVM, such as 4-bit floats.
        return f"R.const(..., {array.dtype!r})  # {list(array.shape)}"
    if not array.shape:
        return f"R.const({flat[0]}, {array.dtype!r})"
    shown = ", ".join(str(item) for item in flat[:_SHOWN]) + (", ..." if flat.size > _SHOWN else "")
    return f"R.const(np.array([{shown}], {array.dtype!r}).reshape({list(array.shape)}))"


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return repr(str(value))
    return f"<{value.type}>" if isinstance(value, ObjectNode) else str(value)


def _kernel(function: ObjectNode) -> str:
    params = function.get("params")
    names = (
        [_label(str(item.get("name"))) for item in params if isinstance(item, ObjectNode)]
        if isinstance(params, tuple)
        else []
    )
    return f"({', '.join(names)})"


def _label(name: str) -> str:
    """Return a name from outside, quoted where it is none."""
    # A stranger's file may hold any characters, and the text goes to a terminal.
    return name if name.isidentifier() else ascii(name[:80])


def _indent_lines(lines: list[str]) -> list[str]:
    return [_INDENT + line for line in lines]
