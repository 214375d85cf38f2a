"""A module of TVM as a program: its JSON, and the passes that run on it before the build.

It is read without TVM; TVM's printed text of a module is for people and never read back in this process.
gen/irs/relax and gen/irs/tir define the inputs and outputs of the two IRs in such a module.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.ir import IR
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode, Pairs, Value, decode
from opsieve.gen.model.files import bound_reading, read_file
from opsieve.gen.model.printable import escape_surrogates
from opsieve.gen.model.program import AnotherIR, Chunks, Program
from opsieve.gen.model.tensors import NUMBERS, OtherType, TensorType, ValueType

PASS = re.compile(r"=?[A-Za-z_][A-Za-z0-9_.]{0,80}(?::[A-Za-z0-9_.+-]{1,80})?", re.ASCII)
# Words without brackets, quotes and line ends: as part of a script they cannot be code.
_WORDS = re.compile(r"[\w./:<>@, +-]*", re.ASCII)
# The most passes in a sequence.
LONGEST = 1000
MODULE, PASSES, SCRIPT = "module.json", "passes.json", "module.py"
NOTE = (
    "# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.\n"
)
# Modules may come from a stranger; generated ones have kilobytes, and imports of networks some megabytes.
_MAX_MODULE = 256 << 20
_MAX_PASSES = 1 << 20


@dataclass(frozen=True)
class TvmProgram(Program):
    """A module of TVM as the text of its JSON (`tvm.ir.save_json`), with the passes that belong to the
    test.
    """

    module: bytes
    passes: tuple[str, ...] = ()
    name: str = field(default="", compare=False)
    # TVM's printing of it, where a worker was asked; never read back here.
    script: str = field(default="", compare=False)
    # Whether TVM reads the text back as the same module.
    script_is_exact: bool = field(default=False, compare=False)

    # The type key of the function that is run.
    entry_type: ClassVar[str]

    @classmethod
    @bound_reading
    def read(cls, path: Path) -> Self:
        """Return the module in a file of TVM's JSON, with the passes that lie beside it."""
        program = cls(
            read_file(path, _MAX_MODULE), _read_passes(path.parent / PASSES), escape_surrogates(path.name)
        )
        # Reading the inputs refuses an unreadable program now rather than in the middle of a campaign.
        program.inputs()
        return program

    @classmethod
    def load(cls, data: bytes, passes: tuple[str, ...], name: str) -> Self:
        """Return the module of its JSON."""
        return cls(data, check_passes(passes), name)

    @property
    def data(self) -> bytes:
        """The JSON graph, UTF-8."""
        return self.module

    def files(self) -> dict[str, Chunks]:
        """TVM's JSON, the passes, and TVM's printing for people."""
        found: dict[str, Chunks] = {MODULE: (self.module,)}
        if self.passes:
            found[PASSES] = ((json.dumps(self.passes, indent=2) + "\n").encode(),)
        if self.script:
            found[SCRIPT] = ((NOTE + self.script.rstrip() + "\n").encode(),)
        return found

    @cached_property
    def root(self) -> ObjectNode:
        """Return the module's node. It is shared: never change it in place.

        Raises AnotherIR for bytes that are not a module, and for a damaged or unreasonably large one.
        """
        try:
            found = decode(self.module.decode("utf-8"))
        except (MalformedGraph, UnicodeDecodeError) as error:
            raise AnotherIR(
                f"{shown(self.name or 'the module')} cannot be read: {shown(str(error), 200)}"
            ) from None
        if not isinstance(found, ObjectNode) or found.type not in ("ir.IRModule", self.entry_type):
            raise AnotherIR(
                f"{shown(self.name or 'the module')} is not a module of TVM: its root is of another type"
            )
        return found

    @cached_property
    def functions(self) -> dict[str, ObjectNode]:
        """The functions of the module by name, in its order."""
        if self.root.type == self.entry_type:
            return {"main": self.root}
        found: dict[str, ObjectNode] = {}
        table = self.root.get("functions")
        for key, value in table.items if isinstance(table, Pairs) else ():
            if isinstance(key, ObjectNode) and isinstance(value, ObjectNode):
                found[str(key.get("name_hint"))] = value
        return found

    @cached_property
    def entry(self) -> ObjectNode:
        """The function that is run; BadInput when there is none."""
        candidates = {name: node for name, node in self.functions.items() if node.type == self.entry_type}
        exposed = [node for node in candidates.values() if attribute_of(node, "global_symbol") is not None]
        chosen = candidates.get("main") or next(
            iter(exposed if len(exposed) == 1 else candidates.values()), None
        )
        if chosen is None:
            raise AnotherIR(
                f"{shown(self.name or 'the module')} is not a {self.kind.partition(' ')[2]}: it has no"
                " function to run"
            )
        return chosen

    @cached_property
    def is_plain(self) -> bool:
        """Return whether every text in the graph consists of words, so that TVM's print cannot contain
        foreign code.
        """
        return all(_WORDS.fullmatch(text) for text in _texts(self.root))

    def operators(self) -> list[str]:
        """Return the operators that are called, in order; `ir.Op` names without their dialect's registry
        prefix (`relax.add`).
        """
        return [name for function in self.functions.values() for name in _operators(function)]

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the edges by the variables to which calls are bound."""
        made: dict[int, str] = {}
        calls: list[tuple[str, ObjectNode]] = []
        for function in self.functions.values():
            for node in walk(function):
                value = node.get("value") if node.type == "relax.expr.VarBinding" else None
                if isinstance(value, ObjectNode) and (name := operator_called(value)):
                    made[id(node.get("var"))] = name
                if name := operator_called(node):
                    calls.append((name, node))
        yield from (
            (made.get(id(argument), ""), name)
            for name, node in calls
            for argument in object_nodes(node.get("args"))
        )

    def names(self) -> Iterable[str]:
        """Names of functions, parameters and variables."""
        found = dict.fromkeys(self.functions)
        for function in self.functions.values():
            for node in walk(function):
                if node.type in ("ir.Var", "relax.expr.DataflowVar", "ir.GlobalVar"):
                    found[str(node.get("name") or node.get("name_hint") or "")] = None
        return found

    def text(self) -> str:
        """Return TVM's printed text if available, else a line for each function and each operator call."""
        if self.script:
            return self.script
        lines = []
        for name, function in self.functions.items():
            lines.append(f"{function.type.rpartition('.')[2]} {name}")
            lines += [f"    {operator}" for operator in _operators(function)]
        return "\n".join(lines)


def check_passes(passes: Iterable[str]) -> tuple[str, ...]:
    """Check the passes. Raises BadInput for an item that is not `NAME[:ARGUMENT]` or `=OPTION:VALUE`, or for
    too many.
    """
    found = tuple(passes)
    for item in found:
        if not isinstance(item, str) or PASS.fullmatch(item) is None:
            raise BadInput(f"{shown(item)} is not a pass: write its name, and after a colon its argument")
    if len(found) > LONGEST:
        raise BadInput(f"a sequence of {len(found)} passes is over the limit of {LONGEST}")
    return found


def _read_passes(path: Path) -> tuple[str, ...]:
    """Read the passes in a file; an absent file has an empty sequence."""
    if not path.exists():
        return ()
    try:
        items = json.loads(read_file(path, _MAX_PASSES))
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        raise BadInput(f"{shown(path, 160)} is not a list of passes")
    return check_passes(items)


def object_nodes(items: Value) -> Iterator[ObjectNode]:
    """Yield the nodes among the items of a list."""
    yield from (item for item in items if isinstance(item, ObjectNode)) if isinstance(items, tuple) else ()


def attribute_of(function: ObjectNode, name: str) -> Value:
    """Return an attribute of a function or module; `None` if it is absent."""
    attrs = function.get("attrs")
    table = attrs.get("__dict__") if isinstance(attrs, ObjectNode) else None
    return table.get(name) if isinstance(table, Pairs) else None


def list_parts(value: Value) -> Sequence[Value]:
    """List the values that lists and maps hold, in order; any other value by itself."""
    if isinstance(value, tuple):
        return [part for item in value for part in list_parts(item)]
    return list_parts(value.items) if isinstance(value, Pairs) else (value,)


def list_children(node: ObjectNode, skip: Collection[str] = ()) -> list[ObjectNode]:
    """List the nodes right under one, through lists and maps, without those of the fields `skip`."""
    return [
        part
        for name, value in node.fields.items()
        if name not in skip
        for part in ((value,) if isinstance(value, ObjectNode) else list_parts(value))
        if isinstance(part, ObjectNode)
    ]


def walk(root: ObjectNode, skip: Collection[str] = ()) -> Iterator[ObjectNode]:
    """Yield every node under `root`, each once, parents first; those of the fields `skip` are left out."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        # Nodes are shared: a variable is one node for all its readers.
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            # Reversed, since a stack gives its last item first.
            stack += reversed(list_children(node, skip))


def _texts(root: ObjectNode) -> Iterator[str]:
    """Yield every string in the graph except the bytes of tensors, and names of operators, which TVM looks
    up.
    """
    for node in walk(root):
        if isinstance(node.raw, str) and node.type not in ("ffi.Tensor", "ir.Op"):
            yield node.raw
        for value in node.fields.values():
            yield from (part for part in list_parts(value) if isinstance(part, str))


def _operators(function: ObjectNode) -> Iterator[str]:
    yield from filter(None, map(operator_called, walk(function)))


def operator_called(node: ObjectNode) -> str:
    """Return the operator that a node calls, "" where it calls none."""
    called = node.get("op") if node.type == "ir.Call" else None
    return str(called.raw) if isinstance(called, ObjectNode) and called.type == "ir.Op" else ""


def tvm_ir(program: type[TvmProgram], **own: Any) -> IR[Any]:
    """Return the record of an IR whose programs are modules of TVM."""
    return IR(
        name=program.ir,
        suffix=".json",
        files=(MODULE, PASSES, SCRIPT),
        read=program.read,
        load=program.load,
        # TVM checks a module itself before it compiles it: a Relax module is checked, a TIR function lowered.
        validator="tvm:opt=0,stop=lower",
        # A script may hold what TVM's parser evaluates, so only plain texts are read back.
        printer=lambda program: "tvm:stop=read" if program.is_plain else "tvm:stop=print",
        keeps_script=True,
        script_parser="tvm:emit=script",
        script_language="TVMScript",
        is_script=lambda source: b"tvm" in source,
        **own,
    )


# The types of the values that a module of TVM is fed and gives.


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
    """Return the type of a value that is fed or read."""
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
