"""Hints: the compiler's own optimised graph tells where to look first."""

import numpy as np
import pytest
from benchmarks.reducing import scaled
from onnx import TensorProto, helper, parser

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Graph, Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.nodes import node_phase
from opsieve.reducer.nodes.localise import beside, likelihood, made_into, rewritten
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

MODEL = """<ir_version: 9, opset_import: ["" : 20]> g (float[4, 4] x, float[4, 4] w) => (float[4, 4] y)
    { a = Abs (x)  b = MatMul (a, w)  c = Add (b, w)  d = Tanh (c)  e = Transpose (d)  y = Relu (e) }"""


def graph_of(text: str) -> Graph:
    return Graph(Subject(parser.parse_model(text), {}, {}))


def test_nodes_whose_values_are_gone_are_one_group() -> None:
    graph = graph_of(MODEL)
    fused = graph_of(MODEL.replace("b = MatMul (a, w)  c = Add (b, w)", "c = Gemm (a, w, w)"))
    assert rewritten(graph, fused.subject.model.graph) == [[1, 2]]
    assert rewritten(graph, graph.subject.model.graph) == []


def test_a_value_that_another_operator_makes_under_its_old_name_joins_what_read_it() -> None:
    graph = graph_of(MODEL)
    text = MODEL.replace("b = MatMul (a, w)  c = Add (b, w)", "b = Gemm (a, w, w)").replace(
        "Tanh (c)", "Tanh (b)"
    )
    found = rewritten(graph, graph_of(text).subject.model.graph)
    assert found == [[1, 2, 3]]
    assert beside(graph, [3], [[2], [3]]) == [2, 3]


def test_an_operator_that_the_optimiser_made_and_a_message_names_tells_the_group() -> None:
    graph = graph_of(MODEL)
    text = MODEL.replace("b = MatMul (a, w)  c = Add (b, w)", "c = FusedMatMul (a, w, w)").replace(
        "e = Transpose (d)  y = Relu (e)", "y = TransposeRelu (d)"
    )
    after = graph_of(text).subject.model.graph
    groups = rewritten(graph, after)
    assert groups == [[1, 2], [4, 5]]
    assert made_into(graph, after, "while running TransposeRelu node. Name:''", groups) == [4, 5]
    assert made_into(graph, after, "while running Tanh node", groups) is None
    shares = likelihood(graph, groups)
    assert min(shares[place] for place in (1, 2, 4, 5)) > max(shares[0], shares[3])
    assert abs(sum(shares) - 1) < 1e-9


def test_a_wrong_fusion_is_found_where_it_was_made(workers: Workers) -> None:
    # onnxruntime 1.31 folds a Pad with zeros into a MaxPool, which pads with the lowest number.
    chain = [("Neg", "Abs")[place % 2] for place in range(61)]
    names = [f"v{place}" for place in range(len(chain) + 3)]
    nodes = [
        helper.make_node(operator, [names[at - 1] if at else "x"], [names[at]])
        for at, operator in enumerate(chain[:31])
    ]
    nodes.append(helper.make_node("Pad", [names[30], "pads"], [names[31]]))
    nodes.append(helper.make_node("MaxPool", [names[31]], [names[32]], kernel_shape=[3, 3]))
    nodes += [
        helper.make_node(operator, [names[at + 32]], [names[at + 33]])
        for at, operator in enumerate(chain[31:])
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 4, 4])
        for name in ("x", nodes[-1].output[0])
    ]
    pads = helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1])
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [pads])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    case = Case(OnnxProgram.of(model), {"x": np.full((1, 1, 4, 4), 0.5, np.float32)})
    premise = find(case, [resolve("onnxruntime")], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners(), passes=[]
    )
    assert [node.op_type for node in result.best.model.graph.node] == ["Pad", "MaxPool"]
    assert result.node_checks <= 6


@pytest.mark.slow(seconds=3)
def test_of_many_rewritten_groups_some_are_shown_and_then_those_between(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_phase, "_SHOWN", 4)
    program = OnnxProgram(scaled.model(2000, "wide", "mismatch").SerializeToString())
    case = Case(program, seeded_inputs(program.proto, 0))
    premise = find(case, [resolve("onnxruntime")], resolve("onnxruntime:disable_all"), workers)
    form, journal = OnnxReduction(), Journal("")
    result = reduce_failure(form, form.subject(case), premise, [workers], "fingerprint", journal, Listeners())
    asked = [
        attempt.nodes for attempt in journal.attempts if attempt.label.endswith("show what was rewritten")
    ]
    assert len(asked) > 1
    assert asked == sorted(asked, reverse=True)
    assert result.node_checks <= len(asked) + 5
    assert program_operators(result.best) == ["Pad", "MaxPool"]


def test_of_very_many_nodes_halves_are_asked_for_before_the_optimised_graph(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_phase, "_TRACED", 300)
    program = OnnxProgram(scaled.model(800, "chain", "mismatch").SerializeToString())
    case = Case(program, seeded_inputs(program.proto, 0))
    premise = find(case, [resolve("onnxruntime")], resolve("onnxruntime:disable_all"), workers)
    form, journal = OnnxReduction(), Journal("")
    result = reduce_failure(form, form.subject(case), premise, [workers], "fingerprint", journal, Listeners())
    sizes = [attempt.nodes for attempt in journal.attempts if attempt.dimension == "nodes"]
    assert sizes[0] == 400
    assert max(sizes) == 400
    assert program_operators(result.best) == ["Pad", "MaxPool"]


def program_operators(subject: Subject) -> list[str]:
    return list(subject.program.operators())


def test_what_is_lost_before_inputs_are_read_is_not_asked_under_other_names(workers: Workers) -> None:
    form = OnnxReduction()
    one = Subject(parser.parse_model(MODEL), {"x": np.ones((4, 4), np.float32)}, {})
    other = Subject(
        parser.parse_model(MODEL.replace("(a)", "(q)").replace("(a,", "(q,").replace("a =", "q =")), {}, {}
    )
    another = Subject(parser.parse_model(MODEL.replace("Tanh", "Sinh")), {}, {})
    assert form.twin(one) == form.twin(other)
    assert form.twin(one) != form.twin(another)
    nodes = "".join(f"v{at} = {('Neg', 'Abs')[at % 2]} (v{at - 1}) " for at in range(1, 40))
    text = (
        f'<ir_version: 9, opset_import: ["" : 20]> g (float[2] v0) => (float[2] y) {{ {nodes} t = Tanh (v39)'
        " y = Exp (t) }"
    )
    model = OnnxProgram.of(parser.parse_model(text))
    case = Case(model, {"v0": np.ones(2, np.float32)})
    premise = find(case, [resolve("fake:error@Tanh>Exp")], None, workers)
    result = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    assert result.best.program.operators() == ["Tanh", "Exp"]
    journal = Journal("")
    result = reduce_failure(form, form.subject(case), premise, [workers], "fingerprint", journal, Listeners())
    asked = [attempt.label for attempt in journal.attempts if attempt.answer == "gone"]
    # each is the node dropped, under another name
    assert not any(label.startswith("bypass") for label in asked)
