"""What values of generated programs reach: ties, ends, whole tensors of one number, loops without a turn."""

import numpy as np

from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import choices, operators
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Domain
from opsieve.gen.generation.random_graph import build_single_node
from opsieve.gen.graph.adapters import adapt_to
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.graph.writing import serialize


def _leaves(style: Style, operator: str = "Abs") -> list[np.ndarray]:
    builder = GraphBuilder(ProgramState(Rng("leaves"), 20, style, Budget()))
    for dtype, domain in (("float32", Domain(-1, 2)), ("int32", Domain(2, 9)), ("float32", Domain(0.1, 0.4))):
        x = builder.leaf(dtype, (6, 7), domain, ("input",))
        if dtype == "float32" or operator == "Abs":
            builder.add(operators()[operator], [x], {"axes": [0, 1]} if operator != "Abs" else {})
    return list(serialize(builder, [node.outs[0] for node in builder.nodes], "leaves")[1].values())


def test_leaves_of_a_program_are_ends_and_zeros_or_one_number_each() -> None:
    wide, whole, narrow = _leaves(Style(coarse=0, ends=1, equal=0, round=1))
    assert set(wide.ravel()) == {-1, 2, 0}
    assert set(whole.ravel()) == {2, 9}
    assert set(narrow.ravel()) == {np.float32(0.1), np.float32(0.4)}
    for leaf, (low, high) in zip(
        _leaves(Style(coarse=0, ends=0, equal=1, round=1)), ((-1, 2), (2, 9), (0.1, 0.4)), strict=True
    ):
        assert len(set(leaf.ravel())) == 1
        assert np.float32(low) <= leaf.ravel()[0] <= np.float32(high)
    for leaf in _leaves(Style(coarse=0, ends=0, equal=1, round=1), "MeanVarianceNormalization"):
        assert len(set(leaf.ravel())) > 1  # 0 divided by 0


def test_loops_end_before_their_first_turn_or_early_where_nothing_is_collected() -> None:
    loop = next(choice for choice in choices(20, frozenset(("Loop",)), None) if choice.op.name == "Loop")
    met = set()
    for seed in range(80):
        builder = build_single_node(loop, 20, seed)
        for node in builder.nodes if builder is not None else ():
            if node.op == "Loop":
                body, trips = node.attrs["body"], node.ins[0]
                early = any(each.op == "Less" and each.outs[0] is body.outputs[0] for each in body.nodes)
                none = trips is not None and trips.values == (0,)
                assert len(body.outputs) - 1 == len(node.ins) - 2 or not (early or none)
                met |= {name for name, there in (("early", early), ("none", none)) if there}
    assert met == {"early", "none"}


def test_one_number_is_spread_among_others() -> None:
    builder = GraphBuilder(ProgramState(Rng("spread"), 20, Style(), Budget()))
    x = builder.leaf("float32", (1, 1), Domain(0.5, 1))
    spread = adapt_to(builder, x, "float32", (3, 4), Domain(0, 4))
    assert spread is not None
    assert builder.nodes[-1].op == "Where"
    assert spread.within(Domain(0, 4))
    row = builder.leaf("float32", (1, 4), Domain(0.5, 1))
    assert adapt_to(builder, row, "float32", (3, 4)) is not None
    assert builder.nodes[-1].op == "Expand"


def test_comparisons_with_an_extreme_answer_both() -> None:
    numbers = np.array([1.0, 2.0, 3.0])
    answers = {
        "Equal": np.equal,
        "Less": np.less,
        "GreaterOrEqual": np.greater_equal,
        "Greater": np.greater,
        "LessOrEqual": np.less_equal,
    }
    builder = GraphBuilder(ProgramState(Rng("compared"), 20, Style(pick=1.0, divided=1.0), Budget()))
    x = builder.leaf("float32", (3,))
    for name, answer in answers.items():
        made = builder.instance(operators()[name], x)
        assert made is not None
        reduced = builder.nodes[-1]
        assert {id(each) for each in made.inputs} == {id(x), id(reduced.outs[0])}
        assert (
            len(set(answer(numbers, {"ReduceMax": numbers.max(), "ReduceMin": numbers.min()}[reduced.op])))
            == 2
        )
