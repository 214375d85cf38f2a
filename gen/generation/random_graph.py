"""Grow programs of a requested number of nodes forwards from a seed."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import onnx

from opsieve.gen.case.case import Case, Origin
from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import (
    OLDEST,
    OpChoice,
    OpTable,
    choices,
    first_dtypes,
    form,
    merging,
    operators,
    pairing,
)
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import NUMBER, Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.symbolic import open_sizes
from opsieve.gen.graph.adapters import count_steps_first
from opsieve.gen.graph.graph import is_closed
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import NUMERIC, ProgramState, Supports, is_numeric_result
from opsieve.gen.graph.siblings import Template
from opsieve.gen.graph.writing import encode_program
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.version import BASE_VERSION

# The newest opset that a released onnxruntime accepts.
SUPPORTED: Final = 26
_VERSIONS: Final = MappingProxyType({"opsieve": BASE_VERSION, "onnx": onnx.__version__})
_PALETTES: Final = (
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


_NEWEST_SHARE: Final = (
    # The share of programs at the newest opset: recent operators would be rare otherwise.
    0.5
)
_MOST_COPIES: Final = 4
# The share of programs that keep sequences and optionals as outputs (`open_containers` says why).
_CLOSED_SHARE: Final = 1 / 7
_RANKS: Final = (
    (1, 2, 3, 4),
    (1, 2, 2, 3),
    (0, 1, 2),
    (2, 3, 3),
    (3, 4, 4),
    (2, 4, 4),
    (0, 1, 2, 3, 4, 5),
    (1, 3, 5),
)
# The connections of programs by name; a strategy may request one, otherwise it is drawn.
TOPOLOGIES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "long": {},
        "wide": {"hub": 0.4, "crowd": 0.8},
        "diamonds": {"merged": 0.9, "alone": 0.9, "crowd": 0.0, "fit": 1.0, "frugal": 0.3},
        "many outputs": {"chain": 0.8, "middle": 0.3},
    }
)
# Most programs are long chains, because rewrites match neighbouring nodes; the other topologies share the
# rest.
_LONG_SHARE: Final = 0.87
# Pairs of results tried for each piece of the graph: many do not broadcast, and adapters would grow the
# program.
_JOIN_TRIES: Final = 8
# The number of consecutive redraws of an operator.
_REDRAWN: Final = 2
# Families that are never replaced by another draw: they would become too rare.
SELDOM: Final = (
    "text",
    "signal",
    "control",
    "recurrent",
    "source",
    "image",
    "quantised",
    "loss",
    "container",
    "cast",
)
# Families that only plain draws reach, since no planted structure has them: the number of additional entries
# of their operators in the table.
_HELD_BACK: Final = MappingProxyType(
    {"text": 3, "source": 1, "cast": 1, "loss": 1, "recurrent": 1, "signal": 2}
)
# The family whose operators read no result, and so cannot lengthen a chain.
_SOURCE: Final = "source"
# The family that patterns already use most: other families are preferred to join pieces.
_COMMON: Final = "binary"
# The share of programs in which its operators may join pieces.
_COMMON_SHARE: Final = 0.1
# An operator may not fit any live tensor. The limit ends the program early instead of redrawing forever when
# few operators are allowed.
_TRIES_A_NODE: Final = 8
# Operators that turn texts into numbers.
_MEASURES: Final = ("Equal", "Shape", "Size")

_OPENERS: Final = {
    "sequence": ("SequenceAt", "SequenceLength"),
    "optional": ("OptionalGetElement", "OptionalHasElement"),
}


@dataclass(frozen=True, slots=True)
class GenRequest:
    """A request for programs.

    `only` names operators (None: all of ONNX's own), `dtypes` limits first inputs and leaves. An `opset` of 0
    draws one between 13 and the newest that onnxruntime supports, and that one half of the time. With
    `between` the number of `nodes` is drawn for each seed (gen/generation/request.py). `dynamic` is the share
    of programs with symbolic dimensions. `corpus` holds the programs that `mutate` and `relax-mutate` start
    from. `values` selects how inputs get values (gen/values/values.py). `supports` is consulted before a node
    is added; `target` names the compilers it stands for. `sibling` is the number of a sibling of the seed's
    program (gen/graph/siblings.py), `siblings` how many programs of one seed are used; `record` gets the
    program's parts.
    """

    nodes: int = 10
    only: frozenset[str] | None = None
    dtypes: frozenset[str] | None = None
    opset: int = 0
    bins: int = 7
    types: bool = False
    budget: Budget = field(default_factory=Budget)
    supports: Supports | None = None
    target: str = ""
    between: tuple[int, int] | None = None
    dynamic: float = 0.0
    corpus: tuple[Program, ...] = ()
    values: str = "ranged"
    sibling: int = 0
    siblings: int = 1
    record: Callable[[Template], None] | None = field(default=None, compare=False)


def start(
    request: GenRequest,
    seed: int,
    name: str,
    pick: float = 0.97,
    ranged: bool = True,
    palettes: Sequence[tuple[str, ...]] = _PALETTES,
    topology: str = "",
) -> GraphBuilder:
    """Return an empty builder for a seed: it draws the opset, palettes of dtypes and ranks, and the topology
    if none is given.
    """
    rng = Rng(f"{name} {seed}", request.bins)
    opset = request.opset or (SUPPORTED if rng.random() < _NEWEST_SHARE else rng.between(OLDEST, SUPPORTED))
    if not choices(opset, request.only, request.dtypes):
        having = () if request.opset else _list_opsets_with(request.only, request.dtypes)
        if not having:
            where = (
                f"opset {request.opset} has no"
                if request.opset
                else f"no opset from {OLDEST} to {SUPPORTED} has an"
            )
            raise BadInput(
                f"{where} operator that fits; choose other operators or dtypes, or another --opset"
            )
        opset = rng.choice(having)
    palette = rng.choice(palettes)
    if request.dtypes is not None:
        palette = tuple(dtype for dtype in palette if dtype in request.dtypes) or tuple(
            sorted(request.dtypes)
        )
    topology = topology or ("long" if rng.random() < _LONG_SHARE else rng.choice(tuple(TOPOLOGIES)[1:]))
    ranks = rng.choice(_RANKS)
    opened = bool(request.dynamic) and rng.random() < request.dynamic
    style = _make_style(pick, ranged and request.values != "search", palette, ranks, topology)
    builder = GraphBuilder(ProgramState(rng, opset, style, request.budget))
    builder.program.opened = opened
    builder.program.supports = request.supports
    builder.program.only = request.only
    if opened:
        # An input with a size, in case all others are scalars: only sizes can be left open.
        builder.leaf(rng.choice(palette), builder.shape(1, 4), kinds=("input",))
    return builder


@functools.lru_cache(maxsize=4096)
def _make_style(
    pick: float, ranged: bool, palette: tuple[str, ...], ranks: tuple[int, ...], topology: str
) -> Style:
    """Return the style of a program."""
    return replace(Style(pick, ranged, palette=palette, ranks=ranks), **TOPOLOGIES[topology])


@functools.lru_cache(maxsize=4096)
def _make_joining_style(style: Style) -> Style:
    """Return the style of nodes that join pieces."""
    return replace(style, pick=1.0, chain=1.0, frugal=0.0)


@functools.cache
def _list_opsets_with(only: frozenset[str] | None, dtypes: frozenset[str] | None) -> tuple[int, ...]:
    """List the drawable opsets that have an operator of the request."""
    return tuple(opset for opset in range(OLDEST, SUPPORTED + 1) if choices(opset, only, dtypes))


@functools.cache
def list_weighted_choices(
    opset: int, only: frozenset[str] | None, dtypes: frozenset[str] | None, drawn: bool
) -> OpTable:
    """Return the operators to draw from at an opset.

    If opsets are `drawn`, operators of few opsets, or that only draws reach, are listed several times.
    """
    from_all = choices(opset, only, dtypes)
    if not drawn:
        return from_all
    every = range(OLDEST, SUPPORTED + 1)
    found = []
    for choice in from_all:
        having = sum(bool(first_dtypes(choice.op, n)) for n in every) / len(every)
        share = (1 - _NEWEST_SHARE) * having + (_NEWEST_SHARE if first_dtypes(choice.op, SUPPORTED) else 0)
        copies = min(_MOST_COPIES, round(1 / max(share, 0.1)))
        found += [choice] * (copies + _HELD_BACK.get(choice.op.family, 0))
    return OpTable(found)


def draw_operator(builder: GraphBuilder, from_all: OpTable) -> OpChoice:
    """Draw an operator: at times one that merges tensors, or another one instead of one that needs
    adapters.
    """
    rng, style = builder.rng, builder.style
    choice, last = rng.choice(from_all), builder.scope.find_deepest()
    if last is None or choice.op.family in SELDOM:
        return choice
    fit = merging(from_all, last.dtype)
    if fit and rng.random() < (style.merged if _has_mate(builder, last) else style.alone):
        found = rng.choice(fit)
        # Operators that pair broadcasting inputs are frequent anyway, so a second draw makes them rarer.
        if found.op.pairs:
            found = rng.choice(fit)
        if not count_steps_first(last, found, style.ranged):
            return found
    for _ in range(_REDRAWN):
        if rng.random() >= style.suited or not count_steps_first(last, choice, style.ranged):
            return choice
        choice = rng.choice(from_all)
    return choice


def _has_mate(builder: GraphBuilder, last: Tensor) -> bool:
    """Return whether another recent result broadcasts with the last one."""
    dtype, shape = last.dtype, last.shape
    return any(
        other.dtype == dtype and other is not last and builder.fits(shape, other.shape, False)
        for other in builder.scope.recent
    )


def fill(builder: GraphBuilder, request: GenRequest) -> None:
    """Add nodes until the requested number: operators uniformly (Isra), every instance valid. Nodes in bodies
    count.
    """
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    from_all = list_weighted_choices(builder.opset, request.only, request.dtypes, not request.opset)
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        builder.grow(draw_operator(builder, from_all))


@functools.lru_cache(maxsize=1024)
def _list_joiners(from_all: OpTable) -> tuple[Sequence[Sequence[OpChoice]], Sequence[tuple[int, OpChoice]]]:
    """List the operators that join numeric pieces: by family, and common ones with the number of families
    before them.
    """
    families: dict[str, list[OpChoice]] = {}
    common = []
    for choice in pairing(from_all):
        if NUMERIC.isdisjoint(choice.dtypes):
            continue
        if choice.op.family == _COMMON:
            common.append((len(families), choice))
        else:
            families.setdefault(choice.op.family, []).append(choice)
    return tuple(families.values()), common


def join_pieces(builder: GraphBuilder) -> None:
    """Add nodes that read results of two pieces until the program is connected, as far as possible and at its
    style's rate.
    """
    style, program = builder.style, builder.program
    random, (families, common) = builder.rng.random, _list_joiners(program.choices)
    few = [each for each in common if program.only is not None or random() < _COMMON_SHARE]
    joiners = (
        [*families[: few[0][0]], [choice for _, choice in few], *families[few[0][0] :]] if few else families
    )
    if not joiners or random() >= style.joined:
        return
    if program.pieces.count < 2:
        return
    _convert_texts(builder)
    builder.style = _make_joining_style(style)
    others = OtherPieces(builder)
    for _ in range(_JOIN_TRIES * (program.pieces.count - 1)):
        guests = others.list_results()
        if not guests or program.elements >= builder.budget.elements:
            break
        builder.grow(builder.rng.choice(builder.rng.choice(joiners)), guests)
    builder.style = style


class OtherPieces:
    """Numeric results that the newest result does not depend on, updated while pieces are joined."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._every: list[Tensor] = []
        self._apart: list[Tensor] = []
        self._seen = 0
        self._home = ""

    def list_results(self) -> list[Tensor]:
        """Return the current ones, in order."""
        nodes, pieces, recent = self._builder.nodes, self._builder.program.pieces, self._builder.scope.recent
        if pieces.count < 2 or not recent:
            return []
        home, apart = pieces.find_root(recent[-1].name), pieces.is_apart
        new = [
            out
            for node in nodes[self._seen :]
            for out in node.outs
            if is_numeric_result(out) and is_closed(out.shape)
        ]
        # A failed draw takes back only its own nodes, so nodes before it stay valid.
        self._seen = len(nodes)
        self._every += new
        # Pieces only grow: results that were connected with the newest one remain so, as long as the newest
        # one is of the same piece.
        grown = self._home and pieces.find_root(self._home) == home
        self._apart = [
            out for out in ((*self._apart, *new) if grown else self._every) if apart(out.name, home)
        ]
        self._home = home
        return self._apart


def _convert_texts(builder: GraphBuilder) -> None:
    """Convert unread texts to numbers, which alone join pieces."""
    only, opset = builder.program.only, builder.opset
    made = [out for node in builder.nodes for out in node.outs if out.dtype == "string" and not out.reads]
    for text in [out for out in made if is_closed(out.shape)]:
        names = [
            name
            for name in _MEASURES
            if (had := form(name, opset)) is not None
            and "string" in had.dtypes(0)
            and (only is None or name in only)
            and (text.shape or name != "Shape")
        ]
        if names and builder.program.pieces.count > 1:
            operator = operators()[builder.rng.choice(names)]
            others = [builder.match("string", text.shape)] if operator.pairs else []
            builder.add(operator, [text, *others], {})


def choose_outputs(builder: GraphBuilder) -> list[Tensor]:
    """Choose the outputs of a program: unread tensors, at times a read one, rarely all but one of them."""
    rng, exposed = builder.rng, {tensor.name for tensor in builder.program.exposed}
    given = [
        tensor
        for node in builder.nodes
        for tensor in node.outs
        if tensor.name and (not tensor.reads or rng.random() < builder.style.middle or tensor.name in exposed)
    ]
    if len(given) > 1 and rng.random() < builder.style.dead:
        # A dead branch, which compilers must remove.
        given.pop(rng.below(len(given)))
    # A body that was drawn and dropped may have read the last result; a program needs an output all the same.
    return given or [tensor for node in builder.nodes[-1:] for tensor in node.outs if tensor.name][:1]


def open_containers(builder: GraphBuilder) -> None:
    """Take tensors out of unread sequences and optionals, except in one program of seven.

    Compilers that fail on a container as an output fail on each such program, which hides everything else in
    it.
    """
    if not builder.program.choices or builder.rng.random() < _CLOSED_SHARE:
        return
    for node in list(builder.nodes):
        for tensor in node.outs:
            if tensor.reads or not tensor.name or tensor.dtype.partition("(")[0] not in _OPENERS:
                continue
            kind, _, rest = tensor.dtype[:-1].partition("(")
            opener, asker = _OPENERS[kind]
            whole = rest in NUMBER and is_closed(tensor.shape) and node.op != "SequenceEmpty"
            name = opener if whole else asker
            if builder.program.only is not None and name not in builder.program.only:
                continue
            ins = [tensor, builder.ints([0], "int64", ())] if name == "SequenceAt" else [tensor]
            builder.add(operators()[name], ins, {})


def finish(
    builder: GraphBuilder, request: GenRequest, generator: str, seed: int, types: bool = False
) -> Case:
    """Turn the builder into a case with values for its inputs; `types` adds the types of inner tensors."""
    open_containers(builder)
    join_pieces(builder)
    program = builder.program
    missing = request.nodes - len(builder.nodes) - program.inner
    for _ in range(_TRIES_A_NODE * missing if program.choices else 0):
        if len(builder.nodes) + program.inner >= request.nodes or program.elements >= builder.budget.elements:
            break
        choice = draw_operator(builder, program.choices)
        if program.only is not None or (
            choice.op.family != _SOURCE and not NUMERIC.isdisjoint(choice.dtypes)
        ):
            builder.grow(choice)
    given = choose_outputs(builder)
    free = open_sizes(builder, builder.rng) if builder.program.opened else {}
    encoded = encode_program(builder, given, generator, types or request.types, free)
    model = encoded.join()
    if request.record is not None:
        request.record(Template(builder, encoded, given, model))
    states = tuple(dict.fromkeys(builder.program.states))
    origin = Origin(generator, seed, _VERSIONS, "generated", to_record(request), states)
    return Case(OnnxProgram(model, f"{generator}-{seed}"), encoded.values, None, origin)


@functools.lru_cache(maxsize=256)
def to_record(request: GenRequest) -> Mapping[str, str]:
    """Convert a request to text by field, without defaults; gen/generation/request.py reads it back."""
    usual = GenRequest()
    found: dict[str, str] = {}
    for name in ("only", "dtypes"):
        given: frozenset[str] | None = getattr(request, name)
        if given is not None:
            found[name] = ",".join(sorted(given))
    for name in ("opset", "bins", "target", "values", "sibling", "siblings"):
        if getattr(request, name) != getattr(usual, name):
            found[name] = str(getattr(request, name))
    if request.types:
        found["types"] = "yes"
    if request.dynamic:
        found["dynamic"] = repr(request.dynamic)
    if request.corpus:
        digests = "".join(program.digest for program in request.corpus)
        found["corpus"] = f"{len(request.corpus)} models, {hashlib.sha256(digests.encode()).hexdigest()[:12]}"
    if request.budget != usual.budget:
        found["budget"] = f"{request.budget.tensor},{request.budget.elements},{request.budget.work}"
    found["nodes"] = f"{request.between[0]}-{request.between[1]}" if request.between else str(request.nodes)
    return MappingProxyType(found)


def build_single_node(
    choice: OpChoice, opset: int, seed: int, budget: Budget | None = None, palette: tuple[str, ...] = ()
) -> GraphBuilder | None:
    """Build one instance of an operator with leaves as inputs; None if 20 draws fail. For probing, soaks and
    tests.

    `choice` gives the dtypes and ranks of the first input, `palette` the likely dtypes of other inputs (the
    first input's unless given).
    """
    rng = Rng(f"single {choice.op.domain} {choice.op.name} {','.join(choice.leaves)} {opset} {seed}")
    # An operator may not fit the drawn leaves; then a new builder starts from the next random numbers.
    for _ in range(20):
        builder = GraphBuilder(
            ProgramState(
                rng,
                opset,
                Style(pick=0.3, palette=palette or choice.leaves, computed=0.0),
                budget or Budget(),
            )
        )
        if builder.grow(choice) is not None:
            return builder
    return None
