"""Rewrites that keep a program's meaning: what they make is valid and gives the same, and each does what it
says.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from opsieve.backends.compare import compare
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.model.structure import check_structure
from opsieve.gen.rewrites.relation import choose_relation, list_relations, rewrite_program
from opsieve.gen.strategies.registry import generate

F, D = TensorProto.FLOAT, np.float32
SEEDS = st.integers(0, 2**40)


def program(
    nodes: list[NodeProto], weights: dict[str, Any] | None = None, outputs: tuple[str, ...] = ("y",)
) -> OnnxProgram:
    """A program of x float[4,3]; every value has that shape unless it is a weight."""
    held = [numpy_helper.from_array(np.asarray(value, D), name) for name, value in (weights or {}).items()]
    results = [helper.make_tensor_value_info(name, F, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", F, [4, 3])], results, held)
    made = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    )
    return OnnxProgram(made.SerializeToString())


X = {"x": np.arange(12, dtype=D).reshape(4, 3) - 5}
node = helper.make_node


def operators(found: Any) -> list[str]:
    assert found is not None
    return list(found.program.operators())


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["isra", "pattern", "mutate", "function-rewrite"]),
    SEEDS,
    st.sampled_from(sorted(list_relations("onnx"))),
    st.sampled_from(["", "@1", "@2"]),
)
def test_a_rewritten_program_is_valid_and_gives_the_same(
    workers: Workers, strategy: str, seed: int, name: str, places: str
) -> None:
    case = generate(strategy, seed, GenRequest(nodes=6, between=(4, 10)))
    found = rewrite_program(case.program, case.inputs, name + places)
    again = rewrite_program(case.program, case.inputs, name + places)
    assert (found is None) == (again is None)
    if found is None or again is None:
        return
    assert found.program.digest == again.program.digest != case.program.digest
    assert isinstance(found.program, OnnxProgram)
    check_structure(found.program.proto)
    onnx.checker.check_model(found.program.proto)
    assert set(found.inputs) == set(found.program.inputs())
    outputs = list(case.program.outputs())
    assert list(found.program.outputs())[: len(outputs)] == outputs
    tests = [Test(case.program, case.inputs), Test(found.program, found.inputs)]
    before, after = workers.observe_many(NATIVE, tests)
    assert (before.outputs is None) == (after.outputs is None), after.message
    if before.outputs is not None and after.outputs is not None:
        kept = {key: after.outputs[key] for key in outputs}
        assert compare(kept, before.outputs, {}).agrees


def test_identities_stand_behind_inputs_and_results() -> None:
    found = rewrite_program(
        program([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])]), X, "insert-identities"
    )
    assert operators(found) == ["Identity", "Relu", "Identity", "Neg", "Identity"]


def test_a_result_that_is_read_twice_is_computed_twice() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "a"], ["b"]), node("Mul", ["a", "b"], ["y"])]
    assert operators(rewrite_program(program(nodes), X, "duplicate")).count("Relu") == 3


def test_what_is_read_once_is_not_duplicated() -> None:
    assert (
        rewrite_program(program([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])]), X, "duplicate")
        is None
    )


def test_constants_become_inputs_and_inputs_constants() -> None:
    plain = program([node("Add", ["x", "w"], ["y"])], {"w": [1, 2, 3]})
    lifted = rewrite_program(plain, X, "lift-constants")
    assert lifted is not None
    assert list(lifted.inputs) == ["x", "w"]
    assert isinstance(lifted.program, OnnxProgram)
    assert not lifted.program.proto.graph.initializer
    back = rewrite_program(lifted.program, lifted.inputs, "freeze-inputs")
    assert back is not None
    assert back.inputs == {}
    assert isinstance(back.program, OnnxProgram)
    assert {tensor.name for tensor in back.program.proto.graph.initializer} == {"x", "w"}


def test_commutative_operands_change_places_and_others_do_not() -> None:
    nodes = [node("Sub", ["x", "w"], ["a"]), node("Add", ["a", "w"], ["y"])]
    found = rewrite_program(program(nodes, {"w": [1, 2, 3]}), X, "swap-operands")
    assert found is not None
    assert isinstance(found.program, OnnxProgram)
    assert [list(each.input) for each in found.program.proto.graph.node] == [["x", "w"], ["w", "a"]]


def test_nodes_stand_in_another_order() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])]
    assert operators(rewrite_program(program(nodes), X, "reorder")) == ["Neg", "Relu", "Add"]


def test_results_on_the_way_become_outputs() -> None:
    found = rewrite_program(
        program([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])]), X, "add-outputs"
    )
    assert found is not None
    assert list(found.program.outputs()) == ["y", "a"]


def test_random_numbers_are_drawn_as_often_as_before() -> None:
    nodes = [node("RandomNormalLike", ["x"], ["a"]), node("Add", ["a", "a"], ["y"])]
    assert all(rewrite_program(program(nodes), X, name) is None for name in list_relations("onnx"))


def test_what_was_made_to_be_wrong_is_left_alone() -> None:
    case = next(
        made
        for seed in range(200)
        if (made := generate("disruptive", seed, GenRequest(nodes=6))).program.fault is not None
    )
    assert rewrite_program(case.program, case.inputs, "insert-identities") is None


def test_a_module_of_relax_has_relations_of_its_own() -> None:
    case = next(
        made
        for seed in range(20)
        if (made := generate("relax", seed, GenRequest(nodes=6))).program.fault is None
    )
    assert isinstance(case.program, RelaxProgram)
    for name in list_relations("relax"):
        found = rewrite_program(case.program, case.inputs, name)
        assert found is not None
        assert found.program.digest != case.program.digest
        assert list(found.inputs) == list(found.program.inputs())
        assert [id(value) for value in found.inputs.values()] == [
            id(case.inputs[name]) for name in case.program.inputs()
        ]
        assert list(found.program.outputs()) == list(case.program.outputs())
    assert rewrite_program(case.program, case.inputs, "duplicate") is None
    assert (list_relations(TirProgram.ir), choose_relation(TirProgram.ir, 5)) == ((), "")


def test_tests_take_all_relations_in_turn() -> None:
    asked = [choose_relation("onnx", number) for number in range(3 * len(list_relations("onnx")))]
    assert set(asked[: len(list_relations("onnx"))]) == set(list_relations("onnx"))
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    "written", ["", "nothing", "duplicate@", "duplicate@0", "duplicate@x", "duplicate " * 50]
)
def test_an_unknown_relation_is_refused(written: str) -> None:
    with pytest.raises(BadInput, match="there is no rewrite"):
        rewrite_program(program([node("Relu", ["x"], ["y"])]), X, written)
