"""The search, the ends and the driver, on histories whose truth is known."""

import math
import random
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.bisect.search.ends import Ends, settle_ends
from opsieve.bisect.search.search import (
    Chain,
    Direction,
    ReproductionRate,
    Search,
    Suspects,
    TestResult,
    VersionGraph,
    compute_best_share,
    compute_capacity,
)
from opsieve.bisect.search.search_loop import (
    SURE,
    SearchResult,
    bisect_row,
    confirm_ends,
    measure_rate,
    search_flaky,
)
from opsieve.gen.errors import BadInput

BAD, GOOD, SKIP = TestResult.BAD, TestResult.GOOD, TestResult.SKIP
SHAPES = st.tuples(st.integers(2, 60), st.randoms(use_true_random=False), st.floats(0, 0.5))


def drive(
    steps: Generator[Any, Any, Any], test: Callable[[int], TestResult], asked: list[int] | None = None
) -> Any:
    """TestResult a generator's questions until it returns; with `asked`, note them."""
    answers = None
    while True:
        try:
            wanted = steps.send(answers)
        except StopIteration as stop:
            return stop.value
        versions = wanted[0] if isinstance(wanted, tuple) else wanted
        if asked is not None:
            asked += versions
        answers = [test(version) for version in versions]


def bisect(timeline: list[TestResult], asked: list[int] | None = None, **options: Any) -> SearchResult:
    outcome = drive(bisect_row(len(timeline), **options), timeline.__getitem__, asked)
    assert isinstance(outcome, SearchResult)
    return outcome


def ends(timeline: list[TestResult], good: int | None = None, bad: int | None = None) -> Ends:
    found = drive(settle_ends(len(timeline), good, bad), timeline.__getitem__)
    assert isinstance(found, Ends)
    return found


def test_a_search_for_the_fix_stays_on_its_side_of_a_named_end() -> None:
    def settle(text: str, good: int | None = None, bad: int | None = None) -> Ends:
        timeline = row(text)
        found = drive(settle_ends(len(timeline), good, bad, fixed=True), timeline.__getitem__)
        assert isinstance(found, Ends)
        return found

    assert (settle("ggbbgg", bad=3).old, settle("ggbbgg", bad=3).direction) == (3, Direction.FIX)
    # No later release is good: where the failure began is no answer.
    assert settle("ggbbbb", bad=3).trouble == "always"
    assert (settle("bbgggg", good=3).new, settle("bbgggg", good=3).direction) == (3, Direction.FIX)


def test_a_row_whose_ends_are_all_known_asks_nothing() -> None:
    found = bisect(row("ggb"), asked := [], good=2, bad=2, known={2: BAD})
    assert (found.first, asked) == ((), [])


def row(text: str) -> list[TestResult]:
    return [{"g": GOOD, "b": BAD, "-": SKIP}[letter] for letter in text]


@settings(deadline=None)
@given(st.integers(2, 3000), st.data())
def test_a_row_takes_the_logarithm(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count - 1))
    backwards = data.draw(st.booleans())
    timeline = [
        (GOOD if backwards else BAD) if v >= culprit else (BAD if backwards else GOOD) for v in range(count)
    ]
    asked: list[int] = []
    outcome = bisect(timeline, asked)
    assert outcome.first == (culprit,)
    assert outcome.last_before == culprit - 1
    assert outcome.ends.direction is (Direction.FIX if backwards else Direction.REGRESSION)
    assert len(asked) <= math.ceil(math.log2(count - 1)) + 2 if count > 2 else 2
    assert len(set(asked)) == len(asked)


@settings(deadline=None)
@given(st.integers(2, 800), st.integers(2, 7), st.data())
def test_more_workers_take_fewer_rounds(count: int, width: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count - 1))
    search = Search(Chain(count), prior=[0.0] + [1.0] * (count - 1), width=width)
    rounds = 0
    while versions := search.next_versions():
        rounds += 1
        assert len(versions) <= width
        for version in versions:
            search.record_result(version, BAD if version >= culprit else GOOD)
    assert search.suspects is not None
    assert search.suspects.candidates == (culprit,)
    assert rounds <= math.ceil(math.log(count, width + 1)) + 1


@pytest.mark.parametrize("named", ["good", "bad"])
def test_a_change_around_an_untestable_named_end_is_searched(named: str) -> None:
    outcome = bisect(row("ggg-g---b--bb"), **{named: 6})
    assert (outcome.first, outcome.last_before, outcome.ends.trouble) == ((5, 6, 7, 8), 4, "")
    assert outcome.ends.wrong == ((6, SKIP),)
    # One side holds nothing testable.
    assert bisect(row("-gg-bb--"), **{named: 7 if named == "good" else 0}).first == (3, 4)
    assert bisect(row("--gg-"), **{named: 4 if named == "good" else 0}).ends.trouble == "never"


@pytest.mark.parametrize("count", range(3, 12))
def test_the_only_testable_version_is_found_wherever_it_stands(count: int) -> None:
    for place in range(count):
        timeline = [SKIP] * count
        timeline[place] = BAD
        assert ends(timeline).trouble == "always", place


@settings(deadline=None)
@given(SHAPES)
def test_untestable_versions_leave_the_smallest_provable_set(shape: tuple[int, random.Random, float]) -> None:
    count, rng, share = shape
    culprit = rng.randrange(1, count)
    timeline = [BAD if v >= culprit else GOOD for v in range(count)]
    timeline[1:-1] = [SKIP if rng.random() < share else answer for answer in timeline[1:-1]]
    last_good = max(v for v in range(culprit) if timeline[v] is GOOD)
    first_bad = min(v for v in range(culprit, count) if timeline[v] is BAD)
    outcome = bisect(timeline)
    assert outcome.first == tuple(range(last_good + 1, first_bad + 1))
    assert outcome.last_before == last_good


def graph(count: int, rng: random.Random) -> list[list[int]]:
    """Parents with merges; the last version has every other among its ancestors."""
    parents: list[list[int]] = [[]]
    for version in range(1, count - 1):
        above = {rng.randrange(max(0, version - 6), version)}
        if rng.random() < 0.3:
            above.add(rng.randrange(version))
        parents.append(sorted(above))
    heads = set(range(count - 1)) - {parent for above in parents for parent in above}
    parents.append(sorted(heads))
    return parents


def provable(parents: list[list[int]], timeline: list[TestResult], start: list[int]) -> set[int]:
    """The candidates that agree with every testable version, by definition."""
    history = VersionGraph(parents)
    reach = [set(np.flatnonzero(history.mark_ancestors(v)).tolist()) for v in range(len(parents))]
    return {
        c
        for c in start
        if all(answer is SKIP or (c in reach[v]) == (answer is BAD) for v, answer in enumerate(timeline))
    }


@settings(deadline=None)
@given(SHAPES, st.booleans())
def test_merges_and_untestable_versions_leave_the_smallest_provable_set(
    shape: tuple[int, random.Random, float], some_untestable: bool
) -> None:
    count, rng, share = shape
    count = max(count, 3)
    parents = graph(count, rng)
    history = VersionGraph(parents)
    culprit = rng.randrange(1, count)
    timeline = [BAD if history.mark_ancestors(v)[culprit] else GOOD for v in range(count)]
    if some_untestable:
        timeline[1:-1] = [SKIP if rng.random() < share else answer for answer in timeline[1:-1]]
    search = Search(history, prior=[0.0] + [1.0] * (count - 1))
    while versions := search.next_versions():
        search.record_result(versions[0], timeline[versions[0]])
    assert search.suspects is not None
    assert set(search.suspects.candidates) == provable(parents, timeline, list(range(1, count)))
    if not some_untestable:
        assert search.suspects.candidates == (culprit,)


def test_a_graph_that_is_a_row_is_searched_as_one() -> None:
    size = 40
    row, graph = Chain(size), VersionGraph([[v - 1] if v else [] for v in range(size)])
    weights = np.random.default_rng(0).random(size)
    versions = np.arange(size)
    assert np.allclose(row.sum_ancestors(weights, versions), graph.sum_ancestors(weights, versions))
    testable = np.random.default_rng(1).random(size) < 0.6
    same = [np.unique(history.number_groups(testable), return_inverse=True)[1] for history in (row, graph)]
    pairs = set(zip(same[0].tolist(), same[1].tolist(), strict=True))
    assert len(pairs) == len(set(same[0].tolist())) == len(set(same[1].tolist()))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("chance", [0.9, 0.5])
def test_a_failure_that_shows_now_and_then(chance: float, direction: Direction) -> None:
    rng, count, right, tests = random.Random(7), 200, 0, 0
    for _ in range(60):
        culprit = rng.randrange(count)
        search = Search(Chain(count), direction=direction, chance=chance, confidence=0.95)
        while versions := search.next_versions():
            failing = (versions[0] >= culprit) == (direction is Direction.REGRESSION)
            search.record_result(versions[0], BAD if failing and rng.random() < chance else GOOD)
        assert search.suspects is not None
        assert search.suspects.confidence >= 0.95
        right += search.suspects.candidates == (culprit,)
        tests += search.tests
    # 57 expected, binomial: fewer than 53 happens once in 40 such tests, and the seed is fixed
    assert right >= 53
    assert tests / 60 <= 1.5 * math.log2(count) / compute_capacity(chance)


def test_a_good_end_that_fails_now_and_then_is_named() -> None:
    rng = random.Random(3)
    outcome = drive(
        bisect_row(100, good=10, bad=90, chance=0.5), lambda v: BAD if v >= 5 and rng.random() < 0.5 else GOOD
    )
    assert outcome.suspects is None or 10 not in outcome.first
    assert outcome.ends.wrong == ((10, BAD),) or outcome.first == (5,)


def test_a_prior_moves_the_first_question() -> None:
    prior = np.ones(1000)
    prior[800:810] = 1000
    assert 800 <= Search(Chain(1000), prior=prior).next_versions()[0] < 810


def test_an_answer_that_contradicts_an_earlier_one_changes_nothing() -> None:
    search = Search(Chain(10))
    search.record_result(5, BAD)
    before = search.candidates
    search.record_result(7, GOOD)
    assert search.candidates == before


@pytest.mark.parametrize(
    ("text", "good", "bad", "old", "new", "wrong"),
    [
        ("gggggbbbbb", 0, 9, 0, 9, ()),
        ("bbbbbggggg", 9, 0, 0, 9, ()),  # a fix, named so
        ("bbbbbggggg", 0, 9, 0, 9, ((0, BAD), (9, GOOD))),  # a fix, named the other way round
    ],
)
def test_ends(
    text: str, good: int, bad: int, old: int, new: int, wrong: tuple[tuple[int, TestResult], ...]
) -> None:
    found = ends(row(text), good, bad)
    assert (row(text)[found.old], row(text)[found.new]) == (row(text)[old], row(text)[new])
    assert found.wrong == wrong
    assert not found.trouble


@pytest.mark.parametrize(
    ("text", "good", "bad", "trouble"),
    [
        ("bbbbbbbbbb", None, None, "always"),
        ("gggggggggg", None, None, "never"),
        ("----------", None, None, "untestable"),
        ("bbbbbbbbbb", 4, 9, "always"),
        ("gggbbbbbbbbbbbb", 8, 14, "always"),  # the good end is bad, and only an older version is good
        ("gggggggggggbbbb", 0, 4, "never"),  # the bad end is good, and only a newer version is bad
        ("bbbbb-----ggggg", 7, 2, "always"),
        ("gggggggggg", 0, 5, "never"),
        ("-----bbbbb", None, None, "always"),
        ("g", None, None, "never"),
        ("--", 0, 1, "untestable"),
    ],
)
def test_ends_with_trouble(text: str, good: int | None, bad: int | None, trouble: str) -> None:
    found = ends(row(text), good, bad)
    assert found.trouble == trouble


@settings(deadline=None)
@given(st.text("gb-", min_size=1, max_size=40), st.data())
def test_whatever_the_timeline_a_change_that_is_named_is_there(text: str, data: st.DataObject) -> None:
    timeline = row(text)
    place = st.none() | st.integers(0, len(text) - 1)
    asked: list[int] = []
    outcome = bisect(timeline, asked, good=data.draw(place), bad=data.draw(place))
    assert len(set(asked)) == len(asked)
    if outcome.suspects is None:
        assert outcome.ends.trouble
        return
    before, after = timeline[outcome.last_before], timeline[outcome.first[-1]]
    assert {before, after} == {GOOD, BAD}
    assert (after is BAD) == (outcome.ends.direction is Direction.REGRESSION)
    assert all(timeline[v] is SKIP for v in outcome.first[:-1])
    assert outcome.first == tuple(range(outcome.last_before + 1, outcome.first[-1] + 1))


@settings(deadline=None)
@given(st.integers(0, 33), st.sampled_from(["regression", "fix"]))
def test_thirty_five_releases_take_at_most_eight_probes(culprit: int, kind: str) -> None:
    before, after = (GOOD, BAD) if kind == "regression" else (BAD, GOOD)
    asked: list[int] = []
    outcome = bisect([before] * (culprit + 1) + [after] * (34 - culprit), asked)
    assert outcome.first == (culprit + 1,)
    assert len(asked) <= 8


def test_the_channel() -> None:
    assert compute_capacity(1.0) == 1.0
    assert compute_best_share(1.0) == 0.5
    assert [round(math.log2(1000) / compute_capacity(p), 1) for p in (0.9, 0.5, 0.3, 0.1)] == [
        13.1,
        31.0,
        56.3,
        181.7,
    ]


def test_a_graph_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadInput, match="first parents"):
        VersionGraph([[]] * 40_001)


@pytest.mark.parametrize("chance", [0.9, 0.5, 0.3])
def test_a_chance_that_must_be_learnt(chance: float) -> None:
    """What is stated holds though the chance is known from a few runs only, and the search learns it."""
    rng = random.Random(7)
    right = stated = learnt = 0.0
    runs = 40
    for _ in range(runs):
        failures = tried = 0
        while not ReproductionRate(failures, tried).is_settled:
            tried += 1
            failures += rng.random() < chance
        culprit = rng.randrange(200)
        search = Search(Chain(200), chance=ReproductionRate(failures, tried), confidence=0.95)
        while versions := search.next_versions():
            bad = versions[0] >= culprit and rng.random() < chance
            search.record_result(versions[0], TestResult.BAD if bad else TestResult.GOOD)
        assert search.suspects is not None
        right += search.suspects.candidates == (culprit,)
        stated += search.suspects.confidence
        learnt += search.chance
    assert right >= stated - 3 * (runs * 0.05 * 0.95) ** 0.5
    assert abs(learnt / runs - chance) < 0.12


def test_a_belief_is_a_distribution_about_what_was_seen() -> None:
    for failures, runs in ((0, 0), (4, 4), (4, 13), (1, 40)):
        belief = ReproductionRate(failures, runs).belief
        assert sum(share for _, share in belief) == pytest.approx(1)
        assert sum(value * share for value, share in belief) == pytest.approx(
            ReproductionRate(failures, runs).mean, abs=0.01
        )


def run_flaky_search(
    size: int, culprit: int, chance: float, rng: random.Random, asked: list[int]
) -> tuple[Ends, Suspects | None]:
    """Search the commits 1 to `size` after the good end 0 by a check that fails now and then, of which nobody
    knows.
    """

    def test(version: int) -> TestResult:
        return BAD if version >= culprit and rng.random() < chance else GOOD

    settled, rate = drive(confirm_ends(size + 1, 0, size, None, 0.99, True), test, asked)
    if settled.trouble:
        return settled, None
    between = settled.new - settled.old
    steps = search_flaky(
        lambda given: Search(Chain(between), direction=settled.direction, chance=given), rate
    )
    return settled, drive(steps, lambda version: test(settled.old + 1 + version), asked)


@pytest.mark.parametrize("tries", [30, pytest.param(400, marks=pytest.mark.slow(seconds=15))])
def test_confidence_of_hundreds_of_flaky_searches_is_calibrated(tries: int) -> None:
    """Wrong answers stay within the stated bound at every rate, and a bad end that failed once is never
    called good.
    """
    for chance in (0.95, 0.85, 0.7, 0.5, 0.3):
        rng, wrong, doubt, runs = random.Random(7), 0, 0.0, 0
        for _ in range(tries):
            culprit = rng.randrange(1, 65)
            asked: list[int] = []
            settled, found = run_flaky_search(64, culprit, chance, rng, asked)
            runs += len(asked)
            if found is None:  # no claim: the bad end never failed
                assert settled.trouble == "never"
                continue
            assert settled.wrong == ()
            assert 0.99 <= found.confidence < 1
            doubt += 1 - found.confidence
            wrong += (found.candidates[0] + 1,) != (culprit,)
        assert wrong <= 0.01 * tries + 2 * (0.01 * tries) ** 0.5
        assert runs / tries <= 20 + 2.2 * math.log2(64) / compute_capacity(chance)


@pytest.mark.parametrize("chance", [0.85, 0.5])
def test_a_good_end_that_fails_now_and_then_ends_the_search(chance: float) -> None:
    """The named good end has the failure: nothing between is blamed for it."""
    rng, blamed = random.Random(7), 0
    for _ in range(200):
        _, found = run_flaky_search(64, 0, chance, rng, [])
        blamed += found is not None
    assert blamed <= 5


def test_a_check_that_never_failed_at_the_bad_end_and_fails_at_the_good_one_brought_a_fix() -> None:
    settled, rate = drive(
        confirm_ends(9, 0, 8, None, 0.99, True), lambda version: BAD if version < 4 else GOOD
    )
    assert (settled.direction, rate.failures) == (Direction.FIX, SURE)
    assert settled.wrong == ((0, BAD), (8, GOOD))


def test_nothing_outside_the_named_ends_is_tested() -> None:
    for text in ("gggggggggb", "bggggggggg", "bbbbbbbbbg", "gbbbbbbbbb", "g--------b", "b-gg--gg-b"):
        asked: list[int] = []
        found = bisect(row(text), asked, good=2, bad=7)
        assert set(asked) <= set(range(2, 8))
        assert found.suspects is None


@pytest.mark.parametrize(
    ("text", "good", "bad", "allowed"),
    [
        ("ggggggggbb", None, 5, range(6)),  # the bad end is good: nothing newer is blamed
        ("gggbbbbbbb", 5, None, range(5, 10)),  # the good end is bad: nothing older is
    ],
)
def test_nothing_beyond_a_single_end_that_is_wrong_is_tested(
    text: str, good: int | None, bad: int | None, allowed: range
) -> None:
    asked: list[int] = []
    found = bisect(row(text), asked, good=good, bad=bad)
    assert found.suspects is None
    assert found.ends.wrong
    assert set(asked) <= set(allowed)


def test_beyond_a_single_end_that_is_right_the_change_may_lie_on_either_side() -> None:
    assert bisect(row("bbbbbbbggg"), bad=5).first == (7,)
    assert bisect(row("bbbggggggg"), good=5).first == (3,)


def test_a_test_that_is_not_flaky_costs_a_few_runs_more() -> None:
    asked: list[int] = []
    steps = search_flaky(lambda given: Search(Chain(100), chance=given), ReproductionRate(SURE, SURE))
    found = drive(steps, lambda version: BAD if version >= 61 else GOOD, asked)
    assert found.candidates == (61,)
    assert len(asked) <= math.ceil(math.log2(100)) + 5
    assert set(asked[-3:]) == {60}


def test_four_failures_in_a_row_are_not_yet_a_test_that_always_fails() -> None:
    measuring = measure_rate(SURE)
    next(measuring)
    for _ in range(SURE - 1):
        measuring.send(BAD)
    with pytest.raises(StopIteration) as stop:
        measuring.send(GOOD)
    assert (stop.value.value.failures, stop.value.value.runs) == (SURE - 1, SURE)


def test_probes_of_one_round_that_show_several_changes_end_in_one_of_them() -> None:
    draw = random.Random(42)
    for _ in range(200):
        states = [GOOD, *draw.choices((GOOD, BAD), k=draw.randint(2, 20)), BAD]
        found = bisect(states, width=draw.choice((2, 3)))
        assert found.is_exact
        assert (states[found.first[0] - 1], states[found.first[0]]) == (GOOD, BAD)
