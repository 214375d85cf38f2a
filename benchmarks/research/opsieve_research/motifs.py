"""Small shapes that recur in dataflow graphs (network motifs, Milo et al., Science 298, 2002), counted over
the operations of a model.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from opsieve_research.graph import Operation

# of an operation, and operations that one reads, that are looked at: a hostile graph has as many as nodes
_READERS = 32

MOTIFS = ("joins", "skips", "diamonds", "bi_fans")


def motifs(nodes: Sequence[Operation]) -> Counter[str]:
    """How often each shape occurs among operations that stand in order, readers behind what they read.

    `joins`: an operation that reads several others. `skips` (feed-forward loops): a is read by b and c, and b
    by c, as in a residual connection. `diamonds`: a and d with several b between them, a read by b and b by
    d. `bi_fans`: two operations that share several readers.
    """
    readers = [
        sorted({reader for reader in node.consumers if reader > place})[:_READERS]
        for place, node in enumerate(nodes)
    ]
    makers: list[list[int]] = [[] for _ in nodes]
    for place, after in enumerate(readers):
        for reader in after:
            makers[reader].append(place)
    found = Counter(dict.fromkeys(MOTIFS, 0))
    together: Counter[tuple[int, int]] = Counter()
    for read in makers:
        found["joins"] += len(read) > 1
        together.update(combinations(read[:_READERS], 2))
    found["bi_fans"] = sum(count > 1 for count in together.values())
    for after in readers:
        ends = Counter(end for middle in after for end in readers[middle])
        found["skips"] += sum(ends[reader] for reader in after)
        found["diamonds"] += sum(count > 1 for count in ends.values())
    return found
