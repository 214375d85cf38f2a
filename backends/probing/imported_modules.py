"""Programs of another IR than ONNX in a corpus: cases in a folder, and imports of ONNX models in a worker."""

from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case, load
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_named
from opsieve.gen.model.program import Program

# Programs of one corpus
_MOST = 500


def import_models(name: str, cases: Sequence[Case], workers: Workers) -> list[Program]:
    """Import ONNX models into an IR, each once, as far as strategies can read the result."""
    ir = ir_named(name)
    found: dict[bytes, Program] = {}
    answers = workers.observe_many(resolve(ir.importer), [Test(case.program, case.inputs) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        for value in (answer.outputs or {}).values():
            program = ir.load(bytes(value.tobytes()), (), case.program.name)
            if ir.is_editable(program):
                # By the bytes: different models often import to the same module.
                found[program.data] = program
    return list(found.values())


def load_ir_corpus(name: str, folder: Path, workers: Workers) -> tuple[tuple[Program, ...], list[str]]:
    """Load an IR's programs from the cases under a folder and from its ONNX models, and a line for each
    unsuitable case.

    Raises:
        BadInput: If every case is unsuitable.
    """
    ir = ir_named(name)
    programs: list[Program] = []
    models: list[Case] = []
    refused: list[str] = []
    for path in sorted(folder.rglob(ir.files[0]))[:_MOST]:
        try:
            program = load(path.parent).program
        except BadInput as error:
            refused.append(str(error))
            continue
        if program.ir == name and ir.is_editable(program):
            programs.append(program)
    for path in sorted(folder.rglob("*.onnx"))[:_MOST]:
        try:
            model = OnnxProgram(load_program(path).model, str(path.relative_to(folder)))
            models.append(Case(model, seeded_inputs(model.proto, 0)))
        except BadInput as error:
            refused.append(str(error))
    programs += import_models(name, models, workers)
    if not programs:
        raise BadInput(
            f"the corpus {shown(folder, 160)} holds no program of the IR {name}, and no ONNX model that its"
            " importer takes"
        )
    return tuple(programs), refused
