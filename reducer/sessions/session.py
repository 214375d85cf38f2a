"""One call of `reduce`: it opens the case, finds the failure, runs the reduction and writes the result. The
caller presents it.
"""

import hashlib
import math
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import msgspec

from opsieve.backends.judge.oracle_names import add_oracles, name_optional_oracle
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.verdict import reword_oracles
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import Case, Origin, is_case, load, open_case
from opsieve.gen.errors import BadInput, NoFailure, shown
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.files import read_file
from opsieve.gen.model.printable import drawing, escape_surrogates, facts_table, printable
from opsieve.reducer.engine.certificate import Certificate, certify
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Budget, Progress, Rules
from opsieve.reducer.engine.interestingness import InterestingnessTest, count_same_replays
from opsieve.reducer.engine.journal import NAME, Attempt, Journal
from opsieve.reducer.irs.registry import ReducibleForm, form_of
from opsieve.reducer.oracle.discover import find, find_stand_in, list_installed, see_failure, still
from opsieve.reducer.oracle.function_test import FunctionTest
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.premise_test import confirmed_by_judge
from opsieve.reducer.oracle.script_test import ScriptTest
from opsieve.reducer.sessions.output import (
    SCRIPT,
    STORY,
    facts_of,
    facts_of_none,
    facts_unfinished,
    lock_folder,
    model_name,
    print_subject,
    save_reduction,
    save_story,
    save_subject,
    script,
    target_of,
    title_of,
)
from opsieve.reducer.sessions.reduction import (
    Listeners,
    Reduction,
    answer_first,
    reduce_by_check,
    reduce_failure,
)
from opsieve.triage.fingerprint.sameness import LEVELS, Level

# The generator named in the case of a result, by which its folder is recognised later.
GENERATOR = "reduce"
# The largest check, in bytes; a check may be a compiled program.
_LARGEST_SCRIPT = 1 << 28
# Seconds between two savings of the best so far
_SAVE_EVERY = 1.0
# Kinds of failure that one run shows, on any machine. Timings and varying results are only comparable on one.
_ANYWHERE = frozenset(["crash", "error", "mismatch", "metamorphic", "hang", "memory", "accepts-invalid"])


@dataclass(frozen=True)
class ReductionRequest:
    """A reduction's subject and options."""

    path: Path
    inputs: Path | None = None
    expected: Path | None = None
    targets: tuple[str, ...] = ()
    against: str | None = None
    # One of LEVELS
    level: str = "fingerprint"
    script: Path | None = None
    output: Path | None = None
    jobs: int = 1
    seed: int = 0
    # The time limit of one run.
    seconds: float = 30.0
    # The time limit of the reduction; `None` for none.
    minutes: float | None = None
    # The most tests to run; `None` for no limit.
    checks: int | None = None
    # Names of optional oracles that are consulted too.
    oracles: tuple[str, ...] = ()
    # A function that decides instead of a script or a target
    is_failing: Callable[[Case], bool] | None = None


class SessionListener(Protocol):
    """Receives messages and progress of a running session."""

    def say(self, sentence: str) -> None:
        """Receive a sentence for the log."""

    def progress(self, at: Progress) -> None:
        """Receive the state of the reduction."""


@dataclass(frozen=True)
class Reduced:
    """The result of a session: the facts that `--json` prints, the reduction (None, with an `error`, if the
    case passes), the model as text.
    """

    facts: dict[str, Any]
    reduction: Reduction[Any] | None
    text: str = ""
    # Why there is no reduction
    error: NoFailure | None = None
    # Every candidate that was tried
    attempts: Sequence[Attempt] = ()

    def _repr_html_(self) -> str:
        """Return the result and the smallest model as HTML for notebooks."""
        if self.reduction is None:
            return facts_table([("not reduced", str(self.facts.get("message", "nothing fails")))])
        facts = self.facts
        names = ("target", "kind", "checks", "seconds", "minimal", "output", "script")
        about = [("nodes", f"{facts['nodes_before']} to {facts['nodes_after']}")]
        about += [(name, str(facts[name])) for name in names if facts.get(name) is not None]
        best = self.reduction.best.program
        return facts_table(about) + drawing(ir_of(best).lines(best))


@dataclass(frozen=True)
class Verified:
    """A certificate checked again."""

    certificate: Certificate
    checks: int


class _Story(msgspec.Struct, frozen=True):
    """The part of a result's story that its certificate depends on."""

    target: str = ""
    # One of LEVELS, "" when unknown
    level: str = ""
    judged: bool = False


class Session:
    """One reduction of one case on given workers. On exit the best subject so far is on disk.

    `further` gives more workers, of a cluster say, for tests of the targets that turn out to be needed.
    """

    def __init__(
        self,
        request: ReductionRequest,
        pool: Sequence[Workers],
        listener: SessionListener,
        further: Callable[[Sequence[ResolvedTarget]], Sequence[Workers]] | None = None,
    ):
        self.request = request
        self.pool = pool
        self.listener = listener
        self._further = further
        self._stack = ExitStack()
        self._best: _Best | None = None
        # The failure as two runs show it, and the attempts up to the first answer
        self._first: tuple[Premise, Journal] | None = None

    def __enter__(self) -> "Session":
        # Only the main thread may install signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _interrupt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self._best is not None:
                self._best.save()
                if kind is KeyboardInterrupt:
                    if not is_case(self._best.folder):
                        self._best.forget()
                    self.listener.say(
                        f"the best so far is in {self._best.folder}; the same command resumes from it"
                    )

    def reduce(self) -> Reduced:
        """Find, reduce and write. A case that passes ends with facts that list the attempts."""
        since = time.monotonic()
        case = self._open_case()
        form = form_of(case.program)
        start = form.subject(case)
        # The checker that validates candidates takes long to start; it starts while the failure is sought.
        self._stack.enter_context(ThreadPoolExecutor(1)).submit(form.validator, self.pool[0], start)
        folder = self._claim_folder()
        try:
            premise = self._premise(case, answer=partial(self._answer_first, form, case, start, folder))
            request = self.request
            minutes = math.inf if request.minutes is None else request.minutes
            budget = Budget(request.checks or math.inf, since + 60 * minutes)
            result, journal, origin = self._reduce_case(form, case, start, premise, folder, budget)
        except NoFailure as error:
            return Reduced(facts_of_none(form.size(start), error.reason), None, error=error)
        result = replace(result, best=form.finished(result.best, self.pool[0]))
        premise = result.premise or premise
        facts = facts_of(form, result, premise, self.request.level, time.monotonic() - since)
        text = ""
        if premise is not None:
            try:
                text = script(result.best, premise, self.pool[0])
            except BadInput as error:
                self.listener.say(f"there is no {SCRIPT}: {error}")
        facts |= {
            "output": escape_surrogates(folder / model_name(result.best.program)),
            "script": escape_surrogates(folder / SCRIPT) if text else "",
        }
        oracle = "" if premise is None else name_optional_oracle(premise.failure.verdict, result.best.program)
        right = None if premise is None else find_stand_in(result.best, premise, self.pool[0])
        save_reduction(result, folder, self.request.path.name, origin, facts, journal, text, oracle, right)
        return Reduced(facts, result, print_subject(result.best, self.pool[0]), attempts=journal.attempts)

    def _reduce_case(
        self,
        form: ReducibleForm[Any],
        case: Case,
        start: Any,
        premise: Premise | None,
        folder: Path,
        budget: Budget,
    ) -> tuple[Reduction[Any], Journal, Origin]:
        origin = Origin(GENERATOR, self.request.seed, self._versions(premise), case.origin.inputs)
        tests: list[InterestingnessTest[Any]] = []
        if self.request.is_failing is not None:
            tests = [FunctionTest(self.request.is_failing)]
        elif self.request.script is not None:
            tests = [ScriptTest(self.request.script.absolute(), self.request.seconds)]
        first, best = self._first, _Best(self, form, start, premise, folder, origin)
        self._best = best
        with Journal(self._question(form, start, premise), folder) as journal:
            if first is not None and premise is not None and premise.is_like(first[0]):
                for attempt in first[1].attempts:
                    journal.add(attempt)
            start_at = None
            # The folder holds the result of another question (another target, say): it is a shortcut if it
            # shows this failure too.
            if best.kept is not None and not journal.resumed:
                if self._fails(best.kept, premise, tests):
                    start_at = best.kept
                else:
                    best.forget()
            listeners: Listeners[Any] = Listeners(best.progress, best.shown, self.listener.say)
            if premise is None:
                source = next(iter(list_installed()), None)
                source = None if source is None else source.baseline
                result = reduce_by_check(
                    form,
                    start,
                    tests * self.request.jobs,
                    self.pool[0],
                    source,
                    journal,
                    listeners,
                    start_at=start_at,
                    budget=budget,
                )
            else:
                pool = self._pool_for(premise)
                result = reduce_failure(
                    form, start, premise, pool, self._level, journal, listeners, None, start_at, budget
                )
        # From here on the result is written whole; `__exit__` must not overwrite it with the best so far.
        self._best = None
        return result, journal, origin

    def _answer_first(
        self, form: ReducibleForm[Any], case: Case, start: Any, folder: Path, target: ResolvedTarget, lab: Any
    ) -> None:
        """Save the first simpler subject that fails as two runs show it: nobody waits for the judge."""
        seen = None if folder.exists() or self._level == "cure" else see_failure(case, target, lab)
        if seen is not None:
            origin = Origin(GENERATOR, self.request.seed, self._versions(seen), case.origin.inputs)
            self._best = _Best(self, form, start, seen, folder, origin)
            shown = self._best.shown
            self._first = seen, answer_first(form, start, seen, self.pool[0], self._level, shown)

    def _pool_for(self, premise: Premise) -> list[Workers]:
        """Choose the workers that test candidates for a failure at the same time."""
        if self._further is None:
            return list(self.pool)
        if premise.failure.verdict.kind not in _ANYWHERE or premise.chance < 1:
            self.listener.say(
                "slow and intermittent failures are compared on one machine: all tests run here"
            )
            return list(self.pool)
        wanted = [premise.target, *filter(None, [premise.arbiter, premise.target.baseline])]
        return [*self.pool, *self._further(list(dict.fromkeys(wanted)))]

    def _fails(
        self, subject: Any, premise: Premise | None, tests: Sequence[InterestingnessTest[Any]]
    ) -> bool:
        return (
            still(subject, premise, self.pool[0])
            if premise
            else count_same_replays(tests[0], subject, 1)[0] > 0
        )

    def verify(self) -> Verified:
        """Check the certificate of a result again.

        Raises:
            NoFailure: If the result does not fail.
        """
        case = self._open_case()
        story = self._story()
        level = story.level if story.level in LEVELS else self._level
        premise = self._premise(case, story.target, level)
        if premise is None:
            raise BadInput(
                "--verify and --check cannot be used together: a script's answers are no certificate of ours."
            )
        workers = self.pool[0]
        form = form_of(case.program)
        start = form.subject(case)
        source = premise.target.baseline
        rules = Rules(
            form,
            [
                confirmed_by_judge(premise, each, level, start, story.judged)
                for each in self._pool_for(premise)
            ],
            form.validator(workers, start),
            lambda subject: form.recorded(subject, source, workers),
            control=form.control,
            progress=self.listener.progress,
        )
        engine = Engine(form.recorded(start, source, workers), rules, Journal(""))
        engine.begin()
        certificate = certify(engine, form.passes(), form.census)
        return Verified(certificate, engine.checks)

    @property
    def _level(self) -> Level:
        return next(level for level in LEVELS if level == self.request.level)

    def _open_case(self) -> Case:
        request = self.request
        return open_case(request.path, request.inputs, request.expected, request.seed)

    def _premise(
        self,
        case: Case,
        named: str = "",
        level: Level | None = None,
        answer: Callable[[ResolvedTarget, ObservationCache], None] = lambda target, lab: None,
    ) -> Premise | None:
        """Return the failure, preserved at a level (that of the request); `None` if the user's own script
        decides. `answer` is called before the judge is asked.
        """
        if self.request.script is not None or self.request.is_failing is not None:
            return None
        named = named or target_of(self.request.path) or case.parameters.get("target", "")
        if not named and "target" in case.parameters and not self.request.targets:
            raise BadInput(f"{shown(self.request.path, 160)} names an empty target; name one with --target")
        if named and not self.request.targets:
            named_by_file(named, self.pool[0].offline, case.origin.versions)
        targets = self.request.targets or ((named,) if named else ())
        against = None if self.request.against is None else resolve(self.request.against)
        asked = [resolve(target) for target in targets]
        if self.request.oracles:
            pairs = [add_oracles(case, target, self.request.oracles) for target in asked or list_installed()]
            case, asked = pairs[0][0], [target for _, target in pairs]
        lab = ObservationCache(self.pool[0])
        if against is None and not self.request.oracles:
            answer((asked or list_installed())[0], lab)
        try:
            premise = find(case, asked, against, self.pool[0], lab)
        except BadInput:
            # The judge sees no failure, so the first answer is none.
            if self._best is not None:
                shutil.rmtree(self._best.folder, ignore_errors=True)
                self._best = None
            raise
        kind = premise.failure.verdict.kind
        reason = printable(reword_oracles(premise.reason, premise.target.display))[:400]
        self.listener.say(f"{kind}: {reason}")
        self.listener.say(premise.describe_level(level or self._level))
        return premise

    def _story(self) -> "_Story":
        """Return the story in a result's folder; an empty one for any other case."""
        path = self.request.path / STORY
        # The story of an earlier run only resumes it. One that cannot be read means a fresh start.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, BadInput):
            return msgspec.json.decode(read_file(path, 1 << 30), type=_Story)
        return _Story()

    def _claim_folder(self) -> Path:
        """Return the folder of the results: new, or one of ours; never the case itself or a foreign
        folder.
        """
        folder = self.request.output or Path(f"{title_of(self.request.path)}.reduced")
        ours = (folder / STORY).is_file() or (folder / NAME).is_file() or _has_begun(folder)
        # A link under the default name may have been placed by somebody else, to lead writes anywhere. A
        # link that the user named is the user's.
        strange = folder.is_symlink() and self.request.output is None
        if strange or (folder.exists() and not ours and (not folder.is_dir() or any(folder.iterdir()))):
            raise BadInput(
                f"{shown(folder, 200)} is there already and holds no reduction; choose another with -o."
            )
        self._stack.enter_context(lock_folder(folder))
        return folder

    def _question(self, form: ReducibleForm[Any], start: Any, premise: Premise | None) -> str:
        """Return a digest of everything that the results in a journal depend on."""
        request = self.request
        # Otherwise the test reports the error.
        given = request.script is not None and request.script.is_file()
        script = read_file(request.script, _LARGEST_SCRIPT) if request.script and given else b""
        parts = [
            form.digest(start),
            request.level,
            str(request.seed),
            hashlib.sha256(script).hexdigest(),
            str(request.seconds),
            # Functions cannot be compared across calls, so a journal of one is never reused.
            *([secrets.token_hex()] if request.is_failing is not None else []),
        ]
        if premise is not None:
            parts += [str(premise.target), str(premise.arbiter), premise.failure.fingerprint.key]
            parts += [f"{name} {version}" for name, version in sorted(self._versions(premise).items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _versions(self, premise: Premise | None) -> dict[str, str]:
        if premise is None:
            return {}
        try:
            return {premise.target.name: self.pool[0].version(premise.target)}
        except Unavailable:
            return {}


class _Best:
    """The best subject so far, on disk, which only a simpler one replaces."""

    def __init__(
        self,
        session: Session,
        form: ReducibleForm[Any],
        start: Any,
        premise: Premise | None,
        folder: Path,
        origin: Origin,
    ):
        self.folder, self._session, self._form, self._start = folder, session, form, start
        self._premise, self._origin = premise, origin
        # A first answer without a journal was not confirmed before its process ended.
        is_first = (folder / STORY).is_file() and not (folder / NAME).is_file()
        self.kept = None if is_first else _load_earlier(folder, form, start)
        self._subject, self._next, self._checks = start, 0.0, 0

    def forget(self) -> None:
        """Replace the result of an earlier call by the start."""
        self.kept = None
        self._write(self._start)

    def progress(self, at: Progress) -> None:
        """Pass on the state of the engine."""
        self._checks = at.checks
        self._session.listener.progress(at)

    def shown(self, subject: Any) -> None:
        """Save a simpler subject that shows the failure: the first at once, later ones at most once a second,
        and large ones so rarely that it takes a tenth of the time.
        """
        self._subject = subject
        since = time.monotonic()
        if since >= self._next:
            self.save()
            # Nine times the duration of a save as a pause makes saving take a tenth of the time.
            self._next = time.monotonic() + max(_SAVE_EVERY, 9 * (time.monotonic() - since))

    def save(self) -> None:
        """Write the best subject, and the facts of an unfinished reduction beside it."""
        if self._subject is self._start or (
            self.kept is not None and not self._form.simpler(self._subject, self.kept)
        ):
            return
        self._write(self._subject)
        level, checks = self._session.request.level, self._checks
        found = facts_unfinished(self._form, self._start, self._subject, self._premise, level, checks)
        save_story(self.folder, found)

    def _write(self, subject: Any) -> None:
        target = "" if self._premise is None else self._premise.target.display
        save_subject(subject, self.folder, self._session.request.path.name, self._origin, target)


def _load_earlier(folder: Path, form: ReducibleForm[Any], start: Any) -> Any | None:
    """Load the result of an earlier call from a folder, if it is simpler than the start; returns `None` if it
    is missing or unreadable.
    """
    if not is_case(folder):
        return None
    try:
        subject = form.subject(load(folder))
    except BadInput:
        return None
    return subject if form.simpler(subject, start) else None


def _has_begun(folder: Path) -> bool:
    """Return whether a folder holds a result from which a reduction continues."""
    try:
        return is_case(folder) and load(folder).origin.generator == GENERATOR
    except BadInput:
        return False


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
