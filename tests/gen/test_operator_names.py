"""What is known of an operator stands in its declaration: no table elsewhere names ONNX's operators, but for
the exceptions here.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx.defs
import pytest

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("backends", "bisect", "gen", "reducer", "triage", "tui")
_OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
# ONNX's notation for a stored value, and its control flow: how each binds the inputs of its bodies is the
# structure of a graph.
_STRUCTURE = {"Constant", "If", "Loop", "Scan", "SequenceMap"}
_ADAPTED = "nodes that are put in by themselves, to make a tensor fit"
_SAME_NAMES = "names of TVM's own, or of Python's, that ONNX has too"
# Where others may stand, and why. A folder stands for all that is in it.
_EXCEPTIONS = {
    "gen/operators": "the declarations",
    "gen/strategies/chains.py": "what optimisers rewrite, by their sources",
    "backends/compilers": "what each compiler lacks or does otherwise is a fact of the compiler",
    "backends/reference": "an implementation of operators by name",
    "backends/judge/discontinuity_points.py": "an Add that is put behind a jump",
    "backends/judge/pieces.py": "nodes that are put between the pieces of a model",
    "backends/workers/questions/probe_backend.py": "a model that every backend is tried on",
    "gen/model/derivation.py": "a fault of onnx's own shape inference, worked around",
    "gen/irs/relax": "which operator of ONNX one of Relax stands for",
    "gen/irs/tir": _SAME_NAMES,
    "triage/fingerprint/normalise.py": _SAME_NAMES,
    "tui/app/screens/cluster_screen.py": "a title",
    "gen/graph": _ADAPTED,
    "gen/analysis/reading.py": "an implementation of the few operators by which exporters compute sizes",
    "gen/generation/random_graph.py": "nodes that open a sequence at the end",
    "gen/rewrites": "the nodes that rewrites put in: Identity, Split, Concat",
    "gen/strategies": ("programs of their own: patterns that compilers rewrite"),
    "reducer/onnx_edit/openings.py": "nodes that take the place of a body",
    "reducer/passes/attributes.py": "the value that a constant is filled with has no default in a schema",
    "reducer/onnx_edit/retyping.py": "the value that a constant is filled with names its dtype",
}


_QUOTED = re.compile(r"[\"'](\w+)[\"']")


def _named(source: str) -> Iterator[tuple[int, str]]:
    if _OPERATORS.isdisjoint(_QUOTED.findall(source)):
        return  # nothing to parse
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in _OPERATORS - _STRUCTURE
        ):
            yield node.lineno, node.value


@functools.cache
def _met() -> dict[Path, list[tuple[int, str]]]:
    """Every file of product code that names an operator, with the lines."""
    listed = subprocess.run(
        ["git", "ls-files", *(f"{folder}/*.py" for folder in _PRODUCT)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(line) for line in listed.stdout.splitlines() if (_ROOT / line).exists()]
    return {path: found for path in paths if (found := list(_named((_ROOT / path).read_text())))}


def _inside(path: Path, place: str) -> bool:
    return path == Path(place) or path.is_relative_to(place)


def test_operators_are_named_in_their_declarations_only() -> None:
    met = [
        f"{path}:{line} {name}"
        for path, lines in _met().items()
        if not any(_inside(path, place) for place in _EXCEPTIONS)
        for line, name in lines
    ]
    assert not met, "a fact of an operator belongs into its declaration (gen/operators)"


@pytest.mark.parametrize("place", _EXCEPTIONS)
def test_every_exception_is_needed(place: str) -> None:
    assert any(_inside(path, place) for path in _met())


def test_every_operator_of_onnx_is_declared_or_has_a_reason_on_its_page() -> None:
    made = subprocess.run(
        [sys.executable, "benchmarks/undeclared.py"], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "not declared yet" not in made
    assert (_ROOT / "docs/reference/operators.md").read_text(encoding="utf-8") == made
