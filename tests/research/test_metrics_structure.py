"""How programs hang together, on graphs whose figures are known."""

import onnx.parser
import pytest

from opsieve_research.graph import operations
from opsieve_research.motifs import motifs
from opsieve_research.structure import Structure, chains, component_sizes, longest_path

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float[2] z) => (float[2] y, float[2] w) '
CHAIN = "{ a = Relu (x) b = Neg (a) c = Abs (b) y = Exp (c) w = Identity (z) }"
DIAMOND = "{ a = Relu (x) b = Neg (a) c = Abs (a) y = Add (b, c) w = Sub (y, z) }"


@pytest.mark.parametrize(
    ("body", "sizes", "longest", "three", "four", "shared"),
    [(CHAIN, [1, 4], 4, 2, 1, 0), (DIAMOND, [5], 4, 4, 2, 1)],
)
def test_figures_of_small_graphs(
    body: str, sizes: list[int], longest: int, three: int, four: int, shared: int
) -> None:
    nodes = operations(onnx.parser.parse_model(HEAD + body))
    assert sorted(component_sizes(nodes)) == sizes
    assert longest_path(nodes) == longest
    assert (len(chains(nodes, 3)), len(chains(nodes, 4))) == (three, four)
    structure = Structure()
    structure.add(nodes)
    figures = structure.figures()
    assert figures["components"] == len(sizes)
    assert figures["largest_component"] == max(sizes) / 5
    assert figures["fan_out"] == shared / 5


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (CHAIN, {}),
        (DIAMOND, {"joins": 1, "diamonds": 1}),
        ("{ a = Relu (x) b = Neg (a) y = Add (a, b) w = Identity (z) }", {"joins": 1, "skips": 1}),
        ("{ a = Relu (x) b = Neg (z) y = Add (a, b) w = Sub (b, a) }", {"joins": 2, "bi_fans": 1}),
        ("{ a = Relu (x) y = Add (a, a) w = Identity (z) }", {}),  # one reader that reads twice
    ],
)
def test_motifs_of_small_graphs(body: str, found: dict[str, int]) -> None:
    counts = motifs(operations(onnx.parser.parse_model(HEAD + body)))
    assert {name: count for name, count in counts.items() if count} == found


def test_motifs_of_a_graph_of_many_edges_are_counted_in_time_linear_in_its_operations() -> None:
    names = ["x", *(f"v{place}" for place in range(2000))]
    body = "".join(
        f"{name} = Sum ({', '.join(names[max(0, place - 99) : place + 1])}) "
        for place, name in enumerate(names[1:])
    )
    assert (
        motifs(operations(onnx.parser.parse_model(f"{HEAD}{{ {body} y = Neg (x) w = Neg (z) }}")))["joins"]
        == 1998
    )


def test_nothing_has_figures_of_zero() -> None:
    figures = Structure().figures()
    assert {*figures.pop("motifs").values(), *figures.values()} == {0}
