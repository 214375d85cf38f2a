"""Tests of a target that rewrites programs first: what the compiler is given, and what is said of its answer."""

from dataclasses import replace

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test
from opsieve.gen.metamorphic.relation import rewritten


def rewritten_test(test: Test, written: str) -> Test:
    """The test after a rewrite (gen/metamorphic), the test itself where that fits nowhere."""
    found = rewritten(test.program, test.inputs, written)
    return test if found is None else replace(test, program=found.program, inputs=found.inputs)


def as_asked(observation: Observation, target: ResolvedTarget, test: Test) -> Observation:
    """The answer under the name of the target that was asked, with the outputs of the program as it was."""
    outputs = observation.outputs
    if outputs is not None:
        wanted = test.program.outputs()
        outputs = {name: value for name, value in outputs.items() if name in wanted}
    return replace(observation, target=target.display, outputs=outputs)
