"""`opsieve fuzz`: a campaign over many compilers."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import count_noun, printable, quote_argument
from opsieve.tui.commands import options, output
from opsieve.tui.commands.find.campaign_verdict import CampaignVerdict

if TYPE_CHECKING:
    from opsieve.triage.campaign.coverage_session import CoverageSession
    from opsieve.triage.campaign.lane_spawn import Spawn
    from opsieve.triage.campaign.session import FuzzRequest
    from opsieve.tui.commands.find.campaign_report import Point


class Share(click.ParamType[float]):
    """A share of the time, written `20%` or 0.2."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the share, from 0 to 0.9."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        # At least a tenth is left for the campaign itself.
        if not 0 <= share <= 0.9:
            self.fail(f"{text!r} is no share of the time; give 0% to 90%", param, ctx)
        return share


# strategies, by how their names begin
_OF_TVM = ("relax", "tir")
# New clusters in the summary for a person
SHOWN = 5


@click.command()
@options.TARGETS
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    callback=options.check_finite,
    help="Start no new test after this time.  [default: no limit]",
)
@click.option("-n", "--tests", type=click.IntRange(1), help="Tests in all.  [default: until Ctrl-C]")
@click.option(
    "--patience",
    type=click.FloatRange(0),
    callback=options.check_finite,
    help="Minutes to wait for space on a full disk.  [default: 10; at a terminal, until Ctrl-C]",
)
@click.option("--strategy", help="Generation strategy (see opsieve gen).  [default: mix]")
@click.option("--nodes", help="Nodes per program: K, or a range A-B.  [default: 5-30]")
@click.option(
    "--values",
    help="How to choose values: ranged, or special[:zeros,subnormals,extremes,nan,inf].  [default: ranged]",
)
@options.OPERATORS
@options.DTYPES
@options.SIBLINGS
@click.option(
    "--probe/--no-probe",
    default=None,
    help=(
        "Probe all operators of a new target version first, or none of them.  [default: probe each "
        "operator when it first occurs]"
    ),
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Random seed of the campaign.  [default: drawn]"
)
@options.STORE
@click.option(
    "-j",
    "--jobs",
    "lanes",
    type=click.IntRange(1, 4096),
    help="Tests at once.  [default: 1; with --scheduler, as many as its workers have threads]",
)
@options.SCHEDULER
@options.RESOURCES
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the latest campaign of the store, or the one with this --seed and --target.",
)
@click.option(
    "--coverage",
    type=click.Choice(["functions", "blocks", "passes"]),
    metavar="KIND",
    help=(
        "Record the functions or blocks of native code, or the passes of TVM, that were reached.  "
        "[default: none; tir: functions]"
    ),
)
@click.option(
    "--guide/--no-guide",
    default=True,
    show_default=True,
    help="With --strategy tir, mutate the functions that reached new coverage.",
)
@click.option(
    "--adapt/--no-adapt",
    default=True,
    show_default=True,
    help="Let slow targets run only the most promising programs; otherwise every target runs every program.",
)
@click.option(
    "--auto-triage",
    type=Share(),
    default="0%",
    show_default=True,
    help="Share of the time for reducing new failures and finding their guilty passes and releases.",
)
@click.option(
    "--report",
    "reports",
    type=options.PATH,
    multiple=True,
    help="Write the new failures to this .md or .html file when the campaign ends; repeatable.",
)
@options.ORACLE
@options.METAMORPHIC
@options.make_seconds(20.0)
@options.MEMORY
@options.NO_SANDBOX
@options.CONSENT
@options.JSON
@click.option(
    "--json-lines",
    is_flag=True,
    help=("Print JSON objects while it runs, one per line: begun, progress, ended."),
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@click.option(
    "--ci",
    is_flag=True,
    help=(
        "For continuous integration: print no progress, classify each failure as known or new, and "
        "annotate on GitHub Actions."
    ),
)
@click.option(
    "--fail-on",
    type=click.Choice(["new", "any", "none"]),
    default="any",
    show_default=True,
    help=(
        "Failures that cause exit code 1. new: clusters that are not in --known, or else not in an "
        "earlier campaign of the store."
    ),
)
@click.option(
    "--known",
    type=options.PATH,
    metavar="STORE",
    help="Store of known failures, with its rules (STORE/known/*.toml).",
)
@output.JUNIT
@output.SARIF
@output.ALLOW_UNJUDGED
def command(
    folder: Path,
    seconds: float,
    memory: int,
    oracles: tuple[str, ...],
    as_json: bool,
    json_lines: bool,
    quiet: bool,
    patience: float | None,
    auto_triage: float,
    reports: tuple[Path, ...],
    ci: bool,
    fail_on: str,
    known: Path | None,
    junit: Path | None,
    sarif: Path | None,
    allow_unjudged: bool,
    **given: Any,
) -> int:
    """Generate programs, run them on every target, and store each distinct failure.

    Runs until Ctrl-C unless --minutes or --tests is given; finished tests are stored, and --resume continues.
    Exit code 1 if the campaign found failures (see --fail-on), else 2 if a target judged no program, 130 if
    interrupted.
    """
    begun = time.monotonic()
    # The first lane loads its compiler while this process imports the rest.
    with output.raise_on_signals(), _start_first_lane(given) as local:
        from opsieve.backends.judge.oracle_names import choose_oracles
        from opsieve.backends.workers.zygotes.zygote import Limits
        from opsieve.triage.campaign.session import FuzzRequest
        from opsieve.tui.commands.find.campaign_report import check_paths, write_reports

        # Before the campaign: a path that cannot be written is no news after hours.
        check_paths(reports)
        verdict = CampaignVerdict(
            fail_on,
            known,
            output.CiOutput(junit, sarif, ci and "GITHUB_ACTIONS" in os.environ),
            ci,
            allow_unjudged,
        )
        verdict.check_options()
        limits = Limits(seconds=seconds, memory=memory << 20)
        choice = choose_oracles(oracles)
        given["metamorphic"] = given["metamorphic"] or "metamorphic" in choice.names
        request = FuzzRequest(store=folder, limits=limits, oracles=choice, **given)
        events = _Events(json_lines)
        # A script has no Ctrl-C.
        patience = (float("inf") if sys.stdin.isatty() else 10) if patience is None else patience
        facts, growth, interrupted = _run_campaign(
            request, begun, 60 * patience, auto_triage, events, quiet or ci, local
        )
        if auto_triage:
            from opsieve.triage.review.review import run_triage

            for sentence in run_triage(folder).unread:
                output.print_message(f"{printable(sentence)}.")
        write_reports(reports, folder, facts, growth)
    code = verdict.choose_exit_code(folder, facts, annotate_on_stderr=as_json or json_lines)
    events.print_event("ended", **facts)
    if not json_lines:
        click.echo(json.dumps(facts) if as_json else _write_summary(facts))
    if interrupted:
        output.print_message(
            f"interrupted; continue with: opsieve fuzz --store {quote_argument(str(folder))} --resume"
        )
        return 130
    return code


def _run_campaign(
    request: "FuzzRequest",
    begun: float,
    patience: float,
    auto_triage: float,
    events: "_Events",
    quiet: bool,
    local: "Spawn",
) -> "tuple[dict[str, Any], list[Point], bool]":
    """Run the campaign with `local` to start lanes here; return its facts, its growth, and whether it was
    interrupted.
    """
    from opsieve.triage.campaign.campaign import run_campaign
    from opsieve.triage.campaign.coverage_session import CoverageSession
    from opsieve.triage.campaign.session import check_store, list_facts, open_campaign
    from opsieve.triage.store.store import Store
    from opsieve.tui.campaign_api import open_lanes
    from opsieve.tui.commands.find.auto_triage import AutoTriage
    from opsieve.tui.commands.find.campaign_report import Growth

    with Store(check_store(request)) as store:
        with output.open_probing_bar() as probing:
            campaign, plan = open_campaign(store, request, probing, output.print_message)
        # A resumed campaign has tests of earlier runs, which do not count for the speed.
        before = store.count_done(campaign)
        session = CoverageSession(request, plan, campaign, request.store)
        growth = Growth.read_earlier(store, campaign)
        events.print_event("begun", seed=campaign.seed, strategy=plan.strategy, targets=campaign.targets)
        started = time.monotonic()
        # 0 would mean no limit at all.
        left = max(1e-3, begun + 60 * request.minutes - started) if request.minutes else 0.0
        beside = AutoTriage(request.store, auto_triage, left)
        with (
            open_lanes(request, campaign, local, output.print_message) as (lanes, start),
            output.open_counting_bar(request.tests, "tests", quiet) as show,
            beside,
        ):
            going = run_campaign(
                store, campaign, plan, request.limits, lanes=lanes, tests=request.tests, seconds=left,
                programs=session.programs, coverage=session.coverage,
                full=output.PauseWhileFull(started + left if left else float("inf"), patience), start=start,
            )  # fmt: skip

            def show_progress(done: int) -> None:
                passed = time.monotonic() - started
                rate = (done - before) / passed
                kinds, clusters = store.count_kinds(campaign), store.count_clusters(campaign)
                growth.add_point(passed, done, clusters)
                found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no failures"
                show(done, f"{rate:.1f} tests/s, {found}, {count_noun(clusters, 'cluster')}")
                events.print_rarely(
                    "progress", tests=done, tests_per_second=rate, failures=kinds, clusters=clusters
                )

            done, interrupted = _run_to_end(going, session, before, show_progress)
        passed = time.monotonic() - started
        growth.write_points(store, campaign, passed, done, store.count_clusters(campaign))
        facts = list_facts(store, campaign, done - before, passed, request.store)
    facts |= session.list_facts() | {"campaign": campaign.id}
    if auto_triage:
        facts["auto_triage"] = beside.list_facts()
    return facts, growth.points, interrupted


def _start_first_lane(given: dict[str, Any]) -> "AbstractContextManager[Spawn]":
    """Return a context that starts lanes here, the first at once unless this process or a cluster makes the
    programs.
    """
    from opsieve.triage.campaign.lane_spawn import spawn_lane, start_first_lane

    # Then a cluster or this process makes the programs, and an early lane would start for nothing.
    elsewhere = given["scheduler"] or given["coverage"] or (given["strategy"] or "").startswith(_OF_TVM)
    expected = given["targets"] or (() if given["resume"] else ("onnxruntime",))
    return nullcontext(spawn_lane) if elsewhere else start_first_lane(lambda: spawn_lane(expected))


def _run_to_end(
    going: Generator[int, None, None], session: "CoverageSession", done: int, shown: Callable[[int], None]
) -> tuple[int, bool]:
    """Run a campaign to its end; return the finished tests, and whether it was interrupted."""
    try:
        for done in going:
            session.note_progress(done)
            shown(done)
    except KeyboardInterrupt:
        return done, True
    finally:
        # Also after Ctrl-C: it stores the finished tests.
        going.close()
        session.write_record(done)
    return done, False


class _Events:
    """The lines of `--json-lines`, if `on`."""

    def __init__(self, on: bool):
        self._on = on
        # Often enough for a dashboard, without a line for each test.
        self._pulse = output.Pulse(first=1.0, every=5.0)

    def print_event(self, event: str, **facts: Any) -> None:
        """Print an event."""
        if self._on:
            click.echo(json.dumps({"event": event, **facts}))

    def print_rarely(self, event: str, **facts: Any) -> None:
        """Print an event unless the last one was a moment ago."""
        if self._pulse.is_due():
            self.print_event(event, **facts)


def _write_summary(facts: dict[str, Any]) -> str:
    """Write the summary for a person."""
    lines = [
        f"{count_noun(facts['tests'], 'test')}, {facts['tests_now']:,} in this run at"
        f" {facts['tests_per_second']} per second"
    ]
    for name, of_target in facts["targets"].items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in of_target["verdicts"].items())
        lines.append(
            f"  {name}: {verdicts or 'no tests'} ({of_target['tests_per_second']} tests per second of its own"
            " time)"
        )
    found = ", ".join(f"{count} {kind}" for kind, count in facts["failures"].items()) or "none"
    keys = f"{count_noun(facts['fingerprints'], 'fingerprint')} in {count_noun(facts['clusters'], 'cluster')}"
    lines.append(f"failures: {found}; {keys}; store: {facts['store']}")
    new = [] if "ci_clusters" in facts else facts["new_clusters"][:SHOWN]
    lines += [f"  new: {item['cluster']}  {printable(item['title'])} ({item['members']})" for item in new]
    more = 0 if "ci_clusters" in facts else len(facts["new_clusters"]) - SHOWN
    if more > 0:
        lines.append(f"  and {more} more that no other campaign has met")
    if "auto_triage" in facts:
        beside = facts["auto_triage"]
        lines.append(
            f"  auto-triage: {beside['reduced']} reduced, {beside['attributed']} attributed,"
            f" {beside['bisected']} bisected, in {beside['seconds']:.0f} s"
        )
    for cluster in facts.get("ci_clusters", ()):
        why = f"known: {printable(cluster['known'])}" if cluster["known"] else "NEW"
        lines.append(f"  {cluster['cluster']}  {printable(cluster['title'])} ({cluster['members']}): {why}")
    lines += [
        f"  rewrites of optimisers: {states['met']:,} of {states['of']:,} states built"
        for states in (facts.get("states"),)
        if states and states["met"]
    ]
    for known in facts.get("known_failures", ())[:SHOWN]:
        what = f"{known['target']} keeps failing at {printable(known['feature'])}"
        lines.append(f"  {what}: {count_noun(known['left_out'], 'such program')} withheld")
    for lack in facts.get("lacks", ())[:SHOWN]:
        what = f"{lack['target']} lacks {printable(lack['feature'])}"
        lines.append(f"  {what}: {count_noun(lack['left_out'], 'such program')} withheld")
    for name, reached in facts.get("coverage", {}).items():
        lines.append(f"  {name}: {reached['reached']:,} of {reached['probes']:,} {reached['kind']} reached")
    return "\n".join(lines)
