"""What our verdicts make of a campaign whose failures are no bugs: one lack told many times, and float16
rounding made visible.

    python benchmarks/rounding_campaign.py [--programs 500] [--seconds 60] [--seed S] [--keep DIR]

A published fuzzer's minute on onnxruntime reported 64 "bugs": 42 were Erf in float64, which onnxruntime
lacks, 22 were float16 rounding that Floor, Cast, Sin and ArgMax make visible, and in none did optimisation
change the result. The programs here are drawn from the same operators and types: a third with Erf in float64,
two thirds in float16 that end in one of the four. Printed are the verdicts of `fuzz`, what a check with one
tolerance (1e-3) against the float64 reference would have called bugs, and the clusters.
"""

import argparse
import random
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.testing import do_tests
from opsieve.triage.review.review import review
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

PLAIN = frozenset(
    ["Add", "Sub", "Mul", "Div", "Relu", "Tanh", "Sigmoid", "Sqrt", "Exp", "Abs", "Neg", "ReduceMean"]
)
SHOWING = ("Floor", "Cast", "Sin", "ArgMax")
TARGET = "onnxruntime"
CHUNK = 16


def program(seed: int) -> Case:
    """The program of a seed; one of every three has Erf in float64."""
    if seed % 3 == 0:
        request = GenRequest(between=(8, 20), only=PLAIN | {"Erf"}, dtypes=frozenset(["float64"]))
        return generate("isra", seed, request)
    request = GenRequest(between=(8, 20), only=PLAIN, dtypes=frozenset(["float16"]))
    return ended(generate("isra", seed, request), random.Random(seed).choice(SHOWING))


def ended(case: Case, operator: str) -> Case:
    """A program with an operator behind its last float16 output that makes small differences visible."""
    model = case.program.proto
    last = [
        item for item in model.graph.output if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    ]
    if not last:
        return case
    attributes = {"Cast": {"to": onnx.TensorProto.INT32}, "ArgMax": {"axis": 0, "keepdims": 0}}.get(
        operator, {}
    )
    kind = {"Cast": onnx.TensorProto.INT32, "ArgMax": onnx.TensorProto.INT64}.get(
        operator, onnx.TensorProto.FLOAT16
    )
    if operator == "ArgMax" and not last[-1].type.tensor_type.shape.dim:
        operator, attributes, kind = "Floor", {}, onnx.TensorProto.FLOAT16
    model.graph.node.append(onnx.helper.make_node(operator, [last[-1].name], ["shown"], **attributes))
    model.graph.output.append(onnx.helper.make_tensor_value_info("shown", kind, None))
    return Case(OnnxProgram(onnx.shape_inference.infer_shapes(model).SerializeToString()), case.inputs)


def naive(case: Case, lab: ObservationCache) -> str:
    """What one tolerance and no questions make of a test: a bug, or ""."""
    seen, right = (lab.observe(place, case.program, case.inputs) for place in (resolve(TARGET), FLOAT64))
    if seen.outputs is None:
        return f"exception: {seen.message[:90]}"
    for name, value in (right.outputs or {}).items():
        with np.errstate(all="ignore"):
            got = np.asarray(seen.outputs.get(name), np.float64)
            if got.shape != np.shape(value) or not np.allclose(
                got, value, rtol=1e-3, atol=1e-3, equal_nan=True
            ):
                return "wrong result"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the store; by default it is thrown away")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # numpy's of the arithmetic that overflows on purpose
    campaign = Campaign("rounding", "isra", options.seed, (TARGET,))
    bugs: Counter[str] = Counter()
    words: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, Workers() as workers:
        folder = options.keep or Path(scratch) / "store"
        with Store(folder) as store:
            store.begin(campaign)
            for first in range(0, options.programs, CHUNK):
                if time.monotonic() - began > options.seconds:
                    break
                numbers = range(first, min(first + CHUNK, options.programs))
                cases = {number: program(options.seed * 1_000_000 + number) for number in numbers}
                lab = ObservationCache(workers)
                done = do_tests(campaign, cases, lab)
                store.record(campaign, done)
                words.update(test.answers[TARGET][0] for test in done)
                bugs.update(naive(case, lab) for case in cases.values())
        review(folder)
        with Queries(folder) as queries:
            clusters, non_bugs = queries.clusters().rows, queries.non_bugs()
    print(
        f"{sum(words.values())} programs in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {w}" for w, n in words.most_common())
    )
    print(f"one tolerance and no questions: {sum(n for what, n in bugs.items() if what)} bugs")
    for what, count in bugs.most_common():
        print(f"  {count:4} {what or 'fine'}")
    print(f"clusters: {len(clusters)}; apart: {len(non_bugs)}")
    for entry in non_bugs:
        print(f"  {entry.count:4} {entry.verdict}: {entry.what[:100]}")
    for row in clusters:
        print(f"  {row.members:4} {row.kind}: {row.title}")


if __name__ == "__main__":
    main()
