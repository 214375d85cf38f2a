"""A model as text, and whether the text says all of it: asked in a process of its own, for printer and parser are C++.

Run as `python -I -m opsieve.triage.export.text`, it reads a serialised model and prints one JSON object.
"""

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_SECONDS = 30
_MEMORY = 4 << 30
_MOST = 64 << 10  # characters of a text that a person may want to read
_CUT = 1000  # characters of a line, of which a single name may have a million


@dataclass(frozen=True, slots=True)
class ModelText:
    """What onnx.printer makes of a model, "" when it makes nothing; `exact` when onnx.parser makes the same model of it."""

    text: str
    exact: bool


def printer() -> "subprocess.Popen[bytes]":
    """A process that prints one model; started early, it is ready when `model_text` needs it. Kill it if nothing does."""
    command = [sys.executable, "-I", "-m", "opsieve.triage.export.text"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def model_text(model: bytes, process: "subprocess.Popen[bytes] | None" = None) -> ModelText:
    """The text of a serialised model, by a `printer`. Whatever becomes of the process that is asked, there is an answer.

    A text that is not exact is cut to 65,536 characters, its lines to 1,000, and is for reading only.
    """
    with process or printer() as asked:
        try:
            said, _ = asked.communicate(model, timeout=_SECONDS)
            answer = json.loads(said)
            return ModelText(str(answer["text"]), bool(answer["exact"]))
        except (subprocess.SubprocessError, OSError, ValueError, KeyError):
            return ModelText("", False)
        finally:
            asked.kill()


def _main() -> None:
    import onnx

    # Printing can take far more memory than the model has bytes.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    model = onnx.load_model_from_string(sys.stdin.buffer.read())
    for remark in ("producer_name", "producer_version", "doc_string"):
        model.ClearField(remark)
    text = "\n".join(line.rstrip() for line in str(onnx.printer.to_text(model)).strip().split("\n"))
    exact = len(text) <= _MOST and _plain(text) and _same(text, model)
    if not exact:
        text = "\n".join(line if len(line) <= _CUT else f"{line[:_CUT]}..." for line in text[:_MOST].split("\n"))
    json.dump({"text": text, "exact": exact}, sys.stdout)


def _plain(text: str) -> bool:
    """Whether a raw literal between three single quotes can hold it, and a reader sees all of it."""
    return all(" " <= c <= "~" or c == "\n" for c in text) and "\\" not in text and "'''" not in text


def _same(text: str, model: Any) -> bool:
    import onnx

    try:
        parsed = onnx.parser.parse_model(text)
    except Exception:  # noqa: BLE001  the parser is C++ and raises several unrelated classes
        return False
    return _canonical(parsed) == _canonical(model)


def _canonical(model: Any) -> bytes:
    """The bytes of a model in which equal meanings look equal; the model is altered."""
    for graph in _graphs(model):
        for tensor in getattr(graph, "initializer", ()):
            _rewrite(tensor)
        for node in graph.node:
            if not node.domain:
                node.ClearField("domain")
            for attribute in node.attribute:
                for tensor in (attribute.t, *attribute.tensors):
                    if attribute.HasField("t") or attribute.tensors:
                        _rewrite(tensor)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _graphs(model: Any) -> Any:
    """The main graph, the local functions, and every body."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def _rewrite(tensor: Any) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.STRING and tensor.data_location != TensorProto.EXTERNAL:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), name))


if __name__ == "__main__":
    _main()
