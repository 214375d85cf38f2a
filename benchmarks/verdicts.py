"""How often the judge decides: random programs of the mix on one target, every one judged in full.

    python benchmarks/verdicts.py --tests 300 --seed 0 --target onnxruntime [--seconds CPU] [--keep FOLDER]

Prints how many ended in each verdict, and each that is neither `pass` nor `unsupported` with its reason, to
be read by hand. A `fail` that is no bug is a false alarm; `undecided` is what the judge cannot tell.
"""

import argparse
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.probing.prober import probe_targets
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.work_clock import read_load
from opsieve.gen.case.case import save
from opsieve.triage.campaign.plan import USUAL, CampaignPlan


def main() -> None:
    """Judge and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="onnxruntime")
    parser.add_argument("--nodes", default="10-30")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="CPU seconds of this process and its children"
    )
    parser.add_argument("--keep", type=Path, help="save each program that is printed in this folder")
    asked = parser.parse_args()
    target = resolve(asked.target)
    least, most = (int(part) for part in asked.nodes.split("-"))
    request = replace(USUAL, between=(least, most))
    oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
    counts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    started = used()
    with Workers() as workers:
        lab = ObservationCache(workers)
        plan = CampaignPlan(request=request, supports=tuple(probe_targets(workers, [target])))
        for number in range(asked.tests):
            if used() - started > asked.seconds:
                break
            case = plan.make_case(asked.seed, number)
            verdict = judge_program(case.program, case.inputs, target, lab, oracles=oracles).verdict
            lab.forget_all()
            counts[verdict.verdict] += 1
            rules.update(verdict.rules)
            if verdict.verdict not in ("pass", "unsupported"):
                print(f"{number:5} {verdict.verdict}: {verdict.reason[:500]}", flush=True)
                if asked.keep is not None:
                    save(case, asked.keep / f"{asked.seed}-{number}-{verdict.verdict}")
    print(
        f"{sum(counts.values())} programs on {asked.target}: "
        + ", ".join(f"{n} {word}" for word, n in counts.most_common())
        + f"; {used() - started:.0f} s of CPU"
    )
    print("rules: " + (", ".join(f"{rule} {n}" for rule, n in rules.most_common()) or "none"))


def used() -> float:
    """CPU seconds of this process and of all that it started."""
    load = read_load(os.getpid())
    return load.cpu if load is not None else 0.0


if __name__ == "__main__":
    main()
