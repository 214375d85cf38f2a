"""Questions about a program that a worker answers, because it takes C++ or runs code: its text, its validity,
inferred types, and the program that a user's script makes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from opsieve.backends import observation, registry
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.ir import IR
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import all_irs, first_program, ir_of, keep_script
from opsieve.gen.model import files, structure, tensors
from opsieve.gen.model.program import Program
from opsieve.gen.model.text import ModelText


def print_program(program: Program, workers: Workers) -> ModelText:
    """Print a program; "" if its IR has no printer or the worker fails."""
    printer = ir_of(program).printer(program)
    if not printer:
        return ModelText("", False)
    (seen,) = workers.observe_many(registry.resolve(printer), [Test(program, {}, as_is=True)])
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


# The targets that validate programs of an IR before compilers run.


def get_checker(program: Program) -> registry.ResolvedTarget | None:
    """Return the target that refuses invalid programs; None if every compiler of the IR does so itself."""
    checker = ir_of(program).checker
    return registry.resolve(checker) if checker else None


def get_validator(program: Program) -> registry.ResolvedTarget:
    """Return the target that validates programs: the checker of the IR, or a compiler that stops after
    reading them.
    """
    return registry.resolve(ir_of(program).validator)


# Infer types of a model's inner values with onnx's shape inference in workers: a hostile model can crash
# its C++.


INFERRING = registry.resolve("checker:tell=types")


def infer_types(workers: Workers, programs: Sequence[OnnxProgram]) -> Iterator[tuple[onnx.ModelProto, str]]:
    """Yield each program's model with the types of its values, and why they are missing ("" if they are
    there).

    Only models with undeclared types are sent to a worker; on failure the model is returned unchanged.
    """
    open_ones = [program for program in programs if structure.lacks_types(program.proto)]
    answers = workers.observe_many(INFERRING, [Test(program, {}, as_is=True) for program in open_ones])
    for program in programs:
        if not structure.lacks_types(program.proto):
            yield program.proto, ""
            continue
        yield add_inferred_types(program, next(answers))


def add_inferred_types(program: OnnxProgram, answer: observation.Observation) -> tuple[onnx.ModelProto, str]:
    """Add the types in a worker's answer to INFERRING, or return the model unchanged with the reason."""
    if answer.outputs is None:
        return program.proto, answer.message or answer.outcome
    annotated = tensors.decode(onnx.ModelProto(), answer.outputs["model"].tobytes())
    if annotated is None:
        return program.proto, "the worker's answer is damaged"
    return structure.with_types(program.proto, annotated), ""


# Read a user's own script as a program.


# Bytes of a script
_LONGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of a script that is read.

    Attributes:
        module: The name of a module, or of a function that returns one; "" for the only one.
        entry: The function of the module that is run; "" for `main`.
        passes: Names of passes with commas between them, or a Python file that makes passes.
    """

    module: str = ""
    entry: str = ""
    passes: str = ""


_WHOLE = Choice()


def read_script(
    path: Path, workers: Workers, choice: Choice = _WHOLE
) -> tuple[Program, dict[str, np.ndarray[Any, Any]]]:
    """Read the program that a script makes, with the values of its inputs that the script has, by name.
    Raises BadInput if it makes none, or the compiler is missing.
    """
    source = files.read_file(path, _LONGEST)
    ir = next((ir for ir in all_irs() if ir.script_parser and ir.is_script(source)), None)
    if ir is None:
        raise BadInput(
            f"{shown(path, 160)} imports no compiler whose scripts opsieve reads (torch or tvm); let a script"
            " that makes an ONNX model save it, onnx.save(model, 'model.onnx'), and import that file"
        )
    script = ir.load(source, (), path.stem)
    own = choice.passes.endswith(".py")
    file = files.read_file(Path(choice.passes), _LONGEST).decode("utf-8", "replace") if own else ""
    wanted = json.dumps({"module": choice.module, "entry": choice.entry, "passes": file}).encode()
    inputs = {"choice": np.frombuffer(wanted, np.uint8)}
    parser = registry.resolve(ir.script_parser)
    seen = workers.observe(parser, script, inputs)
    if not seen.outputs or "module" not in seen.outputs:
        why = " ".join(seen.message.split())[:300] or seen.outcome
        raise BadInput(f"{parser.name} cannot make a program of {shown(path, 160)}: {shown(why, 300)}")
    named = [item.strip() for item in choice.passes.split(",")] if choice.passes and not own else []
    passes = named or json.loads(seen.outputs["passes"].tobytes())
    program = load_module(seen.outputs["module"].tobytes(), passes, path.stem)
    fed = {name: seen.outputs.get(f"input.{name}") for name in program.inputs()}
    return program, {name: value for name, value in fed.items() if value is not None}


def load_module(module: bytes, passes: Sequence[str], name: str) -> Program:
    """Return the program of a module's JSON in the IR that it is written in; raises BadInput for no
    program.
    """

    def load(ir: IR[Program]) -> Program:
        program = ir.load(module, tuple(passes), name)
        # Raises if it is not a program of this IR.
        program.inputs()
        return program

    return first_program([ir for ir in all_irs() if ir.script_parser], load)
