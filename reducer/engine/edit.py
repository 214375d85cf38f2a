"""Edits and the passes that propose them: the interface between a dimension of reduction and the engine.

A pass lists single steps that would make a subject simpler; the engine (`opsieve.reducer.engine.engine`)
decides which are tried, merges those that do not touch each other, and drops those that lose the failure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class Edit(Generic[S]):
    """One step that makes a subject strictly simpler in the order of its form.

    `label` is for the log and the certificate ("drop node 17 (Relu)"). `touches` are the names of the nodes
    and values it changes: edits with disjoint touches may be merged. `apply` is pure and returns `None` when
    the edit no longer applies. `parts` are the keys of the parts (`opsieve.reducer.engine.census`) that it
    simplifies, where they differ from `touches`.
    """

    label: str
    touches: frozenset[str]
    apply: Callable[[S], S | None]
    parts: frozenset[str] | None = None

    @property
    def simplifies(self) -> frozenset[str]:
        """Return the keys of the parts that it simplifies."""
        return self.touches if self.parts is None else self.parts


class Pass(Protocol[S]):
    """One dimension of reduction."""

    # The name of the dimension in the certificate.
    name: str

    def edits(self, subject: S) -> Iterator[Edit[S]]:
        """Yield every remaining single edit, the largest first; the same subject gives the same edits."""


@dataclass
class ListedPass(Generic[S]):
    """A dimension whose edits a function lists."""

    name: str
    listed: Callable[[S], Iterator[Edit[S]]]

    def edits(self, subject: S) -> Iterator[Edit[S]]:
        """Yield the edits that the function lists."""
        return self.listed(subject)
