"""The types of the values that a module of TVM is fed and gives.

A tensor is fed as it is, a shape as int64 of one dimension, a scalar as an array of rank 0, a tuple field by
field (`pair.0`, `pair.1.0`).
"""

from opsieve.gen.irs.tvm.nodes import ObjectNode, Value
from opsieve.gen.irs.tvm.program import object_nodes
from opsieve.gen.model.tensors import NUMBERS, OtherType, TensorType, ValueType


def leaf_nodes(name: str, kind: Value) -> dict[str, Value]:
    """Return the type nodes of a value, those of the leaves of a tuple by their places."""
    if isinstance(kind, ObjectNode) and kind.type == "ir.TupleType":
        found: dict[str, Value] = {}
        for place, part in enumerate(object_nodes(kind.get("fields"))):
            found.update(leaf_nodes(f"{name}.{place}" if name else str(place), part))
        return found
    return {name: kind}


def leaves_of(name: str, kind: Value) -> dict[str, ValueType]:
    """Return the types of a value, those of the leaves of a tuple by their places."""
    return {leaf: type_of(node) for leaf, node in leaf_nodes(name, kind).items()}


def type_of(kind: Value) -> ValueType:
    """The type of a value that is fed or read."""
    if not isinstance(kind, ObjectNode):
        return OtherType("value without a type")
    if kind.type == "relax.TensorType":
        shape, dtype = kind.get("shape"), kind.get("dtype")
        name = str(dtype.get("dtype")) if isinstance(dtype, ObjectNode) else ""
        ndim = kind.get("ndim")
        if isinstance(shape, ObjectNode) and shape.type == "relax.expr.ShapeExpr":
            return _tensor(name, tuple(map(size_of, object_nodes(shape.get("values")))))
        return _tensor(name, (None,) * ndim if isinstance(ndim, int) and 0 <= ndim <= 64 else None)
    if kind.type == "tirx.BufferType":
        dtype = kind.get("dtype")
        return _tensor(
            str(dtype.get("dtype")) if isinstance(dtype, ObjectNode) else "",
            tuple(map(size_of, object_nodes(kind.get("shape")))),
        )
    if kind.type == "relax.ShapeType":
        ndim = kind.get("ndim")
        return TensorType("int64", (ndim if isinstance(ndim, int) and ndim >= 0 else None,))
    if kind.type == "ir.PrimType":
        return _tensor(str(kind.get("dtype")), ())
    return OtherType(kind.type.rpartition(".")[2])


def _tensor(dtype: str, shape: tuple[int | str | None, ...] | None) -> ValueType:
    if dtype and dtype not in NUMBERS:
        return OtherType(f"tensor of {dtype[:40]}")
    return TensorType(dtype, shape)


def size_of(value: Value) -> int | str | None:
    """Return a dimension as a number, the name of a symbol, or a sum of them; `None` for other arithmetic."""
    if not isinstance(value, ObjectNode):
        return value if isinstance(value, int) else None
    if value.type == "ir.IntImm":
        number = value.get("value")
        return number if isinstance(number, int) and number >= 0 else None
    if value.type == "ir.Var":
        return str(value.get("name"))
    if value.type in ("tirx.Add", "prim.Add"):
        parts = [size_of(value.get("a")), size_of(value.get("b"))]
        return " + ".join(map(str, parts)) if None not in parts else None
    return None
