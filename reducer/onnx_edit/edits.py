"""ONNX models as passes of any IR see and change them."""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from opsieve.gen.irs.onnx.edits import add_initializers, cut, encode_array, put_array, replace_items, reread
from opsieve.gen.irs.onnx.view import Array, Graph, Subject, first_output, held_array
from opsieve.gen.irs.view import Opening, Operation, SizeClass, StoredTensor, TypeClass
from opsieve.gen.model.structure import copied
from opsieve.reducer.onnx_edit import resizing, typed_view
from opsieve.reducer.onnx_edit.openings import find_openings
from opsieve.reducer.onnx_edit.retyping import retype, type_classes
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.problem.order import simpler


class OnnxView:
    """A model: its main graph, and the tensors and bodies of all graphs."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._graph = subject, Graph(subject)

    def inputs(self) -> list[str]:
        """List the inputs that are tensors."""
        return [name for name, value in self._subject.inputs.items() if isinstance(value, np.ndarray)]

    def outputs(self) -> list[str]:
        """List the outputs of the graph."""
        return list(self._graph.outputs)

    def operations(self) -> list[Operation]:
        """List the nodes of the main graph; `result` is the only result with a reader, unless it is an
        output.
        """
        graph, found = self._graph, []
        for place, node in enumerate(graph.nodes):
            made = graph.results[place]
            results = [name for name in made if name in graph.readers or name in graph.outputs]
            # Only such a node can be replaced by one value.
            result = results[0] if len(results) == 1 and results[0] not in graph.outputs else ""
            own = (name for name in graph.reads[place] if graph.readers[name] == (place,))
            found.append(
                Operation(
                    first_output(node),
                    f"node {place} ({node.op_type})",
                    graph.reads[place],
                    result,
                    frozenset((*graph.reads[place], *made)),
                    frozenset(name for name in own if name not in graph.producer),
                )
            )
        return found

    def type_of(self, name: str) -> tuple[np.dtype[np.generic], tuple[int, ...]] | None:
        """Return the type of a value that is recorded, fed or stored; `None` for any other."""
        value = self._graph.value(name)
        return (value.dtype, value.shape) if isinstance(value, np.ndarray) else None

    def scope(self, operation: Operation) -> Iterator[str]:
        """Yield the inputs, and what nodes before it compute."""
        graph = self._graph
        yield from graph.inputs
        for results in graph.results[: graph.producer[operation.key]]:
            yield from results

    def tensors(self) -> Iterator[StoredTensor]:
        """Return the inputs that are tensors; then the initializers and Constant nodes of each graph."""
        return typed_view.stored_tensors(self._subject)

    def openings(self) -> Iterator[Opening]:
        """Branches, turns of loops, functions."""
        return find_openings(self._subject)

    def sizes(self) -> list[SizeClass]:
        """Classes of dimensions by the operators' rules for sizes."""
        return resizing.size_classes(self._subject)

    def dtypes(self) -> list[TypeClass]:
        """Classes of tensors by the type variables of the operators' schemas."""
        return type_classes(self._subject)


class OnnxEdits:
    """Edits of models; types are inferred anew where an edit may change them."""

    def view(self, subject: Subject) -> OnnxView:
        """Return the model as passes see it."""
        return OnnxView(subject)

    def drop_output(self, subject: Subject, name: str) -> Subject | None:
        """Drop an output, and the nodes that only it needs."""
        outputs = [info for info in subject.model.graph.output if info.name != name]
        # A model without an output is invalid; an unchanged number means that the name is gone.
        if not outputs or len(outputs) == len(subject.model.graph.output):
            return None
        return tidy(copied(subject.model), subject, outputs)

    def remove(self, subject: Subject, operation: Operation) -> Subject | None:
        """Drop a node: its results become inputs, or initializers if they are constant and small."""
        graph = Graph(subject)
        if operation.key not in graph.producer:
            return None
        return cut(
            graph, (place for place in range(len(graph.nodes)) if place != graph.producer[operation.key])
        )

    def replace(self, subject: Subject, result: str, by: str, retype: bool) -> Subject | None:
        """Replace a result by another value; `retype` infers all types anew, for a value of another type."""
        graph = Graph(subject)
        if result not in graph.producer or result in graph.outputs:
            return None
        place = graph.producer[result]
        # A value that is computed later would make a cycle.
        if by in graph.producer and graph.producer[by] >= place:
            return None
        if by not in graph.producer and by not in graph.inputs and by not in graph.initializers:
            return None
        model = copied(subject.model)
        del model.graph.node[place]
        reread(model.graph.node, {result: by})
        kept = tidy(model, subject, list(model.graph.output))
        # No inference otherwise: a value of the same type changes the type of no other.
        return kept if kept is None or not retype else settle(kept, kept.model, kept.inputs)

    def open(self, subject: Subject, opening: Opening) -> Subject | None:
        """Replace a node by its body, if that is simpler."""
        found: Subject | None = opening.place(subject)
        return found if found is not None and simpler(found, subject) else None

    def store(self, subject: Subject, tensor: StoredTensor, array: Array) -> Subject | None:
        """Give an input or a stored tensor another value; returns `None` if it has changed meanwhile."""
        if not tensor.holds(held_array(subject.model, subject.inputs, tensor.path, tensor.name)):
            return None
        model, inputs = copied(subject.model), dict(subject.inputs)
        put_array(model, inputs, tensor.path, tensor.name, array)
        return settle(subject, model, inputs)

    def freeze(self, subject: Subject, name: str) -> Subject | None:
        """Make an input an initializer; returns `None` for one that is also an output."""
        value, graph = subject.inputs.get(name), Graph(subject)
        if name not in graph.inputs or name in graph.outputs or not isinstance(value, np.ndarray):
            return None
        model = copied(subject.model)
        del model.graph.input[list(graph.inputs).index(name)]
        add_initializers(model, model.graph, [encode_array(value, name)])
        return settle(subject, model, {key: item for key, item in subject.inputs.items() if key != name})

    def resize(self, subject: Subject, sizes: SizeClass, size: int, keep_last: bool) -> Subject | None:
        """Shrink a class of dimensions. If only a constant's value holds the size, stored elements may stay,
        so only a simpler result counts.
        """
        found = resizing.resize(subject, sizes, size, keep_last)
        return found if found is None or sizes.is_held or simpler(found, subject) else None

    def retype(self, subject: Subject, classes: Sequence[TypeClass], dtype: str) -> Subject | None:
        """Give classes of tensors another element type."""
        return retype(subject, classes, dtype)


EDITS = OnnxEdits()


def tidy(model: onnx.ModelProto, subject: Subject, outputs: list[onnx.ValueInfoProto]) -> Subject | None:
    """Cut a changed copy of the subject's model to the nodes that its outputs need."""
    changed = Subject(model, subject.inputs, subject.values)
    replace_items(model.graph.output, outputs)
    graph = Graph(changed)
    needed = graph.ancestors(
        graph.producer[info.name] for info in model.graph.output if info.name in graph.producer
    )
    return cut(graph, needed) if needed else None
