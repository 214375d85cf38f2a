"""The float64 reference of onnxruntime's own operators against its kernels, at both ends of its optimiser.

    python -m benchmarks.contrib_operators [--programs 200] [--seed 1] [--only NAME]... [--target T]...

Programs of one node each: how many a target ran, how many the judge's comparison finds to agree, and the
largest difference in parts of the largest magnitude (for integers: in steps). What is refused or not computed
is counted by its first line.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import numpy as np
from contrib_instances.drawing import model_of
from contrib_instances.instances import INSTANCES

from opsieve.backends.compare import error
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

TARGETS = ("onnxruntime", "onnxruntime:disable_all")


def difference(got: Any, right: Any) -> float:
    """Steps between integers, else parts of the largest magnitude; infinity where shapes differ."""
    got, right = np.asarray(got), np.asarray(right)
    if got.shape != right.shape:
        return float("inf")
    if got.dtype == object:
        return float((got != right).any())
    if got.dtype.kind in "iub":
        return float(np.abs(got.astype(np.float64) - right).max(initial=0))
    return error(got, right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--target", action="append")
    chosen = parser.parse_args()
    targets = [resolve(text) for text in chosen.target or TARGETS]
    with Workers() as workers:
        for name in chosen.only or INSTANCES:
            ran, worst, verdicts, notes = 0, 0.0, Counter[str](), Counter[str]()
            for number in range(chosen.programs):
                instance = INSTANCES[name](np.random.default_rng([chosen.seed, number]))
                model, fed = model_of(
                    name, instance, "" if name == "SimplifiedLayerNormalization" else "com.microsoft"
                )
                program = OnnxProgram(model.SerializeToString(), f"{name}-{number}")
                lab = ObservationCache(workers)
                right = lab.observe(FLOAT64, program, fed)
                for target in targets:
                    seen = lab.observe(target, program, fed)
                    if seen.outputs is not None and right.outputs is not None:
                        ran += 1
                        worst = max(
                            [
                                worst,
                                *(difference(seen.outputs[key], right.outputs[key]) for key in seen.outputs),
                            ]
                        )
                        found = judge_program(program, fed, target, lab).verdict
                        verdicts[found.verdict + "".join(f" ({rule})" for rule in found.rules)] += 1
                    else:
                        lacking = seen if seen.outputs is None else right
                        notes[
                            f"{lacking.target}: {lacking.outcome}"
                            f" {lacking.message.strip().splitlines()[0][:110] if lacking.message else ''}"
                        ] += 1
            print(
                f"{name:36} ran {ran:4} worst {worst:.1e}  {dict(verdicts)}",
                *(f"\n    {count} {note}" for note, count in notes.most_common(3)),
                flush=True,
            )


if __name__ == "__main__":
    main()
