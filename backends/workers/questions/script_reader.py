"""A user's own script as a program. It is code, which the parser of a compiler evaluates: in a worker under
limits, and only when the user asks.
"""

from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import all_irs, first_program
from opsieve.gen.model.files import read_file
from opsieve.gen.model.program import Program

_LONGEST = 4 << 20  # bytes of a script


def read_script(path: Path, workers: Workers) -> Program:
    """The module that a file of TVMScript makes; BadInput when TVM cannot read it, or is not there."""
    irs = [ir for ir in all_irs() if ir.script_parser]
    script = irs[0].load(read_file(path, _LONGEST), (), path.stem)
    seen = workers.observe(resolve(irs[0].script_parser), script, {})
    if not seen.outputs or "module" not in seen.outputs:
        why = " ".join(seen.message.split())[:300] or seen.outcome
        raise BadInput(f"TVM cannot read {shown(path, 160)} as TVMScript: {shown(why, 300)}")
    module = bytes(seen.outputs["module"].tobytes())
    return first_program(irs, lambda ir: ir.load(module, (), path.stem))
