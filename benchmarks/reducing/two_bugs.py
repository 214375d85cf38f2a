"""Models that hold two bugs of one compiler: does `reduce` keep to the one it began with, and say that
another is left?

Every two bugs of a compiler release, from the samples and from a folder of failing models, are joined into
one model behind hosts of their own. Each is reduced alone first: what comes out says which of the two the
result of the joined model is.
"""

import itertools
import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from benchmarks.reducing.grow import grown
from onnx import compose

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, load
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram, onnx_program
from opsieve.gen.irs.onnx.subject import Subject
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
_HOST = 30, 90  # nodes around each bug


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


@dataclass(frozen=True, slots=True)
class TwoBugResult:
    """What became of a joined model. `answer`: the bug it began with (`kept`), the other one (`slip`),
    neither (`mixed`), or why it was not reduced.
    """

    target: str
    names: tuple[str, str]
    answer: str
    rest: str
    operators: tuple[str, ...] = ()

    @property
    def is_silent_slip(self) -> bool:
        """It ended at another failure than it began with, or at both, and nothing was said."""
        return self.answer in ("slip", "mixed") and not self.rest


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


def joined(one: Bug, other: Bug, seed: int) -> Case | None:
    """Both bugs in one model, each behind a host of its own that the seed draws; None where they ask for
    different operator sets.
    """
    draw = random.Random(f"{seed} {one.name} {other.name}")
    parts = []
    inputs = {}
    for prefix, bug in (("p_", one), ("q_", other)):
        model = onnx_program(bug.case.program, "this").proto
        try:
            host = (
                grown(model, draw.randint(*_HOST), draw.randrange(1 << 30))
                if seed
                else grown(model, _HOST[0])
            )
        except ValueError:
            host = model
        parts.append(compose.add_prefix(host, prefix))
        inputs |= {prefix + name: value for name, value in bug.case.inputs.items()}
    versions = [{entry.domain: entry.version for entry in part.opset_import} for part in parts]
    if any(versions[0].get(domain, version) != version for domain, version in versions[1].items()):
        newest = {
            domain: max(each.get(domain, 0) for each in versions) for domain in {**versions[0], **versions[1]}
        }
    else:
        newest = {**versions[0], **versions[1]}
    model = onnx.ModelProto()
    model.CopyFrom(parts[0])
    del model.opset_import[:]
    model.opset_import.extend(
        onnx.helper.make_opsetid(domain, version) for domain, version in sorted(newest.items())
    )
    model.ir_version = max(part.ir_version for part in parts)
    for field in ("node", "input", "output", "initializer", "value_info"):
        getattr(model.graph, field).extend(getattr(parts[1].graph, field))
    model.functions.extend(parts[1].functions)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return Case(OnnxProgram(model.SerializeToString()), inputs)


def reduce_grown(
    found: Sequence[Bug], size: int, seed: int, workers: Workers
) -> Iterator[tuple[Bug, int, int]]:
    """Every bug in a host of so many nodes: the checks for nodes, and how many nodes are left. Those that
    such a host hides are left out.
    """
    for bug in found:
        try:
            model = grown(onnx_program(bug.case.program, "this").proto, size, seed)
            result, _ = _reduced(Case(OnnxProgram.of(model), bug.case.inputs), bug.target, workers)
        except (NoFailure, ValueError):
            continue
        yield bug, result.node_checks, len(_operators(result))


def reduce_pairs(found: Sequence[Bug], workers: Workers, most: int, seed: int) -> Iterator[TwoBugResult]:
    """Every two bugs of one target, joined and reduced; at most so many, in an order and in hosts that the
    seed draws (0: in order, in the hosts of old).
    """
    pairs = [pair for pair in itertools.combinations(found, 2) if pair[0].target == pair[1].target]
    orders = [*pairs, *((other, one) for one, other in pairs)]  # the other way round the other comes first
    if seed:
        random.Random(seed).shuffle(orders)
    done = 0
    for one, other in orders:
        case = joined(one, other, seed)
        if case is None or done == most:
            continue
        done += 1
        yield _result(case, one, other, workers)


def _result(case: Case, one: Bug, other: Bug, workers: Workers) -> TwoBugResult:
    names = (one.name, other.name)
    target = one.target.display
    try:
        result, key = _reduced(case, one.target, workers)
    except NoFailure as error:
        return TwoBugResult(target, names, f"not reduced: {error}"[:120], "")
    operators = _operators(result)
    like = [bug for bug in (one, other) if bug.operators == operators]
    same_key = [bug for bug in (one, other) if bug.fingerprint == key]
    if not like:
        answer = "mixed"
    elif same_key and not set(map(id, like)) & set(map(id, same_key)):
        answer = "slip"
    else:
        answer = "kept"
    return TwoBugResult(target, names, answer, result.rest_fails, operators)


def _reduced(case: Case, target: ResolvedTarget, workers: Workers) -> tuple[Reduction[Subject], str]:
    form = OnnxReduction()
    premise = find(case, [target], None, workers)
    result = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    return result, premise.failure.fingerprint.key


def _operators(result: Reduction[Subject]) -> tuple[str, ...]:
    return tuple(sorted(result.best.program.operators()))
