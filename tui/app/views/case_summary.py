"""What a case folder holds, for people: its graph drawn, its operators, its inputs. Read in a process of its own.

    python -I -m opsieve.tui.app.views.case_summary FOLDER      prints one JSON object, the fields of Sheet

A model from anywhere may be large or hostile, and reading it would stop the screen; here it has limits on time and memory.
"""

import json
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.model.bad_input import BadInput, shown

_SECONDS = 30
_MEMORY = 4 << 30
_NODES = 2000  # drawn
_LONGEST = 400  # characters of a label
_VALUES = 12  # elements of an input that are shown
_MAX_OUTPUT = 16 << 20


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """`graph`: (rails, label) lines; `operators`: (operator, how many); `inputs` and `expected`: (name, type, values); `origin`: (name, value)."""

    graph: tuple[tuple[str, str], ...]
    operators: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[str, str, str], ...]
    expected: tuple[tuple[str, str, str], ...]
    origin: tuple[tuple[str, str], ...]


def read_summary(folder: Path) -> CaseSummary:
    """The sheet of a case folder; BadInput, one sentence, when it cannot be read, or takes too long or too much."""
    command = [sys.executable, "-I", "-m", "opsieve.tui.app.views.case_summary", str(folder)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
        reply = json.loads(done.stdout[:_MAX_OUTPUT])
        if "problem" in reply:
            raise BadInput(str(reply["problem"]))
        return CaseSummary(
            tuple((str(rails), str(label)) for rails, label in reply["graph"]),
            tuple((str(name), int(many)) for name, many in reply["operators"]),
            _triples(reply["inputs"]),
            _triples(reply["expected"]),
            tuple((str(name), str(value)) for name, value in reply["origin"]),
        )
    except BadInput:
        raise
    except subprocess.TimeoutExpired:
        raise BadInput(f"the case {shown(folder, 160)} took more than {_SECONDS} s to read") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"the case {shown(folder, 160)} cannot be read; the process that tried has died") from None


def _triples(rows: Any) -> tuple[tuple[str, str, str], ...]:
    return tuple((str(name), str(kind), str(values)) for name, kind, values in rows)


def summarize(folder: Path) -> CaseSummary:
    """The same, read here. BadInput for a case that `opsieve.gen.case.case.load` refuses."""
    from opsieve.gen.case.case import load
    from opsieve.gen.model.structure import all_nodes
    from opsieve.tui.app.views.graph_text import Box, drawn

    case = load(folder)
    graph = case.program.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    boxes = [
        Box(f"{value.name}  {_type(value.type)}", (), (value.name,), "○")
        for value in graph.input
        if value.name not in constants
    ]
    boxes += [_box(node, constants) for node in graph.node[:_NODES]]
    if len(graph.node) <= _NODES:
        boxes += [Box(f"{value.name}  {_type(value.type)}", (value.name,), (), "◎") for value in graph.output]
    lines = [(rails, label[:_LONGEST]) for rails, label in drawn(boxes)]
    if len(graph.node) > _NODES:
        lines.append(("", f"… {len(graph.node) - _NODES:,} more nodes are not drawn"))
    many = Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in all_nodes(graph.node))
    origin = case.origin
    origin_rows = [
        ("generator", origin.generator),
        ("seed", "" if origin.seed is None else str(origin.seed)),
        ("inputs", origin.inputs),
    ]
    origin_rows += [(f"version of {name}", version) for name, version in sorted(origin.versions.items())]
    origin_rows += [(name, value) for name, value in sorted(case.parameters.items())]
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in case.program.proto.opset_import)
    origin_rows += [
        ("opsets", opsets),
        ("IR version", str(case.program.proto.ir_version)),
        ("digest", case.program.digest),
    ]
    return CaseSummary(
        tuple(lines),
        tuple(sorted(many.items(), key=lambda one: (-one[1], one[0]))),
        tuple((name, *_value(value)) for name, value in case.inputs.items()),
        tuple((name, *_value(value)) for name, value in (case.expected or {}).items()),
        tuple(origin_rows),
    )


def _box(node: Any, constants: set[str]) -> Any:
    from opsieve.tui.app.views.graph_text import Box

    given = " ".join(f"{name}" for name in node.input if name in constants)
    attributes = " ".join(f"{each.name}={_attribute(each)}" for each in node.attribute)
    words = [node.op_type, f"({given})" if given else "", attributes, "→ " + ", ".join(filter(None, node.output))]
    reads = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            reads |= {name for inner in body.node for name in inner.input if name}
    ordered = [*(name for name in node.input if name), *sorted(reads - set(node.input))]
    return Box(" ".join(filter(None, words)), tuple(ordered), tuple(filter(None, node.output)))


def _attribute(attribute: Any) -> str:
    from onnx import helper

    if attribute.HasField("t"):
        return f"tensor{list(attribute.t.dims)}"
    if attribute.HasField("g"):
        return f"body of {len(attribute.g.node)} nodes"
    if attribute.tensors or attribute.graphs or attribute.sparse_tensors or attribute.HasField("sparse_tensor"):
        return "…"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = str(list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _type(type_: Any) -> str:
    from opsieve.gen.model.tensors import TensorType, read_type

    found = read_type(type_)
    if isinstance(found, TensorType):
        shape = (
            "[…]"
            if found.shape is None
            else f"[{','.join('?' if size is None else str(size) for size in found.shape)}]"
        )
        return f"{found.dtype}{shape}"
    return type(found).__name__.removesuffix("Type").lower()


def _value(value: Any) -> tuple[str, str]:
    import numpy as np

    if value is None:
        return "nothing", ""
    if isinstance(value, (list, tuple)):
        return f"sequence of {len(value)}", ", ".join(_value(item)[0] for item in value[:4])
    array = np.asarray(value)
    flat = array.ravel()
    words = " ".join(str(item)[:24] for item in flat[:_VALUES])
    if flat.size > _VALUES:
        words += " …"
        if array.dtype.kind in "fiu":
            wide = flat[np.isfinite(flat)].astype(np.float64) if array.dtype.kind == "f" else flat.astype(np.float64)
            if wide.size:
                words += f"  (from {wide.min():.6g} to {wide.max():.6g}, mean {wide.mean():.6g})"
    return f"{array.dtype}{list(array.shape)}".replace(" ", ""), words


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        json.dump(asdict(summarize(Path(sys.argv[1]))), sys.stdout)
    except (BadInput, OSError) as error:
        json.dump({"problem": str(error)}, sys.stdout)


if __name__ == "__main__":
    _main()
