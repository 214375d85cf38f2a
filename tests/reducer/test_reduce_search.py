"""The pure searches: they end on a set that passes, and ask few questions on the way."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from hypothesis import assume, example, given, strategies as st

from opsieve.reducer.engine.interestingness import CheckResult, replayed_by
from opsieve.reducer.engine.search import (
    minimal_prefix,
    one_minimal,
    passing_prefix,
    quickxplain,
    smaller_window,
)


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
def test_minimal_prefix_is_the_last_one_and_costs_a_logarithm(case: tuple[int, set[int]]) -> None:
    total, needed = case
    test = Asked(sorted(needed))
    assert minimal_prefix(range(total), test) == max(needed) + 1
    assert test.count <= math.ceil(math.log2(total))


@given(sets, st.integers(0, 1 << 30))
def test_a_likely_item_is_found_in_as_many_tests_as_its_share_asks_for(
    case: tuple[int, set[int]], seed: int
) -> None:
    total, needed = case
    draw = random.Random(seed)
    weights = [draw.random() ** 8 for _ in range(total)]
    test = Asked(sorted(needed))
    assert minimal_prefix(range(total), test, weights=weights) == max(needed) + 1
    assert test.count <= 2 + 2 * math.log2(sum(weights) / weights[max(needed)]) + 2 * math.log2(total)
    weights[max(needed)] = 3 * sum(weights)
    test.count = 0
    assert minimal_prefix(range(total), test, weights=weights) == max(needed) + 1
    assert test.count <= 2  # one to see that it is needed, one that what is before it is not enough


@given(sets)
def test_quickxplain_finds_what_is_needed(case: tuple[int, set[int]]) -> None:
    total, needed = case
    assume(len(needed) > 1)
    test = Asked(sorted(needed))
    last = max(needed)
    found = quickxplain([last], list(range(last)), test)
    assert set(found) >= needed
    # where they stand densely, what lies between is left to single steps
    assert len(found) <= 4 * len(needed) + 4
    bits = math.ceil(math.log2(total))
    assert test.count <= (len(needed) - 1) * (bits + bits // 2 + 2)


def test_what_lies_near_is_found_by_growing() -> None:
    test = Asked([990, 995, 998, 999])
    nearest_first = list(range(998, -1, -1))
    assert set(quickxplain([999], nearest_first, test)) >= {990, 995, 998}
    assert test.count <= 12  # bisections of the whole order take 29


@given(st.integers(2000, 60_000), st.floats(0, 1), st.integers(1, 6))
@example(3034, 0.5, 2)
def test_many_items_are_halved_at_the_price_of_a_few_looks_at_all(total: int, at: float, width: int) -> None:
    first = int(at * (total - width))
    asked = []

    def test(items: Sequence[int]) -> bool:
        asked.append(len(items))
        return {first, first + width - 1} <= set(items)

    window: list[int] | None = list(range(total))
    while window and len(window) > 1024:
        shorter = smaller_window(window, test)
        assert shorter is not None
        assert len(shorter) <= (len(window) + 1) // 2
        assert {first, first + width - 1} <= set(shorter)
        window = shorter
    assert sum(asked) <= 4 * total  # bisecting prefixes looks at up to log2(total) times all
    assert len(asked) <= 6 * math.ceil(math.log2(total / 1024))


def test_what_lies_at_both_ends_has_no_shorter_window() -> None:
    asked = Asked([0, 9_999])
    assert smaller_window(range(10_000), asked) is None
    assert asked.count == 6


def test_what_lies_together_far_away_is_found_once() -> None:
    test = Asked([393, 394, 396, 397, 398, 399, 400])
    assert set(quickxplain([400], list(range(400)), test)) >= {393, 394, 396, 397, 398, 399}
    assert test.count <= 40  # with a fresh bisection for each it was 78


@given(sets)
def test_one_minimal_leaves_only_what_is_needed(case: tuple[int, set[int]]) -> None:
    total, needed = case
    assert set(one_minimal(range(total), Asked(sorted(needed)))) == needed


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_one_minimal_always_passes_even_when_the_test_is_not_monotone(answers: list[bool]) -> None:
    passed: list[list[int]] = [list(range(10))]

    def test(items: list[int]) -> bool:
        if answers[len(items) % len(answers)]:
            passed.append(items)
            return True
        return False

    assert one_minimal(range(10), test) == passed[-1]


def test_passing_prefix_takes_the_first_size_that_passes() -> None:
    assert passing_prefix(range(20), Asked([2]), (2, 4, 8)) == (4, 2)
    assert passing_prefix(range(20), Asked([19]), (2, 4, 8)) == (20, 8)


@given(
    st.integers(2, 400).flatmap(lambda total: st.tuples(st.just(total), st.integers(1, total))),
    st.integers(2, 8),
)
def test_each_wave_of_several_workers_holds_what_comes_next(case: tuple[int, int], workers: int) -> None:
    total, answer = case
    known: set[int] = set()
    waves = 0

    def prefetch(likely: Iterator[list[int]]) -> None:
        nonlocal waves
        first = next(likely)
        if len(first) not in known:
            waves += 1
            known.update(map(len, itertools.islice(likely, workers - 1)), [len(first)])

    def test(items: list[int]) -> bool:
        assert len(items) in known
        return len(items) >= answer

    assert minimal_prefix(range(total), test, prefetch) == answer
    assert waves <= math.ceil(math.ceil(math.log2(total)) / math.floor(math.log2(workers + 1)))


@given(st.integers(0, 40), st.integers(1, 5))
def test_replays_are_shared_by_equal_tests(runs: int, lanes: int) -> None:
    asked: list[str] = []

    class Always:
        def evaluate(self, subjects: Sequence[str]) -> Iterator[CheckResult]:
            asked.extend(subjects)
            yield from (CheckResult("same" if len(subject) > 2 else "gone") for subject in subjects)

    assert replayed_by([Always()] * lanes, "abc", runs) == (runs, runs)
    assert replayed_by([Always()] * lanes, "a", runs) == (0, runs)
    assert len(asked) == 2 * runs
