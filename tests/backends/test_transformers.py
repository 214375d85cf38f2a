"""The graph transformers: what they break is told, what onnxruntime lacks anyway is not theirs. They run in
workers only.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from loaded_alone import loaded_alone
from models import X, chain, program

from opsieve.backends.compilers.transformers.result_checks import check_result
from opsieve.backends.compilers.worker_common import BrokenModel
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.observation import Observation
from opsieve.backends.protocol import Request
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

NAMES = ("onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")
MISSING = [name for name in NAMES if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs the extra transformers: {', '.join(MISSING)}")

PAD_POOL = """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 6] y) <int64[8] p = {0, 0, 1, 2, 0, 0, 0, 1}> {
    t = Pad<mode = "constant">(x, p) y = AveragePool<kernel_shape = [2, 2], pads = [0, 0, 0, 0], strides = [1, 1]>(t) }"""
NO_SHAPE = "g (float[3, 4, 5] x) => (int64[0] y) { y = Shape<start = 2, end = 1>(x) }"
CLIP_RELU = (
    "g (float[2] x) => (float[2] y) <float low = {1}, float high = {-1}> { t = Clip(x, low, high) y ="
    " Relu(t) }"
)
RANK_0 = "g (float[2, 3] x) => (float y) <int64[2] a = {1, -2}> { y = ReduceSumSquare<keepdims = 0>(x, a) }"
UNSATURATED = (
    "g (float[1] x, float8e5m2[1] like) => (float8e5m2[1] y) { y = CastLike<saturate = 0>(x, like) }"
)
FLATTENS = """g (int64[4, 2, 1] x) => (int64[1, 8] y, int64[8, 1] z) {
    y = Flatten<axis = 0>(x) z = Flatten<axis = 3>(x) }"""


def see(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> Observation:
    return workers.observe(resolve(target), tested, inputs)


def results(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> dict[str, Any]:
    seen = see(workers, target, tested, inputs)
    assert seen.outputs is not None, f"{seen.outcome} in {seen.stage}: {seen.message}"
    return seen.outputs


def zeros(*shape: int) -> dict[str, Any]:
    return {"x": np.zeros(shape, np.float32)}


@pytest.mark.parametrize(
    "target",
    [
        *NAMES,
        *(f"{name}:optimise=off" for name in NAMES),
        "onnxoptimizer:eliminate_identity+eliminate_deadend",
        "onnxoptimizer:fixpoint=on",
        "onnxsim:folding=off,inference=off,passes=off",
        "onnxscript:fold",
        "onnxscript:rewrite",
        "onnxscript:inline=off,inference=off",
        "onnxslim:constant_folding+FusionReduce,inference=off",
    ],
)
def test_every_configuration_computes(workers: Workers, target: str) -> None:
    got = results(workers, target, chain("Relu", "Identity", "Identity", "Tanh"), X)
    np.testing.assert_allclose(got["y"], np.tanh(np.maximum(X["x"], 0)), rtol=1e-6)


# Bugs of the releases that constraints.txt pins: target, model, outcome and what is told; without the guilty
# part it computes.
BROKEN = [
    (
        "onnxoptimizer:fuse_pad_into_pool",
        PAD_POOL,
        zeros(1, 1, 4, 4),
        "loads the original and not the transformed",
    ),
    ("onnxscript", FLATTENS, {"x": np.zeros((4, 2, 1), np.int64)}, "must be topologically sorted"),
    ("onnxsim", PAD_POOL, zeros(1, 1, 4, 4), "loads the original and not the transformed"),
    ("onnxslim", RANK_0, zeros(2, 3), "Field 'shape' of 'type' is required"),
]


@pytest.mark.parametrize(("target", "text", "inputs", "told"), BROKEN)
def test_a_broken_model_is_an_error_of_the_transformer(
    workers: Workers, target: str, text: str, inputs: dict[str, Any], told: str
) -> None:
    tested = program(text)
    seen = see(workers, target, tested, inputs)
    assert (seen.outcome, seen.stage, seen.exception.rpartition(".")[2]) == (
        "error",
        "compile",
        "BrokenModel",
    )
    assert told in seen.message
    results(workers, str(resolve(target).baseline), tested, inputs)


def test_a_part_can_be_left_out(workers: Workers) -> None:
    pads = program(PAD_POOL)
    for target in ("onnxoptimizer:eliminate_nop_pad", "onnxsim:fuse_pad_into_pool", "onnxsim:passes=off"):
        assert results(workers, target, pads, zeros(1, 1, 4, 4))["y"].shape == (1, 1, 4, 6), target
    clips = program(CLIP_RELU)
    casts = program(UNSATURATED, opset=19, ir=9)
    inputs = {"x": np.full(1, 1e9, np.float32), "like": np.zeros(1, ml_dtypes.float8_e5m2)}
    folded, rewritten = (
        results(workers, f"onnxscript:{part}", casts, inputs)["y"] for part in ("fold", "rewrite")
    )
    assert np.isfinite(folded.astype(np.float32)).all()  # folding forgets that the cast shall not saturate
    assert np.isinf(rewritten.astype(np.float32)).all()
    both = {
        part: results(workers, f"onnxscript:{part}", clips, zeros(2))["y"].tolist()
        for part in ("fold", "rewrite")
    }
    # fusing takes the wrong one of two bounds that cross
    assert both == {
        "fold": [0, 0],
        "rewrite": [-1, -1],
    }
    everything = "+".join(
        [
            "constant_folding",
            "graph_fusion",
            "dead_node_elimination",
            "subexpression_elimination",
            "weight_tying",
        ]
    )
    # The shape is lost where the graph is written anew, which happens only when there is something to do.
    results(workers, f"onnxslim:{everything},inference=off", program(RANK_0), zeros(2, 3))


def test_a_death_is_a_crash_and_the_next_test_runs(workers: Workers) -> None:
    tested, inputs = program(NO_SHAPE), zeros(3, 4, 5)
    seen = see(workers, "onnxoptimizer", tested, inputs)
    assert (seen.outcome, seen.stage, seen.signal) == ("crash", "compile", 11)
    assert results(workers, "onnxoptimizer:optimise=off", tested, inputs)["y"].shape == (0,)
    assert results(workers, "onnxoptimizer", chain("Relu"), X)["y"].shape == (2, 3)


@pytest.mark.parametrize("target", ["onnxoptimizer:no_such_pass", "onnxslim:no_such_pass"])
def test_a_misspelt_pass_is_no_pass(workers: Workers, target: str) -> None:
    seen = see(workers, target, chain("Relu"), X)
    assert seen.outcome == "environment"
    assert "has no pass 'no_such_pass'" in seen.message


@pytest.mark.parametrize("name", NAMES)
def test_values_go_by_name(workers: Workers, name: str) -> None:
    # `unused` may be dropped, `w` may be taken for a constant, an output is an input, an input is an output's
    # only source.
    tested = program(
        """g (float[2] "b.1", float[2] w, float[2] unused, float[2] a) => (float[2] y, float[2] z)
        <float[2] w = {10, 20}> { t = Sub("b.1", a) y = Add(t, w) z = Identity(a) }"""
    )
    values = {"a": [1, 2], "b.1": [5, 7], "unused": [0, 0]}
    inputs = {key: np.array(value, np.float32) for key, value in values.items()}
    got = results(workers, name, tested, inputs)
    assert {key: value.tolist() for key, value in got.items()} == {"y": [14, 25], "z": [1, 2]}
    seen = see(workers, name, tested, {**inputs, "w": np.zeros(2, np.float32)})
    assert seen.outputs is not None
    assert seen.outputs["y"].tolist() == [4, 5]
    assert "default values of inputs that are fed were left out of the model" in seen.notes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn"])
def test_types_stay(workers: Workers, name: str, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, {"float8e4m3fn": "float8_e4m3fn"}.get(dtype, dtype)))
    tested = program(
        f"g ({dtype}[3] x) => ({dtype}[3] y) {{ t = Identity(x) y = Identity(t) }}", opset=21, ir=10
    )
    got = results(workers, name, tested, {"x": np.array([0, 1, 3]).astype(kind)})
    assert (got["y"].dtype, got["y"].tolist()) == (kind, [0, 1, 3])


CUSTOM = """<ir_version: 8, opset_import: ["" : 18, "other" : 1]>
g (float[2, 3] x) => (float y) { t = other.Op(x) y = ReduceSumSquare<keepdims = 0>(t) }"""


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("name", NAMES)
def test_what_onnxruntime_lacks_is_not_the_transformers_fault(workers: Workers, name: str) -> None:
    tested = OnnxProgram(onnx.parser.parse_model(CUSTOM).SerializeToString())
    seen = [see(workers, target, tested, zeros(2, 3)) for target in (name, f"{name}:optimise=off")]
    assert [one.outcome for one in seen] == ["unsupported", "unsupported"]
    assert "other:Op" in seen[0].message


def graph(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


def asked(before: str, after: str) -> Sequence[str]:
    """The notes of an inspection."""
    request = Request(b"", {}, {}, lambda stage: None)
    check_result(graph(before), graph(after), request)
    return request.notes


TWO = "g (float[2] x, float[2] w) => (float[2] y, float[2] z) { y = Relu(x) z = Add(x, w) }"
REFUSED = [
    ("g (float[2] x) => (float[2] y) { y = Relu(x) }", "has lost the outputs 'z'"),
    (
        "g (float[2] x, float[2] v) => (float[2] y, float[2] z) { y = Relu(x) z = Add(x, v) }",
        "wants inputs .* 'v'",
    ),
    (
        "g (float[2] x) => (float[3] y, float[2] z) { y = Relu(x) z = Neg(x) }",
        "refuses the transformed model",
    ),
    (
        "g (float[N] x) => (float[3] y, float[2] z) { y = Relu(x) z = Neg(x) }",
        r"'y' as \[3\] where .* has \[2\]",
    ),
    ("g (float[N] x) => (float[N, 1] y, float[N] z) { y = Unk(x) z = Neg(x) }", "No Op registered for Unk"),
]


@pytest.mark.parametrize(("after", "told"), REFUSED)
def test_what_was_lost_is_told(after: str, told: str) -> None:
    with pytest.raises(BrokenModel, match=told):
        asked(TWO, after)


def test_what_may_change() -> None:
    assert asked(TWO, TWO) == []
    assert asked(TWO, "g (float[2] x) => (float[2] z, float[2] y) { y = Relu(x) z = Add(x, x) }") == []
    assert (
        asked(
            "g (float[N] x) => (float[N] y) { y = Relu(x) }", "g (float[2] x) => (float[2] y) { y = Relu(x) }"
        )
        == []
    )
    less = asked(
        "g (float[2] x) => (float[2] y) { y = Relu(x) }", "g (float[N] x) => (float[N] y) { y = Relu(x) }"
    )
    assert less == ["the transformed model no longer declares the whole shape of 'y'"]
    invalid = "g (float[2] x) => (float[2] y) { y = Unk(x) }"
    assert asked(invalid, invalid) == ["onnx.checker refuses the original and the transformed model"]


MESSAGES = [
    (
        "unsupported",
        "run",
        "opsieve_backend.NotRun",
        "NOT_IMPLEMENTED : Could not find an implementation for Det(11) node",
    ),
    (
        "environment",
        "import",
        "opsieve_backend.NotRun",
        "Unsupported model IR version: 14, max supported IR version: 13",
    ),
    (
        "environment",
        "run",
        "opsieve_backend.NotRun",
        "Non-zero status code returned while running ReduceMax node",
    ),
    (
        "environment",
        "import",
        "opsieve_backend.NotRun",
        "Load model from failed: Type Error: Type parameter (T)",
    ),
    (
        "error",
        "compile",
        "opsieve_backend.BrokenModel",
        "onnxruntime loads ... NOT_IMPLEMENTED : Could not find",
    ),
    (
        "out-of-memory",
        "compile",
        "opsieve_backend.BrokenModel",
        "onnxruntime runs ... : Failed to allocate memory for",
    ),
    ("environment", "compile", "opsieve_backend.UnknownName", "onnxslim has no pass 'x'"),
    ("environment", "compile", "TypeError", "slim() got an unexpected keyword argument 'skip_optimizations'"),
    ("error", "compile", "TypeError", "fold() got an unexpected keyword argument 'axis'"),
    ("rejected", "import", "google.protobuf.message.DecodeError", "Error parsing message"),
    ("error", "compile", "google.protobuf.message.DecodeError", "Error parsing message"),
    ("error", "compile", "KeyError", "'v1'"),
    ("error", "compile", "RuntimeError", "NOT_IMPLEMENTED"),
    ("unsupported", "compile", "NotImplementedError", "sequence types"),
]


@pytest.mark.parametrize(("meaning", "stage", "exception", "message"), MESSAGES)
def test_a_lack_is_told_from_a_bug(meaning: str, stage: str, exception: str, message: str) -> None:
    assert plugin("onnxslim").backend.classify(stage, exception, message) == meaning


def test_a_type_that_a_transformer_states_it_lacks_is_unsupported(workers: Workers) -> None:
    """onnxoptimizer 0.4.2 has no constants of four bits, and says so; its unoptimised build, which is
    onnxruntime, runs them.
    """
    constant = onnx.numpy_helper.from_array(np.array([1, 2], ml_dtypes.int4), "c")
    nodes = [
        onnx.helper.make_node("Constant", [], ["c"], value=constant),
        onnx.helper.make_node("Cast", ["c"], ["y"], to=1),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [onnx.helper.make_tensor_value_info("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    asked = OnnxProgram(model.SerializeToString())
    found = judge_program(asked, {}, resolve("onnxoptimizer"), ObservationCache(workers)).verdict
    assert (found.verdict, found.kind) == ("unsupported", None), found.reason


def test_all_parts_of_a_transformer_have_one_baseline() -> None:
    bases = {
        str(resolve(text).baseline)
        for text in ("onnxsim", "onnxsim:fuse_qkv", "onnxsim:folding=off,passes=off")
    }
    assert bases == {"onnxsim:optimise=off"}
    assert resolve("onnxsim:optimise=off").baseline is None


def test_the_file_loads_alone() -> None:
    # As a worker of an old release loads it, in an interpreter without onnx.
    module = "opsieve.backends.compilers.transformers.targets"
    said = "(module.ONNXSIM.package, module.hosts.ORT.name)"
    assert loaded_alone(module, ["onnx", "onnxruntime", "onnxsim"], said) == "('onnxsim', 'onnxruntime')\n"


@pytest.mark.parametrize("name", ["onnxruntime", *NAMES])
def test_optimisers_give_their_graph(workers: Workers, name: str) -> None:
    shown = resolve(name).showing_graph
    assert shown is not None
    assert resolve("tvm").showing_graph is None
    answer = workers.observe(shown, chain("Relu", "Identity", "Tanh"), X)
    assert answer.outcome == "ok", answer.message
    assert answer.outputs is not None
    assert answer.outputs.keys() == {"model"}
    assert answer.outputs["model"].dtype == np.uint8
