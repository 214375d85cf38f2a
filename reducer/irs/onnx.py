"""ONNX models as a form that `opsieve.reducer.sessions.reduction` reduces."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.edits import cut, replace_tensor
from opsieve.gen.irs.onnx.program import OnnxProgram, onnx_program
from opsieve.gen.irs.onnx.view import Graph, Subject
from opsieve.gen.model.structure import copied
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Validator
from opsieve.reducer.irs.registry import ReducibleForm, passes_in
from opsieve.reducer.nodes import localise, node_phase
from opsieve.reducer.onnx_edit import canonical_names, parts, typed_view
from opsieve.reducer.onnx_edit.onnx_subprocess import HELPER
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.oracle.target_test import TargetTest
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.passes.onnx import BYPASS, NODES, OPENING, OUTPUTS
from opsieve.reducer.problem import order, recording

GROUP = "opsieve.reductions"
# The largest model, in bytes, that is compared under canonical names: renaming a large one costs too much.
_SMALL = 16 << 10
# The model size, in bytes, from which on other failures are not searched.
_HEAVY = 256 << 20
# The same limit in nodes: the search would double the time.
_MANY = 20_000
# Where a dimension stands in a round: what removes most comes first. Others follow in alphabetical order.
_ORDER = (
    "bodies",
    "nodes",
    "outputs",
    "bypass",
    "dimensions",
    # Before the tensors that it resizes are shared: a hidden size stays where all gates read one tensor.
    "together",
    "dtypes",
    "values",
    "attributes",
)


class OnnxReduction(order.OnnxForm, ReducibleForm[Subject]):
    """ONNX models with the order of `OnnxForm`, the passes of the group `opsieve.reductions`, and recorded
    values of the main graph. Each reduction makes its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._whole: Subject | None = (
            # The start of the first phase, and the results of the nodes that it kept.
            None
        )
        self._kept: frozenset[str] = frozenset()
        self._control: tuple[Subject, Subject | None] | None = None

    def subject(self, case: Case) -> Subject:
        """Return the model with its inputs, without recorded values. A value for an input with a default
        becomes the default, which edits change like any other stored tensor.
        """
        program = onnx_program(case.program, "reduce")
        needed = program.inputs().keys()
        given = {name: value for name, value in case.inputs.items() if name not in needed}
        if given:
            model = copied(program.proto)
            for name, value in given.items():
                if isinstance(value, np.ndarray):
                    replace_tensor(model, (), name, value)
            program = OnnxProgram.of(model)
        subject = Subject(
            program.proto, {name: case.inputs[name] for name in case.inputs if name in needed}, {}
        )
        # Filling the slot of the `cached_property` saves a second serialisation of a large model.
        subject.__dict__["program"] = program
        return subject

    def passes(self) -> list[order.OnnxPass]:
        """Return every dimension, found by entry point, in the order of a round."""
        return passes_in(GROUP, _ORDER)

    def validator(self, workers: Workers, start: Subject) -> Validator[Subject]:
        """Return a validator that checks the structure in Python, and then runs onnx's checker in a
        worker. It starts the process that infers types, too.
        """
        HELPER.start()
        return OnnxValidator(workers, start)

    def recorded(self, subject: Subject, source: ResolvedTarget | None, workers: Workers) -> Subject:
        """Return the subject with its tensors' values, each computed on demand."""
        return recording.record_values(subject, source, workers, typed_view.plain_values)

    def narrow(self, engine: Engine[Subject], passes: Sequence[order.OnnxPass], text: str) -> None:
        """Reduce nodes first; then inline bodies, and search each inlined body like the graph around it."""
        self._whole = engine.best
        self._nodes(engine, text)
        self._kept = frozenset(name for node in engine.best.model.graph.node for name in node.output if name)
        for dimension in passes:
            for bodies in (OPENING, dimension) if dimension.name == OPENING.name else ():
                while engine.sweep(bodies) and len(engine.best.model.graph.node) > node_phase.ENOUGH:
                    self._nodes(engine, text)

    def _nodes(self, engine: Engine[Subject], text: str) -> None:
        engine.refresh()
        test = engine.rules.tests[0]
        optimised = (
            partial(localise.optimised_graph, test) if isinstance(test, TargetTest) else lambda _: None
        )
        node_phase.NodePhase(engine, text, optimised).run()
        for dimension in (OUTPUTS, NODES, BYPASS):
            # The search leaves little for single steps, unless the needed nodes lay far apart.
            engine.sweep(dimension, together=len(engine.best.model.graph.node) > node_phase.ENOUGH)

    def twin(self, subject: Subject) -> str:
        """Return a digest of a small model under canonical names, without its inputs' values."""
        if subject.program.byte_size > _SMALL:
            return ""
        named = canonical_names.make_canonical(subject)
        return hashlib.sha256((subject if named is None else named).program.model).hexdigest()

    def control(self, best: Subject, candidate: Subject) -> Subject | None:
        """Return the model with its types declared anew, if the edit did so; `None` otherwise."""
        if not candidate.redeclared:
            return None
        if self._control is None or self._control[0] is not best:
            found = settle(best, copied(best.model), anew=True, every=False)
            changed = found is not None and found.program.model != best.program.model
            self._control = best, found if changed else None
        return self._control[1]

    def census(self, subject: Subject) -> Iterator[parts.OnnxPart]:
        """Return the nodes, inputs, outputs, attributes, bodies, tensors and fields."""
        return parts.onnx_parts(subject)

    def rest(self, start: Subject) -> Subject | None:
        """Return the nodes that the node phase removed, with recorded values in the place of those it
        kept.
        """
        if self._whole is None or self.size(start).bytes > _HEAVY or self.size(start).nodes > _MANY:
            return None
        graph = Graph(self._whole)
        places = [place for place, node in enumerate(graph.nodes) if self._kept.isdisjoint(node.output)]
        if not places or len(places) == len(graph.nodes):
            return None
        return cut(graph, places)
