"""Relax modules: how many are well-formed, and how planted faults and sequences of passes are reduced.

    python -m benchmarks.relax modules [--models 5000]      well-formed and type-checked; forms, operators,
                                                            modules a CPU second
    python -m benchmarks.relax faults [--models 30]         a fault of our own in real TVM, reduced
    python -m benchmarks.relax sequences [--models 10]      twelve passes of which two are guilty, reduced

Seeds from --seed on. TVM's check infers every type anew and compares. Times are CPU time of this process;
TVM's own is not in them.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from benchmarks.reducing.planted import Planted, Run, reduce_planted, report
from relax_interface import operators as operators_in

from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import get_validator
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.relax import passes
from opsieve.gen.irs.relax.catalogue import UNBUILDABLE, Solutions, operators
from opsieve.gen.irs.relax.declaration import Draw
from opsieve.gen.irs.relax.generator import Generated, generate
from opsieve.gen.irs.relax.policies import FORMS, POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import Call, RelaxOperator, Var
from opsieve.gen.irs.relax.walk import all_bindings, functions
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.strategies.relax import fitting_inputs
from opsieve.reducer.irs.tvm_reduction import RelaxReduction

GROUP = 64
KINDS = ("value", "error", "crash")
FILLS = {"relax.full", "relax.ones", "relax.zeros"}  # what a reduction puts in the place of what it takes out


def main() -> None:
    """One of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["modules", "faults", "sequences"])
    parser.add_argument("--models", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = options.models or {"modules": 5000, "faults": 30, "sequences": 10}[options.what]
    with Workers() as workers:
        if options.what == "modules":
            modules(count, options.seed, workers)
        else:
            draw = planted if options.what == "faults" else guilty_passes
            report(draw, lambda found: reduced(found, workers), count, options.seed)


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


def planted(seed: int) -> Planted | None:
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


def guilty_passes(seed: int) -> Planted | None:
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


def is_minimum(best: RelaxProgram, fault: str, wanted: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether only the guilty operators or passes are left, in one function, and what is left."""
    left = [name for name in best.operators() if name not in FILLS]
    if wanted[0].startswith("relax."):
        minimum = sorted(left) == sorted(wanted)
    else:
        minimum = list(best.passes) == list(wanted) and not left
    one = len(from_json(best.data.decode()).functions) == 1
    return minimum and one, " ".join((*left, *best.passes)).replace("relax.", "")


def reduced(found: Planted, workers: Workers) -> Run | None:
    """The reduction of one planted fault; None also where TVM itself fails before it can show."""
    if workers.observe(resolve("tvm:target=llvm-O0"), found[0].program, found[0].inputs).outcome != "ok":
        return None
    return reduce_planted(RelaxReduction(), found, workers, is_minimum)


if __name__ == "__main__":
    main()
