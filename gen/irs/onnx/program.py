"""An ONNX model as a program."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import onnx

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import detached, structure, tensors
from opsieve.gen.model.program import KINDS, Broken, Chunks, Program

# The model's file in a case folder.
MODEL = "model.onnx"
_NOT_IN_A_NAME = re.compile(r"\W")
# Bounded and of printable characters, since anybody may write a graph's name into a file that we print from.
_MARK = re.compile(r"disruptive ([A-Za-z0-9]{1,60}) ([a-z-]{1,24}): ([ -~]{1,80})", re.ASCII)


@dataclass(frozen=True)
class OnnxProgram(Program):
    """An ONNX model as serialised bytes, its external data taken in (2 GB at most, protobuf's own limit).

    In `model` and `proto` the data of large tensors may be references (gen/model/detached.py), which
    `read_tensor` follows; `data` has none.
    """

    ir: ClassVar[str] = "onnx"
    kind: ClassVar[str] = "an ONNX model"

    model: bytes
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, proto: onnx.ModelProto) -> "OnnxProgram":
        """Make a program of a model that stays unchanged from now on, without parsing it again; equal models
        give equal bytes.
        """
        program = cls(proto.SerializeToString(deterministic=True))
        # Fill the slot of the `cached_property`.
        program.__dict__["proto"] = proto
        return program

    @property
    def data(self) -> bytes:
        """The serialised ModelProto, whole."""
        return b"".join(self.chunks()) if len(self.pieces) > 1 else self.model

    @cached_property
    def pieces(self) -> tuple[bytes | detached.DataPart, ...]:
        """The parts of the serialised model, with references for the data of large tensors."""
        return detached.pieces(self.proto, self.model) if detached.may_refer(self.model) else (self.model,)

    @property
    def byte_size(self) -> int:
        """The bytes of the serialised model, computed without reading data outside of memory."""
        return sum(map(len, self.pieces))

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes, with one piece in memory at a time."""
        for piece in self.pieces:
            yield piece.view() if isinstance(piece, detached.DataPart) else piece

    def files(self) -> dict[str, Chunks]:
        """Return the file of the model, which includes its external data."""
        return {MODEL: self.chunks()}

    def files_with_data(self, folder: str) -> tuple[dict[str, Chunks], dict[str, detached.DataPart]]:
        """Return the model with the data of large tensors as ONNX's external data."""
        model, parts = detached.with_data_beside(self.proto, folder)
        return OnnxProgram.of(model).files(), parts

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, in which digests stand for large tensors."""
        return hashlib.sha256(self.model).hexdigest()

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The parsed model. Shared: copy before changing it."""
        return onnx.load_model_from_string(self.model)

    def inputs(self) -> dict[str, tensors.ValueType]:
        """Return the graph's inputs without default, and their types."""
        return tensors.graph_inputs(self.proto)

    def outputs(self) -> dict[str, tensors.ValueType]:
        """Return the graph's outputs and their types."""
        return tensors.graph_outputs(self.proto)

    def operators(self) -> list[str]:
        """Return the operator of every node, those of subgraphs included."""
        return list(self._operators)

    @cached_property
    def _operators(self) -> tuple[str, ...]:
        return tuple(node.op_type for node in structure.all_nodes(self.proto.graph.node))

    @property
    def size(self) -> int:
        """The number of nodes of the main graph."""
        return len(self.proto.graph.node)

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the edges by the names of values, bodies included."""
        nodes = list(structure.all_nodes(self.proto.graph.node))
        # "" is the name of an omitted output or input, and no edge.
        made = {name: node.op_type for node in nodes for name in node.output if name}
        yield from ((made.get(name, ""), node.op_type) for node in nodes for name in node.input if name)

    def names(self) -> Iterable[str]:
        """Return the names of values, tensors and nodes, also in bodies, without ONNX's own words."""
        # Each also as a compiler writes that takes only letters, digits and underscores, without words that
        # ONNX's operator pages use (`ReduceL1`). protobuf gives a name that is not UTF-8 as bytes.
        texts = {name for name in structure.list_names(self.proto) if isinstance(name, str)}
        texts |= {_NOT_IN_A_NAME.sub("_", name) for name in texts}
        return texts - _words_of_onnx() - {node.op_type for node in structure.model_nodes(self.proto)}

    def text(self) -> str:
        """Return a line a node, in the graph's order; bodies follow their node."""
        return "\n".join(
            f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})"
            for node in structure.all_nodes(self.proto.graph.node)
        )

    @property
    def fault(self) -> Broken | None:
        """Return the intended defect that the graph's name records."""
        return read_broken_mark(self.proto)


def onnx_programs(programs: Iterable[object]) -> list[OnnxProgram]:
    """Select the programs that are ONNX models, in order."""
    return [program for program in programs if isinstance(program, OnnxProgram)]


def onnx_program(program: Program, wanted: str = "this") -> OnnxProgram:
    """Return the program if it is an ONNX model. Raises BadInput, which names the use that `wanted` it,
    otherwise.
    """
    if isinstance(program, OnnxProgram):
        return program
    raise BadInput(f"{wanted} takes ONNX models; {shown(program.name or 'the program')} is {program.kind}")


def read_broken_mark(model: onnx.ModelProto) -> Broken | None:
    """Read the defect of a program that was broken on purpose from its graph's name; `None` for any other
    program.
    """
    found = _MARK.fullmatch(model.graph.name)
    return Broken(found[1], found[2], found[3]) if found is not None and found[2] in KINDS else None


@functools.cache
def _words_of_onnx() -> frozenset[str]:
    """Operators, their parameters and attributes, as the installed onnx documents them."""
    found: set[str] = set()
    for schema in onnx.defs.get_all_schemas():
        found.add(schema.name)
        found.update(schema.attributes)
        found.update(parameter.name for parameter in (*schema.inputs, *schema.outputs))
    return frozenset(found)


def graph_details(model: onnx.ModelProto) -> tuple[set[str], set[str]]:
    """Return the rank of each operator's first input (`Relu:4`), and the class of each attribute
    (`Pad.mode=edge`).
    """
    graph = model.graph
    declared = {
        item.name: len(item.type.tensor_type.shape.dim)
        for item in [*graph.input, *graph.output, *graph.value_info]
        if item.type.tensor_type.HasField("shape")
    }
    ranks = declared | {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    ranked: set[str] = set()
    attributes: set[str] = set()
    for node in structure.all_nodes(model.graph.node):
        first = next(filter(None, node.input), None)
        if first in ranks:
            ranked.add(f"{node.op_type}:{ranks[first]}")
        attributes.update(
            f"{node.op_type}.{item.name}={kind}"
            for item in node.attribute
            if (kind := _attribute_class(item)) is not None
        )
    return ranked, attributes


def _attribute_class(item: onnx.AttributeProto) -> str | None:
    """Classify an attribute's value; returns `None` for tensors, graphs and real numbers, which are too
    specific.
    """
    # 0 and 1 are mostly switches (`keepdims`); other numbers differ in each model and would make each a
    # class.
    if item.type == onnx.AttributeProto.INT:
        return str(item.i) if item.i in (0, 1) else "n"
    if item.type == onnx.AttributeProto.STRING:
        return item.s.decode("utf-8", "replace")[:40]
    if item.type == onnx.AttributeProto.INTS:
        values = set(item.ints)
        return "zeros" if values <= {0} else "equal" if len(values) == 1 else "mixed"
    return None
