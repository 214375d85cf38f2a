"""Generated programs hang together, and what makes a tensor fit is right or leaves no trace."""

import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.gen.declarations.builder import FREE
from opsieve.gen.declarations.catalogue import choices
from opsieve.gen.declarations.tensor import ANY, Domain
from opsieve.gen.generation.random_graph import (
    TOPOLOGIES,
    GenRequest,
    OtherPieces,
    draw_operator,
    fill,
    finish,
    start,
)
from opsieve.gen.graph.adapters import adapt_to, count_steps_to
from opsieve.gen.graph.graph import is_closed
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import Pieces, is_numeric_result
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import DTYPES
from opsieve.gen.strategies.registry import generate
from opsieve_research.graph import operations
from opsieve_research.structure import Structure, component_sizes, without_constants

SHAPES = st.lists(st.integers(1, 6), max_size=4).map(tuple)
KINDS = ("float32", "float16", "int64", "int8", "bool")


def structure(models: list[bytes]) -> dict[str, float]:
    found = Structure()
    for model in models:
        found.add(operations(onnx.load_model_from_string(model)))
    return found.figures()


@pytest.mark.parametrize("name", ["isra", "hirfuzz", "pattern", "mutate"])
def test_programs_are_in_one_piece_and_mostly_one_chain(name: str) -> None:
    found = structure([generate(name, seed, GenRequest(nodes=16)).program.model for seed in range(40)])
    assert found["components"] < 1.2
    assert found["longest_path"] > 11
    assert found["chains_of_4"] > 600
    assert found["fan_out"] > 0.1


def grown(topology: str, seed: int) -> bytes:
    request = GenRequest(nodes=20)
    builder = start(request, seed, "isra", topology=topology)
    fill(builder, request)
    return finish(builder, request, "isra", seed).program.model


def most_readers(model: bytes) -> int:
    return max(len(node.consumers) for node in operations(onnx.load_model_from_string(model)))


@pytest.mark.parametrize("seed", range(6))
def test_results_of_other_pieces_are_followed_while_pieces_come_and_are_joined(seed: int) -> None:
    builder = start(GenRequest(opset=20), seed, "isra", pick=0.3)
    table, others, pieces, met = choices(20, None, None), OtherPieces(builder), builder.program.pieces, 0
    for turn in range(60):
        found = others.list_results()
        home = pieces.find_root(builder.scope.recent[-1].name) if builder.scope.recent else ""
        made = [
            out
            for node in builder.nodes
            for out in node.outs
            if is_numeric_result(out) and is_closed(out.shape)
        ]
        assert found == (
            [out for out in made if pieces.find_root(out.name) != home] if pieces.count > 1 else []
        )
        builder.grow(draw_operator(builder, table), found if turn % 3 else ())
        met += len(found)
    assert met > 60


def test_a_topology_that_is_asked_for_shows() -> None:
    models = {name: [grown(name, seed) for seed in range(30)] for name in TOPOLOGIES}
    found = {name: structure(made) for name, made in models.items()}
    assert found["long"]["longest_path"] > found["wide"]["longest_path"] + 1
    assert found["diamonds"]["chains_of_4"] > found["long"]["chains_of_4"]
    readers = {name: sum(map(most_readers, made)) for name, made in models.items()}
    assert readers["wide"] > 1.3 * readers["long"]
    outputs = {
        name: sum(len(onnx.load_model_from_string(model).graph.output) for model in made)
        for name, made in models.items()
    }
    assert outputs["many outputs"] > 1.5 * outputs["long"]


def result(builder: GraphBuilder, dtype: str, shape: tuple[int, ...]) -> None:
    x = builder.leaf(dtype, shape)
    builder.emit("Identity", "", [x], {}, [(dtype, shape)], (x.low, x.high))


@given(
    st.integers(0, 10_000),
    st.sampled_from(KINDS),
    SHAPES,
    st.sampled_from(KINDS),
    st.lists(st.sampled_from([1, 2, 3, 5, FREE]), max_size=4).map(tuple),
    st.sampled_from([ANY, Domain(0, 1), Domain(0.5, 4)]),
)
@settings(deadline=None)
def test_what_is_made_fit_fits_or_leaves_no_trace(
    seed: int, dtype: str, shape: tuple[int, ...], wanted: str, sides: tuple[int, ...], domain: Domain
) -> None:
    builder = start(GenRequest(opset=18), seed, "isra")
    result(builder, dtype, shape)
    tensor = builder.nodes[0].outs[0]
    made = adapt_to(builder, tensor, wanted, sides, domain)
    if made is None:
        assert len(builder.nodes) == 1
        assert tensor.reads == 0
        assert builder.scope.recent == [tensor]
        return
    assert count_steps_to(made, wanted, sides, domain, True) == 0
    model = finish(builder, GenRequest(nodes=1), "isra", seed).program.model
    onnx.checker.check_model(model, full_check=True)
    typed = {info.name: info.type.tensor_type for info in onnx.load_model_from_string(model).graph.output}
    if made.name in typed:
        assert DTYPES[typed[made.name].elem_type] == wanted


def test_what_is_taken_back_leaves_no_trace() -> None:
    builder = start(GenRequest(opset=18), 3, "isra")
    fill(builder, GenRequest(nodes=5))
    before = [(t.name, t.reads) for node in builder.nodes for t in node.outs], builder.program.elements
    x = builder.leaf("float32", (2, 3))
    elements = builder.program.elements
    made = builder.emit("Relu", "", [x], {}, [("float32", (2, 3))], (0.0, 2.0))[0]
    builder.undo(len(builder.nodes) - 1)
    assert (
        [(t.name, t.reads) for node in builder.nodes for t in node.outs],
        builder.program.elements - 6,
    ) == before
    assert (x.reads, builder.program.elements) == (0, elements)
    assert made not in (
        *builder.scope.loose,
        *builder.scope.recent,
        *builder.scope.list_of_rank("float32", 2),
    )


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=20))
def test_pieces_are_the_connected_components(edges: list[tuple[int, int, bool]]) -> None:
    pieces, sets = Pieces(), list[set[int]]()
    main = set[int]()
    for a, b, held in edges:
        pieces.connect([str(a), str(b)], held)
        main |= {a} if held else set()
        joined = {a, b}.union(*(each for each in sets if each & {a, b}))
        sets = [each for each in sets if not each & joined] + [joined]
    assert pieces.count == sum(bool(each & main) for each in sets)
    for each in sets:
        assert len({pieces.find_root(str(item)) for item in each}) == 1


def test_texts_are_measured_by_what_takes_them() -> None:
    """Equal reads two, Shape and Size one, whatever attributes they have."""
    only = frozenset(("StringConcat", "RegexFullMatch", "Shape", "Size", "Relu", "Add"))
    inputs = {"StringConcat": 2, "RegexFullMatch": 1, "Shape": 1, "Size": 1, "Relu": 1, "Add": 2}
    for seed in range(12):
        nodes = list(
            all_nodes(generate("isra", seed, GenRequest(nodes=12, only=only)).program.proto.graph.node)
        )
        assert all(len(node.input) == inputs.get(node.op_type, len(node.input)) for node in nodes), seed


def test_what_is_added_last_begins_no_piece() -> None:
    """A text that was drawn to join two pieces would be a third, and so would the last node where it reads no
    number.
    """
    apart = 0
    for seed in range(80):
        nodes = without_constants(operations(generate("isra", seed, GenRequest(nodes=12)).program.proto))
        apart += len(component_sizes(nodes)) - 1
    assert apart <= 16
