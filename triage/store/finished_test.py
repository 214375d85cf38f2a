"""The data of a campaign that a store records: the campaign itself, and its finished tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case
from opsieve.triage.fingerprint.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class Campaign:
    """The parameters that determine the tests of a campaign; `id` is a digest of the others."""

    id: str
    generator: str
    seed: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundFailure:
    """A confirmed or flaky failure with the observations behind its verdict, that of the blamed target
    first.
    """

    target: str
    verdict: Verdict
    fingerprint: Fingerprint
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class NonBug:
    """A verdict other than a bug (`unsupported`, `environment`): the target's message as a template and in
    its first form.
    """

    target: str
    verdict: str
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class FinishedTest:
    """A finished test: verdict and wall seconds by target, failures, and verdicts that are not bugs.

    `reached` is how many probes of the targets' native code it was the first to reach, 0 without coverage.
    The case may be None without findings; `program_digest` then identifies its program. The `ir`, the
    `features` and the `states` of rewrites of its program are input to the schedule
    (triage/campaign/schedule); they are not stored.
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
    states: tuple[str, ...] = ()
    # targets that were not asked, and the feature for which
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of the program."""
        return self.program_digest or get_case(self).program.digest


def get_case(test: FinishedTest) -> Case:
    """Return the case of a test that has one."""
    assert test.case is not None
    return test.case
