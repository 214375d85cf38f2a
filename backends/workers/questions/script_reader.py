"""Read a user's own script as a program.

It is code, which a compiler evaluates: in a worker under limits, and only on the user's request.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.ir import IR
from opsieve.gen.irs.registry import all_irs, first_program
from opsieve.gen.model.files import read_file
from opsieve.gen.model.program import Program

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


def read_script(path: Path, workers: Workers, choice: Choice = _WHOLE) -> Program:
    """Read the module that a Python file makes; raises BadInput if it makes none, or TVM is missing."""
    irs = [ir for ir in all_irs() if ir.script_parser]
    script = irs[0].load(read_file(path, _LONGEST), (), path.stem)
    own = choice.passes.endswith(".py")
    file = read_file(Path(choice.passes), _LONGEST).decode("utf-8", "replace") if own else ""
    wanted = json.dumps({"module": choice.module, "entry": choice.entry, "passes": file}).encode()
    inputs = {"choice": np.frombuffer(wanted, np.uint8)}
    seen = workers.observe(resolve(irs[0].script_parser), script, inputs)
    if not seen.outputs or "module" not in seen.outputs:
        why = " ".join(seen.message.split())[:300] or seen.outcome
        raise BadInput(f"TVM cannot make a module of {shown(path, 160)}: {shown(why, 300)}")
    named = [item.strip() for item in choice.passes.split(",")] if choice.passes and not own else []
    passes = tuple(named or json.loads(seen.outputs["passes"].tobytes()))
    module = bytes(seen.outputs["module"].tobytes())

    def load(ir: IR[Program]) -> Program:
        program = ir.load(module, passes, path.stem)
        # Raises if it is not a program of this IR.
        program.inputs()
        return program

    return first_program(irs, load)
