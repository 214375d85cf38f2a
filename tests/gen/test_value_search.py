"""Values without NaN or infinity inside: found by repair without torch, by gradients with it, the same for
the same seed.
"""

import importlib.util

import numpy as np
import onnx
import pytest

from opsieve.backends.probing.value_search import (
    Effort,
    ValueSearchRequest,
    expose_results,
    finite,
    search_values,
)
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.input_ranges import is_unreachable
from opsieve.gen.analysis.typed_graph import read_graph
from opsieve.gen.irs.onnx.program import OnnxProgram

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
X = {"x": np.float32([-1.5, -0.5, 0.5, 1.5])}


@pytest.fixture(scope="module")
def workers():
    with Workers() as found:
        yield found


def program(body, opset=21):
    return OnnxProgram(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{body}').SerializeToString()
    )


def search(given, inputs, workers, **effort):
    return next(search_values([ValueSearchRequest(given, inputs, 0)], workers, Effort(**effort)))


def first_broken(given, inputs, workers):
    """The first operator with a NaN or an infinity among its results, "" for none: what a search says that
    tries nothing.
    """
    found = search(given, inputs, workers, methods=())
    assert found.how == ("none" if found.broken else "given")
    return found.broken


def by_gradient(given, inputs, workers, **effort):
    return search(given, inputs, workers, methods=("gradient",), **effort)


LOG = program("g (float[4] x) => (float[4] z) { y = Neg(x) w = Log(y) z = Relu(w) }")
NEVER = program("g (float[4] x) => (float[4] z) { y = Sigmoid(x) n = Neg(y) w = Log(n) z = Relu(w) }")


def test_inner_results_are_looked_at(workers):
    """Relu of NaN is 0 for some: the output alone tells nothing."""
    assert {info.name for info in expose_results(LOG).proto.graph.output} == {"w", "y", "z"}
    assert first_broken(LOG, X, workers) == "Log"
    assert first_broken(LOG, {"x": np.float32([-1, -1, -1, -1])}, workers) == ""


def test_values_at_hand_that_are_sound_are_kept(workers):
    inputs = {"x": np.float32([-1, -2, -3, -4])}
    found = search(LOG, inputs, workers)
    assert found.how == "given"
    assert np.array_equal(found.inputs["x"], inputs["x"])


def test_a_repair_needs_no_torch(workers):
    found = search(LOG, X, workers)
    assert found.how == "repaired"
    assert found.program is LOG
    assert first_broken(LOG, found.inputs, workers) == ""
    again = search(LOG, X, workers)
    assert again.inputs["x"].tobytes() == found.inputs["x"].tobytes()


def test_weights_change_only_when_they_may(workers):
    given = program("g (float[2] x) => (float[2] z) <float[2] w = {-3, -2}> { y = Abs(x) z = Acosh(w) }")
    inputs = {"x": np.float32([1, 2])}
    kept = search(given, inputs, workers)
    assert (kept.how, kept.broken, kept.program) == ("none", "Acosh", given)
    found = search(given, inputs, workers, weights=True)
    assert found.program is not given
    assert first_broken(found.program, found.inputs, workers) == ""


def test_what_has_no_sound_values_has_none(workers):
    found = search(NEVER, X, workers, iterations=20)
    assert (found.how, found.broken) == ("none", "Log")
    assert found.inputs["x"] is X["x"]


def test_symbolic_sizes_are_those_of_the_values(workers):
    given = program("g (float[n] x) => (float[n] z) { y = Neg(x) z = Log(y) }")
    found = search(given, X, workers)
    assert found.how == "repaired"
    assert found.inputs["x"].shape == (4,)


@pytest.mark.parametrize(
    ("value", "sound"),
    [
        (np.float32([1, 2]), True),
        (np.float32([1, np.nan]), False),
        ([np.float32([1]), np.float32([np.inf])], False),
        (np.int32([1]), True),
        (np.array(["nan"], object), True),
        (None, True),
    ],
)
def test_finite(value, sound):
    assert finite(value) is sound


def test_narrow_floats_are_looked_into():
    import ml_dtypes

    assert not finite(np.array([1, np.inf], ml_dtypes.bfloat16))
    assert finite(np.array([1, 2], ml_dtypes.bfloat16))


def test_what_nobody_runs_is_unchecked(workers):
    given = program("g (float[4] x) => (float[4] z) { z = Foo(x) }")
    assert search(given, X, workers).how == "unchecked"


def test_programs_searched_together_have_the_values_they_have_alone(workers):
    """LOG is repaired, the second is sound, the third hopeless, the fourth has symbolic sizes: they need
    different questions.
    """
    open_ = program("g (float[n] x) => (float[n] z) { y = Neg(x) z = Log(y) }")
    sound = {"x": np.float32([-1, -2, -3, -4])}
    wanted = [
        ValueSearchRequest(LOG, X, 3),
        ValueSearchRequest(LOG, sound, 4),
        ValueSearchRequest(NEVER, X, 5),
        ValueSearchRequest(open_, X, 6),
    ]
    together = list(search_values(wanted, workers, Effort(iterations=5)))
    assert [found.how for found in together] == ["repaired", "given", "none", "repaired"]
    for item, found in zip(wanted, together, strict=True):
        alone = next(search_values([item], workers, Effort(iterations=5)))
        assert (alone.how, alone.inputs["x"].tobytes()) == (found.how, found.inputs["x"].tobytes())


def test_guesses_build_on_one_another(workers):
    """Only where all elements are equal is their Softmax a sixth, and four inputs have to be so: one guess
    for all of them is hopeless.
    """
    given = program(
        "g (float[6] a, float[6] b, float[6] c, float[6] d) => (float[6] p, float[6] q, float[6] r, float[6]"
        " s) {"
        + "".join(
            f"n{x} = Softmax<axis=0>({x}) d{x} = Sub(n{x}, sixth) t{x} = Mul(d{x}, wide) {y} = Atanh(t{x}) "
            for x, y in zip("abcd", "pqrs", strict=True)
        ).join(
            ["sixth = Constant<value = float {0.16666667}>() wide = Constant<value = float {1000.0}>() ", "}"]
        )
    )
    inputs = {name: np.linspace(-1, 1, 6, dtype=np.float32) for name in "abcd"}
    found = search(given, inputs, workers, methods=("guessed",))
    assert found.how == "guessed"
    assert first_broken(given, found.inputs, workers) == ""


def test_a_node_that_no_leaf_reaches_is_given_up_at_once(workers):
    fixed = program(
        "g (float[4] x) => (float[4] z) <float[4] w = {-1, -1, -1, -1}> { y = Log(w) z = Add(x, y) }"
    )
    assert is_unreachable(read_graph(fixed.proto, X), "y")
    assert not is_unreachable(read_graph(fixed.proto, X), "y", weights=True)
    assert not is_unreachable(read_graph(fixed.proto, X), "z")
    assert search(fixed, X, workers).broken == "Log"
    assert search(fixed, X, workers, weights=True).how == "repaired"


@needs_torch
def test_gradients_find_what_is_out_of_reach_of_boxes(workers):
    """x - y must be positive element by element, both from the same x: no box of x shows it."""
    given = program(
        "g (float[4] x) => (float[4] z) <float[4,4] w = {2,1,1,1, 1,2,1,1, 1,1,2,1, 1,1,1,2}> "
        "{ y = MatMul(w, x) a = Sub(y, x) b = Tanh(x) c = Sub(a, b) z = Log(c) }"
    )
    found = by_gradient(given, X, workers)
    assert found.how == "gradient"
    assert first_broken(given, found.inputs, workers) == ""
    again = by_gradient(given, X, workers)
    assert again.inputs["x"].tobytes() == found.inputs["x"].tobytes()


@needs_torch
def test_a_proxy_leads_out_of_a_plateau(workers):
    """Every element is where Relu's derivative is zero: with its own, one step cannot tell where to."""
    given = program("g (float[4] x) => (float[4] z) { y = Relu(x) a = Floor(y) z = Reciprocal(a) }")
    low = {"x": np.float32([-0.1, -0.2, -0.3, -0.1])}
    with_proxy = by_gradient(given, low, workers, iterations=24)
    assert with_proxy.how == "gradient"
    assert (with_proxy.inputs["x"] >= 1).all()
    assert with_proxy.inputs["x"].max() < 9  # moved step by step, not drawn anew
    assert by_gradient(given, low, workers, iterations=1, gradient=",proxy=off").how == "none"


@needs_torch
def test_relations_and_products(workers):
    for body in (
        "g (float[4] x) => (float[4] z) { z = Pow(x, x) }",
        (
            "g (float[4] x) => (float[4] z) { a = Exp(x) b = Mul(a, a) c = Mul(b, b) d = Mul(c, c) z = Mul(d,"
            " d) }"
        ),
    ):
        given = program(body)
        inputs = {"x": np.float32([-1.5, 60, 0.5, 50])}
        assert first_broken(given, inputs, workers) != ""
        found = by_gradient(given, inputs, workers)
        assert found.how == "gradient"
        assert first_broken(given, found.inputs, workers) == ""


@needs_torch
def test_without_sound_values_nothing_is_found(workers):
    assert by_gradient(NEVER, X, workers, iterations=30).how == "none"
