"""What reduction, attribution and bisection left beside a case: `reduced/reduction.json`, `attribution.json`, `culprit.json`."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.bad_input import BadInput
from opsieve.gen.files import read_file
from opsieve.gen.model import load_program
from opsieve.gen.structure import all_nodes

REDUCED = "reduced"
_MAX_JSON = 64 << 20
_MOST = 20  # passes of a set


@dataclass(frozen=True, slots=True)
class Beside:
    """`nodes` and operators of the reduced program, bodies included (None: not reduced to the same failure); the guilty passes; the first bad release or commit."""

    nodes: int | None = None
    operators: tuple[str, ...] = ()
    guilty_passes: tuple[str, ...] = ()
    first_bad: str = ""


def beside(case: Path) -> Beside:
    """What lies beside a case. Files that cannot be read, or tell something else, tell nothing."""
    reduction, culprit = _facts(case / REDUCED / "reduction.json"), _facts(case / "culprit.json")
    attribution = _facts(case / "attribution.json") or _facts(culprit.get("attribution"))
    passes = attribution.get("passes") if attribution.get("answer") in ("pass", "set") else culprit.get("guilty_passes")
    nodes, inner = reduction.get("nodes_after"), reduction.get("inner_nodes_after", 0)
    counted = nodes + inner if reduction.get("same") and isinstance(nodes, int) and isinstance(inner, int) else None
    bad = culprit.get("first_bad") or culprit.get("culprit_commit")
    named = [_word(one) for one in passes[:_MOST] if isinstance(one, str)] if isinstance(passes, list) else []
    operators: tuple[str, ...] = ()
    if counted is not None:
        try:
            graph = load_program(case / REDUCED / "model.onnx").proto.graph
            operators = tuple(sorted({_word(node.op_type) for node in all_nodes(graph.node)}))
        except BadInput:
            counted = None
    return Beside(counted, operators, tuple(sorted(filter(None, named))), _word(bad) if isinstance(bad, str) else "")


def _facts(place: object) -> dict[str, Any]:
    """A JSON object in a file, or one that is there already; {} when there is none that can be read."""
    told = place
    if isinstance(place, Path):
        with suppress(BadInput, ValueError, RecursionError):
            told = json.loads(read_file(place, _MAX_JSON)) if place.is_file() else {}
    return told if isinstance(told, dict) else {}


def _word(text: str) -> str:
    return "".join(c for c in text[:100] if c.isprintable() and not c.isspace())
