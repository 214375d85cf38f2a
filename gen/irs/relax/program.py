"""A Relax module as a program. A run calls its function `main`; the leaves of the result are the outputs
`output_0`, `output_1`, ... in the order of the nested tuples.
"""

import re
from functools import cached_property
from typing import ClassVar

import numpy as np

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.passes import computing_dtype
from opsieve.gen.irs.tvm.nodes import Array, MalformedGraph, ObjectNode, Value
from opsieve.gen.irs.tvm.program import (
    TvmProgram,
    attribute_of,
    leaf_nodes,
    leaves_of,
    object_nodes,
    size_of,
    type_of,
)
from opsieve.gen.model import program, tensors

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


_KINDS = {"size": "relation", "missing": "missing-input"}
_FAULT = re.compile(r"[A-Za-z0-9_.]{1,60} [ -~]{1,80}", re.ASCII)


class RelaxProgram(TvmProgram):
    """A Relax module, run by its function `main`."""

    ir: ClassVar[str] = "relax"
    kind: ClassVar[str] = "a Relax module"
    entry_type: ClassVar[str] = "relax.expr.Function"

    @cached_property
    def entry(self) -> ObjectNode:
        """The function `main`; BadInput when there is none."""
        candidates = [name for name, node in self.functions.items() if node.type == self.entry_type]
        if candidates and "main" not in candidates:
            raise BadInput(
                f"{shown(self.name or 'the module')} has no function `main`, which is the one that is run:"
                f" rename one of {shown(', '.join(candidates), 200)}, or choose it with `import --script"
                " --entry`"
            )
        return super().entry

    def inputs(self) -> dict[str, tensors.ValueType]:
        """What `main` takes, tuples field by field."""
        found: dict[str, tensors.ValueType] = {}
        for parameter in object_nodes(self.entry.get("params")):
            found.update(leaves_of(str(parameter.get("name")), parameter.get("ty")))
        return found

    def outputs(self) -> dict[str, tensors.ValueType]:
        """Return the types of the leaves of `main`'s result, in order."""
        leaves = leaves_of("", self.entry.get("ret_ty")).values()
        return {f"output_{place}": type_ for place, type_ in enumerate(leaves)}

    def tensor_types(self) -> dict[str, tensors.ValueType]:
        """Return the types of the outputs that are tensors; a scalar comes back as a Python number, whose
        width differs.
        """
        leaves = leaf_nodes("", self.entry.get("ret_ty")).values()
        return {
            f"output_{place}": type_of(node)
            for place, node in enumerate(leaves)
            if isinstance(node, ObjectNode) and node.type == "relax.TensorType"
        }

    @property
    def computing_dtype(self) -> str:
        """Return the shorter type that a pass of the program makes floats be computed in."""
        return computing_dtype(self.passes)

    @property
    def fault(self) -> program.Broken | None:
        """Return the intended defect that the module records (gen/irs/relax/mutation.py)."""
        said = attribute_of(self.root, program.FAULT)
        if not isinstance(said, str) or _FAULT.fullmatch(said) is None:
            return None
        operator, _, place = said.partition(" ")
        return program.Broken(operator, _KINDS.get(place.partition(" ")[0], "mixed-dtypes"), place)

    def text(self) -> str:
        """Return the module as Relax is written, read here from the graph; constants are cut short."""
        from opsieve.gen.irs.relax.reading import from_json

        try:
            return module_text(from_json(self.module.decode("utf-8")))
        except (MalformedGraph, UnicodeDecodeError):
            # The trees of gen/irs/relax cannot hold it.
            return super().text()

    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """Return, for each input that is a shape or a symbolic scalar, the sizes that it stands for."""
        found: dict[str, tuple[int | str, ...]] = {}
        for parameter in object_nodes(self.entry.get("params")):
            kind = parameter.get("ty")
            if (
                isinstance(kind, ObjectNode)
                and kind.type == "relax.ShapeType"
                and isinstance(kind.get("values"), tuple)
            ):
                found[str(parameter.get("name"))] = tuple(
                    size_of(item) or 1
                    for item in kind["values"]  # type: ignore[union-attr]
                )
        return found
