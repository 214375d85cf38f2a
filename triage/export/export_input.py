"""The input of an export: one failure with the judgement of its oracles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opsieve.backends.compare import LARGEST, POLICY, compare, widen
from opsieve.backends.judge import derived_types, judging_session, levels
from opsieve.backends.judge.oracles import BY_EXPECTED, DERIVING, FLOAT64, NATIVE, Lab, Values
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import TensorType, Value, ValueType
from opsieve.gen.rewrites.relation import rewrite_program
from opsieve.triage.known.issues import ProbableIssue
from opsieve.triage.store.rows import BlamedCommit

# Who says what is right, in words for people without opsieve.
SOURCES = {
    "expected outputs": "the expected outputs",
    derived_types.INFERENCE: "ONNX's shape inference, which tells no values",
}
# The oracles for the right outputs.
ORACLES = (FLOAT64, NATIVE)


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """The right value of one output.

    Floats are in float64; `dtype` is "" if unknown; `within` is the largest absolute difference that passes:
    infinite if only the type is known, and the value then gives its shape.
    """

    value: Value
    dtype: str
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class ExportedFailure:
    """One failure as it is shown to others.

    `expected` holds outputs with known values, {} without any, and `source` their origin. `shows` is how
    often a flaky failure was seen, in how many runs, None for a steady one; `runs` is in how many it is
    searched. `seconds` and `memory` (bytes) limit a run. `passes` are guilty passes of the optimiser,
    `regression` and `fixed` name the releases between which it came and went, `first_bad` is the first
    release or commit with it, or "". `commits` caused it or are suspected; `probably` are public issues that
    may describe it.
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
    # Public issues that it may be
    probably: tuple[ProbableIssue, ...] = ()
    # Settings and releases that were tried, each with the result in one word
    variants: tuple[tuple[str, str], ...] = ()

    @property
    def noun(self) -> str:
        """The users' word for the program: a model of ONNX, or a module of the compiler's own."""
        return ir_of(self.case.program).script.noun

    @property
    def author(self) -> str:
        """The origin of the expected values in words for people without opsieve."""
        return {**SOURCES, **ir_of(self.case.program).script.authors}.get(self.source, self.source)

    @property
    def model(self) -> bytes:
        """The program as the target saw it: for ONNX with the lowest IR version, and the lowered opset if one
        was used.
        """
        program, ir = self.case.program, ir_of(self.case.program)
        # The compiler refused the newer opset, which the script would show instead of the failure.
        if any(note.startswith("the opset was lowered") for note in self.observation.notes):
            program = ir.older(program) or program
        return ir.lower(program)


def use_given_program(exported: ExportedFailure) -> ExportedFailure:
    """Return the failure on the program that the compiler was given, if that is a rewritten one."""
    target, case, verdict = exported.target, exported.case, exported.verdict
    found = rewrite_program(case.program, case.inputs, target.rewrite) if target.rewrite else None
    if found is None:
        return replace(exported, target=target.unrewritten)
    # Of the rewritten program itself the outputs are just wrong.
    if verdict.kind == "metamorphic":
        verdict = replace(verdict, kind="mismatch")
    case = replace(case, program=found.program, inputs=found.inputs)
    return replace(exported, case=case, target=target.unrewritten, verdict=verdict)


def choose_oracles(program: Program, target: ResolvedTarget, verdict: Verdict) -> tuple[ResolvedTarget, ...]:
    """Choose the oracles: the reference, and the unoptimised build if the verdict rests on it or the IR
    trusts it.
    """
    baseline = target.baseline
    stands_on_it = verdict.blame == "optimiser" or levels.RULE in verdict.rules
    if baseline and (stands_on_it or ir_of(program).script.trusts_baseline):
        return (*ORACLES, baseline)
    return ORACLES


def find_expected(
    case: Case, verdict: Verdict, got: Values | None, lab: Lab, oracles: Sequence[ResolvedTarget] = ORACLES
) -> tuple[dict[str, ExpectedOutput], str]:
    """Find the outputs that an export may check, and the origin of their values; `got` are the target's, if
    any.

    The first of `oracles` that can evaluate the program is trusted; for a mismatch, the first that `got`
    differs from. A user's expected values count if every oracle fails, or if the judge took them for the
    truth. Outputs that were not found wrong count only if the native evaluator gives them as well: an
    ill-conditioned one would fail in any compiler. Outputs that ONNX leaves open are excluded.
    """
    dtypes = case.program.output_dtypes()
    # The user's own values were taken for the truth, so that an oracle must not contradict them.
    asked = () if case.expected is not None and BY_EXPECTED in verdict.rules else oracles
    for oracle in asked:
        answer = lab.observe(oracle, case.program, case.inputs)
        if answer.outputs is None:
            continue
        terms = judging_session.find_sum_lengths(answer.hazards)
        differing = None if got is None else compare(got, answer.outputs, dtypes, POLICY, terms)
        # An oracle with the same outputs cannot show the failure.
        if verdict.kind in WRONG_OUTPUTS and differing is not None and differing.agrees:
            continue
        wanted = set(answer.outputs)
        if oracle == FLOAT64:
            # In the types of the model: where both evaluators agree the value does not depend on rounding.
            native = lab.observe(NATIVE, case.program, case.inputs).outputs
            steady = None if native is None else compare(native, answer.outputs, dtypes, POLICY, terms)
            wanted -= set(answer.outputs if steady is None else steady.mismatches)
        if verdict.kind in WRONG_OUTPUTS and differing is not None and differing.worst is not None:
            found = differing.mismatches
            # A sequence's output is named with its index.
            blamed = "" if verdict.mismatch is None else verdict.mismatch.output.partition("[")[0]
            wanted.add(
                blamed if blamed in found else next(name for name in found if found[name] == differing.worst)
            )
        # What ONNX leaves open is right with any value.
        open_ = {name for name in wanted if judging_session.list_open_rules(answer.hazards, name)}
        right = {
            name: _make_expected(answer.outputs[name], dtypes.get(name, ""), terms.get(name, 0))
            for name in wanted - open_
        }
        return dict(sorted(right.items())), oracle.display
    if derived_types.RULE in verdict.rules:
        return _make_typed_outputs(
            derived_types.read_derived(lab.observe(DERIVING, case.program, case.inputs)), got or {}
        ), derived_types.INFERENCE
    if case.expected is not None:
        return {
            name: _make_expected(value, dtypes.get(name, "")) for name, value in case.expected.items()
        }, "expected outputs"
    return {}, ""


def _make_typed_outputs(types: Mapping[str, ValueType], got: Values) -> dict[str, ExpectedOutput]:
    """Make tensors of the derived types; an open dimension is taken from the target."""
    right = {}
    for name, type_ in types.items():
        own = np.shape(got.get(name, ()))
        # Inference knows types only, so that the value is zeros and every difference passes.
        if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype != "string":
            dims = dict(enumerate(own)) | {
                axis: dim for axis, dim in enumerate(type_.shape) if isinstance(dim, int)
            }
            if all(axis in dims for axis in range(len(type_.shape))):
                value = np.zeros([dims[axis] for axis in range(len(type_.shape))])
                right[name] = ExpectedOutput(value, type_.dtype, np.inf)
    return right


def _make_expected(value: Any, dtype: str, terms: int = 0) -> ExpectedOutput:
    """Make an expected output with its tolerance by the policy; values beyond the range of the type become
    infinite.
    """
    tensors = [np.asarray(leaf) for leaf in iter_leaves(value)]
    floats = [leaf for leaf in tensors if POLICY.screen(dtype or leaf.dtype.name)]
    if not floats:
        return ExpectedOutput(value, dtype)
    kind = dtype or floats[0].dtype.name
    sizes = np.concatenate([np.abs(widen(leaf)).ravel() for leaf in floats])
    sizes = sizes[np.isfinite(sizes)]
    within = float(POLICY.get_bound(kind, terms, sizes)) if sizes.size else 0.0
    # Within the tolerance of the largest number a compiler may still round down to it.
    limit = LARGEST.get(kind, np.inf) + within
    return ExpectedOutput(_saturate(value, limit), dtype, within)


def iter_leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors in a value, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from iter_leaves(item)
    elif value is not None:
        yield value


def _saturate(value: Any, limit: float) -> Any:
    if isinstance(value, (list, tuple)):
        return [_saturate(item, limit) for item in value]
    if value is None:
        return None
    wide = widen(np.asarray(value))
    return np.where(np.isfinite(wide) & (np.abs(wide) > limit), np.copysign(np.inf, wide.real), wide)
