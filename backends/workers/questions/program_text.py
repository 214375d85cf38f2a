"""A program as its compiler or onnx prints it: a worker is asked, since printing and parsing are C++."""

from dataclasses import replace

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.tvm.program import TvmProgram
from opsieve.gen.model.program import OnnxProgram
from opsieve.gen.model.text import ModelText

_PRINT, _PRINT_AND_READ = (resolve(f"tvm:stop={how}") for how in ("print", "read"))
_PRINT_MODEL = resolve("checker:tell=text")


def model_text(model: bytes, workers: Workers) -> ModelText:
    """The text of a serialised ONNX model. Whatever becomes of the worker that is asked, there is an
    answer.
    """
    (seen,) = workers.observe_many(_PRINT_MODEL, [Test(OnnxProgram(model), {}, as_is=True)])
    if not seen.outputs:
        return ModelText("", False)
    return ModelText(seen.outputs["text"].tobytes().decode(), bool(seen.outputs["exact"]))


def with_script(case: Case, workers: Workers) -> Case:
    """The case, its program with the text that its compiler prints where there is one; as it is where that
    cannot be had.
    """
    program = case.program
    if not isinstance(program, TvmProgram) or program.script:
        return case
    seen = workers.observe(_PRINT_AND_READ if program.is_plain else _PRINT, program, {})
    if not seen.outputs or "text" not in seen.outputs:
        return case
    text = seen.outputs["text"].tobytes().decode("utf-8", "replace")
    exact = bool(seen.outputs["exact"].any())
    return replace(case, program=replace(program, script=text, script_is_exact=exact))
