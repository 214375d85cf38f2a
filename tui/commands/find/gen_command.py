"""`opsieve gen`: make programs from seeds, as case directories or files."""

import json
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui.commands import options, output

if TYPE_CHECKING:
    from opsieve.backends.probing.generation import GenerationRequest

# Lines that a screen holds; --json has all
_MOST_REFUSED = 20


@click.command("gen")
@click.option(
    "-n",
    "--models",
    type=click.IntRange(1, 10_000_000),
    default=100,
    show_default=True,
    help="Number of programs.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**62),
    default=0,
    show_default=True,
    help="Seed of the first program; the others follow.",
)
@click.option("--nodes", default="10", show_default=True, help="Nodes per program: K, or a range A-B.")
@click.option(
    "--strategy",
    default="mix",
    show_default=True,
    help="Generation strategy: mix, isra, hirfuzz, pattern, mutate, ...",
)
@options.OPERATORS
@options.DTYPES
@click.option("--opset", type=int, help="Opset of every program.  [default: drawn for each]")
@click.option(
    "--dynamic",
    type=click.FloatRange(0, 1),
    callback=options.check_finite,
    default=0.0,
    show_default=True,
    help="Share of programs with symbolic input sizes.",
)
@options.SIBLINGS
@click.option(
    "--values",
    default="ranged",
    show_default=True,
    help="How to choose values: ranged, search, or special[:zeros,nan,...].",
)
@click.option(
    "--corpus",
    type=options.PATH,
    help="Directory of models that --strategy mutate, documented or relax-mutate starts from.",
)
@options.make_targets("Use only operators this compiler supports (probed once); repeatable.")
@click.option(
    "-o", "--out", type=options.PATH, help="New or empty directory to write to.  [default: write nothing]"
)
@click.option("--flat", is_flag=True, help="Write plain .onnx files instead of case directories.")
@click.option("--check", is_flag=True, help="Check each program with onnx.checker, modules of TVM with TVM.")
@click.option("--origin", type=options.PATH, help="Regenerate the program of a case directory and compare.")
@click.option(
    "--explain-support", "explain", is_flag=True, help="Only print which operators the targets lack, and why."
)
@options.NO_SANDBOX
@options.JSON
def command(explain: bool, as_json: bool, **given: Any) -> int:
    """Generate random valid programs, with values for their inputs. Equal options and seeds give equal bytes.

    Exit code 1 if a program was refused by --check, or if --origin gave a different program.
    """
    from opsieve.backends.probing.generation import GenerationSummary, generate_programs

    request = _make_request(given)
    if explain:
        return _explain_support(request, as_json)
    summary = GenerationSummary()
    interrupted = False
    try:
        with output.open_probing_bar() as probing, output.open_counting_bar(request.models) as show:
            for done in generate_programs(request, summary, probing, output.print_message):
                show(done, "")
    except KeyboardInterrupt:
        interrupted = True
    facts = summary.list_facts(request)
    click.echo(json.dumps(facts) if as_json else _write_summary(facts))
    for name, why in summary.refused[:_MOST_REFUSED]:
        output.print_message(f"{name} is refused: {why}")
    if interrupted:
        output.print_message("interrupted; everything written is complete")
        return 130
    # `identical` is missing without --origin.
    return 1 if summary.refused or facts.get("identical") is False else 0


def _make_request(given: dict[str, Any]) -> "GenerationRequest":
    """Turn the options into a request; raises BadInput for an invalid name or number."""
    from dataclasses import replace

    from opsieve.backends.probing.generation import GenerationRequest, make_repeat_request
    from opsieve.backends.registry import resolve
    from opsieve.gen.declarations.builder import Budget
    from opsieve.gen.generation import random_graph, request as gen_request
    from opsieve.gen.values.values import named_values

    # The case itself says how it was made; other options would make another program.
    if given["origin"] is not None:
        return replace(
            make_repeat_request(given["origin"]), out=given["out"], flat=given["flat"], check=given["check"]
        )
    low, high = gen_request.parse_nodes(given["nodes"])
    # 512 elements and 8,192 operations per node: a fixed limit would leave a large program only tiny tensors.
    usual = Budget()
    program = random_graph.GenRequest(
        nodes=low,
        only=gen_request.select_operators(gen_request.split_items(given["operators"])),
        dtypes=gen_request.select_dtypes(gen_request.split_items([given["dtypes"]])),
        opset=gen_request.check_opset(given["opset"] or 0),
        budget=Budget(elements=max(usual.elements, high << 9), work=max(usual.work, high << 13)),
        between=(low, high) if low != high else None,
        dynamic=given["dynamic"],
        siblings=given["siblings"],
        values=named_values(given["values"]),
    )
    names = ("strategy", "seed", "models", "corpus", "out", "flat", "check")
    targets = tuple(map(resolve, given["targets"]))
    return GenerationRequest(program, targets=targets, **{name: given[name] for name in names})


def _explain_support(request: "GenerationRequest", as_json: bool) -> int:
    """Print the operators that the targets lack, and their messages."""
    from opsieve.backends.probing import generation, operator_support
    from opsieve.backends.workers.workers import Workers

    if not request.targets:
        raise BadInput("--explain-support needs a --target")
    with Workers() as workers, output.open_probing_bar() as probing:
        supports = generation.probe_support(workers, request.targets, request.program, probing)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "supports": [
                        {
                            "target": item.target,
                            "version": item.version,
                            "known": len(item.known),
                            "refused": dict(item.reasons),
                            "refused_by_rank": [
                                {"what": what, "rank": rank, "reason": why}
                                for (what, rank), why in item.by_rank.items()
                            ],
                            "broken": dict(item.broken),
                        }
                        for item in supports
                    ]
                }
            )
        )
        return 0
    for item in supports:
        lacks = len(item.reasons) + len(item.by_rank)
        click.echo(
            f"{item.target} {item.version}: {count_noun(len(item.known), 'operator signature')} probed,"
            f" {lacks}"
            " unsupported"
        )
        for line in operator_support.explain_support(item):
            click.echo(printable(f"  {line}"))
    return 0


def _write_summary(facts: dict[str, Any]) -> str:
    """Write the summary for a person."""
    strategies = ", ".join(f"{count} {name}" for name, count in facts["strategies"].items())
    line = (
        f"{count_noun(facts['models'], 'model')}, {count_noun(facts['nodes'], 'node')},"
        f" {facts['models_per_cpu_second']} models per CPU second ({strategies})"
    )
    if facts["values"] is not None:
        line += f"; values: {', '.join(f'{count} {how}' for how, count in facts['values'].items())}"
    if facts["valid"] is not None:
        line += f"; {facts['valid']} valid"
    if "identical" in facts:
        line += "; identical to the case" if facts["identical"] else "; different from the case"
    return line + (f"; written to {facts['out']}" if facts["out"] else "")
