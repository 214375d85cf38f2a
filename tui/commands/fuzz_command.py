"""`opsieve fuzz`: a campaign over many compilers."""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.triage.campaign.plan import CampaignPlan
    from opsieve.triage.store.store import Campaign, Store

PATH = click.Path(path_type=Path)


@click.command()
@click.option("-t", "--target", "targets", multiple=True, help="backend[==release][:option,...]; may be repeated.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Begin no test after that long.")
@click.option("--tests", type=click.IntRange(1), help="End when the campaign has done so many tests in all.")
@click.option("--strategy", help="How programs are made (mix, unless told): see opsieve gen.")
@click.option("--nodes", help="Nodes of a program: K, or A-B (5-30, unless told).")
@click.option("--values", help="ranged (unless told), or special[:zeros,subnormals,extremes,nan,inf].")
@click.option("--probe/--no-probe", default=True, help="First find out what the targets have, once (default).")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the campaign; one is drawn if none is given.")
@click.option(
    "--store", "folder", type=PATH, default=Path("opsieve-store"), show_default=True, help="Where it is kept."
)
@click.option("-j", "lanes", type=click.IntRange(1, 64), default=1, show_default=True, help="Lanes that work at once.")
@click.option(
    "--resume", is_flag=True, help="Go on with the store's latest campaign, or the one of --seed and --target."
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=20.0,
    show_default=True,
    help="Wall time of one test on one target.",
)
@click.option(
    "--memory", type=click.IntRange(64, 1 << 20), default=4096, show_default=True, help="MiB of one test on one target."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    targets: tuple[str, ...],
    minutes: float | None,
    tests: int | None,
    strategy: str | None,
    nodes: str | None,
    values: str | None,
    probe: bool,
    seed: int | None,
    folder: Path,
    lanes: int,
    resume: bool,
    seconds: float,
    memory: int,
    as_json: bool,
) -> int:
    """Generate programs, run them on every target, judge them, and store each failure once.

    Without --minutes and --tests it goes on until Ctrl-C. Exit code 1 when the campaign found failures, 130 when it was
    interrupted: what was done is stored, and --resume goes on from there.
    """
    from opsieve.backends.workers.zygote import Limits
    from opsieve.triage.campaign.campaign import run
    from opsieve.triage.store.store import Store

    with Store(folder) as store:
        campaign, plan = _campaign(store, targets, strategy, nodes, values, probe, seed, resume)
        before = done = store.done(campaign)
        started = time.monotonic()
        limits = Limits(seconds=seconds, memory=memory << 20)
        going = run(store, campaign, plan, limits, lanes=lanes, tests=tests, seconds=60 * (minutes or 0))
        interrupted = False
        try:
            with _progress(tests) as show:
                for done in going:
                    show(
                        done,
                        (done - before) / (time.monotonic() - started),
                        store.kinds(campaign),
                        store.clusters(campaign),
                    )
        except KeyboardInterrupt:
            interrupted = True
        finally:
            going.close()
        summary = _summary(store, campaign, done - before, time.monotonic() - started, folder)
        click.echo(json.dumps(summary) if as_json else _text(summary))
    if interrupted:
        click.echo(f"opsieve: interrupted; opsieve fuzz --store {folder} --resume goes on.", err=True)
        return 130
    return 1 if summary["failures"] else 0


def _campaign(
    store: "Store",
    targets: tuple[str, ...],
    strategy: str | None,
    nodes: str | None,
    values: str | None,
    probe: bool,
    seed: int | None,
    resume: bool,
) -> "tuple[Campaign, CampaignPlan]":
    """The campaign to run, begun in the store, and what it generates; BadInput when it cannot be."""
    from opsieve.backends.registry import display, resolve
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygote import Unavailable
    from opsieve.gen.generation import request as gen_request
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.strategies import registry as strategies
    from opsieve.gen.values.values import RANGED, SPECIAL, named_values
    from opsieve.triage.campaign.campaign import new_campaign
    from opsieve.triage.campaign.plan import USUAL, CampaignPlan, planned
    from opsieve.tui.commands.probing import supports

    resolved = [resolve(text) for text in targets]
    found: Campaign | None = None
    if resume:
        names = tuple(dict.fromkeys(map(display, resolved)))
        fitting = [c for c in store.campaigns() if (not names or c.targets == names) and seed in (None, c.seed)]
        if not fitting:
            raise BadInput("the store has no such campaign to resume; leave --resume out to begin it")
        if (strategy, nodes, values) != (None, None, None):
            raise BadInput("a campaign goes on as it began; leave --strategy, --nodes and --values out, or --resume")
        found = fitting[-1]
        plan, probe = planned(found.generator)
        resolved = [resolve(name) for name in found.targets]
    else:
        low, high = gen_request.nodes(nodes) if nodes is not None else (USUAL.between or (USUAL.nodes, USUAL.nodes))
        word = named_values(values or RANGED, (RANGED, SPECIAL))
        request = replace(USUAL, nodes=low, between=(low, high) if low != high else None, values=word)
        plan = CampaignPlan(strategy or "mix", request)
        strategies.strategy(plan.strategy)  # a name that is none is told before anything is probed
        resolved = list(dict.fromkeys(resolved)) or [resolve("onnxruntime")]
    versions: dict[str, str] = {}
    with Workers() as workers:
        for target in resolved:
            try:
                versions[display(target)] = workers.version(target)
            except Unavailable as error:
                raise BadInput(f"{error}; leave that target out or install it (see opsieve doctor)") from None
        if probe:
            plan = replace(plan, supports=tuple(supports(workers, resolved)))
    if found is not None:
        changed = [
            f"{name} was {was} when the campaign began and is {versions[name]} now"
            for name, was in store.versions(found).items()
            if versions.get(name, was) != was
        ]
        if changed:
            click.echo(f"opsieve: {'; '.join(changed)}: what it finds from here on is of the new", err=True)
        if plan.generator != found.generator:
            raise BadInput(
                "what the targets have is no longer what it was when the campaign began (another version of one of them?); "
                "begin a new campaign without --resume"
            )
        campaign = found
    else:
        campaign = new_campaign(secrets.randbits(32) if seed is None else seed, resolved, plan)
        if store.done(campaign):
            raise BadInput("the store has this campaign already; pass --resume to go on with it, or another --seed")
        store.begin(campaign, versions)
    click.echo(f"opsieve: seed {campaign.seed}, {plan.strategy}, on {', '.join(campaign.targets)}", err=True)
    return campaign, plan


@contextmanager
def _progress(tests: int | None) -> Iterator[Any]:
    """A function that shows how far it is, on stderr when that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("starting", total=tests)

        def show(done: int, rate: float, kinds: dict[str, int], clusters: int) -> None:
            found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no failures"
            bar.update(task, completed=done, description=f"{rate:.1f} tests/s, {found}, {clusters} clusters")

        yield show


def _summary(store: "Store", campaign: "Campaign", now: int, seconds: float, folder: Path) -> dict[str, Any]:
    """The keys of docs/reference/cli.md."""
    totals, spent = store.totals(campaign), store.seconds(campaign)

    def many(verdict: str) -> int:
        return sum(counts.get(verdict, 0) for counts in totals.values())

    by_target = {
        name: {
            "verdicts": counts,
            "tests_per_second": round(sum(counts.values()) / spent[name], 1) if spent.get(name) else 0.0,
        }
        for name, counts in totals.items()
    }
    return {
        "tests": store.done(campaign),
        "tests_now": now,
        "seconds": round(seconds, 1),
        "tests_per_second": round(now / seconds, 2),
        "failures": store.kinds(campaign),
        "clusters": store.clusters(campaign),
        "fingerprints": store.different(campaign),
        "unsupported": many("unsupported"),
        "environment": many("environment"),
        "flaky": many("flaky"),
        "targets": by_target,
        "seed": campaign.seed,
        "store": str(folder),
    }


def _text(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    lines = [f"{summary['tests']} tests, {summary['tests_now']} of them now at {summary['tests_per_second']} a second"]
    for name, of_target in summary["targets"].items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in of_target["verdicts"].items())
        lines.append(
            f"  {name}: {verdicts or 'nothing'} ({of_target['tests_per_second']} tests a second of its own time)"
        )
    found = ", ".join(f"{count} {kind}" for kind, count in summary["failures"].items()) or "none"
    lines.append(
        f"failures: {found}; different: {summary['fingerprints']}, in {summary['clusters']} clusters; store: {summary['store']}"
    )
    return "\n".join(lines)
