"""Every form that an operator of ONNX's own had at opsets 1 to 12: a valid program, evaluated, and held
against onnxruntime at that opset.

    python -m benchmarks.old_operators [NAME]... [--seeds 3] [--list]

The forms are those of `onnx.defs`, one row for each (operator, version). Programs have one node: an instance
of today's declaration, or of a table for what has none, written in the old form
(benchmarks/old/downgrading.py), at the first and at the last opset that has the form.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx.defs
import onnx.version_converter
from benchmarks.old.downgrading import NotHad, Values, declare, downgrade
from benchmarks.old.written import written
from benchmarks.reduce_operators import Present
from onnx import ModelProto
from onnx.defs import OpSchema

from opsieve.backends.judge.judge import judge
from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.declarations.catalogue import OLDEST, OpChoice, first_dtypes, known, named_dtypes
from opsieve.gen.declarations.tensor import ANY
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, finish, single_node
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.sessions.reduction import Listeners, reduce_by_check

LAST = 12
TARGET = resolve("onnxruntime:disable_all")
_LIKED = ("float32", "int64", "bool", "int8", "uint8")


@dataclass(frozen=True, slots=True)
class Form:
    """One version of an operator, with the first and the last opset up to 12 that have it."""

    schema: OpSchema
    last: int

    @property
    def opsets(self) -> tuple[int, ...]:
        return tuple(sorted({self.schema.since_version, self.last}))

    def __str__(self) -> str:
        return f"{self.schema.name}-{self.schema.since_version}"


@dataclass
class Found:
    """What became of the programs of one form."""

    drawn: int = 0
    evaluated: int = 0
    reduced: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def forms(names: Sequence[str]) -> list[Form]:
    """Every version of every operator of ONNX's own that an opset up to 12 has, deprecated ones left out."""
    schemas = [each for each in onnx.defs.get_all_schemas_with_history() if each.domain == ""]
    since = {}
    for each in schemas:
        since.setdefault(each.name, []).append(each.since_version)
    found = []
    for each in sorted(schemas, key=lambda schema: (schema.name, schema.since_version)):
        later = [version for version in since[each.name] if version > each.since_version]
        last = min([LAST, *(version - 1 for version in later)])
        if each.since_version <= LAST and not each.deprecated and (not names or each.name in names):
            found.append(Form(each, last))
    return found


def programs(form: Form, seeds: int, reasons: Counter[str]) -> Iterator[tuple[ModelProto, Values]]:
    """Valid programs of a form, at its first and last opset; why there is none is counted."""
    by_hand = [found for opset in form.opsets for found in written(form.schema, opset)]
    if by_hand:
        yield from by_hand
        return
    operator = known()[form.schema.name]
    newest = OLDEST if operator.since <= OLDEST else SUPPORTED
    allowed = first_types(form.schema) & (first_dtypes(operator, newest) or frozenset(["float32"]))
    dtypes = [each for each in _LIKED if each in allowed] + sorted(allowed - set(_LIKED))
    made, opsets = 0, form.opsets
    for seed in range(8 * seeds):
        if made == seeds * len(opsets):
            return
        dtype = tuple(dtypes[seed % len(dtypes) : seed % len(dtypes) + 1]) if dtypes else ()
        choice = OpChoice(
            operator, frozenset(dtype), dtype, *operator.ranks, operator.safe[0] if operator.safe else ANY
        )
        builder = single_node(choice, newest, seed, palette=dtype if dtype != ("bool",) else ("float32",))
        if builder is None:
            reasons["no instance is drawn"] += 1
            continue
        case = finish(builder, GenRequest(nodes=1, only=frozenset([form.schema.name])), "single", seed)
        try:
            yield downgrade(case.program.proto, case.inputs, newest, form.schema, opsets[made % len(opsets)])
            made += 1
        except (NotHad, onnx.shape_inference.InferenceError, ValueError) as error:
            reasons[str(error).strip().splitlines()[0][:110]] += 1


def first_types(schema: OpSchema) -> frozenset[str]:
    """The element types of the first input."""
    if not schema.inputs:
        return frozenset(["float32"])
    types = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    text = schema.inputs[0].type_str
    return named_dtypes(types.get(text, [text]))


def reduced(form: Form, model: ModelProto, fed: Values, workers: Workers) -> str:
    """The first program of a form reduced while the operator is there and the reference evaluates it."""
    check = Present(form.schema.name, workers, FLOAT64)
    start = Subject(model, fed, {})
    try:
        made = reduce_by_check(OnnxReduction(), start, [check], workers, None, Journal(""), Listeners())
    except (BadInput, NoFailure) as error:
        return "not reduced: " + first_line(str(error))
    kept = next(entry.version for entry in made.best.model.opset_import if entry.domain == "")
    if kept != next(entry.version for entry in model.opset_import if entry.domain == ""):
        return "reduced to another opset"
    return "reduced" + (f", {check.refused} checks refused" if check.refused else "")


def examine(form: Form, seeds: int, lab: ObservationCache, workers: Workers | None = None) -> Found:
    """Evaluate the programs of a form; where `workers` are given, reduce the first."""
    found = Found()
    for number, (model, fed) in enumerate(programs(form, seeds, found.reasons)):
        name = f"{form}-{number}"
        right = lab.observe(FLOAT64, OnnxProgram(model.SerializeToString(), name), fed)
        found.drawn += 1
        if right.outputs is None:
            found.reasons["reference: " + first_line(right.message)] += 1
            continue
        try:
            program = OnnxProgram(declare(model, right.outputs).SerializeToString(), name)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            found.reasons["not valid: " + first_line(str(error))] += 1
            continue
        found.evaluated += 1
        if workers is not None and found.evaluated == 1:
            found.reduced = reduced(form, program.proto, fed, workers)
        seen = lab.observe(TARGET, program, fed)
        if seen.outputs is None:
            found.verdicts[f"no kernel: {seen.outcome}"] += 1
            found.reasons[f"onnxruntime {seen.outcome}: " + first_line(seen.message)] += 1
            word = converted(program, fed, right.outputs, lab)
            found.verdicts["converted to 13: " + first_line(word)[:9]] += 1
            if word != "pass":
                found.reasons["converted to 13: " + word] += 1
            continue
        verdict = judge(program, fed, TARGET, lab).verdict
        found.verdicts[verdict.verdict] += 1
        if verdict.verdict != "pass":
            found.reasons[f"{verdict.verdict}: " + first_line(verdict.reason)] += 1
    return found


def converted(program: OnnxProgram, fed: Values, wanted: Values, lab: ObservationCache) -> str:
    """What onnxruntime gives for the program that onnx's version converter makes of it, held against what the
    old form was evaluated to.
    """
    try:
        made = onnx.version_converter.convert_version(program.proto, OLDEST)
    except RuntimeError as error:
        return "not converted: " + first_line(str(error))
    newer = OnnxProgram(made.SerializeToString(), program.name)
    seen = lab.observe(TARGET, newer, fed)
    if seen.outputs is None:
        return f"not run ({seen.outcome}): {first_line(seen.message)}"
    for name, value in seen.outputs.items():
        dtype = getattr(value, "dtype", None)
        if dtype is None or dtype.kind not in "fiub":
            return "not compared"
        if not np.allclose(
            value,
            np.asarray(wanted[name]),
            rtol=1e-3 if dtype == np.float16 else 1e-4,
            atol=1e-5,
            equal_nan=True,
        ):
            return f"differs: {name} is {value.ravel()[:3]} for {np.asarray(wanted[name]).ravel()[:3]}"
    return "pass"


def first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:150]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--seeds", type=int, default=3, help="programs of each form at each of its two opsets"
    )
    parser.add_argument("--reduce", action="store_true", help="reduce the first program of each form too")
    parser.add_argument(
        "--list", action="store_true", help="every form, not those alone with something to say"
    )
    given = parser.parse_args()
    total: Counter[str] = Counter()
    with Workers() as workers:
        for form in forms(given.names):
            lab = ObservationCache(workers)
            found = examine(form, given.seeds, lab, workers if given.reduce else None)
            total["forms"] += 1
            total["drawn"] += found.drawn > 0
            total["evaluated"] += found.evaluated > 0
            total["every program evaluated"] += 0 < found.drawn == found.evaluated
            total["agrees with the kernel"] += found.verdicts["pass"] > 0
            total["agrees with it converted"] += (
                not found.verdicts["pass"] and found.verdicts["converted to 13: pass"] > 0
            )
            total["reduced"] += found.reduced.startswith("reduced")
            total["programs"] += found.drawn
            total.update(found.verdicts)
            if (
                given.list
                or set(found.verdicts) != {"pass"}
                or found.evaluated < found.drawn
                or found.reduced.startswith("not")
            ):
                print(
                    f"{form!s:28} {found.reduced} drawn {found.drawn:3} evaluated {found.evaluated:3}"
                    f" {dict(found.verdicts)}"
                )
                print(
                    *(f"    {count} {reason}" for reason, count in found.reasons.most_common(3)),
                    sep="\n",
                    flush=True,
                )
    print(dict(total), file=sys.stderr)


if __name__ == "__main__":
    main()
