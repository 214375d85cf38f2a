"""Faults drawn: which expressions of which functions are changed, and which faults `fake` gets."""

import ast
import importlib.util
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triaging.changes import sites
from triaging.seeded import FILES

LAYERS = ("tvm", "onnxscript", "fake")
TARGETS = {"tvm": "seeded-tvm", "onnxscript": "seeded-onnxscript", "fake": "fake"}
_IN_A_FUNCTION = 3
_FAKE = ("wrong", "error", "nan", "crash", "shape", "abort", "error", "wrong")  # a pattern gets several of these


@dataclass(frozen=True)
class Seed:
    """A fault: its compiler, the target that has it, the operator that a program must have ("": any); `final` ones are for the end."""

    layer: str
    target: str
    operator: str
    final: bool


def drawn(layer: str, many: int, seed: int, operators: Sequence[frozenset[str]]) -> list[Seed]:
    """`many` faults of a layer; `operators` are those of each program that there is."""
    draw = random.Random(f"{layer} {seed}")
    often = Counter(name for names in operators for name in names)
    found = list(_fake(draw, many, often) if layer == "fake" else _python(draw, layer, many, often))
    halves = [at % 2 == 1 for at in range(len(found))]
    draw.shuffle(halves)
    return [Seed(layer, text, operator, final) for (text, operator), final in zip(found, halves, strict=True)]


def _python(draw: random.Random, layer: str, many: int, often: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    functions = [place for file in FILES if (file == "importer") is (layer == "tvm") for place in _functions(file)]
    if layer == "tvm":
        functions = [place for place in functions if often.get(place[1], 0) >= 3]
    draw.shuffle(functions)
    left = many
    for file, owner, function in functions:
        if left <= 0:
            return
        places: list[tuple[str, int, int]] = []
        counts: Counter[str] = Counter()
        for kind, node in sites(function):
            line = function.body[node].lineno if isinstance(node, int) else node.lineno
            places.append((kind, counts[kind], line))
            counts[kind] += 1
        if len({line for _, _, line in places}) < _IN_A_FUNCTION:
            continue
        places += [("die", at, function.body[at].lineno) for at in range(1, len(function.body))]
        used: set[int] = set()
        kinds = sorted({kind for kind, _, _ in places})
        draw.shuffle(kinds)
        for kind in (kinds * 2)[: 2 * _IN_A_FUNCTION]:
            choice = [place for place in places if place[0] == kind and place[2] not in used]
            if choice and len(used) < _IN_A_FUNCTION:
                _, at, line = draw.choice(choice)
                used.add(line)
                left -= 1
                fault = "~".join((file, owner, function.name, kind, str(at), str(draw.randrange(30))))
                yield f"{TARGETS[layer]}:fault={fault}", owner if layer == "tvm" else ""


def _functions(file: str) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Functions of a module and methods of its classes. Parent packages are not imported: `tvm` is heavy."""
    package, _, rest = FILES[file].partition(".")
    home = importlib.util.find_spec(package)
    if home is None or home.origin is None:
        return
    path = Path(home.origin).parent / f"{rest.replace('.', '/')}.py"
    for item in ast.parse(path.read_text(encoding="utf-8")).body:
        inside: Sequence[Any] = item.body if isinstance(item, ast.ClassDef) else [item]
        for function in inside:
            if isinstance(function, ast.FunctionDef) and len(function.body) > 2:
                yield file, item.name if isinstance(item, ast.ClassDef) else "", function


def _fake(draw: random.Random, many: int, often: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    names = [name for name, _ in often.most_common(30)]
    draw.shuffle(names)
    for at in range(many):
        name = names[at // 3 % len(names)]  # three kinds on each operator
        yield f"fake:faults={_FAKE[at % len(_FAKE)]}@{name}", name
