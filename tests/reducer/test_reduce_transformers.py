"""Real bugs of the graph transformers, each inside a generated host: the result is the known minimum, and
stays the same bug.
"""

from dataclasses import dataclass

import pytest
from benchmarks.reducing.grow import grown
from models import program

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure


@dataclass(frozen=True)
class Bug:
    """A bug of a release in use today, and how small it gets."""

    target: str
    kind: str
    graph: str
    left: tuple[str, ...]  # the operators of the known minimum
    bytes: int
    opset: int = 20
    ir: int = 10


PAD_POOL = """g (float[1, 1, 9, 9] x) => (float[1, 1, 9, 11] y) <int64[8] c = {0, 0, 1, 2, 0, 0, 0, 1}>
    { p = Pad <mode: string = "constant"> (x, c)
      y = AveragePool <kernel_shape: ints = [2, 2], pads: ints = [0, 0, 0, 0], strides: ints = [1, 1]> (p) }"""
BUGS = {
    "pads of a pool over four axes": Bug("onnxoptimizer", "error", PAD_POOL, ("Pad", "AveragePool"), 160),
    "the shape of nothing": Bug(
        "onnxoptimizer",
        "crash",
        "g (float[3, 4, 5] x) => (int64[0] y) { y = Shape <end: int = 1, start: int = 2> (x) }",
        ("Shape",),
        80,
        25,
        13,
    ),
    "the same bug, inherited": Bug("onnxsim", "error", PAD_POOL, ("Pad", "AveragePool"), 160),
    "a shape that is lost": Bug(
        "onnxslim",
        "error",
        """g (float[5, 48] x) => (float y) <int64[2] c = {1, -2}>
        { y = ReduceSumSquare <keepdims: int = 0, noop_with_empty_axes: int = 0> (x, c) }""",
        ("ReduceSumSquare",),
        120,
    ),
    "bounds that cross": Bug(
        "onnxscript",
        "mismatch",
        """g (float[1, 4, 3, 4] x) => (float[1, 4, 3, 4] y) <float low = {1}, float high = {-1}>
        { c = Clip (x, low, high)  y = Relu (c) }""",
        ("Clip", "Relu"),
        110,
    ),
    "an order that is lost": Bug(
        "onnxscript",
        "error",
        """g (int64[32, 8, 1] x) => (int64[1, 256] y, int64[256, 1] z)
        { y = Flatten <axis: int = 0> (x)  z = Flatten <axis: int = 3> (x) }""",
        ("Flatten", "Flatten"),
        130,
        13,
    ),
}


# The others, in make test-all, start four more compilers.
USUAL = ("pads of a pool over four axes",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in BUGS]
)
def test_a_bug_of_a_transformer_in_a_host_comes_down_to_its_minimum(workers: Workers, name: str) -> None:
    bug = BUGS[name]
    target = resolve(bug.target)
    small = program(bug.graph, bug.opset, bug.ir).proto
    model = grown(small, 50, seed=3)
    assert len(model.graph.node) > 45
    case = Case(OnnxProgram(model.SerializeToString()), seeded_inputs(small, 0))
    premise = find(case, [target], None, workers)
    assert premise.failure.verdict.kind == bug.kind
    start = Subject(case.program.proto, case.inputs, {})
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    assert tuple(node.op_type for node in result.best.model.graph.node) == bug.left
    assert result.best.model.ByteSize() <= bug.bytes
    assert (result.same, result.minimal, result.invalid) == (True, True, 0)
    assert result.checks <= 60
