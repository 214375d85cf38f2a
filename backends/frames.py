"""Stacks out of text: what a dying worker leaves in its log, and the tracebacks of Python and of TVM.

Everything here is a pure function of hostile text: it is cut first, read line by line, and no expression backtracks. Lines that are
not understood are passed over. Frames come out as `Frame` asks for them, innermost last, native ones behind the Python ones
that called them.
"""

import re
from collections.abc import Callable, Sequence

from opsieve.backends.demangle import demangle
from opsieve.backends.observation import Frame

BuildId = Callable[[str], str]  # a module's path to its build-id, "" when unknown (`opsieve.backends.native.build_id`)

_MAX_TEXT = 1 << 20  # characters read; of a log the last ones, since a crash ends it
_MAX_LINE = 2000
_MAX_FRAMES = 400
_MAX_SUMMARY = 300

_PYTHON = re.compile(r' *+File "([^"]*+)", line (\d{1,9}+),? in (.++)')
_BINARY = re.compile(r' *+Binary file "([^"]*+)", at ([^\s+]*+)\+?(?:0x([0-9a-f]{1,16}+))?')
_NUMBERED = re.compile(r"\s*+#\d{1,6}+\s++(?:0x[0-9a-f]{1,16}+\s*+)?(?:in )?(.++)")
_MODULE_OFFSET = re.compile(r"\(([^()]++)\+0x([0-9a-f]{1,16}+)\)")
_NATIVE_FILE = re.compile(r".*\.(?:cc|cpp|cxx|c|h|hpp|cu|cuh|inc|S)", re.IGNORECASE)


def frame_of(function: str, file: str, line: int) -> Frame:
    """A frame of a Python traceback. TVM adds its C++ frames as if they were Python's; they become native ones."""
    function = function[:_MAX_LINE].strip()
    if file == "<unknown>" or "::" in function or _NATIVE_FILE.fullmatch(file[:_MAX_LINE]):
        known = "" if file == "<unknown>" else file
        name = "" if function.startswith("0x") else demangle(function)
        return Frame("native", name, known, line)
    return Frame("python", function, file, line)


def parse_traceback(text: str) -> tuple[Frame, ...]:
    """The frames of a Python traceback, TVM's mixed ones included.

    Of a chain of exceptions the frames of the last come first and those of the root cause last, so the innermost frame is where
    it all began; the frame in which one exception became the next is told once. Of an exception group the first member counts.
    """
    blocks: list[list[Frame]] = []
    member = 0
    for raw in text[:_MAX_TEXT].splitlines():
        line = raw[:_MAX_LINE]
        grouped = line.lstrip().startswith(("|", "+"))
        bare = line.lstrip(" |+-") if grouped else line.lstrip()
        if grouped and "+----" in line:
            member += bare[:1].isdigit()
        if member > 1:
            continue
        if bare.startswith(("Traceback (most recent call last)", "Exception Group Traceback (most recent")):
            if member and blocks:  # a member's frames are inside its group's
                continue
            blocks.append([])
        elif match := _PYTHON.match(bare):
            if not blocks:
                blocks.append([])
            if len(blocks[-1]) < _MAX_FRAMES:
                blocks[-1].append(frame_of(match[3], match[1], int(match[2])))
    frames: list[Frame] = []
    for block in reversed(blocks):
        if frames and block and (frames[-1].function, frames[-1].file) == (block[0].function, block[0].file):
            frames.pop()
        frames += block
    return tuple(frame for frame in frames if frame.function)[-_MAX_FRAMES:]


def parse_log(text: str, build_id: BuildId | None = None) -> tuple[Frame, ...]:
    """The frames of the thread that died, out of what its worker printed.

    Understood are the shim's lines (`native.c`), Python's faulthandler (its C stack of Python 3.14 too), the block of TVM's own
    SIGSEGV handler, and the numbered frames of sanitizers and gdb. Of two tellings of the same native stack the more exact one
    counts, of two crashes the later one. `build_id` is asked about modules whose frame has no symbol.
    """
    stacks: dict[str, list[Frame]] = {}
    into = ""
    for raw in text[-_MAX_TEXT:].splitlines():
        line = raw[:_MAX_LINE]
        start = _block(line)
        if start is not None:
            into = start
            stacks[into] = []
            continue
        frame = _frame(line, into, build_id)
        if frame is None:
            if into == "numbered" or (into == "shim" and line.startswith("@end")):
                into = ""
            continue
        if into == "" and line.lstrip().startswith("#"):
            into = "numbered"
            stacks[into] = []
        if into and len(stacks[into]) < _MAX_FRAMES:
            stacks[into].append(frame)
    python = stacks.get("current") or stacks.get("thread", [])
    native: list[Frame] = next((stacks[kind] for kind in ("shim", "numbered", "tvm", "c") if stacks.get(kind)), [])
    return tuple(python[::-1] + _without_handler(native)[::-1])


def _block(line: str) -> str | None:
    """The kind of stack that `line` announces, None when it announces none."""
    if line.startswith("@native\t"):
        return "shim"
    if "most recent call first" in line:
        if "C stack" in line:
            return "c"
        return "current" if line.startswith("Current thread") else "thread" if line.startswith("Thread") else None
    if "Segfault encountered" in line:
        return "tvm"
    if line.startswith("Extension modules:"):
        return ""
    return None


def _frame(line: str, into: str, build_id: BuildId | None) -> Frame | None:
    """The frame that `line` tells within a stack of the kind `into`, None when it tells none."""
    if into == "shim":
        return _shim_frame(line, build_id)
    if into in ("current", "thread", "tvm"):
        match = _PYTHON.match(line)
        if match is None:
            return None
        return frame_of(match[3], match[1], int(match[2])) if into == "tvm" else _python_frame(match)
    if into == "c":
        match = _BINARY.match(line)
        return None if match is None else _module_frame(match[1], match[2], int(match[3] or "0", 16), build_id)
    match = _NUMBERED.match(line)
    return None if match is None else _numbered_frame(match[1].strip(), build_id)


def _python_frame(match: re.Match[str]) -> Frame:
    return Frame("python", match[3].strip(), match[1], int(match[2]))


def _shim_frame(line: str, build_id: BuildId | None) -> Frame | None:
    fields = line.split("\t")
    if len(fields) != 4 or fields[0] != "@frame":
        return None
    try:
        offset = int(fields[2], 16)
    except ValueError:
        return None
    if fields[1] == "<jit>":  # an address, different in every run
        return Frame("native", module="<jit>")
    return _module_frame(fields[1], "" if fields[3] == "?" else fields[3], offset, build_id)


def _module_frame(path: str, symbol: str, offset: int, build_id: BuildId | None) -> Frame:
    identity = build_id(path) if build_id is not None and not symbol else ""
    return Frame("native", demangle(symbol), module=path.rpartition("/")[2], offset=offset, build_id=identity)


def _numbered_frame(rest: str, build_id: BuildId | None) -> Frame | None:
    """A frame of gdb (`f (x=1) at file.c:3`, `?? () from lib.so`) or of a sanitizer (`f(int) /file.cc:3:7`, `(lib.so+0x1)`)."""
    if match := _MODULE_OFFSET.search(rest):
        name = rest[: match.start()].strip()
        return _module_frame(match[1], name, int(match[2], 16), build_id)
    for sign in (" at ", " from "):
        before, found, after = rest.rpartition(sign)
        if found and "(" in before:
            name = before[: before.rfind(" (")] if " (" in before else before
            name = "" if name == "??" else name
            if sign == " from ":
                return Frame("native", name, module=after.rpartition("/")[2])
            return Frame("native", name, *_file_and_line(after))
    name, _, place = rest.rpartition(" ")
    if ":" in place and "/" in place and name:
        return Frame("native", name, *_file_and_line(place))
    return Frame("native", rest[: rest.rfind(" (")]) if rest.endswith(")") and " (" in rest else None


def _file_and_line(place: str) -> tuple[str, int]:
    file, *numbers = place.split(":")
    return file, int(numbers[0]) if numbers and numbers[0].isdecimal() and len(numbers[0]) < 10 else 0


def _without_handler(frames: list[Frame]) -> list[Frame]:
    """Innermost-first frames without those of TVM's signal handler and of functions without any name or place."""
    last = max((i for i, frame in enumerate(frames[:12]) if "libc_sigaction" in frame.file), default=-1)
    return [frame for frame in frames[last + 1 :] if frame.function or frame.module]


_ALLOCATOR = (
    "free()",
    "malloc()",
    "realloc()",
    "calloc()",
    "munmap_chunk()",
    "mremap_chunk()",
    "malloc_consolidate()",
    "double free or corruption",
    "corrupted size vs. prev_size",
    "corrupted double-linked list",
    "Fatal glibc error",
    "pure virtual method called",
)
_SANITIZER = re.compile(r"==\d{1,9}+==\s*+ERROR: (\w{1,40}+: [\w-]++)")
_UNDEFINED = re.compile(r".*?:\d{1,9}+:\d{1,9}+: (runtime error: .++)")
_SIGNAL_WORDS = {"overflow": "stack overflow", "call": "call of a bad address"}


def summary(text: str) -> str:
    """The line that explains a death best, at most 300 characters; "" when the log has none.

    The most telling wins, wherever it stands: a sanitizer's headline, the C library's message, an uncaught C++ exception, a failed
    assertion, LLVM's or a logger's fatal message, what the shim knows of the fault, and last the name of the signal.
    """
    best, rank = "", 99
    lines = [line[:_MAX_LINE] for line in text[-_MAX_TEXT:].splitlines()]
    for index, line in enumerate(lines):
        found, order = _explains(line, lines[index + 1 : index + 2])
        if found and order < rank:
            best, rank = found, order
    return "".join(sign if sign.isprintable() else " " for sign in best)[:_MAX_SUMMARY].strip()


def _explains(line: str, following: Sequence[str]) -> tuple[str, int]:
    """What `line` says of a death and its rank, 0 the most telling; "" for a line that says nothing of one."""
    if "Sanitizer: " in line and (match := _SANITIZER.search(line)):
        return match[1], 0
    if ": runtime error: " in line and (match := _UNDEFINED.match(line)):
        return match[1], 0
    if line.startswith("*** ") and " detected ***" in line:
        return line, 1
    if line.startswith(_ALLOCATOR):
        return line, 1
    if line.startswith("terminate called"):
        what = following[0].strip() if following and following[0].lstrip().startswith("what():") else ""
        return f"{line} {what}".strip(), 2
    if "Assertion `" in line and line.rstrip().endswith("failed."):
        return line, 2
    if line.startswith("LLVM ERROR:") or line.startswith("UNREACHABLE executed"):
        return line, 2
    if line[:1] == "F" and "] Check failed" in line:
        return line[line.index("] ") + 2 :], 2
    if line.startswith("@native\t"):
        return _SIGNAL_WORDS.get(line.rpartition("\t")[2], ""), 3
    if line.startswith("Fatal Python error: "):
        return line.removeprefix("Fatal Python error: "), 4
    if "Segfault encountered" in line:
        return "Segmentation fault", 5
    return "", 99
