"""A search through the commits of a local repository, with merges.

A commit is checked with a script, or with a case: then the built compiler is imported from its work tree and
judged in a worker.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from opsieve.backends import compare, protocol, registry
from opsieve.backends.releases.releases import Environment
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.search import search, search_loop
from opsieve.bisect.search.ends import Ends
from opsieve.bisect.sources import build_sandbox, git_history, outcome, version_sequence
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
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
        target: registry.ResolvedTarget,
        policy: compare.Policy = compare.POLICY,
        own: outcome.VersionOutcome | None = None,
        limits: Limits | None = None,
    ):
        self._case, self._policy, self.own = case, policy, own
        # The release that the case failed on would be installed instead of the built one being imported.
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
            "case": outcome.hash_case(self._case),
            "target": self.target.display,
            "tolerance": list(self._policy.tolerance) if self._policy.tolerance else None,
            "fingerprints": VERSION,
            # A hang or a lack of memory depends on the limits, so that other limits are another question.
            **outcome.describe_limits(self._workers.limits),
        }

    def __call__(self, built: build_sandbox.Built) -> outcome.VersionOutcome:
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
            return outcome.evaluate(self._case, target, ObservationCache(self._workers), self._policy)
        finally:
            self._workers.end_release(target)


class _Trees:
    """Work trees in the part of a store of releases; a commit stands for a release."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[Path, ...]] = {}

    def environment(
        self, backend: protocol.Backend, release: str, offline: bool = False, say: object = None
    ) -> Environment:
        """Return the running Python with the folders of a commit in front."""
        # A folder that a build did not create would hide the packages behind it with an import error.
        there = tuple(folder for folder in self.places[release] if folder.is_dir())
        return Environment(Path(sys.executable), there, release, sys.version_info[:3])


Say = Callable[[str], None]
SearchProtocol = Generator[
    tuple[list[str], search_loop.SearchProgress | None], list[search.TestResult], "CommitResult"
]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a search through commits.

    `culprits` holds one commit, or the smallest set that can be proven; it is empty if there is `trouble`:
    that of the ends, or `elsewhere` if every commit that touches the requested paths is innocent.
    `wrong_ends` are the named ends whose result contradicts their name, with that result. `seen` maps every
    tested commit to its outcome; `base` is the merge base that replaces a good end outside the history.
    """

    direction: search.Direction
    trouble: str
    wrong_ends: tuple[tuple[str, str], ...]
    culprits: tuple[git_history.Commit, ...]
    confidence: float
    size: int
    base: str
    seen: dict[str, outcome.VersionOutcome]
    probed: int
    recalled: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The range of a search.

    It holds the ends as hashes, the row of first parents in which an untestable end moves, and the commits
    between.
    """

    row: tuple[str, ...]
    good: int
    bad: int
    base: str
    between: git_history.Range


class Commits:
    """The commits of the repository at `path` between two named ends. A context manager, for git's processes.

    `build` is an executable script; `check` is one too, or a case on a target, whose failure at the bad end
    is then followed.
    """

    def __init__(
        self,
        path: Path,
        good: str,
        bad: str,
        check: Path | CaseCheck,
        build: Path | None = None,
        *,
        paths: tuple[str, ...] = (),
        first_parent: bool = False,
        sparse: tuple[str, ...] = (),
        limits: build_sandbox.CheckLimits = build_sandbox.LIMITS,
        fresh: bool = False,
        root: Path,
        say: Say = print,
    ):
        self._repository = git_history.open_repository(path)
        self._path, self._check, self._build, self._say = Path(self._repository.git_dir), check, build, say
        self._paths, self._first_parent, self._sparse = paths, first_parent, sparse
        self.plan = self._make_plan(good, bad)
        question = (
            check.question if isinstance(check, CaseCheck) else {"check": build_sandbox.hash_script(check)}
        )
        # Neither the repository nor the ends: another search through the same trees uses the same probes.
        self._journal = outcome.ProbeJournal(
            root,
            {"source": "commits", "build": build_sandbox.hash_script(build), "sparse": sparse, **question},
            fresh,
        )
        self._limits = limits
        self._own = check.own if isinstance(check, CaseCheck) else None
        self.wanted: outcome.VersionOutcome | None = None
        # By tree, since commits with equal files continue each other's turns.
        self._turns: Counter[str] = Counter()
        # Trees that were built, or tried to be, in this call
        self._built: set[str] = set()
        self.seen: dict[str, outcome.VersionOutcome] = {}
        self.probed = self.recalled = 0
        self._is_flaky = False

    def __enter__(self) -> "Commits":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._repository.close()

    def recall_probe(self, commit: str) -> outcome.VersionOutcome | None:
        """Return the outcome of an earlier probe of a commit with the same files."""
        return self._journal.get_probe(git_history.get_tree(self._repository, commit))

    def search_commits(
        self,
        *,
        chance: search.Given = None,
        confidence: float = 0.99,
        jobs: int = 1,
        progressed: Callable[[search_loop.SearchProgress], None] = lambda progress: None,
    ) -> CommitResult:
        """Find the commit that brought or ended the failure.

        A chance of `auto` is measured at the bad end by running it several times. Without a chance (None)
        that of a script is measured too, that of a case when some of its runs pass.
        """
        steps = self._run_steps(chance, confidence, jobs)
        with (
            # Left last: the builds end the scripts that its threads wait for.
            ThreadPoolExecutor(jobs) as pool,
            build_sandbox.BuildDir(
                self._path, self._check, self._build, self._journal.folder, jobs, self._limits, self._sparse
            ) as builds,
        ):
            wanted, progress = next(steps)
            while True:
                if progress is not None:
                    progressed(progress)
                seen = version_sequence.map_in_order(
                    pool, lambda commit: self._test_commit(builds, commit), wanted
                )
                try:
                    self._choose_failure(dict(zip(wanted, seen, strict=True)))
                    # Some runs of a failing commit pass, so that a single good answer means little.
                    if chance is None and self._is_flaky and isinstance(self._check, CaseCheck):
                        chance = "auto"
                        steps = self._run_steps(chance, confidence, jobs)
                        wanted, progress = next(steps)
                    else:
                        wanted, progress = steps.send(
                            [outcome.classify_outcome(item, self.wanted or self._own) for item in seen]
                        )
                except StopIteration as stop:
                    found: CommitResult = stop.value
                    return found

    def _choose_failure(self, seen: dict[str, outcome.VersionOutcome]) -> None:
        """Follow one failure: that of the bad end, else the first one seen; if the case is known for a
        failure, only that one. A script cannot tell failures apart.
        """
        if self.wanted is None:
            bad = seen.get(self.plan.row[self.plan.bad])
            showing = (
                item
                for item in (bad, *seen.values())
                if item and outcome.classify_outcome(item, self._own) is search.TestResult.BAD
            )
            self.wanted = next(showing, None)

    def _make_plan(self, good: str, bad: str) -> Plan:
        repository = self._repository
        good, bad = git_history.resolve_commit(repository, good), git_history.resolve_commit(repository, bad)
        if good == bad:
            raise BadInput("the good and the bad end are the same commit")
        base = ""
        # Two release branches: the change came after their common commit, or is not in this history.
        if not git_history.is_ancestor(repository, good, bad) and not git_history.is_ancestor(
            repository, bad, good
        ):
            base = good = git_history.find_merge_base(repository, good, bad)
        old, new = (good, bad) if git_history.is_ancestor(repository, good, bad) else (bad, good)
        # Before the search, because a mistyped path would make every commit innocent.
        git_history.check_paths(repository, new, self._paths)
        if git_history.is_shallow(repository):
            self._say("the clone is shallow: commits that it lacks are not searched (git fetch --unshallow)")
        row = (old, *git_history.list_first_parents(repository, old, new))
        place = {old: 0, new: len(row) - 1}
        between = git_history.read_range(repository, old, new, self._paths, self._first_parent)
        return Plan(row, place[good], place[bad], base, between)

    def _run_steps(self, given: search.Given, confidence: float, width: int) -> SearchProtocol:
        """Confirm the two ends, then search between them."""
        plan = self.plan
        flaky = isinstance(self._check, Path)
        confirming = search_loop.confirm_ends(len(plan.row), plan.good, plan.bad, given, confidence, flaky)
        places = next(confirming)
        while True:
            answers = yield [plan.row[place] for place in places], None
            try:
                places = confirming.send(answers)
            except StopIteration as stop:
                ends, chance = stop.value
                break
        if ends.trouble:
            return self._make_result(ends, None, plan.between)
        if isinstance(chance, search.ReproductionRate):
            self._say(f"the failing end showed the failure in {chance.failures} of {chance.runs} runs")
        return (yield from self._search_between(ends, chance, confidence, width))

    def _search_between(
        self, ends: Ends, chance: float | search.ReproductionRate | None, confidence: float, width: int
    ) -> SearchProtocol:
        """Search between two ends; with an unknown chance (None), repeat the good commit at the change."""
        plan, between = self.plan, self.plan.between
        # An end has moved, and the range with it.
        if ends.wrong:
            old, new = plan.row[ends.old], plan.row[ends.new]
            between = git_history.read_range(self._repository, old, new, self._paths, self._first_parent)
        size = len(between.commits)
        linear = all(
            parents == ((place - 1,) if place else ()) for place, parents in enumerate(between.parents)
        )
        # A chain needs no square of bits, so that its length is not limited.
        history = search.Chain(size) if linear else search.VersionGraph(between.parents)

        def search_for(rate: float | search.ReproductionRate) -> search.Search:
            return search.Search(
                history, direction=ends.direction, chance=rate, confidence=confidence, width=width
            )

        inner = search_loop.search_flaky(search_for, 1.0 if chance is None else chance)
        try:
            places, progress = next(inner)
            while True:
                answers = yield [between.commits[place] for place in places], progress
                places, progress = inner.send(answers)
        except StopIteration as stop:
            suspects: search.Suspects = stop.value
        if chance is None:
            culprits = suspects.candidates
            # The good commit next to the change: the one that ends the failure, or what is before it.
            row = (
                (between.commits[culprits[-1]],)
                if ends.direction is search.Direction.FIX
                else (plan.row[ends.old], *between.commits[: culprits[0]])
            )
            results = {sha: outcome.classify_outcome(seen, self.wanted) for sha, seen in self.seen.items()}
            good = [sha for sha in row if results.get(sha) is search.TestResult.GOOD][-1]
            runs, sure = search_loop.plan_confirmation(
                list(results.values()).count(search.TestResult.BAD), confidence
            )
            for _ in range(runs - 1):
                yield [good], None
            suspects = replace(suspects, confidence=sure)
        return self._make_result(ends, suspects, between)

    def _test_commit(self, builds: build_sandbox.BuildDir, commit: str) -> outcome.VersionOutcome:
        tree = git_history.get_tree(self._repository, commit)
        turn = self._turns[tree]
        self._turns[tree] += 1
        known = self._journal.get_probe(tree, turn)
        if known is not None and known.symptom == build_sandbox.BUILD_FAILS and tree not in self._built:
            # A build that failed in an earlier call may have had no disk, no network or no time
            known = None
        self._built.add(tree)
        if known is None:
            start = time.monotonic()
            known = builds.probe_commit(commit, tree)
            self._journal.add_probe(tree, known, time.monotonic() - start, turn)
            self.probed += 1
            self._say(f"{commit[:12]}: {known.symptom}")
        else:
            self.recalled += 1
        before = self.seen.get(commit, known)
        differs = {before.state, known.state} == {"good", "bad"}
        self._is_flaky |= known.flaky or differs
        if before is known or known.state == "bad":
            # Without --repro-rate such a check can lead to a wrong commit.
            if differs:
                self._say(f"the check is flaky: {commit[:12]} passed in one run and fails in another")
            self.seen[commit] = known
        return known

    def _make_result(
        self, ends: Ends, suspects: search.Suspects | None, between: git_history.Range
    ) -> CommitResult:
        culprits = suspects.candidates if suspects else ()
        trouble = str(ends.trouble)
        # The last commit of a closed range stands for all that --paths left out.
        if between.closed and culprits == (len(between.commits) - 1,):
            culprits, trouble = (), "elsewhere"
        return CommitResult(
            ends.direction,
            trouble,
            tuple((self.plan.row[place], result.value) for place, result in ends.wrong),
            tuple(
                git_history.describe_commit(self._repository, between.commits[place]) for place in culprits
            ),
            suspects.confidence if suspects else 0.0,
            len(between.commits),
            self.plan.base,
            self.seen,
            self.probed,
            self.recalled,
        )
