"""How many operators of a domain `opsieve learn` declares, seed by seed, and what it costs.

    python benchmarks/learning.py FOLDER com.microsoft --seeds 0,1,2 [--only NAME,...] [--sample 30] [-t
    onnxruntime:disable_all]

FOLDER keeps what was learnt, so that an interrupted run goes on, and DOMAIN-SEED.toml, whose heads tell of
each operator that was not declared why not. `--sample` takes so many operators of the domain at random (of
ONNX's own, `ai.onnx`, for example). CPU seconds are of this process and its workers.
"""

import argparse
import random
import resource
from pathlib import Path

from opsieve.backends.probing.domain_schemas import read_schemas
from opsieve.backends.probing.learning import Learnt
from opsieve.backends.probing.learning_session import SECONDS, LearnRequest, export_learnt, learn_operators
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("domain")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("-t", "--target", default="onnxruntime:disable_all")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    domain = "" if chosen.domain == "ai.onnx" else chosen.domain
    only = frozenset(filter(None, chosen.only.split(",")))
    declared_once, names = set[str](), set[str]()
    for seed in map(int, chosen.seeds.split(",")):
        if chosen.sample:
            kernels = [schema.name for schema in read_schemas(domain) if schema.kernel]
            only = frozenset(random.Random(seed).sample(kernels, chosen.sample))
        before = _cpu()
        found = _learn(LearnRequest(domain, resolve(chosen.target), only, seed), chosen)
        declared = [each for each in found if each.operator is not None]
        declared_once |= {each.name for each in declared}
        names |= {each.name for each in found}
        print(
            f"seed {seed}: {len(declared)} of {len(found)} ({len(declared) / len(found):.1%}),"
            f" {sum(each.asked for each in found)} instances, {sum(each.died for each in found)} deaths,"
            f" {_cpu() - before:.0f} s CPU"
        )
        for each in found:
            if each.operator is None:
                print(f"    {each.name} ({each.asked} instances): {each.reason}")
    print(f"with some seed: {len(declared_once)} of {len(names)}")


def _learn(request: LearnRequest, chosen: argparse.Namespace) -> list[Learnt]:
    with Workers(Limits(seconds=SECONDS)) as workers:
        found = []
        for each in learn_operators(request, workers, chosen.folder / "learned"):
            found.append(each)
            print(f"    {'declared' if each.operator else 'not     '} {each.name} {each.asked}", flush=True)
        text = export_learnt(request, found, workers.version(request.target))
    (chosen.folder / f"{chosen.domain}-{request.seed}.toml").write_text(text, encoding="utf-8")
    return found


def _cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
