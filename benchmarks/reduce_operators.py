"""Every declared operator reduced alone, to see what is left of it: checks, those that the compiler only
refused, and final sizes.

    python benchmarks/reduce_operators.py [PATTERN ...] [--seeds N] [--without DIMENSION] [--show]

The failure is that the operator is there and onnxruntime, unoptimised, runs the model; so nothing but
validity holds a number up. Where it refuses a model that onnx's checker let pass, a check was wasted.
Instances are those of the generator (its first seeds, opset 26); an operator that onnxruntime has no kernel
for is left out.
"""

import argparse
import fnmatch
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import onnx

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.declarations.catalogue import OpChoice, first_dtypes, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.tensor import ANY
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, finish, single_node
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import read_tensor
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.sessions.reduction import Listeners, reduce_by_check

PLAIN = resolve("onnxruntime:disable_all")
_LIKED = ("float32", "int64", "bool", "int8", "uint8")


class Present:
    """The check: the operator is there, and the model runs and gives elements. `refused` counts models that
    do not run.
    """

    def __init__(self, name: str, workers: Workers, target: ResolvedTarget = PLAIN) -> None:
        self.name, self.workers, self.target, self.refused = name, workers, target, 0

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            if all(node.op_type != self.name for node in all_nodes(subject.model.graph.node)):
                yield CheckResult("gone", "the operator is not there")
                continue
            outputs = self.workers.observe(self.target, subject.program, subject.inputs).outputs
            self.refused += outputs is None
            shown = outputs is not None and all(getattr(value, "size", 1) for value in outputs.values())
            yield CheckResult("same" if shown else "gone")


def subjects(op: Operator, seeds: int, workers: Workers) -> Iterator[Subject]:
    """The first instances that run."""
    known = first_dtypes(op, SUPPORTED)
    dtypes = [dtype for dtype in _LIKED if dtype in known] or sorted(known)
    choice = OpChoice(op, frozenset(dtypes[:1]), tuple(dtypes[:1]), *op.ranks, op.safe[0] if op.safe else ANY)
    found = 0
    for seed in range(4 * seeds if dtypes else 0):
        builder = single_node(choice, SUPPORTED, seed)
        if builder is None or found == seeds:
            continue
        made = finish(builder, GenRequest(), "single", seed)
        if workers.observe(PLAIN, made.program, made.inputs).outputs is not None:
            found += 1
            yield Subject(made.program.proto, made.inputs, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--without", action="append", default=[], help="leave a dimension out")
    parser.add_argument("--show", action="store_true", help="print what is left")
    options = parser.parse_args()
    dimensions = [each for each in OnnxReduction().passes() if each.name not in options.without]
    total: Counter[str] = Counter()
    with Workers() as workers:
        for name, op in operators().items():
            if not any(fnmatch.fnmatch(name, pattern) for pattern in options.patterns):
                continue
            for start in subjects(op, options.seeds, workers):
                check, since = Present(op.name, workers), time.process_time()
                result = reduce_by_check(
                    OnnxReduction(), start, [check], workers, None, Journal(""), Listeners(), dimensions
                )
                graph = result.best.model.graph
                values = [*map(read_tensor, graph.initializer), *result.best.inputs.values()]
                row = {
                    "models": 1,
                    "checks": result.checks,
                    "refused": check.refused,
                    "invalid": result.invalid,
                    "elements": sum(getattr(held, "size", 0) for held in values),
                    "attributes": sum(len(node.attribute) for node in graph.node),
                    "bytes": result.best.model.ByteSize(),
                    "milliseconds": round(1000 * (time.process_time() - since)),
                }
                total.update(row)
                if options.show:
                    print(name, row, onnx.printer.to_text(graph), sep="\n", flush=True)
    print(dict(total))


if __name__ == "__main__":
    main()
