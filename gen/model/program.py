"""A program under test, in one of several IRs: what all of them answer, and the one that is an ONNX model.

A program with a fault on purpose says so in the name of its graph (gen/strategies/disruptive.py), or in an attribute of
its module.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import onnx

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.detached import DataPart, may_refer, pieces
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import (
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    graph_inputs,
    graph_outputs,
)

KINDS = (
    *("relation", "dtype", "mixed-dtypes", "rank", "missing-input", "extra-input", "attribute-value"),
    *("attribute-type", "missing-attribute", "unknown-attribute", "output-dtype", "output-shape"),
)
FAULT = "opsieve.fault"  # attribute of a module of TVM that was made wrong
_MARK = re.compile(r"disruptive ([A-Za-z0-9]{1,60}) ([a-z-]{1,24}): ([ -~]{1,80})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with a program: the operator, the kind of rule (one of `KINDS`) and the place."""

    operator: str
    kind: str
    place: str

    def __str__(self) -> str:
        return f"disruptive {self.operator} {self.kind}: {self.place}"


def broken(model: onnx.ModelProto) -> Broken | None:
    """What is wrong with a program that was made to be wrong; None for any other program."""
    found = _MARK.fullmatch(model.graph.name)
    return Broken(found[1], found[2], found[3]) if found is not None and found[2] in KINDS else None


class Program(ABC):
    """What a compiler is given. Two programs are equal when their bytes and passes are; the name is for
    people.

    A form is a subclass; what else a floor needs to know of it stands in one module of that floor
    (gen/forms/registry.py has where it lies in a case folder).
    """

    form: ClassVar[str]  # its name, as stored in case.json
    kind: ClassVar[str]  # what a person calls one ("an ONNX model")
    name: str
    passes: tuple[str, ...] = ()  # run on it before it is compiled, and part of the test: `NAME[:ARGUMENT]`

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The program itself, serialised; workers are sent this."""

    @property
    def pieces(self) -> "tuple[bytes | DataPart, ...]":
        """The same in pieces, the large ones of which need not be in memory."""
        return (self.data,)

    @property
    def byte_size(self) -> int:
        """How many bytes it has, serialised."""
        return sum(map(len, self.pieces))

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Its bytes, a piece at a time in memory."""
        for piece in self.pieces:
            yield piece.view() if isinstance(piece, DataPart) else piece

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes (and of the passes, where there are any), in hexadecimal."""
        state = hashlib.sha256(self.data)
        for item in self.passes:
            state.update(b"\0" + item.encode())
        return state.hexdigest()

    @abstractmethod
    def inputs(self) -> dict[str, ValueType]:
        """What has to be fed, by name, in order."""

    @abstractmethod
    def outputs(self) -> dict[str, ValueType]:
        """What it gives, by name, in order."""

    @abstractmethod
    def operators(self) -> Sequence[str]:
        """The operator of every node, inner bodies included, in order."""

    def edges(self) -> Iterable[tuple[str, str]]:
        """Which operator feeds which: (producer, consumer), "" where an input of the program is what is
        consumed.
        """
        return ()

    @abstractmethod
    def text(self) -> str:
        """The program for people."""

    def names(self) -> Iterable[str]:
        """The names that it gives to its values and functions."""
        return (*self.inputs(), *self.outputs())

    @property
    def size(self) -> int:
        """How many operators it applies."""
        return len(self.operators())

    @property
    def fault(self) -> Broken | None:
        """What is wrong with a program that was made to be wrong; None for any other."""
        return None

    def output_dtypes(self) -> dict[str, str]:
        """numpy's name of the element type that is declared for each output, "" where none is."""
        return {name: element_dtype(type_) for name, type_ in self.outputs().items()}


@dataclass(frozen=True)
class OnnxProgram(Program):
    """An ONNX model as serialised bytes, its external data taken in (2 GB at most, protobuf's own limit).

    In `model` and `proto` the data of large tensors may be references (gen/model/detached.py), which
    `read_tensor` follows; `data` has none.
    """

    form: ClassVar[str] = "onnx"
    kind: ClassVar[str] = "an ONNX model"

    model: bytes
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, proto: onnx.ModelProto) -> "OnnxProgram":
        """A model that nobody will change any more; equal models give equal bytes. It is not parsed again."""
        program = cls(proto.SerializeToString(deterministic=True))
        program.__dict__["proto"] = proto  # where `cached_property` keeps it
        return program

    @property
    def data(self) -> bytes:
        """The serialised ModelProto, whole."""
        return b"".join(self.chunks()) if len(self.pieces) > 1 else self.model

    @cached_property
    def pieces(self) -> tuple[bytes | DataPart, ...]:
        """Between them lie the data of large tensors, which are not in memory."""
        return pieces(self.proto, self.model) if may_refer(self.model) else (self.model,)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, in which digests stand for large tensors."""
        return hashlib.sha256(self.model).hexdigest()

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The parsed model. Shared: copy before changing it."""
        return onnx.load_model_from_string(self.model)

    def inputs(self) -> dict[str, ValueType]:
        """The graph's inputs without default, and their types."""
        return graph_inputs(self.proto)

    def outputs(self) -> dict[str, ValueType]:
        """The graph's outputs and their types."""
        return graph_outputs(self.proto)

    def operators(self) -> list[str]:
        """The operator of every node, those of subgraphs included."""
        return list(self._operators)

    @cached_property
    def _operators(self) -> tuple[str, ...]:
        return tuple(node.op_type for node in all_nodes(self.proto.graph.node))

    @property
    def size(self) -> int:
        """How many nodes the main graph has."""
        return len(self.proto.graph.node)

    def edges(self) -> Iterator[tuple[str, str]]:
        """By the names of values, bodies included."""
        nodes = list(all_nodes(self.proto.graph.node))
        made = {name: node.op_type for node in nodes for name in node.output if name}
        yield from ((made.get(name, ""), node.op_type) for node in nodes for name in node.input if name)

    def text(self) -> str:
        """A line a node, in the graph's order; bodies follow their node."""
        return "\n".join(
            f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})"
            for node in all_nodes(self.proto.graph.node)
        )

    @property
    def fault(self) -> Broken | None:
        """What the name of the graph says is wrong on purpose."""
        return broken(self.proto)


def element_dtype(type_: ValueType) -> str:
    """numpy's name of the element type of a value, "" where it is open."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_.dtype if isinstance(type_, TensorType) else ""


def onnx_program(program: Program, wanted: str = "this") -> OnnxProgram:
    """The program itself where it is an ONNX model; BadInput, which names what is `wanted` of it, where it is
    not.
    """
    if isinstance(program, OnnxProgram):
        return program
    raise BadInput(f"{wanted} takes ONNX models; {shown(program.name or 'the program')} is {program.kind}")
