"""TIR functions with sequences of passes, without feedback: a basic function mutated as often as nodes are
wished for.

`opsieve fuzz --strategy tir` has Tzer's loop in its place (triage/campaign/guided_programs.py), which is
guided by what was reached.
"""

from opsieve.gen.case.case import Case, Origin
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve.gen.irs.tir import arguments, fuzzing, passes
from opsieve.gen.strategies.registry import TIR


def tir(request: GenRequest, seed: int) -> Case:
    """Return the function of a seed, with passes to apply before it is lowered."""
    rng = Rng(f"{TIR} {seed}", 0)
    function = rng.choice(arguments.basic())
    for _ in range(request.nodes):
        function, _ = fuzzing.mutate_function(rng, function)
    sequence = passes.runnable(passes.draw_passes(rng))
    return Case(
        arguments.program(function, sequence),
        arguments.values(function, seed),
        origin=Origin(TIR, seed, wish=to_record(request)),
    )
