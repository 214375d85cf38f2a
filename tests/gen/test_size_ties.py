"""What a declaration ties together is what breaks, or shows in another type, when one size alone changes."""

import pytest

from opsieve.gen.analysis.size_ties import MarkedSize, size_ties
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.declarations.tensor import Attributes, Tensor

Shape = tuple[int, ...]


def tied(name: str, shapes: list[Shape], out: Shape, **attrs: object) -> set[frozenset[tuple[int, int]]]:
    """The classes of dimensions, as sets of (tensor, axis), that have more than one member."""
    given: Attributes = dict(attrs)
    ties = size_ties(operators()[name], [Tensor("", "float32", shape) for shape in shapes], given, [out])
    assert ties is not None
    classes = [
        {place}
        for number, shape in enumerate([*shapes, out])
        for place in ((number, axis) for axis in range(len(shape)))
    ]
    for a, b in ties:
        one, other = next(c for c in classes if a in c), next(c for c in classes if b in c)
        if one is not other:
            classes.remove(other)
            one |= other
    return {frozenset(found) for found in classes if len(found) > 1}


@pytest.mark.parametrize(
    ("name", "shapes", "out", "attrs", "expected"),
    [
        ("Add", [(4, 5), (5,)], (4, 5), {}, [{(0, 0), (2, 0)}, {(0, 1), (1, 0), (2, 1)}]),
        ("Add", [(5, 5), (5,)], (5, 5), {}, [{(0, 0), (2, 0)}, {(0, 1), (1, 0), (2, 1)}]),
        ("MatMul", [(4, 5), (5, 6)], (4, 6), {}, [{(0, 0), (2, 0)}, {(0, 1), (1, 0)}, {(1, 1), (2, 1)}]),
        (
            "Gemm",
            [(5, 4), (5, 6)],
            (4, 6),
            {"transA": 1},
            [{(0, 1), (2, 0)}, {(0, 0), (1, 0)}, {(1, 1), (2, 1)}],
        ),
        ("Transpose", [(2, 3)], (3, 2), {"perm": [1, 0]}, [{(0, 0), (1, 1)}, {(0, 1), (1, 0)}]),
        ("Concat", [(2, 3), (2, 4)], (2, 7), {"axis": 1}, [{(0, 0), (1, 0), (2, 0)}]),
        (
            "Conv",
            [(1, 4, 8), (6, 4, 3)],
            (1, 6, 6),
            {},
            [{(0, 0), (2, 0)}, {(0, 1), (1, 1)}, {(1, 0), (2, 1)}],
        ),
        ("Conv", [(1, 4, 8), (6, 2, 3)], (1, 6, 6), {"group": 2}, [{(0, 0), (2, 0)}, {(1, 0), (2, 1)}]),
    ],
)
def test_ties_are_what_the_operator_asks(
    name: str, shapes: list[Shape], out: Shape, attrs: Attributes, expected: list[set[tuple[int, int]]]
) -> None:
    assert tied(name, shapes, out, **attrs) == {frozenset(places) for places in expected}


def test_a_node_that_the_declaration_does_not_know_has_none() -> None:
    ins: list[Tensor | None] = [Tensor("", "float32", (4, 5)), Tensor("", "float32", (6, 7))]
    assert size_ties(operators()["MatMul"], ins, {}, [(4, 7)]) is None
    assert size_ties(operators()["Relu"], ins[:1], {}, [(4, 6)]) is None


def test_a_size_is_itself_again_after_what_was_added_is_taken() -> None:
    ties: set[tuple[tuple[int, int], tuple[int, int]]] = set()
    a, b = MarkedSize(5, (0, 0), 0, ties), MarkedSize(5, (1, 0), 0, ties)
    assert a + 3 - 3 == b
    assert ties == {((0, 0), (1, 0))}
    ties.clear()
    assert (a + 1, a * 2, a // 2, hash(a)) == (6, 10, 2, hash(5))
    assert a + b == 10
    assert not ties
