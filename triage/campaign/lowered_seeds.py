"""Seeds out of ONNX models: functions of TIR that TVM makes of them and of Relax modules (Tzer, section 4.2,
takes those of TVM's model zoo), and the modules that its importer makes.
"""

from opsieve.backends.probing.imported_modules import imported
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.tir.arguments import arguments, with_own_names
from opsieve.gen.irs.tir.nodes import size
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode
from opsieve.gen.model.program import Program
from opsieve.gen.strategies.registry import generate

MODELS = 24  # ONNX models of a few nodes
MODULES = 12  # Relax modules
LARGEST = 200  # nodes of a function that is taken
EMITTING = "tvm:emit=tir"
TOPI = "tvm:emit=topi"


def imported_modules(seed: int, limits: Limits, models: int = 4 * MODELS) -> list[Program]:
    """What TVM's importer makes of random ONNX models; none where TVM is not installed."""
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=6)) for number in range(models)]
    with Workers(limits) as workers:
        return imported("relax", cases, workers)


def lowered_seeds(
    seed: int, limits: Limits, models: int = MODELS, modules: int = MODULES
) -> list[ObjectNode]:
    """Functions with dense arguments of constant shape, each once; none where TVM is not installed."""
    cases = [generate("isra", 1000 * seed + number, GenRequest(nodes=4)) for number in range(models)]
    cases += [generate("relax", 1000 * seed + number, GenRequest(nodes=8)) for number in range(modules)]
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
                continue
            if arguments(function) is not None and size(function) <= LARGEST:
                found[program.data] = function
    return list(found.values())
