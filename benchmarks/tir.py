"""TIR functions: faults of our own planted in real TVM, reduced.

    python -m benchmarks.tir faults [--functions 20]

Seeds from --seed on. The known minimum of a fault at an operator, or at one that has another as an argument,
is these operators in one statement; of a fault at a loop the loop around one statement; of two guilty passes
these two, over one statement.
"""

import argparse
import random
from collections import Counter

from benchmarks.reducing.planted import Planted, reduce_planted, report

from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.arguments import basic, program, values
from opsieve.gen.irs.tir.fuzzing import mutate_function
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode, encode
from opsieve.reducer.irs.tvm_reduction import TirReduction

KINDS = ("value", "error", "crash")
STEPS = 12  # mutations of a basic function
# what TVM 0.27 fails at by itself (docs/benchmarks/tir.md)
KNOWN = ("double_buffer_scope", "tirx.q_multiply_shift")
PLAIN = ("tirx.StmtSimplify", "tirx.RemoveNoOp", "tirx.UnrollLoop", "tirx.ConvertSSA", "tirx.SkipAssert", "tirx.RemoveAssume",
         "s_tir.StmtSimplify", "s_tir.CanonicalizeLoop", "s_tir.HoistIfThenElse", "s_tir.RenormalizeSplitPattern",
         "s_tir.RewriteUnsafeSelect", "s_tir.AnnotateIrregularLoop", "s_tir.RemoveStoreUndef", "s_tir.LowerInitBlock",
         "s_tir.UnifyThreadBinding", "s_tir.LowerMatchBuffer")  # fmt: skip


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


def planted(seed: int) -> Planted | None:
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


def is_minimum(best: TirProgram, fault: str, wanted: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether the known minimum is left, in a function of one input, and what is left."""
    left, by_passes = Counter(best.operators()), "pass:" in fault
    rest = left - Counter(() if by_passes else wanted)
    minimum = rest.total() == 1 and (left - rest).total() == (0 if by_passes else len(wanted))
    minimum = minimum and tuple(best.passes) == (wanted if by_passes else ()) and len(best.inputs()) == 1
    return minimum, " ".join((*sorted(left.elements()), *best.passes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["faults"])
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with Workers() as workers:
        report(
            planted,
            lambda found: reduce_planted(TirReduction(), found, workers, is_minimum),
            options.functions,
            options.seed,
        )


if __name__ == "__main__":
    main()
