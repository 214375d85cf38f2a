"""A Relax module as a tree, with its inputs and passes: what the dimensions of passes.py change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from opsieve.gen.irs.relax.known_faults import patterns
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import Module
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.model.tensors import Value
from opsieve.reducer.irs.relax.cleaning import Unread, cleaned, is_closed, unread


@dataclass(frozen=True)
class RelaxSubject:
    """A module, the passes before it is built, and a value for each parameter of main; nothing in it is ever
    changed in place.
    """

    module: Module
    steps: tuple[str, ...]
    inputs: Mapping[str, Value]
    keeps_parameters: bool = False  # whether edits leave parameters alone that they leave unread

    @cached_property
    def program(self) -> RelaxProgram:
        """The module in TVM's JSON."""
        return RelaxProgram(to_json(self.module).encode(), self.steps)

    @cached_property
    def known(self) -> frozenset[str]:
        """What the module has of what TVM is known to fail at."""
        return patterns(self.module)

    @cached_property
    def unread(self) -> Unread:
        """What nothing reads: a failure may need it all the same."""
        return unread(self.module)

    def having(self, module: Module) -> "RelaxSubject | None":
        """The subject with another module, without what nothing reads any more; what nothing read before
        stays, to go by an edit of its own. None where that is the same, lacks what it reads, or has something
        that TVM is known to fail at and this one has not: that would be another failure.
        """
        return self.exactly(cleaned(module, self.unread, not self.keeps_parameters))

    def exactly(self, module: Module) -> "RelaxSubject | None":
        """The same, with all that is in the module."""
        if not is_closed(module) or module == self.module or not patterns(module) <= self.known:
            return None
        kept = {param.name for param in module.main.params}
        return replace(self, module=module, inputs={n: v for n, v in self.inputs.items() if n in kept})
