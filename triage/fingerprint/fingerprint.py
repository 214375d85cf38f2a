"""What makes two failures one bug, as far as one failure alone can tell.

There are two tracks, since what separates bugs differs (measured on seeded faults): a crash, an error or a hang is identified by
where it happened, so by the compiler's own frames, or by the message where there are none; a wrong result always surfaces in the same
comparison, so it is identified by what is wrong, and by the operators of the graph once that is small.

A fingerprint is exact and versioned, and each component says why it counts or not.
"""

import hashlib
import json
import re
import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from opsieve.backends.observation import Observation
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.frames import read_tracebacks
from opsieve.backends.target import BadTarget, Target
from opsieve.backends.verdict import Verdict
from opsieve.triage.fingerprint.evidence import NOTHING, Evidence, Signature
from opsieve.triage.fingerprint.normalise import (
    has_variables,
    is_interpreters,
    normalise,
    operator_blamed,
    operators_named,
)
from opsieve.triage.fingerprint.source_location import location_text, with_location
from opsieve.triage.fingerprint.stack import Stack, is_of_programs, read

VERSION = 4
_FRAMES = 3  # innermost telling frames that count: the best of 1, 2, 3, 5 and all on labelled stacks, together with 2
_FEW = 6  # different operators of a graph that is small enough to speak for its bug
_WORDS = 2  # constant words that make a message with variable parts the compiler's own
_MAX_VALUE = 600
_REDUCE_FIRST = "reduce the program first"  # `candidates.is_vague` looks for it
_INVALID = "it breaks a rule of ONNX and is to be refused"
_BY_CHANCE = frozenset(["hang", "out-of-memory"])  # what stops them, stops them anywhere
_SPEECHLESS = frozenset(["crash", "hang", "out-of-memory"])  # their messages are the signal's or ours
# Slips of the compiler's author of which the function alone is to blame, whoever called it.
_OWN_SLIPS = frozenset(["NameError", "UnboundLocalError"])
# Components that change while a graph is reduced, or that become known after it: no part of "the same failure".
_LATER = frozenset(["found", "operators", "edges", "ranks", "attributes", "guilty pass", "cure", "first bad"])
# What our transformers raise when the model that they made is worse than the one they got: a wrong result, not a place.
_BROKEN = "BrokenModel"
_PLACEHOLDER = re.compile(r"<\w+>")
_CLASS = re.compile(r"(?<![\w.])[\w.]++(?= object (?:has no|is not|does not) )|(?<= got )[\w.]++")
_NO_BRACKETS = str.maketrans(dict.fromkeys(",:;()[]{}", " "))
_SPOKEN = re.compile(r"[A-Za-z_]{3,}+")
_LETTER = re.compile(r"(?<![\w.])[A-Za-z](?!\w|\.\w)")  # alone: an article, or a name that a program or the author gave
_WORD = re.compile(r"\w+")
_SHOWN_WORD = re.compile(r"<\w+>|\w+")
_ATTRIBUTE = " object has no attribute "  # what the interpreter says here is constant, but for the class
_CAUSED = "The above exception was the direct cause of the following exception"
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Component:
    """One property of a failure: whether it is part of the fingerprint, and why."""

    name: str
    value: str
    kept: bool
    hint: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`key` names the bug, `onnxruntime-error-3f9a1c2b04`: equal keys of equal versions are one bug."""

    version: int
    key: str
    components: tuple[Component, ...]

    def value(self, name: str) -> str:
        """The value of a component, "" when there is none of that name."""
        return next((component.value for component in self.components if component.name == name), "")


def fingerprint(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence = NOTHING,
    names: Collection[str] = frozenset(),
) -> Fingerprint:
    """The fingerprint of a failure: `observation` is that of the target blamed, `operators` are those of its graph.

    `names` are those of the program that was run (`given_names`), which its messages hold; none where there is no program.

    `evidence` is what reduction, attribution and bisection found since; each part of it is a component of its own. Those never
    count for `same`, so a fingerprint can be followed while its graph is reduced.
    """
    kind = verdict.kind or observation.outcome
    try:
        backend = Target.parse(observation.target).backend
    except BadTarget:
        backend = _NOT_A_WORD.sub("-", observation.target[:40].lower()).strip("-")
    components = [
        Component("kind", kind, True, "a crash and a wrong result are different failures"),
        Component("backend", backend, True, "another compiler's failure is another bug"),
    ]
    if verdict.mismatch:
        components += _wrong_result(verdict, observation, operators, evidence)
    elif observation.exception.rpartition(".")[2] == _BROKEN:
        components += _broken_model(verdict, observation, operators, evidence, names)
    else:
        components += _failure(verdict, observation, operators, evidence, names)
    components = [component for component in components if component.value]
    kept = [[component.name, _essence(component)] for component in components if component.kept]
    digest = hashlib.sha256(json.dumps([VERSION, kept], ensure_ascii=True).encode()).hexdigest()[:10]
    return Fingerprint(VERSION, f"{backend}-{kind}-{digest}", tuple(components))


def same(a: Fingerprint, b: Fingerprint) -> bool:
    """Whether a smaller program still shows the same failure: all that counts is equal, the graph and later evidence aside."""
    return a.version == b.version and _lasting(a.components) == _lasting(b.components)


def _lasting(components: Iterable[Component]) -> list[tuple[str, str]]:
    return [
        (component.name, _essence(component))
        for component in components
        if (component.kept or component.name == "dtype") and component.name not in _LATER
    ]


def _essence(component: Component) -> str:
    """What of a component is compared. Of a message the constant words: how many dimensions or names it lists, and which kind
    of expression it was about, is the program's matter. A letter alone is no word, so that `x` is left out whether or not it was known as a name.
    """
    if component.name not in ("message", "found"):
        return component.value
    text = _CLASS.sub(lambda match: "" if is_of_programs(match[0]) else match[0], component.value)
    text = _LETTER.sub(" ", _PLACEHOLDER.sub(" ", text))
    return " ".join(text.translate(_NO_BRACKETS).split()) or component.value


def _failure(
    verdict: Verdict, observation: Observation, operators: Sequence[str], evidence: Evidence, names: Collection[str]
) -> list[Component]:
    """The track of crashes, errors, hangs and all that has no mismatch."""
    kind = observation.outcome
    exception, message = _root(observation)
    message = message or verdict.message or observation.message or summary(observation.log)
    if kind == "crash":
        message = summary(observation.log) or message
    template = normalise(message, names)
    exception = (exception or observation.exception).rpartition(".")[2][:_MAX_VALUE]
    frames = with_location(observation.frames, message)
    deep = 1 if exception in _OWN_SLIPS else _FRAMES
    stack = read(frames, deep, outermost=kind in _BY_CHANCE, died=kind == "crash")
    blamed = operator_blamed(message) or operator_blamed(observation.log)
    said = _message_component(_without_callers(template, stack), stack, kind == "crash")
    line = f"{stack.names[0].partition(' ')[0]}:{stack.line}" if kind == "crash" and stack.line else ""
    vague = stack.vague and not line
    stage = verdict.stage or observation.stage
    named = " ".join(operators_named(message, operators))[:_MAX_VALUE]
    return [
        Component("stage", stage, True, "importing, compiling and running are different code"),
        Component("exception", exception, True, "the class, without its module, which moves between releases"),
        Component("signal", _signal_name(observation.signal), True, "how the process died"),
        Component(
            "place", location_text(message)[:_MAX_VALUE], False, "the message tells it; it is the innermost frame"
        ),
        _frames_component(stack, kind in _BY_CHANCE),
        Component("line", line, True, "nothing else is left of a death in Python code; it holds for one version only"),
        said,
        _blamed_component(blamed, said, stack, vague),
        Component("program", "" if evidence.valid else "invalid", True, _INVALID),
        Component("operators named", named, False, "for people: the message counts as a whole"),
        _operators_component(
            (evidence.signature and evidence.signature.operators) or operators,
            needed=(not stack.symbols or (vague and not blamed)) and (not template or kind in _SPEECHLESS),
        ),
        *_found_later(evidence, kept=False),
    ]


def _root(observation: Observation) -> tuple[str, str]:
    """Class and message of the exception that the one raised last was made from, on purpose, and whose frames are the innermost."""
    if _CAUSED not in observation.traceback:
        return "", ""
    first = next((one for one in read_tracebacks(observation.traceback) if one.exception), None)
    return (first.exception, first.message) if first else ("", "")


def _wrong_result(
    verdict: Verdict, observation: Observation, operators: Sequence[str], evidence: Evidence
) -> list[Component]:
    """The track of mismatches."""
    mismatch = verdict.mismatch
    assert mismatch is not None
    shape = evidence.signature
    return [
        Component("mismatch", mismatch.what, True, "NaN, a wrong shape and a wrong value have different causes"),
        _dtype_component(_dtype_class(observation, mismatch.output), bool(shape and shape.operators)),
        Component("blame", verdict.blame, True, "whether the unoptimised build is right"),
        Component(
            "stage",
            verdict.stage or observation.stage,
            False,
            "a wrong result shows at the end, whatever stage caused it",
        ),
        Component("output", mismatch.output[:100], False, "a name of the program"),
        Component("error", f"{mismatch.max_abs:.3g}", False, "the size of an error depends on the inputs"),
        _operators_component(shape.operators if shape and shape.operators else operators, needed=True),
        *(_shape_components(shape) if shape else ()),
        *_found_later(evidence, kept=True),
    ]


def _broken_model(
    verdict: Verdict, observation: Observation, operators: Sequence[str], evidence: Evidence, names: Collection[str]
) -> list[Component]:
    """The track of models that a transformer broke: like a wrong result, they show far from their cause, to whoever reads the model next."""
    shape = evidence.signature
    reduced = bool(shape and shape.operators)
    who, _, what = (verdict.message or observation.message).partition(": ")
    left = sorted(set(shape.operators if shape and reduced else operators))
    why = "; the reduced graph tells more, one bug is found by several readers" if reduced else ""
    return [
        Component("stage", verdict.stage or observation.stage, not reduced, f"when the broken model was found{why}"),
        Component("exception", _BROKEN, True, "a transformed model is worse than the original"),
        Component("message", normalise(who, names), not reduced, f"who found the model broken{why}"),
        Component(
            "found", normalise(what, names), not reduced, f"what its reader stumbles over, downstream of the cause{why}"
        ),
        Component("program", "" if evidence.valid else "invalid", True, _INVALID),
        _operators_component(left, needed=True)
        if reduced
        else Component("operators", " ".join(left)[:_MAX_VALUE], False, f"downstream of the cause: {_REDUCE_FIRST}"),
        *(_shape_components(shape) if shape else ()),
        *_found_later(evidence, kept=True),
    ]


def _dtype_component(dtype: str, is_reduced: bool) -> Component:
    """The class of the output's type. Large programs of one class have more in common than their bug; what is left of them says
    more, and one bug shows on integers and floats. Narrow floats stay apart: what rounds there is seldom wrong elsewhere.
    """
    if is_reduced and dtype != "narrow float":
        return Component("dtype", dtype, False, "the reduced graph tells more: one bug shows in several types")
    return Component("dtype", dtype, True, "the class of the output's type, since kernels differ by it")


def _shape_components(shape: Signature) -> list[Component]:
    return [
        Component(
            "edges",
            " ".join(shape.edges)[:_MAX_VALUE],
            len(shape.operators) <= _FEW,
            "what feeds what in the reduced graph",
        ),
        Component("ranks", " ".join(shape.ranks)[:_MAX_VALUE], False, "for people: one bug shows at several ranks"),
        Component(
            "attributes", " ".join(shape.attributes)[:_MAX_VALUE], False, "for people: one bug shows under several"
        ),
    ]


def _found_later(evidence: Evidence, kept: bool) -> list[Component]:
    """What attribution and bisection say. It decides for a wrong result, which shows far from its cause."""
    passes, cure = " ".join(sorted(evidence.guilty_passes)), " ".join(sorted(evidence.cure))
    why = "" if kept else "; where it failed tells more"
    return [
        Component("guilty pass", passes[:_MAX_VALUE], kept, f"without it the failure is gone{why}"),
        Component("cure", cure[:_MAX_VALUE], kept and not passes, f"so built, the compiler is well{why}"),
        Component("first bad", evidence.first_bad[:100], kept, f"bugs of different age are different{why}"),
    ]


def _frames_component(stack: Stack, by_chance: bool) -> Component:
    dropped = f"{stack.dropped} uninteresting frames dropped"
    if not stack.names:
        return Component("frames", "", False, f"no frame of the compiler's own; {dropped}")
    hint = f"the compiler's innermost {len(stack.names)}, {dropped}"
    if stack.callers:
        hint = f"the compiler's innermost {len(stack.names)}, without who called it in its own file; {dropped}"
    if stack.recursive:
        hint = f"the turn of a recursion; {dropped}"
    elif by_chance:
        hint = f"the compiler's outermost {len(stack.names)}: where within them it was stopped is chance; {dropped}"
    elif not stack.symbols:
        hint += "; offsets hold for one build only"
    return Component("frames", " < ".join(stack.names)[:_MAX_VALUE], True, hint)


def _message_component(template: str, stack: Stack, crash: bool) -> Component:
    if not stack.names:
        return Component("message", template, True, "there are no telling frames")
    if crash:
        return Component("message", template, False, "the frames tell more, and broken memory is reported in many ways")
    if not has_variables(template):
        return Component("message", template, True, "a constant: it separates two errors of one function")
    if is_interpreters(template) and _ATTRIBUTE not in template:
        return Component(
            "message", template, False, "the frames tell more: the interpreter wrote it, and parts of it vary"
        )
    if len(_SPOKEN.findall(_PLACEHOLDER.sub("", template))) < _WORDS:
        return Component("message", template, False, "the frames tell more, and little of it is constant")
    return Component("message", template, True, "its constant words separate two errors of one function")


def _without_callers(template: str, stack: Stack) -> str:
    """A message without the names of those who called a helper of their own file: `Slice axis <n>` is said by whom all call."""
    if not stack.callers:
        return template
    return _SHOWN_WORD.sub(lambda match: "<caller>" if match[0] in stack.callers else match[0], template)


def _blamed_component(blamed: str, message: Component, stack: Stack, vague: bool) -> Component:
    if message.kept and blamed in _WORD.findall(message.value):
        return Component("operator", blamed, False, "the message has it")
    if stack.names and not vague:
        return Component("operator", blamed, False, "the frames tell more: many operators can reach one function")
    return Component(
        "operator",
        blamed,
        True,
        "the function's name says nothing without the operator it converts" if stack.names else "said by the compiler",
    )


def _operators_component(operators: Sequence[str], needed: bool) -> Component:
    distinct = sorted(set(operators))
    value = " ".join(distinct)[:_MAX_VALUE]
    if not needed:
        return Component("operators", value, False, "frames or message tell more")
    if len(distinct) > _FEW:
        return Component("operators", value, False, f"{len(distinct)} different operators: {_REDUCE_FIRST}")
    return Component("operators", value, True, "the graph is small enough to speak for its bug")


def _dtype_class(observation: Observation, output: str) -> str:
    """`float`, `narrow float` (16 bits and less), `integer`, `bool` or `string`; "" when the output is absent or not an array."""
    name = str(getattr((observation.outputs or {}).get(output), "dtype", ""))
    if name in ("float32", "float64"):
        return "float"
    if "float" in name:
        return "narrow float"
    if name.startswith(("int", "uint")):
        return "integer"
    return {"object": "string"}.get(name, name[:20])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name if number else ""
    except ValueError:
        return f"signal {number}"
