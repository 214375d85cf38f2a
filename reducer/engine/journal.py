"""The journal of a reduction: one JSON object a line for each attempt. A killed reduction resumes from it."""

import os
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import open_own
from opsieve.gen.model.files import bound_reading, read_file, reason
from opsieve.reducer.engine.interestingness import CheckResult

NAME = "attempts.jsonl"
# A journal has a few hundred bytes for each check. It is read again on resume, and may come from a stranger's
# folder.
_LIMIT = 256 << 20


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One candidate: its digest, the dimension and the edit that made it, its size, and the answer."""

    digest: str
    dimension: str
    label: str
    nodes: int
    answer: str
    why: str = ""
    key: str = ""
    wrong: tuple[str, ...] = ()

    def result(self) -> CheckResult:
        """Return the answer as the engine knows it."""
        # `_read` admits only the four kinds.
        answer = _OLD_KINDS.get(self.answer, self.answer)
        return CheckResult(answer, self.why, self.key, self.wrong)  # type: ignore[arg-type]


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # The digest of case, target, level and seed: answers to another question are of no use.
    question: str


_KINDS = frozenset(["same", "slippage", "gone", "invalid"])
# Names that releases before 0.2 wrote.
_OLD_KINDS = {"slipped": "slippage"}


class Journal:
    """The attempts of one reduction, kept in memory and, when it has a folder, in a file there.

    A file with the same head is read first; a truncated record at its end is dropped.
    """

    def __init__(self, question: str, folder: Path | None = None):
        self.attempts: list[Attempt] = []
        # Whether the file existed and belongs to the same question, and how many attempts it held.
        self.resumed, self.earlier = False, 0
        self._file: IO[bytes] | None = None
        if folder is None:
            return
        path = folder / NAME
        head = _Head(question)
        known = _read(path, head) if path.exists() else None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(open_own(path), "r+b")
            self.resumed = known is not None
            self.attempts, whole = known or ([], 0)
            self.earlier = len(self.attempts)
            # The next attempt must not be appended to half a line.
            self._file.seek(whole)
            self._file.truncate()
            if known is None:
                self._write(head)
        except OSError as error:
            raise BadInput(f"cannot write {shown(path, 200)}: {reason(error)}") from None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, attempt: Attempt) -> None:
        """Add an attempt, and flush it to the file: it survives a kill of this process."""
        self.attempts.append(attempt)
        self._write(attempt)

    def _write(self, item: msgspec.Struct) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(item) + b"\n")
            self._file.flush()


@bound_reading
def _read(path: Path, head: _Head) -> tuple[list[Attempt], int] | None:
    """Read the attempts in a journal with this `head`, and their end in the file; returns `None` for any
    other file.
    """
    first, *lines = read_file(path, _LIMIT).split(b"\n")
    try:
        if not lines or msgspec.json.decode(first, type=_Head) != head:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Only the last line can be cut off, by a kill while it was written. The reduction continues without
        # it.
        return None
    attempts, end = [], len(first) + 1
    # The text after the last line break is truncated.
    for line in lines[:-1]:
        try:
            attempt = msgspec.json.decode(line, type=Attempt)
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        if attempt.answer not in _KINDS and attempt.answer not in _OLD_KINDS:
            break
        attempts.append(attempt)
        end += len(line) + 1
    return attempts, end
