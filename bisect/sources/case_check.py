"""Check commits with a case: the built compiler is imported from its work tree and judged in a worker."""

import sys
from pathlib import Path
from types import TracebackType

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.protocol import Backend
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.releases import Environment
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.sources.build_sandbox import Built
from opsieve.bisect.sources.journal import describe_limits, hash_case
from opsieve.bisect.sources.outcome import VersionOutcome, evaluate
from opsieve.gen.case.case import Case
from opsieve.triage.fingerprint.fingerprint import VERSION

# Where a work tree may hold what is imported, besides its top: the layouts of most Python projects, of TVM
# and of onnxruntime.
_FOLDERS = ("src", "python")


class CaseCheck:
    """Judges a case on `target` with the compiler of a built commit; a context manager, for its workers.

    Packages are imported from the first place that has them: the files that the build left in OPSIEVE_BUILD,
    then `src` and `python` of the work tree, then its top, then the packages installed beside opsieve. `own`
    is the failure that the case is known for.
    """

    def __init__(
        self,
        case: Case,
        target: ResolvedTarget,
        policy: Policy = POLICY,
        own: VersionOutcome | None = None,
        limits: Limits | None = None,
    ):
        self._case, self._policy, self.own = case, policy, own
        self.target = target.with_release("")
        self._trees = _Trees()
        self._workers = Workers(limits, store=self._trees)

    def __enter__(self) -> "CaseCheck":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()

    @property
    def question(self) -> dict[str, object]:
        """The journal's key for this check."""
        return {
            "case": hash_case(self._case),
            "target": self.target.display,
            "tolerance": list(self._policy.tolerance) if self._policy.tolerance else None,
            "fingerprints": VERSION,
            **describe_limits(self._workers.limits),
        }

    def __call__(self, built: Built) -> VersionOutcome:
        """Evaluate a built commit.

        Its workers end with the probe, because the work tree will hold another commit.
        """
        target = self.target.with_release(built.commit)
        self._trees.places[built.commit] = (
            built.kept,
            *(built.folder / name for name in _FOLDERS),
            built.folder,
        )
        try:
            return evaluate(self._case, target, ObservationCache(self._workers), self._policy)
        finally:
            self._workers.end_release(target)


class _Trees:
    """Work trees in the part of a store of releases; a commit stands for a release."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[Path, ...]] = {}

    def environment(
        self, backend: Backend, release: str, offline: bool = False, say: object = None
    ) -> Environment:
        """Return the running Python with the folders of a commit in front."""
        there = tuple(folder for folder in self.places[release] if folder.is_dir())
        return Environment(Path(sys.executable), there, release, sys.version_info[:3])
