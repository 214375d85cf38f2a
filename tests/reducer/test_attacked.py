"""Edits that a person made by hand and that once beat a result: each is an edit of some dimension now, or no
valid model.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from brute_force import smaller_models
from onnx import helper, numpy_helper
from onnx.parser import parse_model
from shrinking import operators, reduced, subject

from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.validity import check_model
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.onnx_edit.parts import onnx_parts
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.problem.order import count_nodes, simpler
from opsieve.reducer.sessions.reduction import Listeners, reduce_by_check

PASSES = OnnxReduction().passes()
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def stored(end: Subject) -> list[np.ndarray]:
    return [numpy_helper.to_array(tensor) for tensor in end.model.graph.initializer]


def test_one_tensor_is_read_for_another_of_another_shape_or_type() -> None:
    start = subject(
        f"{HEAD} g (int32 x) => (int32[1] y) <int32[1] c = {{0}}> {{ y = Mod (x, c) }}", x=np.int32(0)
    )
    end = reduced(start, PASSES, lambda now: operators(now) == ["Mod"] and len(now.inputs) == 1)
    assert (list(end.model.graph.node[0].input), stored(end)) == (["x", "x"], [])
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g () => (float y) <float[1] a = {0}, int64[1] c = {0}> { y'
        " = ReduceSum <keepdims: int = 0> (a, c) }"
    )
    end = reduced(subject(text), PASSES, lambda now: all(now.model.graph.node[0].input[1:2] or [""]))
    assert [array.dtype for array in stored(end)] == [np.int64]


def test_the_body_of_a_loop_that_must_stay_hands_on_what_it_takes() -> None:
    """Types that inference does not tell, and those of another element type, are no obstacle; what is
    declared follows.
    """
    text = f"""{HEAD} g () => (bool[n, m] y) <int64[1] turns = {{0}}> {{
        y = Loop (turns, "") <body = body (int64 i, bool go) => (bool on, bool[k] r) {{
            a = Cast <to: int = 1> (i)  b = IsInf (a)  r = Unsqueeze (b, turns)  on = Identity (go) }}> }}"""
    end = reduced(subject(text), PASSES, lambda now: operators(now)[:1] == ["Loop"])
    assert count_nodes(end.model) == (1, 0)
    body = end.model.graph.node[0].attribute[0].g
    elements = {info.name: info.type.tensor_type.elem_type for info in body.input}
    assert all(info.type.tensor_type.elem_type == elements[info.name] for info in body.output)


def test_types_of_what_an_optional_holds_and_of_texts_become_plain() -> None:
    end = reduced(
        subject(f"{HEAD} g (bool x) => (optional(bool) y) {{ y = Optional (x) }}", x=True),
        PASSES,
        lambda _: True,
    )
    assert [array.dtype for array in (*stored(end), *end.inputs.values())] == [np.float32]
    text = f"{HEAD} g (string[1] x) => (string[1] y) {{ y = Identity (x) }}"
    end = reduced(subject(text, x=np.array(["a"], object)), PASSES, lambda _: True)
    assert [array.dtype for array in (*stored(end), *end.inputs.values())] == [np.float32]


def test_the_opset_falls_to_one_in_which_operators_had_this_form_and_nodes_lose_their_names() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[4] y) <int64[2] p = {1, 1}> { [n]'
        " y = Pad (x, p) }"
    )
    end = reduced(subject(text, x=np.ones(2, np.float32)), PASSES, lambda now: operators(now) == ["Pad"])
    assert ([entry.version for entry in end.model.opset_import], end.model.graph.node[0].name) == ([13], "")
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[1] y) <int64[1] a = {0}> { y ='
        " ReduceMax (x, a) }"
    )
    kept = reduced(
        subject(text, x=np.ones(2, np.float32)), PASSES, lambda now: len(now.model.graph.node[0].input) == 2
    )
    assert [entry.version for entry in kept.model.opset_import] == [18]  # axes were an attribute before


def test_a_bound_of_clip_that_is_a_vector_is_no_valid_model() -> None:
    for shape, fault in (("", ""), ("[1]", "Clip breaks rule 0")):
        model = parse_model(
            f"{HEAD} g (float[2] x) => (float[2] y) <float{shape} c = {{0}}> {{ y = Clip (x, c) }}"
        )
        assert check_model(model, {}).fault == fault


def test_a_function_that_must_stay_is_reduced_inside() -> None:
    """Bodies in it, its inputs and outputs, its constants: what goes out of the function goes out of its
    calls.
    """
    start = subject(
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2, 3] x, float[2, 3] w) => (float[2, 3] y) { y, z = local.f (x, w) }
        <domain: "local", opset_import: ["" : 17]>
        f (a, b) => (p, q) {
            yes = Constant <value = bool {1}> ()
            p, q = If (yes) <
                then_branch = t () => (tp, tq) { ta = Tanh (a)  tp = Exp (ta)  tq = Less (ta, b) },
                else_branch = e () => (ep, eq) { ea = Sqrt (a)  eb = Neg (ea)  ep = Abs (eb)  eq = Less (ea, b) }> }""",
        x=np.ones((2, 3), np.float32),
        w=np.ones((2, 3), np.float32),
    )
    end = reduced(
        start,
        PASSES,
        lambda now: [node.op_type for node in now.model.graph.node] == ["f"] and "If" in inner(now),
    )
    assert sorted(inner(end)) == ["Constant", "If", "Sqrt", "Tanh"]  # a branch gives what it has made itself
    function = end.model.functions[0]
    assert (len(function.input), len(function.output), len(end.inputs)) == (1, 1, 0)
    assert (len(end.model.graph.node[0].input), len(end.model.graph.node[0].output)) == (1, 1)


@pytest.mark.parametrize(
    ("value", "kept"),
    [("value_float = 1.5", 0.0), ("value_floats = [2.0, 4.5]", [0.0]), ("value_ints = [3, 4]", [0])],
)
def test_numbers_of_a_constant_become_plain_where_they_stand(value: str, kept: object) -> None:
    text = (
        f"{HEAD} g () => (float y) {{ c = Constant <{value}> ()  f = Cast <to = 1> (c)  y = ReduceSum"
        " <keepdims = 0> (f) }"
    )

    def keeps(now: Subject) -> bool:
        return any(
            node.op_type == "Constant" and node.attribute[0].name != "value" for node in now.model.graph.node
        )

    end = reduced(subject(text), PASSES, keeps)
    constants = [node for node in end.model.graph.node if node.op_type == "Constant"]
    assert [helper.get_attribute_value(node.attribute[0]) for node in constants] == [kept]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_no_single_change_that_others_make_beats_a_certificate(workers: Workers, seed: int) -> None:
    """By code that is none of the reducer's; what the validator refuses is no model of interest."""
    program = generate("mix", seed, GenRequest(nodes=10)).program
    start = Subject(program.proto, seeded_inputs(program.proto, 0), {})
    rng = random.Random(seed)
    wanted = rng.choice(list(all_nodes(start.model.graph.node)))
    names = {attribute.name for attribute in wanted.attribute}

    def keeps(now: Subject) -> bool:
        return any(
            node.op_type == wanted.op_type
            and len(node.input) >= len(wanted.input)
            and names <= {attribute.name for attribute in node.attribute}
            for node in all_nodes(now.model.graph.node)
        )

    test = Keeps(keeps)
    found = reduce_by_check(OnnxReduction(), start, [test], workers, None, Journal(""), Listeners())
    assert found.minimal or any(part.is_open for part in found.certificate.parts)
    smaller = [
        (what, now)
        for what, model, inputs in smaller_models(found.best.model, found.best.inputs)
        if simpler(now := Subject(model, inputs, {}), found.best) and keeps(now)
    ]
    complaints = OnnxValidator(workers, found.best).complaints([now for _, now in smaller])
    assert [what for (what, _), complaint in zip(smaller, complaints, strict=True) if not complaint] == []


@dataclass
class Keeps:
    """The failure is whatever a function says."""

    ask: Callable[[Subject], bool]

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for each in subjects:
            yield CheckResult("same" if self.ask(each) else "gone")


def inner(now: Subject) -> list[str]:
    return [node.op_type for function in now.model.functions for node in all_nodes(function.node)]


def test_a_name_that_one_node_needs_leaves_the_others_without() -> None:
    text = f"{HEAD} g (float[2] x) => (float[2] z) {{ [a] y = Relu (x) [b] z = Exp (y) }}"
    start = subject(text, x=np.ones(2, np.float32))
    end = reduced(start, PASSES, lambda now: len(operators(now)) == 2 and bool(now.model.graph.node[0].name))
    assert [bool(node.name) for node in end.model.graph.node] == [True, False]


def test_a_sequence_that_is_fed_becomes_short_small_and_plain() -> None:
    text = (
        f"{HEAD} g (seq(float[2, 3]) s) => (float[n, m] y) {{ e = SequenceErase (s) y = ConcatFromSequence"
        " <axis: int = 0> (e) }"
    )
    start = Subject(parse_model(text), {"s": [np.full((2, 3), each, np.float32) for each in (5, 6, 7)]}, {})
    end = reduced(
        start, PASSES, lambda now: len(operators(now)) == 2 and len(next(iter(now.inputs.values()))) > 1
    )
    (left,) = end.inputs.values()
    assert [each.tolist() for each in left] == [0.0, 0.0]
    end = reduced(start, PASSES, lambda now: operators(now)[-1:] == ["ConcatFromSequence"])
    assert list(end.inputs.values()) == [[]]


def test_a_state_goes_whose_name_a_body_uses_again() -> None:
    text = f"""{HEAD} g (float[2, 3] x, float[3] s0, float[3] u0) => (float[3] y) {{
        y, u, z = Scan <num_scan_inputs = 1, body = b (float[3] s, float[3] u, float[3] e) => (float[3] s1, float[3] u1, float[3] o) {{
            s1 = Add (s, e)  u1 = Mul (u, u)  o = Exp (s1) }}> (s0, u0, x) }}"""
    values = {"x": np.ones((2, 3), np.float32), "s0": np.ones(3, np.float32), "u0": np.ones(3, np.float32)}
    end = reduced(Subject(parse_model(text), values, {}), PASSES, lambda now: operators(now)[:1] == ["Scan"])
    assert (count_nodes(end.model), len(end.model.graph.node[0].output)) == ((1, 0), 1)


def test_an_axis_of_one_tensor_goes_or_shrinks_where_broadcasting_gives_it_back(workers: Workers) -> None:
    """No class of dimensions that are tied changes one tensor alone; the certificate says of each axis what
    became of it.
    """
    text = f"{HEAD} g (float[2, 3] x) => (float[2, 3] y) <float[2, 1, 3] w = {{1, 2, 3, 4, 5, 6}}> {{ v = Squeeze (w, a) y = Add (x, v) }}"
    text = text.replace("{1, 2, 3, 4, 5, 6}>", "{1, 2, 3, 4, 5, 6}, int64[1] a = {1}>")
    start = subject(text, x=np.ones((2, 3), np.float32))

    def keeps(now: Subject) -> bool:  # the first operand of the sum has two axes
        infos = {info.name: info.type for info in (*now.model.graph.input, *now.model.graph.value_info)}
        sums = [node for node in now.model.graph.node if node.op_type == "Add"]
        type_ = infos.get(sums[0].input[0]) if sums else None
        return type_ is not None and [dim.dim_value for dim in type_.tensor_type.shape.dim] == [2, 3]

    found = reduce_by_check(OnnxReduction(), start, [Keeps(keeps)], workers, None, Journal(""), Listeners())
    assert (operators(found.best), found.minimal) == (["Add"], True)
    axes = [part for part in found.certificate.parts if part.kind == "axes of one tensor"]
    assert len(axes) == 2
    assert all(part.gone or part.invalid for part in axes)


def test_an_input_that_inference_does_not_let_become_a_constant_was_tried(workers: Workers) -> None:
    """Shape inference refuses pads of two axes only where it knows their values."""
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[1, 2] x) => (int64[m, n] y) <int64[1] c = {0}> {'
    )
    start = subject(f'{text} y = Pad (x, x, "", c) }}', x=np.zeros((1, 2), np.int64))

    def keeps(now: Subject) -> bool:
        return operators(now) == ["Pad"] and len(now.model.graph.node[0].input) == 4

    found = reduce_by_check(OnnxReduction(), start, [Keeps(keeps)], workers, None, Journal(""), Listeners())
    (line,) = [part for part in found.certificate.parts if part.kind == "inputs"]
    assert (line.invalid, line.why) == (1, "")


def test_edits_of_parts_whose_axes_and_places_are_gone_raise_nothing() -> None:
    """One list of parts is tried on what its first edits have left."""
    text = f"{HEAD} g (float[1, 1] x) => (float[1, 1] y) <float[1, 1] w = {{0}}> {{ a = Add (x, w) y = Mul (a, x) }}"
    start = subject(text, x=np.ones((1, 1), np.float32))
    later = subject(f"{HEAD} g (float x) => (float y) {{ y = Neg (x) }}", x=np.ones((), np.float32))
    for part in onnx_parts(start):
        for edit in part.edits:
            found = edit.apply(later)
            assert found is None or operators(found) in (["Neg"], [])  # no node is no model


def test_other_values_are_read_in_each_place_and_what_nothing_reads_of_many_results_goes(
    workers: Workers,
) -> None:
    """A result read for a constant, which goes; a bool result for a float; a result of several less."""

    def left(text: str, fed: dict[str, object], keeps: Callable[[Subject], bool]) -> Subject:
        form, test = OnnxReduction(), Keeps(keeps)
        start = subject(text, **fed)
        found = reduce_by_check(form, start, [test], workers, None, Journal(""), Listeners())
        assert found.minimal
        return found.best

    text = f"{HEAD} g (int64[1] c) => (int64[1] b) <float[1] f = {{0}}> {{ a = Shape (f) b = Concat <axis = 0> (c) }}"
    end = left(text, {"c": np.zeros(1, np.int64)}, lambda now: {"Shape", "Concat"} <= {*operators(now)})
    assert (operators(end), len(end.inputs) + len(stored(end))) == (["Shape", "Concat"], 1)
    text = f"{HEAD} g (float[2] x) => (float[1] a, float[1] b) {{ a, b = Split (x) }}"
    end = left(text, {"x": np.ones(2, np.float32)}, lambda now: operators(now) == ["Split"])
    assert len(end.model.graph.node[0].output) == 1
    text = f"{HEAD} g (float x) => (float b) {{ a = Exp (x) b = Min (x, a) }}"
    end = left(text, {"x": np.ones((), np.float32)}, lambda now: operators(now) == ["Exp", "Min"])
    assert len(end.model.graph.node[1].input) == 1
    text = f"{HEAD} g (float x) => (float b) {{ a = Relu (x) b = Relu (x) c = Neg (a) }}"
    end = left(
        text,
        {"x": np.ones((), np.float32)},
        lambda now: operators(now)[:2] == ["Relu", "Relu"] and len(now.model.graph.output) == 1,
    )
    assert operators(end) == ["Relu", "Relu"]
    text = f"{HEAD} g (float[1, 2] x) => (float[2] y) {{ c = Constant <value_ints = [0]> () y = Squeeze (x, c) }}"

    def needs_fed_axes(now: Subject) -> bool:
        return not stored(now) and len(set(filter(None, now.model.graph.node[-1].input))) == 2

    end = left(text, {"x": np.ones((1, 2), np.float32)}, needs_fed_axes)
    assert (operators(end), len(end.inputs)) == (["Squeeze"], 2)


def test_a_node_goes_where_the_other_must_get_back_a_tensor_that_it_shares() -> None:
    """Two inputs were merged before the node went, and each of them was needed then."""
    text = f"{HEAD} g (float[1, 1] a, int64[1] b) => (float[1, 1] y, int64[1] z) {{ y = Gemm (a, a) z = Gather (b, b) }}"
    start = subject(text, a=np.zeros((1, 1), np.float32), b=np.zeros(1, np.int64))
    end = reduced(start, PASSES, lambda now: "Gather" in operators(now) and len(now.inputs) > 1)
    assert (operators(end), len(end.inputs)) == (["Gather"], 2)


def test_of_two_nodes_one_result_is_shown_and_a_call_hands_on_what_is_read(workers: Workers) -> None:
    """Each of these beat a certificate: an output without its node, parameters, a function's imports."""

    def reduced_by(start: Subject, keeps: Callable[[Subject], bool]) -> onnx.ModelProto:
        form, test = OnnxReduction(), Keeps(keeps)
        found = reduce_by_check(form, start, [test], workers, None, Journal(""), Listeners())
        assert found.minimal
        return found.best.model

    text = f"{HEAD} g (float[2] x) => (float[2] y, float[2] z) {{ y = Exp (x) z = Tanh (x) }}"
    left = reduced_by(
        subject(text, x=np.ones(2, np.float32)), lambda now: {"Exp", "Tanh"} <= {*operators(now)}
    )
    assert len(left.graph.output) == 1
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x, float[2] w) => (float[2] y) { y = local.f (x, w, x) }
        <domain: "local", opset_import: ["" : 17, "other" : 1]> f (a, b, c) => (d) { d = Exp (b) }"""
    start = subject(text, x=np.ones(2, np.float32), w=np.zeros(2, np.float32))
    left = reduced_by(start, lambda now: operators(now) == ["f"])
    assert len(left.functions[0].input) == len(left.graph.node[0].input) <= 1
    assert [entry.domain for entry in left.functions[0].opset_import] == [""]


def test_a_function_loses_its_attributes_and_is_searched_inside_its_branches(workers: Workers) -> None:
    """The function has to stay, and what it takes from its call was no obstacle to the certificate."""
    text = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (bool c, float[2] x) => (double[2] y) { y = local.f <to = 11> (c, x) }
        <domain: "local", opset_import: ["" : 17]> f <to> (c, a) => (b) { b = If (c) <
            then_branch = t () => (double[2] p) { o = Cast <to: int = @to> (a) p = Exp (o) },
            else_branch = e () => (double[2] q) { q = Cast <to: int = @to> (a) }> }"""
    start = subject(text, c=np.array(True), x=np.ones(2, np.float32))
    for keeps in (lambda now: "Exp" in inner(now), lambda now: bool(now.model.functions)):
        test = Keeps(keeps)
        found = reduce_by_check(OnnxReduction(), start, [test], workers, None, Journal(""), Listeners())
        assert found.minimal
        function = found.best.model.functions[0]
        assert not function.attribute
        assert not any(each.ref_attr_name for node in all_nodes(function.node) for each in node.attribute)


def test_functions_that_only_functions_call_go_and_lose_what_they_do_not_read(workers: Workers) -> None:
    """No value of a call inside a function is known, and onnx's inliner forgets the imports of its nodes."""
    text = """<ir_version: 8, opset_import: ["" : 17, "outer" : 1, "inner" : 1]>
        g (float[2] x, float[2] w) => (float[2] y) { y = outer.f (x, w) }
        <domain: "outer", opset_import: ["inner" : 1]> f (a, b) => (d) { d = inner.h (a, b) }
        <domain: "inner", opset_import: ["" : 17]> h (a, b) => (d) { d = Exp (a) }"""

    def reduced_by(keeps: Callable[[Subject], bool]) -> onnx.ModelProto:
        start = subject(text, x=np.ones(2, np.float32), w=np.zeros(2, np.float32))
        form, test = OnnxReduction(), Keeps(keeps)
        found = reduce_by_check(form, start, [test], workers, None, Journal(""), Listeners())
        assert found.minimal
        return found.best.model

    both = reduced_by(lambda now: {each.name for each in now.model.functions} == {"f", "h"})
    assert [len(each.input) for each in both.functions] == [1, 1]
    only = reduced_by(lambda now: operators(now) == ["f"])
    assert [each.name for each in only.functions] == ["f"]


def test_a_result_with_two_uses_is_shown_for_one_of_its_readers(workers: Workers) -> None:
    """An output of the model is a use as well, so that one reader is enough."""
    text = f"{HEAD} g (float[2] x) => (float[2] y, float[2] z) {{ a = Exp (x) y = Tanh (a) z = Neg (a) }}"

    def keeps(now: Subject) -> bool:
        made = {node.output[0] for node in now.model.graph.node if node.op_type == "Exp"}
        shown = [info.name for info in now.model.graph.output]
        read = [name for node in now.model.graph.node for name in node.input]
        return any((shown + read).count(name) > 1 for name in made)

    form, test = OnnxReduction(), Keeps(keeps)
    start = subject(text, x=np.ones(2, np.float32))
    found = reduce_by_check(form, start, [test], workers, None, Journal(""), Listeners())
    assert found.minimal
    assert len(operators(found.best)) == 2


def test_the_last_optional_input_becomes_an_empty_name_where_inputs_are_counted() -> None:
    text = f"{HEAD} g (float x) => (float y) <float low = {{0}}, float high = {{1}}> {{ y = Clip (x, low, high) }}"
    start = subject(text, x=np.float32(0))
    end = reduced(start, PASSES, lambda now: len(now.model.graph.node[0].input) == 3)
    assert list(end.model.graph.node[0].input)[1:] == ["", ""]


def test_a_value_without_a_rank_is_not_simpler_than_one_with_sizes() -> None:
    """Fewer bytes declare it; bodies lost the ranks of their results to no gain for a reader."""
    text = """{head} g (float[1] x, bool c) => (float[1] y) {{ y = If (c) <
        then_branch = t () => (float{rank} a) {{ a = Neg (x) }}, else_branch = e () => (float[1] b) {{ b = Abs (x) }}> }}"""
    fed = {"x": np.ones(1, np.float32), "c": np.array(True)}
    ranked, open_, unranked = (
        subject(text.format(head=HEAD, rank=each), **fed) for each in ("[1]", "[N]", "[]")
    )
    assert simpler(ranked, open_)
    assert simpler(open_, unranked)


def test_a_number_that_must_be_negative_becomes_minus_one() -> None:
    """Half of -3 is no plainer."""
    text = f"{HEAD} g (float[1] x) => (float[1] y) <float[1] c = {{-3}}> {{ y = Add (x, c) }}"
    start = subject(text, x=np.ones(1, np.float32))
    end = reduced(start, PASSES, lambda now: any((array < 0).any() for array in stored(now)))
    assert [array.ravel().tolist() for array in stored(end) if (array < 0).any()] == [[-1.0]]
