"""Faults of our own in real TVM (tests/support/planted_tvm.py), reduced: to the operators, and the passes,
that are guilty.
"""

from collections.abc import Iterator

import planted_tvm
import pytest

from opsieve.backends import registry
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.relax.generator import generate
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.strategies.relax import fitting_inputs
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.tvm.subject import TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure

FILLS = {"relax.full", "relax.ones", "relax.zeros"}
TWELVE = (
    *(
        "CanonicalizeBindings",
        "ComputePrimValue",
        "Normalize",
        "DeadCodeElimination",
        "FoldConstant",
        "LambdaLift",
    ),
    *(
        "ConvertToDataflow",
        "EliminateCommonSubexpr",
        "NormalizeGlobalVar",
        "ToNonDataflow",
        "TopologicalSort",
        "Normalize",
    ),
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    pytest.importorskip("tvm")
    with pytest.MonkeyPatch.context() as patch, Workers() as found:
        patch.setitem(registry._entries(), planted_tvm.NAME, {planted_tvm.ENTRY.value: planted_tvm.ENTRY})
        yield found
    registry.plugin.cache_clear()


def reduced(
    workers: Workers, fault: str, policy: str, seed: int, passes: tuple[str, ...] = ()
) -> Reduction[TvmSubject]:
    chosen = POLICIES[policy]()
    chosen.bindings = 6
    made = generate(seed, chosen)
    program = RelaxProgram(to_json(made.module).encode(), passes)
    case = Case(program, fitting_inputs(program, made.symbols, seed))
    premise = find(case, [resolve(f"{planted_tvm.NAME}:target=llvm-O0,fault={fault}")], None, workers)
    start = TvmSubject(program, dict(case.inputs))
    return reduce_failure(
        RelaxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners()
    )


def operators(found: Reduction[TvmSubject]) -> list[str]:
    return [name for name in found.best.program.operators() if name not in FILLS]


@pytest.mark.slow  # in make test: the two guilty passes below, and test_reduce_tvm.py without TVM
def test_a_wrong_value_comes_down_to_its_operator(workers: Workers) -> None:
    found = reduced(workers, "value/relax.squeeze", "dtypes", 3)
    assert (found.same, found.minimal, operators(found)) == (True, True, ["relax.squeeze"])


@pytest.mark.slow(
    seconds=10
)  # in make test: test_reduce_tvm.py reduces in TVM, test_bisect_tvm_passes.py finds its passes
def test_two_guilty_passes_of_twelve_are_left(workers: Workers) -> None:
    found = reduced(workers, "error/FoldConstant>ToNonDataflow", "dtypes", 0, TWELVE)
    assert found.minimal
    assert found.best.program.passes == ("FoldConstant", "ToNonDataflow")
    assert operators(found) == []
