"""The pure searches: they end on a set that passes, and ask few questions on the way."""

import math
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from opsieve.reducer.engine.search import minimal_prefix, one_minimal, passing_prefix, quickxplain


class Asked:
    """Passes when all needed items are there; counts."""

    def __init__(self, needed: Sequence[int]):
        self.needed, self.count = set(needed), 0

    def __call__(self, items: Sequence[int]) -> bool:
        self.count += 1
        return self.needed <= set(items)


sets = st.integers(2, 300).flatmap(
    lambda total: st.tuples(st.just(total), st.sets(st.integers(0, total - 1), min_size=1, max_size=5))
)


@given(sets)
def test_last_needed_is_the_last_one_and_costs_a_logarithm(case: tuple[int, set[int]]) -> None:
    total, needed = case
    test = Asked(sorted(needed))
    assert minimal_prefix(range(total), test) == max(needed) + 1
    assert test.count <= math.ceil(math.log2(total))


@given(sets)
def test_scattered_finds_exactly_what_is_needed(case: tuple[int, set[int]]) -> None:
    total, needed = case
    assume(len(needed) > 1)
    test = Asked(sorted(needed))
    last = max(needed)
    found = quickxplain([last], list(range(last)), test)
    assert set(found) == needed
    assert test.count <= (len(needed) - 1) * (math.ceil(math.log2(total)) + 1)


@given(sets)
def test_thinned_leaves_only_what_is_needed(case: tuple[int, set[int]]) -> None:
    total, needed = case
    assert set(one_minimal(range(total), Asked(sorted(needed)))) == needed


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_thinned_always_passes_even_when_the_test_is_not_monotone(answers: list[bool]) -> None:
    passed: list[list[int]] = [list(range(10))]

    def test(items: list[int]) -> bool:
        if answers[len(items) % len(answers)]:
            passed.append(items)
            return True
        return False

    assert one_minimal(range(10), test) == passed[-1]


def test_ball_takes_the_first_size_that_passes() -> None:
    assert passing_prefix(range(20), Asked([2]), (2, 4, 8)) == [0, 1, 2, 3]
    assert passing_prefix(range(20), Asked([19]), (2, 4, 8)) is None


def test_ahead_hears_of_what_is_tested_next() -> None:
    heard: set[int] = set()
    asked: list[int] = []

    def test(items: list[int]) -> bool:
        asked.append(len(items))
        return len(items) >= 37

    assert minimal_prefix(range(64), test, lambda likely: heard.update(map(len, likely))) == 37
    assert set(asked) <= heard
