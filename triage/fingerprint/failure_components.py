"""Components of crashes, errors, hangs and other failures without a mismatch: identified by the place of the
failure.

The place is given by the compiler's own frames, or by the message without such frames.
"""

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import replace

from opsieve.backends.observation import Observation
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.frames import read_tracebacks, select_causes
from opsieve.backends.verdict import Verdict
from opsieve.triage.fingerprint.component import Component, ComponentName, Evidence, make_component
from opsieve.triage.fingerprint.mismatch_components import (
    INVALID,
    make_edges,
    make_evidence,
    make_operators,
)
from opsieve.triage.fingerprint.normalise import (
    find_blamed_operator,
    find_operators,
    has_variables,
    is_about_data,
    is_from_interpreter,
    normalise_message,
)
from opsieve.triage.fingerprint.source_location import add_location, describe_location
from opsieve.triage.fingerprint.stack import Stack, read_stack

# innermost telling frames that count: the best of 1, 2, 3, 5 and all on labelled stacks, together with 2
_FRAMES = 3
# Constant words that make a message with variable parts the compiler's own
_WORDS = 2
# Outcomes that depend on limits, not on the place.
_BY_CHANCE = frozenset(["hang", "out-of-memory"])
# Their messages are the signal's or ours
_SPEECHLESS = frozenset(["crash", "hang", "out-of-memory"])
# Slips of the compiler's author of which the function alone is to blame, whoever called it.
_OWN_SLIPS = frozenset(["NameError", "UnboundLocalError"])
_EXHAUSTED = "RecursionError"
_PLACEHOLDER = re.compile(r"<\w+>")
_SPOKEN = re.compile(r"[A-Za-z_]{3,}+")
_WORD = re.compile(r"\w+")
_SHOWN_WORD = re.compile(r"<\w+>|\w+")
# The interpreter's message is constant except for the class.
_ATTRIBUTE = " object has no attribute "
# JAX chains one that only shows where an operation was written.
_EXCEPTION = re.compile(r"(?!.*JaxStackTraceBeforeTransformation$).")
_CLASS_HINT = "the class, without its module, which moves between releases"
_CAUSED = "The above exception was the direct cause of the following exception"


def make_failure_components(
    backend: str,
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence,
    names: Collection[str],
) -> list[Component]:
    """Make the components of a failure without a mismatch."""
    kind = observation.outcome
    if kind == "out-of-memory":
        # Whether the allocation that fails raises or aborts is chance
        observation = replace(observation, exception="", signal=0, message="", log="")
        verdict = replace(verdict, message="")
    exception, message = _find_root(observation)
    message = message or verdict.message or observation.message or summary(observation.log)
    if kind == "crash":
        message = summary(observation.log) or message
    template = normalise_message(message, names)
    exception = (exception or observation.exception).rpartition(".")[2]
    frames = add_location(observation.frames, message)
    deep = 1 if exception in _OWN_SLIPS else _FRAMES
    exhausted = exception == _EXHAUSTED
    chance, died = kind in _BY_CHANCE, kind == "crash"
    checked = not is_about_data(exception, template)
    stack = read_stack(
        frames, deep, package=backend, outermost=chance, died=died, exhausted=exhausted, checked=checked
    )
    blamed = find_blamed_operator(message) or find_blamed_operator(observation.log)
    said = _make_message(_remove_callers(template, stack), stack, kind == "crash", exhausted)
    line = _make_line(stack, kind == "crash" or (exhausted and stack.recursive))
    vague = stack.vague and not line.items
    nameless = vague and not blamed
    graph = (evidence.signature and evidence.signature.operators) or operators
    named = find_operators(message, operators)
    return [
        make_component(
            ComponentName.STAGE,
            verdict.stage or observation.stage,
            True,
            "importing, compiling and running are different code",
        ),
        make_component(ComponentName.EXCEPTION, exception, True, _CLASS_HINT),
        make_component(ComponentName.SIGNAL, _name_signal(observation.signal), True, "how the process died"),
        make_component(
            ComponentName.PLACE,
            describe_location(message),
            False,
            "the message tells it; it is the innermost frame",
        ),
        _make_frames(stack, chance),
        line,
        make_component(
            ComponentName.STATEMENT,
            stack.statement,
            False,
            "where its words are alike, failures of one statement are one cluster; it holds for one version"
            " only",
        ),
        said,
        _make_blamed(blamed, said, stack, vague),
        make_component(ComponentName.PROGRAM, "" if evidence.valid else "invalid", True, INVALID),
        make_component(
            ComponentName.OPERATORS_NAMED, named, False, "for people: the message counts as a whole"
        ),
        make_operators(
            graph, needed=_needs_operators(graph, stack, nameless, not template or kind in _SPEECHLESS)
        ),
        *([make_edges(evidence.signature, kept=False)] if evidence.signature else ()),
        *make_evidence(evidence, kept=False),
    ]


def _find_root(observation: Observation) -> tuple[str, str]:
    """Return class and message of the exception from which the last one was explicitly raised; its frames are
    innermost.
    """
    if _CAUSED not in observation.traceback:
        return "", ""
    first = next(
        (
            one
            for one in select_causes(read_tracebacks(observation.traceback))
            if _EXCEPTION.match(one.exception)
        ),
        None,
    )
    return (first.exception, first.message) if first else ("", "")


def _make_frames(stack: Stack, by_chance: bool) -> Component:
    dropped = f"{stack.dropped} uninteresting frames dropped"
    if not stack.names:
        return make_component(ComponentName.FRAMES, "", False, f"no frame of the compiler's own; {dropped}")
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
    return make_component(ComponentName.FRAMES, stack.names, True, hint)


def _needs_operators(operators: Sequence[str], stack: Stack, nameless: bool, speechless: bool) -> bool:
    """Whether the operators must identify the failure, because frames and message do not.

    Many operators can do so only after reduction.
    """
    if speechless:
        # Offsets and the signal alone would put all crashes of one build together.
        return nameless or not stack.symbols
    return nameless and len(set(operators)) == 1


def _make_line(stack: Stack, counts: bool) -> Component:
    line = f"{stack.names[0].partition(' ')[0]}:{stack.line}" if counts and stack.line else ""
    hint = (
        "nothing else is left of a death or an endless recursion in Python code; it holds for one version"
        " only"
    )
    return make_component(ComponentName.LINE, line, True, hint)


def _make_message(template: str, stack: Stack, crash: bool, exhausted: bool) -> Component:
    if not stack.names:
        return make_component(ComponentName.MESSAGE, template, True, "no frame identifies the place")
    if exhausted and stack.recursive:
        return make_component(
            ComponentName.MESSAGE, template, False, "what was called when the stack ran out is chance"
        )
    if crash:
        return make_component(
            ComponentName.MESSAGE,
            template,
            False,
            "the frames tell more, and broken memory is reported in many ways",
        )
    if not has_variables(template):
        return make_component(
            ComponentName.MESSAGE, template, True, "a constant: it separates two errors of one function"
        )
    if is_from_interpreter(template) and _ATTRIBUTE not in template:
        return make_component(
            ComponentName.MESSAGE,
            template,
            False,
            "the frames tell more: the interpreter wrote it, and parts of it vary",
        )
    if len(_SPOKEN.findall(_PLACEHOLDER.sub("", template))) < _WORDS:
        return make_component(
            ComponentName.MESSAGE, template, False, "the frames tell more, and little of it is constant"
        )
    return make_component(
        ComponentName.MESSAGE, template, True, "its constant words separate two errors of one function"
    )


def _remove_callers(template: str, stack: Stack) -> str:
    """Replace the names of callers of a shared function in the same file: `Slice axis <n>` is common to all
    of them.
    """
    if not stack.callers:
        return template
    return _SHOWN_WORD.sub(lambda match: "<caller>" if match[0] in stack.callers else match[0], template)


def _make_blamed(blamed: str, message: Component, stack: Stack, vague: bool) -> Component:
    if message.kept and blamed in _WORD.findall(message.value):
        return make_component(ComponentName.OPERATOR, blamed, False, "the message has it")
    if stack.names and not vague:
        return make_component(
            ComponentName.OPERATOR,
            blamed,
            False,
            "the frames tell more: many operators can reach one function",
        )
    return make_component(
        ComponentName.OPERATOR,
        blamed,
        True,
        (
            "the function's name says nothing without the operator it converts"
            if stack.names
            else "said by the compiler"
        ),
    )


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name if number else ""
    except ValueError:
        return f"signal {number}"
