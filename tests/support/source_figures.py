"""Figures of the product's sources: statements by folder, and how its names and docstrings are worded.

A statement is an AST statement that is no docstring, so wrapped lines, comments and documentation cost
nothing.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from repository import ROOT

FOLDERS = ("gen", "backends", "triage", "reducer", "bisect", "tui", "src")
# How a docstring reads that opens with a relative clause without a noun, or that says what is not.
HEADLESS = (
    " what of ", " that which ", " what is ", " what it ", " of which ", " of what ", " what a ",
    " what was ", " what they ", " what the ", " what no ", " by what ",
)  # fmt: skip
NEGATIONS = (" none ", " nobody ", " no more ", " is no ", " are no ", " nothing ", " neither ", " nor ")
PARTICIPLES = {
    "found", "made", "kept", "taken", "given", "known", "written", "chosen", "drawn", "shown", "seen",
    "told", "said", "held", "left", "sent", "built", "begun", "done", "grown", "gone", "lost", "met",
    "bound", "meant", "heard", "spelt", "broken", "worn", "bought", "brought", "caught", "thought",
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass
class SourceFigures:
    """Counts over all files of the product."""

    statements: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    comment_lines: int = 0
    functions: int = 0
    one_word_names: int = 0
    participle_names: int = 0
    docstrings: int = 0
    headless: int = 0
    negations: int = 0
    private_functions: int = 0
    called_from_one_place: int = 0


def files() -> Iterator[Path]:
    """The product's Python files; src/opsieve links to the other folders, which count once."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "_version.py" and not any(above.is_symlink() for above in path.parents):
                yield path


def iter_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A module and all statements in it; `ast.walk` goes through expressions, too, which hold none."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())


def count_statements(tree: ast.AST) -> int:
    """AST statements without docstrings."""
    nodes = list(iter_statements(tree))
    docstrings = sum(
        isinstance(node, _Documented) and ast.get_docstring(node, clean=False) is not None for node in nodes
    )
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


@cache
def figures() -> SourceFigures:
    """Read every file once."""
    total = SourceFigures()
    for path in files():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines, words = text.splitlines(), Counter(re.findall(r"\w+", text))
        total.statements[path.relative_to(ROOT).parts[0]] += count_statements(tree)
        total.lines += len(lines)
        total.comment_lines += sum(line.strip().startswith("#") for line in lines)
        for node in iter_statements(tree):
            if isinstance(node, _Documented) and (docstring := ast.get_docstring(node)):
                sentence = f" {docstring.lower()} "
                total.docstrings += 1
                total.headless += any(words in sentence for words in HEADLESS)
                total.negations += any(words in sentence for words in NEGATIONS)
            if isinstance(node, _Function) and not node.name.startswith("__"):
                _count_name(node.name, words, total)
    return total


def _count_name(name: str, words: Counter[str], total: SourceFigures) -> None:
    """Count what a function's name is; `words` are those of its file, where a private one is called."""
    word = name.strip("_")
    total.functions += 1
    if "_" not in word:
        total.one_word_names += 1
        total.participle_names += word in PARTICIPLES or (word.endswith("ed") and len(word) > 4)
    if name.startswith("_"):
        total.private_functions += 1
        total.called_from_one_place += words[name] == 2
