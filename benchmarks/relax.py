"""Relax modules: how many are well-formed, which build and run, what sequences of passes do, how planted
faults are reduced.

    python -m benchmarks.relax modules [--models 5000]       well-formed and type-checked; forms and
    operators; modules a CPU second python -m benchmarks.relax builds [--models 60]          of each policy so
    many: built and run by the default pipeline python -m benchmarks.relax faults [--models 30]          a
    fault of our own in real TVM (tests/support/planted_tvm.py), reduced python -m benchmarks.relax sequences
    [--models 10]       twelve passes of which two are guilty, reduced

Seeds from --seed on. Sequences on generated modules are a campaign: `opsieve fuzz -t tvm:target=llvm-O0
--strategy relax-passes`. TVM's check infers every type anew and compares. Times are CPU time of this process;
TVM's own is not in them.
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import planted_tvm
from relax_interface import operators as operators_in

from opsieve.backends import registry
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.programs import get_validator
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.relax import passes
from opsieve.gen.irs.relax.catalogue import UNBUILDABLE, Solutions, operators
from opsieve.gen.irs.relax.draw import Draw
from opsieve.gen.irs.relax.generator import Generated, generate
from opsieve.gen.irs.relax.policies import FORMS, POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import Call, RelaxOperator, Var
from opsieve.gen.irs.relax.walk import all_bindings, functions
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.strategies.relax import fitting_inputs
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.tvm.subject import TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

GROUP = 64
KINDS = ("value", "error", "crash")
FILLS = {"relax.full", "relax.ones", "relax.zeros"}  # what a reduction puts in the place of what it takes out


def main() -> None:
    """One of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["modules", "builds", "faults", "sequences"])
    parser.add_argument("--models", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = options.models or {"modules": 5000, "builds": 60, "faults": 30, "sequences": 10}[options.what]
    with Workers() as workers:
        if options.what == "modules":
            modules(count, options.seed, workers)
        elif options.what == "builds":
            builds(count, options.seed, workers)
        else:
            registry._entries()[planted_tvm.NAME] = {planted_tvm.ENTRY.value: planted_tvm.ENTRY}
            reductions(options.what, count, options.seed, workers)


def modules(count: int, seed: int, workers: Workers) -> None:
    """Modules of every policy in turn, checked by TVM."""
    solutions = Solutions(Draw(random.Random(seed)))
    names, found = list(POLICIES), ModuleCounts()
    for first in range(seed, seed + count, GROUP):
        numbers = range(first, min(first + GROUP, seed + count))
        began = time.process_time()
        made = [generate(number, POLICIES[names[number % len(names)]](), solutions) for number in numbers]
        texts = [to_json(item.module) for item in made]
        found.seconds += time.process_time() - began
        found.note(made, texts, workers)
        print(f"\r{found.count}/{count}, {found.count - found.well_formed} refused", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(
        f"{found.count} modules, {found.well_formed} well-formed and type-checked;"
        f" {found.count / found.seconds:.0f} a CPU second"
    )
    for reason, times in found.refused.most_common(5):
        print(f"  refused {times}: {reason}")
    print("| form of expression | modules with it | times |\n|---|---|---|")
    for form in FORMS:
        print(f"| {form} | {found.with_form[form]} | {found.forms[form]} |")
    known = set(operators()) - set(UNBUILDABLE)
    print(
        f"operators: {len(known & set(found.operators))} of {len(known)} that TVM can build,"
        f" {len(set(found.operators))} in all"
    )
    print(f"missing: {', '.join(sorted(known - set(found.operators))) or 'none'}")
    least = sorted(known & set(found.operators), key=lambda name: found.operators[name])[:8]
    print("rarest: " + ", ".join(f"{name.removeprefix('relax.')} {found.operators[name]}" for name in least))


class ModuleCounts:
    """What was seen of the modules so far."""

    def __init__(self) -> None:
        self.count = self.well_formed = 0
        self.seconds = 0.0
        self.forms: Counter[str] = Counter()
        self.with_form: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def note(self, made: list[Generated], texts: list[str], workers: Workers) -> None:
        """Some more modules."""
        for item in made:
            self.forms.update(item.forms)
            self.with_form.update(set(item.forms))
            self.operators.update(operators_in(item.module))
        tests = [Test(RelaxProgram(text.encode()), {}) for text in texts]
        for answer in workers.observe_many(get_validator(tests[0].program), tests):
            self.well_formed += answer.outcome == "ok"
            if answer.outcome != "ok":
                self.refused[f"{answer.outcome}: {answer.message[:160]}"] += 1
        self.count += len(made)


def builds(count: int, seed: int, workers: Workers) -> None:
    """The share of each policy's modules that TVM builds and runs."""
    solutions = Solutions(Draw(random.Random(seed)))
    target = resolve("tvm:target=llvm-O0")
    print(
        "| policy | modules | build and run | lacks that TVM states | share but for these | the others"
        " |\n|---|---|---|---|---|---|"
    )
    for name, policy in POLICIES.items():
        tests = []
        for number in range(seed, seed + count):
            made = generate(number, policy(), solutions)
            program = RelaxProgram(to_json(made.module).encode())
            tests.append(Test(program, fitting_inputs(program, made.symbols, number)))
        seen = list(workers.observe_many(target, tests))
        ran = sum(answer.outcome == "ok" for answer in seen)
        lacks = sum(answer.outcome == "unsupported" for answer in seen)
        why = Counter(answer.message[:90] for answer in seen if answer.outcome not in ("ok", "unsupported"))
        others = "; ".join(f"{times} x {' '.join(text.split())}" for text, times in why.most_common(3))
        print(
            f"| {name} | {count} | {ran} | {lacks} | {ran / max(1, count - lacks):.1%} | {others} |",
            flush=True,
        )


@dataclass(frozen=True)
class FaultReduction:
    """One reduction: what was planted, whether the known minimum was reached, what it took."""

    planted: str
    before: int
    reached: bool
    certified: bool
    to_best: int
    checks: int
    left: str


def reductions(what: str, count: int, seed: int, workers: Workers) -> None:
    """Planted faults that show, reduced."""
    draw = planted if what == "faults" else guilty_passes
    runs: list[FaultReduction] = []
    print(
        "| planted | operations, passes before | known minimum | certified | checks to the result | checks in"
        " all | left |"
    )
    print("|---|---|---|---|---|---|---|")
    while len(runs) < count:
        found = draw(seed)
        run = reduced(*found, workers) if found else None
        seed += 1
        if run is not None:
            runs.append(run)
            print(
                f"| {run.planted} | {run.before} | {run.reached} | {run.certified} | {run.to_best} |"
                f" {run.checks} | {run.left} |",
                flush=True,
            )
    print(
        f"{sum(run.reached for run in runs)} of {count} at the known minimum,"
        f" {sum(run.certified for run in runs)} certified; checks to the result: median"
        f" {median(run.to_best for run in runs)}, largest {max(run.to_best for run in runs)}; in all: median"
        f" {median(run.checks for run in runs)}"
    )


def planted(seed: int) -> tuple[Case, str, tuple[str, ...]] | None:
    """A module, the fault, and the operators that have to be left: one of the module, or two of which one
    reads the other.
    """
    rng = random.Random(f"planted {seed}")
    case, made = subject(seed, rng)
    edges = sorted(set(pairs(made)))
    if rng.random() < 0.5 and edges:
        wanted = rng.choice(edges)
    else:
        present = sorted(set(operators_in(made.module)) - FILLS - {"relax.call_tir"})
        if not present:
            return None
        wanted = (rng.choice(present),)
    return case, f"{rng.choice(KINDS)}/{'>'.join(wanted)}", wanted


def guilty_passes(seed: int) -> tuple[Case, str, tuple[str, ...]] | None:
    """A module with twelve passes of which two, in this order, are guilty."""
    rng = random.Random(f"guilty {seed}")
    case, _ = subject(seed, rng)
    plain = [
        rule.name for rule in passes.RULES if not rule.after and not rule.loose and rule.name != "LegalizeOps"
    ]
    steps = tuple(rng.sample(plain, 12))
    places = sorted(rng.sample(range(12), 2))
    wanted = (steps[places[0]], steps[places[1]])
    program = RelaxProgram(case.program.data, steps, case.program.name)
    return Case(program, case.inputs), f"{rng.choice(KINDS)}/{'>'.join(wanted)}", wanted


def subject(seed: int, rng: random.Random) -> tuple[Case, Generated]:
    """A module with inputs, of any policy but that of known faults."""
    policy = POLICIES[list(POLICIES)[seed % 6]]()
    policy.bindings = 8
    made = generate(rng.getrandbits(60), policy)
    program = RelaxProgram(to_json(made.module).encode(), (), f"planted-{seed}")
    return Case(program, fitting_inputs(program, made.symbols, seed)), made


def pairs(made: Generated) -> list[tuple[str, str]]:
    """The operators of which one reads the other's result."""
    found = []
    for _, function in functions(made.module):
        calls = [
            (b.var.name, b.value)
            for b in all_bindings(function.body)
            if isinstance(b.value, Call) and isinstance(b.value.op, RelaxOperator)
        ]
        by_name = {name: call.op.name for name, call in calls if isinstance(call.op, RelaxOperator)}
        for _, call in calls:
            for arg in call.args:
                first = by_name.get(arg.name, "") if isinstance(arg, Var) else ""
                if first and not {first, call.op.name} & (FILLS | {"relax.call_tir"}):  # type: ignore[union-attr]
                    found.append((first, call.op.name))  # type: ignore[union-attr]
    return found


def reduced(case: Case, fault: str, wanted: tuple[str, ...], workers: Workers) -> FaultReduction | None:
    """The reduction of one planted fault; None where it does not show in what main gives, or where TVM itself
    fails before it can.
    """
    if workers.observe(resolve("tvm:target=llvm-O0"), case.program, case.inputs).outcome != "ok":
        return None
    target: ResolvedTarget = resolve(f"{planted_tvm.NAME}:target=llvm-O0,fault={fault}")
    try:
        premise = find(case, [target], None, workers)
    except NoFailure:
        return None
    form, journal = RelaxReduction(), Journal("")
    start = TvmSubject(RelaxProgram(case.program.data, case.program.passes), dict(case.inputs))
    heard: list[int] = [0]
    at_best: list[int] = [0]
    listeners: Listeners[TvmSubject] = Listeners(
        lambda at: heard.append(at.checks), lambda subject: at_best.append(heard[-1])
    )
    result = reduce_failure(form, start, premise, [workers], "fingerprint", journal, listeners)
    best = result.best.program
    left = [name for name in best.operators() if name not in FILLS]
    by_passes = not wanted[0].startswith("relax.")
    minimum = (
        (list(best.passes) == list(wanted) and not left) if by_passes else sorted(left) == sorted(wanted)
    )
    before = f"{case.program.size}, {len(case.program.passes)}"
    what = " ".join((*left, *best.passes)).replace("relax.", "")
    functions_left = len(from_json(best.data.decode()).functions)
    reached = minimum and functions_left == 1 and result.same
    if not reached:
        print(result.best.program.text(), file=sys.stderr)
    return FaultReduction(
        fault.replace("|", "/"), before, reached, result.minimal, at_best[-1], result.checks, what
    )


if __name__ == "__main__":
    main()
