"""The common parts of the records of TVM's two IRs."""

from typing import Any

from opsieve.gen.irs.ir import IR
from opsieve.gen.irs.tvm.program import MODULE, PASSES, SCRIPT, TvmProgram


def tvm_ir(program: type[TvmProgram], **own: Any) -> IR[Any]:
    """The record of an IR whose programs are modules of TVM."""
    return IR(
        name=program.ir,
        suffix=".json",
        files=(MODULE, PASSES, SCRIPT),
        read=program.read,
        load=program.load,
        # TVM checks a module itself before it compiles it: a Relax module is checked, a TIR function lowered.
        validator="tvm:opt=0,stop=lower",
        # A script may hold what TVM's parser evaluates, so only plain texts are read back.
        printer=lambda program: "tvm:stop=read" if program.is_plain else "tvm:stop=print",
        keeps_script=True,
        script_parser="tvm:emit=script",
        **own,
    )
