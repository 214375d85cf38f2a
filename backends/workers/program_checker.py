"""Who says whether a program of a form is valid at all, before compilers are asked."""

from opsieve.backends.target import Target
from opsieve.gen.model.program import Program

# TVM checks a module itself before it compiles it, and a module that it refuses counts as rejected.
_CHECKERS = {"onnx": Target("checker")}


def checker_of(program: Program) -> Target | None:
    """The target that refuses an invalid program of this form; None where every compiler of the form does so by itself."""
    return _CHECKERS.get(program.form)
