"""The kinds of nodes in a Relax module: their names and fields in TVM's JSON, and in the trees.

One table serves reading, writing, walking and rebuilding (reading.py, writing.py, walk.py). It omits
variables, scalars, functions of the module, blocks and bindings, because they depend on more than one node.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from opsieve.gen.irs.relax import tree as R, types as T


class Part(NamedTuple):
    """A field of a kind of node.

    Attributes:
        field: Its name in TVM's JSON.
        name: Its name in the tree.
        how: Its contents: `expr`, `seq`, `type`, ...; with `*` for a list of them, with `?` where it may be
            missing.
    """

    field: str
    name: str
    how: str


class Kind(NamedTuple):
    """A kind of node: its type in TVM, its class in the trees, and its parts in the order of reading."""

    key: str
    tree: type[Any]
    parts: tuple[Part, ...]


def _kind(key: str, tree: type[Any], *parts: str) -> Kind:
    """Return a kind whose parts are written `FIELD NAME HOW`."""
    return Kind(key, tree, tuple(Part(*part.split()) for part in parts))


SEQ = _kind("relax.expr.SeqExpr", R.Seq, "blocks blocks block*", "body body expr")
FUNCTION = _kind(
    "relax.expr.Function", R.Function, "params params param*", "body body seq", "is_pure pure flag",
    "ret_ty result type", "attrs attrs dictionary",
)  # fmt: skip
_EXPRESSIONS = (
    FUNCTION,
    _kind("ir.GenericConst", R.Constant, "value array array"),
    _kind("relax.expr.ShapeExpr", R.ShapeValue, "values sizes size*"),
    _kind("ir.StringImm", R.Text, "value value text"),
    _kind("ir.Tuple", R.Tuple, "fields fields expr*"),
    _kind("ir.TupleGetItem", R.Projection, "tuple_value tuple expr", "index index integer", "ty type type"),
    _kind("relax.expr.ExternFunc", R.Extern, "global_symbol name text", "ty type type"),
    _kind(
        "ir.Call", R.Call,
        "op op op", "args args expr*", "ty type type", "ty_args type_args type*", "attrs attrs attributes?",
    ),
    _kind(
        "relax.expr.If", R.If,
        "cond condition expr", "true_branch then seq", "false_branch other seq", "ty type type",
    ),
)  # fmt: skip
_TYPES = (
    _kind(
        "relax.TensorType", T.RelaxTensorType,
        "dtype dtype element", "shape shape shape?", "ndim rank integer",
    ),
    _kind("relax.ShapeType", T.ShapeType, "values sizes size*?", "ndim rank integer"),
    _kind("ir.PrimType", T.PrimType, "dtype dtype text"),
    _kind("ir.TupleType", T.TupleType, "fields fields type*"),
    _kind(
        "relax.FuncType", T.FuncType,
        "params params type*?", "ret result type", "purity pure flag", "derive_func derive derivation",
    ),
    _kind("ir.StringType", T.StringType), _kind("relax.AnyType", T.AnyType),
)  # fmt: skip

EXPRESSIONS: Mapping[str, Kind] = {kind.key: kind for kind in _EXPRESSIONS}
TYPES: Mapping[str, Kind] = {kind.key: kind for kind in _TYPES}
BY_CLASS: Mapping[type[Any], Kind] = {kind.tree: kind for kind in (SEQ, *_EXPRESSIONS, *_TYPES)}
