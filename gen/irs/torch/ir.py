"""The record of PyTorch programs."""

from opsieve.gen.irs.ir import IR, ScriptFacts
from opsieve.gen.irs.torch.program import GRAPH, SCRIPT, TorchProgram

TORCH = IR(
    name="torch",
    suffix=".json",
    also_reads=(".pt2",),
    files=(GRAPH, SCRIPT),
    read=TorchProgram.read,
    load=TorchProgram.load,
    # Eager torch, which refuses what does not fit together.
    validator="torch",
    checked_by="eager PyTorch, which runs the program",
    # `--strategy torch` alone makes programs of it.
    strategies={"torch": 0},
    evaluator="opsieve.backends.compilers.torch.targets:evaluate_program",
    reduction="opsieve.reducer.irs.torch:TorchReduction",
    can_be_undefined=lambda program: any("empty" in operator for operator in program.operators()),
    keeps_script=True,
    script_parser="torch:tell=program",
    script_language="PyTorch",
    is_script=lambda source: b"torch" in source or source[:2] == b"PK",
    script=ScriptFacts(
        noun="program",
        authors={
            "reference:float64": "eager PyTorch in float64",
            "reference": "eager PyTorch",
        },
    ),
)
