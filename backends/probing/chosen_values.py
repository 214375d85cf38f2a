"""Choose inputs as `--values` says: inject special values, or search values that keep every intermediate
finite.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from opsieve.backends.probing.value_search import Effort, FoundValues, ValueSearchRequest, search_values
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import onnx_program
from opsieve.gen.values.values import SEARCH, with_special

# The inputs are those that there were
KEPT = ("given", "none", "unchecked")
_HOW = {
    "given": "every intermediate is finite with the given inputs",
    "repaired": "inputs found that keep every intermediate finite (by intervals)",
    "gradient": "inputs found that keep every intermediate finite (by gradients)",
    "guessed": "inputs found that keep every intermediate finite (by sampling)",
    "unchecked": (
        "no search: neither onnxruntime nor ONNX's evaluator can run it with its intermediates exposed"
    ),
}


def choose_values(
    cases: Sequence[tuple[str, Case]], values: str, seed: int, workers: Workers, say: Callable[[str], None]
) -> list[tuple[str, Case]]:
    """Return the cases with the named kind of values (gen/values/values.py); `say` reports how they were
    found.
    """
    if values != SEARCH:
        return [(name, with_special(case, values, seed)) for name, case in cases]
    made = []
    for (name, case), found in zip(
        cases, search_cases([case for _, case in cases], [seed] * len(cases), workers, Effort()), strict=True
    ):
        say(f"{name}: {describe_found(found)}")
        same = found.how in KEPT
        # Outputs that a user vouched for belong to the inputs that they came with.
        if not same and case.expected is not None:
            say(f"{name}: expected outputs ignored: they belong to other inputs")
        made.append((name, apply_found(case, found, case.expected if same else None)))
    return made


def search_cases(
    cases: Sequence[Case], seeds: Sequence[int], workers: Workers, effort: Effort
) -> list[FoundValues]:
    """Search values for each case."""
    requests = [
        ValueSearchRequest(onnx_program(case.program, "--values search"), case.inputs, seed)
        for case, seed in zip(cases, seeds, strict=True)
    ]
    return list(search_values(requests, workers, effort))


def apply_found(case: Case, found: FoundValues, expected: dict[str, object] | None = None) -> Case:
    """Return the case with the found values; its origin records the method: `search: repaired`, `seeded,
    search: none (Log)`.
    """
    inputs = f"search: {found.how}" + (f" ({found.broken})" if found.broken else "")
    if found.how in KEPT:
        inputs = f"{case.origin.inputs}, {inputs}"
    origin = replace(case.origin, inputs=inputs)
    return replace(case, program=found.program, inputs=found.inputs, expected=expected, origin=origin)


def describe_found(found: FoundValues) -> str:
    """Describe the result for a person."""
    if found.how in _HOW:
        return _HOW[found.how]
    return f"no inputs found that keep {found.broken} finite; the given inputs are used"
