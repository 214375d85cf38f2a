"""The reason of a verdict: a cause with its facts, and the table of sentences for people.

Decisions make a `Reason`, and its sentence is never parsed. An observation or mismatch among the facts is
described when the sentence is made.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import STRUCTURE, Judgement, Kind, Mismatch, Verdict

_NEARLY_ZERO = 1e6  # times the largest magnitude: from there an error is shown as it is


class Cause(Enum):
    """What decided; the value is its sentence, with the facts in braces."""

    # It could not be asked, or says that it lacks something.
    NOT_RUN = "{target} could not run the program: {ending}"
    LACKS = "{target} does not support the program: {ending}"
    TYPE_REFUSED = (
        "{target} refuses the element type {dtype} everywhere, in a program of one operator too: {ending}"
    )
    # It ended badly.
    NOT_CONFIRMED = "{target} showed `{outcome}` in {seen} of {runs} runs of the same inputs: {ending}"
    HOST_ENDS_TOO = (
        "{host}, which runs what {target} makes, ends with `{outcome}` on the original program too"
    )
    CRASHED = "{target} crashed while it was in {stage}: {ending}"
    ENDED = "{target} ended with `{outcome}` while it was in {stage}, twice: {ending}"
    REFERENCE_ENDS_TOO = "{target} and the reference both ended with `{outcome}`"
    RAISED_WHERE_UNDEFINED = (
        "{target} raised an error where ONNX leaves the result undefined ({rules}): {ending}"
    )
    REFUSES = "{target} {does} a program that {acceptor}: {ending}"
    MADE_LACK = "{target} lacks what its own optimiser made of the program, which {acceptor}: {ending}"
    NO_MEANING = "the reference gives the program no defined result: {ending}"
    ILL_TYPED = "{why}, and {target} refuses the program: {ending}"
    FORBIDDEN = "{target} and the reference refuse the program alike, for {breach}: {ending}"
    EVERYBODY_REJECTS = "every implementation that was asked rejects the program ({asked}): {ending}"
    NOBODY_ELSE = (
        "{target} rejects the program, and no independent implementation could run it ({asked}): {ending}"
    )
    # It gave outputs.
    GIVES_EXPECTED = "{target} gives the expected outputs"
    AGREES = "{target} agrees with {oracle}"
    WITHIN_RULES = "{target} differs within the rules {rules}: {mismatch}"
    UNDEFINED = "ONNX leaves the result undefined ({rules}), so {mismatch} is nobody's fault"
    EXPECTED_DOUBTED = "the expected outputs differ from {target}, which agrees with {oracles}: {mismatch}"
    NOT_EXPECTED = "{target} does not give the expected outputs: {mismatch}"
    EXPECTED_CONTRADICTED = "{oracle} agrees with {target} against the expected outputs: {mismatch}"
    CONTRADICTS_INFERENCE = (
        "{target} returns {got} for output {output}; shape inference derives {expected} from the inputs"
    )
    CONTRADICTS_REFERENCE = "{target} returns {got} for output {output}; {arbiter} produces {expected}"
    AGREES_UNREFERENCED = "the reference cannot evaluate the program; {oracle} agrees"
    DIFFERS_UNREFERENCED = (
        "the reference cannot evaluate the program, and {oracle} differs from {target}: {mismatch}"
    )
    UNREFERENCED = (
        "the reference cannot evaluate the program and no other implementation could run it ({asked})"
    )
    OWN_BUILDS_AGREE = (
        "{target} agrees only with {oracle}, a build of the same compiler, and no independent implementation"
        " could run the program ({asked})"
    )
    ENDED_LATER = "{target} gave outputs once and ended with `{outcome}` the next time: {ending}"
    CHANGED = "{target} gave other outputs for the same inputs in a second run: {mismatch}"
    HOST_AGREES = (
        "{host}, which runs what {target} makes, gives the same for the original program, so it is no fault"
        " of {target}: {mismatch}"
    )
    WRONG = "{target} is wrong: {mismatch}; {arbiter} and {oracles} agree"
    WRONG_OPERATOR = "{target} is wrong: {mismatch}; its {operator} differs given equal inputs, {found}"
    ONE_ORACLE = "only {arbiter} says that {target} is wrong, no second oracle: {mismatch}"
    ONE_ORACLE_OPERATOR = (
        "only {arbiter} says that {target} is wrong, no second oracle: {mismatch}; the first operator that"
        " differs given equal inputs is {operator}, {found}"
    )
    LEVELS_DISAGREE = (
        "the levels of one compiler disagree, and nobody says which is right: {target} differs from"
        " {baseline}: {mismatch}"
    )
    OPERATORS_AGREE = "{target} computes every operator as {arbiter} does, given its own inputs: {mismatch}"
    OUTVOTED = "{arbiter} stands alone on {operator}: {target} agrees with {oracles}: {mismatch}"
    # The program was made to be wrong.
    REFUSES_RIGHTLY = "{target} refuses it as it should, {breach}: {ending}"
    REFUSES_AS_LACK = "{target} refuses it as a lack of its own, {breach}: {ending}"
    DIED_ONCE = "{target} ended with `{outcome}` once and with `{second}` in a fresh process, {breach}"
    DIED = "{target} ended with `{outcome}` instead of an error, {breach}: {ending}"
    NOBODY_OBJECTS = "{target} runs it, and neither onnx's checker nor its reference objects: {breach}"
    LENIENT = "{target} runs it, which is lenient ({rules}): {breach}; {objector} says {objection}"
    ACCEPTED_ONCE = "{target} ran it once and ended with `{second}` in a fresh process: {breach}"
    ACCEPTS = "{target} runs an invalid program, {breach}; {objector} says {objection}"
    ACCEPTS_FORBIDDEN = "{target} runs a program that the reference finds invalid with these inputs: {ending}"
    # Metamorphic relations.
    CONTRADICTED = (
        "{target} is wrong: {mismatch}; {arbiter} and {other}, the same compiler on a program that means the"
        " same, agree"
    )
    SELF_AGREES = "{target} gives what {plain} gives for the program as it is"
    NO_PLAIN = "{plain} itself ended with `{outcome}` on the program as it is, so there is nothing to compare"
    CONTRADICTS_ITSELF = (
        "{target} is wrong on a program that means the same: {mismatch}; {arbiter} and {plain} on the program"
        " as it is agree"
    )
    CONTRADICTS_UNREFERENCED = (
        "{target} gives other outputs for a program that means the same than {plain} for it as it is, and"
        " nobody says who is right: {mismatch}"
    )
    # Performance.
    NO_BASELINE = "{target} has no unoptimised build to compare with"
    NOT_MEASURED = "{target} ended with `{outcome}`, so there is nothing to measure"


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause and the facts in its sentence."""

    cause: Cause
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.cause.value.format(**{name: _describe_fact(fact) for name, fact in self.facts.items()})


def make_reason(cause: Cause, **facts: Any) -> Reason:
    """Make a reason; the sentence of `cause` must name each fact that it needs."""
    return Reason(cause, facts)


def make_verdict(
    judgement: Judgement,
    reason: Reason,
    kind: Kind | None = None,
    at: Observation | None = None,
    *,
    rules: tuple[str, ...] = (),
    mismatch: Mismatch | None = None,
    blame: str = "",
    operator: str = "",
) -> Verdict:
    """Make a verdict with its sentence.

    `at` gives stage and message of the target's end; a mismatch belongs to the stage `run`.
    """
    stage = (
        at.stage
        if at is not None
        else "run"
        if kind in ("mismatch", "metamorphic", "nondeterminism")
        else None
    )
    message = at.message if at is not None else ""
    return Verdict(judgement, str(reason), kind, stage, message, rules, (), mismatch, blame, operator)


def _describe_fact(fact: Any) -> str:
    if isinstance(fact, Observation):
        return describe_ending(fact)
    if isinstance(fact, ResolvedTarget):
        return fact.display
    if isinstance(fact, Mismatch):
        return describe_mismatch(fact)
    if isinstance(fact, (list, tuple)):
        return ", ".join([_describe_fact(item) for item in fact])
    return "no difference" if fact is None else str(fact)


def describe_ending(observation: Observation) -> str:
    """Describe how an observation ended, in a line."""
    text = " ".join((observation.message or observation.exception or "").split())
    if observation.signal:
        text = f"signal {observation.signal} {text}".strip()
    return text if len(text) <= 200 else text[:197] + "..."


def describe_mismatch(mismatch: Mismatch | None) -> str:
    """Describe a mismatch in words, with figures."""
    if mismatch is None:
        return "no difference"
    name = repr(mismatch.output)[:60]
    if mismatch.what in STRUCTURE:
        return f"output {name} has {mismatch.what} {mismatch.got or 'nothing'} for {mismatch.expected}"
    place = f" at {list(mismatch.index)}" if mismatch.index else ""
    off = f"{mismatch.max_scaled:.2g} of its largest magnitude"
    if mismatch.max_scaled > _NEARLY_ZERO:
        off = f"{mismatch.max_abs:.2g} where 0 or nearly 0 is right"
    return (
        f"output {name} is {mismatch.got} for {mismatch.expected}{place}, off by {off} in"
        f" {mismatch.fraction:.0%} of its elements"
    )
