"""Intervals hold what runs give; violations tell where numbers may be undefined; repairs make every declared
domain hold.
"""

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.input_ranges import Guesses, refill_values, repair, with_weights
from opsieve.gen.analysis.intervals import RELATION, RESULT, Interval, first_violation, push, unknown
from opsieve.gen.analysis.typed_graph import movable, read_graph
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.graph.writing import serialize
from opsieve.gen.irs.onnx.program import OnnxProgram

ORT = resolve("onnxruntime:disable_all")


@pytest.fixture(scope="module")
def workers():
    with Workers() as found:
        yield found


def domain_violations(graph):
    """Every violation, in the graph's order."""
    return [met for place, step in enumerate(graph.nodes) if (met := push(step, place)) is not None]


def parsed(text, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def pushed(model, **ranges):
    graph = read_graph(model)
    for name, (low, high) in ranges.items():
        graph.leaves[name].low, graph.leaves[name].high = low, high
    return graph, domain_violations(graph)


def interval(graph, name):
    (found,) = [tensor for tensor in graph.tensors() if tensor.name == name]
    return found.low, found.high


def generated(seed, ranged, nodes=10, dtypes=None):
    """A program, every inner tensor an output, and its inputs."""
    request = GenRequest(nodes=nodes, types=True, dtypes=dtypes)
    builder = start(request, seed, "intervals", ranged=ranged)
    fill(builder, request)
    outs = [tensor for node in builder.nodes for tensor in node.outs if tensor.name]
    model, inputs = serialize(builder, outs, "intervals", True)
    return onnx.load_model_from_string(model), inputs


def test_a_chain_by_hand():
    model = parsed("g (float[3] x) => (float[3] d) { a = Neg(x) b = Exp(a) c = Add(b, x) d = Sqrt(c) }")
    typed = onnx.shape_inference.infer_shapes(model)
    graph, met = pushed(typed, x=(0.0, 1.0))
    assert interval(graph, "b") == pytest.approx((math.exp(-1), 1))
    assert interval(graph, "c") == pytest.approx((math.exp(-1), 2))
    assert met == []
    graph, met = pushed(typed, x=(-1.0, 1.0))
    assert [(item.operator, item.tensor, item.position) for item in met] == [("Sqrt", "c", 0)]


def test_inner_types_that_are_not_told_come_from_declarations():
    graph, met = pushed(
        parsed("g (float[2,3] x) => (float[2,4] d) { w = Transpose(x) d = MatMul(x, w) }"), x=(0.0, 1.0)
    )
    assert interval(graph, "d")[1] == pytest.approx(3)
    assert met == []


def test_the_same_tensor_twice_is_a_square():
    graph, _ = pushed(
        parsed("g (float[2] x) => (float[2] y, float[2] z) { y = Mul(x, x) z = Sub(x, x) }"), x=(-2.0, 1.0)
    )
    assert interval(graph, "y") == (0, 4)
    assert interval(graph, "z") == (0, 0)


def test_what_is_not_declared_is_unknown():
    model = parsed("g (float[2] x) => (float[2] z) { y = Strange(x) z = Sigmoid(y) }")
    graph, met = pushed(onnx.shape_inference.infer_shapes(model), x=(0.0, 1.0))
    assert unknown(graph) == ["y", "z"]  # of what has no type, not even the shape is known
    assert met == []


def test_a_result_too_large_for_its_type_is_a_breach():
    model = parsed("g (float16[2] x) => (float16[2] y) { y = Mul(x, x) }")
    assert pushed(model, x=(0.0, 100.0))[1] == []
    (met,) = pushed(model, x=(0.0, 300.0))[1]
    assert (met.operator, met.position) == ("Mul", RESULT)


def test_a_relation_is_asked_where_bounds_do_not_say():
    model = parsed("g (float[2] x, float[2] y) => (float[2] z) { z = Pow(x, y) }")
    assert pushed(model, x=(0.5, 2.0), y=(-3.0, 3.0))[1] == []
    assert pushed(model, x=(0.5, 2.0), y=(-3.0, 300.0))[1][0].position == RELATION
    assert pushed(model, x=(-0.5, 2.0), y=(-3.0, 3.0))[1][0].position == RELATION


def test_both_branches_and_every_turn_count():
    model = parsed("""g (bool c, float[2] x) => (float[2] y, float[2] z) {
            y = If (c) <then_branch = t () => (float[2] a) { a = Neg(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }>
            n = Constant <value = int64 {3}> ()
            z = Loop (n, c, x) <body = l (int64 i, bool go, float[2] s) => (bool on, float[2] r) {
                on = Identity(go) r = Tanh(s) }>
        }""")
    graph, met = pushed(model, x=(1.0, 3.0))
    assert interval(graph, "y") == (-3, 3)
    low, high = interval(graph, "z")
    assert low <= math.tanh(math.tanh(math.tanh(1)))
    assert high == 3
    assert met == []


def test_a_state_that_grows_can_be_anything():
    model = parsed("""g (int64 n, bool c, float[2] x) => (float[2] z) {
            z = Loop (n, c, x) <body = l (int64 i, bool go, float[2] s) => (bool on, float[2] r) {
                on = Identity(go) r = Add(s, s) }>
        }""")
    graph, _ = pushed(model, x=(1.0, 3.0), n=(0.0, 100.0))
    assert interval(graph, "z")[1] > 1e30


@given(st.floats(-5, 5), st.floats(0, 3), st.floats(-5, 5), st.floats(0, 3), st.floats(0, 1), st.floats(0, 1))
def test_interval_arithmetic_holds_every_pair(a, wide, b, wider, p, q):
    x, y = Interval(a, a + wide), Interval(b, b + wider)
    u, v = min(a + p * wide, x.high), min(b + q * wider, y.high)
    slack = 1e-9
    for found, value in (
        (x + y, u + v),
        (x - y, u - v),
        (x * y, u * v),
        (2 - x, 2 - u),
        (3 * y, 3 * v),
        (x.abs(), abs(u)),
    ):
        assert found.low - slack <= value <= found.high + slack
    if u > 0:
        assert x.log().low - slack <= math.log(u) <= x.log().high + slack


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_intervals_hold_what_a_run_gives(workers, seed, ranged):
    """Up to rounding, and as far as the run comes without leaving a domain."""
    model, inputs = generated(seed, ranged, dtypes=None if ranged else frozenset(("float32",)))
    graph = read_graph(model, inputs)
    met = domain_violations(graph)
    answer = workers.observe(ORT, OnnxProgram(model.SerializeToString()), inputs)
    if answer.outputs is None:  # onnxruntime has no kernel
        return
    steps = graph.nodes if not met else graph.nodes[: met[0].place]
    for tensor in (tensor for step in steps for tensor in step.outs):
        value = answer.outputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not value.size:
            continue
        assert np.isfinite(value).all(), tensor
        slack = (1e-2 if value.dtype == np.float16 else 1e-4) * max(1.0, min(tensor.size, 1e30))
        assert tensor.low - slack <= value.min() <= value.max() <= tensor.high + slack, tensor


def test_a_repair_moves_the_leaves_that_matter():
    model = parsed(
        "g (float[3] x, float[3] y) => (float[3] d, float[3] e) { a = Sub(x, y) d = Log(a) e = Relu(y) }"
    )
    inputs = {"x": np.float32([-1, 0, 1]), "y": np.float32([-1, 0, 1])}
    graph = read_graph(model, inputs)
    found = repair(graph, 0)
    assert found.left == ()
    assert domain_violations(graph) == []
    values, _ = refill_values(model, inputs, found.ranges, 0)
    assert (values["x"] - values["y"] >= 0.1).all()
    assert len(found.ranges) == 1


def test_weights_move_only_when_they_may():
    model = parsed(
        "g (float[2] x) => (float[2] z) <float[2] w = {-3, -2}> { y = Abs(x) a = Mul(w, w) z = Acosh(w) }"
    )
    inputs = {"x": np.float32([1, 2])}
    assert [item.operator for item in repair(read_graph(model, inputs), 0).left] == ["Acosh"]
    graph = read_graph(model, inputs)
    found = repair(graph, 0, weights=True)
    assert found.left == ()
    _, weights = refill_values(model, inputs, found.ranges, 0)
    assert weights["w"].min() >= 1
    changed = with_weights(model, weights)
    assert np.array_equal(onnx.numpy_helper.to_array(changed.graph.initializer[0]), weights["w"])
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).min() == -3


def test_what_cannot_be_is_left_and_told():
    model = parsed("g (float[2] x) => (float[2] z) { y = Sigmoid(x) z = Acosh(y) }")
    inputs = {"x": np.float32([1, 2])}
    graph = read_graph(model, inputs)
    found = repair(graph, 0)
    assert [(item.operator, item.tensor) for item in found.left] == [("Acosh", "y")]
    assert found.ranges == {}
    guessing = Guesses(graph, 0)
    assert guessing.place("z") == 1
    assert set(guessing.around(1)) == set(guessing.everywhere()) == {"x"}


def test_shapes_and_indices_are_not_moved():
    model = parsed("""g (float[4] x, int64[2] i) => (float[2] z) <int64[1] s = {2}, float[1] k = {0.5}> {
            y = Gather(x, i) r = Reshape(y, s) d = Dropout(r, k) z = Log(d) }""")
    inputs = {"x": np.float32([-1, 2, 3, 4]), "i": np.int64([0, 3])}
    graph = read_graph(model, inputs)
    assert [leaf.name for leaf in movable(graph, weights=True)] == ["x", "i"]
    values, _ = refill_values(model, inputs, repair(graph, 0, True).ranges, 0)
    assert set(values["i"].tolist()) <= {0, 1, 2, 3}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_after_a_repair_domains_hold(seed):
    """Those of every node but the ones that it tells of; and the repair depends on its seed only."""
    model, inputs = generated(seed, False, 8, frozenset(("float32",)))
    graph = read_graph(model, inputs)
    found = repair(graph, seed, weights=True)
    assert first_violation(graph, {item.place for item in found.left}) is None
    again = repair(read_graph(model, inputs), seed, weights=True)
    assert again.ranges == found.ranges
    values, weights = refill_values(model, inputs, found.ranges, seed)
    graph = read_graph(with_weights(model, weights), values)
    assert {item.place for item in domain_violations(graph)} <= {item.place for item in found.left}


def test_a_case_of_the_generator_has_no_breach():
    for seed in range(30):
        request = GenRequest(nodes=12, types=True)
        builder = start(request, seed, "isra")
        fill(builder, request)
        made = finish(builder, request, "isra", seed)
        assert domain_violations(read_graph(made.program.proto, made.inputs)) == []


@pytest.mark.parametrize(
    "graph",
    [
        # A size that only a run tells beside one of 1, and beside another one.
        (
            "g (float[2,3] x) => (float[2,K] y) <float[2,1] w = {0,1}> { n = NonZero(x) f = Cast<to=1>(n) l ="
            " Log(f) y = Min(w, l) }"
        ),
        (
            "g (float[2,3] x) => (float[2,K] y) <float[2,2] w = {0,1,2,3}> { n = NonZero(x) f = Cast<to=1>(n)"
            " l = Log(f) y = Min(w, l) }"
        ),
        # Bodies that no checker lets pass; `run --no-check` does.
        (
            "g (bool c, float[1] x) => (float[1] y) { z = If (c) <then_branch = t () => () {}, else_branch ="
            " e () => () {}> y = Log(x) }"
        ),
        (
            "g (int64 n, bool c, float[1] x) => (float[1] y) { z = Loop (n, c, x) <body = b () => () {}> y ="
            " Log(x) }"
        ),
    ],
    ids=["one", "names", "if", "loop"],
)
def test_what_rules_were_not_written_for_is_put_up_with(graph):
    model = parsed(graph)
    shape = [dim.dim_value for dim in model.graph.input[-1].type.tensor_type.shape.dim]
    values = {"x": np.full(shape, -1, np.float32)}
    found = repair(read_graph(model, values), 0, True)
    assert {violation.operator for violation in found.left} <= {"Log"}


def test_the_bounds_of_a_huge_determinant_are_open_and_told_at_once():
    _, found = pushed(
        parsed("g (float[1099511627776,1099511627776] x) => (float y) { y = Det (x) }"), x=(-1, 1)
    )
    assert found
    _, small = pushed(parsed("g (float[3,3] x) => (float y) { y = Det (x) }"), x=(-1, 1))
    assert not small


def test_the_scale_of_zeros_may_be_one() -> None:
    bounds = operators()["DynamicQuantizeLinear"].bounds([Tensor("x", "float32", (2,), -0.5, 0.5)], {})
    assert bounds[1][1] >= 1
