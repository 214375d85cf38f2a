"""Where a campaign's programs come from, and how what they reached decides on the next ones.

A program follows from the campaign's seed and its number alone, except in the loops of TVM. There a TIR function
with its passes that reached native code which no other had becomes a seed of Tzer's loop
(gen/irs/tir/fuzzing.py), and Relax modules are mutated from a corpus. Coverage of ONNX models is only recorded:
building upon models that reach something new did not pay (docs/explanation/coverage.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from opsieve.backends.probing.imported_modules import imported
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, Origin
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.tir.arguments import arguments, program, values, with_own_names
from opsieve.gen.irs.tir.fuzzing import Mutant, SeedPool, Settings
from opsieve.gen.irs.tir.nodes import size
from opsieve.gen.irs.tir.passes import runnable
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode
from opsieve.gen.model.program import Program
from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.plan import CampaignPlan

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


MODELS = 24  # ONNX models of a few nodes
MODULES = 12  # Relax modules
LARGEST = 200  # nodes of a function that is taken
EMITTING = "tvm:emit=tir"
TOPI = "tvm:emit=topi"


def imported_modules(seed: int, limits: Limits, models: int = 4 * MODELS) -> list[Program]:
    """What TVM's importer makes of random ONNX models; none where TVM is not installed."""
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=6)) for number in range(models)]
    with Workers(limits) as workers:
        return imported("relax", cases, workers)


def lowered_seeds(
    seed: int, limits: Limits, models: int = MODELS, modules: int = MODULES
) -> list[ObjectNode]:
    """Functions with dense arguments of constant shape, each once; none where TVM is not installed."""
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=4)) for number in range(models)]
    cases += [generate("relax", 1000 * seed + number, GenRequest(nodes=8)) for number in range(modules)]
    found: dict[bytes, ObjectNode] = {}
    with Workers(limits) as workers:
        answers = [
            *workers.observe_many(resolve(EMITTING), [Test(case.program, case.inputs) for case in cases]),
            workers.observe(resolve(TOPI), cases[0].program, cases[0].inputs),
        ]
    for answer in answers:
        for value in (answer.outputs or {}).values():
            program = TirProgram(bytes(value.tobytes()))
            try:
                function = with_own_names(program.entry)
            except BadInput:
                continue
            if arguments(function) is not None and size(function) <= LARGEST:
                found[program.data] = function
    return list(found.values())
