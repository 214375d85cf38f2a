"""Symbolic dimensions: what is left open can have other sizes, and every name means one size."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import OpChoice, first_dtypes, operators
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import ANY
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, build_single_node, to_record
from opsieve.gen.generation.request import from_record
from opsieve.gen.generation.symbolic import open_sizes
from opsieve.gen.graph.scope import Pieces
from opsieve.gen.graph.writing import serialize
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies.registry import generate

ALL = GenRequest(nodes=10, dynamic=1.0)
PLAIN = resolve("onnxruntime:disable_all")
# onnxruntime gives another size than ONNX infers for SAME_* paddings with dilations.
KNOWN = ("AveragePool", "LpPool", "MaxPool")
SEEDS = st.integers(0, 2**40)


def named(info: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]


def resized(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Inputs that bind every name to another size, by repeating elements; and the sizes."""
    sizes: dict[str, int] = {}
    made = dict(inputs)
    for info in model.graph.input:
        for axis, side in enumerate(named(info)):
            if isinstance(side, str):
                array = made[info.name]
                size = sizes.setdefault(side, array.shape[axis] + 1 + 2 * len(sizes))
                made[info.name] = np.take(array, np.arange(size) % array.shape[axis], axis)
    return made, sizes


def disagreement(model: onnx.ModelProto, outputs: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """The first output whose shape is not the declared one with these sizes for names; "" when there is
    none.
    """
    for info in model.graph.output:
        value = outputs[info.name]
        if isinstance(value, np.ndarray) and info.type.HasField("tensor_type"):
            for side, size in zip(named(info), value.shape, strict=True):
                wanted = sizes.get(side, size) if isinstance(side, str) else side
                if size != wanted:
                    return f"{info.name}: {named(info)} is {value.shape} with {sizes}"
    return ""


def test_every_operator_runs_at_the_sizes_that_are_left_open(workers: Workers) -> None:
    tests, told, seen = [], [], Counter[str]()
    for name, operator in operators().items():
        allowed = sorted(first_dtypes(operator, SUPPORTED))
        for seed in range(8 if allowed and name not in KNOWN else 0):
            dtype = "float32" if "float32" in allowed else allowed[0]
            safe = operator.safe[0] if operator.safe else ANY
            builder = build_single_node(
                OpChoice(operator, frozenset((dtype,)), (dtype,), *operator.ranks, safe), SUPPORTED, seed
            )
            assert builder is not None
            names = open_sizes(builder, Rng(seed))
            outputs = [out for node in builder.nodes for out in node.outs if out.name]
            model, inputs = serialize(builder, outputs, "open", False, names)
            seen["open" if names else "closed"] += 1
            if names:
                proto = onnx.load_model_from_string(model)
                onnx.checker.check_model(proto, full_check=True)
                given_, sizes = resized(proto, inputs)
                tests += [Test(OnnxProgram(model), inputs), Test(OnnxProgram(model), given_)]
                told.append((name, seed, proto, sizes))
    answers = list(workers.observe_many(PLAIN, tests))
    for place, (name, seed, proto, sizes) in enumerate(told):
        usual, other = answers[2 * place : 2 * place + 2]
        if usual.outcome == "ok":
            assert other.outcome == "ok", (name, seed, other.message)
            assert other.outputs is not None
            assert not disagreement(proto, other.outputs, sizes), (name, seed)
            seen["ran"] += 1
    assert seen["open"] > 0.5 * seen["closed"], seen
    assert seen["ran"] > 0.8 * seen["open"], seen


@pytest.mark.slow(seconds=3)
def test_programs_run_at_their_own_sizes_and_at_others(workers: Workers) -> None:
    cases = [generate(name, seed, ALL) for name in ("isra", "pattern", "mutate") for seed in range(60)]
    tests = []
    for case in cases:
        assert all(np.shape(case.inputs[info.name]) for info in case.program.proto.graph.input if named(info))
        tests += [
            Test(case.program, case.inputs),
            Test(case.program, resized(case.program.proto, case.inputs)[0]),
        ]
    answers = list(workers.observe_many(PLAIN, tests))
    seen = Counter[str]()
    for place, case in enumerate(cases):
        model = case.program.proto
        sizes = resized(model, case.inputs)[1]
        usual, other = answers[2 * place : 2 * place + 2]
        if sizes and usual.outcome == "ok" and not {node.op_type for node in model.graph.node} & set(KNOWN):
            assert other.outputs is not None, (case.program.name, other.message)
            assert not disagreement(model, other.outputs, sizes), case.program.name
            seen["ran"] += 1
            seen["names in outputs"] += any(
                side in sizes for info in model.graph.output for side in named(info)
            )
    assert seen["ran"] > 50, seen
    assert seen["names in outputs"] > 25, seen


@given(SEEDS, st.integers(1, 25))
@settings(deadline=None, max_examples=60)
def test_inference_accepts_them_and_a_name_has_one_size(seed: int, size: int) -> None:
    case = generate("isra", seed, GenRequest(nodes=size, dynamic=1.0, types=True))
    model = case.program.proto
    onnx.checker.check_model(model, full_check=True)
    sizes: dict[str, int] = {}
    for info in model.graph.input:
        for side, real in zip(named(info), np.shape(case.inputs[info.name]), strict=False):
            assert real == (sizes.setdefault(side, real) if isinstance(side, str) else side)


def test_programs_with_open_sizes_are_as_connected_as_others() -> None:
    connected = 0
    for seed in range(100):
        model = generate("mix", seed, GenRequest(nodes=12, dynamic=1.0)).program.proto
        pieces = Pieces()
        for node in model.graph.node:
            if node.op_type != "Constant":
                stored = {item.name for item in (*model.graph.initializer, *model.graph.input)}
                pieces.connect(
                    [name for name in (*node.output, *node.input) if name not in {"", *stored}], True
                )
        connected += pieces.count <= 2
    assert connected > 90


def test_the_share_is_what_was_asked_for_and_is_told() -> None:
    def open_ones(share: float) -> int:
        request = GenRequest(nodes=6, dynamic=share)
        models = [generate("isra", seed, request).program.proto for seed in range(100)]
        return sum(
            any(isinstance(side, str) for info in m.graph.input for side in named(info)) for m in models
        )

    assert open_ones(0.0) == 0
    assert 20 < open_ones(0.3) < 40
    assert open_ones(1.0) > 96
    assert from_record(to_record(GenRequest(dynamic=0.25))).dynamic == 0.25
    with pytest.raises(BadInput, match="cannot be read"):
        from_record({"dynamic": "2"})
