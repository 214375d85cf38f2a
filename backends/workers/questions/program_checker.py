"""Who says whether a program of a form is valid at all, before compilers are asked."""

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.model.program import Program

# TVM checks a module itself before it compiles it, and a module that it refuses counts as rejected.
_CHECKERS = {"onnx": resolve("checker")}
_TAKEN_IN = resolve("tvm:opt=0,stop=lower")  # a Relax module is checked, a TIR function lowered


def checker_of(program: Program) -> ResolvedTarget | None:
    """The target that refuses an invalid program of this form; None where every compiler of the form does so
    by itself.
    """
    return _CHECKERS.get(program.form)


def validator_of(program: Program) -> ResolvedTarget:
    """The target that says whether a program is one at all: the checker, or the compiler of its form, which
    takes it in and stops.
    """
    return _CHECKERS.get(program.form, _TAKEN_IN)
