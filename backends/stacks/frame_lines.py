"""How one line of a log tells one frame of a stack.

The formats are those that the programs print: Python's `traceback` and `faulthandler` modules, glibc's
backtrace_symbols(3), gdb's `bt`, the sanitizers' symbolizer, torch's c10::Error, TVM's and Rust's numbered
lists, and our own shim (`native.c`).
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsieve.backends.observation import Frame
from opsieve.backends.stacks.demangle import demangle

# A module's path to its build-id, "" when unknown (`opsieve.backends.stacks.native.build_id`).
BuildId = Callable[[str], str]

# Longer lines hold data, not frames. The limit bounds the time of the regular expressions below.
MAX_LINE = 2000

_PYTHON = re.compile(r' *+File "([^"]*+)", line (\d{1,9}+)(?:,? in (.++))?')
_BINARY = re.compile(r' *+Binary file "([^"]*+)", at ([^\s+]*+)\+?(?:0x([0-9a-f]{1,16}+))?')
_HASHED = re.compile(r"\s*+#(\d{1,6}+)\s++(?:0x[0-9a-f]{1,16}+\s*+)?(?:in )?(.++)")
_COUNTED = re.compile(r" {1,5}(\d{1,4}+): ++(?:0x[0-9a-f]{1,16}+ - )?(\S.*+)")
_TORCH = re.compile(r"frame #(\d{1,4}+): (.++)")
_TORCH_FRAME = re.compile(r"(.*?) \+ 0x([0-9a-f]{1,16}+) \(0x[0-9a-f]{1,16}+ in ([^()\s]++)\)")
_SYMBOLS = re.compile(r"(?:\[bt\] \((\d{1,4}+)\) )?([^\s()]++)\(([^()]*+)\) ?\[0x[0-9a-f]++\]")
_SYMBOL_OFFSET = re.compile(r"([^+]*+)\+0x([0-9a-f]{1,16}+)")
_MODULE_OFFSET = re.compile(r"\(([^()\s]{1,400}?)\+0x([0-9a-f]{1,16}+)\)")
_NATIVE_FILE = re.compile(r".*\.(?:cc|cpp|cxx|c|h|hpp|cu|cuh|inc|S|rs)", re.IGNORECASE)
_NUMBERED_BEGINS = tuple("#f0123456789")
# `at pack.Class.method(File.java:3)`, `at f (/dir/file.js:3:7)`, `at Name.Class.Method(Int32 n) in
# file.cs:line 3`
_VIRTUAL = re.compile(
    r"\s{1,20}+at (?:async |new )?(?:[\w.@-]{1,100}+/)?([\w.$<>`]{1,400}+)(?: \[as \w{1,100}+\])? ?"
    r"\(([^()]{0,400}+)\)(?: in (.{1,400}):line (\d{1,9}+))?"
)
_PLACE = re.compile(r"(.{1,400}?):(\d{1,9}+)(?::\d{1,9}+)?")
_GENERATED = re.compile(r"\$\$?(?:\d+|Lambda)[^.]*+")
# `    @     0x55d0c1a2b3c5       96  f()` of glog and absl, `# C  [lib.so+0x1]  f()+0x2` of the Java machine
_GLOG = re.compile(
    r"(?:PC: )?\s{0,9}+@\s{1,30}+0x[0-9a-f]{1,16}+\s++(?:\d{1,9}+\s++)?(?:\(unknown\)\s++)?(\S.*+)"
)
_JVM = re.compile(
    r"(?:# )?[CVJjv]  ?\[([^\]+]{1,400}+)\+0x([0-9a-f]{1,16}+)\](?:\s++([^+\s].*?))?(?:\+0x[0-9a-f]{1,16}+)?"
)
_BASE_PLACE = re.compile(r"[\w+-]++\.\w{1,5}+:\d{1,9}+(?::\d{1,9}+)?")
# `3  libLLVM.dylib  0x000000010f3c f(int) + 56` of LLVM on macOS, and everywhere in older releases
_WITH_MODULE = re.compile(r"(\d{1,4}+) {1,3}+(\S{1,200}+) ++0x[0-9a-f]{8,16}+ (\S.*?) \+ (\d{1,9}+)")
_AT = re.compile(r"\s++at ([^:\s]{1,400}+):(\d{1,9}+)(?::\d{1,9}+)?")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$|\[[0-9a-f]{16}\]")


def frame_of(function: str, file: str, line: int) -> Frame:
    """Make a frame of a Python traceback; C++ frames that TVM adds as if they were Python's become native
    ones.
    """
    function = function[:MAX_LINE].strip()
    if file == "<unknown>" or "::" in function or _NATIVE_FILE.fullmatch(file[:MAX_LINE]):
        known = "" if file == "<unknown>" else file
        # A bare address differs in every run.
        name = "" if function.startswith("0x") else demangle(function)
        return Frame("native", name, known, line)
    return Frame("python", function, file, line)


def python_frame(line: str, mixed: bool) -> Frame | None:
    """Read the frame of a line `File "x.py", line 3, in f`; `mixed` makes C++ frames native (`frame_of`)."""
    match = _PYTHON.match(line)
    if match is None:
        return None
    function, file = (match[3] or "").strip(), match[1].replace("\\", "/")
    if mixed:
        return frame_of(function, file, int(match[2]))
    return Frame("python", function, file, int(match[2]))


def binary_frame(line: str, build_id: BuildId | None) -> Frame | None:
    """Read a frame of the C stack that Python 3.14's faulthandler prints."""
    match = _BINARY.match(line)
    return None if match is None else _module_frame(match[1], match[2], int(match[3] or "0", 16), build_id)


def shim_frame(line: str, build_id: BuildId | None) -> Frame | None:
    """Read a frame of our own shim: `@frame`, module, offset and symbol between tabulators."""
    fields = line.split("\t")
    if len(fields) != 4 or fields[0] != "@frame":
        return None
    try:
        offset = int(fields[2], 16)
    except ValueError:
        # The column holds another word in traces that only look like those of this tool.
        return None
    # An address, different in every run
    if fields[1] == "<jit>":
        return Frame("native", module="<jit>")
    return _module_frame(fields[1], "" if fields[3] == "?" else fields[3], offset, build_id)


def numbered_frame(line: str, build_id: BuildId | None) -> tuple[int, Frame] | None:
    """Read a numbered frame and its number, 0 the innermost: of gdb, a sanitizer, torch, TVM, Rust or `[bt]`;
    None for another line.
    """
    # Most lines of a log are no frames; one look at a character saves five expressions.
    if line.lstrip()[:1] not in _NUMBERED_BEGINS:
        return None
    if match := _TORCH.match(line):
        return int(match[1]), _torch_frame(match[2], build_id)
    if match := _HASHED.match(line):
        frame = _hashed_frame(match[2].strip(), build_id)
        return None if frame is None else (int(match[1]), frame)
    if match := _WITH_MODULE.fullmatch(line):
        return int(match[1]), _module_frame(match[2], match[3], int(match[4]), build_id)
    if match := _COUNTED.fullmatch(line):
        # The hash at the end changes with every build of the crate.
        name = _RUST_HASH.sub("", match[2].strip())
        return int(match[1]), Frame("native", "" if name == "<unknown>" else demangle(name))
    return None


def symbols_frame(line: str, build_id: BuildId | None) -> tuple[int, Frame] | None:
    """Read a frame as backtrace_symbols(3) writes it, `lib.so(f+0x1) [0x2]`, and its number if `[bt] (3)`
    states one, else -1.
    """
    match = _SYMBOLS.match(line.lstrip()) if "[0x" in line else None
    if match is None:
        return None
    inner = _SYMBOL_OFFSET.fullmatch(match[3])
    symbol, offset = (inner[1], int(inner[2], 16)) if inner else (match[3], 0)
    return int(match[1] or "-1"), _module_frame(match[2], symbol, offset, build_id)


def listed_frame(line: str, build_id: BuildId | None) -> tuple[int, Frame] | None:
    """Read a frame of a list without numbers, glog's or the Java machine's, or one of `symbols_frame`."""
    if match := _GLOG.fullmatch(line):
        return -1, Frame("native", "" if match[1] == "(unknown)" else demangle(match[1]))
    if match := _JVM.fullmatch(line.rstrip()):
        return -1, _module_frame(match[1], match[3] or "", int(match[2], 16), build_id)
    return symbols_frame(line, build_id)


def virtual_machine_frame(line: str) -> Frame | None:
    """Read a frame as Java, C# and JavaScript print it; `line` is indented."""
    match = _VIRTUAL.match(line) if line[:1].isspace() else None
    if match is None:
        return None
    name = _GENERATED.sub("", match[1]).replace("<init>", "new").replace("<clinit>", "static")
    place = _PLACE.fullmatch(match[2])
    file, number = (match[3], match[4]) if match[3] else (place[1], place[2]) if place else ("", "0")
    return Frame("native", name, file.replace("\\", "/"), int(number))


def place_behind(frame: Frame, line: str) -> Frame | None:
    """Return the frame with the place on the next line (`at file.rs:3:5`, as Rust and a narrow gdb write), or
    None without one.
    """
    match = _AT.fullmatch(line)
    if match is None or frame.file or not frame.function:
        return None
    return replace(frame, file=match[1], line=int(match[2]))


def _torch_frame(rest: str, build_id: BuildId | None) -> Frame:
    match = _TORCH_FRAME.match(rest)
    if match is None:
        return Frame("native", demangle(rest))
    name = "" if match[1] == "<unknown function>" else match[1]
    return _module_frame(match[3], name, int(match[2], 16), build_id)


def _module_frame(path: str, symbol: str, offset: int, build_id: BuildId | None) -> Frame:
    # Only a frame that has nothing but an offset needs the build to be identified.
    identity = build_id(path) if build_id is not None and not symbol else ""
    return Frame("native", demangle(symbol), module=path.rpartition("/")[2], offset=offset, build_id=identity)


def _hashed_frame(rest: str, build_id: BuildId | None) -> Frame | None:
    """Read a frame of gdb (`f (x=1) at file.c:3`, `?? () from lib.so`) or of a sanitizer (`f(int)
    /file.cc:3:7`, `(lib.so+0x1)`).
    """
    if match := _MODULE_OFFSET.search(rest):
        name, file, line = rest[: match.start()].strip(), "", 0
        head, _, place = name.rpartition(" ")
        if head and "/" in place and ":" in place:
            name, (file, line) = head, _file_and_line(place)
        frame = _module_frame(match[1], name, int(match[2], 16), build_id)
        return replace(frame, file=file, line=line)
    for sign in (" at ", " from "):
        before, found, after = rest.rpartition(sign)
        # A path may hold ` at ` too; behind a function's parameters it is gdb's.
        if found and "(" in before:
            name = before[: before.rfind(" (")] if " (" in before else before
            name = "" if name == "??" else name
            if sign == " from ":
                return Frame("native", name, module=after.rpartition("/")[2])
            return Frame("native", name, *_file_and_line(after))
    name, _, place = rest.rpartition(" ")
    if name and ((":" in place and "/" in place) or _BASE_PLACE.fullmatch(place)):
        return Frame("native", name, *_file_and_line(place))
    if rest == "<signal handler called>":
        return Frame("native", rest)
    if not (rest.endswith(")") and " (" in rest):
        return None
    name = rest[: rest.rfind(" (")]
    return Frame("native", "" if name == "??" else name)


def _file_and_line(place: str) -> tuple[str, int]:
    file, *numbers = place.split(":")
    # Ten digits or more are no line, and a log may hold any number.
    return file, int(numbers[0]) if numbers and numbers[0].isdecimal() and len(numbers[0]) < 10 else 0


# Which passes of a compiler ran and acted, as its log tells.


_LINE = re.compile(r"^opsieve pass (ran|acted|host) ([^\s+@]{1,200})$", re.MULTILINE)
_BEGINS = re.compile(r"Applying graph transformer ([A-Za-z0-9_]{1,80}) on step")
_MODIFIED = re.compile(r"GraphTransformer ([A-Za-z0-9_]{1,80}) modified: ([01])")
# Names that are believed
_MOST = 2000
_SKIPPING = ("disabled_optimizers", "disabled", "skip")


@dataclass(frozen=True, slots=True)
class PassTrace:
    """Names of passes, each once, in the order in which they were first named; hosts are left out of `ran`
    and `acted`.

    `times` counts how often each was said to run.
    """

    ran: tuple[str, ...] = ()
    acted: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    times: dict[str, int] = field(default_factory=dict)


def read_trace(log: str, died: bool) -> PassTrace:
    """Read the trace in a log; of a compiler that `died`, the pass that ran last counts as one that acted,
    and comes first.
    """
    named: dict[str, list[str]] = {"ran": [], "acted": [], "host": []}
    for what, name in _LINE.findall(log):
        named[what].append(name)
    named["acted"] += [name for name, changed in _MODIFIED.findall(log) if changed == "1"]
    if died:
        # A pass that died never said that it acted.
        named["acted"] = (_BEGINS.findall(log)[-1:] or named["ran"][-1:]) + named["acted"]
    hosts = tuple(dict.fromkeys(named["host"]))
    ran, acted = (
        tuple(name for name in dict.fromkeys(names) if name not in hosts)[:_MOST]
        for names in (named["ran"] + named["acted"], named["acted"])
    )
    return PassTrace(ran, acted, hosts, dict(Counter(named["ran"])))


def choose_skip_option(options: Mapping[str, Sequence[str]]) -> str:
    """Return the option of a backend that takes the passes to skip, or ""."""
    return next((name for name in _SKIPPING if options.get(name) == ()), "")
