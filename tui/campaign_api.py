"""`opsieve.fuzz`: a campaign from Python, with progress callbacks."""

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, facts_table, printable, rows_table
from opsieve.triage.campaign import coverage_session, lane_spawn
from opsieve.triage.campaign.campaign import run_campaign
from opsieve.triage.campaign.session import FuzzRequest, check_store, list_facts, open_campaign
from opsieve.triage.review.review import judge_clusters
from opsieve.triage.store import finished_test, queries
from opsieve.triage.store.store import Store
from opsieve.tui.api import Say, ignore, make_limits, name_targets


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

    def open(self) -> queries.Queries:
        """Open the store with the findings; close it, or use it in `with`."""
        return queries.Queries(self.folder)

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


def fuzz(
    targets: Sequence[str] = ("onnxruntime",),
    *,
    tests: int | None = None,
    minutes: float | None = None,
    store: str | os.PathLike[str] | None = None,
    strategy: str | None = None,
    nodes: str | None = None,
    values: str | None = None,
    operators: Sequence[str] = (),
    dtypes: str | Sequence[str] = (),
    siblings: int = 1,
    probe: bool | None = None,
    seed: int | None = None,
    resume: bool = False,
    jobs: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    coverage: str | None = None,
    guide: bool = True,
    adapt: bool = True,
    oracle: Sequence[str] = (),
    metamorphic: bool = False,
    known: str | os.PathLike[str] | None = None,
    seconds: float = 20.0,
    memory: int = 0,
    say: Say = ignore,
    progress: Callable[[FuzzProgress], object] = ignore,
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
        operators: Patterns of operators to use (``"Conv*"``) or to exclude (``"-Loop"``); all if empty.
        dtypes: Element types to use, such as ``["float32", "int64"]``; all if empty.
        siblings: Programs of each seed: one is grown, the others differ from it in single choices.
        probe: Whether to probe all operators of a new target first; when an operator first occurs if None.
        seed: Seed of the campaign; a random one if None.
        resume: Continue the latest campaign of `store`.
        jobs: Tests at once; one, or as many as the cluster's workers have threads, if None.
        scheduler: Address of a Dask cluster that runs the tests.
        resources: Resources that a worker of the cluster must have.
        coverage: ``functions``, ``blocks`` or ``passes`` to record what was reached.
        guide: With the strategy ``tir``: whether to mutate the functions that reached something new.
        adapt: Whether slow targets run only the most promising programs.
        oracle: Names of oracles to consult too, those of your own among them.
        metamorphic: Also test semantically equivalent variants.
        known: Store of known failures; ``facts["ci_clusters"]`` then says which clusters are new.
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
    # A text is a sequence of letters, and "float32" would be split into them.
    items = (dtypes,) if isinstance(dtypes, str) else dtypes
    with name_targets(targets, oracle) as named:
        request = FuzzRequest(
            store=Path(store) if store is not None else Path(tempfile.mkdtemp(prefix="opsieve-store-")),
            # A campaign that goes on keeps its own.
            targets=() if resume else named.targets,
            strategy=strategy,
            nodes=nodes,
            values=values,
            operators=tuple(operators),
            dtypes=",".join(items),
            siblings=siblings,
            probe=probe,
            # A new campaign is to find what earlier ones did not.
            seed=secrets.randbits(32) if seed is None and not resume else seed,
            resume=resume,
            tests=tests,
            minutes=minutes,
            lanes=jobs,
            scheduler=scheduler,
            resources=resources or {},
            coverage=coverage,
            guide=guide,
            adapt=adapt,
            oracles=named.oracles,
            limits=make_limits(seconds, memory),
            metamorphic=metamorphic or "metamorphic" in named.oracles.names,
        )
        outcome = _run_campaign(request, say, progress)
    if known is not None:
        outcome.facts["ci_clusters"] = list_judged_clusters(
            outcome.folder, outcome.facts["campaign"], Path(known)
        )
    return outcome


def _run_campaign(request: FuzzRequest, say: Say, progress: Callable[[FuzzProgress], object]) -> FuzzOutcome:
    """Run the campaign until its end or until a callback stops it."""
    # Opening the store and starting lanes counts as time of the run.
    begun, stopped, folder = time.monotonic(), False, request.store
    with Store(check_store(request)) as opened, ExitStack() as stack:
        campaign, plan = open_campaign(opened, request, lambda *_: None, say)
        before = done = opened.count_done(campaign)
        session = coverage_session.CoverageSession(request, plan, campaign, folder)
        started = time.monotonic()
        left = max(1e-3, begun + 60 * request.minutes - started) if request.minutes else 0.0
        lanes, start = stack.enter_context(open_lanes(request, campaign, lane_spawn.spawn_lane, say))
        going = run_campaign(
            opened, campaign, plan, request.limits, lanes=lanes, tests=request.tests, seconds=left,
            programs=session.programs, coverage=session.coverage, start=start,
        )  # fmt: skip
        try:
            for done in going:
                # Before the callback: what it raises must not lose the coverage of this test.
                session.note_progress(done)
                # The first result of a resumed campaign may come within the clock's resolution.
                rate = (done - before) / max(1e-9, time.monotonic() - started)
                at = FuzzProgress(
                    done, rate, dict(opened.count_kinds(campaign)), opened.count_clusters(campaign)
                )
                # Not falsy: a callback without a return gives None.
                if progress(at) is False:
                    stopped = True
                    break
        finally:
            # Ends the lanes and stores what is done, also when the callback raises.
            going.close()
            session.write_record(done)
        facts = list_facts(opened, campaign, done - before, time.monotonic() - started, folder)
    return FuzzOutcome(facts | session.list_facts() | {"campaign": campaign.id}, folder, stopped)


@contextmanager
def open_lanes(
    request: FuzzRequest, campaign: finished_test.Campaign, local: lane_spawn.Spawn, say: Say
) -> Iterator[tuple[int, lane_spawn.Spawn]]:
    """Yield the number of parallel tests, and a function that starts a lane: a process here, or on a
    cluster.
    """
    if request.scheduler is None:
        yield request.lanes or 1, local
        return
    from opsieve.triage.distributed.cluster import open_lanes as open_remote_lanes

    with open_remote_lanes(request.scheduler, campaign, request.resources, say) as (threads, start):
        say(f"the cluster at {printable(request.scheduler)} can do {count_noun(threads, 'test')} at once")
        yield request.lanes or threads, start


def list_judged_clusters(folder: Path, campaign: str, known: Path | None) -> list[dict[str, Any]]:
    """Return the clusters of a campaign as the key ``ci_clusters`` has them, new ones first."""
    return [
        {"cluster": one.row.id, "title": one.row.title, "members": one.row.members, "known": one.known}
        for one in judge_clusters(folder, campaign, known)
    ]
