"""What programs of different forms and generators reach of one compiler's native code, in equal CPU time.

    python -m benchmarks.coverage_by_form tvm|onnxruntime [--seconds 60] [--kind blocks] [--nnsmith FOLDER]
    [--out FOLDER] [--report]

On TVM: ONNX models (`mix`), Relax modules (`relax`), TIR functions with passes (`tir`, Tzer's loop); on
onnxruntime: `mix` and NNSmith's models from a folder
(benchmarks/peers/nnsmith_models.py writes one; their generation, which takes over nine tenths of NNSmith's
time, is not counted). One compiler process serves all, its probes forgotten between them. CPU time is that of
this process and all under it, generation included. Every program is compiled and run, TIR functions one in
eight and lowered else, as in a campaign. Prints what each reached, what only one did, and in which source
directories that lies; each run is kept as the record of a campaign, which `opsieve coverage A B` reads.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from benchmarks.tzer_ablation import Clock

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.coverage.elf import Library
from opsieve.backends.coverage.sources import Names
from opsieve.backends.probing.generation import supported
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.gen.case.open_case import open_case
from opsieve.gen.irs.tir.seeds import basic
from opsieve.triage.campaign.calibration import PROGRAMS, calibrate
from opsieve.triage.campaign.coverage_comparison import UNKNOWN, short
from opsieve.triage.campaign.coverage_record import (
    CompilerCoverage,
    CoverageRecord,
    ReachedLibrary,
    load,
    save,
)
from opsieve.triage.campaign.guidance import GuidedFunctions, Planned, Programs, lowered_seeds
from opsieve.triage.campaign.plan import CampaignPlan

BATCH = 8
LIMITS = Limits(seconds=20.0)


class Folder:
    """Models made elsewhere, in the order of their numbers, again from the first when they are used up."""

    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.onnx"), key=lambda path: int(path.stem))

    def case(self, number: int) -> Case:
        """The case of a test."""
        return open_case(self.paths[number % len(self.paths)], seed=number)

    def lowered_only(self, number: int) -> bool:
        """No."""
        return False

    def learn(self, number: int, case: Case, new: int, failed: bool) -> None:
        """Nothing."""


def ways(target: ResolvedTarget, workers: Workers, nnsmith: Path | None) -> dict[str, Programs]:
    """Where programs come from, by the name of the record."""
    if target.name == "tvm":
        mix = CampaignPlan("mix")
        return {
            "onnx": Planned(mix, 1),
            "relax": Planned(CampaignPlan("relax"), 1),
            "tir": GuidedFunctions([*basic(), *lowered_seeds(1, LIMITS)], 1),
        }
    mix = CampaignPlan(
        "mix", supports=tuple(supported(workers, [target], None, lambda name, done, wanted: None))
    )
    found: dict[str, Programs] = {"mix": Planned(mix, 1)}
    return found if nnsmith is None else {**found, "nnsmith": Folder(nnsmith)}


def run(
    workers: Workers, target: ResolvedTarget, probes: Probes, programs: Programs, seconds: float
) -> CompilerCoverage:
    """One way for that much CPU time."""
    probes.forget()
    workers.end_workers()
    clock, tests, now, refused = Clock(), 0, 0.0, 0
    growth = [(0.0, 0, 0)]
    while now < seconds:
        cases = {number: programs.case(number) for number in range(tests, tests + BATCH)}
        for number, case in cases.items():
            asked = target.with_options(stop="lower") if programs.lowered_only(number) else target
            answer = workers.observe(asked, case.program, case.inputs)
            programs.learn(number, case, len(answer.reached or ()), answer.outcome != "ok")
            refused += answer.outcome != "ok"
        tests, now = tests + BATCH, clock.read()
        growth.append((round(now, 2), tests, probes.count))
    print(f"{tests} tests, {refused} of them not valid", flush=True)
    libraries = [
        ReachedLibrary(str(item.library), item.build_id, item.probes, item.addresses)
        for item in probes.reached()
    ]
    return CompilerCoverage(growth, libraries)


def report(records: Mapping[str, CoverageRecord], compiler: str) -> None:
    """What each reached, what only it did and where that lies; blocks and functions."""
    reached = {name: record.compilers[compiler] for name, record in records.items()}
    entries = {name: functions_of(of) for name, of in reached.items()}
    blocks = {
        name: {(lib.build_id, int(a)) for lib in of.libraries for a in lib.addresses}
        for name, of in reached.items()
    }
    for what, sets in (("blocks", blocks), ("functions", entries)):
        regions = Counter(
            " and ".join(name for name in sets if item in sets[name]) for item in set().union(*sets.values())
        )
        print(f"{what}: " + ", ".join(f"{name} {len(found):,}" for name, found in sets.items()))
        for region, count in sorted(regions.items(), key=lambda pair: -pair[1]):
            print(
                f"  only {region}: {count:,}"
                if region.count(" and ") < len(sets) - 1
                else f"  all: {count:,}"
            )
    for name, of in reached.items():
        others = set().union(*(blocks[other] for other in blocks if other != name))
        found: Counter[str] = Counter()
        everywhere: set[str] = set()
        for library in of.libraries:
            names = Names(Library(Path(library.path)))
            for address in library.addresses.tolist():
                if (library.build_id, address) not in others:
                    found[folder_of(names, address)] += 1
        for other in blocks:
            if other != name:
                for library in reached[other].libraries:
                    names = Names(Library(Path(library.path)))
                    everywhere |= {folder_of(names, address) for address in library.addresses.tolist()}
        alone = [folder for folder in found if folder not in everywhere]
        print(
            f"{name}: {of.growth[-1][1]:,} tests in {of.growth[-1][0]:g} CPU s; blocks that no other reached,"
            " by source directory:"
        )
        print("  " + ", ".join(f"{folder} {count:,}" for folder, count in found.most_common(12)))
        print("  directories that no other reached at all: " + (", ".join(sorted(alone)) or "none"))


def folder_of(names: Names, address: int) -> str:
    """The source directory of an address."""
    file = short(names.source(names.function(address)))
    return file.rpartition("/")[0] or UNKNOWN


def functions_of(of: CompilerCoverage) -> set[tuple[str, int]]:
    """The entries of the functions in which something was reached."""
    found: set[tuple[str, int]] = set()
    for library in of.libraries:
        starts = Library(Path(library.path)).functions[0]
        places = np.unique(np.searchsorted(starts, library.addresses, "right") - 1)
        found |= {(library.build_id, int(starts[place])) for place in places}
    return found


def main() -> None:
    """Run what is missing, then report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=resolve)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kind", default="blocks")
    parser.add_argument("--nnsmith", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/forms"))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    target: ResolvedTarget = given.target
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "coverage"
    if not given.report:
        coverage = Coverage(given.kind, [target.name])
        with Workers(LIMITS, coverage=coverage) as workers:
            workers.version(target)
            probes = next(item for item in coverage.maps().values() if isinstance(item, Probes))
            for name, programs in ways(target, workers, given.nnsmith).items():
                if (kept / f"{target.name}-{name}.json").exists():
                    continue
                calibrate(workers, coverage, [target], [programs.case(number) for number in range(PROGRAMS)])
                of = run(workers, target, probes, programs, given.seconds)
                save(CoverageRecord(f"{target.name}-{name}", name, given.kind, {target.name: of}), given.out)
                print(f"{name}: {of.growth[-1]}", flush=True)
    files = sorted(kept.glob(f"{target.name}-*.json"))
    report({path.stem.partition("-")[2]: load(path) for path in files}, target.name)


if __name__ == "__main__":
    main()
