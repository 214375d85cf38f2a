"""Coverage-guided generation (HirFuzz, section 3.1): of several operators that could come next, the one that
covers most that is new.

What is counted is HirFuzz's: pairs of operator and dtype, operator and shape, operator and operator; to these
come chains of three operators with the dtypes of the first two. Dtypes and shapes are those of the first
input: all is known before an instance is drawn, so one instance is drawn for a node. A program is guided by
the programs before it in its batch of 256 seeds.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, TypeAlias

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import OpChoice, OpTable, choices
from opsieve.gen.declarations.tensor import ANY, Tensor
from opsieve.gen.generation import batches, random_graph
from opsieve.gen.graph import graph, graph_builder

# Coverage is shared by the programs of one batch. Batches are independent, so that a campaign can generate
# them in any order and in parallel.
BATCH: Final = 256
NAME: Final = "hirfuzz"
_CANDIDATES: Final = 6
_RECENT: Final = 3
# The value of one more node on the path to a result, and the loss if twice as many operators have read a
# result of its kind.
_DEPTH, _READ = 3, 2
# An operator this many times rarer than the others is chosen whatever it reads.
_RARE: Final = 4
# The loss if the values of the operand need adapters.
_CLIPPED: Final = 2
# An operator and the dtype of its first output.
Link: TypeAlias = tuple[str, str]
# Names of operators
Readers: TypeAlias = set[str]


def hirfuzz(request: random_graph.GenRequest, seed: int) -> Case:
    """Return the program of a seed, guided by those before it in its batch."""
    return random_graph.finish(_BATCHES.make_at(request, seed), request, NAME, seed)


class _Source:
    """The operator that made a result, and the operators of a batch that have read such results, for each
    number of earlier links that is compared.

    One is made for every node: a frozen dataclass would take three times as long.
    """

    __slots__ = ("behind", "link", "readers")

    def __init__(self, link: Link, readers: Readers, behind: Sequence[Readers]) -> None:
        self.link = link
        self.readers = readers
        self.behind = behind

    def count_new(self, name: str) -> int:
        """Count how many edges and chains an operator would be the first to read; several chains through one
        result count once.
        """
        for readers in self.behind:
            if name not in readers:
                return 1 + (name not in self.readers)
        return name not in self.readers

    def add_reader(self, name: str) -> None:
        """Record that an operator reads such a result."""
        self.readers.add(name)
        for readers in self.behind:
            readers.add(name)


class Guide:
    """The coverage of a batch's programs, and the sources of the results of the growing program."""

    def __init__(self) -> None:
        # The operators that have read a result of a dtype, and of a shape.
        self._by_type: defaultdict[str | graph.Shape, Readers] = defaultdict(set)
        # The operators that have read behind an operator, and behind two links.
        self._behind: defaultdict[str | tuple[Link, Link], Readers] = defaultdict(set)
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._sources: dict[str, _Source] = {}
        self._noted = 0

    def begin_program(self) -> None:
        """Start another program."""
        self._sources, self._noted = {}, 0

    def choose_result(self, recent: Sequence[Tensor]) -> Tensor:
        """Choose a recent result that many nodes lead to, of a dtype and shape that few operators have
        read.
        """
        return max(
            recent[-_RECENT:],
            key=lambda each: (
                _DEPTH * each.depth
                - _READ * sum(len(self._by_type[kind]).bit_length() for kind in (each.shape, each.dtype))
            ),
        )

    def choose_operator(
        self, builder: graph_builder.GraphBuilder, from_all: OpTable, near: Tensor
    ) -> OpChoice:
        """Choose the operator that would cover the most by reading a result: among those that take it
        unchanged, and a rare one.
        """
        random, ranged, counts, few = (
            builder.rng.random,
            builder.style.ranged,
            self._counts,
            self._total / len(from_all),
        )
        best, most = from_all[int(random() * len(from_all))], -1
        if best.op.family in random_graph.SELDOM and counts[best.op.name] < few / _RARE:
            return best
        of_dtype, of_shape = self._by_type[near.dtype], self._by_type[near.shape]
        source = self._sources[near.name]
        fit = _list_fitting(from_all, near.dtype, len(near.shape))
        for _ in range(_CANDIDATES if fit else 0):
            choice = fit[int(random() * len(fit))]
            name = choice.op.name
            new = (
                (name not in of_dtype)
                + (name not in of_shape)
                + (counts[name] < few)
                + source.count_new(name)
                - _CLIPPED * (ranged and choice.safe is not ANY and not near.within(choice.safe))
            )
            if new > most:
                best, most = choice, new
        return best

    def count_nodes(self, nodes: Sequence[graph.Node]) -> None:
        """Count the nodes added to the program since the last call."""
        sources, counts = self._sources, self._counts
        for node in nodes[self._noted :]:
            name, links = node.op, []
            counts[name] += 1
            for tensor in node.ins:
                if tensor is not None and (source := sources.get(tensor.name)) is not None:
                    source.add_reader(name)
                    links.append(source.link)
            if node.ins and (x := node.ins[0]) is not None:
                for kind in (x.dtype, x.shape):
                    self._by_type[kind].add(name)
            link = (name, node.outs[0].dtype)
            made = _Source(link, self._behind[name], [self._behind[first, link] for first in links])
            for out in node.outs:
                sources[out.name] = made
        self._total += len(nodes) - self._noted
        self._noted = len(nodes)


@functools.lru_cache(maxsize=4096)
def _list_fitting(from_all: OpTable, dtype: str, rank: int) -> tuple[OpChoice, ...]:
    """List the operators whose first input can have a dtype and rank."""
    return tuple(each for each in from_all if dtype in each.dtypes and each.low <= rank <= each.high)


def _grow_guided(request: random_graph.GenRequest, seed: int, guide: Guide) -> graph_builder.GraphBuilder:
    """Grow a program, each time by the best of some operators."""
    builder = random_graph.start(request, seed, NAME)
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    from_all = random_graph.list_weighted_choices(
        builder.opset, request.only, request.dtypes, not request.opset
    )
    guide.begin_program()
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        if builder.scope.recent:
            near = guide.choose_result(builder.scope.recent)
            builder.grow(guide.choose_operator(builder, from_all, near), near=near)
        else:
            builder.grow(random_graph.draw_operator(builder, from_all))
        guide.count_nodes(builder.nodes)
    return builder


_BATCHES: Final = batches.Batches(BATCH, Guide, _grow_guided)
