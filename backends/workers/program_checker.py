"""Who says whether a program of a form is valid at all, before compilers are asked."""

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.model.program import Program

# TVM checks a module itself before it compiles it, and a module that it refuses counts as rejected.
_CHECKERS = {"onnx": resolve("checker")}


def checker_of(program: Program) -> ResolvedTarget | None:
    """The target that refuses an invalid program of this form; None where every compiler of the form does so by itself."""
    return _CHECKERS.get(program.form)
