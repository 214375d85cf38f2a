"""What a store is given of a campaign: the campaign itself, and its tests as they are done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case
from opsieve.triage.fingerprint.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class Campaign:
    """What determines the tests of a campaign; `id` is a digest of the rest."""

    id: str
    generator: str
    seed: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundFailure:
    """A failure, confirmed or flaky: the observations that its verdict stands on, that of the target blamed
    first.
    """

    target: str
    verdict: Verdict
    fingerprint: Fingerprint
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class NonBug:
    """A verdict that is no bug (`unsupported`, `environment`): what the target said, as a template and as it
    said it first.
    """

    target: str
    verdict: str
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class FinishedTest:
    """A test that was done: a verdict and the wall seconds by target, what was found, and what is no bug.

    `reached` is how many probes of the targets' native code it was the first to reach, 0 without coverage.
    The case may be left out (None) where nothing was found, with the `digest` of its program in its place.
    The `ir` and the `features` of its program are what a campaign decides by (triage/campaign/schedule);
    they are not stored.
    """

    number: int
    case: Case | None
    answers: dict[str, tuple[str, float]]
    findings: Sequence[FoundFailure]
    non_bugs: Sequence[NonBug] = ()
    reached: int = 0
    program_digest: str = ""
    ir: str = "onnx"
    features: tuple[str, ...] = ()
    # targets that were not asked, and the feature for which
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of its program."""
        return self.program_digest or case_of(self).program.digest


def case_of(test: FinishedTest) -> Case:
    """The case of a test that has one."""
    assert test.case is not None
    return test.case
