"""Declarations that were learned: the file that a person edits, and what generators make of it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.learned_file import parse_toml, read_learned, write_toml
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest, start
from opsieve.gen.graph.encoding import encode_node
from opsieve.gen.graph.graph import BodyGraph, Node

TEXT = """
domain = "acme.nn"

[[operator]]
name = "Mix"
accepted = [20, 20]

[[operator.form]]
inputs = ["float32[a, 2*b] in -1..1", "", "float32[b] in 0.5..1"]
attributes = { heads = [2, 4], mode = ["up\\"per"], axes = [[0, 1]] }
outputs = ["float32[a, b]", "int64[a*b, a+b, ?]"]
"""


def test_a_file_is_read_as_it_was_written() -> None:
    operators = parse_toml(TEXT)
    assert parse_toml(write_toml(operators, "a comment\nof two lines")) == operators


def test_a_form_matches_what_it_says_and_gives_the_types() -> None:
    operator = parse_toml(TEXT)[0].operator()
    attrs = {"heads": 4, "mode": 'up"per', "axes": [0, 1]}
    ins = [Tensor("x", "float32", (3, 10)), None, Tensor("y", "float32", (5,))]
    assert all(operator.requires(ins, attrs))
    assert operator.infer(ins, attrs) == [("float32", (3, 5)), ("int64", (15, 8, "unknown_1_2"))]
    odd = [Tensor("x", "float32", (3, 9)), None, Tensor("y", "float32", (5,))]
    other = [ins[0], None, Tensor("y", "float32", (4,))]
    for wrong in (odd, other, [ins[0], ins[2], ins[2]], ins[:2], [Tensor("x", "float16", (3, 10)), *ins[1:]]):
        assert not all(operator.requires(wrong, attrs))
    assert not all(operator.requires(ins, {**attrs, "heads": 3}))
    assert not all(operator.requires(ins, {}))


def test_elements_and_constants_of_a_form_are_written_read_and_laid_as_initializers() -> None:
    text = TEXT.replace(
        '"float32[b] in 0.5..1"', '"float32[b] in 0.5..1", "int64[2] = 4, -1", "uint8[b] in 0..15 constant"'
    )
    (learned,) = operators = parse_toml(text)
    assert parse_toml(write_toml(operators)) == operators
    assert learned.forms[0].inputs[3].values == (4, -1)  # type: ignore[union-attr]
    assert learned.forms[0].inputs[4].constant  # type: ignore[union-attr]
    builder = start(GenRequest(), 0, "isra")
    for _ in range(20):
        made = learned.operator().instance(builder, Tensor("x", "float32", (3, 4), -1, 1))
        assert made is not None
        elements, weights = made.inputs[3], made.inputs[4]
        assert elements is not None
        assert weights is not None
        assert elements.values == (4, -1)
        assert weights.leaf in ("initializer", "constant")


def test_an_operator_on_a_sparse_tensor_is_known_and_no_program_is_made_of_it() -> None:
    (learned,) = operators = parse_toml(TEXT.replace('"float32[a, 2*b]', '"sparse float32[a, 2*b]'))
    assert parse_toml(write_toml(operators)) == operators
    assert learned.forms[0].inputs[0].sparse  # type: ignore[union-attr]
    assert "sparse" in learned.operator().excluded
    assert not parse_toml(TEXT)[0].operator().excluded


def test_an_operator_whose_results_differ_from_run_to_run_is_in_no_program() -> None:
    (varying,) = operators = parse_toml(TEXT + "varies = true\n")
    assert parse_toml(write_toml(operators)) == operators
    assert varying.forms[0].varies
    assert "differ" in varying.operator().excluded


def test_a_body_gives_the_sizes_of_what_it_is_called_with() -> None:
    body = parse_toml(BODY)[0].forms[0].attributes["decoder"][0]
    for rank, sizes in ((1, ("n0", "length", 8)), (2, ("n0", "n1", 8)), (4, ("n0", "n1", 8))):
        made = body.following(rank)
        assert [len(value.sizes) for value in made.inputs] == [rank]
        assert [value.sizes for value in made.outputs] == [sizes, (2,)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "domain = 3",
        'domain = "d"\noperator = 3',
        'domain = "d"\n[[operator]]\nname = "X"',
        TEXT.replace("2*b", "b/2"),
        TEXT.replace("2*b", "0*b"),
        TEXT.replace("float32[b]", "float33[b]"),
        TEXT.replace("float32[b]", "float32[b"),
        TEXT.replace("0.5..1", "0.5..e"),
        TEXT.replace("[2, 4]", "2"),
        TEXT.replace("[2, 4]", "[]"),
        TEXT.replace("[2, 4]", "[true]"),
        TEXT.replace("[2, 4]", "[99999999999999999999]"),
        TEXT.replace("[2, 4]", "[inf]"),
        TEXT.replace("[2, 4]", "[1979-05-27]"),
        TEXT.replace("[[0, 1]]", '[[0, "a"]]'),
        TEXT.replace("[[0, 1]]", "[[]]"),
        TEXT.replace("0.5..1", "1..0.5"),
        TEXT.replace("0.5..1", "0..1e999"),
        TEXT.replace("[20, 20]", "3"),
        TEXT.replace("[20, 20]", '["a", 2]'),
        TEXT.replace('"Mix"', '"M x"'),
        TEXT.replace('"Mix"', '""'),
        TEXT.replace("acme.nn", "acme nn"),
        TEXT.replace("[a*b, a+b, ?]", "[z]"),
        TEXT.replace("[a, 2*b]", "[?, 2*b]"),
        TEXT.replace("[a, 2*b] in -1..1", "[3] = 1, 2"),
        'domain = "d"\n[[operator]]\nname = "X"\nform = [3]',
    ],
)
def test_a_file_of_another_form_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadInput):
        parse_toml(text)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    for data in (b"[[", b"\xff\xfe", b"a = " + b"[" * 5000):
        (tmp_path / "bad.toml").write_bytes(data)
        with pytest.raises(BadInput):
            read_learned(tmp_path / "bad.toml")
    with pytest.raises(BadInput):
        read_learned(tmp_path / "none.toml")


def test_programs_have_the_operators_of_a_file_that_the_environment_names(tmp_path: Path) -> None:
    file = tmp_path / "acme.toml"
    file.write_text(TEXT)
    tomllib.loads(TEXT)
    code = (
        "import sys; from opsieve.gen.generation.random_graph import GenRequest; from"
        " opsieve.gen.strategies.registry import generate\nrequest = GenRequest(nodes=8,"
        " only=frozenset(('acme.nn::Mix', 'Relu', 'Add')))\nfor seed in range(24): open(sys.argv[1] +"
        " f'/{seed}.onnx', 'wb').write(generate('isra', seed, request).program.model)"
    )
    environment = {**os.environ, "OPSIEVE_OPERATORS": str(file)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    nodes = [
        node
        for path in tmp_path.glob("*.onnx")
        for node in onnx.load(path).graph.node
        if node.op_type == "Mix"
    ]
    assert len(nodes) > 5
    assert all(node.domain == "acme.nn" and len(node.input) == 3 and not node.input[1] for node in nodes)


BODY = """
domain = "acme.nn"

[[operator]]
name = "Search"

[[operator.form]]
inputs = ["int32[a, 2] in 0..3"]
attributes = { decoder = [{ inputs = ["ids: int32[batch, length]"], outputs = ["scores: float32[batch, length, 8]", "state: int64[2]"] }] }
outputs = ["int32[a, 2]"]
"""


def test_a_graph_of_an_attribute_is_written_laid_and_gives_the_sizes_that_it_is_called_with() -> None:
    (learned,) = operators = parse_toml(BODY)
    assert parse_toml(write_toml(operators)) == operators
    body = learned.forms[0].attributes["decoder"][0]
    assert isinstance(body, LearnedBody)
    graph = body.graph("decoder")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    scores, state = ReferenceEvaluator(model).run(None, {"ids": np.zeros((3, 5), np.int32)})
    assert scores.shape == (3, 5, 8)
    assert len(set(scores[0, 0])) == 8
    assert (scores == scores[0, 0]).all()
    assert state.dtype == np.int64
    operator = learned.operator()
    x = [Tensor("x", "int32", (4, 2))]
    assert all(operator.requires(x, {"decoder": body}))
    called = [Tensor("ids", "int32", ("b", "l"))]
    given = [Tensor("scores", "float32", ("b", "l", 8)), Tensor("state", "int64", (2,))]
    assert all(operator.requires(x, {"decoder": BodyGraph(called, [], given)}))  # as a model is read
    for other in (BodyGraph(called, [], given[:1]), BodyGraph(given, [], called), "decoder"):
        assert not all(operator.requires(x, {"decoder": other}))
    node = encode_node(
        Node("Search", "acme.nn", x, [Tensor("y", "int32", (4, 2))], {"decoder": body}, "n"), set()
    )
    assert helper.get_attribute_value(onnx.NodeProto.FromString(node).attribute[0]) == graph
    for wrong in (
        "ids: int33[2]",
        "ids: int32[-1]",
        "i d: int32[2]",
        "scores: int32[2]",
        "ids: int32[9999, 9999, 9999]",
    ):
        with pytest.raises(BadInput):
            parse_toml(BODY.replace("ids: int32[batch, length]", wrong))
