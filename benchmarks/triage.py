"""Fingerprints against known answers: faults put into compilers, each one a label.

The compilers are TVM's importer, onnxscript's optimizer, onnxslim and `fake`.

    python benchmarks/triage.py [--quick] [--seed S] [--only COMPILER] [--half development|final] [--reduce
    SECONDS] [--save FILE.json] python benchmarks/triage.py --again FILE.json

A fault is one changed expression, or a sudden death, of one function (at most one in a line of source: two
changes of one expression are one bug), or a fault of the grammar of `fake`. Conformance models and generated
ones that the compiler gets right without it run with it, in workers, and are judged as `fuzz` does. Half of
the faults, drawn by their number, are for development, the other half is only to be looked at in the end.
Printed for both: our clusters from logs alone (no program, no names); as they are found; after reduction of
every wrong result (within `--reduce` seconds for each compiler) and attribution to passes where the compiler
has any (onnxscript; the importer and `fake` have none); and the rules of others
(`triaging/published_rules.py`). `FILE` gets every failure with its components. `--again` fingerprints what
such a file holds by today's rules; nothing runs, and what was reduced is what the rules of that day asked
for.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from triaging.scores import scores

if TYPE_CHECKING:
    from triaging.failure import Failure

ENTRIES = """[opsieve.backends]
seeded-tvm = triaging.seeded:SEEDED_TVM
seeded-onnxscript = triaging.seeded:SEEDED_ONNXSCRIPT
seeded-onnxslim = triaging.seeded:SEEDED_ONNXSLIM
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a third of the faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=("tvm", "onnxscript", "onnxslim", "fake"), help="run only this compiler"
    )
    parser.add_argument("--half", choices=("development", "final"), help="run only these faults")
    parser.add_argument(
        "--again", type=Path, metavar="FILE.json", help="failures of an earlier run, nothing runs"
    )
    parser.add_argument(
        "--reduce", type=float, default=0, help="seconds of reduction for each compiler; 150, quick 40"
    )
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    announce()
    from triaging.campaign import explored, failing, frozen, programs, reduced
    from triaging.drawing_faults import LAYERS, drawn
    from triaging.failure import load, save

    if options.again:
        for line in table(load(options.again)):
            print(line)
        return

    began = time.monotonic()
    share = 4 if options.quick else 1
    cases = programs(options.seed, generated=120 // share)
    some = len(cases) // (6 if options.quick else 3)  # TVM is slow
    taken = {
        "tvm": cases[:some] + cases[-some // 4 :],
        "onnxscript": [*cases, *map(frozen, cases)],
        "onnxslim": cases,
        "fake": cases,
    }
    many = {"tvm": 45 // share, "onnxscript": 45 // share, "onnxslim": 45 // share, "fake": 27 // share}
    budget = options.reduce or (40 if options.quick else 150)

    def whole(layer: str) -> "list[Failure]":
        known = explored(layer, taken[layer])
        seeds = drawn(layer, many[layer], options.seed, [ran for _, ran in known])
        if options.half:
            seeds = [seed for seed in seeds if seed.final is (options.half == "final")]
        found = failing(seeds, known, 14)
        print(f"{layer}: {len(found)} failures after {time.monotonic() - began:.0f} s", file=sys.stderr)
        after = reduced(found, budget)
        print(f"{layer}: reduced after {time.monotonic() - began:.0f} s", file=sys.stderr)
        return after

    with ThreadPoolExecutor(2) as pool:
        found = [one for part in pool.map(whole, (options.only,) if options.only else LAYERS) for one in part]
    if options.save:
        save(options.save, found)
    for line in table(found):
        print(line)


def table(found: "Sequence[Failure]") -> Iterator[str]:
    """What is printed: the failures, then both halves of both tracks."""
    from triaging.failure import joined
    from triaging.published_rules import RULES

    yield f"{len(found)} failures of {len({one.seed.target for one in found})} faults: " + ", ".join(
        f"{count} {kind} of {layer}"
        for (layer, kind), count in sorted(
            Counter((one.seed.layer, str(one.verdict.kind)) for one in found).items()
        )
    )
    for wrong, track in ((False, "errors and crashes"), (True, "wrong results")):
        for final, half in ((False, "development"), (True, "final")):
            part = [
                one
                for one in found
                if one.seed.final is final and (one.verdict.mismatch is not None) is wrong
            ]
            if not part:
                continue
            labels = [one.seed.target for one in part]
            keys: dict[str, Sequence[object]] = {
                **({} if wrong else {"ours, from logs alone": from_logs(part)}),
                "ours, as found": joined([one.before for one in part]),
                "ours, reduced and attributed": joined([one.after for one in part]),
                **{name: rule([one.shown() for one in part]) for name, rule in RULES.items()},
            }
            reduced = sum(one.reduced > 0 for one in part)
            yield (
                f"{track}, {half} half: {len(part)} failures of {len(set(labels))} faults, {reduced} of them"
                " reduced"
            )
            yield f"  {'':30}{'clusters':>9}{'BCubed F1':>11}{'P':>7}{'R':>7}{'pairs P':>9}{'R':>7}{'ARI':>7}"
            for name, key in keys.items():
                told = scores(key, labels)
                yield (
                    f"  {name:30}{told.clusters:>9}{told.bcubed_f1:>11.3f}{told.bcubed_p:>7.3f}{told.bcubed_r:>7.3f}"
                    f"{told.pair_p:>9.3f}{told.pair_r:>7.3f}{told.ari:>7.3f}"
                )


def from_logs(part: "Sequence[Failure]") -> list[str]:
    """The clusters of failures of which nothing is left but their logs."""
    from opsieve.triage.external.external_logs import cluster_records

    return [each.cluster for each in cluster_records((at, one.record()) for at, one in enumerate(part))]


def announce() -> None:
    """Make the seeded backends known to this process and its children: a distribution of two lines in a
    folder of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="seeded-"))
    info = folder / "opsieve_seeded-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: opsieve-seeded\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    sys.path.append(str(folder))
    warnings.simplefilter("ignore")  # of onnx's test models


if __name__ == "__main__":
    main()
