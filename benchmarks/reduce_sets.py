"""Sets of made failures that `reduce` is held against: each one command, each failure one line, the figures
at the end.

    python benchmarks/reduce_sets.py two-bugs [--cases DIR] [--most N] [--seed N]
    python benchmarks/reduce_sets.py hints [--cases DIR] [--nodes N] [--seed N]
    python benchmarks/reduce_sets.py kinds [--only KIND]
    python benchmarks/reduce_sets.py fresh [--only NAME] [--polygraphy PYTHON]
    python benchmarks/reduce_sets.py hosts [--cases DIR] [--polygraphy PYTHON] [--only NAME] [--most MIB]
        [--weights MIB]
    python benchmarks/reduce_sets.py scale [--nodes N] [--shape chain|wide|outputs|all]
        [--fault crash|error|mismatch|all]

`two-bugs`: models that hold two bugs of one compiler. `scale`: a bug among so many nodes. `hosts`: real bugs
in ResNet, a transformer, LSTM, UNet, with control flow, functions, QDQ and large weights, beside Polygraphy.
`hints`: the checks for nodes of each bug alone in a random host. `kinds`: a case of every kind of failure.
`fresh`: twelve hosts of bugs of six tools, beside Polygraphy in both modes.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.reducing import fresh, hosts, kinds, scaled, two_bugs

from opsieve.backends.workers.workers import Workers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=(
            "two-bugs",
            "hosts",
            "hints",
            "kinds",
            "fresh",
            "scale",
        ),
    )
    parser.add_argument("--most", type=int, default=0, help="how many; 40, or MiB for hosts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=Path, help="folder of failing models with a manifest.json")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--shape", choices=(*scaled.SHAPES, "all"), default="chain")
    parser.add_argument(
        "--fault",
        choices=(*scaled.FAULTS, "all"),
        default="crash",
        help="`crash` of `fake`, the others of onnxruntime 1.31",
    )
    parser.add_argument("--polygraphy", type=Path, help="a Python that has polygraphy and onnxruntime")
    parser.add_argument("--weights", type=int, default=512, help="MiB of external data of the hosts `heavy`")
    parser.add_argument("--only", default="", help="hosts, kinds or targets with this in their name")
    options = parser.parse_args()
    if options.what == "two-bugs":
        _two_bugs(options.cases, options.most or 40, options.seed)
    elif options.what == "hints":
        _hints(options.cases, min(options.nodes, 300), options.seed)
    elif options.what == "kinds":
        kinds.report(options.only)
    elif options.what == "fresh":
        fresh.report(options.only, options.polygraphy)
    elif options.what == "hosts":
        hosts.report(options.cases, options.polygraphy, options.only, options.most or 64, options.weights)
    else:
        scaled.report(
            options.nodes,
            scaled.SHAPES if options.shape == "all" else (options.shape,),
            tuple(scaled.FAULTS) if options.fault == "all" else (options.fault,),
        )


def _two_bugs(cases: Path | None, most: int, seed: int) -> None:
    with Workers() as workers:
        found = list(two_bugs.bugs(workers, cases))
        for bug in found:
            print(f"alone: {bug.target.display} {bug.name}: {' '.join(bug.operators)}", flush=True)
        results = []
        for result in two_bugs.reduce_pairs(found, workers, most, seed):
            results.append(result)
            said = f", rest: {result.rest}" if result.rest else ""
            print(
                f"{result.target} {' + '.join(result.names)}: {result.answer}"
                f" ({' '.join(result.operators)}){said}",
                flush=True,
            )
    answers = Counter(result.answer for result in results)
    print(
        f"{len(results)} models: {dict(answers)}; another failure is said to be left:"
        f" {sum(bool(r.rest) for r in results)}"
    )
    print(f"ended elsewhere without a word: {sum(result.is_silent_slip for result in results)}")


def _hints(cases: Path | None, nodes: int, seed: int) -> None:
    with Workers() as workers:
        found = list(two_bugs.bugs(workers, cases))
        checks = []
        for bug, asked, left in two_bugs.reduce_grown(found, nodes, seed, workers):
            checks.append(asked)
            print(
                f"{bug.target.display} {bug.name}: {asked} checks, {left} left of {len(bug.operators)}",
                flush=True,
            )
    print(f"{len(checks)} models, checks for nodes: median {median(checks):g}, most {max(checks)}")


if __name__ == "__main__":
    main()
