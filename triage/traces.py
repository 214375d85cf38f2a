"""What a raw text says of one failure: the exception, its message, the stack, the signal, and the kind of failure.

The text is that of a log, a report, or an issue: Python's tracebacks (chains, groups, syntax errors), TVM's mixed ones, onnxruntime's
messages and log lines, torch's lists of C++ frames, the C library's and the sanitizers' reports, gdb, faulthandler, Rust's panics, and
the lines of our own shim. Frames are read one layer below (`opsieve.backends.frames`); here their tellings are brought together.
"""

import re
import signal as signals
from dataclasses import dataclass
from typing import Literal

from opsieve.backends.frames import BuildId, parse_log, parse_traceback, summary
from opsieve.backends.observation import Frame
from opsieve.triage.places import with_place
from opsieve.triage.wrong_results import wrong_result

TraceKind = Literal["crash", "error", "hang", "out-of-memory", "mismatch", ""]

_MAX_TEXT = 1 << 20
_MAX_MESSAGE = 8000
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}+[ -/]?[@-~]")
_RAISED = re.compile(r"([A-Za-z_][\w.]{0,200}+)(?:: ?(.*+))?")
_ENDS = (
    "Traceback (most recent call last)",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "Exception Group Traceback",
)
_PANIC = re.compile(r"thread '[^'\n]{0,200}+' (?:\(\d{1,9}+\) )?panicked at (.++)")
_PANIC_PLACE = re.compile(r"(?:'(.*)', )?([^\s:']{1,300}+\.rs):(\d{1,9}+)(?::\d{1,9}+)?:?")
_ORT_LINE = re.compile(r"\[[EF]:onnxruntime:[^\]\n]{0,200}+\] (.++)")
_SIGNAL_NAMES = {
    "Segmentation fault": signals.SIGSEGV,
    "Segfault encountered": signals.SIGSEGV,
    "Aborted": signals.SIGABRT,
    "Bus error": signals.SIGBUS,
    "Illegal instruction": signals.SIGILL,
    "Floating point exception": signals.SIGFPE,
    "Floating-point exception": signals.SIGFPE,
}


@dataclass(frozen=True, slots=True)
class Trace:
    """One failure out of a text. `frames` are innermost last; the place that a message tells in C++ is a frame of its own, the last.

    `kind` is "" where nothing of a failure was understood; `exception` is qualified as far as the text tells; `signal` is 0 for none.
    `raw` is the text as it came, all of it.
    """

    kind: TraceKind
    exception: str
    message: str
    frames: tuple[Frame, ...]
    signal: int
    raw: str


def read_trace(text: str, build_id: BuildId | None = None) -> Trace:
    """What a raw text says of the failure in it; see `Trace`. Any text is read, a text without a failure has the kind ""."""
    plain = _ANSI.sub("", text[-_MAX_TEXT:])
    died = _death(plain)
    exception, message = _raised(plain)
    if died is not None:
        number, said = died
        frames = parse_log(plain, build_id)
        return Trace("crash", "", said, frames, number, text)
    if exception:
        frames = with_place(parse_traceback(plain), message)
        return Trace(_kind(exception, message), exception, message, frames, 0, text)
    if match := _ORT_LINE.search(plain):
        return Trace("error", "", match[1], with_place((), match[1]), 0, text)
    return Trace("", "", "", (), 0, text)


def _kind(exception: str, message: str) -> TraceKind:
    if exception.rpartition(".")[2] in ("MemoryError", "OutOfMemoryError", "_ArrayMemoryError"):
        return "out-of-memory"
    if exception.rpartition(".")[2] == "AssertionError" and wrong_result(message) is not None:
        return "mismatch"
    return "error"


def _death(text: str) -> tuple[int, str] | None:
    """The signal that ended a process and what explains it best, None when the text tells of no death."""
    said = summary(text)
    number = 0
    for line in text.splitlines():
        if line.startswith("@native\t") and line.split("\t")[1].isdecimal():
            number = int(line.split("\t")[1])
        for name, value in _SIGNAL_NAMES.items():
            if name in line and not line.startswith(" "):
                number = number or int(value)
    return (number, said) if said or number else None


def _raised(text: str) -> tuple[str, str]:
    """The exception that a traceback in the text ends with, the last one of a chain, and its message; "" and "" without one."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if not heads:
        return "", ""
    for at in range(heads[-1] + 1, len(lines)):
        line = lines[at]
        if line[:1].isspace() or not line:
            continue
        if match := _RAISED.fullmatch(line):
            rest = [match[2] or ""]
            for more in lines[at + 1 :]:
                if more.lstrip(" |+").startswith(_ENDS):
                    break
                rest.append(more)
            return match[1], "\n".join(rest)[:_MAX_MESSAGE].rstrip()
        return "", ""
    return "", ""
