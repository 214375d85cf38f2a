"""TIR functions as trees: mutation keeps them well formed, sequences of passes keep an order that TVM allows,
Algorithm 1.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import nodes as N, passes
from opsieve.gen.irs.tir.arguments import arguments, program, values
from opsieve.gen.irs.tir.expressions import EVERY, TYPES, expression, index
from opsieve.gen.irs.tir.fuzzing import DOMAIN, SeedPool, Settings, mutate_function, mutate_once
from opsieve.gen.irs.tir.general import GENERAL
from opsieve.gen.irs.tir.scope import Scope, free, holes, put
from opsieve.gen.irs.tvm.nodes import ObjectNode, encode

A, B, C = N.buffer("A", (8, 8)), N.buffer("B", (8, 8)), N.buffer("C", (16,), "int32")
ROW, COLUMN = N.variable("i"), N.variable("j")
ADD = N.store(B, N.binary("Add", N.load(A, ROW, COLUMN), N.real(1.0)), ROW, COLUMN)
START = N.function([A, B, C], N.loop(ROW, N.integer(8), N.loop(COLUMN, N.integer(8), ADD)))
EMPTY = N.function([A, B, C], N.evaluate(N.integer(0)))
seeds = st.integers(0, 10_000)


def grown(seed: int, steps: int = 8) -> ObjectNode:
    rng, function = Rng(seed, 0), START if seed % 3 else EMPTY
    for _ in range(steps):
        function, _ = mutate_function(rng, function)
    return function


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_a_mutated_function_reads_nothing_that_is_not_there(seed: int) -> None:
    function = grown(seed)
    body = function["body"]
    assert isinstance(body, ObjectNode)
    assert free(body) <= {A, B, C}
    for hole in holes(function):
        if hole.role in ("value", "condition"):
            unknown = free(hole.node) - {*hole.scope.variables, *hole.scope.buffers}
            assert all(not N.is_buffer(item) or N.shape(item) is None for item in unknown), unknown


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_types_stay_what_the_places_want(seed: int) -> None:
    for node in N.walk(grown(seed)):
        if node.type in ("prim.Add", "prim.LT", "prim.Div", "prim.FloorMod", "prim.Max"):
            assert N.dtype(node["a"]) == N.dtype(node["b"])
        if node.type == "tirx.BufferStore":
            assert N.dtype(node["value"]) == N.dtype(node["buffer"])
        if node.type in ("tirx.IfThenElse", "tirx.While"):
            assert N.dtype(node["condition"]) == "bool"


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_equal_seeds_give_equal_programs_and_bytes_come_back(seed: int) -> None:
    made = program(grown(seed), ("tirx.UnrollLoop",))
    assert made == program(grown(seed), ("tirx.UnrollLoop",))
    assert program(made.entry, made.passes) == made
    assert set(made.inputs()) == set(made.outputs()) == {"A", "B", "C"}


@pytest.mark.parametrize("mutator", [*GENERAL, *DOMAIN], ids=lambda item: item.__name__)
def test_each_mutator_changes_functions(mutator) -> None:  # type: ignore[no-untyped-def] # any of the six
    changed = [mutate_once(Rng(seed, 0), grown(seed, 4), mutator) for seed in range(30)]
    assert sum(item is not None for item in changed) > 5


def test_every_operator_and_intrinsic_is_drawn() -> None:
    names: Counter[str] = Counter()
    scope = Scope(buffers=(A, B, C)).with_variable(ROW, 0, 7)
    for seed in range(3000):
        for node in N.walk(expression(Rng(seed, 0), scope, TYPES[seed % len(TYPES)], 8)):
            names[str(node.raw) if node.type == "ir.Op" else node.type.removeprefix("prim.")] += 1
    wanted = {form.name for form in EVERY}
    assert len(wanted) >= 60
    assert wanted - set(names) == set()


@given(seeds, st.integers(1, 20))
def test_a_generated_index_is_inside(seed: int, size: int) -> None:
    scope = Scope(buffers=()).with_variable(ROW, 0, 7).with_variable(COLUMN, 0, 2)
    made = index(Rng(seed, 0), scope, size)
    for i in range(8):
        for j in range(3):
            assert 0 <= value_of(made, {ROW: i, COLUMN: j}) < size


def value_of(node: ObjectNode, at: dict[ObjectNode, int]) -> int:
    """Of the few operators that an index over loops alone is made of; what it cannot know is 0, which the
    modulo around holds.
    """
    if node in at:
        return at[node]
    if (number := N.number(node)) is not None:
        return number
    if not {"a", "b"} <= set(node.fields):
        return 0
    a, b = (value_of(node[name], at) for name in ("a", "b"))  # type: ignore[arg-type]
    ways = {"Add": a + b, "Sub": a - b, "Mul": a * b, "Min": min(a, b), "Max": max(a, b)}
    if node.type == "prim.FloorMod":
        return a % b if b else 0
    if node.type == "prim.FloorDiv":
        return a // b if b else 0
    return ways.get(node.type.removeprefix("prim."), 0)


def test_a_place_is_replaced_and_the_rest_is_shared() -> None:
    [store] = [hole for hole in holes(START) if hole.node is ADD]
    other = N.evaluate(N.integer(0))
    changed = put(START, store.path, other)
    assert changed is not START
    assert changed["params"] is START["params"]
    assert other in list(N.walk(changed))
    assert ADD not in list(N.walk(changed))
    assert encode(put(changed, store.path, ADD)) == encode(START)


@given(seeds)
def test_sequences_keep_the_order_that_packing_needs(seed: int) -> None:
    rng = Rng(seed, 0)
    sequence = passes.draw_passes(rng)
    for _ in range(6):
        sequence = passes.mutate_passes(rng, sequence, passes.draw_passes(rng))
        names = [item for item in sequence if not item.startswith("=")]
        assert set(names) <= set(passes.passes())
        assert sequence[: len(sequence) - len(names)] == tuple(
            item for item in sequence if item.startswith("=")
        )
        late = [item for item in names if item in passes.PACKED]
        assert late == [item for item in passes.PACKED if item in late]
        if late:
            assert names[-len(late) :] == late
        assert passes.order_passes(sequence) == sequence


def test_a_seed_that_brings_nothing_new_has_its_passes_mutated_once_in_a_while() -> None:
    loop = SeedPool([START], "key", Settings(patience=3, joint="evolving"))
    changed = []
    for _ in range(30):
        candidate = loop.next()
        changed.append(candidate.changed)
        loop.learn(candidate, failed=False, new=False)
    assert changed[0] == ""
    assert changed[1:] == (["function"] * 3 + ["passes"]) * 7 + ["function"]
    assert len(loop.pool) == 1


@pytest.mark.parametrize("paying", ["both", "function"])
def test_new_sequences_are_drawn_as_often_as_they_pay(paying: str) -> None:
    loop = SeedPool([START], "key", Settings(coverage=True))
    tried: Counter[str] = Counter()
    for number in range(400):
        candidate = loop.next()
        if number >= 200:
            tried[candidate.changed] += 1
        loop.learn(candidate, failed=False, new=candidate.changed == paying and number % 3 == 0)
    other = {"both": "function", "function": "both"}[paying]
    assert tried[paying] > 2 * tried[other] > 0


def test_a_function_that_fails_counts_as_one_that_brings_nothing() -> None:
    loop = SeedPool([START], "key", Settings(patience=2, joint="evolving"))
    changed = []
    for _ in range(7):
        candidate = loop.next()
        changed.append(candidate.changed)
        loop.learn(candidate, failed=candidate.changed == "function", new=False)
    assert changed == ["", "function", "function", "passes", "function", "function", "passes"]


def test_what_is_new_becomes_a_seed_and_what_fails_does_not() -> None:
    loop = SeedPool([START], "key")
    first = loop.next()
    loop.learn(first, failed=False, new=True)
    grown_ = loop.next()
    loop.learn(grown_, failed=False, new=True)
    assert [seed.function for seed in loop.pool] == [START, grown_.function]
    failing = loop.next()
    loop.learn(failing, failed=True, new=True)
    assert len(loop.pool) == 2
    assert loop.valuable == 2


def test_a_new_sequence_stays_with_its_function_only_when_it_reached_something() -> None:
    loop = SeedPool([START], "key", Settings(programs=False))
    loop.learn(loop.next(), failed=False, new=True)
    before = loop.pool[0].sequence
    dull = loop.next()
    loop.learn(dull, failed=False, new=False)
    assert loop.pool[0].sequence == before
    good = loop.next()
    loop.learn(good, failed=False, new=True)
    assert loop.pool[0].sequence == good.sequence


def test_values_fit_the_arguments() -> None:
    made = values(START, 1)
    assert {name: (value.dtype.name, value.shape) for name, value in made.items()} == {
        "A": ("float32", (8, 8)),
        "B": ("float32", (8, 8)),
        "C": ("int32", (16,)),
    }
    assert all(np.array_equal(value, values(START, 1)[name]) for name, value in made.items())
    assert arguments(N.function([N.variable("n")], N.evaluate(N.integer(0)))) is None
