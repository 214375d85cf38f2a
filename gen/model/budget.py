"""What one model with its values may take of the main process, which reads it before a worker is asked: one
place for all of these limits.

Whoever walks, unfolds or makes something of what was read counts against them, and says in a sentence what
was too much. Graphs of TVM's own have limits of their kind beside them (`gen/irs/tvm/limits.py`). Time
follows from them: all that is done is linear in bytes, nodes and elements.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """Most of each. `bytes` is what protobuf can hold in one message: of a file, and of a model with its
    external data.
    """

    bytes: int = 2**31 - 1
    nodes: int = 500_000  # of all graphs and functions: to open more takes longer than a person waits
    depth: int = 24  # graphs inside graphs; protobuf itself stops at about 32
    calls: int = 100  # functions inside functions
    visits: int = 200_000  # nodes that facts of inputs are looked for at, a function's at every call
    rank: int = 64
    elements: int = 1 << 40  # that one tensor may declare
    made_elements: int = 1 << 26  # of inputs that are made up, over all inputs
    entries: int = 10_000  # of an archive of values
    # times that external data may be more than its files hold, which may have holes and be named again and
    # again
    repeated: int = 4
    repeated_bytes: int = 64 << 20  # and so many bytes besides


BUDGET = ReadingBudget()
