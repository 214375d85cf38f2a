"""Programs of TVM that depend on earlier ones: Tzer's loop over TIR functions, and mutated Relax modules.

Only a campaign of such a strategy loads this module and TVM's IRs.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from opsieve.backends.probing.imported_modules import import_models
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, Origin
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.relax.single_calls import iter_single_calls
from opsieve.gen.irs.tir import fuzzing, nodes, passes
from opsieve.gen.irs.tir.arguments import arguments, basic, program, values, with_own_names
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode
from opsieve.gen.model.program import Program
from opsieve.gen.strategies.registry import TIR, generate
from opsieve.triage.campaign.guidance import Planned, Programs
from opsieve.triage.campaign.plan import CampaignPlan

# Failures of a pass, and their share of its runs, that make it known; one test in NOTICED is drawn all the
# same, so that a fix is noticed.
OFTEN, MANY, NOTICED = 8, 0.3, 16
# one TIR function in so many is compiled and run; the others are lowered only, which is nine times cheaper
EVERY = 8


def make_guided_programs(plan: CampaignPlan, seed: int, limits: Limits, guided: bool) -> Programs:
    """Make the programs of the strategy `tir` or `relax-mutate`."""
    if plan.strategy == TIR:
        return GuidedFunctions(
            [*basic(), *make_lowered_seeds(seed, limits)], seed, fuzzing.Settings(coverage=guided)
        )
    return MutatedModules(plan, seed, import_modules(seed, limits))


class MutatedModules(Planned):
    """Relax modules mutated from a corpus, by the plan's strategy."""

    def __init__(self, plan: CampaignPlan, seed: int, corpus: Sequence[Program]):
        super().__init__(replace(plan, request=replace(plan.request, corpus=tuple(corpus))), seed)


class PassFaults:
    """Passes in many of whose runs a bug shows: campaigns draw them rarely."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def learn(self, sequence: Sequence[str], failed: bool) -> None:
        """Count a run of a sequence."""
        # Without arguments: a faulty pass fails with most of them.
        names = {item.partition(":")[0] for item in sequence}
        self._runs.update(names)
        self._failures.update(names if failed else ())

    def is_known(self, sequence: Sequence[str]) -> bool:
        """Whether a sequence has a pass that failed often, and in many of its runs."""
        return any(
            self._failures[name] >= OFTEN and self._failures[name] >= MANY * self._runs[name]
            for name in (item.partition(":")[0] for item in sequence)
        )


class GuidedFunctions:
    """TIR functions with passes, by Tzer's loop."""

    def __init__(
        self,
        seeds: Sequence[ObjectNode],
        seed: int,
        settings: fuzzing.Settings = fuzzing.Settings(),  # noqa: B008, frozen
    ):
        self.loop = fuzzing.SeedPool(
            [item for item in seeds if arguments(item) is not None], str(seed), settings
        )
        self._seed = seed
        self._under_way: dict[int, fuzzing.Mutant] = {}
        self._faults = PassFaults()

    def make_case(self, number: int) -> Case:
        """Make the next candidate of the loop."""
        candidate = self.loop.next()
        for _ in range(fuzzing.TRIES):
            # A number of tries at most, or a loop of seeds with nothing but known passes would never end.
            if number % NOTICED == 0 or not self._faults.is_known(candidate.sequence):
                break
            # As if it had failed again: its seed gets another sequence.
            self.loop.learn(candidate, True, False)
            candidate = self.loop.next()
        self._under_way[number] = candidate
        # Some passes leave a function that only code generation understands, which then cannot run.
        sequence = candidate.sequence if self.is_lowered_only(number) else passes.runnable(candidate.sequence)
        made = program(candidate.function, sequence)
        origin = Origin("tir", self._seed, wish={"number": str(number), "mutator": candidate.how})
        return Case(made, values(candidate.function, number), origin=origin)

    def is_lowered_only(self, number: int) -> bool:
        """Whether it is one of the programs, all but one in `EVERY`, that are only lowered."""
        return number % EVERY != 0

    def learn_result(self, number: int, case: Case, new: int, verdicts: Collection[str]) -> None:
        """Pass the result to the loop."""
        candidate = self._under_way.pop(number, None)
        if candidate is not None:
            self.loop.learn(candidate, set(verdicts) != {"pass"}, bool(new))
            self._faults.learn(candidate.sequence, "fail" in verdicts)


# ONNX models of a few nodes
MODELS = 24
# Relax modules
MODULES = 12
# The largest function, in nodes, that is kept.
LARGEST = 200
EMITTING = "tvm:emit=tir"
TOPI = "tvm:emit=topi"


def import_modules(seed: int, limits: Limits, models: int = 4 * MODELS) -> list[Program]:
    """Make modules with TVM's importer from random ONNX models; [] without TVM."""
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=6)) for number in range(models)]
    with Workers(limits) as workers:
        return import_models("relax", cases, workers)


def make_lowered_seeds(
    seed: int, limits: Limits, models: int = MODELS, modules: int = MODULES
) -> list[ObjectNode]:
    """Make functions with dense arguments of constant shape, each once; [] without TVM.

    They are lowered from random models and modules and from one call of each operator, and made by topi.
    """
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=4)) for number in range(models)]
    cases += [generate("relax", 1000 * seed + number, GenRequest(nodes=8)) for number in range(modules)]
    cases += [Case(single, {}) for single in iter_single_calls(seed)]
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
                # A function with a node that the reader does not know is no seed.
                continue
            # Larger functions mutate slowly, and their failures are hard to read.
            if arguments(function) is not None and nodes.size(function) <= LARGEST:
                found[program.data] = function
    return list(found.values())
