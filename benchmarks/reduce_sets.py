"""Sets of made failures that `reduce` is held against: each one command, each failure one line, the figures
at the end.

    python benchmarks/reduce_sets.py first [--only NAME]
    python benchmarks/reduce_sets.py attack [--seed N] [--count N] [--ir onnx|tir|relax]
    python benchmarks/reduce_sets.py fresh [--only NAME] [--polygraphy PYTHON]
    python benchmarks/reduce_sets.py hosts [--cases DIR] [--polygraphy PYTHON] [--only NAME] [--most MIB]
        [--weights MIB]
    python benchmarks/reduce_sets.py scale [--nodes N] [--shape chain|wide|outputs|all]
        [--fault crash|error|mismatch|all]

`scale`: a bug among so many nodes. `hosts`: real bugs in ResNet, a transformer, LSTM, UNet, with control
flow, functions, QDQ and large weights, beside Polygraphy. `fresh`:
twelve hosts of bugs of six tools, beside Polygraphy in both modes. `first`: how soon a smaller model is on disk.
`attack`: certificates beside a brute force.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.reducing import attack, first, fresh, hosts, scaled


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("hosts", "fresh", "first", "attack", "scale"))
    parser.add_argument(
        "--most", type=int, default=64, help="MiB of the largest host that Polygraphy is given"
    )
    parser.add_argument("--cases", type=Path, help="folder of failing models with a manifest.json")
    parser.add_argument("--seed", type=int, default=0, help="the first model of `attack`")
    parser.add_argument("--count", type=int, default=100, help="the models of `attack`")
    parser.add_argument("--ir", choices=("onnx", "tir", "relax"), default="onnx", help="the IR of `attack`")
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
    parser.add_argument("--only", default="", help="hosts or targets with this in their name")
    options = parser.parse_args()
    if options.what == "attack" and options.ir != "onnx":
        attack.report_tvm(options.ir, options.seed, options.count)
    elif options.what == "attack":
        attack.report(options.seed, options.count)
    elif options.what == "first":
        first.report(options.only)
    elif options.what == "fresh":
        fresh.report(options.only, options.polygraphy)
    elif options.what == "hosts":
        hosts.report(options.cases, options.polygraphy, options.only, options.most, options.weights)
    else:
        scaled.report(
            options.nodes,
            scaled.SHAPES if options.shape == "all" else (options.shape,),
            tuple(scaled.FAULTS) if options.fault == "all" else (options.fault,),
        )


if __name__ == "__main__":
    main()
