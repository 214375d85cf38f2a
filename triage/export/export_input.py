"""All that an export tells of one failure, gathered from the oracles that judged it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opsieve.backends.compare import LARGEST, POLICY, compare
from opsieve.backends.judge.derived_types import INFERENCE, RULE, read_derived
from opsieve.backends.judge.judging_session import open_rules, sum_lengths
from opsieve.backends.judge.levels import RULE as LEVELS_DISAGREE
from opsieve.backends.judge.oracles import DERIVING, FLOAT64, NATIVE, Lab, Values
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import TensorType, Value, ValueType
from opsieve.gen.rewrites.relation import rewritten
from opsieve.triage.known.issues import ProbableIssue
from opsieve.triage.store.rows import BlamedCommit

# Who says what is right, in words for people without opsieve.
SOURCES = {
    "expected outputs": "the expected outputs",
    INFERENCE: "ONNX's shape inference, which tells no values",
}
ORACLES = (FLOAT64, NATIVE)  # who is asked what is right


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What one output should be: its value (floats in float64), the dtype it should have, "" where nobody
    says, and the largest absolute difference that passes: infinite where only the type is known, and the
    value stands for its shape.
    """

    value: Value
    dtype: str
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class ExportedFailure:
    """One failure as it is shown to others.

    `expected` holds outputs whose values are known, {} when nobody knows them. `source` says whose they are.
    `shows` is how often a failure that shows sometimes was seen, in how many runs, None for one that always
    does; `runs` in how many it is looked for. `seconds` and `memory` (bytes) limit a run of it. `passes` are
    guilty passes of the optimiser, `regression` and `fixed` say between which releases it came and went,
    `first_bad` is the first release or commit with it, "" where unknown. `commits` are those that caused it
    or are suspected.
    """

    case: Case
    target: ResolvedTarget
    verdict: Verdict
    observation: Observation
    expected: Mapping[str, ExpectedOutput] = field(default_factory=dict)
    source: str = ""
    shows: tuple[int, int] | None = None
    runs: int = 1
    seconds: float = 60.0
    memory: int = 4 << 30
    passes: tuple[str, ...] = ()
    regression: str = ""
    fixed: str = ""
    first_bad: str = ""
    commits: tuple[BlamedCommit, ...] = ()
    probably: tuple[ProbableIssue, ...] = ()  # public issues that it may be

    @property
    def noun(self) -> str:
        """What the compiler's users call the program: a model of ONNX, or a module of the compiler's own."""
        return ir_of(self.case.program).script.noun

    @property
    def author(self) -> str:
        """Whose the expected values are, in words for people without opsieve; `source` where there are
        none.
        """
        return {**SOURCES, **ir_of(self.case.program).script.authors}.get(self.source, self.source)

    @property
    def model(self) -> bytes:
        """The program as the target saw it: of an ONNX model the lowest IR version, and the lower opset where
        it was asked with it.
        """
        program, ir = self.case.program, ir_of(self.case.program)
        if any(note.startswith("the opset was lowered") for note in self.observation.notes):
            program = ir.older(program) or program
        return ir.lower(program)


def as_given(exported: ExportedFailure) -> ExportedFailure:
    """The failure on the program that the compiler was given, where that is a rewritten one: for people
    without opsieve it is the program.
    """
    target, case, verdict = exported.target, exported.case, exported.verdict
    found = rewritten(case.program, case.inputs, target.rewrite) if target.rewrite else None
    if found is None:
        return replace(exported, target=target.unrewritten)
    if verdict.kind == "metamorphic":
        verdict = replace(verdict, kind="mismatch")
    case = replace(case, program=found.program, inputs=found.inputs)
    return replace(exported, case=case, target=target.unrewritten, verdict=verdict)


def oracles_for(program: Program, target: ResolvedTarget, verdict: Verdict) -> tuple[ResolvedTarget, ...]:
    """Who is asked what is right: the reference, and for a program that it does not take the unoptimised
    build of the compiler, where the verdict stands on it or the IR trusts it.
    """
    baseline = target.baseline
    stands_on_it = verdict.blame == "optimiser" or LEVELS_DISAGREE in verdict.rules
    if baseline and (stands_on_it or ir_of(program).script.trusts_baseline):
        return (*ORACLES, baseline)
    return ORACLES


def expected_outputs(
    case: Case, verdict: Verdict, got: Values | None, lab: Lab, oracles: Sequence[ResolvedTarget] = ORACLES
) -> tuple[dict[str, ExpectedOutput], str]:
    """The outputs that an export may ask for, and whose values they are; `got` are those of the target, None
    when it gave none.

    The first of `oracles` that can evaluate the program is believed; of a mismatch, the first that `got`
    differs from. What a user expects comes in where nobody else can tell, or where the judge took it for the
    truth. Of the outputs that were not found wrong only those count that the native evaluator gives as well:
    another that is ill-conditioned would fail in any compiler. Where ONNX leaves an output open nobody is
    right.
    """
    dtypes = case.program.output_dtypes()
    asked = () if case.expected is not None and "expected-is-truth" in verdict.rules else oracles
    for oracle in asked:
        answer = lab.observe(oracle, case.program, case.inputs)
        if answer.outputs is None:
            continue
        terms = sum_lengths(answer.hazards)
        differing = None if got is None else compare(got, answer.outputs, dtypes, POLICY, terms)
        if verdict.kind in WRONG_OUTPUTS and differing is not None and differing.agrees:
            continue
        wanted = set(answer.outputs)
        if oracle == FLOAT64:
            native = lab.observe(NATIVE, case.program, case.inputs).outputs
            steady = None if native is None else compare(native, answer.outputs, dtypes, POLICY, terms)
            wanted -= set(answer.outputs if steady is None else steady.mismatches)
        if verdict.kind in WRONG_OUTPUTS and differing is not None and differing.worst is not None:
            found = differing.mismatches
            blamed = "" if verdict.mismatch is None else verdict.mismatch.output.partition("[")[0]
            wanted.add(
                blamed if blamed in found else next(name for name in found if found[name] == differing.worst)
            )
        open_ = {name for name in wanted if open_rules(answer.hazards, name)}
        right = {
            name: _right(answer.outputs[name], dtypes.get(name, ""), terms.get(name, 0))
            for name in wanted - open_
        }
        return dict(sorted(right.items())), oracle.display
    if RULE in verdict.rules:
        return _of_derived_types(
            read_derived(lab.observe(DERIVING, case.program, case.inputs)), got or {}
        ), INFERENCE
    if case.expected is not None:
        return {
            name: _right(value, dtypes.get(name, "")) for name, value in case.expected.items()
        }, "expected outputs"
    return {}, ""


def _of_derived_types(types: Mapping[str, ValueType], got: Values) -> dict[str, ExpectedOutput]:
    """Tensors of the derived types; a dimension that is left open is as the target has it."""
    right = {}
    for name, type_ in types.items():
        own = np.shape(got.get(name, ()))
        if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype != "string":
            dims = dict(enumerate(own)) | {
                axis: dim for axis, dim in enumerate(type_.shape) if isinstance(dim, int)
            }
            if all(axis in dims for axis in range(len(type_.shape))):
                value = np.zeros([dims[axis] for axis in range(len(type_.shape))])
                right[name] = ExpectedOutput(value, type_.dtype, np.inf)
    return right


def _right(value: Any, dtype: str, terms: int = 0) -> ExpectedOutput:
    """A value with the difference that the policy allows of it; beyond the range of its type it is
    infinite.
    """
    tensors = [np.asarray(leaf) for leaf in leaves(value)]
    floats = [leaf for leaf in tensors if POLICY.screen(dtype or leaf.dtype.name)]
    if not floats:
        return ExpectedOutput(value, dtype)
    kind = dtype or floats[0].dtype.name
    sizes = np.concatenate([np.abs(_wide(leaf)).ravel() for leaf in floats])
    sizes = sizes[np.isfinite(sizes)]
    within = float(POLICY.bound(kind, terms, sizes)) if sizes.size else 0.0
    limit = LARGEST.get(kind, np.inf) + within
    return ExpectedOutput(_mapped(value, limit), dtype, within)


def leaves(value: Any) -> Iterator[Any]:
    """The tensors in a value, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif value is not None:
        yield value


def _mapped(value: Any, limit: float) -> Any:
    if isinstance(value, (list, tuple)):
        return [_mapped(item, limit) for item in value]
    if value is None:
        return None
    wide = _wide(np.asarray(value))
    return np.where(np.isfinite(wide) & (np.abs(wide) > limit), np.copysign(np.inf, wide.real), wide)


def _wide(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
