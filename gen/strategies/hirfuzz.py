"""OperatorCoverage-guided generation (HirFuzz, section 3.1): of several operators that could come next, the one that covers most that is new.

OperatorCoverage is HirFuzz's: pairs of operator and dtype, operator and shape, operator and operator; to these come chains of three operators with their
dtypes. A program is guided by the programs before it in its batch of 256 seeds.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from opsieve.gen.build.graph import Node
from opsieve.gen.build.graph_builder import GraphBuilder
from opsieve.gen.case.case import Case
from opsieve.gen.generation.batches import Batches
from opsieve.gen.generation.random_graph import GenRequest, draw, finish, start, weighted_choices
from opsieve.gen.metrics.coverage import Link, OperatorCoverage
from opsieve.gen.spec.catalogue import choices
from opsieve.gen.spec.tensor import Tensor

BATCH: Final = 256
Links: TypeAlias = dict[str, tuple[Link, set[Link]]]  # of a result: what made it, and what that reads
_CANDIDATES: Final = 3  # a fourth finds little more and takes a twentieth of the time
NAME: Final = "hirfuzz"
# Drawing an instance of these adds nodes: of one that is not taken they would be left lying about.
_SEPARATE: Final = ("control", "container")


def hirfuzz(request: GenRequest, seed: int) -> Case:
    """The program of a seed, guided by those before it in its batch."""
    return finish(_BATCHES.made(request, seed), request, NAME, seed)


def _guided(request: GenRequest, seed: int, coverage: OperatorCoverage) -> GraphBuilder:
    """Grow a builder: each time the best of some candidates, by what it adds to the coverage."""
    builder = start(request, seed, NAME)
    builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    from_all = weighted_choices(builder.opset, request.only, request.dtypes, not request.opset)
    links: Links = {}
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        best, most = None, -1
        builder.hold()
        for _ in range(_CANDIDATES):
            choice = draw(builder, from_all)
            operator = choice.op
            if best is not None and operator.family in _SEPARATE:
                continue
            inner, first = builder.program.inner, len(builder.nodes)
            made = builder.instance(operator, builder.first(choice))
            adapters: list[Node] = []
            if len(builder.nodes) > first:
                builder.prune(first, made.inputs if made is not None else ())
                adapters = builder.undo(first)  # until it is taken
                for node in adapters:
                    _note_links(links, node.op, node.ins, node.outs)
            held = builder.program.inner - inner
            builder.program.inner = inner  # nodes in bodies count once they are taken
            if made is None:
                continue
            types = operator.infer(made.inputs, made.attributes)[: made.outputs]  # type: ignore[arg-type]
            outs = [typed for typed in types if typed is not None]
            read = _read(links, made.inputs)
            producers = [link[0] for link, _ in read]
            new = coverage.novelty(operator.name, outs, producers) - len(adapters)  # which nobody asked for
            last = (operator.name, outs[0][0] if outs else "")
            chains = {(first, link, last) for link, before in read for first in before}
            covered = new + coverage.new_chains(chains)
            if covered > most:
                best, most = (operator, made, types, outs, producers, held, adapters, chains), covered
                if producers and new > len(producers):
                    break  # a new shape and new edges: others are hardly better
        added = None
        if best is not None:
            operator, made, types, outs, producers, held, adapters, chains = best
            before = len(builder.nodes)
            builder.redo(adapters)
            added = builder.add(operator, made.inputs, made.attributes, types=types)
            if added is None:
                builder.undo(before)
            else:
                _note_links(links, operator.name, made.inputs, added)
        forgotten = builder.settle()
        if added is not None:  # else what is forgotten counts: operators that never fit come to an end so
            builder.program.elements -= forgotten
            builder.program.inner += held
            coverage.note(operator.name, outs, producers)
            coverage.note_chains(chains)
    return builder


def _read(links: Links, ins: Sequence[Tensor | None]) -> list[tuple[Link, set[Link]]]:
    """What is known of the results among some inputs."""
    return [links[tensor.name] for tensor in ins if tensor is not None and tensor.name in links]


def _note_links(links: Links, op: str, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> None:
    known = (op, outs[0].dtype), {link for link, _ in _read(links, ins)}
    for out in outs:
        links[out.name] = known


_BATCHES: Final = Batches(BATCH, OperatorCoverage, _guided)
