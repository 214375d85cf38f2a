"""The baselines as strategies: `opsieve gen --strategy randoop`, `declarative` or `pad-slice`."""

from dataclasses import replace

from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve_research.baselines import strategies as baselines


def declarative(request: GenRequest, seed: int) -> Case:
    """A whole graph at random, kept when it happens to be valid (strategies.py)."""
    return _baseline("declarative", request, seed)


def randoop(request: GenRequest, seed: int) -> Case:
    """One random operation after another, each kept when it is valid
    (strategies.py).
    """
    return _baseline("randoop", request, seed)


def pad_slice(request: GenRequest, seed: int) -> Case:
    """Operands forced to fit by Reshape, Slice and Pad (strategies.py)."""
    return _baseline("pad-slice", request, seed)


def _baseline(name: str, request: GenRequest, seed: int) -> Case:
    if (
        request.only is not None
        or request.opset not in (0, baselines.OPSET)
        or "float32" not in (request.dtypes or {"float32"})
    ):
        raise BadInput(
            f"the baseline {name} knows its own operators in float32 at opset {baselines.OPSET}, and no"
            " others"
        )
    made = baselines.BASELINES[name](seed, request.nodes)
    return replace(made, origin=replace(made.origin, wish=to_record(request)))
