"""Searches through releases whose failure shows in some runs only, of which nothing is known."""

import random
from pathlib import Path

import pytest

from opsieve.bisect.search.ends import NEVER
from opsieve.bisect.sessions.answers import VersionAnswer
from opsieve.bisect.sessions.sentences import make_version_answer
from opsieve.bisect.sources.outcome import ProbeJournal, VersionOutcome
from opsieve.bisect.sources.version_sequence import VersionSequence

SIZE = 24
PASSES = VersionOutcome("good", symptom="ok", stage="done")


def search_releases(
    journal: Path,
    culprit: int,
    rate: float,
    seed: int,
    ends: tuple[int | None, int | None] = (0, SIZE - 1),
    fix: bool = False,
) -> tuple[VersionAnswer, list[int]]:
    """Return the answer, and the releases in the order of their runs.

    The failure begins at `culprit`, or ends there if `fix`. As the judge does, a run that fails is repeated.
    """
    rng, asked = random.Random(seed), []

    def evaluate(name: str) -> VersionOutcome:
        asked.append(int(name))
        if (int(name) < culprit) is not fix or rng.random() >= rate:
            return PASSES
        return VersionOutcome("bad", "key", "trait", "error at run", "run", flaky=rng.random() >= rate)

    sequence = VersionSequence(evaluate, ProbeJournal(journal, {"seed": seed}), "fake", lambda _: None)
    timeline = sequence.search_versions([str(place) for place in range(SIZE)], *ends)
    return make_version_answer(timeline, "fake"), asked


@pytest.mark.parametrize("tries", [4, pytest.param(250, marks=pytest.mark.slow(seconds=10))])
@pytest.mark.parametrize("rate", [0.9, 0.7, 0.5])
def test_confidence_of_flaky_release_searches_is_calibrated(tmp_path: Path, rate: float, tries: int) -> None:
    """Wrong answers stay within the stated bound, and an end is called wrong in few searches."""
    wrong = accused = 0
    doubt = 0.0
    for seed in range(tries):
        rng = random.Random(f"{rate} {seed}")
        culprit, fix = rng.randrange(1, SIZE), rng.random() < 0.25
        ends = rng.choice([(0, SIZE - 1), (None, SIZE - 1), (0, None)])
        ends = ends[::-1] if fix else ends
        answer, _ = search_releases(tmp_path / f"{rate} {seed}", culprit, rate, seed, ends, fix)
        accused += bool(answer.wrong_ends)
        first = answer.first_bad or answer.first_good
        if first:
            assert answer.confidence < 1
            doubt += 1 - answer.confidence
            wrong += (answer.first_good if fix else answer.first_bad) != str(culprit)
    assert wrong <= doubt + 2 * doubt**0.5 + 0.5
    assert accused <= 0.02 * tries + 1


def test_a_bad_end_that_passes_once_is_tested_again(tmp_path: Path) -> None:
    for seed in range(8):
        answer, asked = search_releases(tmp_path / str(seed), 13, 0.5, seed)
        assert (answer.first_bad, answer.wrong_ends) == ("13", ())
        assert asked[0] == SIZE - 1
    answer, asked = search_releases(tmp_path / "never", SIZE, 1.0, 1)
    assert (answer.first_bad, answer.wrong_ends) == ("", (str(SIZE - 1),))
    assert asked.count(SIZE - 1) == NEVER


def test_a_failure_that_always_shows_costs_three_runs_of_the_last_good_release(tmp_path: Path) -> None:
    answer, asked = search_releases(tmp_path, 17, 1.0, 1)
    assert (answer.first_bad, len(asked)) == ("17", 10)
    assert asked[-3:] == [16, 16, 16]
    assert 0.99 <= answer.confidence < 1
