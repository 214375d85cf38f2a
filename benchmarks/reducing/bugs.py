"""Real bugs of compilers that benchmarks put into hosts: those of the samples and of a folder of failing
models, each reduced alone first.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, load
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure

SAMPLES = Path(__file__).parents[2] / "samples"
# Samples of one compiler by the release that has them all; hosts cannot be made around the others.
GROUPS = {
    "onnxruntime==1.20.1": ("matmul-scale-wrong-shape", "pad-avgpool-wrong-value", "pad-maxpool-wrong-value"),
    "onnxruntime==1.31.1": ("pad-conv-weight-load-error",),
    "onnxruntime==1.25.1": ("if-constant-load-error", "unique-folding-load-error"),
    "onnxscript": (
        "onnxscript-clip-bounds-wrong-value",
        "onnxscript-flatten-order-error",
        "onnxscript-scatternd-add-wrong-value",
    ),
    "onnxslim": ("onnxslim-scalar-shape-error", "onnxslim-unique-folded-wrong-value"),
    "onnxoptimizer": ("onnxoptimizer-sequence-output-error", "onnxoptimizer-shape-crash"),
    "onnxsim": ("onnxsim-pad-avgpool-load-error", "onnxsim-sequence-input-error"),
    "tvm": ("tvm-argmax-uint8-wrong-value", "tvm-isinf-wrong-value", "tvm-onehot-type-error"),
}
# Of a manifest, by what we have beside it.
RELEASES = {"1.31.0": "onnxruntime==1.31.1", "1.20.1": "onnxruntime==1.20.1"}


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug alone: the minimal model that shows it, its inputs, the operators of that model, the
    fingerprint.
    """

    name: str
    target: ResolvedTarget
    case: Case
    operators: tuple[str, ...]
    fingerprint: str


def bugs(workers: Workers, folder: Path | None, only: Collection[str] = ()) -> Iterator[Bug]:
    """Every bug of the groups, and of the models of a folder with a `manifest.json`, reduced alone; of these
    names, if any are given.
    """
    found = [(name, target, load(SAMPLES / name)) for target, names in GROUPS.items() for name in names]
    if folder is not None:
        for entry in json.loads((folder / "manifest.json").read_text()):
            model = onnx.load(folder / entry["model"])
            if entry["ort"] in RELEASES:
                case = Case(OnnxProgram(model.SerializeToString()), seeded_inputs(model, 0))
                found.append((entry["id"], RELEASES[entry["ort"]], case))
    for name, target, case in found:
        if only and name not in only:
            continue
        resolved = resolve(target)
        try:
            result, key = _reduced(case, resolved, workers)
        except NoFailure as error:
            print(f"{name}: left out, {error}")
            continue
        best = Case(result.best.program, result.best.inputs)
        yield Bug(name, resolved, best, _operators(result), key)


def _reduced(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Reduction[Subject], str]:
    form = OnnxReduction()
    premise = find(case, [target], None, workers)
    result = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    return result, premise.failure.fingerprint.key


def _operators(result: Reduction[Subject]) -> tuple[str, ...]:
    return tuple(sorted(result.best.program.operators()))
