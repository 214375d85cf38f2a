"""The message of a process before its death."""

import re
from collections.abc import Sequence

from opsieve.gen.model.printable import printable

# Characters read, the last ones, since a death ends a log
_MAX_TEXT = 1 << 20
# A compiler can print a model on one line, and regular expressions run over each line.
_MAX_LINE = 2000
_MAX_SUMMARY = 300

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
_SANITIZER = re.compile(
    r"(?:==\d{1,9}+==\s*+ERROR|WARNING): (\w{1,40}+: (?:(?:attempting|detected|data) )?[\w-]++)"
)
_UNDEFINED = re.compile(r".*?:\d{1,9}+:\d{1,9}+: (runtime error: .++)")
_SIGNAL_WORDS = {"overflow": "stack overflow", "call": "call of a bad address"}


def summary(text: str) -> str:
    """Return the line that explains a death best, at most 300 characters; "" if the log has no such line.

    The most specific kind wins, wherever it stands: a sanitizer's headline, the C library's message, an
    uncaught C++ exception, a failed assertion, LLVM's or a logger's fatal message, the shim's description of
    the fault, and last the name of the signal.
    """
    best, rank = "", 99
    lines = [line[:_MAX_LINE] for line in text[-_MAX_TEXT:].splitlines()]
    for index, line in enumerate(lines):
        found, order = _explains(line, lines[index + 1 : index + 2])
        # Strictly: of equal kinds the first one counts, as later ones follow from it.
        if found and order < rank:
            best, rank = found, order
    return printable(best)[:_MAX_SUMMARY].strip()


def _explains(line: str, following: Sequence[str]) -> tuple[str, int]:
    """Return the part of `line` that explains a death and its rank, 0 the most specific; "" if it does not
    explain one.
    """
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
    # Only glog's fatal lines (F); a check that only warns ends no process.
    if "] Check failed" in line and (line[:1] == "F" or ": F " in line):
        return line[line.index("] ") + 2 :], 2
    if line.startswith("@native\t"):
        return _SIGNAL_WORDS.get(line.rpartition("\t")[2], ""), 3
    if line.startswith("Fatal Python error: "):
        return line.removeprefix("Fatal Python error: "), 4
    if "Segfault encountered" in line:
        return "Segmentation fault", 5
    return "", 99
