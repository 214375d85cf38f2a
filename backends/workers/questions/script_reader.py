"""A user's own TVMScript as a program. It is code, which TVM's parser evaluates: in a worker under limits,
and only when the user asks.
"""

from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.forms.registry import tvm_program
from opsieve.gen.irs.tvm.program import RelaxProgram, TvmProgram
from opsieve.gen.model.files import read_file

_PARSE = resolve("tvm:emit=script")
_LONGEST = 4 << 20  # bytes of a script


def read_script(path: Path, workers: Workers) -> TvmProgram:
    """The module that a file of TVMScript makes; BadInput when TVM cannot read it, or is not there."""
    seen = workers.observe(_PARSE, RelaxProgram(read_file(path, _LONGEST)), {})
    if not seen.outputs or "module" not in seen.outputs:
        why = " ".join(seen.message.split())[:300] or seen.outcome
        raise BadInput(f"TVM cannot read {shown(path, 160)} as TVMScript: {shown(why, 300)}")
    return tvm_program(bytes(seen.outputs["module"].tobytes()), path.stem)
