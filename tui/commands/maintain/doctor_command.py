"""`opsieve doctor`: list the installed compilers, their abilities, and how to install the others."""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options, output
from opsieve.version import VERSION

if TYPE_CHECKING:
    from opsieve.backends.workers.questions.probe_backend import Examination
    from opsieve.backends.workers.sandbox.isolation import Isolation

# Programs that are run to measure costs
_MEASURED = 32


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--probe", is_flag=True, help="Probe every operator and type on the targets, and keep the results."
)
@click.option(
    "--costs", is_flag=True, help="Measure what a test costs on the targets, and keep it for campaigns."
)
@options.TARGETS
@options.NO_SANDBOX
@click.option(
    "--tables",
    type=options.PATH,
    help="With --probe: ignore earlier results and write the tables into this directory.",
)
def command(as_json: bool, probe: bool, costs: bool, targets: tuple[str, ...], tables: Path | None) -> None:
    """List the installed compilers, what they accept, and how to install the others.

    Every result is measured: each backend is imported in its own worker and runs small models.
    """
    if probe:
        _make_tables(targets or ("onnxruntime",), tables, as_json)
        return
    if costs:
        _measure_costs(targets or ("onnxruntime",), as_json)
        return
    from opsieve.backends.releases import interpreters, releases
    from opsieve.backends.stacks import native
    from opsieve.backends.workers.questions.probe_backend import examine_all, list_examined
    from opsieve.backends.workers.sandbox import isolation, policy
    from opsieve.backends.workers.workers import Workers

    with Workers() as workers, output.open_counting_bar(len(list_examined())) as show:
        backends = []
        for examination in examine_all(workers):
            backends.append(examination)
            show(len(backends), f"{examination.name} {examination.version or 'missing'}")
        # After the examination, because a zygote reports its walls when it starts.
        walls, lacks = workers.get_walls()
    pythons = [".".join(map(str, found.version)) for found in interpreters.find_interpreters()]
    isolated = isolation.examine_isolation(walls, lacks)
    from opsieve.backends.compilers import user_oracle
    from opsieve.backends.registry import names, plugin

    # Withheld are those that no backend asks for.
    patterns = [each for name in names() for each in plugin(name).facts.variables]
    facts = {
        "opsieve": VERSION,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "supported_platform": sys.platform == "linux" and platform.machine() == "x86_64",
        "pythons_for_releases": pythons,
        "release_store": str(releases.ReleaseStore().root),
        "native_frames": native.shim() is not None,
        "oracles": sorted(entry_points(group=user_oracle.GROUP).names),
        "isolation": asdict(isolated),
        "variables_left_out": sorted({*os.environ} - {*policy.select_variables(os.environ, patterns)}),
    }
    if as_json:
        click.echo(json.dumps({**facts, "backends": [asdict(item) for item in backends]}))
        return
    _print_facts(backends, facts, isolated)


def _print_facts(backends: "Sequence[Examination]", facts: Mapping[str, Any], isolated: "Isolation") -> None:
    """Print the facts as text."""
    from rich.console import Console
    from rich.markup import escape

    from opsieve.backends.stacks import native

    console = Console(highlight=False, soft_wrap=True)
    for line in _summarise(backends):
        console.print(escape(line))
    for item in (each for each in backends if each.version):
        console.print(
            f"\n[bold]{item.name}[/bold]  [green]{escape(item.version)}[/], IR up to {item.newest_ir},"
            " opset up"
            f" to {item.newest_opset}"
        )
        for name, legal in item.options.items():
            console.print(f"  {name}: {escape(', '.join(legal) if legal else 'any text')}")
        for sentence in item.lacks:
            console.print(f"  lacks: {escape(sentence)}")
        if item.problem:
            console.print(f"  {escape(item.problem)}")
    if facts["oracles"]:
        console.print(f"\nOracles of yours (--oracle NAME): {escape(', '.join(facts['oracles']))}.")
    console.print(
        f"\nPythons for old releases: {', '.join(facts['pythons_for_releases'])}. Releases are kept in"
        f" {escape(str(facts['release_store']))}."
    )
    frames = "whole, by a small C shim" if facts["native_frames"] else f"partly: {native.reason()}"
    console.print(f"Native frames of a crash: {escape(frames)}.")
    console.print(f"Isolation: {escape(isolated.describe())}.")
    if facts["variables_left_out"]:
        console.print(
            "Environment variables that compilers do not get (--env NAME hands one on):"
            f" {escape(', '.join(facts['variables_left_out']))}."
        )
    if not facts["supported_platform"]:
        console.print(
            "This platform is not supported: workers need Linux, releases and native frames Linux on x86-64."
        )


def _summarise(backends: "Sequence[Examination]") -> list[str]:
    """Summarise installed and missing compilers, with each hint once."""
    there = [f"{item.name} {item.version}" for item in backends if item.version]
    lines = [f"installed ({len(there)} of {len(backends)}): {', '.join(there)}"]
    missing = [item for item in backends if not item.version]
    # Many backends are missing for one reason, and one command installs several.
    hints: dict[str, list[str]] = {}
    for item in missing:
        is_absent = "ModuleNotFoundError" in item.problem or not item.problem
        # A backend that is there and does not load needs its problem, not the command to install it.
        hints.setdefault(item.install if is_absent and item.install else item.problem, []).append(item.name)
    if missing:
        lines.append("missing:")
    # A long list of names would push every hint off the screen; it stands out of the column instead.
    width = max((len(", ".join(names)) for names in hints.values() if len(names) < 4), default=0)
    return [*lines, *(f"  {', '.join(names):{width}}  {hint}" for hint, names in hints.items())]


def _make_tables(targets: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Make full tables of the targets' operators."""
    from opsieve.backends.probing.prober import make_tables
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Workers

    with Workers() as workers, output.open_probing_bar() as show:
        made = make_tables(workers, list(map(resolve, targets)), folder, show)
    if as_json:
        facts = [
            {"target": item.backend, "version": item.version, "answers": len(item.answers)} for item in made
        ]
        click.echo(json.dumps({"tables": facts}))
        return
    for item in made:
        click.echo(f"{item.backend} {item.version}: {count_noun(len(item.answers), 'answer')}")


def _measure_costs(targets: tuple[str, ...], as_json: bool) -> None:
    """Measure the costs of tests on targets by programs of a usual campaign."""
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Test, Workers
    from opsieve.triage.campaign.plan import CampaignPlan
    from opsieve.triage.campaign.schedule.cost_table import measure_costs

    # The same programs for each target and machine, so that costs can be compared.
    cases = [CampaignPlan().make_case(0, number) for number in range(_MEASURED)]
    tests = [Test(case.program, case.inputs) for case in cases]
    with Workers() as workers:
        found = measure_costs(workers, list(map(resolve, targets)), tests)
    if as_json:
        click.echo(json.dumps({"costs": found}))
        return
    for name, cost in found.items():
        click.echo(f"{name}: {cost:g} ms a test, where onnxruntime takes 10 ms")
