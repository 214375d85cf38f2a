"""Load a folder of models as a corpus to mutate: check them, and infer their inner types in workers."""

from pathlib import Path

from opsieve.backends.workers.questions.inference import infer_types
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.reading import UnreadableModel, read
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.files import reason

_MOST = 2000  # models of one corpus


def load_corpus(folder: Path, workers: Workers) -> tuple[tuple[OnnxProgram, ...], list[str]]:
    """Load the models under a folder that can be mutated, in order of path, and a line for each other one.

    Raises:
        BadInput: If the folder is missing or unreadable, or every model in it is unsuitable.
    """
    if not folder.is_dir():
        raise BadInput(f"the corpus {shown(folder, 160)} is no folder of models")
    try:
        paths = sorted(path for path in folder.rglob("*.onnx") if path.is_file())[:_MOST]
    except OSError as error:
        raise BadInput(f"the corpus {shown(folder, 160)} cannot be read: {reason(error)}") from None
    loaded: list[OnnxProgram] = []
    refused: list[str] = []
    for path in paths:
        try:
            loaded.append(OnnxProgram(load_program(path).model, str(path.relative_to(folder))))
        except BadInput as error:
            refused.append(str(error))
    found = []
    for program, (model, _) in zip(loaded, infer_types(workers, loaded), strict=True):
        try:
            read(model, seeded_inputs(model, 0))
        except BadInput as error:
            refused.append(
                f"{shown(program.name, 160)} cannot be mutated: {str(error).removesuffix('; give --inputs')}"
            )
            continue
        except UnreadableModel as error:
            refused.append(f"{shown(program.name, 160)} cannot be mutated, it has {shown(str(error), 120)}")
            continue
        found.append(OnnxProgram(model.SerializeToString(deterministic=True), program.name))
    if not found:
        why = f"; {refused[0]}" if refused else ""
        raise BadInput(f"the corpus {shown(folder, 160)} holds no model that can be mutated{why}")
    return tuple(found), refused
