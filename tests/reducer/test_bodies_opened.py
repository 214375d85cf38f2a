"""Bodies opened by one mechanism: a turn of whatever runs one many times, and what goes in and comes out of
it, part by part.
"""

import numpy as np
import pytest
from test_shrink_examples import HEAD, operators, reduced, runs, subject, valid

from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.structure import all_nodes, copied
from opsieve.reducer.onnx_edit.openings import splice_turn
from opsieve.reducer.passes.bodies import PASS as BODIES

X = np.array([[1, -2], [3, 4], [5, -6]], np.float32)
SCAN = f"""{HEAD} g (float[2] s0, float[2] u0, float[3,2] x, float[3,2] w) => (float[2] s, float[3,2] y) {{
    s, u, y, z = Scan <num_scan_inputs: int = 2,
        body = b (float[2] a, float[2] e, float[2] i, float[2] j) =>
            (float[2] a2, float[2] e2, float[2] o, float[2] o2) {{
                a2 = Add (a, i) e2 = Mul (e, i) o = Tanh (a2) o2 = Neg (j) }}> (s0, u0, x, w) }}"""


def scan() -> Subject:
    return subject(SCAN, s0=np.zeros(2, np.float32), u0=np.ones(2, np.float32), x=X, w=X)


def opened(start: Subject, key: str, operator: str) -> Subject:
    """One turn in the place of all, elements taken by nodes and results stacked: what gives the same
    values.
    """
    model = copied(start.model)
    assert splice_turn(model, (), key, {}, flat=False) == {}
    found = Subject(model, start.inputs, {})
    assert valid(found)
    assert operator not in operators(found)
    return found


def test_a_scan_of_one_turn_is_its_body() -> None:
    text = SCAN.replace("float[3,2]", "float[1,2]")
    fed = {"s0": np.zeros(2, np.float32), "u0": np.ones(2, np.float32), "x": X[:1], "w": X[:1]}
    start = subject(text, **fed)
    found = opened(start, "s", "Scan")
    for got, wanted in zip(runs(found), runs(start), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("axis", "backward"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_axes_and_directions_of_a_scan_are_kept(axis: int, backward: int) -> None:
    shape = "float[1,2]" if axis == 0 else "float[2,1]"
    start = subject(
        f"""{HEAD} g (float[2] s0, {shape} x) => (float[2] s, {shape} y) {{
            s, y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [{axis}], scan_output_axes: ints = [{axis}],
                scan_input_directions: ints = [{backward}],
                body = b (float[2] a, float[2] i) => (float[2] a2, float[2] o) {{ a2 = Add (a, i) o = Neg (a2) }}> (s0, x) }}""",
        s0=np.ones(2, np.float32),
        x=X[:1] if axis == 0 else X[:1].T.copy(),
    )
    found = opened(start, "s", "Scan")
    state = 1 + X[0]  # onnx's evaluator knows no other axis than 0, and no way back
    np.testing.assert_array_equal(runs(found)[0], state)
    np.testing.assert_array_equal(runs(found)[1], -(state[None] if axis == 0 else state[:, None]))


def test_an_unused_state_and_what_is_scanned_for_nothing_go() -> None:
    """The failure needs a Scan with Tanh in it: one state, one scanned input and one result are all that is
    left.
    """

    def keeps(candidate: Subject) -> bool:
        inner = [node for node in candidate.model.graph.node if node.op_type == "Scan"]
        return (
            bool(inner) and "Tanh" in {node.op_type for node in all_nodes(inner)} and len(runs(candidate)) > 0
        )

    end = reduced(scan(), [BODIES], keeps)
    (node,) = (item for item in end.model.graph.node if item.op_type == "Scan")
    assert len(node.input) <= 2
    assert sorted(operators(end)) in (["Add", "Scan", "Tanh"], ["Scan", "Tanh"])


def test_a_state_of_a_loop_goes() -> None:
    start = subject(
        f"""{HEAD} g (int64 m, bool c, float[2] x, float[2] z) => (float[2] y) {{
            y, w = Loop (m, c, x, z) <body = b (int64 i, bool p, float[2] s, float[2] t) =>
                (bool q, float[2] r, float[2] v) {{ q = Identity (p) r = Add (s, t) v = Mul (t, t) }}> }}""",
        m=2,
        c=True,
        x=np.ones(2, np.float32),
        z=np.ones(2, np.float32),
    )
    end = reduced(start, [BODIES], lambda candidate: {"Loop", "Add"} <= set(operators(candidate)))
    (node,) = (item for item in end.model.graph.node if item.op_type == "Loop")
    assert "Mul" not in operators(end)
    assert len(node.output) == 1


def test_nested_bodies_open_from_the_outside_and_from_the_inside() -> None:
    """A Tanh in an If in a Scan in a Loop: lifted out, whatever stands around it."""
    start = subject(
        f"""{HEAD} g (int64 m, bool c, float[2] x, float[3,2] w) => (float[2] y) {{
            y = Loop (m, c, x) <body = b (int64 i, bool p, float[2] s) => (bool q, float[2] r) {{
                q = Identity (p)
                r, h = Scan <num_scan_inputs: int = 1, body = d (float[2] a, float[2] k) => (float[2] a2, float[2] o) {{
                    a2 = If (p) <then_branch = t () => (float[2] n) {{ n = Tanh (a) }},
                                 else_branch = e () => (float[2] n2) {{ n2 = Neg (k) }}>
                    o = Identity (a2) }}> (s, w) }}> }}""",
        m=2,
        c=True,
        x=np.ones(2, np.float32),
        w=X,
    )

    def keeps(candidate: Subject) -> bool:
        return "Tanh" in operators(candidate)

    end = reduced(start, [BODIES], keeps)
    assert not {"Loop", "Scan", "If"} & set(operators(end))


def test_a_sequence_map_is_its_body_on_the_first_element() -> None:
    start = subject(
        f"""{HEAD} g (float[2] x) => (seq(float[2]) y) {{
            s = SequenceConstruct (x)
            y = SequenceMap (s) <body = b (float[2] e) => (float[2] o) {{ o = Tanh (e) }}> }}""",
        x=np.ones(2, np.float32),
    )
    found = opened(start, "y", "SequenceMap")
    assert sorted(operators(found)) == ["SequenceAt", "SequenceConstruct", "SequenceConstruct", "Tanh"]


@pytest.mark.parametrize("outer", ["Loop", "Scan"])
def test_a_loop_without_a_condition_is_opened_in_a_body(outer: str) -> None:
    """onnx's strict inference refuses one whose body's condition has no type, which every candidate here
    had.
    """
    inner = """c = Constant <value_int: int = 2> ()
        t = Loop (c, "", s) <body = f (int64 j, bool p, float[3] v) => (bool q, float[3] w) {
            q = Identity (p) w = Tanh (v) }>
        o = Neg (t)"""
    if outer == "Loop":
        body = f"b (int64 i, bool g, float[3] s) => (bool h, float[3] o) {{ h = Identity (g) {inner} }}"
        text = f'{HEAD} g (int64 m, float[3] x) => (float[3] y) {{ y = Loop (m, "", x) <body = {body}> }}'
        start = subject(text, m=np.array(3), x=X[0].repeat(2)[:3])
    else:
        text = f"""{HEAD} g (float[2,3] x) => (float[2,3] y) {{
            y = Scan <num_scan_inputs: int = 1, body = b (float[3] s) => (float[3] o) {{ {inner} }}> (x) }}"""
        start = subject(text, x=np.ones((2, 3), np.float32))
    end = reduced(start, [BODIES], lambda candidate: "Tanh" in operators(candidate))
    assert not {"Loop", "Scan"} & set(operators(end))
