"""Models with operators that no compiler at hand can compute: nothing is recorded of them, and they reduce
all the same.
"""

import numpy as np
import pytest
from onnx.parser import parse_model

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.onnx_edit.typed_view import plain_values
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.problem.recording import record_values
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

HEAD = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
TEXT = f"""{HEAD} g (float[2, 3] x, float[3, 4] w) => (float[2, 4] y, int64[2] z) {{
    a = Exp (x)  b = acme.Swirl (a, x)  c = Relu (b)  d = acme.Twirl (c)  e = MatMul (d, w)  f = acme.Swirl (e)
    y = Tanh (f)  g = Add (c, a)  s = Shape (g)  z = Identity (s) }}"""
INPUTS = {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 4), np.float32)}


def start() -> Subject:
    return Subject(parse_model(TEXT), dict(INPUTS), {})


@pytest.mark.parametrize(
    "operator",
    ["Swirl", "Shape", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Twirl", "MatMul", "Add"))],
)
def test_one_node_is_left_wherever_the_failure_is(workers: Workers, operator: str) -> None:
    case = Case(OnnxProgram(start().program.model), dict(INPUTS))
    premise = find(case, [resolve(f"fake:crash@{operator}")], None, workers)
    found = reduce_failure(OnnxReduction(), start(), premise, [workers], "loose", Journal(""), Listeners())
    assert [node.op_type for node in found.best.model.graph.node] == [operator]
    assert (found.same, found.minimal) == (True, True)


def test_what_can_be_computed_is_recorded_and_the_rest_has_its_type(workers: Workers) -> None:
    """MatMul's type follows from what is assumed of the operator before it."""
    values = record_values(start(), None, workers, plain_values).values
    assert np.allclose(values["a"], np.e)
    assert {name: values[name].shape for name in "bcdefg"} == {
        **dict.fromkeys("bcdg", (2, 3)),
        **dict.fromkeys("ef", (2, 4)),
    }
    assert values["s"].dtype == np.int64


def test_a_type_that_nothing_tells_stays_unknown() -> None:
    model = parse_model(
        f"{HEAD} g () => (float[2] y) {{ a = acme.Source ()  b = acme.Swirl (a)  y = acme.Twirl (b) }}"
    )
    make = plain_values(Subject(model, {}, {}))
    assert make("a") is None
    assert make("b") is None
    made = make("y")  # declared as an output
    assert isinstance(made, np.ndarray)
    assert made.shape == (2,)
