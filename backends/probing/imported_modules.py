"""Relax modules of a corpus: those that lie in a folder as cases, and what TVM's importer makes of ONNX
models, in a worker.
"""

from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case, load
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.tvm.nodes import MalformedGraph
from opsieve.gen.irs.tvm.program import RelaxProgram
from opsieve.gen.model.model import load_program
from opsieve.gen.model.program import OnnxProgram

EMITTING = "tvm:emit=relax"
_MOST = 500  # modules of one corpus


def imported(cases: Sequence[Case], workers: Workers) -> list[RelaxProgram]:
    """What TVM's importer makes of ONNX models, each once, where it takes them and the trees of gen/irs/relax
    can hold the result.
    """
    found: dict[bytes, RelaxProgram] = {}
    answers = workers.observe_many(resolve(EMITTING), [Test(case.program, case.inputs) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        for value in (answer.outputs or {}).values():
            program = RelaxProgram(bytes(value.tobytes()), name=case.program.name)
            if is_readable(program):
                found[program.data] = program
    return list(found.values())


def relax_corpus(folder: Path, workers: Workers) -> tuple[tuple[RelaxProgram, ...], list[str]]:
    """The Relax modules of the cases under a folder, those imported from its ONNX models, and one line for
    each case that has none.

    BadInput when there is nothing to begin with.
    """
    modules: list[RelaxProgram] = []
    models: list[Case] = []
    refused: list[str] = []
    for path in sorted(folder.rglob("module.json"))[:_MOST]:
        try:
            case = load(path.parent)
        except BadInput as error:
            refused.append(str(error))
            continue
        if isinstance(case.program, RelaxProgram) and is_readable(case.program):
            modules.append(case.program)
    for path in sorted(folder.rglob("*.onnx"))[:_MOST]:
        try:
            program = OnnxProgram(load_program(path).model, str(path.relative_to(folder)))
            models.append(Case(program, seeded_inputs(program.proto, 0)))
        except BadInput as error:
            refused.append(str(error))
    modules += imported(models, workers)
    if not modules:
        raise BadInput(
            f"the corpus {shown(folder, 160)} holds no Relax module, and no ONNX model that TVM imports"
        )
    return tuple(modules), refused


def is_readable(program: RelaxProgram) -> bool:
    """Whether the trees of gen/irs/relax can hold a module, and values can be made for its inputs."""
    try:
        from_json(program.module.decode("utf-8"))
        return bool(program.inputs()) or not program.entry.get("params")
    except (MalformedGraph, UnicodeDecodeError, BadInput):
        return False
