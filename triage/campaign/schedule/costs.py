"""The cost of a test on a target, in milliseconds stated by its backend, not measured, so that equal
campaigns decide alike.

A campaign keeps its initial costs in its text: `11.5+930/relax:150/tir:40`, one target after another, ONNX
models first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsieve.backends.registry import ResolvedTarget
from opsieve.gen.errors import BadInput, shown

# The cost of a backend that does not state one.
USUAL = 10.0
# A target that costs more than this multiple of the cheapest gets only some programs.
SLOW = 2.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds of a test by target, in the campaign's order, and IR of the program; a missing IR is not
    taken.
    """

    by_target: tuple[Mapping[str, float], ...]

    def __bool__(self) -> bool:
        return bool(self.by_target)

    def __str__(self) -> str:
        return "+".join(
            "/".join(f"{ir}:{cost:g}" for ir, cost in sorted(each.items())) for each in self.by_target
        )

    def get_cost(self, place: int, ir: str) -> float:
        """Return the cost of a program of an IR on a target; infinity if the target does not take the IR."""
        return self.by_target[place].get(ir, float("inf"))

    @property
    def quick(self) -> tuple[int, ...]:
        """The places of targets that run every program; by ONNX models if any, since most programs are
        such.
        """
        ir = "onnx" if any("onnx" in each for each in self.by_target) else min(self.by_target[0])
        least = min(self.get_cost(place, ir) for place in range(len(self.by_target)))
        return tuple(
            place for place in range(len(self.by_target)) if self.get_cost(place, ir) <= SLOW * least
        )

    @property
    def slow(self) -> tuple[int, ...]:
        """The places of all other targets."""
        return tuple(place for place in range(len(self.by_target)) if place not in self.quick)


NONE = Costs(())


def read_stated(targets: Sequence[ResolvedTarget]) -> Costs:
    """Return the costs stated by the backends of targets."""
    found = []
    for target in targets:
        costs = target.facts.milliseconds
        found.append({ir: float(costs.get(ir, USUAL)) for ir in target.irs})
    return Costs(tuple(found))


def parse_costs(text: str) -> Costs:
    """Parse the costs in a campaign's text; raises BadInput for an invalid text."""
    try:
        found = tuple(
            {ir: float(cost) for ir, _, cost in (item.partition(":") for item in target.split("/"))}
            for target in text.split("+")
        )
        if not all(0 < cost < float("inf") for each in found for cost in each.values()):
            raise ValueError
    except ValueError:
        raise BadInput(f"{shown(text)} tells no costs; was the campaign begun by a newer opsieve?") from None
    return Costs(found)
