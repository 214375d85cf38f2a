"""What `--values` does to cases: special values strewn in, or values looked for under which nothing inside is NaN or infinite."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from opsieve.backends.probing.value_search import Effort, FoundValues
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.case.case import Case

KEPT = ("given", "none", "unchecked")  # the inputs are those that there were
_HOW = {
    "given": "none of its values is NaN or infinite with the inputs as they are",
    "repaired": "inputs found without a NaN or an infinity in it, by ranges",
    "gradient": "inputs found without a NaN or an infinity in it, by gradients",
    "guessed": "inputs found without a NaN or an infinity in it, by guessing",
    "unchecked": "neither onnxruntime nor ONNX's evaluator runs it with its inner values shown, so nothing was looked for",
}


def chosen(
    cases: "Sequence[tuple[str, Case]]", values: str, seed: int, workers: "Workers", say: Callable[[str], None]
) -> "list[tuple[str, Case]]":
    """The cases of models that were given, with values as the word asks (gen/values/values.py); `say` hears how they were found."""
    from opsieve.backends.probing.value_search import Effort
    from opsieve.gen.values.values import SEARCH, with_special

    if values != SEARCH:
        return [(name, with_special(case, values, seed)) for name, case in cases]
    made = []
    for (name, case), found in zip(
        cases, searched([case for _, case in cases], [seed] * len(cases), workers, Effort()), strict=True
    ):
        say(f"{name}: {described(found)}")
        same = found.how in KEPT
        if not same and case.expected is not None:
            say(f"{name}: the expected outputs are those of other inputs and are left out")
        made.append((name, with_found(case, found, case.expected if same else None)))
    return made


def searched(
    cases: "Sequence[Case]", seeds: Sequence[int], workers: "Workers", effort: "Effort"
) -> "list[FoundValues]":
    """What the search finds for each case."""
    from opsieve.backends.probing.value_search import ValueSearchRequest, search_values
    from opsieve.gen.model.program import onnx_program

    wanted = [
        ValueSearchRequest(onnx_program(case.program, "--values search"), case.inputs, seed)
        for case, seed in zip(cases, seeds, strict=True)
    ]
    return list(search_values(wanted, workers, effort))


def with_found(case: "Case", found: "FoundValues", expected: "dict[str, object] | None" = None) -> "Case":
    """The case with what was found; its origin tells how: `search: repaired`, `seeded, search: none (Log)`."""
    inputs = f"search: {found.how}" + (f" ({found.broken})" if found.broken else "")
    if found.how in KEPT:
        inputs = f"{case.origin.inputs}, {inputs}"
    origin = replace(case.origin, inputs=inputs)
    return replace(case, program=found.program, inputs=found.inputs, expected=expected, origin=origin)


def described(found: "FoundValues") -> str:
    """A sentence for a person."""
    if found.how in _HOW:
        return _HOW[found.how]
    torch = "" if importlib.util.find_spec("torch") else ", without gradients, which need torch (opsieve[torch])"
    return f"no inputs found under which {found.broken} gives neither NaN nor an infinity{torch}; they are left as they are"


def voice(sentence: str) -> None:
    """To stderr, on one line."""
    click.echo("opsieve: " + "".join(c if c.isprintable() else " " for c in sentence), err=True)
