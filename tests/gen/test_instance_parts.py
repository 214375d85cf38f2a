"""The parts that instances are declared by, and shapes as text."""

import pytest

from opsieve.gen.declarations.builder import FREE
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import (
    Attr,
    Count,
    First,
    Input,
    Instance,
    Numbers,
    Part,
    left_out,
    never,
    one_of,
    since,
    some,
)
from opsieve.gen.declarations.shape_patterns import agree, shape_of
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.random_graph import GenRequest, start


def drawn(*parts: Part, shape: tuple[int, ...] = (2, 6), opset: int = 21) -> Instance:
    """An instance whose first input has a shape."""
    builder = start(GenRequest(opset=opset), 1, "isra")
    made = Operator("Any", parts=parts).instance(builder, builder.leaf("float32", shape))
    assert made is not None
    return made


def shapes(made: Instance) -> list[tuple[int, ...] | None]:
    return [None if tensor is None else tensor.shape for tensor in made.inputs]


def test_names_of_shapes_stand_for_sizes_numbers_and_attributes() -> None:
    made = drawn(
        First("batch width"),
        Attr("heads", (3,)),
        Count("size", (4,)),
        Input("batch heads*size"),
        Input("2*width"),
    )
    assert shapes(made) == [(2, 6), (2, 12), (12,)]
    assert shapes(drawn(First("batch sides..."), Input("7 sides..."), shape=(2, 3, 4))) == [
        (2, 3, 4),
        (7, 3, 4),
    ]


def test_a_name_that_stands_for_nothing_is_any_size_and_then_that_size() -> None:
    _, second, third = shapes(drawn(First("rows inner"), Input("inner columns"), Input("columns")))
    assert second is not None
    assert second[0] == 6
    assert third == second[1:]
    assert shape_of("a b c", {"a": 5}, {"c": 7}) == (5, FREE, 7)


def test_a_first_input_that_does_not_fit_is_another() -> None:
    assert shapes(drawn(First("rows columns", fits=never, other="rows rows"), Input("columns"))) == [
        (2, 2),
        (2,),
    ]
    assert shapes(drawn(First("rows columns", fits=lambda draft: True, other="rows rows"))) == [(2, 6)]


def test_what_is_left_out_keeps_its_place_but_at_the_end() -> None:
    three = Numbers(lambda draft: [3])
    assert shapes(drawn(left_out, three, Input("3", share=0.0), left_out)) == [(2, 6), None, (1,)]
    assert drawn(Numbers(lambda draft: [3], share=0.0)).inputs[1:] == []


def test_parts_that_are_there_together_at_a_rate_or_from_an_opset_on() -> None:
    pair = (Attr("p", (1,)), Attr("q", (2,)))
    assert drawn(some(*pair)).attributes == {"p": 1, "q": 2}
    assert drawn(some(*pair, share=0.0)).attributes == drawn(some(*pair, where=never)).attributes == {}
    assert drawn(since(21, *pair)).attributes == {"p": 1, "q": 2}
    assert drawn(since(22, *pair)).attributes == {}
    assert len(drawn(one_of(*pair)).attributes) == 1


@pytest.mark.parametrize(
    ("given", "sound"),
    [
        ([(2, 6), (2, 12), (6,)], True),
        ([(2, 6), (2, 12), None], True),
        ([(2, 6), (2, 12)], True),
        ([(2, 6), (3, 12)], False),
        ([(2, 6), (2, 13)], False),
        ([(2, 6), (2, 12, 1)], False),
        ([(2, 6), (2, 12), (5,)], False),
    ],
)
def test_shapes_that_agree(given: list[tuple[int, ...] | None], sound: bool) -> None:
    ins = [None if shape is None else Tensor("x", "float32", shape) for shape in given]
    assert all(agree("batch width", "batch heads*4", "width")(ins, {"heads": 3})) == sound  # type: ignore[arg-type]  # absent ones are None
