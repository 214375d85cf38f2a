"""An edit changes what it states: every declaration that it does not touch stays byte for byte the same."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx.parser import parse_model
from random_subjects import subjects

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import (
    Path,
    Subject,
    first_output,
    graphs,
    nodes,
)
from opsieve.gen.model.structure import is_shaped, is_static
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.onnx_edit.inference import infer_types, types_of
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.passes.bodies import PASS as BODIES
from opsieve.reducer.passes.local_functions import PASS as FUNCTIONS
from opsieve.reducer.passes.model import PASS as MODEL
from opsieve.reducer.problem.order import OnnxPass, count_nodes
from opsieve.reducer.sessions.reduction import Listeners, reduce_by_check, reduce_failure

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
LOOP = """g (float[2,3] x, int64 n) => (float[2,3] y) <bool t = {1}, float one = {1.0}> { k = Relu (x)
    y = Loop (n, t, k) <body = b (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] r) {
        c2 = Identity (c)  p = Abs (s)  q = Add (p, s)  a = Dropout (q)  d = Div (one, q)  e = Mul (d, a)
        u = Neg (e)  v = Abs (u)  w = Add (v, s)  z = Tanh (w)  r = Sigmoid (z) }> }"""
_FIELDS = {"graph", "functions", "opset_import", "ir_version"}
_CONTENT = {"node", "initializer", "sparse_initializer", "input", "output", "value_info"}


def test_nodes_of_a_loop_body_shrink_where_the_failure_needs_the_shapes_of_its_state(
    workers: Workers,
) -> None:
    """onnxruntime's issue 32414: without a shape of the state, its fusion fails otherwise."""
    case = Case(
        OnnxProgram.of(parse_model(HEAD + LOOP)),
        {"x": np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3), "n": np.array(2)},
    )
    premise = find(case, [resolve("onnxruntime")], None, workers)
    form, seen = OnnxReduction(), []
    listeners: Listeners[Subject] = Listeners(shown=lambda each: seen.append(count_nodes(each.model)))
    found = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), listeners
    )
    assert (1, 3) in seen
    assert found.minimal
    assert found.checks <= 130
    # out of the body DivMulFusion fails in other words, when the model is loaded
    assert count_nodes(found.best.model) == (3, 0)
    assert found.premise is not None
    assert found.premise.failure.fingerprint != premise.failure.fingerprint


def test_a_bug_leaves_a_body_within_a_body(workers: Workers) -> None:
    """The same bug in an If in a Loop: its message names the depth, so each step out changes the words."""
    text = """g (float x, int64 n, bool t) => (float y) <float one = {1.0}> {
        y = Loop (n, "", x) <body = b (int64 i, bool c, float s) => (bool c, float r) {
            r = If (t) <then_branch = f () => (float v) { a = Dropout (s)  d = Div (one, s)  v = Mul (d, a) },
                        else_branch = e () => (float w) { w = Neg (one) }> }> }"""
    fed = {"x": np.ones((), np.float32), "n": np.array(1), "t": np.array(True)}
    case = Case(OnnxProgram.of(parse_model(HEAD + text)), fed)
    premise = find(case, [resolve("onnxruntime")], None, workers)
    form = OnnxReduction()
    start, journal = form.subject(case), Journal("")
    found = reduce_failure(form, start, premise, [workers], "fingerprint", journal, Listeners(), [BODIES])
    assert sorted(node.op_type for node in found.best.model.graph.node) == ["Div", "Dropout", "Mul"]


def decorated(start: Subject, in_loop: bool) -> Subject:
    """A subject whose every part says something that no edit of another part may change."""
    model = onnx.ModelProto()
    model.CopyFrom(onnx.shape_inference.infer_shapes(start.model))
    graph = model.graph
    if in_loop:
        body = onnx.GraphProto(name="body")
        body.CopyFrom(graph)
        state = body.input[0].name
        held = onnx.ValueInfoProto.FromString(body.input[0].SerializeToString())
        del body.input[:]
        body.input.extend(
            [
                onnx.helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, []),
                onnx.helper.make_tensor_value_info("goes_on", onnx.TensorProto.BOOL, []),
                held,
            ]
        )
        results = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in body.output]
        del body.output[:]
        body.node.add(op_type="Identity", input=["goes_on"], output=["goes_on_then"])
        body.node.add(op_type="Identity", input=[state], output=["state_then"])
        body.output.extend(
            [
                onnx.helper.make_tensor_value_info("goes_on_then", onnx.TensorProto.BOOL, []),
                onnx.ValueInfoProto(name="state_then", type=held.type),
                *results,
            ]
        )
        outer = onnx.GraphProto(name="outer")
        outer.input.add(name="the_input", type=held.type)
        loop = outer.node.add(op_type="Loop", input=["turns", "", "the_input"], output=["last", "stack"])
        loop.attribute.append(onnx.helper.make_attribute("body", body))
        outer.initializer.append(onnx.numpy_helper.from_array(np.array(2), "turns"))
        outer.output.add(name="last", type=held.type)
        rank = len(results[0].type.tensor_type.shape.dim) + 1
        outer.output.append(
            onnx.helper.make_tensor_value_info("stack", results[0].type.tensor_type.elem_type, [None] * rank)
        )
        graph.CopyFrom(outer)
    model.producer_name, model.doc_string, model.domain = "a tool", "a model", "a.domain"
    model.metadata_props.add(key="who", value="somebody")
    graph.doc_string = "a graph"
    graph.quantization_annotation.add(tensor_name="the_input")
    for place, (_, node) in enumerate(nodes(graph)):
        node.name, node.doc_string = f"node {place}", f"what node {place} does"
        node.metadata_props.add(key="place", value=str(place))
    onnx.checker.check_model(model, full_check=True)
    return Subject(model, start.inputs, {})


def declared(subject: Subject) -> Iterator[tuple[tuple[Path, str, str], bytes]]:
    """The declared type of each value, by where it is declared."""
    for path, graph in graphs(subject.model.graph):
        kinds = {"output": graph.output, "value": graph.value_info, "input": graph.input if path else ()}
        for kind, infos in kinds.items():
            for info in infos:
                yield (path, kind, info.name), info.type.SerializeToString(deterministic=True)


def known_types(subject: Subject) -> dict[tuple[Path, str], onnx.TypeProto]:
    return {
        (path, name): type_
        for path, graph in graphs(infer_types(subject).graph)
        for name, type_ in types_of(graph).items()
        if is_shaped(type_)
    }


def unstated(before: Subject, after: Subject) -> list[str]:
    """What differs between two subjects beside nodes, values and types: texts, names, and types as declared
    of values whose type is the same.
    """
    found = [
        f"{field} of the {owner}"
        for owner, one, other, content in (
            ("model", before.model, after.model, _FIELDS),
            ("graph", before.model.graph, after.model.graph, _CONTENT),
        )
        for field in set(one.DESCRIPTOR.fields_by_name.keys()) - content
        if getattr(one, field) != getattr(other, field)
    ]
    there = {(path, first_output(node)): node for path, node in nodes(after.model.graph)}
    found += [
        f"{field} of {first_output(node)}"
        for path, node in nodes(before.model.graph)
        if (now := there.get((path, first_output(node)))) is not None
        and node.op_type != "Loop"  # its name may go to a node of its body
        for field in ("name", "doc_string", "metadata_props")
        if getattr(node, field) != getattr(now, field)
    ]
    types, then = known_types(before), known_types(after)
    now_declared = dict(declared(after))
    for (path, kind, name), type_ in declared(before):
        same = types.get((path, name)) is not None and types.get((path, name)) == then.get((path, name))
        if same and now_declared.get((path, kind, name), type_) != type_:
            found.append(f"the type of the {kind} {name}")
    order = [first_output(node) for node in before.model.graph.node]
    kept = [name for node in after.model.graph.node if (name := first_output(node)) in order]
    return found + ["the order of nodes"] * (kept != [name for name in order if name in kept])


PASSES = [each for each in OnnxReduction().passes() if each.name not in ("model", "functions")]


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(start=subjects(), in_loop=st.booleans(), data=st.data())
def test_an_edit_changes_only_what_it_states(
    each: OnnxPass, start: Subject, in_loop: bool, data: Any
) -> None:
    start = decorated(start, in_loop)
    edits = list(each.edits(start))
    offset = data.draw(st.integers(0, max(0, len(edits) - 15)))
    for edit in edits[offset : offset + 15]:
        found = edit.apply(start)
        if found is not None:
            assert not unstated(start, found), edit.label


def without_stated(subject: Subject, touch: str) -> onnx.ModelProto:
    """The model without what an edit of its surroundings states, by the key that the edit touches."""
    model = onnx.ModelProto()
    model.CopyFrom(subject.model)
    what = touch.removeprefix("model:")
    owner, _, field = what.partition(".")
    held = [graph for _, graph in graphs(model.graph)]
    if field:
        (model if owner == "model" else model.graph).ClearField(field)
    for _, node in nodes(model.graph):
        if what in ("node names", f"name of {first_output(node)}"):
            node.ClearField("name")
        elif what == "texts":
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
        elif what == "versions":
            # A lower opset writes some attributes as inputs, and the other way round.
            del node.input[:], node.attribute[:]
    if what == "texts":
        for graph in held[1:]:
            graph.ClearField("doc_string")
    for graph in held:
        if what == "value_info":
            del graph.value_info[:]
        elif what == "versions":
            del graph.initializer[:]
    if what in ("versions", "imports"):
        del model.opset_import[:]
    if what == "versions":
        model.ClearField("ir_version")
    return model


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(start=subjects(), in_loop=st.booleans())
def test_an_edit_of_the_surroundings_changes_only_the_field_that_it_states(
    start: Subject, in_loop: bool
) -> None:
    start, tried = decorated(start, in_loop), set[str]()
    for edit in MODEL.edits(start):
        (touch,) = edit.touches
        found = edit.apply(start)
        # The last two edits declare all types anew, and give everything another name.
        if touch.startswith("model:") and touch != "model:types" and found is not None:
            assert without_stated(start, touch) == without_stated(found, touch), edit.label
            tried.add(touch)
    assert len(tried) >= 6


CALLS = """<ir_version: 10, opset_import: ["" : 20, "local" : 1], producer_name: "a tool">
    g (float[2,3] x) => (float[2,3] y) { a = local.f (x, x)  b = local.h (x)  c = Add (a, b)  y = Neg (c) }
    <domain: "local", opset_import: ["" : 20]> f (u, unread) => (w) {
        one = Constant <value_float = 1.0> ()  p = Abs (u)  q = Add (p, one)  w = Tanh (q) }
    <domain: "local", opset_import: ["" : 20, "local" : 1]> h (u) => (w) {
        p = Relu (u)  q = local.f (p, p)  w = Softmax <axis = 1> (q) }"""


def test_an_edit_of_a_function_changes_it_and_its_calls_only() -> None:
    model = parse_model(CALLS)
    start, tried = Subject(model, {"x": np.ones((2, 3), np.float32)}, {}), set[str]()
    for edit in FUNCTIONS.edits(start):
        found = edit.apply(start)
        (name,) = {touch.split("/")[0].split(":")[2] for touch in edit.touches}
        if found is None:
            continue
        rests = []
        for each in (start.model, found.model):
            rest = onnx.ModelProto()
            rest.CopyFrom(each)
            called = {function.name for function in rest.functions}
            for nodes_ in (rest.graph.node, *(function.node for function in rest.functions)):
                for node in nodes_:
                    if node.op_type == name:
                        del node.input[:]
            del rest.functions[[function.name for function in rest.functions].index(name)]
            rests.append((rest, called))
        (before, _), (after, called) = rests
        # A function that only the changed one called may go with its last call.
        left = [function for function in before.functions if function.name in called]
        del before.functions[:]
        before.functions.extend(left)
        assert before == after, edit.label
        tried.add(name)
    assert tried == {"f", "h"}


@dataclass
class OpenTanh:
    """A failure of a Tanh in a model that leaves a size of its inputs or outputs open, or a whole shape."""

    open_ones: str
    is_declared: Callable[[onnx.TypeProto], bool]

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for each in subjects:
            graph = each.model.graph
            fails = any(node.op_type == "Tanh" for node in graph.node)
            is_open = not all(self.is_declared(info.type) for info in getattr(graph, self.open_ones))
            yield CheckResult("same" if fails and is_open else "gone")


@pytest.mark.parametrize(
    ("open_ones", "is_declared", "types"),
    [
        ("input", is_static, "(float[N,M] x) => (float[N,M] y)"),
        ("output", is_static, "(float[2,3] x) => (float[N,M] y)"),
        ("output", is_shaped, "(float[2,3] x) => (float[] y)"),
    ],
)
def test_an_end_of_a_part_keeps_the_sizes_that_the_model_leaves_open(
    workers: Workers, open_ones: str, is_declared: Callable[[onnx.TypeProto], bool], types: str
) -> None:
    """Ends of static sizes lost such a failure: 15 checks for nodes instead of 6 with inputs, 84 instead of 4
    in a host with outputs, 373 instead of 5 with outputs without a shape.
    """
    names = ["x", *(f"v{place}" for place in range(30)), "y"]
    kinds = ["Abs", "Neg"] * 10 + ["Tanh"] + ["Exp"] * 10
    nodes = " ".join(
        f"{after} = {kind} ({before})"
        for kind, before, after in zip(kinds, names[:-1], names[1:], strict=True)
    )
    model = parse_model(HEAD + f"g {types} {{ {nodes} }}")
    start = Subject(model, {"x": np.ones((2, 3), np.float32)}, {})
    found = reduce_by_check(
        OnnxReduction(), start, [OpenTanh(open_ones, is_declared)], workers, None, Journal(""), Listeners()
    )
    assert [node.op_type for node in found.best.model.graph.node] == ["Tanh"]
    assert found.node_checks <= 8


@dataclass
class OpenConcat:
    """A failure of a Concat of two tensors whose result has no declared sizes."""

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for each in subjects:
            (info,) = each.model.graph.output
            joined = [len(node.input) for node in each.model.graph.node if node.op_type == "Concat"]
            open_ = is_shaped(info.type) and not is_static(info.type)
            yield CheckResult("same" if joined == [2] and open_ else "gone")


def test_open_sizes_stay_where_an_edit_changes_what_they_stand_for(workers: Workers) -> None:
    """The sizes of a Concat's result change with those of its inputs; the declaration holds for both."""
    text = "g (float[2,3] x, float[2,2] w) => (float[N,M] y) { a = Abs (x)  y = Concat <axis = 1> (a, w) }"
    start = Subject(
        parse_model(HEAD + text), {"x": np.ones((2, 3), np.float32), "w": np.ones((2, 2), np.float32)}, {}
    )
    found = reduce_by_check(OnnxReduction(), start, [OpenConcat()], workers, None, Journal(""), Listeners())
    (tensor,) = found.best.model.graph.initializer
    assert list(tensor.dims) == [1, 1]  # an output of another rank is declared anew
    assert [set(node.input) for node in found.best.model.graph.node] == [{tensor.name}]
    assert found.minimal
