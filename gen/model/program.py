"""A program under test, in one of several IRs: what every other part of opsieve may ask of any of them.

What else must be known of an IR stands in its record (gen/irs/ir.py), which `ir_of(program)` finds.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from opsieve.gen.errors import BadInput
from opsieve.gen.model.tensors import OptionalType, SequenceType, TensorType, ValueType

if TYPE_CHECKING:
    from opsieve.gen.model.detached import DataPart

Chunks = Iterable[bytes | memoryview]
# The kinds of rules that a program may break on purpose.
KINDS = (
    *("relation", "dtype", "mixed-dtypes", "rank", "missing-input", "extra-input", "attribute-value"),
    *("attribute-type", "missing-attribute", "unknown-attribute", "output-dtype", "output-shape"),
)
# Attribute of a module of TVM that was made wrong
FAULT = "opsieve.fault"


@dataclass(frozen=True, slots=True)
class Broken:
    """The defect of a broken program: the operator, the kind of rule (one of `KINDS`) and the place."""

    operator: str
    kind: str
    place: str

    def __str__(self) -> str:
        return f"disruptive {self.operator} {self.kind}: {self.place}"


class Program(ABC):
    """The input of a compiler: a frozen dataclass of its bytes, its name, and other parts of the test.

    Two programs are equal when their bytes and passes are; the name and the script are for people.
    """

    # The name of its IR, as stored in case.json
    ir: ClassVar[str]
    # The word for one in messages ("an ONNX model").
    kind: ClassVar[str]
    name: str
    # Run on it before it is compiled, and part of the test: `NAME[:ARGUMENT]`
    passes: tuple[str, ...] = ()
    # The compiler's printed text, if a worker made it; never read back here.
    script: str = ""
    # The compiler reads the same program back from it
    script_is_exact: bool = False

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The program itself, serialised; workers are sent this."""

    @abstractmethod
    def inputs(self) -> dict[str, ValueType]:
        """What has to be fed, by name, in order."""

    @abstractmethod
    def outputs(self) -> dict[str, ValueType]:
        """Return the types of the outputs by name, in order."""

    @abstractmethod
    def operators(self) -> Sequence[str]:
        """Return the operator of every node in order, inner bodies included."""

    @abstractmethod
    def files(self) -> Mapping[str, Chunks]:
        """Return its files in a case folder, by name: the one that holds the program first."""

    def files_with_data(self, folder: str) -> "tuple[Mapping[str, Chunks], dict[str, DataPart]]":
        """Return the same files without the data of large tensors, and that data: what lies in each file of
        `folder` beside them.
        """
        return self.files(), {}

    @abstractmethod
    def text(self) -> str:
        """Return a readable text of the program."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes (and of the passes, where there are any), in hexadecimal."""
        state = hashlib.sha256(self.data)
        for item in self.passes:
            state.update(b"\0" + item.encode())
        return state.hexdigest()

    @property
    def byte_size(self) -> int:
        """How many bytes it has, serialised."""
        return len(self.data)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield its bytes, a piece at a time in memory."""
        yield self.data

    def edges(self) -> Iterable[tuple[str, str]]:
        """Return pairs of producer and consumer operators; the producer of a graph input is ""."""
        return ()

    def names(self) -> Iterable[str]:
        """Return the names that it gives to its values and functions."""
        return (*self.inputs(), *self.outputs())

    @property
    def size(self) -> int:
        """How many operators it applies."""
        return len(self.operators())

    @property
    def fault(self) -> Broken | None:
        """Return the defect of a program that was broken on purpose; `None` for any other."""
        return None

    @property
    def computing_dtype(self) -> str:
        """The element type in which passes of the program make floats be computed; "" for their own."""
        return ""

    def output_dtypes(self) -> dict[str, str]:
        """Return numpy's name of the declared element type of each output, "" if undeclared."""
        return {name: element_dtype(type_) for name, type_ in self.outputs().items()}


class AnotherIR(BadInput):
    """Raised when a file is not a program of this IR, although another IR with the same kind of file may read
    it.
    """


def element_dtype(type_: ValueType) -> str:
    """numpy's name of the element type of a value, "" where it is open."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_.dtype if isinstance(type_, TensorType) else ""
