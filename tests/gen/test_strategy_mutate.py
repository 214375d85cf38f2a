"""Mutate: programs made of others and of real models, valid by construction; the same everywhere for the same
seed.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from program_bytes import digest
from repository import SAMPLES, SUPPORT

from opsieve.backends.probing.generation import load_corpus
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.analysis.reading import Source, UnreadableModel, known_values, read
from opsieve.gen.declarations.catalogue import OpTable, choices
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import NUMBER, Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.mutation import Changes, ModelReplay
from opsieve.gen.generation.random_graph import GenRequest, choose_outputs, start, to_record
from opsieve.gen.generation.request import from_record
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.writing import serialize
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.gen.strategies.mutate import _draw_changes
from opsieve.gen.strategies.registry import generate

PLAIN = resolve("onnxruntime:disable_all")
SEEDS = st.integers(0, 2**40)


def source(seed: int, name: str = "isra") -> Source:
    case = generate(name, seed, GenRequest(nodes=8, types=True))
    return read(case.program.proto, case.inputs)


def replayed(read_: Source, changes: Changes, seed: int = 0) -> GraphBuilder:
    builder = start(GenRequest(opset=read_.opset), seed, "test")
    builder.program.choices = OpTable()
    ModelReplay(builder, changes).replay_nodes(read_)
    return builder


def operators_of(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in all_nodes(model.graph.node) if node.op_type != "Constant")


@given(SEEDS, st.integers(1, 25))
@settings(deadline=None, max_examples=50)
def test_programs_are_valid(seed: int, size: int) -> None:
    model = generate("mutate", seed, GenRequest(nodes=size)).program.proto
    check_structure(model)
    onnx.checker.check_model(model, full_check=True)
    assert len(list(all_nodes(model.graph.node))) >= size


def test_programs_run(workers: Workers) -> None:
    cases = [generate("mutate", seed, GenRequest(nodes=8)) for seed in range(100)]
    seen = Counter[str]()
    for case, answer in zip(
        cases, workers.observe_many(PLAIN, [Test(case.program, case.inputs) for case in cases]), strict=True
    ):
        seen[answer.outcome] += 1
        # Before opset 16 onnxruntime writes a Clip of bfloat16 as a Where, which has no bfloat16 there.
        inlined = "of operator (Where)" in answer.message and "Where" not in case.program.operators()
        assert inlined or answer.outcome in ("ok", "unsupported", "environment"), (
            case.program.name,
            answer.message,
        )
        values = [value for value in (answer.outputs or {}).values() if isinstance(value, np.ndarray)]
        seen["finite"] += all(np.isfinite(value).all() for value in values if value.dtype.kind == "f")
    assert seen["ok"] > 50, seen
    assert seen["finite"] > 0.97 * 100, seen


@given(SEEDS, st.sampled_from(("isra", "pattern")))
@settings(deadline=None, max_examples=40)
def test_a_program_that_is_read_and_laid_again_is_the_same(seed: int, name: str) -> None:
    case = generate(name, seed, GenRequest(nodes=8, types=True))
    read_ = read(case.program.proto, case.inputs)
    builder = replayed(read_, Changes({}))
    model, inputs = serialize(builder, choose_outputs(builder), "again")
    proto = onnx.load_model_from_string(model)
    onnx.checker.check_model(proto, full_check=True)
    assert operators_of(proto) == operators_of(case.program.proto)
    # An input that only a body read which was drawn and not taken is declared and of no use: it is not laid
    # again.
    read_by = {name for node in all_nodes(case.program.proto.graph.node) for name in node.input}
    used = [np.shape(value) for name, value in case.inputs.items() if name in read_by]
    assert {np.shape(value) for value in inputs.values()} == set(used)


@pytest.mark.parametrize("kind", ["inserted", "swapped", "redrawn", "dropped", "doubled"])
def test_every_kind_of_change_changes_programs_and_leaves_them_valid(kind: str) -> None:
    differ = 0
    for seed in range(50):
        read_ = source(seed)
        models = []
        for changes in (Changes({}), Changes({}, **{kind: frozenset((len(read_.nodes) // 2,))})):
            builder = start(GenRequest(opset=read_.opset), seed, "test")
            builder.program.choices = choices(read_.opset)
            ModelReplay(builder, changes).replay_nodes(read_)
            model, _ = serialize(builder, choose_outputs(builder), "changed")
            onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)
            models.append(onnx.load_model_from_string(model))
        shapes = [
            [(n.op_type, len(n.input), [a.SerializeToString() for a in n.attribute]) for n in m.graph.node]
            for m in models
        ]
        edges = [[list(n.input) for n in m.graph.node] for m in models]
        differ += shapes[0] != shapes[1] or edges[0] != edges[1]
    # "swapped" asks for another tensor of the same type, which is not always there
    assert differ >= 4, (
        kind,
        differ,
    )


def test_dtypes_and_shapes_of_leaves_change_and_their_readers_with_them() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[2,3] x, float[2,3] y) => (float[2,6] z) {
            a = Add (x, y)
            b = Relu (a)
            z = Concat <axis = 1> (a, b)
        }""")
    read_ = read(model, {"x": np.ones((2, 3), np.float32), "y": np.ones((2, 3), np.float32)})
    both = {"x": ("float16", (2, 5)), "y": ("float16", (2, 5))}
    builder = replayed(read_, Changes(both))
    assert [(node.op, node.outs[0].dtype, node.outs[0].shape) for node in builder.nodes] == [
        ("Add", "float16", (2, 5)),
        ("Relu", "float16", (2, 5)),
        ("Concat", "float16", (2, 10)),
    ]
    one = replayed(read_, Changes({"x": ("float64", (4,))}))
    assert [node.op for node in one.nodes] == ["Add", "Relu", "Concat"]
    assert {node.outs[0].dtype for node in one.nodes} == {"float64"}  # the other operand is another now


def test_what_cannot_be_read_is_told() -> None:
    old = """<ir_version: 8, opset_import: ["" : 9]> g (float[2] x) => (float[2] y) { y = Relu (x) }"""
    ours = """<ir_version: 8, opset_import: ["" : 18, "mine" : 1]> g (float[2] x) => (float[2] y) { y = mine.F (x) }"""
    untyped = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[2] x) => (float[2] y) { a = com.microsoft.Unheard (x) y = Relu (a) }"""
    values = {"x": np.ones(2, np.float32)}
    for text, told in ((old, "opset 9"), (ours, "the domain mine"), (untyped, "what Unheard gives")):
        with pytest.raises(UnreadableModel, match=told):
            read(onnx.parser.parse_model(text), values)
    program = OnnxProgram(onnx.parser.parse_model(old).SerializeToString())
    with pytest.raises(BadInput, match=r"no model of the corpus \(1\) can be mutated; one has opset 9"):
        generate("mutate", 0, GenRequest(corpus=(program,)))


def test_a_node_with_more_outputs_than_its_declaration_keeps_them() -> None:
    """BatchNormalization is declared as in inference; while training it has three outputs."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3,4] x, float[3] s, float[3] v)'
        " => (float[2,3,4] y, float[3] m, float[3] w)"
        " { y, m, w = BatchNormalization <training_mode: int = 1> (x, s, s, v, v) }"
    )
    request = GenRequest(corpus=(OnnxProgram(model.SerializeToString()),))
    training = 0
    for seed in range(12):
        proto = generate("mutate", seed, request).program.proto
        onnx.checker.check_model(proto, full_check=True)
        training += any(len(node.output) == 3 for node in proto.graph.node)
    assert training


def test_real_models_are_mutated(workers: Workers, tmp_path: Path) -> None:
    models, _ = load_corpus(SAMPLES, workers)
    assert len(models) >= 5
    request = GenRequest(corpus=models)
    digests = set()
    for seed in range(40):
        case = generate("mutate", seed, request)
        onnx.checker.check_model(case.program.proto, full_check=True)
        digests.add(case.program.digest)
        assert generate("mutate", seed, request).program.digest == case.program.digest
    assert len(digests) > 30
    with pytest.raises(BadInput, match="made from a corpus of"):
        from_record(to_record(request))
    (tmp_path / "broken.onnx").write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"holds no model that can be mutated; .*broken"):
        load_corpus(tmp_path, workers)
    for nowhere in (tmp_path / "none", tmp_path / "broken.onnx"):
        with pytest.raises(BadInput, match="is not a folder of models"):
            load_corpus(nowhere, workers)
    huge = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[65536,65536] x) => (float[65536,65536] y) { y ='
        " Relu (x) }"
    )
    (tmp_path / "huge.onnx").write_bytes(onnx.parser.parse_model(huge).SerializeToString())
    shutil.copy(next(SAMPLES.rglob("*.onnx")), tmp_path / "sound.onnx")
    models, refused = load_corpus(tmp_path, workers)
    assert [model.name for model in models] == ["sound.onnx"]
    assert any(
        line.startswith("'huge.onnx' cannot be mutated: ") and "--inputs" not in line for line in refused
    )


_HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '
# What only holds by a model's own numbers: a divisor, positions, an order of axes that is an input, what is
# empty, a mask of minus infinity.
_PARTICULAR = (
    """(int64[2,3] x, float[3,4] y) => (int64[2,3] q, float[2,4] g) <int64[2,3] d = {-3, 2, -1, 4, 5, -2}, int64[2] at = {2, 0}> {
        q = Div (x, d)
        g = Gather <axis = 0> (y, at)
    }""",
    """(float[2,3] x, float[0] e) => (float[2,3] y, float[0] f, float[0] g) <int64[2] sizes = {0, 0}> {
        f, g = Split <axis = 0> (e, sizes)
        y = Tanh (x)
    }""",
    """(float[2,4] x) => (float[2,4] y) <bool[4] kept = {1, 0, 1, 1}, float none = {0.0}> {
        lowest = Constant <value = float {-inf}> ()
        mask = Where (kept, none, lowest)
        masked = Add (x, mask)
        y = Softmax <axis = -1> (masked)
    }""",
    """(float[2,3] x) => (float[2,1] s) {
        square = Mul (x, x)
        mean = ReduceMean <axes = [1]> (x)
        mean2 = Mul (mean, mean)
        squares = ReduceMean <axes = [1]> (square)
        variance = Sub (squares, mean2)
        s = Sqrt (variance)
    }""",
)


def test_what_holds_by_the_numbers_of_a_model_holds_when_it_is_mutated(workers: Workers) -> None:
    head = _HEAD.replace("18", "17")
    models = tuple(
        OnnxProgram(onnx.parser.parse_model(head + text).SerializeToString()) for text in _PARTICULAR
    )
    cases = [generate("mutate", seed, GenRequest(corpus=models)) for seed in range(160)]
    wrong = []  # a mask that nothing reads any more is an output, infinite as it is
    tests = [Test(case.program, case.inputs) for case in cases]
    for case, answer in zip(cases, workers.observe_many(PLAIN, tests), strict=True):
        values = [value for value in (answer.outputs or {}).values() if isinstance(value, np.ndarray)]
        if (
            any(np.isnan(value).any() for value in values if value.dtype.kind == "f")
            or answer.outcome == "error"
        ):
            wrong.append((case.program.name, answer.outcome, answer.message[-80:]))
    assert not wrong


def test_sizes_that_hang_on_inputs_are_not_taken_for_those_that_a_model_says() -> None:
    model = onnx.parser.parse_model(
        _HEAD
        + "(float[2,3,4] x, int64[1] axes) => (float[2,3] y) { s = ReduceSum <keepdims = 0> (x, axes) y ="
        " Sqrt (s) }"
    )
    x = np.ones((2, 3, 4), np.float32)
    assert read(model, {"x": x, "axes": np.array([2])}).outputs[0].shape == (2, 3)
    with pytest.raises(UnreadableModel, match="sizes that hang on its inputs' values"):
        read(model, {"x": x, "axes": np.array([0])})


def test_symbolic_sizes_of_a_model_are_bound() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }"""
    )
    case = generate("mutate", 3, GenRequest(corpus=(OnnxProgram(model.SerializeToString()),)))
    assert all(np.prod(np.shape(value), dtype=int) > 0 for value in case.inputs.values())


def test_changes_are_one_to_four() -> None:
    read_ = source(1)
    for seed in range(50):
        found = _draw_changes(read_, Rng(seed), GenRequest())
        many = len(found.inserted | found.swapped | found.redrawn | found.dropped | found.doubled)
        assert many + bool(found.leaves) <= 4


def test_equal_seeds_give_equal_bytes_in_every_process() -> None:
    names = ("pattern", "mutate", "function-rewrite")
    code = f"from program_bytes import digest\nprint(digest({names!r}), end='')"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join((str(SUPPORT), str(Path(__file__).parent))),
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told == digest(names)


def test_sizes_that_a_model_computes_are_known() -> None:
    """A part of a head that takes `unflatten`, as PyTorch's older exporter writes it."""
    model = onnx.parser.parse_model(
        _HEAD
        + """(float[N,3,8] x) => (float[N,3,4,2] y) {
            two = Constant <value = int64[1] {2}> ()
            three = Constant <value = int64[1] {3}> ()
            one = Constant <value = int64[1] {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            far = Constant <value = int64[1] {9223372036854775807}> ()
            heads = Constant <value = int64[2] {4, 2}> ()
            t = Tanh (x)
            sizes = Shape (t)
            axis = Mod (two, three)
            until = Reshape (axis, one)
            before = Slice (sizes, zero, until)
            behind = Add (axis, one)
            from = Reshape (behind, one)
            rest = Slice (sizes, from, far)
            all = Concat <axis = 0> (before, heads, rest)
            split = Reshape (t, all)
            y = Sqrt (split)
        }"""
    )
    read_ = read(model, {"x": np.ones((5, 3, 8), np.float32)})
    assert read_.outputs[0].shape == (5, 3, 4, 2)
    assert read_.outputs[0].low <= read_.outputs[0].high
    for seed in range(20):
        case = generate("mutate", seed, GenRequest(corpus=(OnnxProgram(model.SerializeToString()),)))
        onnx.checker.check_model(case.program.proto, full_check=True)


def test_a_cast_to_bool_is_known_as_a_truth() -> None:
    two, false = (Tensor("x", "int64", (1,), value, value, (value,), "constant") for value in (2, 0))
    for each, truth in ((two, True), (false, False)):
        found = known_values("Cast", [each], {"to": NUMBER["bool"]}, Tensor("y", "bool", (1,)))
        assert found == (truth,)
    assert known_values("Cast", [two], {"to": NUMBER["int32"]}, Tensor("y", "int32", (1,))) == (2,)
