"""Outputs with another type than the program and its inputs imply: a failure, whichever implementations
agree.

The types come from strict shape inference on the given inputs, without the types that the model declares for
its results. So a wrong declaration, as some exporters write, does not count, and a right one behind an
operator outside ONNX does not either.
"""

from collections.abc import Mapping

import numpy as np
from onnx import TypeProto

from opsieve.backends import compare, observation
from opsieve.backends.judge import judging_session, oracles, reasons
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model import program, tensors

RULE = "derived-types"
INFERENCE = "shape inference"


def read_derived(answer: observation.Observation) -> dict[str, tensors.ValueType]:
    """Read the types that a worker derived for the outputs; {} for an answer without types."""
    protos = {
        name: tensors.decode(TypeProto(), data.tobytes()) for name, data in (answer.outputs or {}).items()
    }
    return {name: tensors.read_type(proto) for name, proto in protos.items() if proto is not None}


def find_contradictions(
    outputs: Mapping[str, tensors.Value], types: Mapping[str, tensors.ValueType]
) -> dict[str, Mismatch]:
    """Find the outputs with another shape or dtype than their type; open dimensions and missing outputs are
    skipped.
    """
    found = {
        name: _find_contradiction(name, outputs[name], type_)
        for name, type_ in types.items()
        if name in outputs
    }
    return {name: mismatch for name, mismatch in found.items() if mismatch is not None}


def _find_contradiction(name: str, value: tensors.Value, type_: tensors.ValueType) -> Mismatch | None:
    # A type that is not modelled here proves nothing.
    if isinstance(type_, tensors.OtherType) or not tensors.misfit(value, type_):
        return None
    if isinstance(type_, tensors.OptionalType):
        return _find_contradiction(name, value, type_.element)
    if isinstance(type_, tensors.SequenceType) and isinstance(value, list):
        items = (
            _find_contradiction(f"{name}[{index}]", item, type_.element) for index, item in enumerate(value)
        )
        return next(filter(None, items), None)
    if isinstance(type_, tensors.SequenceType) or not isinstance(value, (np.ndarray, np.generic)):
        return Mismatch(name, "type", fraction=1.0, got=compare.type_text(value), expected=str(type_))
    array = np.asarray(value)
    if tensors.misfit(array, tensors.TensorType(type_.dtype, None)):
        return Mismatch(name, "dtype", fraction=1.0, got=tensors.dtype_name(array), expected=type_.dtype)
    wanted = ", ".join(str(dim) if isinstance(dim, int) else "?" for dim in type_.shape or ())
    comma = "," if len(type_.shape or ()) == 1 else ""
    return Mismatch(name, "shape", fraction=1.0, got=str(array.shape), expected=f"({wanted}{comma})")


def describe_type(mismatch: Mismatch) -> dict[str, str]:
    """Return the facts about an output of another type, for the sentence of a cause."""
    got = f"{mismatch.what} {mismatch.got}"
    return {"got": got, "output": repr(mismatch.output)[:60], "expected": mismatch.expected}


def derive_types(session: judging_session.JudgingSession) -> dict[str, tensors.ValueType]:
    """Return the types of the outputs: from ONNX's shape inference, or another IR's declarations, checked by
    its compiler.
    """
    if session.graph is None:
        return dict(ir_of(session.program).declared_types(session.program))
    return read_derived(session.run_target(oracles.DERIVING))


def judge_types(session: judging_session.JudgingSession, outputs: oracles.Values) -> Verdict | None:
    """Judge outputs that contradict the derived types; returns `None` without a contradiction."""
    types = derive_types(session)
    wrong = find_contradictions(outputs, types)
    worst = compare.Comparison(wrong).worst
    if worst is None:
        return None
    # A program that the reference refuses has no outputs, so none of a type either.
    if (rejected := session.run_target(oracles.NATIVE)).outcome == "rejected":
        return reasons.make_verdict("invalid", reasons.make_reason(reasons.Cause.NO_MEANING, ending=rejected))
    names = tuple(wrong)
    # A result that varies from run to run is judged as such, whatever its type is.
    other = session.judge_other_causes(outputs, names, worst)
    if other is not None:
        return other
    baseline = session.target.baseline
    plain = session.run_target(baseline).outputs if baseline is not None else None
    # If the unoptimised build gives the derived type, an optimisation has changed it.
    sound = plain is not None and not find_contradictions(plain, {name: types[name] for name in names})
    reason = reasons.make_reason(
        reasons.Cause.CONTRADICTS_INFERENCE, target=session.target, **describe_type(worst)
    )
    blame = "optimiser" if sound else "compiler"
    return reasons.make_verdict("fail", reason, "mismatch", rules=(RULE,), mismatch=worst, blame=blame)


def settle_declared_types(session: judging_session.JudgingSession, outputs: oracles.Values) -> Verdict | None:
    """Judge outputs that contradict both the declared and the derived types; None otherwise.

    If only the declaration contradicts them, they are compared by the dtype that is derived or that the
    reference gives.
    """
    declared = session.program.outputs() if session.graph is not None else derive_types(session)
    doubted = {
        *find_contradictions(outputs, declared),
        *(name for name in declared if not session.dtypes[name]),
    }
    if not doubted:
        return None
    failure = judge_types(session, outputs)
    if failure is not None:
        return failure
    types, native = derive_types(session), session.run_target(oracles.NATIVE).outputs or {}
    for name in doubted:
        value = native.get(name)
        given = tensors.dtype_name(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic)) else ""
        session.dtypes[name] = (program.element_dtype(types[name]) if name in types else "") or given
    return None
