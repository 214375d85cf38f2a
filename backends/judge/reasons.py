"""The reason of a verdict: a cause with its facts, and the table of sentences for people; kinds of
refusals.

Decisions make a `Reason`, and its sentence is never parsed. An observation or mismatch among the facts is
described when the sentence is made.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from opsieve.backends import registry, verdict
from opsieve.backends.judge.oracles import EXPECTED
from opsieve.backends.observation import Observation

# Times the largest magnitude: from there an error is shown as it is
_NEARLY_ZERO = 1e6


class Cause(Enum):
    """The deciding cause; the value is its sentence, with the facts in braces."""

    # It could not be asked, or says that it lacks something.
    NOT_RUN = "{target} could not run the program: {ending}"
    LACKS = "{target} does not support the program: {ending}"
    TYPE_REFUSED = "{target} refuses the element type {dtype} even in a program of one operator: {ending}"
    # It ended badly.
    NOT_CONFIRMED = "{target} ended with `{outcome}` in {seen} of {runs} equal runs: {ending}"
    HOST_ENDS_TOO = (
        "{host}, which runs the output of {target}, ends with `{outcome}` on the original program too"
    )
    CRASHED = "{target} crashed in stage {stage}: {ending}"
    ENDED = "{target} ended twice with `{outcome}` in stage {stage}: {ending}"
    REFERENCE_ENDS_TOO = "{target} and the reference both ended with `{outcome}`"
    RAISED_WHERE_UNDEFINED = (
        "{target} raised an error where ONNX leaves the result undefined ({rules}): {ending}"
    )
    REFUSES = "{target} {does} a program that {acceptor}: {ending}"
    MADE_LACK = (
        "{target} lacks an operator or type that its own optimiser introduced into a program that {acceptor}:"
        " {ending}"
    )
    NO_MEANING = "the reference gives the program no defined result: {ending}"
    ILL_TYPED = "{why}, and {target} refuses the program: {ending}"
    FORBIDDEN = "{target} and the reference both refuse the program, for {breach}: {ending}"
    EVERYBODY_REJECTS = "every implementation that was run rejects the program ({asked}): {ending}"
    BREAKS_RULE = "the model itself breaks the rule, in {asked} too: {ending}"
    NOBODY_ELSE = (
        "{target} rejects the program, and no independent implementation could run it ({asked}): {ending}"
    )
    # It gave outputs.
    GIVES_EXPECTED = "{target} gives the expected outputs"
    ACCEPTS_ONLY = "{target} accepts the program; it computes nothing"
    IS_ORACLE = "{target} judges other targets; name the compiler to judge"
    AGREES = "{target} agrees with {oracle}"
    WITHIN_RULES = "{target} differs within the rules {rules}: {mismatch}"
    UNDEFINED = "ONNX leaves the result undefined ({rules}): {mismatch}"
    EXPECTED_DOUBTED = "{target} differs from the expected outputs and agrees with {oracles}: {mismatch}"
    NOT_EXPECTED = "{target} differs from the expected outputs: {mismatch}"
    EXPECTED_CONTRADICTED = "{target} and {oracle} agree and differ from the expected outputs: {mismatch}"
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
    ENDED_LATER = "{target} gave outputs once and then ended with `{outcome}`: {ending}"
    CHANGED = "{target} gave different outputs for equal inputs: {mismatch}"
    HOST_AGREES = (
        "{host}, which runs the output of {target}, gives the same outputs for the original program, so"
        " {target} is not at fault: {mismatch}"
    )
    WRONG = "{target}: wrong {mismatch}; {oracles} agree"
    WRONG_OPERATOR = "{target}: wrong {mismatch}; its {operator} differs given equal inputs, {found}"
    ONE_ORACLE = "only {arbiter} contradicts {target}, without a second oracle: {mismatch}"
    ONE_ORACLE_OPERATOR = (
        "only {arbiter} contradicts {target}, without a second oracle: {mismatch}; the first operator that"
        " differs given equal inputs is {operator}, {found}"
    )
    LEVELS_DISAGREE = (
        "two levels of one compiler disagree, and no oracle says which is right: {target} differs from"
        " {baseline}: {mismatch}"
    )
    OPERATORS_AGREE = "{target} computes every operator as {arbiter} does, given its own inputs: {mismatch}"
    OUTVOTED = "{target} and {oracles} agree on {operator} and differ from {arbiter}: {mismatch}"
    # The program was made to be wrong.
    REFUSES_RIGHTLY = "{target} correctly refuses the program ({breach}): {ending}"
    REFUSES_AS_LACK = "{target} refuses the program as unsupported ({breach}): {ending}"
    DIED_ONCE = "{target} ended with `{outcome}` once and with `{second}` in a fresh process ({breach})"
    DIED = "{target} ended with `{outcome}` instead of an error ({breach}): {ending}"
    NOBODY_OBJECTS = "{target} runs the program, and onnx's checker and reference accept it too: {breach}"
    LENIENT = (
        "{target} runs the program, which is lenient ({rules}): {breach}; {objector} reports {objection}"
    )
    ACCEPTED_ONCE = "{target} ran the program once and ended with `{second}` in a fresh process: {breach}"
    ACCEPTS = "{target} runs an invalid program ({breach}); {objector} reports {objection}"
    ACCEPTS_FORBIDDEN = "{target} runs a program that the reference finds invalid with these inputs: {ending}"
    # Metamorphic relations.
    CONTRADICTED = (
        "{target}: wrong {mismatch}; {arbiter} and {other}, the same compiler on an equivalent program, agree"
    )
    SELF_AGREES = "{target} gives the same outputs as {plain} for the original program"
    NO_PLAIN = "{plain} ended with `{outcome}` on the original program, so there is no output to compare with"
    CONTRADICTS_ITSELF = (
        "{target}, on an equivalent program: wrong {mismatch}; {arbiter} and {plain} on the original program"
        " agree"
    )
    CONTRADICTS_UNREFERENCED = (
        "{target} on an equivalent program differs from {plain} on the original, and no oracle says which is"
        " right: {mismatch}"
    )
    # Performance.
    NO_BASELINE = "{target} has no unoptimised build to compare with"
    NOT_MEASURED = "{target} ended with `{outcome}`, so there is no time to measure"


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
    judgement: verdict.Judgement,
    reason: Reason,
    kind: verdict.Kind | None = None,
    at: Observation | None = None,
    *,
    rules: tuple[str, ...] = (),
    mismatch: verdict.Mismatch | None = None,
    blame: str = "",
    operator: str = "",
) -> verdict.Verdict:
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
    return verdict.Verdict(judgement, str(reason), kind, stage, message, rules, (), mismatch, blame, operator)


def _describe_fact(fact: Any) -> str:
    if isinstance(fact, Observation):
        text = " ".join((fact.message or fact.exception or "").split())
        if fact.signal:
            text = f"signal {fact.signal} {text}".strip()
        # Compilers state the cause last, behind the path of the model: the longer part is the end; 240 in all
        # with the dots.
        return text if len(text) <= 240 else f"{text[:80]}...{text[-157:]}"
    if isinstance(fact, registry.ResolvedTarget):
        return fact.display
    if isinstance(fact, verdict.Mismatch):
        return describe_mismatch(fact)
    if isinstance(fact, (list, tuple)):
        names = [_describe_fact(item) for item in fact]
        return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return "no difference" if fact is None else f"the {fact}" if fact == EXPECTED else str(fact)


def describe_mismatch(mismatch: verdict.Mismatch | None) -> str:
    """Describe a mismatch in words, with figures."""
    if mismatch is None:
        return "no difference"
    name = repr(mismatch.output)[:60]
    if mismatch.what in verdict.STRUCTURE:
        return (
            f"output {name}: got {mismatch.got and f'{mismatch.what} '}{mismatch.got or 'nothing'}, expected"
            f" {mismatch.expected}"
        )
    place = f" at {list(mismatch.index)}" if mismatch.index else ""
    got, expected = _shorten_pair(mismatch.got, mismatch.expected)
    share = f"{_percent(mismatch.fraction)} of the" if mismatch.fraction < 1 else "all"
    error = _describe_error(mismatch)
    return f"output {name}: got {got}, expected {expected}{place} ({error}{share} elements differ)"


def _describe_error(mismatch: verdict.Mismatch) -> str:
    """Describe how large the error is; errors are measured over finite elements only."""
    if mismatch.what in ("nan", "inf", "sign-of-zero") or not mismatch.max_abs:
        return ""
    if mismatch.max_scaled > _NEARLY_ZERO:
        return f"absolute error {mismatch.max_abs:.2g}; "
    largest = f"{_percent(mismatch.max_scaled)} of the largest magnitude; "
    # Texts are no numbers
    with suppress(ValueError, ZeroDivisionError):
        value = float(mismatch.expected)
        return f"{_percent(abs(float(mismatch.got) / value - 1))} of the value, {largest}"
    return largest


def _percent(share: float) -> str:
    """Write a share with two digits, and without an exponent from 99.5 % on."""
    # Two digits of 99.6 are 1e+02.
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.2g} %"


def _shorten_pair(got: str, expected: str) -> tuple[str, str]:
    """Shorten two numbers to the fewest digits, at least five, in which they differ."""
    with suppress(ValueError):
        pairs = [(f"{float(got):.{digits}g}", f"{float(expected):.{digits}g}") for digits in range(5, 10)]
        # Integers are exact, so they are never shortened.
        return next((pair for pair in pairs if "." in got + expected and pair[0] != pair[1]), (got, expected))
    return got, expected


# Classify refusals of a program by kinds that messages of different implementations share.


# Characters of a message that are looked at
_LONGEST = 4000
# Linear patterns, over lower case; the first that fits names the kind.
_KINDS = (
    (
        "an index out of range",
        re.compile(r"out of (?:data )?(?:bounds|range)|invalid ind(?:ex|ices)|index exceeds"),
    ),
    (
        "a shape that the elements do not fill",
        re.compile(r"cannot (?:be )?reshape|invalid reshape|requested shape"),
    ),
    ("shapes that do not broadcast", re.compile(r"broadcast|invalid expand shape")),
    ("parts of other sizes", re.compile(r"concat")),
    (
        "matrices whose inner sizes differ",
        re.compile(r"core dimension|dimension mismatch|not aligned|dimensions? mismatch|must match exactly"),
    ),
)
REFUSALS = ("error", "rejected")


def find_common_reason(one: Observation, other: Observation) -> str:
    """Return the kind of reason for which both refuse a program; "" if one accepts it or the kinds differ."""
    if one.outcome not in REFUSALS or other.outcome not in REFUSALS:
        return ""
    kind = _classify(one)
    return kind if kind and kind == _classify(other) else ""


def is_naming_rule(reference: Observation) -> bool:
    """Whether the reference refuses a program for a rule of an operator's page."""
    return reference.outcome == "rejected" and (reference.exception or "").endswith(".Forbidden")


def _classify(observation: Observation) -> str:
    text = f"{observation.exception or ''} {observation.message or ''}"[:_LONGEST].lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")
