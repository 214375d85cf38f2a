"""Kernels of TIR for `call_tir`: one nest of loops that computes each element of the output from the element
of each input there.
"""

from opsieve.gen.irs.relax.types import RelaxTensorType
from opsieve.gen.irs.relax.writing import node, number
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value

# By name: how many inputs there are, and the node of TIR that combines them.
KINDS = {
    "exchange": (1, ""),
    "add": (2, "Add"),
    "subtract": (2, "Sub"),
    "larger": (2, "Max"),
    "smaller": (2, "Min"),
}


def kernel(name: str, kind: str, of: RelaxTensorType) -> ObjectNode:
    """Return a function of TIR with the name, of one of `KINDS`, on tensors of one static type (rank 1 and
    more): inputs, then the output.

    Source: the form that TVM 0.27 parses `T.prim_func(s_tir=True)` with one block of axes S into.
    """
    count, combine = KINDS[kind]
    sizes = [size for size in of.shape or () if isinstance(size, int)]
    element = node("ir.PrimType", dtype=of.dtype)
    buffers = [_buffer(letter, element, sizes) for letter in "ABC"[: count + 1]]
    axes = [_var(f"v{n}") for n in range(len(sizes))]
    loads: list[Value] = [
        node("ir.TensorLoad", ty=element, source=b, indices=tuple(axes)) for b in buffers[:-1]
    ]
    value = loads[0] if count == 1 else node(f"prim.{combine}", ty=element, a=loads[0], b=loads[1])
    store = node("tirx.BufferStore", buffer=buffers[-1], value=value, indices=tuple(axes))
    block = _block(
        "cell",
        store,
        iter_vars=tuple(
            node("tirx.IterVar", dom=_range(0, size), var=axis, iter_type=0, thread_tag="")
            for axis, size in zip(axes, sizes, strict=True)
        ),
        reads=tuple(_region(buffer, axes) for buffer in buffers[:-1]),
        writes=(_region(buffers[-1], axes),),
    )
    loops = [_var(f"i{n}") for n in range(len(sizes))]
    body = _realize(block, tuple(loops))
    # From the innermost loop outwards, since a node is made after its parts.
    for loop, size in reversed(list(zip(loops, sizes, strict=True))):
        body = node(
            "tirx.For",
            loop_var=loop,
            min=_int(0),
            extent=_int(size),
            kind=0,
            body=body,
            annotations=Pairs(),
        )
    attrs: tuple[tuple[str, Value], ...] = (("tirx.noalias", True), ("global_symbol", name), ("s_tir", True))
    return node(
        "tirx.PrimFunc",
        ty=_signature(of, count),
        attrs=node("ir.DictAttrs", __dict__=Pairs(attrs)),
        params=tuple(buffers),
        ret_type=node("ir.TupleType", fields=()),
        body=_realize(_block("root", body), ()),
    )


def _signature(of: RelaxTensorType, count: int) -> ObjectNode:
    sizes = tuple(number(size, "int64") for size in of.shape or () if isinstance(size, int))
    shape = node(
        "relax.expr.ShapeExpr", ty=node("relax.ShapeType", values=sizes, ndim=len(sizes)), values=sizes
    )
    tensor = node("relax.TensorType", shape=shape, dtype=node("ir.PrimType", dtype=of.dtype), ndim=len(sizes))
    return node(
        "relax.FuncType", params=(tensor,) * (count + 1), ret=node("ir.TupleType", fields=()), purity=False
    )


def _buffer(name: str, element: ObjectNode, sizes: list[int]) -> ObjectNode:
    kind = node(
        "tirx.BufferType",
        dtype=element,
        storage_scope="global",
        shape=tuple(map(_int, sizes)),
        strides=(),
        elem_offset=_int(0),
        data_alignment=64,
        offset_factor=1,
        allocated_addr=(),
    )
    return node("ir.Var", ty=kind, name=name)


def _var(name: str) -> ObjectNode:
    return node("ir.Var", ty=node("ir.PrimType", dtype="int32"), name=name)


def _int(value: int) -> ObjectNode:
    return number(value, "int32")


def _range(start: int | ObjectNode, extent: int) -> ObjectNode:
    return node("ir.Range", min=_int(start) if isinstance(start, int) else start, extent=_int(extent))


def _region(buffer: ObjectNode, axes: list[ObjectNode]) -> ObjectNode:
    return node(
        "ir.TensorRegion",
        ty=node("tirx.BufferRegionType"),
        source=buffer,
        region=tuple(_range(axis, 1) for axis in axes),
    )


def _block(
    name: str, body: ObjectNode, iter_vars: Value = (), reads: Value = (), writes: Value = ()
) -> ObjectNode:
    return node(
        "s_tir.SBlock",
        iter_vars=iter_vars,
        reads=reads,
        writes=writes,
        name_hint=name,
        alloc_buffers=(),
        match_buffers=(),
        annotations=Pairs(),
        body=body,
    )


def _realize(block: ObjectNode, values: Value) -> ObjectNode:
    return node("s_tir.SBlockRealize", iter_values=values, predicate=number(True, "bool"), block=block)
