"""Read failure records of other tools: JSON lines (gzipped or not), plain text logs, JUnit reports, folders
of them.

All input is hostile: lines, files and unpacked `.gz` data are bounded, one record is in memory at a time, and
an unreadable part is reported with its number while reading continues.
"""

import gzip
import html
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from opsieve.gen.case.case import load_case_program
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import open_file
from opsieve.triage.fingerprint.traces import read_trace
from opsieve.triage.store.failure_record import read_observations

# Bytes of one record
_MAX_LINE = 4 << 20
# Bytes of one file, unpacked
_MAX_BYTES = 8 << 30
# A folder of a stranger may hold any number.
_MAX_FILES = 1_000_000
_MAX_OPERATORS = 10_000
# Bytes of one failure in a plain text log
_MAX_LOG = 4 << 20
# Possessive quantifiers: a line of many `=` must not make it backtrack.
_HEADER = re.compile(rb"(?:={3,}+|_{3,}+) ?[^=_\s][^\r\n]{0,200}(?:={3,}|_{3,})\s*+")
_LOG_ENDINGS = (".log", ".txt", ".out", ".err", ".xml")
# Bytes of a JUnit report
_MAX_JUNIT = 256 << 20
_JUNIT = re.compile(r"<(failure|error)\b((?:[^<>\"']|\"[^\"<]*+\"|'[^'<]*+')*+)>")
_ATTRIBUTE = re.compile(r"\b(message|type)=(\"|')((?:(?!\2)[^<])*+)")


@dataclass(frozen=True, slots=True)
class Record:
    """One failure of another tool; fields other than `text` are named like its keys.

    `operators` are those of the graph as far as given, the one under test first. `text` is the whole log if
    there are no keys: a plain text file, or a part of it.
    """

    backend: str = ""
    phase: str = ""
    exception: str = ""
    message: str = ""
    traceback: str = ""
    output: str = ""
    signal: int = 0
    timed_out: bool = False
    operators: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An invalid line or file, with its number from 1 and the reason."""

    # From 1
    number: int
    why: str


def read_records(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    """Read the records of a file or a folder, each with its index from 0; an invalid line or file keeps its
    index.

    A file that begins with `{` holds JSON lines, one that begins with `<?xml` or `<testsuite` is a JUnit
    report; any other is a plain text log, which is one failure, or one for each header (`=== name ===`, `____
    name ____`). In a folder each log is read, sorted by name, with continuous numbers; in one without logs
    each case that `run --save` wrote.

    Raises:
        BadInput: If `path` cannot be read at all.
    """
    try:
        if path.is_dir():
            yield from _read_folder(path)
        else:
            yield from _read_file(path)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{shown(path)} cannot be read ({error}): give a file of JSON lines (.jsonl, .jsonl.gz) or logs"
            " as text"
        ) from error


def _read_folder(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    files = sorted(item for item in path.iterdir() if item.suffix in _LOG_ENDINGS and item.is_file())[
        :_MAX_FILES
    ]
    cases = sorted(item.parent for item in path.glob("*/case.json"))[:_MAX_FILES]
    if not files and not cases:
        raise BadInput(
            f"there is no log and no case in {shown(path)}: put files that end in"
            f" {', '.join(_LOG_ENDINGS)} there"
        )
    if not files:
        yield from ((index, _read_case(folder, index + 1)) for index, folder in enumerate(cases))
    index = 0
    for file in files:
        for _, record in _read_file(file):
            yield index, record
            index += 1


def _read_case(folder: Path, number: int) -> Record | BadRecord:
    """Read the failure that `run --save` wrote: the first observation is the target's, with outputs a wrong
    one.
    """
    try:
        operators = load_case_program(folder).operators()
    except BadInput as error:
        return BadRecord(number, str(error))
    found, problem = read_observations(folder)
    if not found:
        return BadRecord(number, problem)
    seen = found[0]
    # `run --save` keeps failures only: one with outputs has wrong ones.
    wrong = seen.outcome == "ok"
    return Record(
        seen.target.partition(":")[0].partition("=")[0],
        "compare" if wrong else seen.stage,
        seen.exception,
        "results mismatch" if wrong else seen.message,
        seen.traceback,
        seen.log,
        seen.signal,
        seen.outcome == "hang",
        tuple(dict.fromkeys(operators)),
    )


def _read_file(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    with ExitStack() as stack:
        plain = stack.enter_context(open_file(path))
        # By the content: a name may lack `.gz`.
        packed = plain.peek(2)[:2] == b"\x1f\x8b"
        file = stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=plain))) if packed else plain
        # Some tools on Windows begin a file with a byte order mark.
        head = file.peek(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head[:1] == b"{":
            yield from _read_json_lines(file)
        elif head.startswith((b"<?xml", b"<testsuite")):
            yield from enumerate(_read_junit(file))
        else:
            yield from enumerate(_read_text_log(file))


def _read_json_lines(file: BinaryIO) -> Iterator[tuple[int, Record | BadRecord]]:
    for index, line in enumerate(_iter_lines(file)):
        if isinstance(line, BadRecord):
            yield index, line
        elif line.strip():
            yield index, _parse_record(line, index + 1)


def _iter_lines(file: BinaryIO) -> Iterator[bytes | BadRecord]:
    """Yield the lines of a file; a line that is too long is skipped without being held."""
    total = number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        total += len(line)
        # A small `.gz` can unpack to petabytes.
        if total > _MAX_BYTES:
            yield BadRecord(number, f"the file is longer than {_MAX_BYTES >> 30} GiB: the rest was not read")
            return
        if len(line) == _MAX_LINE and not line.endswith(b"\n"):
            while (more := file.readline(_MAX_LINE)) and not more.endswith(b"\n"):
                total += len(more)
                if total > _MAX_BYTES:
                    break
            yield BadRecord(number, f"the line is longer than {_MAX_LINE >> 20} MiB")
        else:
            yield line


def _parse_record(line: bytes, number: int) -> Record | BadRecord:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRecord(number, f"not JSON: {shown(error, 120)}")
    if not isinstance(data, dict):
        return BadRecord(number, "not a JSON object")
    record = make_record(data)
    if not (record.message or record.traceback or record.exception or record.signal or record.timed_out):
        return BadRecord(number, "tells no failure: it has no message, traceback, exc_type or signal")
    return record


def make_record(data: Mapping[str, Any]) -> Record:
    """Make a record from a JSON object; a value of an unexpected type counts as missing."""

    def text(*names: str) -> str:
        return next((value for name in names if isinstance(value := data.get(name), str) and value), "")

    operators = [text("op", "operator")]
    listed = data.get("ops", data.get("operators"))
    if isinstance(listed, list):
        operators += [item for item in listed[:_MAX_OPERATORS] if isinstance(item, str)]
    number = data.get("signal")
    return Record(
        text("backend", "target", "compiler"),
        text("phase", "stage"),
        text("exc_type", "exception"),
        text("message"),
        text("traceback", "trace", "stack"),
        text("output", "log", "stderr"),
        # Python's subprocess gives a signal as a negative number.
        abs(number) if isinstance(number, int) and abs(number) < 1000 else 0,
        # Other tools put the limit in seconds there.
        data.get("timeout") is True,
        tuple(dict.fromkeys(filter(None, operators))),
    )


def _read_junit(file: BinaryIO) -> Iterator[Record | BadRecord]:
    """Yield the failures of a JUnit report, each by its text, else by its message.

    The report is not parsed as XML, so that no entity of it can grow.
    """
    # In one piece: a failure's text can go over any border.
    # By the MiB, because `read` takes the memory of the limit for the smallest report.
    pieces = islice(iter(lambda: file.read(1 << 20), b""), _MAX_JUNIT >> 20)
    text = b"".join(pieces).decode("utf-8", "replace")
    at = count = 0
    while match := _JUNIT.search(text, at):
        at = match.end()
        end = at if match[2].endswith("/") else text.find(f"</{match[1]}>", at)
        # A report that was cut off: what is not closed is not read.
        if end < 0:
            break
        body = _unescape(text[at:end].replace("<![CDATA[", "").replace("]]>", ""))
        # What lies within a failure is its text, however much looks like another one.
        at = end
        attributes = {name: _unescape(value) for name, _, value in _ATTRIBUTE.findall(match[2])}
        count += 1
        if read_trace(body).kind:
            yield Record(text=body)
        elif attributes.get("message"):
            yield Record(exception=attributes.get("type", ""), message=attributes["message"], traceback=body)
        else:
            yield BadRecord(count, "it holds no failure")
    if not count:
        yield BadRecord(1, "the report holds no failure")


def _unescape(text: str) -> str:
    """Replace the references to characters, unless one has more digits than a number may."""
    try:
        return html.unescape(text)
    except ValueError:
        return text


def _read_text_log(file: BinaryIO) -> Iterator[Record | BadRecord]:
    """Yield the failures of a plain text log; text before the first header counts only in a log without
    headers.
    """
    held: list[bytes] = []
    size = 0
    named = False
    for line in _iter_text_lines(file):
        if _HEADER.fullmatch(line[:300]):
            if named and (text := _join_text(held)):
                yield Record(text=text)
            held, size, named = [], 0, True
        elif size < _MAX_LOG:
            held.append(line)
            size += len(line)
    if text := _join_text(held):
        yield Record(text=text)
    elif not named:
        yield BadRecord(1, "the log is empty")


def _iter_text_lines(file: BinaryIO) -> Iterable[bytes]:
    total = 0
    while (line := file.readline(_MAX_LINE)) and total < _MAX_BYTES:
        total += len(line)
        yield line


def _join_text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace").strip("\r\n")
