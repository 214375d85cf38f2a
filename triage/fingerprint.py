"""What makes two failures one bug, as far as one failure alone can tell.

There are two tracks, since what separates bugs differs (measured on seeded faults): a crash, an error or a hang is told by
where it happened, so by the compiler's own frames, or by the message where there are none; a wrong result always surfaces in the same
comparison, so it is told by what is wrong, and by the operators of the graph once that is small.

A fingerprint is exact and versioned, and each component says why it counts or not.
"""

import hashlib
import json
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsieve.backends.last_words import summary
from opsieve.backends.observation import Observation
from opsieve.backends.target import BadTarget, Target
from opsieve.backends.verdict import Verdict
from opsieve.triage.normalise import has_variables, normalise, operator_blamed, operators_named
from opsieve.triage.places import location
from opsieve.triage.stack import Stack, read

VERSION = 1
_FRAMES = 3  # innermost telling frames that count: the best of 1, 2, 3, 5 and all on labelled stacks, together with 2
_FEW = 6  # different operators of a graph that is small enough to speak for its bug
_MAX_VALUE = 600
_GRAPH = "operators"  # the component that changes while a graph is reduced
_WORD = re.compile(r"\w+")
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


def fingerprint(verdict: Verdict, observation: Observation, operators: Sequence[str]) -> Fingerprint:
    """The fingerprint of a failure: `observation` is that of the target blamed, `operators` are those of its graph."""
    kind = verdict.kind or observation.outcome
    try:
        backend = Target.parse(observation.target).backend
    except BadTarget:
        backend = _NOT_A_WORD.sub("-", observation.target[:40].lower()).strip("-")
    components = [
        Component("kind", kind, True, "a crash and a wrong result are different failures"),
        Component("backend", backend, True, "another compiler's failure is another bug"),
    ]
    components += (
        _wrong_result(verdict, observation, operators)
        if verdict.mismatch
        else _failure(verdict, observation, operators)
    )
    components = [component for component in components if component.value]
    told = [[component.name, component.value] for component in components if component.kept]
    digest = hashlib.sha256(json.dumps([VERSION, told], ensure_ascii=True).encode()).hexdigest()[:10]
    return Fingerprint(VERSION, f"{backend}-{kind}-{digest}", tuple(components))


def same(a: Fingerprint, b: Fingerprint) -> bool:
    """Whether a smaller program still shows the same failure: all that counts is equal, the operators of the graph aside."""
    return a.version == b.version and _lasting(a.components) == _lasting(b.components)


def _lasting(components: Iterable[Component]) -> list[tuple[str, str]]:
    return [
        (component.name, component.value) for component in components if component.kept and component.name != _GRAPH
    ]


def _failure(verdict: Verdict, observation: Observation, operators: Sequence[str]) -> list[Component]:
    """The track of crashes, errors, hangs and all that has no mismatch."""
    message = verdict.message or observation.message or summary(observation.log)
    if observation.outcome == "crash":
        message = summary(observation.log) or message
    place = location(message)
    template = normalise(message)
    stack = read(observation.frames, _FRAMES)
    blamed = operator_blamed(message) or operator_blamed(observation.log)
    exception = observation.exception.rpartition(".")[2][:_MAX_VALUE]
    said = _message_component(template, stack, observation.outcome == "crash")
    components = [
        Component(
            "stage", verdict.stage or observation.stage, True, "importing, compiling and running are different code"
        ),
        Component("exception", exception, True, "the class, without its module, which moves between releases"),
        Component("signal", _signal_name(observation.signal), True, "how the process died"),
        Component("place", place[:_MAX_VALUE], True, "the place in the compiler's source that the message tells"),
        _frames_component(stack),
        said,
        _blamed_component(blamed, said, stack),
        Component(
            "operators named",
            " ".join(operators_named(message, operators))[:_MAX_VALUE],
            False,
            "for people: the message counts as a whole",
        ),
    ]
    return [
        *components,
        _operators_component(operators, needed=not stack.symbols and (not template or observation.outcome == "crash")),
    ]


def _wrong_result(verdict: Verdict, observation: Observation, operators: Sequence[str]) -> list[Component]:
    """The track of mismatches."""
    mismatch = verdict.mismatch
    assert mismatch is not None
    return [
        Component("mismatch", mismatch.what, True, "NaN, a wrong shape and a wrong value have different causes"),
        Component(
            "dtype",
            _dtype_class(observation, mismatch.output),
            True,
            "the class of the output's type, since kernels differ by it",
        ),
        Component("blame", verdict.blame, True, "whether the unoptimised build is right"),
        Component(
            "stage",
            verdict.stage or observation.stage,
            False,
            "a wrong result shows at the end, whatever stage caused it",
        ),
        Component("output", mismatch.output[:100], False, "a name of the program"),
        Component("error", f"{mismatch.max_abs:.3g}", False, "the size of an error depends on the inputs"),
        _operators_component(operators, needed=True),
    ]


def _frames_component(stack: Stack) -> Component:
    dropped = f"{stack.dropped} frames of plumbing dropped"
    if not stack.names:
        return Component("frames", "", False, f"no frame of the compiler's own; {dropped}")
    hint = f"the compiler's innermost {len(stack.names)}, {dropped}"
    if stack.recursive:
        hint = f"the turn of a recursion; {dropped}"
    elif not stack.symbols:
        hint += "; offsets hold for one build only"
    return Component("frames", " < ".join(stack.names)[:_MAX_VALUE], True, hint)


def _message_component(template: str, stack: Stack, crash: bool) -> Component:
    if not stack.names:
        return Component("message", template, True, "there are no telling frames")
    if crash:
        return Component("message", template, False, "the frames tell more, and broken memory is reported in many ways")
    if has_variables(template):
        return Component("message", template, False, "the frames tell more, and parts of it vary")
    return Component("message", template, True, "a constant: it separates two errors of one function")


def _blamed_component(blamed: str, message: Component, stack: Stack) -> Component:
    if message.kept and blamed in _WORD.findall(message.value):
        return Component("operator", blamed, False, "the message has it")
    if stack.names and not stack.vague:
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
        return Component(_GRAPH, value, False, "frames or message tell more")
    if len(distinct) > _FEW:
        return Component(_GRAPH, value, False, f"{len(distinct)} different operators: reduce the program first")
    return Component(_GRAPH, value, True, "the graph is small enough to speak for its bug")


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
