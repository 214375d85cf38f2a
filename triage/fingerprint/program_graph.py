"""What a fingerprint takes from a program: the names that it gives its values, and the shape of a small
graph.

A message may hold a name of the program without any quotes (`node conv1/relu_7 has no ...`). Such names vary
between programs and are no part of a bug's message, so `normalise` replaces them. A word that an author wrote
must stay whatever the program is like, or one bug gets two fingerprints. So names of letters alone (`data`,
`shape`, `Result`) are not given out, nor those that ONNX's operator pages use (`constant_value`, `ReduceL1`).

The signature identifies a wrong result once its program is reduced. Names, sizes and values vary between two
programs that show one bug; the compiler's rules match on the operators, what feeds what, the ranks of tensors
and the classes of attributes.
"""

import functools
from collections.abc import Collection, Iterable, Iterator

from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program
from opsieve.triage.fingerprint.component import Signature

MOST_NODES = 12  # a graph with more nodes is not reduced, and its shape says little
_MAX_WORD = 100


class ProgramNames(Collection[str]):
    """The names that a program gives, as far as no author would write them; gathered when a word that could
    be one is looked up.
    """

    def __init__(self, program: Program):
        self._program = program

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(filter(_is_telling, self._program.names()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _is_telling(name) and name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        """True without gathering them: every program names something."""
        return True


def _is_telling(name: str) -> bool:
    return len(name) == 1 if name.isalpha() else any(sign.isalnum() for sign in name) and not name.isdecimal()


def program_signature(program: Program) -> Signature:
    """The signature of a program, bodies included; an empty one for more than `MOST_NODES` nodes. No code of
    a compiler runs.
    """
    operators = program.operators()
    if len(operators) > MOST_NODES:
        return Signature()
    edges = (f"{producer}>{consumer}" for producer, consumer in program.edges())
    ranks, attributes = ir_of(program).details(program)
    return Signature(_words(operators), _words(edges), _words(ranks), _words(attributes))


def _words(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({"".join(item.split())[:_MAX_WORD] for item in items}))
