"""The generators to compare with: valid graphs, of the size asked for, the same for the same seed."""

import math

import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput
from opsieve_research.baselines.operators import OPERATORS
from opsieve_research.baselines.strategies import BASELINES, MAX_NODES
from opsieve_research.coverage import OperatorCoverage

SEEDS = st.integers(0, 2**63 - 1)
NAMES = st.sampled_from(sorted(BASELINES))


@given(NAMES, SEEDS, st.integers(1, 25))
@settings(deadline=None)
def test_graphs_are_valid_and_their_types_are_as_declared(name: str, seed: int, nodes: int) -> None:
    model = BASELINES[name](seed, nodes).program.proto
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    made = len(model.graph.node)
    assert 1 <= made <= nodes if name == "declarative" else made == nodes


@given(NAMES, SEEDS)
@settings(max_examples=30)
def test_equal_seeds_give_equal_cases_and_others_others(name: str, seed: int) -> None:
    first, again, other = (BASELINES[name](number, 12) for number in (seed, seed, seed + 1))
    assert first.program.model == again.program.model
    assert {key: value.tobytes() for key, value in first.inputs.items()} == {
        key: value.tobytes() for key, value in again.inputs.items()
    }
    assert first.program.model != other.program.model


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_seeds_differ_in_the_values_of_inputs_too(name: str) -> None:
    firsts = {float(BASELINES[name](seed, 5).inputs["x0"].ravel()[0]) for seed in range(20)}
    assert len(firsts) == 20


def test_onnxruntime_runs_them(workers: Workers) -> None:
    cases = [make(seed, 10) for make in BASELINES.values() for seed in range(25)]
    tests = [Test(case.program, case.inputs) for case in cases]
    answers = list(workers.observe_many(resolve("onnxruntime:disable_all"), tests))
    assert [answer.message for answer in answers if answer.outcome != "ok"] == []


def test_what_is_forced_is_not_reshaped_into_fewer_elements() -> None:
    met = 0
    for seed in range(60):
        graph = BASELINES["pad-slice"](seed, 50).program.proto.graph
        counts = {
            info.name: math.prod(d.dim_value for d in info.type.tensor_type.shape.dim)
            for info in (*graph.input, *graph.value_info, *graph.output)
        }
        counts |= {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Reshape":
                met += 1
                assert counts[node.input[0]] == counts[node.output[0]], seed
    assert met > 100


def test_forcing_meets_every_operator_and_trying_starves_those_that_ask_for_much() -> None:
    met = {}
    for name in ("randoop", "pad-slice"):
        coverage = OperatorCoverage()
        for seed in range(60):
            coverage.add(BASELINES[name](seed, 40).program.proto)
        met[name] = coverage.frequencies
    assert {operator.name for operator in OPERATORS} <= met["pad-slice"].keys()
    assert met["randoop"]["Relu"] > 20
    assert met["randoop"]["Conv"] + met["randoop"]["BatchNormalization"] <= 2 < met["pad-slice"]["Conv"]


def test_filtering_whole_graphs_leaves_small_ones() -> None:
    sizes = {
        name: sum(len(make(seed, 50).program.proto.graph.node) for seed in range(40))
        for name, make in BASELINES.items()
    }
    assert sizes["declarative"] < sizes["randoop"] / 5


def test_forcing_operands_into_shape_takes_nodes_that_do_so() -> None:
    model = BASELINES["pad-slice"](1, 200).program.proto
    met = {node.op_type for node in model.graph.node}
    assert {"Pad", "Slice", "Reshape"} <= met
    assert not {"Pad", "Slice"} & {
        node.op_type for node in BASELINES["randoop"](1, 200).program.proto.graph.node
    }


@pytest.mark.parametrize("nodes", [0, -1, MAX_NODES + 1])
def test_sizes_that_cannot_be_are_told(nodes: int) -> None:
    with pytest.raises(BadInput, match="give a number from 1 to"):
        BASELINES["randoop"](0, nodes)
