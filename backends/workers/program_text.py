"""A program as its compiler prints it: for TVM's modules a worker is asked, since printing and parsing are TVM's own code."""

from dataclasses import replace

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.forms.tvm_program import TvmProgram

_PRINT, _PRINT_AND_READ = (resolve(f"tvm:stop={how}") for how in ("print", "read"))


def with_script(case: Case, workers: Workers) -> Case:
    """The case, its program with the text that its compiler prints where there is one; as it is where that cannot be had."""
    program = case.program
    if not isinstance(program, TvmProgram) or program.script:
        return case
    seen = workers.observe(_PRINT_AND_READ if program.is_plain else _PRINT, program, {})
    if not seen.outputs or "text" not in seen.outputs:
        return case
    text = seen.outputs["text"].tobytes().decode("utf-8", "replace")
    exact = bool(seen.outputs["exact"].any())
    return replace(case, program=replace(program, script=text, script_is_exact=exact))
