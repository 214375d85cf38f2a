"""Parts of well-known architectures, as exporters write them, to mutate and to splice into programs.

architectures.txt holds those written by hand, exported.txt those that benchmarks/export_architectures.py
exports from PyTorch modules. Both use ONNX's text format, each part after a line `## name OPSETS`. Inputs
whose names begin with w are parameters. All inputs are filled like those of any model (gen/data/inputs.py),
so indices lie in their axes and variances are positive.
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

    def parse_model(self, opset: int) -> onnx.ModelProto:
        """Parse the model at an opset."""
        head = f'<ir_version: {_IR_VERSION}, opset_import: ["" : {opset}]>\n{self.name.replace("-", "_")} '
        return onnx.parser.parse_model(head + self.text)


@functools.cache
def load_architectures() -> tuple[Architecture, ...]:
    """Load all architectures in the order of the files."""
    found = []
    for part in (part for file in _FILES for part in file.read_text(encoding="utf-8").split("## ")[1:]):
        head, text = part.split("\n", 1)
        name, opsets = head.split()
        oldest, newest = map(int, opsets.split("-"))
        found.append(Architecture(name, oldest, newest, text))
    return tuple(found)


def draw_architecture(rng: Rng, opset: int) -> Source | None:
    """Draw an architecture that is valid at an opset; None if there is none."""
    there = [each for each in load_architectures() if each.oldest <= opset <= each.newest]
    if not there:
        return None
    return read_architecture(rng.choice(there), opset)


@functools.lru_cache(maxsize=1024)
def read_architecture(architecture: Architecture, opset: int) -> Source:
    """Read an architecture at an opset; the result is cached, and shared between opsets."""
    return replace(_read_at_oldest(architecture), opset=opset)


@functools.cache
def _read_at_oldest(architecture: Architecture) -> Source:
    """Read an architecture at its oldest opset."""
    return read_at(architecture, architecture.oldest)


def read_at(architecture: Architecture, opset: int) -> Source:
    """Read an architecture from its text at an opset."""
    # The text is trusted, so that onnx's inference may run in this process, where a crash would end it.
    model = onnx.shape_inference.infer_shapes(
        architecture.parse_model(opset), strict_mode=True, data_prop=True
    )
    source = read(model, seeded_inputs(model, 0))
    for node in source.nodes:
        for tensor in node.ins:
            if tensor is not None and tensor.leaf == "input":
                # Any elements of the interval will do: forgetting them lets the writer draw new ones.
                tensor.values = None
                if tensor.name.startswith(_PARAMETER):
                    tensor.leaf = "initializer"
    return replace(source, held={})
