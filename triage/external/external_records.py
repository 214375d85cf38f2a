"""Failure records that other tools wrote: JSON lines (gzipped or not), plain text logs, folders of them.

All of it is hostile: lines, files and what unpacks out of a `.gz` are bounded, one record is held at a time,
and what cannot be read is reported with its number instead of ending the reading.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import opened

_MAX_LINE = 4 << 20  # bytes of one record
_MAX_BYTES = 8 << 30  # bytes of one file, unpacked
_MAX_FILES = 1_000_000
_MAX_OPERATORS = 10_000
_MAX_LOG = 4 << 20  # bytes of one failure in a plain text log
_HEADER = re.compile(rb"(?:={3,}+|_{3,}+) ?[^=_\s][^\r\n]{0,200}(?:={3,}|_{3,})\s*+")
_LOG_ENDINGS = (".log", ".txt", ".out", ".err")


@dataclass(frozen=True, slots=True)
class Record:
    """What another tool tells of one failure; all but `text` as its keys are called.

    `operators` are those of the graph as far as they are given, the one under test first. `text` is the whole
    log where there are no
    keys: a plain text file, or one part of it.
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
    """A line or a file that is no record, and why."""

    number: int  # from 1
    why: str


def read_records(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    """The records of a file or a folder, each with its index from 0, in order; a line or a file that is none
    keeps its index.

    A file whose first byte that is no space is a `{` holds JSON lines; any other is a plain text log, which
    is one failure, or one for each header (`=== name ===`, `____ name ____`). Of a folder each log is read,
    by name; its failures are numbered through. BadInput when `path` cannot be read at all.
    """
    try:
        if path.is_dir():
            yield from _of_folder(path)
        else:
            yield from _of_file(path)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{shown(path)} cannot be read ({error}): give a file of JSON lines (.jsonl, .jsonl.gz) or logs"
            " as text"
        ) from error


def _of_folder(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    files = sorted(item for item in path.iterdir() if item.suffix in _LOG_ENDINGS and item.is_file())[
        :_MAX_FILES
    ]
    if not files:
        raise BadInput(
            f"there is no log in {shown(path)}: put files that end in {', '.join(_LOG_ENDINGS)} there"
        )
    index = 0
    for file in files:
        for _, record in _of_file(file):
            yield index, record
            index += 1


def _of_file(path: Path) -> Iterator[tuple[int, Record | BadRecord]]:
    with ExitStack() as stack:
        plain = stack.enter_context(opened(path))
        packed = plain.peek(2)[:2] == b"\x1f\x8b"
        file = stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=plain))) if packed else plain
        head = file.peek(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head[:1] == b"{":
            yield from _of_lines(file)
        else:
            yield from enumerate(_of_text(file))


def _of_lines(file: BinaryIO) -> Iterator[tuple[int, Record | BadRecord]]:
    for index, line in enumerate(_lines(file)):
        if isinstance(line, BadRecord):
            yield index, line
        elif line.strip():
            yield index, _record(line, index + 1)


def _lines(file: BinaryIO) -> Iterator[bytes | BadRecord]:
    """The lines of a file; one that is too long is passed over without being held."""
    total = number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        total += len(line)
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


def _record(line: bytes, number: int) -> Record | BadRecord:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRecord(number, f"not JSON: {shown(error, 120)}")
    if not isinstance(data, dict):
        return BadRecord(number, "not a JSON object")
    record = record_of(data)
    if not (record.message or record.traceback or record.exception or record.signal or record.timed_out):
        return BadRecord(number, "tells no failure: it has no message, traceback, exc_type or signal")
    return record


def record_of(data: Mapping[str, Any]) -> Record:
    """The record that a JSON object tells; a key of another type than expected counts as left out."""

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
        abs(number) if isinstance(number, int) and abs(number) < 1000 else 0,
        data.get("timeout") is True,
        tuple(dict.fromkeys(filter(None, operators))),
    )


def _of_text(file: BinaryIO) -> Iterator[Record | BadRecord]:
    """The failures of a plain text log. What stands in front of the first header is one only when there is no
    header at all.
    """
    held: list[bytes] = []
    size = 0
    named = False
    for line in _text_lines(file):
        if _HEADER.fullmatch(line[:300]):
            if named and (text := _text(held)):
                yield Record(text=text)
            held, size, named = [], 0, True
        elif size < _MAX_LOG:
            held.append(line)
            size += len(line)
    if text := _text(held):
        yield Record(text=text)
    elif not named:
        yield BadRecord(1, "the log is empty")


def _text_lines(file: BinaryIO) -> Iterable[bytes]:
    total = 0
    while (line := file.readline(_MAX_LINE)) and total < _MAX_BYTES:
        total += len(line)
        yield line


def _text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace").strip("\r\n")
