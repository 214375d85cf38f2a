"""The growing program: where values of leaves lie, which leaves are kept, sizes by bins; a finished one is
freed at once.
"""

import gc
import weakref

import pytest
from hypothesis import assume, given, strategies as st

from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.rng import Rng, _bins
from opsieve.gen.declarations.tensor import LARGEST, LEAST, USUAL, Domain, leaf_range
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState

NUMBERS = st.sampled_from(sorted(USUAL.keys() - {"string"}))
ENDS = st.floats(-1e6, 1e6) | st.sampled_from((-float("inf"), 0.0, 1.0, float("inf")))


def empty() -> GraphBuilder:
    return GraphBuilder(ProgramState(Rng(0), 20, Style(pick=1.0), Budget()))


@given(NUMBERS, ENDS, ENDS)
def test_values_of_leaves_lie_in_their_domain_as_wide_as_usual_and_no_farther_off_than_need_be(
    dtype: str, low: float, high: float
) -> None:
    domain = Domain(low, high)
    least, largest = max(low, LEAST[dtype]), min(high, LARGEST[dtype])
    assume(least <= largest)
    first, last = leaf_range(dtype, domain)
    usual = USUAL[dtype]
    width = usual[1] - usual[0]
    assert least <= first <= last <= largest
    assert last - first == pytest.approx(min(width, largest - least))
    assert first in (usual[0], least) or last == pytest.approx(largest)
    if least <= usual[0] and usual[1] <= largest:
        assert (first, last) == usual


@given(NUMBERS)
def test_leaves_that_must_not_be_zero_are_positive(dtype: str) -> None:
    assume(LARGEST[dtype] >= 1)
    assert leaf_range(dtype, Domain(nonzero=True))[0] > 0


@given(st.integers(0, 40), st.integers(0, 3000), st.integers(1, 9))
def test_bins_share_a_range_without_gaps_each_twice_as_wide(low: int, width: int, count: int) -> None:
    bins = _bins(low, low + width, count)
    assert [number for first, size in bins for number in range(first, first + size)] == list(
        range(low, low + width + 1)
    )
    assert all(size == first for first, size in bins[1:-1] if first > max(low, 1))
    assert len(bins) <= count + (low == 0)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 9), st.integers(0, 2**32))
def test_binned_numbers_lie_between_their_ends(low: int, high: int, count: int, seed: int) -> None:
    assert low <= Rng(seed, count).draw_binned(low, high) <= max(low, high)


class Held:
    def __call__(self, builder: object) -> None:
        pass


def test_a_finished_program_is_freed_at_once_without_the_cycle_collector() -> None:
    gc.disable()
    try:
        builder = start(GenRequest(), 0, "isra")
        fill(builder, GenRequest(nodes=30))
        finish(builder, GenRequest(), "isra", 0)
        builder.program.plant = held = Held()  # as a builder that is compiled takes no weak reference
        there = weakref.ref(held)
        del held
        del builder
        assert there() is None
    finally:
        gc.enable()
