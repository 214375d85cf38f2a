"""The record of TIR, TVM's IR of loops."""

from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.program import tvm_ir

TIR = tvm_ir(
    TirProgram,
    # A second run may find other values there, and that is no fault yet.
    can_be_undefined=lambda program: True,
    # A function runs for microseconds: its worker tells the time of a thousand calls when asked for further
    # runs.
    timed_repeats=1,
    strategies={"tir": 100},
    evaluator="opsieve.backends.reference.tvm_requests:prepare_tir",
    reduction="opsieve.reducer.irs.tvm_reduction:TirReduction",
    importer="tvm:emit=tir",
)
