"""Element types made plainer: float64 to float32, int64 to int32, float16, bool and string to float32 and so
on, as far as the program allows.
"""

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from opsieve.gen.irs.edits import ProgramEdits
from opsieve.gen.irs.view import TypeClass
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.problem.order import DTYPE_RANKS, PLAIN_DTYPES

S = TypeVar("S")


def simplify_dtypes(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Turn each element type into every simpler one of float32, int32 and int64: all classes of values that
    have it at once, then each by itself.
    """
    together: dict[tuple[str, str], list[TypeClass]] = {}
    for each in edits.view(subject).dtypes():
        dtype = each.dtype
        rank = DTYPE_RANKS.get(dtype, len(DTYPE_RANKS))
        allowed = PLAIN_DTYPES if "int" in dtype or dtype == "bool" else PLAIN_DTYPES[:1]
        for target in [
            target for target in allowed if dtype and DTYPE_RANKS[target] < rank and target != dtype
        ]:
            if target in each.allowed:
                together.setdefault((each.dtype, target), []).append(each)
    largest = sorted(together.items(), key=lambda item: -len(item[1]))
    groups = [(target, classes) for (_, target), classes in largest if len(classes) > 1]
    groups += [(target, [each]) for (_, target), classes in together.items() for each in classes]
    for target, classes in groups:
        what = f"{len(classes)} classes of tensors" if len(classes) > 1 else classes[0].label
        touches = frozenset().union(*(each.touches for each in classes))
        change = partial(edits.retype, classes=classes, dtype=target)
        yield Edit(f"turn {what} from {classes[0].dtype} to {target}", touches, change)
