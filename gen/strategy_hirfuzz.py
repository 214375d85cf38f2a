"""Coverage-guided generation (HirFuzz, section 3.1): of several operators that could come next, the one that covers most that is new.

Coverage is HirFuzz's: pairs of operator and dtype, operator and shape, operator and operator. A program is guided by the programs
before it in its batch of 256 seeds, so that it can be made again from its seed alone; who asks for seeds in order pays nothing for
that, since the last state is kept.
"""

from dataclasses import dataclass, field, replace

from opsieve.gen.case import Case
from opsieve.gen.catalogue import choices
from opsieve.gen.growth import Wish, begun, case, plenty
from opsieve.gen.metrics_coverage import Coverage
from opsieve.gen.sketch import Sketch
from opsieve.gen.wishes import sized

BATCH = 256
_CANDIDATES = 3  # a fourth finds little more and takes a twentieth of the time
NAME = "hirfuzz"


@dataclass(slots=True)
class _State:
    """How far a batch has come: its coverage after the programs before `seed`."""

    wish: Wish
    seed: int
    coverage: Coverage = field(default_factory=Coverage)


_last: _State | None = None


def hirfuzz(wish: Wish, seed: int) -> Case:
    """The program of a seed, guided by those before it in its batch."""
    global _last
    state = _last
    first = seed - seed % BATCH
    same = wish if wish.between is None else replace(wish, nodes=0)
    if state is None or state.wish != same or not first < state.seed <= seed:
        state = _State(same, first)
    while True:
        asked = sized(wish, state.seed)
        sketch = begun(asked, state.seed, NAME)
        _guided(sketch, asked, state.coverage)
        state.seed += 1
        if state.seed > seed:
            break
    _last = state if state.seed % BATCH else None
    return case(sketch, asked, NAME, seed)


def _guided(sketch: Sketch, wish: Wish, coverage: Coverage) -> None:
    """Grow a sketch: each time the best of some candidates, by what it adds to the coverage."""
    sketch.choices = choices(sketch.opset, wish.only, wish.dtypes)
    from_all = plenty(sketch.opset, wish.only, wish.dtypes, not wish.opset)
    draw, makers = sketch.draw, dict[str, str]()
    gluing, plain = sketch.style, replace(sketch.style, glue=0.0)
    while len(sketch.nodes) + sketch.inner < wish.nodes and sketch.elements < wish.budget.elements:
        best, most, before = None, -1, len(sketch.leaves)
        for number in range(_CANDIDATES):
            sketch.style = plain if number else gluing  # glue of what is not taken would be left lying about
            choice = draw.choice(from_all)
            operator = choice.op
            if operator.family in ("control", "container") and best is not None:
                continue  # drawing an instance of these adds nodes: one that is not taken would be left lying about
            inner = sketch.inner
            made = operator.sample(sketch, sketch.first(choice))
            held, sketch.inner = sketch.inner - inner, inner  # nodes in bodies count once they are taken
            if made is None:
                continue
            ins, attrs = made
            outs = [typed for typed in operator.infer(ins, attrs) if typed is not None]  # type: ignore[arg-type]
            producers = [makers[tensor.name] for tensor in ins if tensor is not None and tensor.name in makers]
            new = coverage.novelty(operator.name, outs, producers)
            if new > most:
                best, most = (operator, ins, attrs, outs, producers, held), new
                if producers and new > len(producers):
                    break  # a new shape and new edges: others are hardly better
        if best is None:
            continue
        operator, ins, attrs, outs, producers, held = best
        sketch.style = gluing
        added = sketch.add(operator, ins, attrs)
        sketch.forget(sketch.leaves[before:])
        if added is None:
            continue
        sketch.inner += held
        coverage.note(operator.name, outs, producers)
        for tensor in added:
            makers[tensor.name] = operator.name
