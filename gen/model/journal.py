"""Append-only journals: files of records, one JSON value a line.

A record is on the disk when `add` returns, and a writer that is killed loses at most its last line. Several
processes may add to one journal. A line that was cut off, or holds something else, is left out when the
journal is read: whoever keeps answers in it asks again.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from opsieve.gen.errors import BadInput
from opsieve.gen.model.durable import append
from opsieve.gen.model.files import read_file

_T = TypeVar("_T")


class Journal(Generic[_T]):
    """The records of one kind in the file at `path`, which need not be there; at most `limit` bytes are
    read.
    """

    def __init__(self, path: Path, kind: type[_T], limit: int = 64 << 20):
        self.path = path
        self._limit = limit
        self._decoder = msgspec.json.Decoder(kind)

    def read(self) -> list[_T]:
        """Return the records, oldest first; an empty list for an unreadable or oversized file."""
        try:
            lines = read_file(self.path, self._limit).splitlines() if self.path.exists() else []
        except BadInput:
            return []
        records = []
        for line in lines:
            try:
                records.append(self._decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
        return records

    def add(self, records: Iterable[_T], *, sync: bool = True) -> None:
        """Append records in one piece; without `sync` the system writes them when it likes. OSError."""
        append(self.path, b"".join(msgspec.json.encode(record) + b"\n" for record in records), sync=sync)
