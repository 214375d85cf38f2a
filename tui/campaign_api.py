"""`opsieve.fuzz`: a campaign from Python, with progress callbacks."""

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, facts_table, rows_table
from opsieve.triage.campaign.campaign import run_campaign
from opsieve.triage.campaign.coverage_session import CoverageSession
from opsieve.triage.campaign.session import FuzzRequest, check_store, list_facts, open_campaign
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

_LIMITS = Limits(seconds=20.0)


@dataclass(frozen=True, slots=True)
class FuzzProgress:
    """The state of a campaign: total tests, tests per second of this run, failures by kind, clusters."""

    tests: int
    tests_per_second: float
    failures: dict[str, int]
    clusters: int


@dataclass(frozen=True, slots=True)
class FuzzOutcome:
    """The result of a campaign. `facts` are the keys of `opsieve fuzz --json`; `stopped` if a callback ended
    it.
    """

    facts: dict[str, Any]
    folder: Path
    stopped: bool = False

    def open(self) -> Queries:
        """Open the store with the findings; close it, or use it in `with`."""
        return Queries(self.folder)

    def _repr_html_(self) -> str:
        facts = self.facts
        found = ", ".join(f"{many} {kind}" for kind, many in facts["failures"].items()) or "none"
        about = [
            (
                "tests",
                (
                    f"{facts['tests']:,}, {facts['tests_now']:,} in this run at {facts['tests_per_second']}"
                    " per second"
                ),
            ),
            ("failures", f"{found}; {count_noun(facts['clusters'], 'cluster')}"),
            ("store", str(self.folder)),
        ]
        rows = [(one["cluster"], one["members"], one["title"]) for one in facts["new_clusters"]]
        return facts_table(about) + (rows_table(("new cluster", "failures", "title"), rows) if rows else "")


def _ignore_sentence(sentence: str) -> None:
    """Ignore a sentence."""


def fuzz(
    targets: Sequence[str] = ("onnxruntime",),
    *,
    tests: int | None = None,
    minutes: float | None = None,
    store: str | os.PathLike[str] | None = None,
    strategy: str | None = None,
    nodes: str | None = None,
    values: str | None = None,
    seed: int | None = None,
    resume: bool = False,
    jobs: int = 1,
    metamorphic: bool = False,
    seconds: float = 20.0,
    memory: int = 0,
    say: Callable[[str], None] = _ignore_sentence,
    progress: Callable[[FuzzProgress], bool | None] | None = None,
) -> FuzzOutcome:
    """Run a campaign of generated programs and store each distinct failure, as `opsieve fuzz` does.

    Args:
        targets: Compilers, written ``backend[==release | @path][:option,...]``.
        tests: Total number of tests after which the campaign ends; this or `minutes` is required.
        minutes: Wall time after which this run ends.
        store: Folder of the store; a new temporary one if None.
        strategy: Name of the generation strategy; ``mix`` if None.
        nodes: Number of nodes, such as ``"10"`` or ``"5-60"``.
        values: How input values are chosen, as ``--values`` takes it.
        seed: Seed of the campaign; a random one if None.
        resume: Continue the latest campaign of `store`.
        jobs: Number of worker lanes.
        metamorphic: Also test semantically equivalent variants.
        seconds: Time limit of one run of a compiler, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        say: Receives diagnostics, one sentence per call.
        progress: Called with the state of the campaign. If it returns False the campaign ends; completed
            tests stay stored, also when it raises.

    Returns:
        The outcome: ``facts`` are the keys of ``--json``; ``folder`` is the store.

    Raises:
        BadInput: If neither `tests` nor `minutes` is given, or an option cannot be used.
    """
    if tests is None and minutes is None:
        raise BadInput("say when the campaign ends: tests=1000, or minutes=10")
    names = (targets,) if isinstance(targets, str) else tuple(map(str, targets))
    request = FuzzRequest(
        store=Path(store) if store is not None else Path(tempfile.mkdtemp(prefix="opsieve-store-")),
        targets=() if resume else names,
        strategy=strategy,
        nodes=nodes,
        values=values,
        seed=secrets.randbits(32) if seed is None and not resume else seed,
        resume=resume,
        tests=tests,
        minutes=minutes,
        limits=replace(_LIMITS, seconds=seconds, **({"memory": memory} if memory else {})),
        metamorphic=metamorphic,
    )
    return _run_campaign(request, jobs, say, progress)


def _run_campaign(
    request: FuzzRequest,
    jobs: int,
    say: Callable[[str], None],
    progress: Callable[[FuzzProgress], bool | None] | None,
) -> FuzzOutcome:
    """Run the campaign until its end or until a callback stops it."""
    begun, stopped, folder = time.monotonic(), False, request.store
    with Store(check_store(request)) as opened:
        campaign, plan = open_campaign(opened, request, lambda *_: None, say)
        before = done = opened.count_done(campaign)
        session = CoverageSession(request, plan, campaign, folder)
        started = time.monotonic()
        left = max(1e-3, begun + 60 * request.minutes - started) if request.minutes else 0.0
        going = run_campaign(
            opened, campaign, plan, request.limits, lanes=jobs, tests=request.tests, seconds=left,
            programs=session.programs, coverage=session.coverage,
        )  # fmt: skip
        try:
            for done in going:
                session.note_progress(done)
                rate = (done - before) / max(1e-9, time.monotonic() - started)
                at = FuzzProgress(
                    done, rate, dict(opened.count_kinds(campaign)), opened.count_clusters(campaign)
                )
                if progress is not None and progress(at) is False:
                    stopped = True
                    break
        finally:
            going.close()
            session.write_record(done)
        facts = list_facts(opened, campaign, done - before, time.monotonic() - started, folder)
    return FuzzOutcome(facts | session.list_facts() | {"campaign": campaign.id}, folder, stopped)
