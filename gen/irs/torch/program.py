"""A PyTorch program as a program of opsieve: its graph's JSON, with names for what a run of it gives.

A run gives the outputs `output_0`, `output_1`, ...; the layout of each, `output_0.layout`, which is its
strides and the input or earlier output that it shares memory with; and what is in each input afterwards,
`x.after`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.torch.archive import is_archive, read_archive
from opsieve.gen.irs.torch.graph import MalformedProgram, TorchGraph, decode_graph, encode_graph
from opsieve.gen.irs.torch.text import program_text
from opsieve.gen.model.files import bound_reading, read_file
from opsieve.gen.model.printable import escape_surrogates
from opsieve.gen.model.program import AnotherIR, Chunks, Program
from opsieve.gen.model.tensors import TensorType, ValueType

GRAPH, SCRIPT = "graph.json", "module.py"
_NOTE = "# graph.json as PyTorch code, for people; opsieve reads graph.json alone and never runs this file.\n"
# An exported network with its weights has some hundred megabytes.
_MAX_GRAPH = 1 << 30
_UNKNOWN = TensorType("", None)


@dataclass(frozen=True)
class TorchProgram(Program):
    """A PyTorch program as the text of its JSON."""

    ir: ClassVar[str] = "torch"
    kind: ClassVar[str] = "a PyTorch program"

    source: bytes
    passes: tuple[str, ...] = ()
    name: str = field(default="", compare=False)

    @classmethod
    def from_graph(cls, graph: TorchGraph, name: str = "") -> "TorchProgram":
        """Return the program of a graph."""
        program = cls(encode_graph(graph), (), name)
        # What was just written need not be read again.
        program.__dict__["graph"] = graph
        return program

    @classmethod
    @bound_reading
    def read(cls, path: Path) -> "TorchProgram":
        """Return the program in a file: its JSON, or an archive of torch's (`.pt2`)."""
        data = read_file(path, _MAX_GRAPH)
        if is_archive(data):
            try:
                data = read_archive(data)
            except MalformedProgram as error:
                raise BadInput(f"{shown(path, 160)} cannot be read: {error}") from None
        program = cls(data, (), escape_surrogates(path.name))
        # What cannot be read is refused now; so is what an archive holds beside its graph.
        program.inputs()
        return program

    @classmethod
    def load(cls, data: bytes, passes: tuple[str, ...], name: str) -> "TorchProgram":
        """Return the program of its JSON."""
        return cls(data, passes, name)

    @property
    def data(self) -> bytes:
        """The JSON, UTF-8."""
        return self.source

    @cached_property
    def graph(self) -> TorchGraph:
        """The graph; BadInput where the JSON holds none. It is shared: never change it in place."""
        try:
            return decode_graph(self.source)
        except MalformedProgram as error:
            raise AnotherIR(f"{shown(self.name or 'the program')} cannot be read: {error}") from None

    @property
    def script_is_exact(self) -> bool:  # type: ignore[override]
        """The text is made here and says the same as the graph."""
        return True

    @property
    def script(self) -> str:  # type: ignore[override]
        """The program as PyTorch code."""
        return program_text(self.graph)

    def inputs(self) -> dict[str, ValueType]:
        """Return the types of the inputs."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    def outputs(self) -> dict[str, ValueType]:
        """Return the types of the outputs, of their layouts, and of the inputs after the run."""
        found: dict[str, ValueType] = {}
        for place, name in enumerate(self.graph.outputs):
            type_ = self.graph.type_of(name)
            found[f"output_{place}"] = type_ or _UNKNOWN
            if type_ is not None:
                found[f"output_{place}.layout"] = TensorType("int64", (len(type_.shape or ()) + 1,))
        # Of programs that write to nothing too: the compiler may.
        found.update((f"{name}.after", type_) for name, type_ in self.inputs().items())
        return found

    def operators(self) -> list[str]:
        """Return the operators in order."""
        return [call.operator for call in self.graph.calls]

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the edges by the names of values."""
        made = {name: call.operator for call in self.graph.calls for name in call.results if name}
        for call in self.graph.calls:
            yield from ((made.get(name, ""), call.operator) for name in call.reads())

    def names(self) -> Iterator[str]:
        """Yield the names of values."""
        yield from (*self.graph.inputs, *self.graph.constants)
        for call in self.graph.calls:
            yield from filter(None, call.results)

    def files(self) -> dict[str, Chunks]:
        """The JSON, and the program as PyTorch code for people."""
        return {GRAPH: (self.source,), SCRIPT: ((_NOTE + self.script).encode(),)}

    def text(self) -> str:
        """Return the program as PyTorch code."""
        return self.script
