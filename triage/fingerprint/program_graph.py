"""The parts of a program in a fingerprint: the names of its values, and the shape of a small graph.

A message may contain a name of the program without quotes (`node conv1/relu_7 has no ...`). Such names vary
between programs and do not belong to a bug's message, so `normalise_message` replaces them. An author's own
words must stay for every program, or one bug gets two fingerprints. So names of letters alone (`data`,
`shape`, `Result`) are left out, and so are names on ONNX's operator pages (`constant_value`, `ReduceL1`).

The signature identifies a wrong result once its program is reduced. Names, sizes and values vary between two
programs that show one bug; the compiler's rules match on the operators, the edges, the ranks of tensors and
the classes of attributes.
"""

import functools
from collections.abc import Collection, Iterable, Iterator

from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program
from opsieve.triage.fingerprint.component import Signature

# A larger graph is not reduced, so its shape says little.
MOST_NODES = 12
_MAX_WORD = 100


class ProgramNames(Collection[str]):
    """The names of a program that an author would not write; gathered at the first look-up of a candidate."""

    def __init__(self, program: Program):
        self._program = program

    @functools.cached_property
    def _gathered_names(self) -> frozenset[str]:
        return frozenset(filter(_is_distinctive, self._program.names()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _is_distinctive(name) and name in self._gathered_names

    def __iter__(self) -> Iterator[str]:
        return iter(self._gathered_names)

    def __len__(self) -> int:
        return len(self._gathered_names)

    def __bool__(self) -> bool:
        """Return True without gathering the names: every program has some."""
        return True


def _is_distinctive(name: str) -> bool:
    return len(name) == 1 if name.isalpha() else any(sign.isalnum() for sign in name) and not name.isdecimal()


def make_signature(program: Program) -> Signature:
    """Make the signature of a program, bodies included; empty above `MOST_NODES` nodes. No compiler code
    runs.
    """
    operators = program.operators()
    if len(operators) > MOST_NODES:
        return Signature()
    edges = (f"{producer}>{consumer}" for producer, consumer in program.edges())
    ranks, attributes = ir_of(program).details(program)
    return Signature(_sort_words(operators), _sort_words(edges), _sort_words(ranks), _sort_words(attributes))


def _sort_words(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({"".join(item.split())[:_MAX_WORD] for item in items}))
