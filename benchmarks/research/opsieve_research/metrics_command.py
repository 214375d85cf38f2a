"""`opsieve metrics`: how diverse the models in a folder are."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui.commands import options

if TYPE_CHECKING:
    from opsieve.gen.irs.onnx.program import OnnxProgram
    from opsieve_research.summary import Metrics

GROUP = 64  # models read before a worker is asked for their types, or so many bytes of them
GROUP_BYTES = 64 << 20
# the commonest operators in a plot: all of ai.onnx, and a hostile model's made-up names not without end
MOST_BARS = 300

_MOTIFS = {"skips": "skip connections", "bi_fans": "bi-fans"}  # in words, where the name is none


@click.command("metrics")
@click.argument("folder", metavar="DIRECTORY", type=options.PATH)
@click.option("--plot", type=options.PATH, help="Write SVG plots into this directory.")
@options.NO_SANDBOX
@options.JSON
def command(folder: Path, plot: Path | None, as_json: bool) -> int:
    """Measure how diverse the models in DIRECTORY and below are; modules of TVM are counted apart, in few
    figures.

    Reports Isra's eleven metrics (for its 65 operators and for all of ai.onnx), NNSmith's operator instances
    and edges, HirFuzz's three coverages, and the frequency of each operator. Files that cannot be read are
    reported and skipped.
    """
    from opsieve.backends.workers.questions.programs import infer_types
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.errors import BadInput, shown
    from opsieve_research.summary import Metrics

    if plot is not None and plot.exists() and not plot.is_dir():
        raise BadInput(f"--plot {shown(plot, 200)} exists and is not a directory")
    metrics = Metrics()
    skipped: list[dict[str, str]] = []
    untyped: list[dict[str, str]] = []
    with Workers() as workers:
        for group in _groups(folder, skipped):
            answers = infer_types(workers, [program for _, program in group])
            for (path, _), (model, problem) in zip(group, answers, strict=True):
                metrics.add(model)
                if problem:
                    untyped.append({"path": str(path), "reason": problem})
    modules = _modules(folder, skipped)
    for item in skipped:
        click.echo(printable(f"opsieve: skipped {item['path']}: {item['reason']}"), err=True)
    for item in untyped:
        click.echo(printable(f"opsieve: no types inferred for {item['path']}: {item['reason']}"), err=True)
    if not metrics.coverage.models and not modules:
        raise BadInput(
            f"no readable model in {shown(folder, 200)}: name a directory with .onnx files or cases"
        )
    summary = {**metrics.report(), "skipped": skipped, "untyped": untyped, "modules": modules}
    summary["states"] = _count_states(folder)
    summary["plots"] = [] if plot is None else _draw(metrics, summary, plot)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        if metrics.coverage.models:
            _print(summary)
        for ir, found in modules.items():
            click.echo(_line_of_modules(ir, found))
    return 0


def _line_of_modules(ir: str, found: dict[str, Any]) -> str:
    return (
        f"{ir}: {count_noun(found['modules'], 'module')}, {count_noun(found['functions'], 'function')},"
        f" {count_noun(found['calls'], 'call')} of {count_noun(found['operators'], 'operator')},"
        f" {count_noun(found['edges'], 'distinct edge')}, {count_noun(found['signatures'], 'signature')} of main,"
        f" {count_noun(found['passes'], 'different pass')}"
    )


def _modules(folder: Path, skipped: list[dict[str, str]]) -> dict[str, dict[str, Any]]:
    """The figures of TVM's modules below `folder`, by IR; what cannot be read goes to `skipped`."""
    from opsieve.gen.errors import BadInput
    from opsieve.gen.irs.registry import ONNX, all_irs, read_program
    from opsieve_research.modules import ModuleMetrics

    found: dict[str, ModuleMetrics] = {}
    names = dict.fromkeys(ir.files[0] for ir in all_irs() if ir.name != ONNX)
    for path in (path for name in names for path in _files(folder, name)):
        try:
            program = read_program(path)
            found.setdefault(program.ir, ModuleMetrics()).add(program)
        except BadInput as error:
            skipped.append({"path": str(path), "reason": str(error)})
    return {ir: metrics.report() for ir, metrics in found.items()}


def _count_states(folder: Path) -> dict[str, int]:
    """How many states of rewrites the programs of cases hold: all conditions met, one broken or on its edge."""
    from opsieve.gen.case.case import load
    from opsieve.gen.errors import BadInput
    from opsieve.gen.strategies.patterns.rewrite_parser import ALL_MET
    from opsieve.gen.strategies.patterns.strategy import list_states

    found: set[str] = set()
    for path in _files(folder, "case.json"):
        with contextlib.suppress(BadInput):
            found.update(load(path.parent).origin.states)
    met = sum(state.endswith(ALL_MET) for state in found)
    edges = sum(" on the edge" in state for state in found)
    return {"met": met, "broken": len(found) - met - edges, "edge": edges, "of": len(set(list_states()))}


def _groups(folder: Path, skipped: list[dict[str, str]]) -> Iterator[list[tuple[Path, "OnnxProgram"]]]:
    """The models at `folder`, in the order of paths, some at a time; what cannot be read goes to
    `skipped`.
    """
    from opsieve.gen.errors import BadInput
    from opsieve.gen.irs.onnx.model_file import load_program

    group: list[tuple[Path, OnnxProgram]] = []
    size = 0
    for path in _files(folder, ".onnx"):
        try:
            program = load_program(path)
        except BadInput as error:
            skipped.append({"path": str(path), "reason": str(error)})
            continue
        group.append((path, program))
        size += program.byte_size
        if len(group) == GROUP or size > GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _files(folder: Path, ending: str) -> Iterator[Path]:
    """Every file with this ending of its name at or below `folder`, in the order of paths; links to folders
    are not followed.
    """
    from opsieve.gen.errors import BadInput, shown
    from opsieve.gen.model.files import is_folder

    if not is_folder(folder):
        if not os.path.lexists(folder):
            raise BadInput(f"there is no directory {shown(folder, 200)}")
        if folder.name.endswith(ending) or ending == ".onnx":
            yield folder
        return
    for here, inner, files in os.walk(folder):
        inner.sort()
        yield from (Path(here) / name for name in sorted(files) if name.endswith(ending))


def _draw(metrics: "Metrics", summary: dict[str, Any], folder: Path) -> list[str]:
    """The plots, written into `folder`; their paths."""
    from opsieve.gen.errors import BadInput, shown
    from opsieve.gen.model.files import reason
    from opsieve_research.plots import write_bars, write_lines

    growth: dict[str, list[tuple[float, float]]] = {
        "operator instances": [(0, 0)],
        "operator edges": [(0, 0)],
    }
    for models, (instances, edges) in enumerate(metrics.growth, 1):
        growth["operator instances"].append((models, instances))
        growth["operator edges"].append((models, edges))
    paths = [folder / name for name in ("growth.svg", "operators.svg", "families.svg")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(
            paths[0], "Distinct instances and edges by number of models", "models", "distinct", growth
        )
        write_bars(paths[1], "Nodes by operator", dict(list(summary["frequencies"].items())[:MOST_BARS]))
        write_bars(
            paths[2], "Nodes by family", {name: item["nodes"] for name, item in summary["families"].items()}
        )
    except OSError as error:
        raise BadInput(f"cannot write plots into {shown(folder, 200)}: {reason(error)}") from None
    return [str(path) for path in paths]


def _print(summary: dict[str, Any]) -> None:
    click.echo(
        f"{count_noun(summary['models'], 'model')}, {count_noun(summary['nodes'], 'node')},"
        f" {count_noun(summary['operators'], 'operator')}"
    )
    click.echo(
        f"{summary['instances']} operator instances, {summary['edges']} operator edges"
        f" ({summary['edges_without_glue']} without casts and shape operators)"
    )
    states = summary["states"]
    click.echo(
        f"rewrites: {states['met']} with all conditions met, {count_noun(states['broken'], 'condition')} broken,"
        f" {states['edge']} on the edge, of {states['of']:,}"
    )
    found = summary["structure"]
    click.echo(
        f"structure: {found['components']:.2f} components per model, the largest with"
        f" {found['largest_component']:.0%} of the nodes; longest path {found['longest_path']:.1f};"
        f" {found['fan_out']:.0%} of the nodes read more than once; {count_noun(found['chains_of_3'], 'chain')}"
        f" of 3 operators, {found['chains_of_4']:,} of 4"
    )
    click.echo(
        "motifs per model: "
        + ", ".join(f"{count:.2f} {_MOTIFS.get(name, name)}" for name, count in found["motifs"].items())
    )
    click.echo("HirFuzz: " + ", ".join(f"{name} {count}" for name, count in summary["hirfuzz"].items()))
    click.echo(f"{'Isra':<16}{'65 operators':>14}{'all':>10}")
    for name, value in summary["isra"].items():
        click.echo(f"{name:<16}{value:>14.4g}{summary['isra_all'][name]:>10.4g}")
    click.echo(f"{'family':<16}{'nodes':>8}{'operators':>12}{'least':>8}{'most':>8}")
    for name, item in summary["families"].items():
        if item["of"] or item["nodes"]:
            met = f"{item['operators']}/{item['of']}" if item["of"] else str(item["operators"])
            click.echo(f"{name:<16}{item['nodes']:>8}{met:>12}{item['least']:>8}{item['most']:>8}")
    ratio = summary["spread"]
    click.echo(
        f"most to least frequent: operators {ratio['operators']:.1f} to 1, families {ratio['families']:.1f}"
        " to 1"
    )
    for path in summary["plots"]:
        click.echo(printable(f"wrote {path}"))
