"""One call of `reduce`: the case is opened, the failure found, the reduction run, the result written and reported."""

import hashlib
import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import click
import msgspec

from opsieve.backends.registry import display, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygote import Unavailable
from opsieve.gen.case.case import Case, Origin
from opsieve.gen.case.open_case import open_case
from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.program import onnx_program
from opsieve.reducer.engine.engine import Engine, Progress, Rules, digest
from opsieve.reducer.engine.journal import NAME, Journal
from opsieve.reducer.oracle.discover import NotReproduced, Premise, find, installed
from opsieve.reducer.oracle.interestingness import ScriptTest, Validator, program
from opsieve.reducer.output import MODEL, SCRIPT, STORY, certificate_rows, save_reduction, save_subject, shapes
from opsieve.reducer.problem.order import count_nodes
from opsieve.reducer.problem.recording import recorded
from opsieve.reducer.problem.sameness import LEVELS
from opsieve.reducer.problem.store_cases import target_of, title_of
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.reduction import Listeners, Reduction, certify, check_of, passes, reduce_by_check, reduce_failure
from opsieve.reducer.script import Printer, script
from opsieve.reducer.worker_pool import say
from opsieve.triage.fingerprint.sameness import Level

_SAVE_EVERY = 1.0  # seconds between two savings of the best so far
_MOST_PRINTED = 60  # lines of the reduced graph


@dataclass(frozen=True)
class ReductionRequest:
    """What the command line asks for."""

    path: Path
    inputs: Path | None
    expected: Path | None
    targets: tuple[str, ...]
    against: str | None
    level: str  # one of LEVELS
    script: Path | None
    output: Path | None
    jobs: int
    seed: int
    seconds: float


class _Story(msgspec.Struct, frozen=True):
    """The part of a result's story that its certificate depends on."""

    target: str = ""
    level: str = ""  # one of LEVELS, "" when unknown
    judged: bool = False


class Session:
    """Files of one call on workers that are there. On exit the best so far is on disk."""

    def __init__(self, wanted: ReductionRequest, pool: Sequence[Workers], live: bool):
        self.request = wanted
        self.pool = pool
        self.live = live
        self._stack = ExitStack()
        self._saved = 0.0
        self._best: Subject | None = None
        self._folder: Path | None = None
        self._origin = Origin()

    def __enter__(self) -> "Session":
        self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _interrupt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self._best is not None and self._folder is not None:
                save_subject(self._best, self._folder, self.request.path.name, self._origin)
                if kind is KeyboardInterrupt:
                    say(f"the best so far is in {self._folder}; the same command goes on from there")

    def reduce(self, as_json: bool) -> int:
        """Find, reduce, write and report; the exit code."""
        since = time.monotonic()
        case = self._opened()
        start = Subject(onnx_program(case.program, "reduce").proto, case.inputs, {})
        try:
            premise = self._premise(case)
            folder = self._claimed()
            texts = Printer()
            self._stack.callback(texts.close)
            self._origin = Origin("reduce", self.request.seed, self._versions(premise), case.origin.inputs)
            save_subject(start, folder, self.request.path.name, self._origin)
            with Journal(self._question(case, premise), folder) as journal, self._shown() as progress:
                self._folder = folder
                listeners = Listeners(progress, self._keep)
                if self.request.script is not None:
                    check = ScriptTest(self.request.script.absolute(), self.request.seconds)
                    source = next(iter(installed()), None)
                    source = None if source is None else self.pool[0].baseline(source)
                    result = reduce_by_check(
                        start, [check] * self.request.jobs, self.pool[0], source, journal, listeners
                    )
                else:
                    assert premise is not None
                    result = reduce_failure(start, premise, self.pool, self._level, journal, listeners)
        except NotReproduced as error:
            click.echo(f"reduce: {error}", err=True)
            if as_json:
                click.echo(json.dumps({"target": "", "same": False, "message": str(error)}))
            return 3
        self._best = None
        facts = self._facts(result, premise, folder, time.monotonic() - since)
        text = script(result.best, premise, self.pool[0], texts) if premise else ""
        save_reduction(result, folder, self.request.path.name, self._origin, facts, journal, text)
        click.echo(json.dumps(facts) if as_json else _summary(result, facts, texts))
        return 0

    def verify(self, as_json: bool) -> int:
        """Re-check the certificate of a result; 1 when something simpler fails the same way, 3 when it does not fail."""
        case = self._opened()
        try:
            story = self._story()
            premise = self._premise(case, story.target)
        except NotReproduced as error:
            click.echo(f"reduce: {error}", err=True)
            return 3
        if premise is None:
            raise BadInput(
                "--verify and --check cannot be used together: a script's answers are no certificate of ours."
            )
        workers = self.pool[0]
        start = Subject(onnx_program(case.program, "reduce").proto, case.inputs, {})
        source = workers.baseline(premise.target)
        level = story.level if story.level in LEVELS else self._level
        rules = Rules(
            [check_of(premise, each, level, start, story.judged) for each in self.pool],
            Validator(workers, start),
            lambda subject: recorded(subject, source, workers),
        )
        engine = Engine(recorded(start, source, workers), rules, Journal(""))
        engine.begin()
        certificate, minimal = certify(engine, passes())
        facts = {"minimal": minimal, "checks": engine.checks, "certificate": certificate_rows(certificate)}
        if as_json:
            click.echo(json.dumps(facts))
        else:
            click.echo(_certificate(certificate, minimal))
        return 0 if minimal else 1

    @property
    def _level(self) -> Level:
        return next(level for level in LEVELS if level == self.request.level)

    def _opened(self) -> Case:
        request = self.request
        return open_case(request.path, request.inputs, request.expected, request.seed)

    def _premise(self, case: Case, named: str = "") -> Premise | None:
        """What fails; None when the user's own script says so."""
        if self.request.script is not None:
            return None
        named = named or target_of(self.request.path)
        names = self.request.targets or ((named,) if named else ())
        against = None if self.request.against is None else resolve(self.request.against)
        premise = find(case, [resolve(name) for name in names], against, self.pool[0])
        say(f"{display(premise.target)}: {premise.failure.verdict.kind}: {shown(premise.reason, 400)}")
        return premise

    def _story(self) -> "_Story":
        """What a result tells of how it came about; nothing for any other case."""
        path = self.request.path / STORY
        if path.is_file() and path.stat().st_size <= 1 << 30:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, OSError):
                return msgspec.json.decode(path.read_bytes(), type=_Story)
        return _Story()

    def _claimed(self) -> Path:
        """The folder of the results: new, or one of ours; never the case itself or a stranger's folder."""
        folder = self.request.output or Path(f"{title_of(self.request.path)}.reduced")
        ours = (folder / STORY).is_file() or (folder / NAME).is_file()
        if folder.exists() and not ours and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInput(f"{shown(folder, 200)} is there already and holds no reduction; choose another with -o.")
        return folder

    def _question(self, case: Case, premise: Premise | None) -> str:
        """A digest of all that the answers in a journal depend on."""
        subject = Subject(onnx_program(case.program, "reduce").proto, case.inputs, {})
        parts = [
            digest(subject),
            self.request.level,
            str(self.request.seed),
            str(self.request.script),
            str(self.request.seconds),
        ]
        if premise is not None:
            parts += [str(premise.target), str(premise.arbiter), premise.failure.fingerprint.key]
            parts += [f"{name} {version}" for name, version in sorted(self._versions(premise).items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _versions(self, premise: Premise | None) -> dict[str, str]:
        if premise is None:
            return {}
        try:
            return {premise.target.backend: self.pool[0].version(premise.target)}
        except Unavailable:
            return {}

    def _keep(self, subject: Subject) -> None:
        self._best = subject
        if self._folder is not None and time.monotonic() - self._saved > _SAVE_EVERY:
            save_subject(subject, self._folder, self.request.path.name, self._origin)
            self._saved = time.monotonic()

    @contextmanager
    def _shown(self) -> Iterator[Any]:
        """A function that shows progress on a terminal."""
        if not self.live:
            yield lambda progress: None
            return
        from rich.console import Console

        with Console(stderr=True).status("recording values") as status:

            def progressed(at: Progress) -> None:
                inner = f" + {at.inner_nodes} inside" if at.inner_nodes else ""
                status.update(
                    f"{at.dimension}: {at.nodes} nodes{inner}, {at.size} bytes, {at.checks} checks, {at.seconds:.1f} s"
                )

            yield progressed

    def _facts(self, result: Reduction, premise: Premise | None, folder: Path, seconds: float) -> dict[str, Any]:
        """The keys of `--json`."""
        before, after = count_nodes(result.start.model), count_nodes(result.best.model)
        return {
            "target": "" if premise is None else display(premise.target),
            "kind": "check" if premise is None else premise.failure.verdict.kind,
            "fingerprint": "" if premise is None else premise.failure.fingerprint.key,
            "nodes_before": before[0],
            "inner_nodes_before": before[1],
            "nodes_after": after[0],
            "inner_nodes_after": after[1],
            "bytes_before": result.start.model.ByteSize(),
            "bytes_after": len(program(result.best).data),
            "checks": result.checks,
            "node_checks": result.node_checks,
            "invalid_candidates": result.invalid,
            "seconds": round(seconds, 3),
            "level": "" if premise is None else "cure" if result.judged else self.request.level,
            "judged": result.judged,
            "same": result.same,
            "minimal": result.minimal,
            "replays": None if result.replays is None else {"failed": result.replays[0], "runs": result.replays[1]},
            "slippage": len(result.slippage),
            "slipped": len(result.slippage),  # its name before 0.2
            "output": str(folder / MODEL),
            "script": str(folder / SCRIPT) if premise is not None else "",
        }


def _summary(result: Reduction, facts: dict[str, Any], texts: Printer) -> str:
    """What a person reads."""
    lines = [f"{'':8}{'nodes':>8}{'inside':>8}{'inputs':>8}{'bytes':>10}"]
    for when, subject in (("before", result.start), ("after", result.best)):
        outer, inner = count_nodes(subject.model)
        lines.append(f"{when:8}{outer:>8}{inner:>8}{len(subject.inputs):>8}{subject.model.ByteSize():>10}")
    lines += ["", *(f"    {line}" for line in _safe(texts.printed(result.best))[:_MOST_PRINTED]), ""]
    lines += [f"input {text}" for text in shapes(result.best)]
    lines.append(
        f"{facts['checks']} checks ({facts['node_checks']} for nodes), {facts['seconds']:.1f} s; "
        + (
            "verified: the reduced model still shows the same failure"
            if result.same
            else "but the reduced model no longer shows the same failure"
        )
    )
    if result.replays is not None:
        lines.append(f"it shows only sometimes: the result failed in {result.replays[0]} of {result.replays[1]} runs")
    lines.append(_certificate(result.certificate, result.minimal))
    if result.slippage:
        lines.append(f"{len(result.slippage)} different failure(s) found while reducing: see other_failures/")
    lines += [facts["output"], facts["script"]]
    return "\n".join(line for line in lines if line is not None)


def _certificate(certificate: Any, minimal: bool) -> str:
    tried = ", ".join(f"{line.name} {line.edits}" for line in certificate if line.edits)
    if minimal:
        return f"1-minimal: no single remaining edit preserves the failure (tried: {tried or 'none are left'})"
    return f"not minimal: a single remaining edit preserves the failure (tried: {tried})"


def _safe(text: str) -> list[str]:
    return ["".join(c if c.isprintable() else "?" for c in line.expandtabs(4)) for line in text.split("\n")]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
