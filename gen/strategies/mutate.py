"""Programs made of others: grown, with typed subtrees exchanged, other attributes, other dtypes, other
shapes.

What is mutated are programs of the corpus that the request has (real models), else parts of architectures
and programs of other strategies. At times a second one is laid before the
first, so that subtrees can come from there, and parts of architectures or of the corpus are spliced in
behind. Symbolic sizes of a corpus program's inputs are bound.
"""

import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import onnx
import onnx.parser
import onnx.shape_inference

from opsieve.gen.analysis.reading import Source, UnreadableModel, read
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.declarations.catalogue import OLDEST, choices
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation import mutation, pieces
from opsieve.gen.generation.random_graph import (
    SUPPORTED,
    GenRequest,
    choose_outputs,
    fill,
    finish,
    start,
)
from opsieve.gen.graph import graph, graph_builder
from opsieve.gen.irs.onnx.program import onnx_programs
from opsieve.gen.strategies.chains import grow_chains
from opsieve.gen.strategies.patterns.strategy import grow_planted

_FILES: Final = tuple(Path(__file__).with_name(name) for name in ("architectures.txt", "exported.txt"))
# The texts of architectures name weights w1, w2, ...; all other inputs are data.
_PARAMETER: Final = "w"
# Old enough for every opset here; the written program gets its own version.
_IR_VERSION: Final = 8


@dataclass(frozen=True, slots=True)
class Architecture:
    """A part of an architecture: its graph as text, and the oldest and newest opset at which it is valid."""

    name: str
    oldest: int
    newest: int
    text: str

    def parse_model(self, opset: int) -> onnx.ModelProto:
        """Parse the model at an opset."""
        head = f'<ir_version: {_IR_VERSION}, opset_import: ["" : {opset}]>\n{self.name.replace("-", "_")} '
        return onnx.parser.parse_model(head + self.text)


@functools.cache
def load_architectures() -> tuple[Architecture, ...]:
    """Load all architectures in the order of the files."""
    found = []
    for part in (part for file in _FILES for part in file.read_text(encoding="utf-8").split("## ")[1:]):
        head, text = part.split("\n", 1)
        name, opsets = head.split()
        oldest, newest = map(int, opsets.split("-"))
        found.append(Architecture(name, oldest, newest, text))
    return tuple(found)


def draw_architecture(rng: Rng, opset: int) -> Source | None:
    """Draw an architecture that is valid at an opset; None if there is none."""
    there = [each for each in load_architectures() if each.oldest <= opset <= each.newest]
    if not there:
        return None
    return read_architecture(rng.choice(there), opset)


@functools.lru_cache(maxsize=1024)
def read_architecture(architecture: Architecture, opset: int) -> Source:
    """Read an architecture at an opset; the result is cached, and shared between opsets."""
    return replace(_read_at_oldest(architecture), opset=opset)


@functools.cache
def _read_at_oldest(architecture: Architecture) -> Source:
    """Read an architecture at its oldest opset."""
    return read_at(architecture, architecture.oldest)


def read_at(architecture: Architecture, opset: int) -> Source:
    """Read an architecture from its text at an opset."""
    # The text is trusted, so that onnx's inference may run in this process, where a crash would end it.
    model = onnx.shape_inference.infer_shapes(
        architecture.parse_model(opset), strict_mode=True, data_prop=True
    )
    source = read(model, seeded_inputs(model, 0))
    for node in source.nodes:
        for tensor in node.ins:
            if tensor is not None and tensor.leaf == "input":
                # Any elements of the interval will do: forgetting them lets the writer draw new ones.
                tensor.values = None
                if tensor.name.startswith(_PARAMETER):
                    tensor.leaf = "initializer"
    return replace(source, held={})


NAME: Final = "mutate"
_DTYPES: Final = ("float32", "float16", "float64", "bfloat16", "int64", "int32", "int8", "uint8")
_KINDS: Final = (
    "inserted",
    "inserted",
    "swapped",
    "swapped",
    "redrawn",
    "dropped",
    "doubled",
    "dtype",
    "shape",
)
# The most nodes of a spliced part.
_MOST_SPLICED: Final = 8
# The offset from a seed to those of its sources: `mix` also runs the other strategies with the plain seeds.
_BESIDE: Final = 1 << 48
# The most nodes that are added to a program of the corpus.
_GROWN: Final = 5


@dataclass(frozen=True, slots=True)
class MutationRates:
    """How often, and how much: rates and shares between 0 and 1.

    `newest`: a program of its own is at the newest opset; it has one of the shares `own` of the nodes wished
    before it is changed. `crossed`: it is laid on another one, which has the share `donor`; then its own
    share is one of `beside`. `architecture`: a program of its own is part of an architecture;
    `spliced`: one is laid behind it, whose inputs are tensors of the program at the rate `joined`. `alike`:
    with a leaf all of its dtype change;
    `alone`: with a size no other one changes.
    """

    newest: float = 0.5
    own: tuple[float, ...] = (0.5, 0.7, 0.9)
    crossed: float = 0.3
    beside: tuple[float, ...] = (0.3, 0.4)
    donor: float = 0.4
    architecture: float = 0.4
    spliced: float = 0.4
    joined: float = 0.9
    alike: float = 0.6
    alone: float = 0.3


_RATES: Final = MutationRates()


def mutate(request: GenRequest, seed: int) -> Case:
    """Make the program of a seed.

    Raises:
        BadInput: If no program of the corpus can be read.
    """
    return finish(mutate_program(request, seed), request, NAME, seed)


def mutate_program(request: GenRequest, seed: int) -> graph_builder.GraphBuilder:
    """Change another program one to four times, and add nodes (up to the requested number without a
    corpus).
    """
    rng = Rng(f"{NAME} {seed}", request.bins)
    if request.corpus:
        source, donor = _read_from_corpus(request, rng, seed), None
        tensors = _list_tensors(source)
        budget = replace(
            request.budget,
            # The limits hold for what is added: a model of the corpus is taken as it is.
            tensor=max((request.budget.tensor, *map(_count_elements, tensors))),
            elements=request.budget.elements + sum(map(_count_elements, tensors)),
            # A model of the corpus may be large; only what is added to it is limited.
            work=1 << 40,
        )
        wished = replace(
            request, opset=source.opset, budget=budget, nodes=len(source.nodes) + rng.between(0, _GROWN)
        )
    else:
        opset = request.opset or (SUPPORTED if rng.chance(_RATES.newest) else rng.between(OLDEST, SUPPORTED))
        wished = replace(request, opset=opset)
        crossed = request.nodes > 3 and rng.chance(_RATES.crossed)
        source = _make_own(
            wished, rng, _BESIDE + 2 * seed, rng.choice(_RATES.beside if crossed else _RATES.own)
        )
        # The donor comes first in the program, so that subtrees of it can be read by the other.
        donor = _make_own(wished, rng, _BESIDE + 2 * seed + 1, _RATES.donor) if crossed else None
    builder = start(wished, seed, NAME)
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    if donor is not None:
        mutation.ModelReplay(builder, mutation.Changes({})).replay_nodes(donor)
    mutation.ModelReplay(builder, _draw_changes(source, rng, request)).replay_nodes(source)
    piece = _cut_piece(wished, rng, seed) if rng.chance(_RATES.spliced) else None
    if piece is not None:
        pieces.plant_piece(builder, piece, _RATES.joined)
    fill(builder, wished)
    # A single large node was left out, and no drawn node fits the budget: the program stays as it was.
    if not builder.nodes:
        mutation.ModelReplay(builder, mutation.Changes({})).replay_nodes(source)
    return builder


def _make_own(request: GenRequest, rng: Rng, seed: int, share: float) -> Source:
    """Make a part of an architecture, or a program of isra, chains or pattern with a share of the requested
    nodes.
    """
    smaller = replace(request, nodes=max(1, round(request.nodes * share)))
    part = _cut_architecture(smaller, rng) if rng.chance(_RATES.architecture) else None
    if part is not None:
        return part
    made = rng.choice((grow_again, grow_chains, grow_planted))(smaller, seed)
    return Source(made.opset, tuple(made.nodes), tuple(choose_outputs(made)))


def _cut_architecture(request: GenRequest, rng: Rng) -> Source | None:
    """Cut a part with the requested nodes out of an architecture; None if none has only requested operators
    and dtypes.
    """
    found = draw_architecture(rng, request.opset)
    part = pieces.cut_piece(found, rng, request.nodes) if found is not None else None
    return part if part is not None and _is_wanted(part, request) else None


def _cut_piece(request: GenRequest, rng: Rng, seed: int) -> Source | None:
    """Cut the part to splice in from a program of the corpus, or else from an architecture."""
    most = rng.between(2, _MOST_SPLICED)
    if not request.corpus:
        return _cut_architecture(replace(request, nodes=most), rng)
    piece = pieces.cut_piece(_read_from_corpus(request, rng, seed), rng, most)
    # Nodes of another opset may have other forms of their operators.
    return piece if piece.opset == request.opset else None


def _is_wanted(source: Source, request: GenRequest) -> bool:
    """Return whether a source has only requested operators and float dtypes."""
    dtypes = {tensor.dtype for tensor in _list_tensors(source) if "float" in tensor.dtype}
    return (request.only is None or all(node.op in request.only for node in source.nodes)) and (
        request.dtypes is None or dtypes <= request.dtypes
    )


def grow_again(request: GenRequest, seed: int) -> graph_builder.GraphBuilder:
    """Grow the program of the strategy isra for a seed."""
    builder = start(request, seed, "isra")
    fill(builder, request)
    return builder


def _read_from_corpus(request: GenRequest, rng: Rng, seed: int) -> Source:
    """Read a program of the corpus."""
    # The last reason stands for all: a corpus usually fails in one way.
    reason = ""
    for program in rng.shuffle_items(onnx_programs(request.corpus)):
        try:
            return read(program.proto, seeded_inputs(program.proto, seed))
        except (UnreadableModel, BadInput) as error:
            reason = str(error)
    raise BadInput(f"no model of the corpus ({len(request.corpus):,}) can be mutated; one has {reason}")


def _list_tensors(source: Source) -> list[Tensor]:
    """List the named tensors of a source."""
    return [
        tensor
        for node in source.nodes
        for tensor in (*node.ins, *node.outs)
        if tensor is not None and tensor.name
    ]


def _count_elements(tensor: Tensor) -> int:
    """Count the elements of a tensor over known sizes."""
    return math.prod(side for side in tensor.shape if isinstance(side, int))


def _draw_changes(source: Source, rng: Rng, request: GenRequest) -> mutation.Changes:
    """Draw one to four changes, at any nodes and leaves."""
    places: dict[str, set[int]] = {kind: set() for kind in _KINDS}
    leaves: dict[str, tuple[str, graph.Shape]] = {}
    if source.nodes:
        for _ in range(rng.between(1, 4)):
            kind = rng.choice(_KINDS)
            if kind == "dtype":
                leaves |= _change_dtype(source, rng, request)
            elif kind == "shape":
                leaves |= _change_shape(source, rng)
            else:
                places[kind].add(rng.below(len(source.nodes)))
    chosen = {
        kind: frozenset(places[kind]) for kind in ("inserted", "swapped", "redrawn", "dropped", "doubled")
    }
    return mutation.Changes(leaves, **chosen)


def _list_data_leaves(source: Source) -> list[Tensor]:
    """List the leaves that hold data rather than shapes and axes."""
    found = {tensor.name: tensor for tensor in _list_tensors(source) if tensor.leaf}
    return [
        leaf for leaf in found.values() if leaf.values is None or (leaf.rank > 0 and "float" in leaf.dtype)
    ]


def _change_dtype(source: Source, rng: Rng, request: GenRequest) -> dict[str, tuple[str, graph.Shape]]:
    """Draw another dtype for one leaf, or for all leaves of its dtype."""
    leaves = [leaf for leaf in _list_data_leaves(source) if leaf.dtype in _DTYPES]
    allowed = [dtype for dtype in _DTYPES if request.dtypes is None or dtype in request.dtypes]
    if not leaves or not allowed:
        return {}
    first, dtype = rng.choice(leaves), rng.choice(allowed)
    changed = [leaf for leaf in leaves if leaf.dtype == first.dtype] if rng.chance(_RATES.alike) else [first]
    return {leaf.name: (dtype, leaf.shape) for leaf in changed}


def _change_shape(source: Source, rng: Rng) -> dict[str, tuple[str, graph.Shape]]:
    """Draw another size for one dimension of a leaf, or for all dimensions of this size."""
    leaves = [leaf for leaf in _list_data_leaves(source) if leaf.rank]
    if not leaves:
        return {}
    first = rng.choice(leaves)
    axis = rng.below(first.rank)
    old, new = first.shape[axis], rng.draw_binned(1, 9)
    if rng.chance(_RATES.alone):
        return {first.name: (first.dtype, (*first.shape[:axis], new, *first.shape[axis + 1 :]))}
    return {
        leaf.name: (leaf.dtype, tuple(new if side == old else side for side in leaf.shape))
        for leaf in leaves
        if old in leaf.shape
    }
