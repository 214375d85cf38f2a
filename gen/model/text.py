"""A model as text, and whether the text says all of it. Printer and parser are C++: a worker is asked
(backends/workers/questions/programs.py).
"""

from dataclasses import dataclass
from typing import Any

# The most characters of a text that a person may want to read.
_MOST = 64 << 10
# The longest line in characters; a single name may have a million.
_CUT = 1000


@dataclass(frozen=True, slots=True)
class ModelText:
    """What onnx.printer makes of a model, "" when it makes nothing; `exact` when onnx.parser makes the same
    model of it.
    """

    text: str
    exact: bool


def print_model(data: bytes) -> ModelText:
    """Print a serialised model as text. An inexact print is for reading only and is cut to 65,536 characters,
    its lines to 1,000.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    for remark in ("producer_name", "producer_version", "doc_string"):
        model.ClearField(remark)
    text = "\n".join(line.rstrip() for line in str(onnx.printer.to_text(model)).strip().split("\n"))
    # Whether a raw literal between three single quotes can hold it, and a reader sees all of it.
    exact = (
        len(text) <= _MOST
        and (all(" " <= c <= "~" or c == "\n" for c in text) and "\\" not in text and "'''" not in text)
        and _same(text, model)
    )
    if not exact:
        text = "\n".join(
            line if len(line) <= _CUT else f"{line[:_CUT]}..." for line in text[:_MOST].split("\n")
        )
    return ModelText(text, exact)


def _same(text: str, model: Any) -> bool:
    import onnx

    try:
        parsed = onnx.parser.parse_model(text)
    except Exception:  # noqa: BLE001
        # The parser is C++ and raises several unrelated classes.
        return False
    return _canonical(parsed) == _canonical(model)


def _canonical(model: Any) -> bytes:
    """Return the bytes of a model in which equal meanings look equal; the model is altered."""
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
    """Return the main graph, the local functions, and every body."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def _rewrite(tensor: Any) -> None:
    """Write the values of a tensor in the field where numpy_helper writes them.

    The parser writes a float of 16 bits or less as the bits of an integer, which some compilers read as its
    value. Where such a tensor is stored matters, so it stays as it is.
    """
    from onnx import TensorProto, numpy_helper

    kind = TensorProto.DataType.Name(tensor.data_type)
    narrow = kind != "FLOAT" and "FLOAT" in kind
    if kind != "STRING" and not narrow and tensor.data_location != TensorProto.EXTERNAL:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
