"""Models that stand in the text of a public report: scripts of onnx.helper, and text of onnx.parser. Nothing
is run.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsieve.triage.known.report_text import ReportText
from opsieve.triage.known.script_values import Script

_PARSED = re.compile(r"<\s{0,20}(?:ir_version|opset_import)\b")
_MOST_TEXT = 64 << 10
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class InlineModel:
    """A model of block number `block`, from 1: a serialised ModelProto in `data`, or in `text` what
    onnx.parser is to read. `inputs` are those that its script feeds.
    """

    block: int
    data: bytes = b""
    text: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)


def inline_models(report: ReportText) -> Iterator[InlineModel]:
    """Every model in the blocks of a report, in order. Blocks of one script that was cut up are read as one,
    too, where none alone makes a model.
    """
    found = False
    for number, block in enumerate(report.blocks, 1):
        for model in _of(number, block):
            found = True
            yield model
    if not found and len(report.blocks) > 1:
        yield from _of(1, "\n".join(block for block in report.blocks if _python(block)))


def _of(number: int, block: str) -> Iterator[InlineModel]:
    if block.lstrip().startswith("<") and _PARSED.search(block[:400]):
        yield InlineModel(number, text=block[:_MOST_TEXT])
        return
    script = Script(block)
    for text in script.texts:
        yield InlineModel(number, text=text[:_MOST_TEXT], inputs=script.fed)
    for model in script.models:
        if model.ByteSize() <= _MOST_BYTES:
            yield InlineModel(number, data=model.SerializeToString(), inputs=script.fed)


def _python(block: str) -> bool:
    return "import " in block or "helper." in block or "np." in block
