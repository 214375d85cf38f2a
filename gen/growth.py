"""Programs of a wanted number of nodes, grown forwards from a seed."""

from dataclasses import dataclass, field

from opsieve.gen.case import Case, Origin
from opsieve.gen.catalogue import choices
from opsieve.gen.declaration import Tensor
from opsieve.gen.drawing import Draw
from opsieve.gen.program import Program
from opsieve.gen.schema import OLDEST
from opsieve.gen.sketch import Budget, Choice, Sketch, Style, Supports
from opsieve.gen.writing import written

SUPPORTED = 26  # the newest opset that a released onnxruntime takes
_PALETTES = (
    ("float32",),
    ("float32",),
    ("float32", "float32", "int64"),
    ("float32", "float32", "int64", "bool"),
    ("float32", "float16"),
    ("float32", "float32", "int32", "int8", "uint8"),
    ("float64", "float32"),
    ("float16",),
    ("int32", "int64", "float32"),
    ("float32", "bfloat16"),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What programs are asked for. `only` names operators (None: all of ONNX's own), `dtypes` limits first inputs and leaves.

    `opset` 0 draws one from 13 to the newest that onnxruntime takes. `supports` is asked before a node is added.
    """

    nodes: int = 10
    only: frozenset[str] | None = None
    dtypes: frozenset[str] | None = None
    opset: int = 0
    bins: int = 7
    types: bool = False
    budget: Budget = field(default_factory=Budget)
    supports: Supports | None = None


def begun(wish: Wish, seed: int, name: str, pick: float = 0.95, ranged: bool = True) -> Sketch:
    """An empty sketch for a seed: its opset and palette are drawn."""
    draw = Draw(f"{name} {seed}", wish.bins)
    opset = wish.opset or draw.between(OLDEST, SUPPORTED)
    palette = draw.choice(_PALETTES)
    if wish.dtypes is not None:
        palette = tuple(dtype for dtype in palette if dtype in wish.dtypes) or tuple(sorted(wish.dtypes))
    sketch = Sketch(draw, opset, Style(pick, ranged, palette=palette), wish.budget)
    sketch.supports = wish.supports
    return sketch


def grown(sketch: Sketch, wish: Wish) -> None:
    """Add nodes until there are as many as wished: operators uniformly (Isra), every instance valid by construction.

    Nodes inside bodies count.
    """
    from_all = choices(sketch.opset, wish.only, wish.dtypes)
    draw = sketch.draw
    nodes = sketch.nodes
    sketch.choices = from_all
    while len(nodes) + sketch.inner < wish.nodes and sketch.elements < wish.budget.elements:
        sketch.grow(from_all[int(draw.random() * len(from_all))])


def outputs(sketch: Sketch) -> list[Tensor]:
    """What a program gives: every tensor of a node that no node reads, now and then one that is read, seldom all but one of them."""
    draw = sketch.draw
    given = [
        tensor
        for node in sketch.nodes
        for tensor in node.outs
        if tensor.name and (not tensor.reads or draw.random() < 0.04)
    ]
    if len(given) > 1 and draw.random() < 0.1:
        given.pop(draw.below(len(given)))  # a dead branch
    return given


def case(sketch: Sketch, wish: Wish, generator: str, seed: int) -> Case:
    """The finished sketch as a case: a program and values for its inputs."""
    model, inputs = written(sketch, outputs(sketch), generator, wish.types)
    return Case(Program(model, f"{generator}-{seed}"), inputs, None, Origin(generator, seed, {}, "generated"))


def single(choice: Choice, opset: int, seed: int, budget: Budget | None = None) -> Sketch | None:
    """A sketch around one instance of an operator, with leaves for its inputs; None when 20 draws gave none.

    For probing, soaks and tests: `choice` says which dtypes and ranks the first input may have.
    """
    draw = Draw(f"single {choice.op.domain} {choice.op.name} {','.join(choice.leaves)} {opset} {seed}")
    for _ in range(20):
        sketch = Sketch(draw, opset, Style(pick=0.3, palette=choice.leaves), budget or Budget())
        if sketch.grow(choice) is not None:
            return sketch
    return None
