"""The guide of the strategy hirfuzz: what it takes for new."""

from collections import Counter

from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import OpTable, choices
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.graph.graph import Node
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.strategies.hirfuzz import Guide


def builder() -> GraphBuilder:
    return GraphBuilder(ProgramState(Rng(1), 18, Style(), Budget()))


def table(*names: str) -> OpTable:
    return OpTable(choice for choice in choices(18) if choice.op.name in names)


def made(grown: GraphBuilder, op: str, ins: list[Tensor], shape: tuple[int, ...] = (2, 3)) -> Tensor:
    return grown.emit(op, "", ins, {}, [("float32", shape)], (0.0, 1.0))[0]


def begun(guide: Guide, op: str) -> tuple[GraphBuilder, Tensor]:
    """A program of one node, noted."""
    guide.begin_program()
    grown = builder()
    last = made(grown, op, [grown.leaf("float32", (2, 3))])
    guide.count_nodes(grown.nodes)
    return grown, last


def taken(guide: Guide, grown: GraphBuilder, near: Tensor, names: OpTable) -> set[str]:
    """What comes oftener than by luck: of six candidates all may be one operator."""
    met = Counter(guide.choose_operator(grown, names, near).op.name for _ in range(60))
    return {name for name, times in met.items() if times > 9}


def test_what_was_read_before_gives_way_to_what_was_not() -> None:
    guide, both = Guide(), table("Neg", "Ceil")
    grown, last = begun(guide, "Abs")
    assert taken(guide, grown, last, both) == {"Neg", "Ceil"}
    made(grown, "Neg", [last])
    guide.count_nodes(grown.nodes)
    assert taken(guide, grown, last, both) == {"Ceil"}  # Neg has read this dtype, this shape and an Abs


def test_a_chain_is_new_behind_another_operator_though_its_end_is_not() -> None:
    guide, both = Guide(), table("Neg", "Ceil")
    for first, last in (("Sin", "Neg"), ("Sin", "Ceil"), ("Cos", "Ceil")):
        grown, x = begun(guide, first)
        middle = made(grown, "Abs", [x])
        made(grown, last, [middle])
        guide.count_nodes(grown.nodes)
    begun(guide, "Neg")
    grown, x = begun(guide, "Cos")
    middle = made(grown, "Abs", [x])
    guide.count_nodes(grown.nodes)
    # Cos, Abs, Ceil was there; Sin, Abs, Neg was not behind a Cos
    assert taken(guide, grown, middle, both) == {"Neg"}


def test_values_out_of_range_count_against_an_operator() -> None:
    guide = Guide()
    grown, x = begun(guide, "Abs")
    far = grown.emit("Mul", "", [x, x], {}, [("float32", (2, 3))], (-50.0, 50.0))[0]
    guide.count_nodes(grown.nodes)
    assert taken(guide, grown, far, table("Asin", "Neg")) == {"Neg"}


def test_an_operator_that_fits_nothing_still_comes() -> None:
    guide = Guide()
    grown, x = begun(guide, "Abs")
    for _ in range(12):
        made(grown, "Neg", [x])
    guide.count_nodes([*grown.nodes, Node("Neg", "", [x], [x], {}, "")])
    assert "If" in taken(guide, grown, x, table("If", "Neg"))


def test_a_result_of_a_shape_that_few_have_read_is_gone_on_from() -> None:
    guide = Guide()
    grown, x = begun(guide, "Abs")
    for op in ("Neg", "Ceil", "Sin", "Cos", "Exp", "Floor", "Sqrt", "Tanh"):
        made(grown, op, [x])
    rare, worn = made(grown, "Transpose", [x], (3, 2)), made(grown, "Erf", [x])
    guide.count_nodes(grown.nodes)
    assert guide.choose_result([rare, worn]) is rare
    worn.depth += 9  # as deep as that it is worth going on
    assert guide.choose_result([rare, worn]) is worn
