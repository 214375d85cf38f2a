"""Find the frames of a stack that identify a compiler's failure.

Frames common to all failures are dropped by the lists in `frame_denylist.toml`; the others get names that
survive a change of machine, Python and line numbers; recursion is named once.
"""

import fnmatch
import functools
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.backends.observation import Frame
from opsieve.triage.fingerprint.source_location import get_qualified_name

_LISTS = Path(__file__).with_name("frame_denylist.toml")
_MAX_NAME = 160
# Functions in one turn of a recursion
_MAX_PERIOD = 8
# Frames of other files that belong to a statement
_BEYOND = 2
# The number of a failure's frames that identify the version.
_CALLS = 4
# Where the stack need not have run out
_MOST_LEAVES = 4
# Functions that check for one caller: `require` calls `check_rank`
_MOST_CHECKS = 2
# As often must it turn to count as one
_TURNS = 3
_OPSET = re.compile(r"_v\d{1,4}+(?!\w)")
_LOCALS = re.compile(r"\.?<(?:locals|listcomp|dictcomp|setcomp|genexpr)>")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages(?=/)")
_PACKAGES = re.compile(r"(?:site|dist)-packages/([^/]*)")
_CLONE = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|llvm)\b.*+")


@dataclass(frozen=True, slots=True)
class Stack:
    """The distinctive frames, innermost first, and how many were dropped.

    `vague`: a name is meaningless by itself: a method without its class, as text tracebacks show it.
    `recursive`: the innermost frames repeat; then they are one turn of the recursion, starting at its
    smallest name, since the stack runs out at a random place. `symbols`: a name is that of a function, rather
    than an offset or a place in generated code. `callers` are the names of classes and functions that led to
    the innermost frame within its file, `line` is its line (0 for a native one). `statement` is the failed
    statement: `file:line` of the innermost frame, then the names of frames in other files; () if unknown.
    """

    names: tuple[str, ...]
    dropped: int
    vague: bool
    recursive: bool
    symbols: (
        # Whether any name is that of a function, rather than an offset or a place in generated code
        bool
    )
    callers: tuple[str, ...] = ()
    line: int = 0
    statement: tuple[str, ...] = ()


def read_stack(
    frames: Sequence[Frame],
    limit: int,
    *,
    package: str = "",
    outermost: bool = False,
    died: bool = False,
    exhausted: bool = False,
    checked: bool = False,
) -> Stack:
    """Read the stack's `limit` innermost distinctive frames, or outermost ones; with distinctive native
    frames, only those.

    If Python functions of one file call each other, the innermost counts: the caller of a file's own function
    says little, while a call from another file may be the mistake. A dispatching function is distinctive if
    everything began in it: it raised itself, or `died` there. If Python's stack is `exhausted`, only the turn
    of the recursion counts, because the stack ran out at a random place in it. A recursion in one line is
    identified by that line. Frames in a folder named like the compiler's `package` are its own, also where it
    was installed from its sources. If the author `checked` for the exception, the statement is the one that
    called the checking function.
    """
    # The program that called the compiler is the user's, and differs for each report of one bug.
    own = frames[_find_first_package(frames, package) :]
    began = _find_dispatcher(own, died)
    telling = [
        frame
        for at, frame in enumerate(own)
        if at == began or not (_is_uninteresting(frame) or (_is_accessor(frame) and not checked))
    ]
    native = [frame for frame in telling if frame.language == "native"]
    # Of a native death the Python frames only show which API was called.
    died_natively = bool(frames) and frames[-1].language == "native" and any(frame.module for frame in frames)
    chosen = (native if died_natively and native else telling)[::-1]
    names = _list_names(chosen)
    # A visitor in Python calls itself as deep as the program is nested; that tells no failures apart.
    leaves = len(names) if exhausted else _MOST_LEAVES if died or native else 0
    names, turn, skipped = _unroll(names, leaves)
    recursive = turn > 0
    # What the recursion calls last and what called it first are both chance.
    if exhausted and recursive:
        names = names[:turn]
    callers: list[str] = []
    statement: tuple[str, ...] = ()
    if not recursive and not outermost:
        raised = _is_raised(chosen, own, package)
        statement = _make_statement(_skip_checks(chosen) if checked else chosen, raised)
        runs = [_find_innermost(list(run), died) for _, run in itertools.groupby(chosen, _get_file)]
        callers = [
            name
            for kept, run in runs[:1]
            for frame in run[len(kept) :]
            for name in frame.function[:2000].split(".")
        ]
        chosen = [frame for kept, _ in runs for frame in kept]
        names = _list_names(chosen)
    names = names[-limit:] if outermost else names[:limit]
    vague = any(_is_vague(frame) for frame in chosen[:limit])
    symbols = any(frame.function for frame in chosen[:limit])
    line = chosen[0].line if chosen and chosen[0].language == "python" else 0
    if exhausted and recursive:
        # The innermost may have called another.
        lines = {frame.line for frame in chosen[skipped + 1 : skipped + _TURNS]}
        line = lines.pop() if turn == 1 and len(lines) == 1 else 0
    return Stack(
        tuple(names),
        len(frames) - len(telling),
        vague,
        recursive,
        symbols,
        tuple(dict.fromkeys(callers)),
        line,
        statement,
    )


def list_calls(frames: Sequence[Frame], package: str = "", checked: bool = False) -> tuple[str, ...]:
    """List `file:line` of the innermost telling frames, innermost first, without frames that have no line.

    If the author `checked` for the exception, the list begins with the call of the checking function.
    """
    own = [
        frame
        for frame in frames[_find_first_package(frames, package) :]
        if not (_is_uninteresting(frame) or (_is_accessor(frame) and not checked))
    ]
    chosen = _skip_checks(own[::-1]) if checked else own[::-1]
    # A caller named `visit` or `apply` passes on what its own caller gave it.
    calls = [*chosen[:1], *(frame for frame in chosen[1:] if not _is_vague(frame))][:_CALLS]
    return tuple(place for frame in calls if (place := _format_line(frame)))


def _skip_checks(chosen: Sequence[Frame]) -> Sequence[Frame]:
    """Return frames, innermost first, without functions that check what others gave them.

    Where more than `_MOST_CHECKS` in a row are named like a check, the compiler names its steps so.
    """
    checks = _load_lists().checking
    for at, frame in enumerate(chosen[: _MOST_CHECKS + 1]):
        if frame.language != "python" or not checks.match(_get_tail(frame.function)):
            return chosen[at:]
    return chosen


def _make_statement(chosen: Sequence[Frame], raised: bool) -> tuple[str, ...]:
    """Make the failed statement from frames, innermost first: its place, and the callers of its file.

    A Python statement that `raised` itself is one place whoever called it: a caller may be at fault, but then
    other callers show other failures.
    """
    if not chosen or not (place := _format_line(chosen[0])):
        return ()
    if raised and chosen[0].language == "python":
        return (place,)
    outside = chosen[1:]
    if chosen[0].language == "python":
        outside = [frame for frame in outside if frame.file != chosen[0].file or frame.language != "python"]
    return (place, *_list_names(outside)[:_BEYOND])


def _format_line(frame: Frame) -> str:
    base = frame.file.rpartition("/")[2]
    return f"{base[:_MAX_NAME]}:{frame.line}" if base and frame.line > 0 else ""


def is_program_class(name: str) -> bool:
    """Whether a class, possibly qualified, is one in which a compiler holds programs; the class of a value
    depends on the program.
    """
    return name.rpartition(".")[2] in _load_lists().expressions


def _find_dispatcher(frames: Sequence[Frame], died: bool) -> int:
    """Return the index of the dispatching function in which everything began, or -1.

    The last function of a dead process, below Python's own library, is dropped by its file name.
    """
    for at in range(len(frames) - 1, -1, -1):
        if _is_dispatcher(frames[at]):
            return at
        if not _is_raiser(frames[at]) and not (died and _is_uninteresting(frames[at])):
            return -1
    return -1


def _list_names(frames: Sequence[Frame]) -> list[str]:
    """List the names of frames; adjacent generated code counts once."""
    names = [_name_frame(frame) for frame in frames]
    return [name for i, name in enumerate(names) if i == 0 or name != "<jit>" or names[i - 1] != name]


def _get_file(frame: Frame) -> str:
    """Return the file of a Python frame; "" for a native one, whose file is often unknown."""
    return frame.file if frame.language == "python" else ""


def _find_innermost(run: list[Frame], died: bool) -> tuple[list[Frame], list[Frame]]:
    """Return the first frame with a name among frames of one file, innermost first, with those inside of it;
    and all frames.

    Text does not distinguish methods from functions, so two methods of one name in two classes look like one
    function with two callers; then all count, except where a process died, which its line shows.
    """
    if not _get_file(run[0]) or not (died or any("." in frame.function for frame in run)):
        return run, run
    named = next((at for at, frame in enumerate(run) if not _is_vague(frame)), len(run))
    return run[: named + 1], run


def _is_vague(frame: Frame) -> bool:
    """Whether a Python function is one of many with its name: nameless, or a method without its class."""
    if frame.language != "python" or "." in frame.function:
        return False
    return frame.function.startswith("<") or _get_tail(frame.function) in _load_lists().vague


def _find_first_package(frames: Sequence[Frame], package: str = "") -> int:
    """Return the index of the outermost frame in an installed package or in `package`, behind the calling
    program; 0 without one.
    """
    return next((i for i, frame in enumerate(frames) if _get_package(frame, package)), 0)


def _is_raised(chosen: Sequence[Frame], own: Sequence[Frame], package: str) -> bool:
    """Return whether the innermost chosen frame raised, itself or by a function that only raises.

    A caller of another package is at fault itself.
    """
    return (
        bool(chosen)
        and _get_package(own[-1], package) in ("", _get_package(own[0], package))
        and all(map(_is_raiser, itertools.takewhile(lambda frame: frame is not chosen[0], reversed(own))))
    )


def _get_package(frame: Frame, package: str) -> str:
    """Return the top folder of a frame's installed package, or `package` where a folder has its name."""
    if installed := _PACKAGES.search(frame.file):
        return installed[1]
    return package if package and f"/{package}/".replace("-", "_") in frame.file.replace("-", "_") else ""


@dataclass(frozen=True, slots=True)
class _Lists:
    files: dict[str, re.Pattern[str]]
    functions: dict[str, re.Pattern[str]]
    modules: re.Pattern[str]
    dispatch: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    raising: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    checking: re.Pattern[str]
    accessing: re.Pattern[str]
    vague: frozenset[str]
    expressions: frozenset[str]


@functools.cache
def _load_lists() -> _Lists:
    data = tomllib.loads(_LISTS.read_text(encoding="utf-8"))
    return _Lists(
        {language: _compile_any(data[language]["files"]) for language in ("python", "native")},
        {language: _compile_any(data[language]["functions"]) for language in ("python", "native")},
        _compile_any(data["native"]["modules"]),
        _compile_functions(data["python"]["dispatch"]),
        _compile_functions(data["python"]["raising"]),
        _compile_any(data["python"]["checking"]),
        _compile_any(data["python"]["accessing"]),
        frozenset(data["python"]["vague"]),
        frozenset(data["python"]["expressions"]),
    )


def _compile_functions(
    table: Mapping[str, Sequence[str]],
) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple((_compile_any([file]), _compile_any(names)) for file, names in table.items())


def _compile_any(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _is_uninteresting(frame: Frame) -> bool:
    # Folders above the installed packages are the user's, and may be named like a package.
    place = _INSTALLED.sub("", frame.file[-400:])
    return _is_uninteresting_name(
        frame.language == "native", place, frame.function[:2000], frame.module[:400]
    )


# Stacks of one compiler share most frames, and each is matched against long lists of patterns.
@functools.lru_cache(maxsize=4096)
def _is_uninteresting_name(is_native: bool, place: str, function: str, module: str) -> bool:
    lists = _load_lists()
    file = _add_root(place)
    if is_native:
        name = get_qualified_name(function)
        return bool(
            (module and lists.modules.match(module))
            or (place and (lists.files["native"].match(place) or lists.files["native"].match(file)))
            or (name and lists.functions["native"].match(name[:400]))
        )
    if lists.files["python"].match(place) or lists.files["python"].match(file):
        return True
    tail = _get_tail(function)
    if lists.functions["python"].match(tail):
        return True
    return _is_listed(lists.dispatch, file, tail) or _is_listed(lists.raising, file, tail)


def _is_dispatcher(frame: Frame) -> bool:
    return frame.language == "python" and _is_listed(
        _load_lists().dispatch, _add_root(frame.file[-400:]), _get_tail(frame.function)
    )


def _is_raiser(frame: Frame) -> bool:
    return _is_accessor(frame) or (
        frame.language == "python"
        and _is_listed(_load_lists().raising, _add_root(frame.file[-400:]), _get_tail(frame.function))
    )


def _is_accessor(frame: Frame) -> bool:
    """Whether a function looks up what its caller asked for: a missing key is no fault of its own."""
    return frame.language == "python" and _load_lists().accessing.match(_get_tail(frame.function)) is not None


def _add_root(file: str) -> str:
    return "/" + file.lstrip("/")


def _is_listed(table: Sequence[tuple[re.Pattern[str], re.Pattern[str]]], file: str, tail: str) -> bool:
    return any(files.match(file) and names.match(tail) for files, names in table)


def _get_tail(function: str) -> str:
    """Return a Python function's own name, without classes, nesting and opset."""
    return _OPSET.sub("", _LOCALS.sub("", function[:2000])).rpartition(".")[2] or "<lambda>"


def _name_frame(frame: Frame) -> str:
    if frame.language == "python":
        function = _OPSET.sub("", _LOCALS.sub("", frame.function[:2000])) or frame.function
        return f"{frame.file.rpartition('/')[2]} {function}"[:_MAX_NAME]
    if frame.function:
        return _CLONE.sub("", get_qualified_name(frame.function))[:_MAX_NAME] or "?"
    # A line without a function
    if frame.file and not frame.module:
        return frame.file.rpartition("/")[2][:_MAX_NAME]
    if frame.module == "<jit>":
        return "<jit>"
    if not frame.offset:
        return frame.module[:100]
    # The build-id, because an offset means another function in another build.
    return f"{frame.module[:100]}+0x{frame.offset:x}" + (f"@{frame.build_id[:12]}" if frame.build_id else "")


def _unroll(names: list[str], leaves: int) -> tuple[list[str], int, int]:
    """Return the names with recursion named once, the length of its turn (0: no recursion), and the frames
    before it.

    Up to `leaves` functions called by the recursion may lie in front.
    """
    for skipped in range(min(len(names), leaves)):
        inner = names[skipped:]
        # The shortest period first, or two turns would count as one.
        for period in range(1, min(_MAX_PERIOD, len(inner) // _TURNS) + 1):
            if all(inner[i] == inner[i % period] for i in range(period * _TURNS)):
                turn = inner[:period]
                # The stack runs out at a random function of the turn; from the smallest on it is the same
                # each time.
                start = min(range(period), key=lambda at: turn[at:] + turn[:at])
                length = next((i for i in range(len(inner)) if inner[i] != inner[i % period]), len(inner))
                return turn[start:] + turn[:start] + inner[length:], period, skipped
    return names, 0, 0
