"""`opsieve learn`: infer declarations of a domain's operators from a compiler's answers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options
from opsieve.tui.commands.progress import open_counting_bar

if TYPE_CHECKING:
    from opsieve.backends.probing.learning import Learnt


@click.command("learn")
@click.argument("domain")
@click.option(
    "--ops",
    default="",
    metavar="NAME,...",
    help="Only these operators.  [default: all with a kernel for the CPU]",
)
@click.option("-t", "--target", default="onnxruntime", show_default=True, help="Compiler to probe.")
@click.option("-o", "--output", type=options.PATH, help="File to write.  [default: DOMAIN.toml]")
@click.option("--seed", default=0, show_default=True, help="Random seed of the probed instances.")
@options.NO_SANDBOX
@options.JSON
def command(domain: str, ops: str, target: str, output: Path | None, seed: int, as_json: bool) -> int:
    """Declare the operators of DOMAIN (com.microsoft, ai.onnx.ml, ai.onnx) by probing the types, shapes and
    attributes that a compiler accepts.

    Writes an editable TOML file. Set OPSIEVE_OPERATORS to this file to generate programs with its operators.
    An interrupted run continues.
    """
    from opsieve.backends.probing.answer_file import get_cache_folder
    from opsieve.backends.probing.learning_session import (
        SECONDS,
        LearnRequest,
        export_learnt,
        learn_operators,
    )
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygotes.zygote import Limits
    from opsieve.gen.model.durable import check_output, write_output

    domain = "" if domain == "ai.onnx" else domain
    request = LearnRequest(domain, resolve(target), frozenset(filter(None, ops.split(","))), seed)
    path = output or Path(f"{domain.replace('/', '-') or 'ai.onnx'}.toml")
    # said before all is learnt
    check_output(path)
    with Workers(Limits(seconds=SECONDS)) as workers, open_counting_bar(None) as show:
        found: list[Learnt] = []
        for each in learn_operators(request, workers, get_cache_folder("learned")):
            found.append(each)
            show(len(found), each.name)
        text = export_learnt(request, found, workers.version(request.target))
    write_output(path, text)
    declared = [each for each in found if each.operator is not None]
    if as_json:
        facts = {
            each.name: {
                "declared": each.operator is not None,
                "forms": len(each.operator.forms) if each.operator else 0,
                "accepted": each.operator.accepted if each.operator else 0,
                "tried": each.operator.tried if each.operator else 0,
                "reason": each.reason,
                "asked": each.asked,
                "died": each.died,
            }
            for each in found
        }
        click.echo(json.dumps({"domain": domain, "file": str(path), "operators": facts}))
        return 0
    for each in found:
        if each.operator is None:
            click.echo(f"{each.name}: {each.reason}")
        if each.died:
            click.echo(
                f"{each.name}: {request.target.display} died of {each.died} of"
                f" {count_noun(each.asked, 'instance')}"
            )
    click.echo(f"{path}: {len(declared)} of {count_noun(len(found), 'operator')} declared")
    return 0
