"""Precision and recall of the verdicts on programs whose verdict is known (tests/corpus/truth).

    python benchmarks/truth.py [--only CLASS]

Precision and recall are of `fail`: of what is called a failure, how much is one; of the failures, how many
are called so. Every verdict that is another than the known one is listed with both reasons.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from truth import known

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers


def main() -> None:
    """Judge every program and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    fails = called = both = 0
    with Workers() as workers:
        lab = ObservationCache(workers)
        for each in known():
            if asked.only not in each.kind_of_truth:
                continue
            target = resolve(each.target)
            oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
            verdict = judge_program(each.program, each.inputs, target, lab, oracles=oracles).verdict
            lab.forget_all()
            if verdict.verdict == "environment":
                print(f"{each.name}: left out, {verdict.reason[:200]}")
                continue
            good = verdict.verdict == each.verdict and (not each.kind or verdict.kind == each.kind)
            total[each.kind_of_truth] += 1
            right[each.kind_of_truth] += good
            fails += each.verdict == "fail"
            called += verdict.verdict == "fail"
            both += each.verdict == verdict.verdict == "fail"
            if not good:
                print(
                    f"{each.name}: {verdict.verdict} {verdict.kind or ''} for {each.verdict} ({each.why}):"
                    f" {verdict.reason[:300]}"
                )
    for name, count in sorted(total.items()):
        print(f"{name:24} {right[name]:3} of {count:3} right")
    print(
        f"{sum(right.values())} of {sum(total.values())} right; `fail`: precision"
        f" {both / max(called, 1):.3f}, recall {both / max(fails, 1):.3f}"
    )


if __name__ == "__main__":
    main()
