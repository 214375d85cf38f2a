"""`opsieve gen`: programs from seeds, as case folders or files."""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.probing.operator_support import Support
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.case.case import Case
    from opsieve.gen.generation.random_graph import GenRequest
    from opsieve.gen.model.program import Program

PATH = click.Path(path_type=Path)
GROUP = 64  # programs made before they are checked and written


@click.command("gen")
@click.option("-n", "--models", type=click.IntRange(1, 10_000_000), default=100, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(0, 2**62), default=0, show_default=True, help="Seed of the first.")
@click.option("--nodes", default="10", show_default=True, help="Nodes of a program: K, or A-B.")
@click.option("--strategy", default="mix", show_default=True, help="How they are made.")
@click.option("--ops", "patterns", multiple=True, help="Operators let in, 'Conv*,Add', or left out, '-Loop'.")
@click.option("--dtypes", default="", help="Element types, float32,int64.")
@click.option("--opset", type=int, default=0, help="One opset for all; else each draws its own.")
@click.option("--dynamic", type=click.FloatRange(0, 1), default=0.0, help="Share with symbolic dimensions.")
@click.option("--values", default="ranged", show_default=True, help="ranged, search, or special[:zeros,nan,...].")
@click.option("--corpus", "models_in", type=PATH, help="A folder of models for --strategy mutate to start from.")
@click.option("-t", "--target", "targets", multiple=True, help="Keep to what it has; probed once. May be repeated.")
@click.option("-o", "--out", type=PATH, help="An empty or new folder to write into; nothing is written without.")
@click.option("--flat", is_flag=True, help="Write plain .onnx files, not case folders.")
@click.option("--check", is_flag=True, help="Have each checked by ONNX's checker, in workers.")
@click.option("--origin", type=PATH, help="Make the program of a case.json again.")
@click.option("--explain-support", "explain", is_flag=True, help="Print what the targets lack and why; make nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    models: int,
    seed: int,
    nodes: str,
    strategy: str,
    patterns: tuple[str, ...],
    dtypes: str,
    opset: int,
    dynamic: float,
    values: str,
    models_in: Path | None,
    targets: tuple[str, ...],
    out: Path | None,
    flat: bool,
    check: bool,
    origin: Path | None,
    explain: bool,
    as_json: bool,
) -> int:
    """Generate programs with values for their inputs. Equal options and seeds give equal bytes.

    Exit code 1 when the checker refused one, or when --origin gave another program than the one saved.
    """
    from opsieve.backends.probing.operator_support import both, tables
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.build.graph_builder import Budget
    from opsieve.gen.generation import request as gen_request
    from opsieve.gen.generation.random_graph import GenRequest
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.strategies import registry as strategies
    from opsieve.gen.values.values import SEARCH, named_values
    from opsieve.tui.commands.probing import supports

    if out is not None:
        _refuse_used(out)
    kept: Case | None = None
    if origin is not None:
        kept, strategy, seed, request = _read_origin(origin)
        targets, models = _named(request.target), 1
    else:
        low, high = gen_request.nodes(nodes)
        usual = Budget()  # large programs may hold more in all
        split = [item.strip() for text in patterns for item in text.split(",") if item.strip()]
        request = GenRequest(
            nodes=low,
            only=gen_request.named_operators(split),
            dtypes=gen_request.named_dtypes([item.strip() for item in dtypes.split(",") if item.strip()]),
            opset=gen_request.checked_opset(opset),
            budget=Budget(elements=max(usual.elements, high << 9), work=max(usual.work, high << 13)),
            between=(low, high) if low != high else None,
            dynamic=dynamic,
            values=named_values(values),
        )
    strategies.strategy(strategy)  # a name that is none is told before anything is probed
    with Workers() as workers:
        if targets:
            has = supports(workers, targets, request)
            if explain:
                return _explain(has, as_json)
            sound = [support.soundly() for support in has]
            if origin is None or tables(sound) == request.target:  # `fuzz` also generates what is broken
                has = sound
            named = tables(has)
            if origin is not None and named != request.target:
                raise BadInput(
                    f"the case was made for {request.target}, what is here is {named}; "
                    "install that version, or make it with the opsieve that made it"
                )
            request = replace(request, supports=both(has), target=named)
        elif explain:
            raise BadInput("--explain-support needs a --target to explain")
        if models_in is not None:
            request = replace(request, corpus=_corpus(strategy, models_in, workers))
        made = _Made()
        interrupted = False
        try:
            with _progress(models) as show:
                for group in _groups(strategy, seed, models, request, made):
                    if request.values == SEARCH:
                        group = _searched(group, workers, made)
                    _take(group, workers if check else None, out, flat, made)
                    show(made.models)
        except KeyboardInterrupt:
            interrupted = True
    summary = made.summary(check, out)
    if origin is not None:
        summary["identical"] = kept is not None and made.last is not None and made.last == kept.program.model
    click.echo(json.dumps(summary) if as_json else _text(summary))
    for name, complaint in made.complaints[:20]:
        click.echo(f"opsieve: {name} was refused: {complaint}", err=True)
    if interrupted:
        click.echo("opsieve: interrupted; what was made is whole.", err=True)
        return 130
    return 1 if made.complaints or summary.get("identical") is False else 0


class _Made:
    """What was made so far. `last` is the latest program's bytes."""

    def __init__(self) -> None:
        self.models = self.nodes = self.valid = 0
        self.cpu = 0.0
        self.started = time.monotonic()
        self.strategies: dict[str, int] = {}
        self.values: dict[str, int] | None = None  # of a search: how many by how they were found
        self.complaints: list[tuple[str, str]] = []
        self.last: bytes | None = None

    def summary(self, checked: bool, out: Path | None) -> dict[str, Any]:
        """The keys of docs/reference/cli.md."""
        return {
            "models": self.models,
            "nodes": self.nodes,
            "seconds_cpu": round(self.cpu, 3),
            "seconds_wall": round(time.monotonic() - self.started, 3),
            "models_per_cpu_second": round(self.models / self.cpu, 1) if self.cpu else 0.0,
            "valid": self.valid if checked else None,
            "strategies": dict(sorted(self.strategies.items())),
            "values": None if self.values is None else dict(sorted(self.values.items())),
            "out": None if out is None else str(out),
        }


def _groups(
    strategy: str, seed: int, models: int, request: "GenRequest", made: _Made
) -> Iterator[list[tuple[str, "Case"]]]:
    """The cases with their names, some at a time; only making them counts as their time."""
    from opsieve.gen.strategies.registry import generate

    for start in range(seed, seed + models, GROUP):
        began = time.process_time()
        group = [
            (f"{strategy}-{number}", generate(strategy, number, request))
            for number in range(start, min(start + GROUP, seed + models))
        ]
        made.cpu += time.process_time() - began
        yield group


def _searched(group: list[tuple[str, "Case"]], workers: "Workers", made: _Made) -> list[tuple[str, "Case"]]:
    """The cases with values, and weights, under which nothing inside is NaN or infinite, where they are found."""
    from opsieve.backends.probing.value_search import Effort
    from opsieve.backends.probing.chosen_values import searched, with_found

    cases = [case for _, case in group]
    made.values = made.values or {}
    found_all = searched(cases, [case.origin.seed or 0 for case in cases], workers, Effort(weights=True))
    for found in found_all:
        made.values[found.how] = made.values.get(found.how, 0) + 1
    return [(name, with_found(case, found)) for (name, case), found in zip(group, found_all, strict=True)]


def _take(
    group: list[tuple[str, "Case"]], workers: "Workers | None", out: Path | None, flat: bool, made: _Made
) -> None:
    """Check, write and count a group."""
    from opsieve.backends.target import Target
    from opsieve.backends.workers.workers import Test
    from opsieve.gen.case.case import save

    if workers is not None:
        tests = [Test(case.program, case.inputs) for _, case in group]
        for (name, _), answer in zip(group, workers.observe_many(Target.parse("checker"), tests), strict=True):
            if answer.outcome == "ok":
                made.valid += 1
            else:
                made.complaints.append((name, answer.message[:300]))
    for name, case in group:
        if out is not None and flat:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name}.onnx").write_bytes(case.program.model)
        elif out is not None:
            with _whole():
                save(case, out / name)
        made.models += 1
        made.nodes += len(case.program.proto.graph.node)
        made.strategies[case.origin.generator] = made.strategies.get(case.origin.generator, 0) + 1
        made.last = case.program.model


def _refuse_used(out: Path) -> None:
    """BadInput unless the folder is new or empty."""
    from opsieve.gen.model.bad_input import BadInput, shown

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{shown(out, 200)} is not empty; give a new folder to write into")


def _corpus(strategy: str, folder: Path, workers: "Workers") -> "tuple[Program, ...]":
    """The models to mutate; what cannot be is told on stderr."""
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.backends.probing.corpus import corpus

    if strategy != "mutate":
        raise BadInput("--corpus is for --strategy mutate, which starts from models; give that, or leave --corpus out")
    found, refused = corpus(folder, workers)
    for line in refused:
        click.echo(f"opsieve: {line}", err=True)
    return found


def _read_origin(origin: Path) -> tuple["Case", str, int, "GenRequest"]:
    """The case that a case.json, or its folder, belongs to, and how it was asked for."""
    from opsieve.gen.case.case import load
    from opsieve.gen.generation import request as gen_request
    from opsieve.gen.model.bad_input import BadInput, shown
    from opsieve.gen.strategies import registry as strategies

    case = load(origin.parent if origin.name == "case.json" else origin)
    summary = case.origin
    if summary.generator not in strategies.names() or summary.seed is None:
        raise BadInput(
            f"{shown(origin, 200)} tells of no generator and seed that it was made by ({shown(summary.generator)})"
        )
    return case, summary.generator, summary.seed, gen_request.from_record(summary.wish)


def _named(target: str) -> tuple[str, ...]:
    """The targets that a request's `target` stands for."""
    return tuple(part.rsplit(" ", 2)[0] for part in target.split(" + ")) if target else ()


def _explain(supports: Sequence["Support"], as_json: bool) -> int:
    from opsieve.backends.probing.operator_support import explained

    if as_json:
        summary = [
            {
                "target": item.target,
                "version": item.version,
                "known": len(item.known),
                "refused": dict(item.reasons),
                "refused_by_rank": [
                    {"what": summary, "rank": rank, "reason": why} for (summary, rank), why in item.by_rank.items()
                ],
                "broken": dict(item.broken),
            }
            for item in supports
        ]
        click.echo(json.dumps({"supports": summary}))
        return 0
    for item in supports:
        lacks = len(item.reasons) + len(item.by_rank)
        click.echo(f"{item.target} {item.version}: {len(item.known)} kinds of instance run, {lacks} of them refused")
        for line in explained(item):
            click.echo("  " + "".join(c if c.isprintable() else " " for c in line))
    return 0


@contextmanager
def _progress(models: int) -> Iterator[Any]:
    """A function that shows how many are made, on stderr when that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=models)
        yield lambda done: bar.update(task, completed=done)


def _text(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    line = (
        f"{summary['models']} models, {summary['nodes']} nodes, {summary['models_per_cpu_second']} models a CPU second"
        f" ({', '.join(f'{count} {name}' for name, count in summary['strategies'].items())})"
    )
    if summary["values"] is not None:
        line += f"; values: {', '.join(f'{count} {how}' for how, count in summary['values'].items())}"
    if summary["valid"] is not None:
        line += f"; {summary['valid']} valid"
    if "identical" in summary:
        line += "; equal to the case" if summary["identical"] else "; not equal to the case"
    return line + (f"; written into {summary['out']}" if summary["out"] else "")


@contextmanager
def _whole() -> Iterator[None]:
    """Let Ctrl-C wait until what is within is done: a case that is being written leaves nothing half."""
    asked: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if asked:
        raise KeyboardInterrupt
