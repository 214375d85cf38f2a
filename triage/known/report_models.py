"""Extract the models in a public report: scripts of numpy and onnx.helper, and texts for onnx.parser.

A process with limits on time and memory reads them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx.parser

from opsieve.backends.workers.sandbox.limited_process import read_limited
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_file
from opsieve.triage.known.report import ReportFacts, ReportText, extract_facts, parse_report
from opsieve.triage.known.report_script import MOST, MOST_BYTES, Script

_LONGEST_TEXT = 64 << 10
_MOST_REPORT = 16 << 20
_PARSED = re.compile(r"<\s{0,20}(?:ir_version|opset_import)\b")


@dataclass(frozen=True, slots=True)
class FedArray:
    """An input as plain data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def as_numpy(self) -> "np.ndarray[Any, Any]":
        """Return the array."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class InlineModel:
    """A model of block number `block`, from 1: serialised in `data`, or in `text` for onnx.parser.

    `inputs` are those that its script feeds.
    """

    block: int
    data: bytes = b""
    text: str = ""
    inputs: Mapping[str, FedArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The facts that a report names, and its models: at most `MOST` are read."""

    facts: ReportFacts
    models: list[InlineModel]


def read_contents(path: Path) -> ReportContents:
    """Read the contents of a report in a process with limits.

    Raises:
        BadInput: If it is not a regular file, over 16 MiB, or takes more time or memory than the process may.
    """
    data = read_file(path, _MOST_REPORT)
    try:
        found = read_limited(f"{__name__}:encode_contents", data)
    except BadInput as error:
        raise BadInput(f"{shown(path, 200)} is not read: {error}") from None
    return msgspec.msgpack.decode(found, type=ReportContents)


def encode_contents(data: bytes) -> bytes:
    """Encode the contents of a report as msgpack, in the process that reads it."""
    report = parse_report(data.decode("utf-8", "replace"))
    return msgspec.msgpack.encode(
        ReportContents(extract_facts(report), list(islice(iter_models(report), MOST)))
    )


def parse_text(data: bytes) -> bytes:
    """Parse a text with onnx.parser; return the serialised model."""
    return bytes(onnx.parser.parse_model(data.decode()).SerializeToString())


def iter_models(report: ReportText) -> Iterator[InlineModel]:
    """Yield every model in the blocks of a report: those of scripts, then those of texts, each in order.

    If no block alone makes a model, all blocks are read as one script.
    """
    found = False
    # A script is what the reporter ran; a text may show the model after it was optimised.
    for number, block in sorted(enumerate(report.blocks, 1), key=lambda item: _is_model_text(item[1])):
        for model in _iter_block_models(number, block):
            found = True
            yield model
    # Reports often split a script into several blocks with text between them.
    if not found and len(report.blocks) > 1:
        yield from _iter_block_models(
            1,
            "\n".join(
                block
                for block in report.blocks
                if any(word in block for word in ("import ", "helper.", "np."))
            ),
        )


def _is_model_text(block: str) -> bool:
    return block.lstrip().startswith("<") and _PARSED.search(block[:400]) is not None


def _iter_block_models(number: int, block: str) -> Iterator[InlineModel]:
    if _is_model_text(block):
        yield InlineModel(number, text=block[:_LONGEST_TEXT])
        return
    script = Script(block)
    given = script.find_inputs().items()
    fed = {name: FedArray(each.dtype.str, each.shape, each.tobytes()) for name, each in given}
    for text in script.texts:
        yield InlineModel(number, text=text[:_LONGEST_TEXT], inputs=fed)
    for model in script.models:
        if model.ByteSize() <= MOST_BYTES:
            yield InlineModel(number, data=model.SerializeToString(), inputs=fed)
