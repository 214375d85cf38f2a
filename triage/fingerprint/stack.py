"""Which frames of a stack tell where a compiler failed.

Frames that every failure passes through are dropped by the lists in `frame_denylist.toml`; what is left is
named so that the name survives a change of machine, Python and line numbers; recursion is named once.
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
from opsieve.triage.fingerprint.source_location import qualified_name

_LISTS = Path(__file__).with_name("frame_denylist.toml")
_MAX_NAME = 160
_MAX_PERIOD = 8  # functions in one turn of a recursion
_BEYOND = 2  # frames of other files that belong to a statement
_CALLS = 4  # places of a failure that tell whether another one is of the same version
_MOST_LEAVES = 4  # where the stack need not have run out
_TURNS = 3  # as often must it turn to count as one
_OPSET = re.compile(r"_v\d{1,4}+(?!\w)")
_LOCALS = re.compile(r"\.?<(?:locals|listcomp|dictcomp|setcomp|genexpr)>")
_CLONE = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|llvm)\b.*+")


@dataclass(frozen=True, slots=True)
class Stack:
    """The telling frames, innermost first, and how many were dropped as uninteresting.

    `vague` is true when one of the names says nothing by itself: a method without its class, as text
    tracebacks show it. `recursive` is true when the innermost frames repeat; then they are one turn of the
    recursion, begun at its smallest name, since where in a turn the stack runs out is chance. `callers` are
    the names of classes and functions that led to the innermost frame within its file, `line` is where that
    stands in its file (0 for a native one). `statement` says which statement failed: `file:line` of the
    innermost frame, then the names of frames in other files; () where that is not known.
    """

    names: tuple[str, ...]
    dropped: int
    vague: bool
    recursive: bool
    symbols: (
        bool  # whether any name is that of a function, rather than an offset or a place in generated code
    )
    callers: tuple[str, ...] = ()
    line: int = 0
    statement: tuple[str, ...] = ()


def read(
    frames: Sequence[Frame],
    limit: int,
    *,
    outermost: bool = False,
    died: bool = False,
    exhausted: bool = False,
) -> Stack:
    """The stack's `limit` innermost telling frames, or outermost ones; of a stack with telling native frames
    only those.

    Of Python functions of one file that call each other the innermost counts: who uses a file's own helper
    says little of the helper, while a call from another file may be the mistake. A dispatching function is
    telling when all began in it: it raised itself, or `died` there. Where Python's stack is `exhausted`, the
    turn of the recursion alone counts: in what it had called last the stack ran out by chance. One that turns
    in one line is identified by it.
    """
    own = frames[_first_package(frames) :]
    began = _where_it_began(own, died)
    telling = [frame for at, frame in enumerate(own) if at == began or not _is_uninteresting(frame)]
    native = [frame for frame in telling if frame.language == "native"]
    died_natively = bool(frames) and frames[-1].language == "native" and any(frame.module for frame in frames)
    chosen = (native if died_natively and native else telling)[::-1]
    names = _distinct(chosen)
    names, turn, skipped = _unrolled(names, len(names) if exhausted else _MOST_LEAVES)
    recursive = turn > 0
    if exhausted and recursive:
        names = names[:turn]
    callers: list[str] = []
    statement: tuple[str, ...] = ()
    if not recursive and not outermost:
        statement = _statement(chosen, raised=chosen[:1] == [*frames[-1:]])
        runs = [_own_affair(list(run), died) for _, run in itertools.groupby(chosen, _file)]
        callers = [
            name
            for kept, run in runs[:1]
            for frame in run[len(kept) :]
            for name in frame.function[:2000].split(".")
        ]
        chosen = [frame for kept, _ in runs for frame in kept]
        names = _distinct(chosen)
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


def list_calls(frames: Sequence[Frame]) -> tuple[str, ...]:
    """List `file:line` of the innermost telling frames, innermost first; of frames without a line nothing."""
    own = [frame for frame in frames[_first_package(frames) :] if not _is_uninteresting(frame)]
    return tuple(place for frame in own[: -_CALLS - 1 : -1] if (place := _line_of(frame)))


def _statement(chosen: Sequence[Frame], raised: bool) -> tuple[str, ...]:
    """The statement that failed, of frames innermost first: its place, and who called its file from another
    one.

    A statement of Python that `raised` by itself, not in what it called, is one place whoever called: what is
    wrong may be a caller's, but then others that reach it show other failures.
    """
    if not chosen or not (place := _line_of(chosen[0])):
        return ()
    if raised and chosen[0].language == "python":
        return (place,)
    outside = chosen[1:]
    if chosen[0].language == "python":
        outside = [frame for frame in outside if frame.file != chosen[0].file or frame.language != "python"]
    return (place, *_distinct(outside)[:_BEYOND])


def _line_of(frame: Frame) -> str:
    base = frame.file.rpartition("/")[2]
    return f"{base[:_MAX_NAME]}:{frame.line}" if base and frame.line > 0 else ""


def is_of_programs(name: str) -> bool:
    """Whether a class, maybe qualified, is one that a compiler holds programs in: which of these a value has
    is the program's matter.
    """
    return name.rpartition(".")[2] in _lists().expressions


def _where_it_began(frames: Sequence[Frame], died: bool) -> int:
    """The index of the dispatching function that all began in, -1 when it was another or none. What a dead
    process was in last, beneath Python's own library, is uninteresting by name of its file.
    """
    for at in range(len(frames) - 1, -1, -1):
        if _dispatches(frames[at]):
            return at
        if not _raises_for_others(frames[at]) and not (died and _is_uninteresting(frames[at])):
            return -1
    return -1


def _distinct(frames: Sequence[Frame]) -> list[str]:
    """The names of frames; of generated code in a row one."""
    names = [_name(frame) for frame in frames]
    return [name for i, name in enumerate(names) if i == 0 or name != "<jit>" or names[i - 1] != name]


def _file(frame: Frame) -> str:
    """The file of a Python frame; of a native one, whose file is often not known, none."""
    return frame.file if frame.language == "python" else ""


def _own_affair(run: list[Frame], died: bool) -> tuple[list[Frame], list[Frame]]:
    """Of frames of one file, innermost first, the first that has a name, with those inside of it; and all of
    them.

    Text tells no methods from functions. There two methods of one name in two classes look like one helper
    with two callers, so all count, but where a process died: its line tells.
    """
    if not _file(run[0]) or not (died or any("." in frame.function for frame in run)):
        return run, run
    named = next((at for at, frame in enumerate(run) if not _is_vague(frame)), len(run))
    return run[: named + 1], run


def _is_vague(frame: Frame) -> bool:
    """Whether a Python function is one of many of its name: nameless, or a method without its class."""
    if frame.language != "python" or "." in frame.function:
        return False
    return frame.function.startswith("<") or _tail(frame.function) in _lists().vague


def _first_package(frames: Sequence[Frame]) -> int:
    """The index of the outermost frame in an installed package: what lies outside is the program that called
    the compiler. 0 without one.
    """
    packages = (
        i
        for i, frame in enumerate(frames)
        if "site-packages/" in frame.file or "dist-packages/" in frame.file
    )
    return next(packages, 0)


@dataclass(frozen=True, slots=True)
class _Lists:
    files: dict[str, re.Pattern[str]]
    functions: dict[str, re.Pattern[str]]
    modules: re.Pattern[str]
    dispatch: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    raising: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    vague: frozenset[str]
    expressions: frozenset[str]


@functools.cache
def _lists() -> _Lists:
    data = tomllib.loads(_LISTS.read_text(encoding="utf-8"))
    return _Lists(
        {language: _any_of(data[language]["files"]) for language in ("python", "native")},
        {language: _any_of(data[language]["functions"]) for language in ("python", "native")},
        _any_of(data["native"]["modules"]),
        _functions_of(data["python"]["dispatch"]),
        _functions_of(data["python"]["raising"]),
        frozenset(data["python"]["vague"]),
        frozenset(data["python"]["expressions"]),
    )


def _functions_of(table: Mapping[str, Sequence[str]]) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple((_any_of([file]), _any_of(names)) for file, names in table.items())


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _is_uninteresting(frame: Frame) -> bool:
    return _named_uninteresting(
        frame.language == "native", frame.file[-400:], frame.function[:2000], frame.module[:400]
    )


@functools.lru_cache(maxsize=4096)
def _named_uninteresting(is_native: bool, place: str, function: str, module: str) -> bool:
    lists = _lists()
    file = _rooted(place)
    if is_native:
        name = qualified_name(function)
        return bool(
            (module and lists.modules.match(module))
            or (place and (lists.files["native"].match(place) or lists.files["native"].match(file)))
            or (name and lists.functions["native"].match(name[:400]))
        )
    if lists.files["python"].match(place) or lists.files["python"].match(file):
        return True
    tail = _tail(function)
    if lists.functions["python"].match(tail):
        return True
    return _listed(lists.dispatch, file, tail) or _listed(lists.raising, file, tail)


def _dispatches(frame: Frame) -> bool:
    return frame.language == "python" and _listed(
        _lists().dispatch, _rooted(frame.file[-400:]), _tail(frame.function)
    )


def _raises_for_others(frame: Frame) -> bool:
    return frame.language == "python" and _listed(
        _lists().raising, _rooted(frame.file[-400:]), _tail(frame.function)
    )


def _rooted(file: str) -> str:
    return "/" + file.lstrip("/")


def _listed(table: Sequence[tuple[re.Pattern[str], re.Pattern[str]]], file: str, tail: str) -> bool:
    return any(files.match(file) and names.match(tail) for files, names in table)


def _tail(function: str) -> str:
    """A Python function's own name, without classes, nesting and opset."""
    return _OPSET.sub("", _LOCALS.sub("", function[:2000])).rpartition(".")[2] or "<lambda>"


def _name(frame: Frame) -> str:
    if frame.language == "python":
        function = _OPSET.sub("", _LOCALS.sub("", frame.function[:2000])) or frame.function
        return f"{frame.file.rpartition('/')[2]} {function}"[:_MAX_NAME]
    if frame.function:
        return _CLONE.sub("", qualified_name(frame.function))[:_MAX_NAME] or "?"
    if frame.file and not frame.module:  # a line without a function
        return frame.file.rpartition("/")[2][:_MAX_NAME]
    if frame.module == "<jit>":
        return "<jit>"
    if not frame.offset:
        return frame.module[:100]
    return f"{frame.module[:100]}+0x{frame.offset:x}" + (f"@{frame.build_id[:12]}" if frame.build_id else "")


def _unrolled(names: list[str], leaves: int) -> tuple[list[str], int, int]:
    """The names with recursion named once, how many of them are its turn (0: there is none), and how many
    frames stood in front of it.

    Up to `leaves` functions that the recursion had just called may lie in front.
    """
    for skipped in range(min(len(names), leaves)):
        inner = names[skipped:]
        for period in range(1, min(_MAX_PERIOD, len(inner) // _TURNS) + 1):
            if all(inner[i] == inner[i % period] for i in range(period * _TURNS)):
                turn = inner[:period]
                start = min(range(period), key=lambda at: turn[at:] + turn[:at])
                length = next((i for i in range(len(inner)) if inner[i] != inner[i % period]), len(inner))
                return turn[start:] + turn[:start] + inner[length:], period, skipped
    return names, 0, 0
