"""Inputs and stored tensors shared: what reads one of them reads another of its type, and the first goes."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from opsieve.reducer.nodes.node_passes import rename, tidy
from opsieve.reducer.onnx_edit.graphs import copied
from opsieve.reducer.onnx_edit.typed_view import settle
from opsieve.reducer.problem.graph import Graph
from opsieve.reducer.problem.onnx_form import OnnxEdit
from opsieve.reducer.problem.subject import Subject

_MOST = 32  # inputs and stored tensors of a model; with more of them it is not yet small
_OTHERS = 2  # of the same type, tried in place of each


class SharingPass:
    """One input or stored tensor in place of another."""

    name = "sharing"

    def edits(self, subject: Subject) -> Iterator[OnnxEdit]:
        """Two edits at most for each, the last ones first."""
        graph = Graph(subject)
        values = {name: graph.value(name) for name in dict.fromkeys((*graph.inputs, *graph.initializers))}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        if len(arrays) > _MOST:
            return
        for name, array in reversed(arrays.items()):
            alike = [
                other
                for other, value in arrays.items()
                if other != name and (value.dtype, value.shape) == (array.dtype, array.shape)
            ]
            for other in alike[:_OTHERS] if name not in graph.outputs else ():
                what = f"read {other[:40]!r} for {name[:40]!r}"
                yield OnnxEdit(what, frozenset([name, other]), partial(_shared, name=name, other=other))


def _shared(subject: Subject, name: str, other: str) -> Subject | None:
    """`other` read wherever `name` is; None where one of them is not there any more, or a type would not fit."""
    graph = Graph(subject)
    if any(each not in graph.inputs and each not in graph.initializers for each in (name, other)):
        return None
    model = copied(subject.model)
    for node in model.graph.node:
        rename(node, name, other)
    kept = tidy(model, subject, list(model.graph.output))
    return None if kept is None else settle(kept, copied(kept.model), kept.inputs)


PASS = SharingPass()
