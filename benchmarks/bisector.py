"""The search of the bisector on made-up histories: tests needed, how often right, whether the stated
confidence is true.

    python benchmarks/bisector.py [--runs N] [--commits N]

A commit is bad from the culprit on; a test of a bad commit shows the failure with probability p. Beside the
search stand plain bisection with repeats (every step repeated until a wrong "good" has probability 1 % over
the whole search) and Bayesian search at the median of the posterior (Ben-Or and Hassidim 2008; at most 100
runs, for it is slow here), each stopping at the same confidence. The file is not called bisect.py, which
would shadow the standard library's module for every benchmark.
"""

import argparse
import math
import random
import time
from collections.abc import Callable

from opsieve.bisect.search.search import Chain, ReproductionRate, Search, TestResult, compute_capacity
from opsieve.bisect.search.search_loop import confirm_ends, search_flaky

Way = Callable[[int, float, float, "Test"], tuple[int, int, float]]
Test = Callable[[int], bool]  # whether the failure shows in one test of a version


def ours(count: int, chance: float, confidence: float, test: Test) -> tuple[int, int, float]:
    """The candidate, the tests, the confidence stated."""
    search = Search(Chain(count), chance=chance, confidence=confidence)
    while versions := search.next_versions():
        search.record_result(versions[0], TestResult.BAD if test(versions[0]) else TestResult.GOOD)
    finding = search.suspects
    assert finding is not None
    return finding.candidates[0], finding.tests, finding.confidence


def repeated(count: int, chance: float, confidence: float, test: Test) -> tuple[int, int, float]:
    """Plain bisection; a version is good when it did not fail in as many tests as keep the whole search
    right.
    """
    steps = math.ceil(math.log2(count))
    repeats = 1 if chance == 1 else math.ceil(math.log((1 - confidence) / steps) / math.log(1 - chance))
    low, high, tests = -1, count - 1, 0
    while high - low > 1:
        middle = (low + high) // 2
        for _ in range(repeats):
            tests += 1
            if test(middle):
                high = middle
                break
        else:
            low = middle
    return high, tests, confidence


def median(count: int, chance: float, confidence: float, test: Test) -> tuple[int, int, float]:
    """Bayesian search at the posterior's median."""
    weights = [1 / count] * count
    tests = 0
    while max(weights) < (confidence if chance < 1 else 1 - 1e-9):
        total, place = 0.0, 0
        while total + weights[place] < 0.5:
            total += weights[place]
            place += 1
        # the median itself, or the version before it: the one whose share is nearer to a half and that still
        # tells something
        if place and (total + weights[place] > 1 - 1e-12 or 0.5 - total < total + weights[place] - 0.5):
            place -= 1
        tests += 1
        if test(place):
            weights = [w if c <= place else 0.0 for c, w in enumerate(weights)]
        else:
            weights = [w * (1 - chance) if c <= place else w for c, w in enumerate(weights)]
        scale = sum(weights)
        weights = [w / scale for w in weights]
    return weights.index(max(weights)), tests, max(weights)


def trial(
    way: Way, count: int, chance: float, confidence: float, rng: random.Random
) -> tuple[bool, int, float]:
    """One search for a random culprit: whether it was right, the tests, the confidence stated."""
    culprit = rng.randrange(count)
    found, tests, sure = way(count, chance, confidence, lambda v: v >= culprit and rng.random() < chance)
    return found == culprit, tests, sure


def noise(runs: int, count: int) -> None:
    """Tests, correctness and the bound for each way and each p."""
    print(f"{runs} runs, {count} commits, 99 % asked for; tests are means, the ends not counted\n")
    print(f"{'p':>4} {'bound':>6}   {'search':>16} {'x bound':>8}   {'repeats':>16}   {'median':>16}")
    for chance in (1.0, 0.9, 0.5, 0.3):
        bound = math.log2(count) / compute_capacity(chance)
        cells = []
        for way in (ours, repeated, median):
            rng = random.Random(1)
            asked = min(runs, 100) if way is median else runs
            trials = [trial(way, count, chance, 0.99, rng) for _ in range(asked)]
            cells.append(
                (sum(used for _, used, _ in trials) / asked, sum(right for right, _, _ in trials) / asked)
            )
        texts = [f"{mean:7.1f} {share:7.1%}" for mean, share in cells]
        print(
            f"{chance:>4} {bound:6.1f}   {texts[0]:>16} {cells[0][0] / bound:8.2f}   {texts[1]:>16}  "
            f" {texts[2]:>16}"
        )


def calibration(runs: int, count: int) -> None:
    """Whether answers given at a confidence are right as often as it says, in a row of marks."""
    print(f"\nstated confidence against how often it was right, p = 0.5, {runs} runs each")
    for asked in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
        rng = random.Random(2)
        trials = [trial(ours, count, 0.5, asked, rng) for _ in range(runs)]
        stated, right = sum(sure for _, _, sure in trials), sum(found for found, _, _ in trials)
        error = math.sqrt(max(right * (runs - right), 1) / runs) / runs
        print(
            f"  stated {stated / runs:6.1%}  right {right / runs:6.1%} +- {error:4.1%} "
            f" {'#' * round(40 * right / runs)}"
        )


def learnt(runs: int, count: int) -> None:
    """The chance is not given: the failing end is run until it failed a few times, and the search learns the
    rest.
    """
    print(f"\nchance measured first, {runs} runs, {count} commits, 99 % asked for")
    for chance in (1.0, 0.9, 0.5, 0.3):
        rng = random.Random(4)
        right = stated = first = tests = 0.0
        for _ in range(runs):
            failures = tried = 0
            while not ReproductionRate(failures, tried).is_settled:
                tried += 1
                failures += rng.random() < chance
            culprit = rng.randrange(count)
            search = Search(Chain(count), chance=ReproductionRate(failures, tried), confidence=0.99)
            while versions := search.next_versions():
                bad = versions[0] >= culprit and rng.random() < chance
                search.record_result(versions[0], TestResult.BAD if bad else TestResult.GOOD)
            assert search.suspects is not None
            right += search.suspects.candidates == (culprit,)
            stated += search.suspects.confidence
            first, tests = first + tried, tests + search.tests
        figures = (
            f"{first / runs:5.1f} + {tests / runs:5.1f} tests, right {right / runs:6.1%}, stated"
            f" {stated / runs:6.1%}"
        )
        print(f"{chance:>4} bound {math.log2(count) / compute_capacity(chance):5.1f}: {figures}")


def unnoticed(runs: int, count: int) -> None:
    """Nobody says that the test is flaky: what `bisect --check` does without --repro-rate, its runs of the
    failing end counted.
    """
    print(f"\nnobody says that the test is flaky, {runs} runs, {count} commits, 99 % asked for")
    for chance in (1.0, 0.9, 0.5, 0.3):
        rng = random.Random(5)
        wrong = unsure = tests = missed = 0
        for _ in range(runs):
            found, used, sure = undeclared(count, chance, rng)
            tests += used
            missed += found is None
            wrong += found is False
            unsure += found is False and sure < 0.99
        bound = math.log2(count) / compute_capacity(chance)
        print(
            f"{chance:>4} bound {bound:5.1f}: {tests / runs:5.1f} tests ({tests / runs / bound:.2f} x), wrong"
            f" {wrong} of {runs} ({wrong / runs:.1%}), the failing end never failed {missed}"
        )


def undeclared(count: int, chance: float, rng: random.Random) -> tuple[bool | None, int, float]:
    """One search by a test of an unknown rate: whether the answer is right (None: the failing end showed
    nothing), tests, confidence stated.
    """
    culprit, used = rng.randrange(1, count + 1), 0

    def test(version: int) -> TestResult:
        nonlocal used
        used += 1
        return TestResult.BAD if version >= culprit and rng.random() < chance else TestResult.GOOD

    confirming = confirm_ends(count + 1, 0, count, None, 0.99, True)
    wanted = next(confirming)
    while True:
        try:
            wanted = confirming.send([test(version) for version in wanted])
        except StopIteration as stop:
            ends, rate = stop.value
            break
    if ends.trouble:
        return None, used, 0.0
    steps = search_flaky(lambda given: Search(Chain(count), chance=given, confidence=0.99), rate)
    try:
        versions, _ = next(steps)
        while True:
            versions, _ = steps.send([test(1 + version) for version in versions])
    except StopIteration as stop:
        suspects = stop.value
    return suspects.candidates == (culprit - 1,), used, suspects.confidence


def unbuildable(runs: int, count: int, share: float) -> None:
    """The right commit, or exactly the smallest set that can be proven, with single commits and with
    stretches unbuildable.
    """
    print(f"\n{share:.0%} of {count} commits unbuildable, {runs} runs")
    for kind in ("single commits", "stretches of 20"):
        rng = random.Random(3)
        exact = right = tests = 0
        for _ in range(runs):
            culprit = rng.randrange(1, count - 1)
            if kind == "single commits":
                broken = {v for v in range(1, count - 1) if rng.random() < share}
            else:
                broken = {
                    v
                    for at in rng.sample(range(1, count - 21), int(share * count / 20))
                    for v in range(at, at + 20)
                }
            search = Search(Chain(count))
            while versions := search.next_versions():
                place = versions[0]
                result = TestResult.BAD if place >= culprit else TestResult.GOOD
                search.record_result(place, TestResult.SKIP if place in broken else result)
            low = max((v for v in range(culprit) if v not in broken), default=-1)
            high = min(v for v in range(culprit, count) if v not in broken)
            assert search.suspects is not None
            right += search.suspects.candidates == tuple(range(low + 1, high + 1))
            exact += search.suspects.candidates == (culprit,)
            tests += search.tests
        print(f"  {kind}: {right} right ({exact} of them one commit), {tests / runs:.1f} tests on average")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--runs", type=int, default=500)
    options.add_argument("--commits", type=int, default=1000)
    options.add_argument("--only", choices=("unnoticed",), help="make this part alone")
    chosen = options.parse_args()
    start = time.process_time()
    if chosen.only:
        unnoticed(chosen.runs, chosen.commits)
        print(f"\n{time.process_time() - start:.0f} s of CPU")
        return
    noise(chosen.runs, chosen.commits)
    calibration(chosen.runs, chosen.commits)
    learnt(chosen.runs, chosen.commits)
    unnoticed(chosen.runs, chosen.commits)
    unbuildable(chosen.runs, chosen.commits, 0.3)
    print(f"\n{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
