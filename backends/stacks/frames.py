"""Parse stacks from text: the log of a dying worker, and the tracebacks of Python, TVM and torch.

Everything here is a pure function of hostile text: it is cut first, read line by line, and no expression
backtracks. Unknown lines are skipped. Frames are ordered as `Frame` specifies, innermost last, native ones
after the Python ones that called them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from opsieve.backends.observation import Frame
from opsieve.backends.stacks.frame_lines import (
    MAX_LINE,
    BuildId,
    binary_frame,
    listed_frame,
    numbered_frame,
    place_behind,
    python_frame,
    shim_frame,
    symbols_frame,
)

# Characters read; of a log the last ones, since a crash ends it
_MAX_TEXT = 1 << 20
# Recursion until the stack overflows leaves tens of thousands of frames; only the innermost ones count.
_MAX_FRAMES = 400
# Characters: TVM and torch quote whole modules and graphs in their messages.
_MAX_MESSAGE = 8000
_MAX_BLOCKS = 100
_HEAD = "Traceback (most recent call last)"
_GROUP = "Exception Group " + _HEAD
# Possessive quantifiers: hostile text must not make an expression backtrack.
_RAISED = re.compile(r"([A-Za-z_][\w.]{0,300}+): ?(.*+)")
_RAISED_BARE = re.compile(r"(?:\w{1,100}\.)*+[A-Z]\w{0,200}+")
# Frames further in than these belong to the report of the crash, not to the crash.
_HANDLERS = (
    "<signal handler called>",
    "rust_begin_unwind",
    "__rustc::rust_begin_unwind",
    "SignalHandler(",
    "PrintStackTraceSignalHandler(",
    "google::LogMessage",
)
# What a program prints goes on behind a traceback; these begin lines that are no part of a message.
_LOGGED = re.compile(
    r"\[\d\d:\d\d:\d\d\] |(?:\x1b\[[\d;]{0,9}m)?\d{4}-\d\d-\d\d[ T]\d\d:|Error converting operator |Exception"
    r" ignored in"
)
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a chain as a traceback shows it: its qualified class, its message and its own frames,
    innermost last.

    `source` is the innermost frame's line of source, "" if it is not shown. `handled`: the next exception of
    the chain occurred while this one was handled, rather than was raised from it.
    """

    exception: str
    message: str
    frames: tuple[Frame, ...]
    source: str = ""
    handled: bool = False


def chain_frames(blocks: Sequence[Raised]) -> tuple[Frame, ...]:
    """Return the frames of a Python traceback, TVM's mixed ones included, as one stack; `blocks` is the
    result of `read_tracebacks`.

    Of a chain of exceptions the frames of the last come first and those of the root cause last, so the
    innermost frame is where it all began; the frame in which one exception became the next is listed once. Of
    an exception group the first member counts.
    """
    frames: list[Frame] = []
    # Python prints the root cause first, but a stack lists its innermost frames last.
    for block in reversed(select_causes(blocks)):
        if frames and block.frames and _same_function(frames[-1], block.frames[0]):
            # The frame that caught one exception and raised the next is in both tracebacks.
            frames.pop()
        frames += block.frames
    return tuple(frames)[-_MAX_FRAMES:]


def select_causes(blocks: Sequence[Raised]) -> Sequence[Raised]:
    """Return the exceptions that led to the last one, without those that were handled before it.

    A handler that raises replaces what it caught; one that calls something that fails found another fault.
    """
    for at in range(len(blocks) - 1, 0, -1):
        caught, later = blocks[at - 1], blocks[at]
        if not (caught.handled and caught.frames):
            continue
        # The function that caught; a stack that was cut does not show it.
        depth = [_same_function(frame, caught.frames[0]) for frame in later.frames]
        raised = not later.source or later.source.startswith("raise")
        if any(depth) and not (raised and depth[-1]):
            return blocks[at:]
    return blocks


def _same_function(one: Frame, other: Frame) -> bool:
    return (one.function, one.file) == (other.function, other.file)


def read_tracebacks(text: str) -> list[Raised]:
    """Return every exception of the tracebacks in a text, in the order in which they are printed: of a chain
    the root cause first.

    A group is one exception, with the frames of its first member behind its own. Frames without any
    traceback's head are those of one exception whose class is "".
    """
    blocks: list[_Block] = []
    # From the start: a chain of exceptions begins with its root cause.
    for raw in text[:_MAX_TEXT].splitlines():
        line = raw[:MAX_LINE].rstrip()
        at = line.find(_HEAD)
        if at >= 0:
            _begin(blocks, line, at)
        elif blocks:
            blocks[-1].take(line)
        # A log that was cut at its start may have lost the head of the traceback.
        elif (frame := python_frame(line, mixed=True)) is not None:
            blocks.append(_Block("", headless=True))
            blocks[-1].frames.append(frame)
    return [block.get_raised() for block in blocks[-_MAX_BLOCKS:]]


def _begin(blocks: "list[_Block]", line: str, at: int) -> None:
    """Begin at a traceback's head: a new exception, a member of a group, or C++ frames that TVM put into its
    message.
    """
    current = blocks[-1] if blocks else None
    before = line[:at].removesuffix("Exception Group ")
    # A member's own head: it continues the group, which is the one exception.
    if current is not None and current.member:
        current.go_on(before)
        return
    raised = _RAISED.fullmatch(before.strip())
    # TVM's message begins with a traceback of its own, on the line that names the exception.
    if raised is not None and current is not None and current.state == "frames":
        current.name(line[:at].strip())
        current.go_on("")
        return
    prefix = "" if before.strip() and raised is not None else before
    blocks.append(_Block(prefix.replace("+", "|"), grouped=_GROUP in line))


@dataclass(slots=True)
class _Block:
    """One traceback while it is read. `prefix` is what every line of it begins with (a group's `  | `, a
    launcher's `[rank0]: `).
    """

    prefix: str
    grouped: bool = False
    headless: bool = False
    # frames, message, closed
    state: str = "frames"
    member: int = 0
    exception: str = ""
    message: list[str] = field(default_factory=list)
    size: int = 0
    frames: list[Frame] = field(default_factory=list)
    numbered: dict[int, Frame] = field(default_factory=dict)
    source: str = ""
    handled: bool = False

    def take(self, line: str) -> None:
        if self.grouped and "+----" in line:
            number = line.strip(" |+-")
            # the last line of a group has no number
            self.member = 1 if number == "1" and self.member < 2 else 2
            self.state = "frames" if self.member == 1 else "closed"
            return
        self.handled = self.handled or _CHAIN[0] in line
        if self.state == "closed":
            return
        # Each line of a group or of a launcher's rank has the prefix.
        if self.prefix.strip() and line.strip() and not line.startswith(self.prefix.rstrip()):
            # Another program's output
            self.state = "closed"
            return
        line = (
            line[len(self.prefix) :]
            if line.startswith(self.prefix)
            else line.removeprefix(self.prefix.rstrip())
        )
        if line.startswith(_CHAIN) or (self.state == "message" and _LOGGED.match(line)):
            self.state = "closed"
        elif self.state == "frames":
            self._take_frame(line)
        else:
            # Only indented: a message may hold a numbered list of its own.
            numbered = numbered_frame(line, None) if line.startswith(("frame #", "  ")) else None
            numbered = numbered or symbols_frame(line, None)
            if numbered is not None and len(self.numbered) < _MAX_FRAMES:
                # A second list in the same message does not overwrite the first one's frames.
                self.numbered.setdefault(numbered[0] if numbered[0] >= 0 else len(self.numbered), numbered[1])
            elif self.size < _MAX_MESSAGE and not self.member:
                self.message.append(line)
                self.size += len(line) + 1

    def _take_frame(self, line: str) -> None:
        if len(self.frames) + len(self.numbered) < _MAX_FRAMES:
            if "File " in line and (frame := python_frame(line, mixed=True)) is not None:
                self._settle()
                self.frames.append(frame)
                self.source = ""
                return
            numbered = numbered_frame(line, None) or symbols_frame(line, None)
            if numbered is not None:
                self.numbered.setdefault(numbered[0] if numbered[0] >= 0 else len(self.numbered), numbered[1])
                return
        # Below it may stand marks of where in the line it failed.
        self.source = self.source or (line.strip() if line[:1].isspace() else "")
        if line.strip() and not line[0].isspace() and not self.headless:
            self._settle()
            self.name(line)
            self.state = "message"

    def name(self, line: str) -> None:
        """Take the line that names the exception; a member's does not hide its group's."""
        if self.member:
            return
        match = _RAISED.fullmatch(line)
        if match is not None:
            self.exception, self.message = match[1], [match[2]]
        elif _RAISED_BARE.fullmatch(line):
            self.exception, self.message = line, []
        else:
            self.message = [line]

    def go_on(self, prefix: str) -> None:
        """Continue with more frames of the same exception."""
        self.prefix = prefix.replace("+", "|")
        self.state = "frames" if self.member < 2 else "closed"

    def _settle(self) -> None:
        """Add the numbered frames from outermost to innermost: 0 is the innermost wherever it is printed."""
        self.frames += [self.numbered[number] for number in sorted(self.numbered, reverse=True)]
        self.numbered.clear()

    def get_raised(self) -> Raised:
        self._settle()
        frames = tuple(
            frame for frame in self.frames if frame.function or frame.module or frame.language == "native"
        )
        said = "\n".join(self.message).strip()[:_MAX_MESSAGE]
        return Raised(self.exception, said, frames, self.source, self.handled)


def parse_log(text: str, build_id: BuildId | None = None) -> tuple[Frame, ...]:
    """Return the frames of the thread that died, from its worker's log.

    It understands the shim's lines (`native.c`), Python's faulthandler (also its C stack in Python 3.14), the
    block of TVM's own SIGSEGV handler, lists as backtrace_symbols(3) writes them, and the numbered frames of
    sanitizers, gdb and Rust. Of two descriptions of the same native stack the more exact one counts, of two
    crashes the later one; of a sanitizer's report the first stack is that of the fault. `build_id` resolves
    modules whose frame has no symbol.
    """
    stacks: dict[str, list[Frame]] = {}
    into = ""
    sanitizer = False
    # From the end: a worker may have printed for long before it died.
    for raw in text[-_MAX_TEXT:].splitlines():
        line = raw[:MAX_LINE]
        if "Sanitizer: " in line and ("ERROR: " in line or "WARNING: " in line):
            sanitizer = True
            # What another tool listed before the report is not the stack of the fault.
            stacks.pop("numbered", None)
        start = _block(line)
        if start is not None:
            into = start
            # A later crash replaces an earlier one of the same kind.
            stacks[into] = []
            continue
        stack = stacks.get(into, [])
        if into == "numbered" and stack and (placed := place_behind(stack[-1], line)) is not None:
            stack[-1] = placed
            continue
        frame = _frame(line, into, build_id)
        if frame is None:
            if into in ("numbered", "symbols") or (into == "shim" and line.startswith("@end")):
                into = ""
            found = _read_listed(line, build_id)
            # The stacks behind the first one of a sanitizer's report tell of allocations and other threads.
            if found is None or into or (sanitizer and stacks.get("numbered")):
                continue
            into, frame = found
            stacks[into] = []
        if into and len(stacks[into]) < _MAX_FRAMES:
            stacks[into].append(frame)
    # Faulthandler marks the thread that died as the current one where it can.
    python = stacks.get("current") or stacks.get("thread", [])
    # The most exact description first.
    kinds = ("shim", "numbered", "symbols", "tvm", "c")
    native: list[Frame] = next((stacks[kind] for kind in kinds if stacks.get(kind)), [])
    # Whether what lies inside this frame only reports: a signal's handler, a panic's.
    last = max(
        (
            i
            # A handler has few frames; further out the same name could be one of the program's.
            for i, frame in enumerate(native[:40])
            if ("libc_sigaction" in frame.file or frame.function.startswith(_HANDLERS))
        ),
        default=-1,
    )
    return tuple(
        [frame for frame in python if frame.function][::-1]
        + [
            frame
            for at, frame in enumerate(native)
            if at > last and (frame.function or frame.module) and not _is_llvm_handler(native, at)
        ][::-1]
    )


def _block(line: str) -> str | None:
    """Return the kind of stack that `line` announces; `None` for other lines."""
    if line.startswith("@native\t"):
        return "shim"
    if "most recent call first" in line:
        if "C stack" in line:
            return "c"
        return (
            "current"
            if line.startswith("Current thread")
            else "thread"
            if line.startswith("Thread")
            else None
        )
    if "Segfault encountered" in line:
        return "tvm"
    if line.startswith("Extension modules:"):
        return ""
    return None


def _read_listed(line: str, build_id: BuildId | None) -> tuple[str, Frame] | None:
    """Return the kind of a list that begins with `line` without an announcement, and its first frame."""
    numbered = numbered_frame(line, build_id)
    if numbered is not None and numbered[0] == 0:
        return "numbered", numbered[1]
    if listed := listed_frame(line, build_id):
        return "symbols", listed[1]
    return None


def _frame(line: str, into: str, build_id: BuildId | None) -> Frame | None:
    """Parse `line` as a frame of a stack of the kind `into`; returns `None` for other lines."""
    if into == "shim":
        return shim_frame(line, build_id)
    if into in ("current", "thread", "tvm"):
        return python_frame(line, mixed=into == "tvm")
    if into == "c":
        return binary_frame(line, build_id)
    if into == "numbered":
        found = numbered_frame(line, build_id)
        return found[1] if found is not None and found[0] else None
    if into == "symbols":
        listed = listed_frame(line, build_id)
        return listed[1] if listed is not None else None
    return None


def _is_llvm_handler(frames: list[Frame], at: int) -> bool:
    """Return whether a nameless frame of LLVM called its reporting of signals."""
    inner = frames[at - 1] if at else None
    return (
        inner is not None
        and inner.function.startswith("llvm::sys::RunSignalHandlers")
        and not frames[at].function
        and frames[at].module == inner.module
    )
