"""Programs of operators that `opsieve learn` declared, judged at both ends of onnxruntime's optimiser: what
fails, operator by operator.

    OPSIEVE_OPERATORS=com.microsoft.toml python benchmarks/learned_programs.py --programs 500 [--seed 1]
    [--nodes 3] [--store FOLDER]

A program has the operators of the file and some of ONNX's own before and behind them. With `--store` each
failure is a case folder there, for `opsieve reduce`.
"""

import argparse
import resource
from collections import Counter, defaultdict
from pathlib import Path

from opsieve.backends.judge.judge import judge
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import save
from opsieve.gen.declarations.catalogue import learned_files, operators
from opsieve.gen.declarations.learned_file import read_learned
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import onnx_program
from opsieve.gen.strategies.registry import generate

TARGETS = ("onnxruntime", "onnxruntime:disable_all")
_OWN = ("Add", "Mul", "Relu", "Transpose", "Reshape", "Cast", "Concat", "Slice")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--store", type=Path)
    chosen = parser.parse_args()
    names = {f"{each.domain}::{each.name}" for path in learned_files() for each in read_learned(path)}
    if not names:
        parser.error("OPSIEVE_OPERATORS names no file of declarations")
    request = GenRequest(nodes=chosen.nodes, only=frozenset(names & set(operators())) | frozenset(_OWN))
    verdicts, met = Counter[str](), Counter[str]()
    failures: defaultdict[str, list[int]] = defaultdict(list)
    with Workers() as workers:
        lab = ObservationCache(workers)
        for seed in range(chosen.seed * 1_000_000, chosen.seed * 1_000_000 + chosen.programs):
            case = generate("isra", seed, request)
            had = names & {
                f"{node.domain}::{node.op_type}"
                for node in onnx_program(case.program, "a judge").proto.graph.node
            }
            if not had:
                continue
            met.update(had)
            for text in TARGETS:
                found = judge(case.program, case.inputs, resolve(text), lab).verdict
                verdicts[f"{text}: {found.verdict}"] += 1
                if found.verdict in ("fail", "undecided"):
                    said = (found.message or found.reason).strip().splitlines()
                    blamed = found.operator or "+".join(sorted(had))
                    failures[
                        f"{text} {found.verdict} {found.kind} {blamed}: {said[0][:160] if said else ''}"
                    ].append(seed)
                    if chosen.store and found.verdict == "fail":
                        save(case, chosen.store / f"{seed}-{text.replace(':', '-')}")
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(
        f"{len(met)} of {len(names)} operators in programs,"
        f" {sum(each.ru_utime + each.ru_stime for each in usage):.0f} s CPU"
    )
    for verdict, count in sorted(verdicts.items()):
        print(f"    {count:5} {verdict}")
    for what, seeds in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"    {len(seeds):4} {what} (seed {seeds[0]})")


if __name__ == "__main__":
    main()
