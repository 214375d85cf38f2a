"""Read one failure from raw text: the exception, its message, the stack, the signal, and the kind of failure.

The text is that of a log, a report, or an issue: Python's tracebacks (chains, groups, syntax errors), TVM's
mixed ones, onnxruntime's messages and log lines, torch's lists of C++ frames, the C library's and the
sanitizers' reports, gdb, faulthandler, Rust's panics, pytest's reports, and the lines of our own shim. Stacks
are read one layer below (`opsieve.backends.stacks.frames`); this module combines the parts.
"""

import re
import signal as signals
from dataclasses import dataclass
from typing import Literal

from opsieve.backends.observation import Frame
from opsieve.backends.stacks import death_message, frame_lines
from opsieve.backends.stacks.frames import chain_frames, parse_log, read_tracebacks
from opsieve.backends.verdict import Mismatch
from opsieve.triage.fingerprint.death_signal import find_signal, list_signal_words
from opsieve.triage.fingerprint.source_location import add_location

TraceKind = Literal["crash", "error", "hang", "out-of-memory", "mismatch", ""]

_MAX_TEXT = 1 << 20
_MAX_LINES = 50_000
_MAX_LINE = 2000
_MAX_MESSAGE = 8000
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}+[ -/]?[@-~])?")
_NO_MEMORY = re.compile(r"bad_alloc|[Oo]ut of memory|[Cc]annot allocate memory")
_HANGS = ("TimeoutExpired", "TimeoutError", "Timeout")
_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError", "_ArrayMemoryError")

# One of these stands in every text that tells of a process's end: a cheap question before the lines are read.
_SIGNS = (
    "@native",
    "SIG",
    "Sanitizer: ",
    "Fatal",
    "***",
    "()",
    "terminate called",
    "Assertion `",
    "LLVM ERROR",
    "UNREACHABLE",
    "Check failed",
    "runtime error",
    "Timeout",
    "no answer within",
    "pure virtual",
    "double free",
    "corrupt",
    "Segfault",
    "malloc",
    "xit",
    "code ",
    "status ",
)
_ABORTS = (
    "*** ",
    "terminate called",
    "pure virtual method called",
    "free()",
    "malloc",
    "realloc()",
    "munmap_chunk()",
    "double free",
    "corrupted ",
)


_HANG = re.compile(
    r"Timeout \(\d{1,4}+:\d\d:\d\d(?:\.\d{1,9}+)?\)!|no answer within [\d.]{1,20}+ s|\++ Timeout \++"
)
_PANIC = re.compile(r"thread '[^'\n]{0,200}+' (?:\(\d{1,9}+\) )?panicked at (.++)")
_OLD_PANIC = re.compile(r"'(.*)', ([^\s:']{1,300}+):(\d{1,9}+)(?::\d{1,9}+)?")
_PANIC_PLACE = re.compile(r"([^\s:']{1,300}+):(\d{1,9}+)(?::\d{1,9}+)?:?")
# Only E and F: ONNX Runtime logs warnings in the same format.
_ORT_LINE = re.compile(
    r"\[[EF]:onnxruntime:[^\],\n]{0,200}+,? ?(?:([\w.]{1,100}+):(\d{1,9}+) ([\w:~()]{1,200}+))?\] (.++)"
)
_ORT_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d{1,4}+ : \w{1,60}+ : .++")
_SAID = re.compile(
    r"(?:fatal error|[Ee]rror|ERROR|FATAL|fatal): (.++)|\[[^\]\n]{0,60}? ERROR[^\]\n]{0,60}+\] (.++)"
)
# Of Rust's anyhow, the root cause last
_CAUSE = re.compile(r" {1,9}+\d{1,3}+: (.++)")
_CHECK = re.compile(r"(?:F\d{0,8}+ |.*: F )(?:[\d:.]{1,30}+ ++){0,3}+([\w./+-]{1,300}+):(\d{1,9}+)\] ")
_BUILT = re.compile(r"([\w./+-]{1,300}+):(\d{1,9}+)(?::\d{1,9}+)?: (?:fatal )?(?:runtime )?error: .++")
_BARE = re.compile(
    r"(?!Error:)((?:[A-Za-z_]\w{0,100}+\.)*+(?:[A-Z]\w{0,100}?)?"
    r"(?:Error|Exception|Fail|Failed|Failure|NotImplemented|InvalidGraph|InvalidArgument)):"
    r" (.++)"
)
_THROWN = re.compile(
    r"(?P<cause>Caused by: )?(?<![\w.$])(?P<exception>(?:[A-Za-z_$][\w$]{0,100}+\.)*+[\w$]{0,100}?"
    r"(?:Error|Exception|Throwable|Failure))(?:: (?P<message>.*+))?$"
)
_PYTEST_LINE = re.compile(r"([^\s:]{1,300}?\.py):(\d{1,9}+): ([A-Za-z_][\w.]{0,300}+): (.++)")
_PYTEST = re.compile(r"E {1,10}(.*+)")
_PYTEST_FRAME = re.compile(r"([^\s:]{1,300}?\.py):(\d{1,9}+): (?:in (.{1,200})|[\w.]*)")
_PYTEST_DEF = re.compile(r"(?:[> ] +)?(?:async )?def (\w{1,200}+)\(")


@dataclass(frozen=True, slots=True)
class FailureTrace:
    """One failure in a text.

    `frames` are innermost last; a C++ place in a message is a frame of its own, the last. `kind` is "" if the
    text shows no failure; `exception` is qualified as far as the text tells, in a chain the one raised last;
    `signal` is 0 without one. `raw` is the whole text.
    """

    kind: TraceKind
    exception: str
    message: str
    frames: tuple[Frame, ...]
    signal: int
    raw: str


# JAX's note on a traceback without its own frames: those that are left are its caller's.
_FRAMES_REMOVED = "has removed its internal frames from the traceback"


def read_trace(text: str, build_id: frame_lines.BuildId | None = None) -> FailureTrace:
    """Read the failure in a raw text; any text is accepted, and one without a failure has the kind "".

    The death of a process counts more than an exception printed before it; an exception counts more than a
    logger's line. `build_id` identifies modules of native frames without a symbol.
    """
    # The end, because a death or the last exception stands there.
    plain = _ANSI.sub("", text[-_MAX_TEXT:])
    lines = [line[:_MAX_LINE] for line in plain.splitlines()[-_MAX_LINES:]]
    found = (
        # In the order of what they prove: a death needs no exception, and a bare line may be a mere warning.
        _read_death(plain, lines, build_id)
        or _read_exception(plain)
        or _read_panic(plain, lines, build_id)
        or _read_thrown(lines)
        or _read_report(lines)
    )
    if found is None:
        return FailureTrace("", "", "", (), 0, text)
    kind, exception, message, frames, number = found
    return FailureTrace(kind, exception, message, frames, number, text)


_Reading = tuple[TraceKind, str, str, tuple[Frame, ...], int]


def _read_death(text: str, lines: list[str], build_id: frame_lines.BuildId | None) -> _Reading | None:
    """Read the end of a process, if the text shows one."""
    if not any(sign in text for sign in (*_SIGNS, *list_signal_words())):
        return None
    number = find_signal(lines)
    said = death_message.summary(text)
    # Before the signal, which is the one by which the hang was ended.
    if any(_HANG.match(line) for line in lines):
        return "hang", "", next(line for line in lines if _HANG.match(line)), parse_log(text, build_id), 0
    if not number and (not said or said.startswith("runtime error: ")):
        # A report of UBSan does not end a process.
        return None
    if not number and text.find(said[:80]) < text.rfind("Traceback (most recent call last)"):
        return (
            # The process survived: a device's assertion is printed beside the resulting exception.
            None
        )
    if not number and (said.startswith(_ABORTS) or "Assertion `" in said):
        number = int(signals.SIGABRT)
    frames = parse_log(text, build_id)
    if match := next((match for line in lines if (match := _CHECK.match(line))), None):
        frames = (*frames, Frame("native", "", match[1], int(match[2])))
    frames = add_location(frames, said)
    if number == signals.SIGKILL or _NO_MEMORY.search(said):
        return "out-of-memory", "", said or "Killed", frames, number
    return "crash", "", said or signals.Signals(number).name, frames, number


def _read_exception(text: str) -> _Reading | None:
    """Read the exception at the end of a traceback, the last one of a chain, if there is one."""
    if "Traceback (most recent call last)" not in text:
        return None
    blocks = read_tracebacks(text)
    last = next((block for block in reversed(blocks) if block.exception), None)
    if last is None:
        return None
    exception, message = last.exception, last.message
    frames = () if _FRAMES_REMOVED in text else add_location(chain_frames(blocks), message)
    # The C++ half may have been printed on its own
    if all(frame.language == "python" for frame in frames):
        if (
            "PanicException" in exception
            and (panic := _read_panic(text, text.splitlines(), None)) is not None
        ):
            frames += panic[3]
        elif "Stack trace:" in text:
            frames += tuple(frame for frame in parse_log(text) if frame.language == "native")
    return _classify(exception, message), exception, message, frames, 0


def _classify(exception: str, message: str) -> TraceKind:
    name = exception.rpartition(".")[2]
    if name in _OUT_OF_MEMORY:
        return "out-of-memory"
    if name in _HANGS or (name == "Failed" and message.startswith("Timeout")):
        return "hang"
    # Tests compare outputs with assertions; such a failure is a wrong result and no error.
    if name == "AssertionError" and find_wrong_result(message) is not None:
        return "mismatch"
    return "error"


def _read_panic(text: str, lines: list[str], build_id: frame_lines.BuildId | None) -> _Reading | None:
    """Read a panic of Rust: its message follows the place, in older releases it precedes it."""
    for at, line in enumerate(lines):
        match = _PANIC.match(line)
        if match is None:
            continue
        frames = parse_log("\n".join(lines[at:]), build_id)
        if old := _OLD_PANIC.fullmatch(match[1]):
            message, file, number = old[1], old[2], int(old[3])
        elif new := _PANIC_PLACE.fullmatch(match[1]):
            message, file, number = "".join(lines[at + 1 : at + 2]), new[1], int(new[2])
        else:
            return "crash", "panic", match[1], frames, 0
        place = Frame("native", "", file, number)
        base = file.rpartition("/")[2]
        known = any(frame.file.rpartition("/")[2] == base and frame.line == number for frame in frames)
        return "crash", "panic", message.strip(), frames if known else (*frames, place), 0
    return None


def _read_thrown(lines: list[str]) -> _Reading | None:
    """Read the last exception of Java, C# or JavaScript; of a chain the cause, with the frames of all."""
    last: list[tuple[str, str, list[Frame]]] = []
    chain: list[tuple[str, str, list[Frame]]] = []
    for line in lines:
        if (frame := frame_lines.virtual_machine_frame(line)) is not None:
            if chain:
                chain[-1][2].append(frame)
                last = chain
        elif match := _THROWN.search(line):
            if not match["cause"]:
                chain = []
            chain.append((match["exception"], match["message"] or "", []))
    if not last:
        return None
    exception, message, _ = last[-1]
    # Java prints the innermost frame first.
    frames = tuple(frame for *_, own in last for frame in reversed(own))
    return _classify(exception, message), exception, message, frames, 0


def _read_report(lines: list[str]) -> _Reading | None:
    """Read a failure that a logger, a test runner or a compiler reports without a traceback; the most
    informative line counts.
    """
    if found := _read_pytest(lines):
        return found
    for line in lines:
        if match := _ORT_LINE.search(line):
            frames = add_location((), match[4])
            if not frames and match[1]:
                frames = (Frame("native", match[3], match[1], int(match[2])),)
            return "error", "", match[4], frames, 0
    for line in lines:
        if match := _BARE.match(line):
            return _classify(match[1], match[2]), match[1], match[2], add_location((), match[2]), 0
        if match := _PYTEST_LINE.fullmatch(line):
            frames = (Frame("python", "", match[1], int(match[2])),)
            return _classify(match[3], match[4]), match[3], match[4], add_location(frames, match[4]), 0
        if match := _ORT_STATUS.search(line):
            return "error", "", match[0], add_location((), match[0]), 0
        if match := _BUILT.fullmatch(line):
            kind: TraceKind = "crash" if "runtime error: " in line else "error"
            frames = parse_log("\n".join(lines)) if kind == "crash" else ()
            place = Frame("native", "", match[1], int(match[2]))
            message = line.partition(": ")[2]
            return kind, "", message, frames or ((place,) if kind == "crash" else ()), 0
    said = next((match[1] or match[2] for line in lines if (match := _SAID.match(line))), "")
    if said:
        causes = [match[1] for line in lines if (match := _CAUSE.fullmatch(line))]
        said = f"{said}: {causes[-1]}" if causes else said
        return "error", "", said, add_location((), said), 0
    frames = parse_log("\n".join(lines))
    # A bare stack
    return ("crash", "", "", frames, 0) if frames else None


def _read_pytest(lines: list[str]) -> _Reading | None:
    """Read a failure as pytest reports it: lines that begin with E, frames as `file.py:3: in f`, or below
    `def f`.
    """
    said: list[str] = []
    frames: list[Frame] = []
    function = ""
    for line in lines:
        if match := _PYTEST.fullmatch(line):
            said.append(match[1])
        elif match := _PYTEST_FRAME.fullmatch(line):
            frames.append(
                Frame("python", (match[3] or function or "<module>").strip(), match[1], int(match[2]))
            )
            function = ""
        elif match := _PYTEST_DEF.match(line):
            function = match[1]
    match = re.match(r"([A-Za-z_][\w.]{0,300}+): ?(.*+)", said[0]) if said else None
    if match is None:
        return None
    message = "\n".join([match[2], *said[1:]])[:_MAX_MESSAGE].strip()
    return _classify(match[1], message), match[1], message, add_location(tuple(frames), message), 0


_MAX_READ = 4000
_SHAPES = re.compile(
    r"shapes? \(?[\d(),\s]{0,200}+\)?,? ?[\d(),\s]{0,200}mismatch|shape mismatch|sequence length|mismatched"
    r" shapes?|attribute 'shape' do not match",
    re.I,
)
_DTYPES = re.compile(r"dtype mismatch|mismatched dtypes?|attribute 'dtype' do not match|dtypes? differ", re.I)
_NAN = re.compile(r"nan (?:location|values?) mismatch|nan mismatch|unexpected nan", re.I)
_INF = re.compile(r"inf (?:location|values?) mismatch|inf mismatch|unexpected inf", re.I)
_VALUES = re.compile(
    r"Mismatched elements?:|Not equal to tolerance|Tensor-likes are not (?:close|equal)|Arrays are not"
    r" (?:almost )?equal"
    r"|Scalars are not (?:close|equal)|not almost equal|outputs? (?:mismatch|differ)|results? mismatch",
    re.I,
)


def find_wrong_result(message: str) -> Mismatch | None:
    """Find the kind of difference in a check's message; None if the message is not about a comparison."""
    text = message[:_MAX_READ]
    # The more specific kinds first: their messages also say that values differ.
    if _NAN.search(text):
        return Mismatch("", "nan")
    if _INF.search(text):
        return Mismatch("", "inf")
    if _SHAPES.search(text):
        return Mismatch("", "shape")
    if _DTYPES.search(text):
        return Mismatch("", "dtype")
    return Mismatch("", "value") if _VALUES.search(text) else None
