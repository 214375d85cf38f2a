"""The default strategy: each seed goes to one of the others, as often as cost and the balance of operators
allow.

In every batch of 256 seeds each strategy has its share of places, in an order drawn for the batch. The
programs that a strategy makes in a batch have seeds of its own in a row from the batch's first, so that one
that is guided by what came before in its batch (hirfuzz) is guided by its own programs and pays nothing for
the others. The case's origin names the strategy and that seed: it is the case that `opsieve gen --strategy
NAME --seed SEED` makes.
"""

import functools

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import draw_nodes
from opsieve.gen.irs.registry import ONNX, ir_named
from opsieve.gen.strategies.registry import list_names, load_strategy

# Seeds are distributed over strategies within a batch of this size, so that a campaign can change the shares
# from one batch to the next.
BATCH = 256


def mix(request: GenRequest, seed: int) -> Case:
    """Return the program of a seed, by the strategy that has its place."""
    name, own = find_place(seed)
    return load_strategy(name)(draw_nodes(request, own), own)


def find_place(seed: int, shares: tuple[tuple[str, float], ...] = ()) -> tuple[str, int]:
    """Return the strategy that has the place of a seed in its batch, and its own seed."""
    batch, place = divmod(seed, BATCH)
    name, ordinal = _assign_places(batch, shares or _list_shares())[place]
    return name, batch * BATCH + ordinal


@functools.cache
def _list_shares() -> tuple[tuple[str, float], ...]:
    """Return the usual shares of the installed strategies."""
    weights = ir_named(ONNX).strategies.items()
    return tuple((name, weight) for name, weight in weights if weight and name in list_names())


@functools.lru_cache(maxsize=8)
def _assign_places(batch: int, shares: tuple[tuple[str, float], ...]) -> tuple[tuple[str, int], ...]:
    """Return the strategy for each place of a batch, with the number of its earlier places."""
    whole = sum(share for _, share in shares)
    # A share of less than a place has one in some batches.
    drawn = 0.5 if shares == _list_shares() else Rng(f"shares {batch}").random()
    ends, sofar = [], 0.0
    for _, share in shares:
        sofar += share
        ends.append(min(BATCH, int(BATCH * sofar / whole + drawn)))
    ends[-1] = BATCH
    order: list[str] = []
    for (name, _), end in zip(shares, ends, strict=True):
        order += [name] * (end - len(order))
    counts = {name: -1 for name, _ in shares}
    found = []
    for name in Rng(f"mix {batch}").shuffle_items(order):
        counts[name] += 1
        found.append((name, counts[name]))
    return tuple(found)
