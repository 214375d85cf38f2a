"""Single steps on nodes and outputs: the dimensions of the main graph."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx

from opsieve.gen.irs.onnx.cuts import Graph, cut
from opsieve.gen.irs.onnx.graphs import copied, first_output
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.structure import bodies
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.problem.onnx_form import OnnxEdit

_OTHERS = 2  # same-typed values that are not the node's own inputs, tried as its replacement
_FEW = 4  # nodes up to which such values are tried even where an input would do, and inputs of another type


class Nodes:
    """A node dropped: its results become inputs, or initializers where they are constant and small."""

    name = "nodes"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """One edit a node, the last ones first."""
        graph = Graph(subject)
        if len(graph.nodes) > 1:
            for place in reversed(range(len(graph.nodes))):
                yield _edit("drop", graph, place, _dropped)


class Bypass:
    """A node replaced by a value of the type of its result: one of its inputs, or another that is there
    before it.
    """

    name = "bypass"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """A few edits a node."""
        graph = Graph(subject)
        for place, node in enumerate(graph.nodes):
            results = [
                name for name in node.output if name and (name in graph.readers or name in graph.outputs)
            ]
            if len(results) != 1 or results[0] in graph.outputs:
                continue
            known = graph.value(results[0]) is not None
            fits = _stand_ins(graph, place, results[0])
            others = (
                [name for name in graph.reads[place] if name not in fits] if len(graph.nodes) <= _FEW else []
            )
            for name in (*fits, *others):
                # Read by this node alone, an input does as well as the one that the dropped node leaves.
                if name not in graph.producer and graph.readers.get(name) == (place,) and known:
                    continue
                yield OnnxEdit(
                    f"{_called('bypass', graph, place)} by {name}",
                    frozenset([results[0], name, *graph.reads[place]]),
                    partial(_bypassed, result=results[0], stand_in=name, retyped=name in others),
                    frozenset([first_output(node)]),
                )


class Outputs:
    """An output dropped, with all that only it needs."""

    name = "outputs"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """One edit an output, as long as there are several."""
        names = [info.name for info in subject.model.graph.output]
        if len(names) > 1:
            for name in reversed(names):
                yield OnnxEdit(
                    f"drop output {name}",
                    frozenset([name]),
                    partial(_without_output, name=name),
                    frozenset([name + ">"]),
                )


NODES = Nodes()
BYPASS = Bypass()
OUTPUTS = Outputs()


def _called(verb: str, graph: Graph, place: int) -> str:
    node = graph.nodes[place]
    return f"{verb} node {place} ({node.op_type})"


def _edit(verb: str, graph: Graph, place: int, change: Callable[[Subject, str], Subject | None]) -> OnnxEdit:
    key = first_output(graph.nodes[place])
    touches = frozenset([*graph.reads[place], *filter(None, graph.nodes[place].output)])
    return OnnxEdit(
        _called(verb, graph, place), touches, lambda subject: change(subject, key), frozenset([key])
    )


def _dropped(subject: Subject, key: str) -> Subject | None:
    graph = Graph(subject)
    if key not in graph.producer:
        return None
    return cut(graph, (place for place in range(len(graph.nodes)) if place != graph.producer[key]))


def _without_output(subject: Subject, name: str) -> Subject | None:
    outputs = [info for info in subject.model.graph.output if info.name != name]
    if not outputs or len(outputs) == len(subject.model.graph.output):
        return None
    return tidy(copied(subject.model), subject, outputs)


def _bypassed(subject: Subject, result: str, stand_in: str, retyped: bool) -> Subject | None:
    """`stand_in` read for a result; all types are inferred anew where it is `retyped`."""
    graph = Graph(subject)
    if result not in graph.producer or result in graph.outputs:
        return None
    place = graph.producer[result]
    if stand_in in graph.producer and graph.producer[stand_in] >= place:
        return None
    if stand_in not in graph.producer and stand_in not in graph.inputs and stand_in not in graph.initializers:
        return None
    model = copied(subject.model)
    del model.graph.node[place]
    for node in model.graph.node:
        rename(node, result, stand_in)
    kept = tidy(model, subject, list(model.graph.output))
    return kept if kept is None or not retyped else settle(kept, kept.model, kept.inputs)


def rename(node: onnx.NodeProto, old: str, new: str) -> None:
    """Read another value of the outer graph, in bodies too where nothing hides it."""
    for index, name in enumerate(node.input):
        if name == old:
            node.input[index] = new
    for body in bodies(node):
        hidden = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
        if old not in hidden:
            for inner in body.node:
                rename(inner, old, new)
            for info in body.output:
                if info.name == old:
                    info.name = new


def _stand_ins(graph: Graph, place: int, result: str) -> list[str]:
    """Values that could take the place of a result: same dtype and shape as recorded, made before it."""
    value = graph.value(result)
    if not isinstance(value, np.ndarray):
        return []
    own = list(graph.reads[place])
    before = [name for node in graph.nodes[:place] for name in node.output if name]
    others = [name for name in (*graph.inputs, *before) if name not in own]
    fits = [name for name in own if _alike(graph, name, value)]
    further = [name for name in others if _alike(graph, name, value)][:_OTHERS]
    # What lies further up is reached by several steps of its own; others are asked only where that way is
    # closed, or of a small graph.
    return [*fits, *further] if len(graph.nodes) <= _FEW else fits or further


def _alike(graph: Graph, name: str, value: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bool:
    other = graph.value(name)
    return isinstance(other, np.ndarray) and other.dtype == value.dtype and other.shape == value.shape


def tidy(model: onnx.ModelProto, subject: Subject, outputs: list[onnx.ValueInfoProto]) -> Subject | None:
    """What the outputs still need of a changed copy of the subject's model."""
    changed = Subject(model, subject.inputs, subject.values)
    kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in outputs]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    graph = Graph(changed)
    needed = graph.ancestors(graph.producer[info.name] for info in kept if info.name in graph.producer)
    return cut(graph, needed) if needed else None
