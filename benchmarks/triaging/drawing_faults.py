"""Faults drawn: which expressions of which functions are changed, and which faults `fake` gets."""

import ast
import importlib.util
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triaging.changes import sites
from triaging.seeded import FILES, layer_of

LAYERS = ("tvm", "onnxscript", "onnxslim", "fake")
TARGETS = {
    "tvm": "seeded-tvm",
    "onnxscript": "seeded-onnxscript",
    "onnxslim": "seeded-onnxslim",
    "fake": "fake",
}
_IN_A_FUNCTION = 3
_PROGRAMS = 4  # that run a function
_FAKE = ("wrong", "error", "nan", "crash", "shape", "abort")  # each operator gets three of these


@dataclass(frozen=True)
class Seed:
    """A fault: its compiler, the target that has it, the function that a program must run, or of `fake` the
    operator; `final` ones are for the end.
    """

    layer: str
    target: str
    function: str
    final: bool


def drawn(layer: str, many: int, seed: int, ran: Sequence[frozenset[str]]) -> list[Seed]:
    """`many` faults of a layer; `ran` are the functions that each program runs, of `fake` its operators."""
    draw = random.Random(f"{layer} {seed}")
    often = Counter(name for names in ran for name in names)
    found = list(_fake(draw, many, often) if layer == "fake" else _python(draw, layer, many, often))
    halves = [at % 2 == 1 for at in range(len(found))]
    draw.shuffle(halves)
    return [Seed(layer, text, function, final) for (text, function), final in zip(found, halves, strict=True)]


def _python(draw: random.Random, layer: str, many: int, often: Counter[str]) -> Iterator[tuple[str, str]]:
    functions = [place for file in FILES if layer_of(file) == layer for place in _functions(file)]
    functions = [
        place for place in functions if often.get(f"{place[0]}~{place[1]}~{place[2].name}", 0) >= _PROGRAMS
    ]
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
                yield f"{TARGETS[layer]}:fault={fault}", f"{file}~{owner}~{function.name}"


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
            if isinstance(function, ast.FunctionDef) and len(function.body) > 2 and _is_plain(function):
                yield file, item.name if isinstance(item, ast.ClassDef) else "", function


def _is_plain(function: ast.FunctionDef) -> bool:
    """Whether a function's code can be changed in place: no property, nothing wrapped. Registering a function
    does not wrap it.
    """
    names = [getattr(getattr(item, "func", item), "id", "") for item in function.decorator_list]
    return all(name in ("classmethod", "staticmethod", "register_legalize") for name in names)


def _fake(draw: random.Random, many: int, often: Counter[str]) -> Iterator[tuple[str, str]]:
    names = [name for name, count in often.most_common(40) if count >= _PROGRAMS]
    draw.shuffle(names)
    for at in range(min(many, _IN_A_FUNCTION * len(names))):
        name = names[at // _IN_A_FUNCTION]
        yield f"fake:faults={_FAKE[(at + at // _IN_A_FUNCTION) % len(_FAKE)]}@{name}", name
