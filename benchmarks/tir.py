"""TIR functions: planted faults through real TVM, reduced; and whether optimised functions are slower than
unoptimised ones.

    python -m benchmarks.tir faults [--functions 20]        a fault of our own in real TVM
    (tests/support/planted_tvm.py), reduced python -m benchmarks.tir slower [--functions 40]        the oracle
    `slowdown` on random functions with random passes

Seeds from --seed on. The known minimum of a fault at an operator, or at one that has another as an argument,
is these operators in one statement; of a fault at a loop the loop around one statement; of two guilty passes
these two, over one statement.
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

from opsieve.backends import registry
from opsieve.backends.judge.performance import measure_slowdown
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.tir import nodes as N, passes
from opsieve.gen.irs.tir.arguments import program, values
from opsieve.gen.irs.tir.fuzzing import mutate_function
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tir.seeds import basic
from opsieve.gen.irs.tvm.nodes import ObjectNode, encode
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.tvm.subject import TvmSubject
from opsieve.reducer.irs.tvm_reduction import TirReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

KINDS = ("value", "error", "crash")
STEPS = 12  # mutations of a basic function
# what TVM 0.27 fails at by itself (docs/benchmarks/tir.md)
KNOWN = (
    "double_buffer_scope",
    "tirx.q_multiply_shift",
)
PLAIN = ("tirx.StmtSimplify", "tirx.RemoveNoOp", "tirx.UnrollLoop", "tirx.ConvertSSA", "tirx.SkipAssert", "tirx.RemoveAssume",
         "s_tir.StmtSimplify", "s_tir.CanonicalizeLoop", "s_tir.HoistIfThenElse", "s_tir.RenormalizeSplitPattern",
         "s_tir.RewriteUnsafeSelect", "s_tir.AnnotateIrregularLoop", "s_tir.RemoveStoreUndef", "s_tir.LowerInitBlock",
         "s_tir.UnifyThreadBinding", "s_tir.LowerMatchBuffer")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One reduction: what was planted, whether the known minimum was reached, what it took."""

    planted: str
    before: str
    reached: bool
    certified: bool
    to_best: int
    checks: int
    left: str


def function_of(seed: int) -> ObjectNode:
    """A basic function, mutated; without what TVM itself is known to fail at, which would hide the fault."""
    rng = Rng(f"benchmark {seed}", 0)
    made = rng.choice(basic())
    for _ in range(STEPS):
        other, _ = mutate_function(rng, made)
        text = encode(other)
        made = made if any(word in text for word in KNOWN) else other
    return made


def name_of(node: ObjectNode) -> str:
    """As `planted_tvm.named_node`."""
    op = node.get("op") if node.type == "ir.Call" else None
    return str(op.raw) if isinstance(op, ObjectNode) else node.type


def planted(seed: int) -> tuple[Case, str, tuple[str, ...]] | None:
    """A function, the fault, and the operators, the loop or the passes that have to be left."""
    rng = random.Random(f"planted {seed}")
    function = function_of(seed)
    nodes = [node for node in N.walk(function) if name_of(node).startswith(("prim.", "tirx."))]
    operators = sorted({name_of(node) for node in nodes if N.dtype(node)} - {"prim.Let"})
    edges = sorted(
        {
            (name_of(below), name_of(node))
            for node in nodes
            if N.dtype(node)
            for below in N.children(node)
            if name_of(below) in operators
        }
        - {("prim.Let", "prim.Let")}
    )
    way, sequence = rng.random(), ()
    if way < 0.2:
        sequence = tuple(rng.sample(PLAIN, 8))
        places = sorted(rng.sample(range(8), 2))
        wanted: tuple[str, ...] = (sequence[places[0]], sequence[places[1]])
    elif way < 0.35:
        wanted = ("tirx.For",)
    elif way < 0.6 and edges:
        wanted = rng.choice([edge for edge in edges if "prim.Let" not in edge] or [("tirx.For",)])
    elif operators:
        wanted = (rng.choice(operators),)
    else:
        return None
    fault = f"{rng.choice(KINDS)}/{'pass:' if sequence else ''}{'>'.join(wanted)}"
    return Case(program(function, sequence, f"planted-{seed}"), values(function, seed)), fault, wanted


def reduced(case: Case, fault: str, wanted: tuple[str, ...], workers: Workers) -> Run | None:
    """The reduction of one planted fault; None where it does not show."""
    target: ResolvedTarget = resolve(f"{planted_tvm.NAME}:target=llvm-O0,fault={fault}")
    try:
        premise = find(case, [target], None, workers)
    except NoFailure:
        return None
    assert isinstance(case.program, TirProgram)
    start = TvmSubject(case.program, dict(case.inputs))
    heard: list[int] = [0]
    at_best: list[int] = [0]
    listeners: Listeners[TvmSubject] = Listeners(
        lambda at: heard.append(at.checks), lambda subject: at_best.append(heard[-1])
    )
    result = reduce_failure(TirReduction(), start, premise, [workers], "fingerprint", Journal(""), listeners)
    best = result.best.program
    left = Counter(best.operators())
    by_passes = "pass:" in fault
    rest = left - Counter(() if by_passes else wanted)
    minimum = rest.total() == 1 and (left - rest).total() == (0 if by_passes else len(wanted))
    minimum = minimum and tuple(best.passes) == (wanted if by_passes else ()) and len(best.inputs()) == 1
    before = f"{case.program.size}, {len(case.program.passes)}"
    words = " ".join((*sorted(left.elements()), *best.passes))
    return Run(fault, before, minimum and result.same, result.minimal, at_best[-1], result.checks, words)


def faults(count: int, seed: int, workers: Workers) -> None:
    """Planted faults that show, reduced."""
    runs: list[Run] = []
    print(
        "| planted | operators, passes before | known minimum | certified | checks to the result | in all |"
        " left |"
    )
    print("|---|---|---|---|---|---|---|")
    while len(runs) < count:
        found = planted(seed)
        run = reduced(*found, workers) if found else None
        seed += 1
        if run is not None:
            runs.append(run)
            said = (run.planted, run.before, run.reached, run.certified, run.to_best, run.checks, run.left)
            print("| " + " | ".join(map(str, said)) + " |", flush=True)
    print(
        f"{sum(run.reached for run in runs)} of {count} at the known minimum,"
        f" {sum(run.certified for run in runs)} certified; checks to the result: median"
        f" {median(run.to_best for run in runs):g}, in all {median(run.checks for run in runs):g}"
    )


def slower(count: int, seed: int, workers: Workers) -> None:
    """The oracle on functions that run: how many are slower than the margin allows, and the ratios."""
    target, ratios, said = resolve("tvm"), Counter[str](), 0
    begun = time.process_time()
    while said < count:
        function = function_of(seed)
        sequence = passes.runnable(passes.draw_passes(Rng(f"slower {seed}", 0)))
        found = measure_slowdown(program(function, sequence), values(function, seed), target, workers)
        seed += 1
        if found.verdict == "undecided":
            continue
        said += 1
        ratios[found.verdict] += 1
        print(f"{seed - 1} {found.verdict}: {found.reason}; {' '.join(sequence)}", flush=True)
    print(f"{dict(ratios)} of {count}; {time.process_time() - begun:.1f} s of CPU in this process")


def main() -> None:
    """One of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["faults", "slower"])
    parser.add_argument("--functions", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    registry._entries()[planted_tvm.NAME] = {planted_tvm.ENTRY.value: planted_tvm.ENTRY}
    with Workers() as workers:
        if options.what == "faults":
            faults(options.functions or 20, options.seed, workers)
        else:
            slower(options.functions or 40, options.seed, workers)


if __name__ == "__main__":
    main()
