"""Who says whether a program of an IR is valid at all, before compilers are asked."""

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program


def checker_of(program: Program) -> ResolvedTarget | None:
    """The target that refuses an invalid program; None where every compiler of its IR does so by itself."""
    checker = ir_of(program).checker
    return resolve(checker) if checker else None


def validator_of(program: Program) -> ResolvedTarget:
    """The target that says whether a program is one at all: the checker of its IR, or a compiler that takes
    it in and stops.
    """
    return resolve(ir_of(program).validator)
