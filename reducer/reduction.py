"""A whole reduction: premise, node phase, every dimension to a fixpoint, certificate, and a last look by the judge."""

import importlib.metadata
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from opsieve.backends.target import Target
from opsieve.backends.workers.workers import Workers
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.model.invalid_marker import broken
from opsieve.reducer.engine.engine import Engine, Progress, Rules
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.nodes.node_passes import BYPASS, NODES, OUTPUTS
from opsieve.reducer.nodes.node_phase import ENOUGH, NodePhase
from opsieve.reducer.oracle.accepts_invalid import AcceptsInvalidTest
from opsieve.reducer.oracle.discover import REPLAYS, NotReproduced, Premise, still
from opsieve.reducer.oracle.interestingness import (
    CheckResult,
    InterestingnessTest,
    RepeatedTest,
    TargetTest,
    Validator,
    cure_set,
    finite,
    program,
    runs_for,
)
from opsieve.reducer.passes.bodies import OPENING
from opsieve.reducer.problem.edit import Pass
from opsieve.reducer.problem.recording import recorded
from opsieve.reducer.problem.subject import Subject
from opsieve.triage.fingerprint.normalise import normalise
from opsieve.triage.fingerprint.sameness import Level

GROUP = "opsieve.reductions"
# Where a dimension stands in a round: what removes most comes first. Others follow in alphabetical order.
_ORDER = ("bodies", "nodes", "outputs", "bypass", "constants", "dimensions", "dtypes", "values", "attributes")
_MAX_ROUNDS = 40


@dataclass(frozen=True)
class CertificateLine:
    """One line of the certificate: how many single edits are left, and what became of them; minimal when none is `same`."""

    name: str
    edits: int
    gone: int
    slippage: int
    invalid: int


@dataclass(frozen=True)
class Reduction:
    """What came of it. `same` is the judge's last word, `minimal` the certificate's; `judged`: he was asked at every step."""

    start: Subject
    best: Subject
    checks: int
    node_checks: int
    invalid: int
    seconds: float
    same: bool
    certificate: tuple[CertificateLine, ...]
    minimal: bool
    replays: tuple[int, int] | None = (
        None  # of a failure that shows sometimes: how often the result failed, of how many
    )
    slippage: dict[str, Subject] = field(default_factory=dict)
    judged: bool = False


@dataclass(frozen=True)
class Listeners:
    """Who hears of progress and of every new best subject."""

    progress: Callable[[Progress], None] = lambda progress: None
    accepted: Callable[[Subject], None] = lambda subject: None


def passes() -> list[Pass]:
    """Every dimension, found by entry point, in the order of a round. BadInput for a plug-in that cannot be loaded."""
    found: list[Pass] = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            found.append(entry.load())
        except (ImportError, AttributeError, SyntaxError) as error:
            raise BadInput(f"the reduction {entry.name} cannot be loaded ({error}): reinstall its package") from error
    places = {name: place for place, name in enumerate(_ORDER)}
    return sorted(found, key=lambda item: (places.get(item.name, len(places)), item.name))


def reduce_failure(
    start: Subject,
    premise: Premise,
    pool: Sequence[Workers],
    level: Level,
    journal: Journal,
    listeners: Listeners,
    dimensions: Sequence[Pass] | None = None,
) -> Reduction:
    """Reduce a subject whose failure is known.

    `pool` are workers for tests at the same time, the first of which does everything else too. A result that the judge no
    longer takes for the same failure is given up for the last step before it that he does, and reduced on with the level `cure`
    and with him asked at every step.
    """
    workers = pool[0]
    since = time.monotonic()
    checks = [check_for(premise, each, level, start) for each in pool]
    run = _Run(start, checks, workers, workers.baseline(premise.target), journal, listeners, dimensions)
    run.reduce(_compiler_text(premise), _known_result(checks[0], premise, start))
    if isinstance(checks[0], RepeatedTest):
        answers = checks[0].inner.evaluate([run.engine.best] * REPLAYS)
        replays = (sum(answer.kind == "same" for answer in answers), REPLAYS)
        return replace(run.result(start, time.monotonic() - since, replays[0] > 0), replays=replays)
    same = still(run.engine.best, premise, workers)
    if not same and level != "cure":
        good = next((subject for subject in reversed(run.trail) if still(subject, premise, workers)), start)
        strict = [check_of(premise, each, "cure", start, judged=True) for each in pool]
        second = _Run(good, strict, workers, workers.baseline(premise.target), journal, listeners, dimensions, "cure:")
        second.engine.slippage.update(run.engine.slippage)
        second.engine.checks, second.node_checks = run.engine.checks, run.node_checks
        second.fixpoint()
        same = still(second.engine.best, premise, workers)
        return replace(second.result(start, time.monotonic() - since, same), judged=True)
    return run.result(start, time.monotonic() - since, same)


def reduce_by_check(
    start: Subject,
    checks: Sequence[InterestingnessTest],
    workers: Workers,
    source: Target | None,
    journal: Journal,
    listeners: Listeners,
    dimensions: Sequence[Pass] | None = None,
) -> Reduction:
    """Reduce a subject by any check, a user's script say, of which `checks` are equal; `source` is where values are recorded.

    NotReproduced when the check does not say `same` of the subject itself.
    """
    since = time.monotonic()
    run = _Run(start, checks, workers, source, journal, listeners, dimensions)
    run.reduce("")
    return run.result(start, time.monotonic() - since, check_again(checks[0], run.engine.best))


def check_again(check: InterestingnessTest, subject: Subject) -> bool:
    """Whether a check, asked once more, still says `same`."""
    return next(iter(check.evaluate([subject]))).kind == "same"


def certify(engine: Engine, dimensions: Iterable[Pass]) -> tuple[tuple[CertificateLine, ...], bool]:
    """Every single edit that is left in every dimension, tried; whether none of them keeps the failure."""
    lines = []
    minimal = True
    for dimension in dimensions:
        engine.dimension = dimension.name
        engine.refresh()
        kinds = [answer.kind for edit in dimension.edits(engine.best) if (answer := engine.single(edit)) is not None]
        minimal = minimal and "same" not in kinds
        lines.append(
            CertificateLine(
                dimension.name, len(kinds), kinds.count("gone"), kinds.count("slippage"), kinds.count("invalid")
            )
        )
    return tuple(lines), minimal


@dataclass(frozen=True)
class JudgedTest:
    """A check whose `same` the judge has to confirm. He is slow, and sees what one run does not: results that ONNX leaves open, say."""

    inner: InterestingnessTest
    premise: Premise
    workers: Workers

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject, answer in zip(subjects, self.inner.evaluate(subjects), strict=True):
            if answer.kind == "same" and not still(subject, self.premise, self.workers):
                yield CheckResult("gone", "the judge does not see the failure")
            else:
                yield answer


class _Run:
    """One engine and the order in which it is driven."""

    def __init__(
        self,
        start: Subject,
        checks: Sequence[InterestingnessTest],
        workers: Workers,
        source: Target | None,
        journal: Journal,
        listeners: Listeners,
        dimensions: Sequence[Pass] | None,
        mark: str = "",
    ):
        self.trail: list[Subject] = []
        self.dimensions = passes() if dimensions is None else list(dimensions)
        self.node_checks = 0

        def accepted(subject: Subject) -> None:
            self.trail.append(subject)
            listeners.accepted(subject)

        rules = Rules(
            checks,
            Validator(workers, start),
            lambda subject: recorded(subject, source, workers),
            listeners.progress,
            accepted,
        )
        self.engine = Engine(recorded(start, source, workers), rules, journal, mark)

    def reduce(self, text: str, known: CheckResult | None = None) -> None:
        engine = self.engine
        answer = engine.begin(known)
        if answer.kind != "same":
            raise NotReproduced(f"the check does not show the failure on the whole model: {answer.kind} {answer.why}")
        self._nodes(text)
        for dimension in self.dimensions:
            # A body that is inlined is a graph of its own, to be searched like the one around it.
            for bodies in (OPENING, dimension) if dimension.name == OPENING.name else ():
                while engine.sweep(bodies) and len(engine.best.model.graph.node) > ENOUGH:
                    self._nodes(text)
        self.node_checks = engine.checks
        self.fixpoint()

    def fixpoint(self) -> None:
        for _ in range(_MAX_ROUNDS):
            gained = [dimension.name for dimension in self.dimensions if self.engine.sweep(dimension)]
            if not gained:
                return

    def result(self, start: Subject, seconds: float, same: bool) -> Reduction:
        certificate, minimal = certify(self.engine, self.dimensions)
        engine = self.engine
        return Reduction(
            start,
            engine.best,
            engine.checks,
            self.node_checks,
            engine.invalid,
            seconds,
            same,
            certificate,
            minimal,
            slippage=dict(engine.slippage),
        )

    def _nodes(self, text: str) -> None:
        self.engine.refresh()
        NodePhase(self.engine, text).run()
        for dimension in (OUTPUTS, NODES, BYPASS):
            # The search leaves next to nothing to single steps, unless what it needed lay far apart.
            self.engine.sweep(dimension, together=len(self.engine.best.model.graph.node) > ENOUGH)


def check_for(premise: Premise, workers: Workers, level: Level, start: Subject) -> InterestingnessTest:
    """The check of a premise; at the level `cure` the other builds are asked about `start` first."""
    fault = broken(start.model)
    if premise.failure.verdict.kind == "accepts-invalid":
        assert fault is not None
        assert premise.arbiter is not None
        assert premise.right is not None
        return AcceptsInvalidTest(workers, premise.target, fault, premise.arbiter, normalise(premise.right.message))
    check = TargetTest(
        workers, premise.target, premise.failure, premise.arbiter, level, finite=_finite(premise, workers, start)
    )
    if premise.chance < 1:  # what cures it cannot be seen from a few runs
        return RepeatedTest(check, runs_for(premise.chance))
    if level != "cure":
        return check
    sick, well = cure_set(check, start)
    return replace(check, sick=sick, well=well)


def check_of(premise: Premise, workers: Workers, level: Level, start: Subject, judged: bool) -> InterestingnessTest:
    """`check_for`, every `same` of which the judge has to confirm where he was asked at every step."""
    check = check_for(premise, workers, level, start)
    return JudgedTest(check, premise, workers) if judged else check


def _finite(premise: Premise, workers: Workers, start: Subject) -> bool:
    """Whether the right outputs of the whole model are known to be finite; asked of a mismatch only."""
    if premise.failure.verdict.kind != "mismatch" or premise.arbiter is None:
        return False
    right = premise.right or workers.observe(premise.arbiter, program(start), start.inputs)
    return right.outputs is not None and finite(right.outputs.values())


def _known_result(check: InterestingnessTest, premise: Premise, start: Subject) -> CheckResult | None:
    """What the check says of the whole model, from what was observed when the failure was found."""
    if premise.right is None or not isinstance(check, TargetTest) or check.level == "cure":
        return None
    return check.known(start, premise.observation, premise.right)


def _compiler_text(premise: Premise) -> str:
    """All that the compiler said; nothing for a mismatch, whose words would be our own. What runs says nothing: then, what is broken."""
    seen = premise.observation
    if premise.failure.verdict.kind == "accepts-invalid":
        return premise.reason
    if premise.failure.verdict.kind == "mismatch":
        return ""
    return "\n".join([seen.message, *(frame.function for frame in reversed(seen.frames)), seen.log])
