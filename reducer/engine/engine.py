"""The engine: tries what passes propose, and keeps the simplest subject that still shows the failure.

A candidate is looked up by its digest, must be simpler than the best so far, must be valid, and only then
costs a test. Edits that touch disjoint parts are tried together first, then in halves, then one by one. The
order of the candidates alone decides which is accepted, never timing: early results, from a journal or from a
parallel test, wait for their turn, so any number of workers and any interruption give the same subject. The
engine knows a subject only through its form.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from opsieve.reducer.engine.edit import Edit, Pass
from opsieve.reducer.engine.form import Progress, Rules
from opsieve.reducer.engine.interestingness import CheckResult, InterestingnessTest
from opsieve.reducer.engine.journal import Attempt, Journal

S = TypeVar("S")
# The number of hexadecimal digits of a digest.
DIGITS = 32
# The average test duration, in seconds, from which on further workers are started.
_SLOW = 0.1
# Groups of up to this size are tried one by one: halving three edits saves one test at best.
_SINGLES = 3
# The limit in bytes on candidates that are built only to find those that were tried before: for a large
# model building them costs more than it saves.
_FILTERED_BYTES = 64 << 20


class Engine(Generic[S]):
    """A running reduction. `checks` counts the tests that were run, `refused` the rejected candidates by the
    kind of their result; invalid ones were never run. `left` is how many tests the present step takes if all
    of them fail.
    """

    def __init__(self, start: S, rules: Rules[S], journal: Journal, mark: str = ""):
        """`mark` tells the results of one kind of test in a journal from those of others."""
        self.best = self._smallest = start
        self.rules = rules
        self.form = rules.form
        self.journal = journal
        self.checks = 0
        self.refused: Counter[str] = Counter()
        self.left = 0
        self.slippage: dict[str, S] = {}
        # The test's result for the best subject.
        self.result = CheckResult("gone")
        self.dimension = "start"
        self._known: dict[
            str, CheckResult
        ] = {}  # what was tested, in order: what is tried next depends on this alone
        # Available results: of an earlier call, of another run of this call, or prefetched.
        self._cached: dict[str, CheckResult] = {}
        # Those of this call, each of which counts as a check when it is used.
        self._uncounted: set[str] = set()
        for place, attempt in enumerate(journal.attempts):
            if len(attempt.digest) == len(mark) + DIGITS and attempt.digest.startswith(mark):
                digest = attempt.digest.removeprefix(mark)
                self._cached[digest] = attempt.result()
                self._uncounted |= {digest} if place >= journal.earlier else set()
        # The results of twins (`Rules.twin`) that lost the failure.
        self._lost: dict[str, CheckResult] = {}
        # Digests of candidates that passed validation.
        self._valid: set[str] = set()
        self._hopeless: dict[
            tuple[str, str], frozenset[str]
        ] = {}  # edits that failed: dimension, label, what they touch
        self._mark = mark
        self._stale = False
        self._since = time.monotonic()
        # The sum of the durations of all tests in seconds; tests that ran at the same time all count.
        self._testing = 0.0

    def evaluate(
        self, candidate: S | None, label: str, look: Callable[[S], CheckResult] | None = None
    ) -> CheckResult:
        """Return the test's result for a candidate, whether or not it is simpler; each is run once. A
        candidate of `None` is invalid. `look` replaces the test.
        """
        if candidate is None:
            return CheckResult("invalid", "a value that it needs is unknown")
        digest = self.form.digest(candidate)
        if digest not in self._known:
            twin = self.rules.twin(candidate)
            if twin in self._lost:
                return self._known.setdefault(digest, self._lost[twin])
            if digest not in self._cached:
                self._run({digest: (candidate, label)}, look)
            self._known[digest] = self._cached[digest]
            if digest in self._uncounted and self._known[digest].kind != "invalid":
                self.checks += 1
                self.refused[self._known[digest].kind] += self._known[digest].kind != "same"
            if twin and self._known[digest].kind == "gone":
                self._lost[twin] = self._known[digest]
        result = self._known[digest]
        # Comparing a large model with itself takes long, so identity is checked first.
        is_new = result.kind == "same" and candidate is not self._smallest
        if is_new and self.form.simpler(candidate, self._smallest):
            self._smallest = candidate
            # Another run of this call has shown it.
            if digest not in self._uncounted:
                self.rules.shown(candidate)
        if result.kind == "slippage" and result.key:
            held = self.slippage.get(result.key)
            # A report shows each different failure by its simplest subject.
            if held is None or self.form.simpler(candidate, held):
                self.slippage[result.key] = candidate
        return result

    def prefetch(self, candidates: Iterable[tuple[Callable[[], S | None], str]]) -> None:
        """Run in parallel the tests that probably come next, the likeliest first; known results are skipped.

        It only makes results available earlier. It does so only if tests are slow enough to pay and there are
        workers.
        """
        width = len(self.rules.tests)
        # The average duration of a test so far.
        if width < 2 or self._testing / max(1, self.checks) < _SLOW:
            return
        wave: dict[str, tuple[S, str]] = {}
        first = True
        for make, label in candidates:
            candidate = make()
            digest = "" if candidate is None else self.form.digest(candidate)
            if candidate is not None and digest not in self._known and digest not in self._cached:
                wave.setdefault(digest, (candidate, label))
            elif first:
                # The next result is available, so there is no reason to wait.
                return
            first = False
            if len(wave) == width:
                break
        self._run(wave)

    def improve(self, candidate: S | None, label: str, touches: frozenset[str] = frozenset()) -> bool:
        """Take a candidate for the best when it is simpler and shows the failure; `touches` is what changed,
        {} for anything.
        """
        if candidate is None or not self.form.simpler(candidate, self.best):
            return False
        result = self.evaluate(candidate, label)
        if result.kind != "same":
            return False
        self.best, self.result = candidate, result
        self._stale = True
        # A failed edit gets another chance only if what it touches has changed; otherwise each gain would
        # repeat all of them.
        self._hopeless = {
            edit: names for edit, names in self._hopeless.items() if touches and touches.isdisjoint(names)
        }
        self.rules.accepted(candidate)
        self._report()
        return True

    def settle_for_smallest(self) -> None:
        """Accept the simplest subject that showed the failure, if a search was cut off before it did."""
        self.improve(self._smallest, "the simplest so far")

    def begin(self, known: CheckResult | None = None) -> CheckResult:
        """Test whether the start shows the failure; `known` is the result if a run has already shown it."""
        digest = self.form.digest(self.best)
        if known is not None and digest not in self._cached:
            self.checks += 1
            self._remember(digest, self.best, "the whole model", known)
        self.result = self.evaluate(self.best, "the whole model")
        return self.result

    def refresh(self) -> None:
        """Record the values of the best subject anew when it has changed."""
        if self._stale:
            self.best = self.rules.refresh(self.best)
            self._stale = False

    def sweep(self, dimension: Pass[S], together: bool = True, retry: bool = True) -> bool:
        """Try the edits of a pass again and again until they stop gaining; returns whether any did.

        `together` first tries edits that touch disjoint parts at once: it pays if several are likely to
        succeed. Without `retry`, failed edits are left out until something that they touch has changed.
        """
        self.dimension = dimension.name
        gained = False
        while True:
            self.refresh()
            edits = list(dimension.edits(self.best))
            if not retry:
                edits = [edit for edit in edits if (dimension.name, edit.label) not in self._hopeless]
            edits = self._filter_tried(edits)
            if not edits or not self._round([edits] if together else [[edit] for edit in edits]):
                return gained
            gained = True

    def single(self, edit: Edit[S]) -> CheckResult | None:
        """Try one edit alone on the best subject; returns `None` if it does not apply or simplify."""
        candidate = edit.apply(self.best)
        if candidate is None or not self.form.simpler(candidate, self.best):
            return None
        result = self.evaluate(candidate, edit.label)
        if result.kind not in ("gone", "slippage"):
            return result
        # If rewriting the subject without the edit loses the failure too, the edit is not what loses it.
        control = self.rules.control(self.best, candidate)
        lost = control is not None and self.evaluate(control, "the rewriting alone").kind != "same"
        return replace(result, by_rewriting=lost)

    def _round(self, groups: list[list[Edit[S]]]) -> bool:
        gained = False
        while groups:
            self.left = sum(map(len, groups))
            self.prefetch(self._upcoming(groups))
            merged, used, left = _merge_edits(self.best, groups.pop(0))
            if left:
                groups.insert(0, left)
            if not used:
                continue
            touches = frozenset().union(*(edit.touches for edit in used))
            if self.improve(merged, _label(used), touches):
                gained = True
            elif len(used) > 1:
                groups[:0] = _split(used)
            else:
                self._hopeless[self.dimension, used[0].label] = used[0].touches
        return gained

    def _upcoming(self, groups: list[list[Edit[S]]]) -> Iterator[tuple[Callable[[], S | None], str]]:
        """Yield the candidates that come next as long as each of them fails: most candidates do."""
        waiting = list(groups[: 2 * len(self.rules.tests)])
        # The look-ahead is bounded: at most two candidates for each parallel test.
        for _ in range(2 * len(self.rules.tests)):
            if not waiting:
                return
            merged, used, left = _merge_edits(self.best, waiting.pop(0))
            if left:
                waiting.insert(0, left)
            if merged is not None and self.form.simpler(merged, self.best):
                yield partial(lambda subject: subject, merged), _label(used)
            if len(used) > 1:
                waiting[:0] = _split(used)

    def _filter_tried(self, edits: list[Edit[S]]) -> list[Edit[S]]:
        """Leave out edits whose candidates are known to fail. The others are validated in one batch, which
        saves round trips to the checker.
        """
        if len(edits) * self.form.size(self.best).bytes > _FILTERED_BYTES:
            return edits
        left: list[tuple[str, Edit[S]]] = []
        fresh: dict[str, tuple[S, str]] = {}
        for edit in edits:
            candidate = edit.apply(self.best)
            if candidate is None or not self.form.simpler(candidate, self.best):
                continue
            digest = self.form.digest(candidate)
            if digest not in self._known:
                fresh.setdefault(digest, (candidate, edit.label))
            elif self._known[digest].kind != "same":
                continue
            left.append((digest, edit))
        self._validate(fresh)
        refused = {
            digest for digest in fresh if digest in self._cached and self._cached[digest].kind == "invalid"
        }
        self._known.update((digest, self._cached[digest]) for digest in refused)
        return [edit for digest, edit in left if digest not in refused]

    def _validate(self, wave: dict[str, tuple[S, str]]) -> None:
        """Record the invalid candidates of a wave that are not known yet."""
        wave = {
            digest: item
            for digest, item in wave.items()
            if digest not in self._cached and digest not in self._valid
        }
        complaints = self.rules.validator.complaints([subject for subject, _ in wave.values()])
        for (digest, (subject, label)), complaint in zip(wave.items(), complaints, strict=True):
            if complaint:
                self._remember(digest, subject, label, CheckResult("invalid", complaint))
            else:
                self._valid.add(digest)

    def _run(self, wave: dict[str, tuple[S, str]], look: Callable[[S], CheckResult] | None = None) -> None:
        self._validate(wave)
        valid = [(digest, *item) for digest, item in wave.items() if digest not in self._cached]
        if not valid:
            return
        self.rules.budget.spend(self.checks)
        subjects = [subject for _, subject, _ in valid]
        tests = self.rules.tests
        if look is not None:
            results = [_time_call(look, subject) for subject in subjects]
        elif len(valid) == 1:
            results = [_time_call(_run_test, tests[0], subjects[0])]
        else:
            with ThreadPoolExecutor(len(tests)) as pool:
                results = list(pool.map(partial(_time_call, _run_test), tests, subjects))
        for (digest, subject, label), (result, seconds) in zip(valid, results, strict=True):
            self.checks += 1
            self._testing += seconds
            self._remember(digest, subject, label, result)
        self._report()

    def _remember(self, digest: str, subject: S, label: str, result: CheckResult) -> None:
        self._cached[digest] = result
        self.refused[result.kind] += result.kind != "same"
        size = self.form.size(subject)
        nodes = size.nodes + size.inner_nodes
        self.journal.add(
            Attempt(
                self._mark + digest,
                self.dimension,
                label,
                nodes,
                result.kind,
                result.why,
                result.key,
                result.wrong,
            )
        )

    def _report(self) -> None:
        size = self.form.size(self.best)
        seconds = time.monotonic() - self._since
        sizes = (size.nodes, size.inner_nodes, size.bytes)
        self.rules.progress(Progress(self.dimension, *sizes, self.checks, seconds, self.left, +self.refused))


def _run_test(test: InterestingnessTest[S], subject: S) -> CheckResult:
    return next(iter(test.evaluate([subject])))


def _time_call(ask: Callable[..., CheckResult], *given: object) -> tuple[CheckResult, float]:
    """Call a test, and return its result and duration in seconds."""
    since = time.monotonic()
    return ask(*given), time.monotonic() - since


def _label(used: Sequence[Edit[S]]) -> str:
    return used[0].label if len(used) == 1 else f"{len(used)} edits: {used[0].label} ... {used[-1].label}"


def _merge_edits(start: S, edits: Sequence[Edit[S]]) -> tuple[S | None, list[Edit[S]], list[Edit[S]]]:
    """Apply the edits in turn as long as they touch disjoint parts; returns the result, the applied edits and
    the rest.
    """
    subject: S | None = None
    touched: set[str] = set()
    used: list[Edit[S]] = []
    left: list[Edit[S]] = []
    for edit in edits:
        if not touched.isdisjoint(edit.touches):
            left.append(edit)
            continue
        result = edit.apply(start if subject is None else subject)
        if result is not None:
            subject = result
            touched |= edit.touches
            used.append(edit)
    return subject, used, left


def _split(edits: list[Edit[S]]) -> list[list[Edit[S]]]:
    if len(edits) <= _SINGLES:
        return [[edit] for edit in edits]
    middle = len(edits) // 2
    return [edits[:middle], edits[middle:]]
