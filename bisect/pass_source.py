"""The passes of a backend as something to attribute a failure to."""

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.lab import Lab
from opsieve.backends.registry import display, resolve
from opsieve.backends.target import Target
from opsieve.bisect.attribution import Attribution, attribute
from opsieve.bisect.ort_passes import HOSTS, LEVELS, RULES, TRANSFORMERS
from opsieve.bisect.search import Answer
from opsieve.bisect.sighting import Sighting, answer, look
from opsieve.gen.bad_input import BadInput
from opsieve.gen.case import Case

BACKENDS = ("onnxruntime",)


def blame_passes(case: Case, target: Target, lab: Lab, policy: Policy = POLICY) -> tuple[Attribution, Sighting]:
    """The guilty passes for the failure that a case shows on a target, and that failure.

    Each probe is judged in the target's workers, so a pass whose skipping crashes the compiler costs a worker, no more.
    BadInput for a backend whose passes cannot be switched off from here, or when the case does not fail on the target.
    """
    target = resolve(target)
    if target.backend not in BACKENDS:
        raise BadInput(
            f"passes of {target.backend} cannot be switched off from here; {', '.join(BACKENDS)} can be asked"
        )
    wanted = look(case, target, lab, policy)
    if wanted.state != "fails":
        raise BadInput(f"the case does not fail on {display(target)} ({wanted.text}); name a target where it does")

    def probe(level: str, off: tuple[str, ...]) -> Answer:
        variant = resolve(target.with_options(level=level, disabled_optimizers="+".join(off)))
        return answer(look(case, variant, lab, policy), wanted)

    levels = (
        LEVELS[: LEVELS.index(target.option("level", "all")) + 1] if target.option("level", "all") in LEVELS else LEVELS
    )
    return attribute(levels, (*RULES, *TRANSFORMERS), HOSTS, probe), wanted
