"""A program as printed by its compiler or onnx, in a worker, since printing and parsing are C++."""

from dataclasses import replace

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.registry import ir_of, keep_script
from opsieve.gen.model.program import Program
from opsieve.gen.model.text import ModelText


def print_program(program: Program, workers: Workers) -> ModelText:
    """Print a program; "" if its IR has no printer or the worker fails."""
    printer = ir_of(program).printer(program)
    if not printer:
        return ModelText("", False)
    (seen,) = workers.observe_many(resolve(printer), [Test(program, {}, as_is=True)])
    if not seen.outputs or "text" not in seen.outputs:
        return ModelText("", False)
    text = seen.outputs["text"].tobytes().decode("utf-8", "replace")
    return ModelText(text, bool(seen.outputs["exact"].any()))


def add_script(case: Case, workers: Workers) -> Case:
    """Add the text printed by the compiler to the case's program, if its IR keeps one and printing
    succeeds.
    """
    program = case.program
    if program.script or not ir_of(program).keeps_script:
        return case
    printed = print_program(program, workers)
    if not printed.text:
        return case
    return replace(case, program=keep_script(program, printed.text, printed.exact))
