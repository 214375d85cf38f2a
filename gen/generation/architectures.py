"""Parts of well-known architectures, as exporters write them: what programs are mutated from, and what is
spliced into them.

They stand in architectures.txt, and those that benchmarks/export_architectures.py makes of modules of PyTorch
in exported.txt, as ONNX's text format, each behind a line `## name OPSETS`. Inputs whose names begin with w
are parameters; all of them are filled as the inputs of any model are (gen/data/inputs.py), so that indices
lie in their axes and variances are positive.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import onnx
import onnx.parser
import onnx.shape_inference

from opsieve.gen.analysis.reading import Source, read
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.declarations.rng import Rng

_FILES: Final = tuple(Path(__file__).with_name(name) for name in ("architectures.txt", "exported.txt"))
_PARAMETER: Final = "w"
_IR_VERSION: Final = 8


@dataclass(frozen=True, slots=True)
class Architecture:
    """A part of an architecture: its graph as text, and the oldest and newest opset at which it is valid."""

    name: str
    oldest: int
    newest: int
    text: str

    def model(self, opset: int) -> onnx.ModelProto:
        """The model at an opset."""
        head = f'<ir_version: {_IR_VERSION}, opset_import: ["" : {opset}]>\n{self.name.replace("-", "_")} '
        return onnx.parser.parse_model(head + self.text)


@functools.cache
def architectures() -> tuple[Architecture, ...]:
    """All of them, in order of the files."""
    found = []
    for part in (part for file in _FILES for part in file.read_text(encoding="utf-8").split("## ")[1:]):
        head, text = part.split("\n", 1)
        name, opsets = head.split()
        oldest, newest = map(int, opsets.split("-"))
        found.append(Architecture(name, oldest, newest, text))
    return tuple(found)


def drawn(rng: Rng, opset: int) -> Source | None:
    """Any architecture that is valid at an opset; None where there is none."""
    there = [each for each in architectures() if each.oldest <= opset <= each.newest]
    if not there:
        return None
    return read_architecture(rng.choice(there), opset)


@functools.lru_cache(maxsize=1024)
def read_architecture(architecture: Architecture, opset: int) -> Source:
    """An architecture at an opset; whoever asks again is given the same. What is read is equal at all its
    opsets, hence read once.
    """
    return replace(_oldest(architecture), opset=opset)


@functools.cache
def _oldest(architecture: Architecture) -> Source:
    return read_at(architecture, architecture.oldest)


def read_at(architecture: Architecture, opset: int) -> Source:
    """An architecture as it is read from its text at an opset."""
    # The text is our own, so that onnx's inference need not be asked in a process apart.
    model = onnx.shape_inference.infer_shapes(architecture.model(opset), strict_mode=True, data_prop=True)
    source = read(model, seeded_inputs(model, 0))
    for node in source.nodes:
        for tensor in node.ins:
            if tensor is not None and tensor.leaf == "input":
                tensor.values = None  # any others in its interval will do
                if tensor.name.startswith(_PARAMETER):
                    tensor.leaf = "initializer"
    return replace(source, held={})
