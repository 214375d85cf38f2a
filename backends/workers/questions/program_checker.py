"""The targets that validate programs of an IR before compilers run."""

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program


def get_checker(program: Program) -> ResolvedTarget | None:
    """Return the target that refuses invalid programs; None if every compiler of the IR does so itself."""
    checker = ir_of(program).checker
    return resolve(checker) if checker else None


def get_validator(program: Program) -> ResolvedTarget:
    """Return the target that validates programs: the checker of the IR, or a compiler that stops after
    reading them.
    """
    return resolve(ir_of(program).validator)
