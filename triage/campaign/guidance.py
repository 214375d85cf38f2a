"""Where a campaign's programs come from, and how what they reached decides on the next ones.

Without coverage, and where nothing is to be guided, a program follows from the campaign's seed and its number
alone. With it, a program that reached native code which no other had is built upon: an ONNX model becomes a
seed of the strategy `mutate`, a TIR function and its passes a seed of Tzer's loop (gen/irs/tir/fuzzing.py).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from opsieve.gen.case.case import Case, Origin
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import ONNX
from opsieve.gen.irs.tir.arguments import arguments, program, values
from opsieve.gen.irs.tir.fuzzing import Mutant, SeedPool, Settings
from opsieve.gen.irs.tir.passes import runnable
from opsieve.gen.irs.tvm.nodes import ObjectNode
from opsieve.gen.model.program import Program
from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.plan import CampaignPlan, seed_of

POOL = 512  # programs that are built upon, at most
MEMORY = 100  # programs over which it is judged what paid lately
LEAST = 0.1  # of the programs go either way
# one TIR function in so many is compiled and run; the others are lowered only, which is nine times cheaper
EVERY = 8


class Programs(Protocol):
    """Where programs come from."""

    def case(self, number: int) -> Case:
        """The case of a test; asked once for each, in order."""

    def lowered_only(self, number: int) -> bool:
        """Whether a target that can lower a program without generating code is asked for that first, and for
        no more where it does.
        """

    def learn(self, number: int, case: Case, new: int, failed: bool) -> None:
        """How much a test was the first to reach, and whether it ended otherwise than well; in the order of
        the tests.
        """


class Planned:
    """Programs that follow from a plan and a seed alone."""

    def __init__(self, plan: CampaignPlan, seed: int):
        self._plan, self._seed = plan, seed

    def case(self, number: int) -> Case:
        """The case of a test."""
        return self._plan.case(self._seed, number)

    def lowered_only(self, number: int) -> bool:
        """No."""
        return False

    def learn(self, number: int, case: Case, new: int, failed: bool) -> None:
        """Nothing."""


class GuidedModels(Planned):
    """ONNX models: some of a plan, some mutated from those that reached something new: nine in ten of what
    has lately reached more.

    Mutation makes programs larger, and larger ones reach more; so that those do not crowd out the others,
    what is larger than the plan's own programs is not built upon, and of two the smaller is taken.
    """

    def __init__(self, plan: CampaignPlan, seed: int):
        super().__init__(plan, seed)
        self._pool: list[Program] = []
        self._built: set[int] = set()  # numbers of tests under way whose programs are built upon others
        # Lately, the share of such programs that reached something new, built upon others or not.
        self._paid = {False: 1.0, True: 1.0}

    @property
    def share(self) -> float:
        """How many of the programs are to be built upon others."""
        return 1 - LEAST if self._paid[True] > self._paid[False] else LEAST

    def case(self, number: int) -> Case:
        """The case of a test; what is built upon depends on what was learnt until now."""
        rng = Rng(f"guidance {self._seed} {number}", 0)
        if self._pool and rng.chance(self.share):
            request = self._plan.request_of(number)
            request = replace(
                request, corpus=(min(rng.choice(self._pool), rng.choice(self._pool), key=_size),)
            )
            try:
                made = generate("mutate", seed_of(self._seed, number), request)
            except BadInput:  # it holds something that mutation cannot read
                pass
            else:
                self._built.add(number)
                return made
        return super().case(number)

    def learn(self, number: int, case: Case, new: int, failed: bool) -> None:
        """Build on the program, when it reached something new."""
        built = number in self._built
        self._built.discard(number)
        self._paid[built] += (math.log2(1 + (0 if failed else new)) - self._paid[built]) / MEMORY
        request = self._plan.request
        largest = request.between[1] if request.between else request.nodes
        if new and not failed and case.program.ir == ONNX and case.program.size <= largest:
            if len(self._pool) >= POOL:
                self._pool.pop(Rng(f"pool {self._seed} {number}", 0).below(POOL))
            self._pool.append(case.program)


def _size(program: Program) -> int:
    return program.size


class MutatedModules(Planned):
    """Relax modules mutated from a corpus, by the plan's strategy."""

    def __init__(self, plan: CampaignPlan, seed: int, corpus: Sequence[Program]):
        super().__init__(replace(plan, request=replace(plan.request, corpus=tuple(corpus))), seed)


class GuidedFunctions:
    """TIR functions with passes, by Tzer's loop."""

    def __init__(self, seeds: Sequence[ObjectNode], seed: int, settings: Settings = Settings()):  # noqa: B008 - frozen
        self.loop = SeedPool([item for item in seeds if arguments(item) is not None], str(seed), settings)
        self._seed = seed
        self._under_way: dict[int, Mutant] = {}

    def case(self, number: int) -> Case:
        """The next candidate of the loop."""
        candidate = self._under_way[number] = self.loop.next()
        sequence = candidate.sequence if self.lowered_only(number) else runnable(candidate.sequence)
        made = program(candidate.function, sequence)
        origin = Origin("tir", self._seed, wish={"number": str(number), "mutator": candidate.how})
        return Case(made, values(candidate.function, number), origin=origin)

    def lowered_only(self, number: int) -> bool:
        """All but one in so many."""
        return number % EVERY != 0

    def learn(self, number: int, case: Case, new: int, failed: bool) -> None:
        """Tell the loop."""
        candidate = self._under_way.pop(number, None)
        if candidate is not None:
            self.loop.learn(candidate, failed, bool(new))
