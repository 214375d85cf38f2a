"""What a model says beside its graph stays until it is tried: a failure may depend on it. And what is fed by
default becomes small.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from models import program
from onnx import numpy_helper
from onnx.parser import parse_model

from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_by_check


@dataclass
class Needs:
    """The failure: an operator, and what a field of the model says."""

    operator: str
    field: str = ""

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for subject in subjects:
            there = any(node.op_type == self.operator for node in subject.model.graph.node)
            owner = subject.model if hasattr(subject.model, self.field) else subject.model.graph
            said = not self.field or bool(getattr(owner, self.field))
            yield CheckResult("same" if there and said else "gone")


def reduced(start: Subject, test: Needs, workers: Workers) -> Reduction[Subject]:
    return reduce_by_check(OnnxReduction(), start, [test], workers, None, Journal(""), Listeners())


def chain(operators: int) -> onnx.ModelProto:
    lines = " ".join(
        f"v{place + 1} = {'Erf' if place == 20 else 'Neg'} (v{place})" for place in range(operators)
    )
    model = program(f"g (float[2, 3] v0) => (float[2, 3] v{operators}) {{ {lines} }}").proto
    model.producer_name, model.doc_string, model.graph.doc_string = "a tool", "a model", "a graph"
    for key in ("kept", "gone"):
        model.metadata_props.add(key=key, value="1")
    note = model.graph.quantization_annotation.add(tensor_name="v1")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    return model


@pytest.mark.parametrize(
    "field", ["producer_name", "doc_string", "metadata_props", "quantization_annotation"]
)
def test_a_field_that_the_failure_needs_stays_and_the_rest_goes(workers: Workers, field: str) -> None:
    start = Subject(chain(40), {"v0": np.ones((2, 3), np.float32)}, {})
    found = reduced(start, Needs("Erf", field), workers)
    model = found.best.model
    assert [node.op_type for node in model.graph.node] == ["Erf"]
    texts = [model.producer_name, model.doc_string, model.graph.doc_string, model.metadata_props]
    assert sum(map(bool, [*texts, model.graph.quantization_annotation])) == 1
    assert len(model.metadata_props) <= 1
    assert (found.same, found.minimal) == (True, True)


def test_a_body_shrinks_where_the_failure_needs_its_declared_shapes(workers: Workers) -> None:
    """Inference gives a Loop's state no shape; edits that infer types anew lose the failure, those of the
    census keep what is declared.
    """

    @dataclass
    class Shaped(Needs):
        def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
            for subject in subjects:
                found = [node.attribute[0].g for node in subject.model.graph.node if node.op_type == "Loop"]
                there = found and any(node.op_type == "Div" for node in found[0].node)
                shaped = there and all(info.type.tensor_type.HasField("shape") for info in found[0].input)
                yield CheckResult(
                    "same" if shaped else "slippage" if there else "gone", key="no-shape" if there else ""
                )

    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x, int64 n, bool c) => (float[2, 3] y) {
        y = Loop (n, c, x) <body = b (int64 i, bool go, float[2, 3] s) => (bool on, float[2, 3] r) {
            on = Identity (go)  a = Exp (s)  d = Div (a, s)  e = Tanh (d)  r = Add (e, s) }> }"""
    values = {"x": np.ones((2, 3), np.float32), "n": np.array(2), "c": np.array(True)}
    found = reduced(Subject(parse_model(text), values, {}), Shaped("Loop"), workers)
    assert [node.op_type for node in found.best.model.graph.node[0].attribute[0].g.node] == ["Div"]


def test_an_initializer_that_is_also_an_input_becomes_small(workers: Workers) -> None:
    """As before IR version 4, where the failure needs it to be both."""

    @dataclass
    class Both(Needs):
        def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
            for subject, result in zip(subjects, super().evaluate(subjects), strict=True):
                graph = subject.model.graph
                both = {info.name for info in graph.input} & {tensor.name for tensor in graph.initializer}
                yield result if both else CheckResult("gone")

    model = parse_model(
        '<ir_version: 3, opset_import: ["" : 13]> g (float[8, 32] x, float[32, 24] w) => (float[8, 24] y) { y'
        " = MatMul (x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.full((32, 24), 2, np.float32), "w"))
    found = reduced(Subject(model, {"x": np.ones((8, 32), np.float32)}, {}), Both("MatMul"), workers)
    assert [list(tensor.dims) for tensor in found.best.model.graph.initializer] in ([[1]], [[1, 1]])
    assert found.minimal
