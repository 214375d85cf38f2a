"""Tzer's fuzzing loop (Algorithm 1 of the paper) without its I/O: choose the next attempt, learn from its
result.

Seeds are pairs of a function and a pass sequence with a counter. After `patience` (N_max) mutations of its
function without new coverage, a seed has its passes mutated once; attempts with new coverage are kept,
failures are reported and dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import general, nodes, nodes as N, passes
from opsieve.gen.irs.tir.expressions import element, index
from opsieve.gen.irs.tir.loops import (
    EXTENTS,
    OUT_OF_PLACE,
    annotate_loop,
    annotations,
    independent,
    of_other_kind,
    parallel_inside,
    split,
    wrap_in_loops,
)
from opsieve.gen.irs.tir.scope import RATES, Hole, Scope, holes, open_holes, put
from opsieve.gen.irs.tir.statements import (
    MEMORY_SCOPES,
    allocation,
    make_accumulation,
    make_fill,
    statement,
    write,
)
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode, Pairs

# The last two belong to GPUs, which code generation for a CPU refuses.
TAGS = ("vthread", "vthread.x", "vthread.y", "vthread.z", "threadIdx.x", "blockIdx.x")


def loop_nesting(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Wrap new loops around a statement, and use their variables in some of its indices; or change the kind
    or annotations of a loop, or split it.
    """
    if hole.node.type == "tirx.For" and rng.chance(RATES.loop_changed):
        return rng.choice((annotate_loop, of_other_kind, split))(rng, hole.node, hole.scope)
    # Each loop multiplies the work of what is inside, so the depth is bounded.
    around = len(hole.scope.kinds)
    if around > 5:
        return None

    def body(inner: Scope) -> ObjectNode:
        return (
            _replace_indices(rng, hole.node, inner, hole.scope) if rng.chance(RATES.reindexed) else hole.node
        )

    return wrap_in_loops(rng, hole.scope, body, 3 if around < 2 else 1)


def memory_operation(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Add a load, a store or a buffer before or behind a statement, or take a value from memory instead."""
    way = rng.random()
    if way < 0.25 and hole.node.type == "tirx.BufferStore":
        node = hole.node
        value = node.node("value")
        small = N.buffer(
            # Small buffers are candidates for registers, which is what passes on storage decide about.
            f"c{rng.below(1000)}",
            [rng.choice((1, 2, 4))],
            N.dtype(value),
            rng.choice(MEMORY_SCOPES),
        )
        place = index(rng, hole.scope, (N.shape(small) or (1,))[0])
        steps = [
            N.allocate(small),
            N.store(small, value, place),
            N.with_fields(node, value=N.load(small, N.again(place))),
        ]
        if rng.chance(RATES.filled_first):
            steps.insert(1, make_fill(rng, hole.scope, small))
        return N.sequence(*steps)
    if way < 0.4:
        return _with_attribute(rng, hole)
    if not hole.scope.buffers:
        made = allocation(rng, hole.scope, general.FUEL)
    else:
        made = rng.choice((write, make_accumulation, make_accumulation, allocation))(
            rng, hole.scope, rng.between(1, general.FUEL)
        )
    return N.sequence(made, hole.node) if rng.chance(RATES.put_before) else N.sequence(hole.node, made)


def thread_binding(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Run a statement in threads: virtual ones, those of a parallel loop, or those of a GPU, which code
    generation for a CPU refuses.
    """
    extent, way = rng.choice((1, 2, 3, 4, 8)), rng.random()
    tag = rng.choice(TAGS[:4]) if rng.chance(RATES.usual_tag) else rng.choice(TAGS[4:])
    axis = N.thread_axis(tag, N.integer(extent))
    var = axis.node("var") if way > 0.6 else N.variable("p")
    inner = hole.scope.with_variable(var, 0, extent - 1)
    body = _replace_indices(rng, hole.node, inner, hole.scope)
    if rng.chance(RATES.more_in_thread):
        body = N.sequence(body, statement(rng, inner, 2))
    if not independent(body, var) and not rng.chance(4 * OUT_OF_PLACE):
        # Several threads would write to one place, so the result would depend on their order.
        return None
    if way < 0.25:
        # TVM does not take parallel loops inside of parallel ones.
        if parallel_inside(body) or {N.PARALLEL, N.VECTORIZED} & set(hole.scope.kinds):
            return None
        return N.loop(var, N.integer(extent), body, N.PARALLEL)
    if way < 0.6:
        return N.loop(var, N.integer(extent), body, N.THREAD, thread=axis)
    key = "virtual_thread" if tag.startswith("vthread") else "thread_extent"
    return N.attribute(key, N.integer(extent), body, axis)


def _statement_hole(rng: Rng, function: ObjectNode) -> Hole | None:
    found = [hole for hole in open_holes(function) if hole.role == "statement"]
    return rng.choice(found) if found else None


def _replace_indices(rng: Rng, body: ObjectNode, inner: Scope, outer: Scope) -> ObjectNode:
    """Make some indices of a statement from the variables that are new around it."""
    # `holes` walks functions, so the statement gets one around it.
    wrap = N.function([], body)
    places = [hole for hole in holes(wrap) if hole.role == "index"]
    places = [
        hole for hole in places if hole.bound > 1 and N.dtype(hole.node) == "int32" and not hole.scope.block
    ]
    if not places:
        return body
    new = tuple(item for item in inner.ranges if item not in outer.ranges)
    # Deeper places first: the way to a place that is left stays what it was.
    for hole in sorted(
        rng.some(places, min(len(places), rng.between(1, 3))), key=lambda item: -len(item.path)
    ):
        scope = replace(
            hole.scope,
            ranges=(*hole.scope.ranges, *new),
            variables=(*hole.scope.variables, *(v for v, _, _ in new)),
        )
        try:
            wrap = put(wrap, hole.path, index(rng, scope, hole.bound))
        except (KeyError, IndexError, MalformedGraph):
            # An earlier change has removed this place.
            continue
    return wrap.node("body")


def _with_attribute(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Put a statement behind a branch on memory, or into a loop with a double-buffered allocation."""
    if not hole.scope.buffers:
        return None
    if rng.chance(RATES.behind_branch):
        condition = N.binary(
            "GT", N.cast(element(rng, hole.scope, rng.choice(hole.scope.buffers)), "float32"), N.real(0.0)
        )
        return N.branch(condition, hole.node)
    of = N.buffer(
        f"d{rng.below(1000)}",
        [rng.choice(EXTENTS[1:5])],
        "float32",
        rng.choice(("local", "shared", "global")),
    )
    inner = hole.scope.with_buffer(of)
    var = N.variable("r")
    turn = inner.with_variable(var, 0, 3)
    body = N.sequence(
        N.attribute("double_buffer_scope", N.integer(1), make_fill(rng, turn, of), of),
        write(rng, turn, 3),
        hole.node,
    )
    said = Pairs() if rng.chance(RATES.bare_double_buffer) else annotations(rng)
    return N.sequence(N.allocate(of), N.loop(var, N.integer(rng.between(2, 4)), body, N.SERIAL, said))


DOMAIN: tuple[general.Mutator, ...] = (loop_nesting, memory_operation, thread_binding)


# N_max: the best value of the paper's figure 8
PATIENCE = 4
# Nodes of a function that is kept; the paper finds small ones to be quicker (section 5.3)
LARGEST = 400
TRIES = 8
# The number of candidates over which recent yield is averaged.
MEMORY = 50
# The least share of new functions that go either way.
LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """The enabled parts: the paper's ablation (figure 6) disables them one by one.

    `joint` is `none` (no passes), `random` (each new function with a new random sequence), `evolving`
    (Algorithm 1) or `adaptive`: Algorithm 1, in which a new function goes with a new sequence as often as
    that has lately paid more than going with its seed's own.
    """

    coverage: bool = True
    domain: bool = True
    joint: str = "adaptive"
    # Functions are mutated at all
    programs: bool = True
    patience: int = PATIENCE


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function and a sequence to try, the part that changed ("function", "passes" or "both"), and its
    seed.
    """

    function: ObjectNode
    sequence: tuple[str, ...]
    changed: str
    seed: int
    how: str = ""


@dataclass(slots=True)
class _Seed:
    function: ObjectNode
    sequence: tuple[str, ...]
    failed: int = 0  # N


class SeedPool:
    """The pool of seeds. `next` and `learn` alternate in any order: several candidates may be under way."""

    def __init__(self, seeds: Sequence[ObjectNode], key: str, settings: Settings = Settings()):
        self.settings = settings
        self._rng = Rng(f"tir {key}", 0)
        start = () if settings.joint == "none" else None
        self.pool = [_Seed(item, passes.draw_passes(self._rng) if start is None else start) for item in seeds]
        self._untried = list(range(len(self.pool)))
        # Candidates that were valid and reached something new
        self.valuable = 0
        # The recent share of valuable candidates, by kind.
        self._paid = {"function": 1.0, "both": 1.0}

    def next(self) -> Mutant:
        """What to try: first every seed as it is, then lines 5 to 18 of the algorithm."""
        rng = self._rng
        if self._untried:
            at = self._untried.pop(0)
            return Mutant(self.pool[at].function, self.pool[at].sequence, "", at, "seed")
        at = rng.below(len(self.pool))
        seed = self.pool[at]
        evolving = self.settings.joint in ("evolving", "adaptive")
        if not self.settings.programs or (evolving and seed.failed >= self.settings.patience):
            other = self.pool[rng.below(len(self.pool))].sequence
            return Mutant(
                seed.function, passes.mutate_passes(rng, seed.sequence, other), "passes", at, "passes"
            )
        function, how = mutate_function(rng, seed.function, self.settings.domain)
        if self.settings.joint == "random":
            return Mutant(function, passes.draw_passes(rng), "function", at, how)
        if self.settings.joint == "adaptive" and rng.chance(self._share()):
            return Mutant(function, passes.draw_passes(rng), "both", at, how)
        return Mutant(function, seed.sequence, "function", at, how)

    def _share(self) -> float:
        """Return the share of new functions that get a new sequence, by the recent yield of both options;
        always above zero.
        """
        both, function = self._paid["both"], self._paid["function"]
        return min(max(both / (both + function + 1e-9), LEAST), 1 - LEAST)

    def learn(self, candidate: Mutant, failed: bool, new: bool) -> None:
        """Lines 9 to 26: what fails was reported by whoever ran it; what reached something new becomes a
        seed.
        """
        seed = self.pool[candidate.seed]
        if new and not failed:
            self.valuable += 1
        if candidate.changed in self._paid:
            paid = float(new and not failed)
            self._paid[candidate.changed] += (paid - self._paid[candidate.changed]) / MEMORY
        keep = new or not self.settings.coverage
        # An unchanged seed: if its sequence does not fit, it gets another.
        if not candidate.changed:
            if failed and seed.failed < TRIES:
                seed.failed += 1
                seed.sequence = passes.draw_passes(self._rng) if seed.failed < TRIES else ()
                self._untried.append(candidate.seed)
            else:
                seed.failed = 0
        elif candidate.changed == "passes":
            if not failed and keep:
                seed.sequence = candidate.sequence
            seed.failed = 0
        elif candidate.changed == "both":
            if keep and not failed:
                self._add(candidate)
                seed.failed = 0
        elif candidate.changed == "function":
            if failed:
                # The paper's line 20 reports and lets the counter be; its program counts, and else a sequence
                # that suits no mutant of its function would never be exchanged.
                seed.failed += 1
            elif keep:
                self._add(candidate)
                seed.failed = 0
            else:
                seed.failed += 1

    def _add(self, candidate: Mutant) -> None:
        if nodes.size(candidate.function) <= LARGEST:
            self.pool.append(_Seed(candidate.function, candidate.sequence))


def mutate_once(rng: Rng, function: ObjectNode, mutator: general.Mutator) -> ObjectNode | None:
    """Mutate the function in a hole that the mutator takes; `None` where there is none or it fails there."""
    pick = _statement_hole if mutator in DOMAIN else general.pick_hole
    hole = pick(rng, function)
    part = None if hole is None else mutator(rng, hole)
    return None if hole is None or part is None else put(function, hole.path, part)


def mutate_function(rng: Rng, function: ObjectNode, domain: bool = True) -> tuple[ObjectNode, str]:
    """Mutate the function once, and return the mutator's name; after some failed tries the function is
    unchanged.
    """
    for _ in range(TRIES):
        mutator = rng.choice((*general.GENERAL, *DOMAIN) if domain else general.GENERAL)
        changed = mutate_once(rng, function, mutator)
        if changed is not None and changed is not function and nodes.size(changed) <= 2 * LARGEST:
            return changed, mutator.__name__
    return function, "none"
