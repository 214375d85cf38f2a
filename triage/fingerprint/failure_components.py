"""The track of crashes, errors, hangs and all that has no mismatch: identified by where it happened.

So by the compiler's own frames, or by the message where there are none.
"""

import re
import signal
from collections.abc import Collection, Sequence

from opsieve.backends.observation import Observation
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.frames import read_tracebacks
from opsieve.backends.verdict import Verdict
from opsieve.triage.fingerprint.component import Component, ComponentName, Evidence, component
from opsieve.triage.fingerprint.mismatch_components import (
    INVALID,
    edges_component,
    found_later,
    operators_component,
)
from opsieve.triage.fingerprint.normalise import (
    has_variables,
    is_interpreters,
    normalise,
    operator_blamed,
    operators_named,
)
from opsieve.triage.fingerprint.source_location import location_text, with_location
from opsieve.triage.fingerprint.stack import Stack, read

# innermost telling frames that count: the best of 1, 2, 3, 5 and all on labelled stacks, together with 2
_FRAMES = 3
_WORDS = 2  # constant words that make a message with variable parts the compiler's own
_BY_CHANCE = frozenset(["hang", "out-of-memory"])  # what stops them, stops them anywhere
_SPEECHLESS = frozenset(["crash", "hang", "out-of-memory"])  # their messages are the signal's or ours
# Slips of the compiler's author of which the function alone is to blame, whoever called it.
_OWN_SLIPS = frozenset(["NameError", "UnboundLocalError"])
_EXHAUSTED = "RecursionError"
_PLACEHOLDER = re.compile(r"<\w+>")
_SPOKEN = re.compile(r"[A-Za-z_]{3,}+")
_WORD = re.compile(r"\w+")
_SHOWN_WORD = re.compile(r"<\w+>|\w+")
_ATTRIBUTE = " object has no attribute "  # what the interpreter says here is constant, but for the class
_CAUSED = "The above exception was the direct cause of the following exception"


def failure_components(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence,
    names: Collection[str],
) -> list[Component]:
    """The track of crashes, errors, hangs and all that has no mismatch."""
    kind = observation.outcome
    exception, message = _root(observation)
    message = message or verdict.message or observation.message or summary(observation.log)
    if kind == "crash":
        message = summary(observation.log) or message
    template = normalise(message, names)
    exception = (exception or observation.exception).rpartition(".")[2]
    frames = with_location(observation.frames, message)
    deep = 1 if exception in _OWN_SLIPS else _FRAMES
    exhausted = exception == _EXHAUSTED
    stack = read(frames, deep, outermost=kind in _BY_CHANCE, died=kind == "crash", exhausted=exhausted)
    blamed = operator_blamed(message) or operator_blamed(observation.log)
    said = _message_component(_without_callers(template, stack), stack, kind == "crash", exhausted)
    line = _line_component(stack, kind == "crash" or (exhausted and stack.recursive))
    vague = stack.vague and not line.items
    nameless = vague and not blamed
    graph = (evidence.signature and evidence.signature.operators) or operators
    stage = verdict.stage or observation.stage
    named = operators_named(message, operators)
    return [
        component(ComponentName.STAGE, stage, True, "importing, compiling and running are different code"),
        component(
            ComponentName.EXCEPTION,
            exception,
            True,
            "the class, without its module, which moves between releases",
        ),
        component(ComponentName.SIGNAL, _signal_name(observation.signal), True, "how the process died"),
        component(
            ComponentName.PLACE,
            location_text(message),
            False,
            "the message tells it; it is the innermost frame",
        ),
        _frames_component(stack, kind in _BY_CHANCE),
        line,
        component(
            ComponentName.STATEMENT,
            stack.statement,
            False,
            "where its words are alike, failures of one statement are one cluster; it holds for one version"
            " only",
        ),
        said,
        _blamed_component(blamed, said, stack, vague),
        component(ComponentName.PROGRAM, "" if evidence.valid else "invalid", True, INVALID),
        component(ComponentName.OPERATORS_NAMED, named, False, "for people: the message counts as a whole"),
        operators_component(
            graph, needed=_needs_operators(graph, stack, nameless, not template or kind in _SPEECHLESS)
        ),
        *([edges_component(evidence.signature, kept=False)] if evidence.signature else ()),
        *found_later(evidence, kept=False),
    ]


def _root(observation: Observation) -> tuple[str, str]:
    """Class and message of the exception that the one raised last was made from, on purpose, and whose frames
    are the innermost.
    """
    if _CAUSED not in observation.traceback:
        return "", ""
    first = next((one for one in read_tracebacks(observation.traceback) if one.exception), None)
    return (first.exception, first.message) if first else ("", "")


def _frames_component(stack: Stack, by_chance: bool) -> Component:
    dropped = f"{stack.dropped} uninteresting frames dropped"
    if not stack.names:
        return component(ComponentName.FRAMES, "", False, f"no frame of the compiler's own; {dropped}")
    hint = f"the compiler's innermost {len(stack.names)}, {dropped}"
    if stack.callers:
        hint = (
            f"the compiler's innermost {len(stack.names)}, without who called it in its own file; {dropped}"
        )
    if stack.recursive:
        hint = f"the turn of a recursion; {dropped}"
    elif by_chance:
        hint = (
            f"the compiler's outermost {len(stack.names)}: where within them it was stopped is chance;"
            f" {dropped}"
        )
    elif not stack.symbols:
        hint += "; offsets hold for one build only"
    return component(ComponentName.FRAMES, stack.names, True, hint)


def _needs_operators(operators: Sequence[str], stack: Stack, nameless: bool, speechless: bool) -> bool:
    """Whether the graph has to say what neither frames nor message do. Of many operators it says it only once
    it is reduced.
    """
    if speechless:
        return nameless or not stack.symbols
    return nameless and len(set(operators)) == 1


def _line_component(stack: Stack, counts: bool) -> Component:
    line = f"{stack.names[0].partition(' ')[0]}:{stack.line}" if counts and stack.line else ""
    hint = (
        "nothing else is left of a death or an endless recursion in Python code; it holds for one version"
        " only"
    )
    return component(ComponentName.LINE, line, True, hint)


def _message_component(template: str, stack: Stack, crash: bool, exhausted: bool) -> Component:
    if not stack.names:
        return component(ComponentName.MESSAGE, template, True, "there are no telling frames")
    if exhausted and stack.recursive:
        return component(
            ComponentName.MESSAGE, template, False, "what was called when the stack ran out is chance"
        )
    if crash:
        return component(
            ComponentName.MESSAGE,
            template,
            False,
            "the frames tell more, and broken memory is reported in many ways",
        )
    if not has_variables(template):
        return component(
            ComponentName.MESSAGE, template, True, "a constant: it separates two errors of one function"
        )
    if is_interpreters(template) and _ATTRIBUTE not in template:
        return component(
            ComponentName.MESSAGE,
            template,
            False,
            "the frames tell more: the interpreter wrote it, and parts of it vary",
        )
    if len(_SPOKEN.findall(_PLACEHOLDER.sub("", template))) < _WORDS:
        return component(
            ComponentName.MESSAGE, template, False, "the frames tell more, and little of it is constant"
        )
    return component(
        ComponentName.MESSAGE, template, True, "its constant words separate two errors of one function"
    )


def _without_callers(template: str, stack: Stack) -> str:
    """A message without the names of those who called a helper of their own file: `Slice axis <n>` is said by
    whom all call.
    """
    if not stack.callers:
        return template
    return _SHOWN_WORD.sub(lambda match: "<caller>" if match[0] in stack.callers else match[0], template)


def _blamed_component(blamed: str, message: Component, stack: Stack, vague: bool) -> Component:
    if message.kept and blamed in _WORD.findall(message.value):
        return component(ComponentName.OPERATOR, blamed, False, "the message has it")
    if stack.names and not vague:
        return component(
            ComponentName.OPERATOR,
            blamed,
            False,
            "the frames tell more: many operators can reach one function",
        )
    return component(
        ComponentName.OPERATOR,
        blamed,
        True,
        (
            "the function's name says nothing without the operator it converts"
            if stack.names
            else "said by the compiler"
        ),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name if number else ""
    except ValueError:
        return f"signal {number}"
