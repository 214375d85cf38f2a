"""Benchmarks outlive changes of the product: all that they import from it, and from each other, is there."""

import ast
from functools import cache
from pathlib import Path

from repository import ROOT

BENCHMARKS = ROOT / "benchmarks"
FILES = sorted(path for path in BENCHMARKS.rglob("*.py") if "research" not in path.parts)


def find_module(name: str) -> Path | None:
    """The file or folder of a module of the product or of the benchmarks; None for libraries."""
    roots = {"opsieve": ROOT / "src", "benchmarks": ROOT}
    first = name.partition(".")[0]
    if first not in roots and not ((BENCHMARKS / first).is_dir() or (BENCHMARKS / f"{first}.py").is_file()):
        return None
    path = roots.get(first, BENCHMARKS) / name.replace(".", "/")
    return path if path.is_dir() else path.with_suffix(".py")


@cache
def list_names(path: Path) -> set[str]:
    """The names that a module defines at its top, or the modules of a folder."""
    if path.is_dir():
        return {each.stem for each in path.iterdir()} | (
            list_names(path / "__init__.py") if (path / "__init__.py").is_file() else set()
        )
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names


def test_what_benchmarks_import_is_there() -> None:
    assert {file.name: missing for file in FILES if (missing := find_missing_names(file))} == {}


def find_missing_names(file: Path) -> list[str]:
    """The names that a benchmark imports and that are not there."""
    missing = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            path = find_module(node.module)
            if path is None:
                continue
            there = list_names(path) if path.exists() else set()
            missing += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in there]
    return missing
