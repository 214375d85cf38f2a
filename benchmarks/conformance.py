"""Every ONNX node conformance test through the judge: how many pass, how many the compiler does not support,
how many fail.

    python benchmarks/conformance.py [--target T]... [--every N] [--list VERDICT]

The tests bring inputs and expected outputs. What cannot be asked is counted and its reasons are printed,
never skipped in silence.
"""

import argparse
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.backend.test.loader import load_node_model_tests

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import FLOAT64, SECOND_ORACLES
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.tensors import graph_inputs, graph_outputs, read_tensor
from opsieve.triage.fingerprint.normalise import normalise_message

ORDER = ["pass", "unsupported", "environment", "invalid", "undecided", "flaky", "fail"]
CHUNK = 64


def cases(every: int) -> list[tuple[str, Test, dict[str, Any]]]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_node_model_tests()
    for test in tests[::every]:
        program = OnnxProgram(test.model.SerializeToString(), test.name)
        for number, (inputs, outputs) in enumerate(test.data_sets):
            fed = {name: value(item) for name, item in zip(graph_inputs(test.model), inputs, strict=False)}
            wanted = {
                name: value(item) for name, item in zip(graph_outputs(test.model), outputs, strict=False)
            }
            name = test.name if len(test.data_sets) == 1 else f"{test.name}[{number}]"
            found.append((name, Test(program, fed), wanted))
    return found


def value(item: Any) -> Any:
    """The tests hold numpy scalars where the model has tensors without dimensions, and TensorProtos of types
    new to numpy.
    """
    if isinstance(item, TensorProto):
        return read_tensor(item)
    if item is None or isinstance(item, list):
        return item
    return np.asarray(item)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", help="default: onnxruntime and tvm")
    parser.add_argument("--every", type=int, default=1, help="take every N-th test")
    parser.add_argument("--list", action="append", default=[], help="name the tests with this verdict")
    given = parser.parse_args()
    targets: list[ResolvedTarget] = [resolve(text) for text in given.target or ["onnxruntime", "tvm"]]
    tests = cases(given.every)
    print(f"{len(tests)} data sets of the ONNX node tests\n")
    print(f"{'target':<28}" + "".join(f"{word:>13}" for word in ORDER) + f"{'seconds':>10}")
    with Workers(Limits(seconds=30.0)) as workers:
        lab = ObservationCache(workers)
        for target in targets:
            counts: Counter[str] = Counter()
            reasons: Counter[tuple[str, str]] = Counter()
            named: list[str] = []
            started = time.perf_counter()
            for first in range(0, len(tests), CHUNK):
                chunk = tests[first : first + CHUNK]
                asked = [test for _, test, _ in chunk]
                lab.prefetch([(target, asked), (FLOAT64, asked)])
                for name, test, wanted in chunk:
                    verdict = judge_program(
                        test.program, test.inputs, target, lab, expected=wanted, oracles=SECOND_ORACLES
                    ).verdict
                    counts[verdict.verdict] += 1
                    if verdict.verdict not in ("pass", "fail"):
                        reasons[
                            verdict.verdict, normalise_message(verdict.message or verdict.reason)[:90]
                        ] += 1
                    if verdict.verdict in given.list:
                        named.append(f"  {verdict.verdict:<12}{name}: {verdict.kind}: {verdict.reason}")
                lab.forget_all()
            line = "".join(f"{counts[word]:>13}" for word in ORDER)
            print(f"{target.display:<28}{line}{time.perf_counter() - started:>10.0f}")
            for (word, reason), count in reasons.most_common(12):
                print(f"    {count:>5}  {word:<12} {reason}")
            print("\n".join(named))


if __name__ == "__main__":
    main()
