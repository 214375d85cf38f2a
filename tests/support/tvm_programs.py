"""Small programs in TVM's own IRs, made without TVM."""

from repository import CORPUS

from opsieve.gen.irs.tir import nodes as tir
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import encode

RELAX = CORPUS / "tvm" / "relax.json"  # the module of tests/workers/tvm_modules.py


def tir_program(*passes: str) -> TirProgram:
    """B[i] = A[i] + A[i] over 8 elements."""
    one, other = tir.buffer("A", (8,), "float32"), tir.buffer("B", (8,), "float32")
    at = tir.variable("i")
    body = tir.store(other, tir.binary("Add", tir.load(one, at), tir.load(one, at)), at)
    return TirProgram(
        encode(tir.function([one, other], tir.loop(at, tir.integer(8), body))).encode(), passes, "twice"
    )
