"""TIR's nodes made and read: short names over `gen/irs/tvm`, and which children of a node are expressions,
statements or variables.

Nodes are immutable and compared by identity, as in TVM: a variable is one node. What TVM says of them:
https://tvm.apache.org/docs/reference/api/python/tirx/ (statements and expressions of apache-tvm 0.27).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from opsieve.gen.irs.tvm import program
from opsieve.gen.irs.tvm.nodes import Dtype, ObjectNode, Pairs, Value

# TVM's numbers of the kinds of loops (`ForKind`).
SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD = 0, 1, 2, 3, 4
KINDS = {
    SERIAL: "serial",
    PARALLEL: "parallel",
    VECTORIZED: "vectorized",
    UNROLLED: "unrolled",
    THREAD: "thread_binding",
}
BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max")
COMPARE = ("EQ", "NE", "LT", "LE", "GT", "GE")
LOGIC = ("And", "Or")
STATEMENTS = frozenset(
    f"tirx.{name}"
    for name in (
        "For",
        "While",
        "IfThenElse",
        "SeqStmt",
        "BufferStore",
        "Evaluate",
        "Bind",
        "AllocBuffer",
        "AssertStmt",
    )
) | {
    "tirx.AttrStmt",
    "tirx.DeclBuffer",
    "tirx.Break",
    "tirx.Continue",
    "tirx.Return",
    "s_tir.SBlockRealize",
    "s_tir.SBlock",
}


@cache
def prim(dtype: str) -> ObjectNode:
    """Return the type of a scalar (or of lanes: `float32x4`)."""
    return ObjectNode("ir.PrimType", {"span": None, "dtype": Dtype(dtype)})


def dtype(node: Value) -> str:
    """Return the element type of an expression or a buffer, "" for any other type."""
    kind = node.get("ty") if isinstance(node, ObjectNode) else None
    if isinstance(kind, ObjectNode) and kind.type == "tirx.BufferType":
        kind = kind["dtype"]
    return str(kind["dtype"]) if isinstance(kind, ObjectNode) and kind.type == "ir.PrimType" else ""


def integer(value: int, kind: str = "int32") -> ObjectNode:
    """Return a constant of an integer type or bool."""
    return ObjectNode("ir.IntImm", {"span": None, "ty": prim(kind), "value": int(value)})


def real(value: float, kind: str = "float32") -> ObjectNode:
    """Return a constant of a floating type; the value is finite."""
    return ObjectNode("ir.FloatImm", {"span": None, "ty": prim(kind), "value": float(value)})


def constant(value: float, kind: str) -> ObjectNode:
    """Return a constant of any scalar type."""
    return real(value, kind) if "float" in kind else integer(int(value), kind)


def variable(name: str, kind: str = "int32") -> ObjectNode:
    """Return a new scalar variable."""
    return ObjectNode("ir.Var", {"span": None, "ty": prim(kind), "name": name})


def buffer(name: str, shape: Sequence[int], kind: str = "float32", scope: str = "global") -> ObjectNode:
    """Return a new buffer, dense, of constant shape."""
    kind_ = ObjectNode(
        "tirx.BufferType",
        {
            "span": None,
            "dtype": prim(kind),
            "storage_scope": scope,
            "shape": tuple(integer(size) for size in shape),
            "strides": (),
            "elem_offset": integer(0),
            "data_alignment": 64,
            "offset_factor": 1,
            "layout": None,
            "allocated_addr": (),
        },
    )
    return ObjectNode("ir.Var", {"span": None, "ty": kind_, "name": name})


def is_buffer(node: Value) -> bool:
    """Return whether a node is a buffer's variable."""
    kind = node.get("ty") if isinstance(node, ObjectNode) and node.type == "ir.Var" else None
    return isinstance(kind, ObjectNode) and kind.type == "tirx.BufferType"


def shape(of: ObjectNode) -> tuple[int, ...] | None:
    """Return the sizes of a buffer; `None` if one of them is not constant."""
    found = [number(size) for size in list_nodes(of.node("ty")["shape"])]
    return tuple(size for size in found if size is not None) if None not in found else None


def number(node: Value) -> int | None:
    """Return the value of an integer constant; `None` for any other node."""
    value = node["value"] if isinstance(node, ObjectNode) and node.type == "ir.IntImm" else None
    return int(value) if isinstance(value, int) else None


def binary(name: str, a: ObjectNode, b: ObjectNode) -> ObjectNode:
    """Return an operator of two arguments of one type; comparisons and logic give bool."""
    kind = "bool" if name in COMPARE + LOGIC else dtype(a)
    return ObjectNode(f"prim.{name}", {"span": None, "ty": prim(kind), "a": a, "b": b})


def negation(a: ObjectNode) -> ObjectNode:
    """Logical not."""
    return ObjectNode("prim.Not", {"span": None, "ty": prim("bool"), "a": a})


def select(condition: ObjectNode, a: ObjectNode, b: ObjectNode) -> ObjectNode:
    """`a` where the condition holds, else `b`; both are evaluated."""
    return ObjectNode(
        "prim.Select",
        {"span": None, "ty": prim(dtype(a)), "condition": condition, "true_value": a, "false_value": b},
    )


def cast(a: ObjectNode, kind: str) -> ObjectNode:
    """Return a value as another type."""
    return ObjectNode("prim.Cast", {"span": None, "ty": prim(kind), "value": a})


def let(var: ObjectNode, value: ObjectNode, body: ObjectNode) -> ObjectNode:
    """Return an expression with a variable of its own."""
    return ObjectNode(
        "prim.Let", {"span": None, "ty": prim(dtype(body)), "var": var, "value": value, "body": body}
    )


def call(name: str, kind: str, *args: ObjectNode) -> ObjectNode:
    """Return a call of an intrinsic (`tirx.exp`)."""
    fields: dict[str, Value] = {
        "span": None,
        "ty": prim(kind),
        "op": ObjectNode("ir.Op", raw=name),
        "args": args,
    }
    return ObjectNode("ir.Call", {**fields, "attrs": None, "ty_args": ()})


def load(source: ObjectNode, *indices: ObjectNode) -> ObjectNode:
    """Return an element of a buffer."""
    return ObjectNode(
        "ir.TensorLoad", {"span": None, "ty": prim(dtype(source)), "source": source, "indices": indices}
    )


def store(into: ObjectNode, value: ObjectNode, *indices: ObjectNode) -> ObjectNode:
    """Return a statement that writes an element of a buffer."""
    return ObjectNode("tirx.BufferStore", {"span": None, "buffer": into, "value": value, "indices": indices})


def sequence(*items: ObjectNode) -> ObjectNode:
    """Make a sequence of statements: inner sequences are flattened, and a single statement is returned as
    it is.
    """
    flat: list[ObjectNode] = []
    for item in items:
        flat += list_nodes(item["seq"]) if item.type == "tirx.SeqStmt" else (item,)
    if len(flat) == 1:
        return flat[0]
    return ObjectNode("tirx.SeqStmt", {"span": None, "seq": tuple(flat)}) if flat else evaluate(integer(0))


def loop(
    var: ObjectNode,
    extent: ObjectNode,
    body: ObjectNode,
    kind: int = SERIAL,
    annotations: Pairs | None = None,
    thread: ObjectNode | None = None,
) -> ObjectNode:
    """`for var in range(extent)`."""
    fields: dict[str, Value] = {
        "span": None,
        "loop_var": var,
        "min": integer(0, dtype(var)),
        "extent": extent,
        "kind": kind,
        "body": body,
        "thread_binding": thread,
        "annotations": annotations or Pairs(),
        "step": None,
    }
    return ObjectNode("tirx.For", fields)


def thread_axis(tag: str, extent: ObjectNode) -> ObjectNode:
    """Make the thread axis to which a loop of kind `THREAD` is bound."""
    domain = ObjectNode("ir.Range", {"min": integer(0), "extent": extent, "span": None})
    fields: dict[str, Value] = {
        "dom": domain,
        "var": variable(tag.replace(".", "_")),
        "iter_type": 1,
        "thread_tag": tag,
    }
    return ObjectNode("tirx.IterVar", {**fields, "span": None})


def branch(condition: ObjectNode, then: ObjectNode, otherwise: ObjectNode | None = None) -> ObjectNode:
    """`if condition`."""
    return ObjectNode(
        "tirx.IfThenElse", {"span": None, "condition": condition, "then_case": then, "else_case": otherwise}
    )


def while_(condition: ObjectNode, body: ObjectNode) -> ObjectNode:
    """`while condition`."""
    return ObjectNode("tirx.While", {"span": None, "condition": condition, "body": body})


def bind(var: ObjectNode, value: ObjectNode) -> ObjectNode:
    """Return a statement that binds a variable for the statements after it."""
    return ObjectNode("tirx.Bind", {"span": None, "var": var, "value": value})


def allocate(of: ObjectNode) -> ObjectNode:
    """Return a statement that allocates a buffer for the statements after it."""
    return ObjectNode("tirx.AllocBuffer", {"span": None, "buffer": of, "annotations": Pairs()})


def evaluate(value: ObjectNode) -> ObjectNode:
    """Return a statement that evaluates an expression for its effect; a constant has none."""
    return ObjectNode("tirx.Evaluate", {"span": None, "value": value})


def assertion(condition: ObjectNode, error: str, message: str) -> ObjectNode:
    """Return a statement that raises an error of a kind unless the condition holds."""
    kind, text = (
        ObjectNode(
            "ir.StringImm", {"span": None, "ty": ObjectNode("ir.StringType", {"span": None}), "value": item}
        )
        for item in (error, message)
    )
    fields: dict[str, Value] = {"condition": condition, "error_kind": kind, "message_parts": (text,)}
    return ObjectNode("tirx.AssertStmt", {"span": None, **fields})


def attribute(key: str, value: ObjectNode, body: ObjectNode, node: Value = None) -> ObjectNode:
    """Return a statement with an annotation."""
    return ObjectNode(
        "tirx.AttrStmt", {"span": None, "node": node, "attr_key": key, "value": value, "body": body}
    )


def function(
    params: Sequence[ObjectNode], body: ObjectNode, attrs: Sequence[tuple[str, Value]] = ()
) -> ObjectNode:
    """Return a function without a result; the worker has TVM work its type out."""
    attributes = ObjectNode("ir.DictAttrs", {"__dict__": Pairs((("global_symbol", "main"), *attrs))})
    unit = ObjectNode("ir.TupleType", {"span": None, "fields": ()})
    kind = ObjectNode("ir.FuncType", {"span": None, "arg_types": (), "ret_type": unit})
    fields: dict[str, Value] = {"span": None, "ty": kind, "attrs": attributes, "params": tuple(params)}
    return ObjectNode("tirx.PrimFunc", {**fields, "ret_type": unit, "body": body})


def module(of: ObjectNode) -> ObjectNode:
    """Return a module with a function as its `main`."""
    name = ObjectNode("ir.GlobalVar", {"span": None, "ty": of["ty"], "name_hint": "main"})
    fields: dict[str, Value] = {
        "functions": Pairs(((name, of),)),
        "global_var_map_": Pairs((("main", name),)),
    }
    fields["source_map"] = ObjectNode("ir.SourceMap", {"source_map": Pairs()})
    fields["attrs"] = ObjectNode("ir.DictAttrs", {"__dict__": Pairs()})
    return ObjectNode("ir.IRModule", {**fields, "global_infos": Pairs()})


def with_fields(node: ObjectNode, **fields: Value) -> ObjectNode:
    """Return the node with other fields; itself when they are the same."""
    if all(node.fields.get(name) is value for name, value in fields.items()):
        return node
    return ObjectNode(node.type, {**node.fields, **fields}, node.raw)


# Fields that hold no part of the program itself.
_TYPES = ("ty", "span")


def list_nodes(value: Value) -> tuple[ObjectNode, ...]:
    """List the nodes of a field that holds a list of them."""
    return tuple(item for item in value if isinstance(item, ObjectNode)) if isinstance(value, tuple) else ()


def children(node: ObjectNode) -> list[ObjectNode]:
    """List the nodes right under this one, through tuples and maps, types and spans left out."""
    return program.list_children(node, _TYPES)


def rewritten(node: ObjectNode, change: Callable[[ObjectNode], ObjectNode | None]) -> ObjectNode:
    """Copy a tree, replacing nodes by the result of `change`, whose results are not visited. Unchanged parts
    are shared.
    """
    other = change(node)
    if other is not None:
        return other
    fields = {
        name: value if name in _TYPES else _rewritten(value, change) for name, value in node.fields.items()
    }
    # Unchanged parts stay the same object, because nodes are compared by identity.
    if all(fields[name] is node.fields[name] for name in fields):
        return node
    return ObjectNode(node.type, fields, node.raw)


def _rewritten(value: Value, change: Callable[[ObjectNode], ObjectNode | None]) -> Value:
    if isinstance(value, ObjectNode):
        return rewritten(value, change)
    if isinstance(value, tuple):
        items = tuple(_rewritten(item, change) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, Pairs):
        pairs = tuple((_rewritten(key, change), _rewritten(item, change)) for key, item in value.items)
        same = all(a is c and b is d for (a, b), (c, d) in zip(pairs, value.items, strict=True))
        return value if same else Pairs(pairs)
    return value


def again(node: ObjectNode) -> ObjectNode:
    """Return the expression for use at a second place: its own variables are new ones, as every variable is
    defined once.
    """
    for item in walk(node):
        if item.type == "prim.Let" and isinstance(var := item["var"], ObjectNode):
            node = replace_node(node, var, with_fields(var, name=f"{var['name']!s}_"))
    return node


def replace_node(root: ObjectNode, old: ObjectNode, new: ObjectNode) -> ObjectNode:
    """Replace every occurrence of a node in the tree."""
    return rewritten(root, lambda node: new if node is old else None)


def walk(node: ObjectNode) -> Iterator[ObjectNode]:
    """Yield every node of a tree once, parents first, types and spans left out."""
    return program.walk(node, _TYPES)


def size(node: ObjectNode) -> int:
    """Return how many statements and expressions a tree has."""
    return sum(
        1
        for item in walk(node)
        if item.type.startswith(("tirx.", "prim.", "ir.Call", "ir.TensorLoad", "s_tir."))
    )
