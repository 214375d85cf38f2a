"""`opsieve reduce`, and `reduce` by itself: from a failing model to the smallest model that fails in the same
way.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui.cli import SETTINGS, run_command
from opsieve.tui.commands.options import (
    CONSENT,
    EXPECTED,
    INPUTS,
    JSON,
    MEMORY,
    NO_SANDBOX,
    OFFLINE,
    ORACLE,
    PATH,
    RESOURCES,
    SCHEDULER,
    SEED,
    allow_builds,
    check_finite,
    make_seconds,
    make_targets,
)
from opsieve.tui.commands.output import print_message

if TYPE_CHECKING:
    from opsieve.reducer.engine.certificate import Certificate
    from opsieve.reducer.engine.form import Progress
    from opsieve.reducer.sessions.session import Reduced

# Lines of the reduced graph
_MOST_PRINTED = 60
_REFUSED = {"gone": "lost the failure", "slippage": "failed otherwise", "invalid": "invalid"}


@click.command(context_settings=SETTINGS)
@click.argument("case", type=PATH)
@INPUTS
@EXPECTED
@make_targets(
    "Compiler to test: backend[==release | @path][:option,...]; repeatable.  [default: all installed]"
)
@ORACLE
@click.option(
    "--against",
    metavar="TARGET",
    callback=allow_builds,
    help="Trusted target to compare with.  [default: chosen automatically]",
)
@click.option(
    "--same",
    "level",
    default="fingerprint",
    show_default=True,
    type=click.Choice(["loose", "fingerprint", "cure"]),
    help="How strictly the failure must stay the same.",
)
@click.option(
    "--check",
    "script",
    type=PATH,
    help="Interestingness test: `PATH MODEL INPUTS` exits with 0 while the model fails.",
)
@click.option(
    "--store",
    type=PATH,
    default="opsieve-store",
    show_default=True,
    help="Store that has the cluster CASE.",
)
@click.option("-o", "--output", type=PATH, help="Directory of the results.  [default: NAME.reduced here]")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    help=(
        "Number of slow tests to run in parallel.  [default: 1; with --scheduler, as many as its workers "
        "have threads]"
    ),
)
@SCHEDULER
@RESOURCES
@SEED
@make_seconds(30.0)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    callback=check_finite,
    help="Time limit of the reduction; the result is the smallest model so far.  [default: no limit]",
)
@click.option(
    "--checks",
    type=click.IntRange(1),
    help="Largest number of tests; the result is the smallest model so far.  [default: no limit]",
)
@MEMORY
@OFFLINE
@CONSENT
@NO_SANDBOX
@click.option(
    "--verify",
    is_flag=True,
    help=("Only check the certificate of CASE, a result of this command, a second time."),
)
@click.option(
    "--stats",
    is_flag=True,
    help=("Show how many edits of each pass kept the failure, and how the others ended."),
)
@JSON
def command(
    case: Path,
    store: Path,
    memory: int,
    offline: bool,
    verify: bool,
    stats: bool,
    as_json: bool,
    scheduler: str | None,
    resources: dict[str, float],
    jobs: int | None,
    **options: Any,
) -> int:
    """Reduce CASE, an .onnx model, a case directory or an id of a store, to the smallest model that still
    shows the same failure.

    Without --target every installed compiler is tried, and the reference decides who is right. The result is
    written with its inputs, a script and a certificate. Exit code 3 if nothing fails.
    """
    from opsieve.backends.workers.zygotes.zygote import Limits
    from opsieve.reducer.sessions.worker_pool import WorkerPool, open_cluster

    # The script may need files of this machine, and its author did not agree to run it elsewhere.
    if scheduler is not None and options["script"] is not None:
        raise BadInput("--check runs its script on this machine: leave --scheduler out")
    limits = Limits(seconds=options["seconds"], memory=memory << 20)
    # On a cluster the slow tests run there.
    here = 1 if scheduler is not None else jobs or 1
    with (
        WorkerPool(limits, here, offline, options["targets"], print_message) as pool,
        _open_listener(sys.stderr.isatty() and not as_json) as listener,
    ):
        # While the workers start
        from opsieve.reducer.sessions.output import place_of
        from opsieve.reducer.sessions.session import ReductionRequest, Session

        request = ReductionRequest(place_of(case, store), jobs=here, **options)
        with (
            open_cluster(scheduler, resources, jobs, pool[0], print_message) as further,
            Session(request, pool, listener, further) as session,
        ):
            if verify:
                from opsieve.reducer.sessions.output import census_facts, certificate_rows

                found = session.verify()
                certificate = found.certificate
                facts = {
                    "minimal": certificate.minimal,
                    "checks": found.checks,
                    **certificate_rows(certificate),
                }
                facts |= census_facts(certificate.parts)
                click.echo(json.dumps(facts) if as_json else _describe_certificate(certificate))
                return 0 if certificate.minimal else 1
            reduced = session.reduce()
    if as_json:
        # Also for an error, whose facts say how far it came.
        click.echo(json.dumps(reduced.facts | ({"stats": _count_acceptance(reduced)} if stats else {})))
    if reduced.error is not None:
        raise reduced.error
    if not as_json:
        click.echo(_summarise(reduced))
    if stats and not as_json:
        lines = [f"{'pass':16}{'tried':>8}{'kept':>8}{'lost':>8}{'other failure':>15}{'invalid':>9}"]
        for name, ended in _count_acceptance(reduced).items():
            counts = f"{ended['same']:>8}{ended['gone']:>8}{ended['slippage']:>15}{ended['invalid']:>9}"
            lines.append(f"{name:16}{sum(ended.values()):>8}{counts}")
        click.echo("\n".join(["", *lines]))
    return 0


def _count_acceptance(reduced: "Reduced") -> Mapping[str, Mapping[str, int]]:
    from opsieve.reducer.sessions.output import acceptance

    return acceptance(reduced.attempts)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `opsieve reduce` as the program `reduce`."""

    run_command(command, "reduce", arguments)


class _Log:
    """A listener that writes sentences to stderr and ignores progress."""

    def say(self, sentence: str) -> None:
        print_message(sentence)

    def progress(self, at: "Progress") -> None:
        """Ignore progress without a terminal."""


class _Live(_Log):
    """A listener that updates one line of a terminal."""

    def __init__(self, status: Any):
        self._status = status

    def progress(self, at: "Progress") -> None:
        inner = f" + {at.inner_nodes} inside" if at.inner_nodes else ""
        self._status.update(
            f"{at.dimension}: {count_noun(at.nodes, 'node')}{inner}, {count_noun(at.size, 'byte')},"
            f" {count_noun(at.checks, 'check')}, {at.seconds:.1f} s"
            + (f"; about {at.left} more for this step" if at.left else "")
            + "".join(f", {count} {_REFUSED[kind]}" for kind, count in at.refused.items())
        )


@contextmanager
def _open_listener(live: bool) -> Iterator[_Log]:
    if not live:
        yield _Log()
        return
    from rich.console import Console

    # The first phase prints no progress of its own: it runs the whole model with every value as an output.
    with Console(stderr=True).status("recording values") as status:
        yield _Live(status)


def _summarise(reduced: "Reduced") -> str:
    """Summarise the reduction for a person."""
    from opsieve.reducer.sessions.output import shapes

    result, facts = reduced.reduction, reduced.facts
    assert result is not None
    # `inside`: nodes of bodies and functions, which no count of a graph's own nodes shows.
    lines = [f"{'':8}{'nodes':>8}{'inside':>8}{'inputs':>8}{'bytes':>10}"]
    for when, subject in (("before", result.start), ("after", result.best)):
        nodes, inner, size = (facts[f"{what}_{when}"] for what in ("nodes", "inner_nodes", "bytes"))
        lines.append(f"{when:8}{nodes:>8}{inner:>8}{len(subject.inputs):>8} {size:>9}")
    lines += ["", *(f"    {line}" for line in _split_safe(reduced.text)[:_MOST_PRINTED]), ""]
    lines += [f"input {text}" for text in shapes(result.best)]
    still = "verified: the reduced model still shows the same failure"
    gone = "but the reduced model no longer shows the same failure"
    lines.append(
        f"{count_noun(facts['checks'], 'check')} ({facts['node_checks']} for nodes),"
        f" {facts['seconds']:.1f} s; " + (still if result.same else gone)
    )
    if result.replays is not None and result.replays[0] < result.replays[1]:
        lines.append(
            f"it shows only sometimes: the result failed in {result.replays[0]} of {result.replays[1]} runs"
        )
    # Said also of a good result: a script that accepts the rest by chance would accept anything.
    if result.noise is not None:
        start, rest = result.noise.start, result.noise.rest
        lines.append(
            f"the check is noisy: it exits with 0 in {start[0]} of {start[1]} runs of the whole model"
            + (f", and in {rest[0]} of {rest[1]} without the nodes that are left" if rest else "")
        )
    lines.append(
        _describe_certificate(result.certificate) if result.certificate.complete else facts["message"]
    )
    if result.rest_fails:
        how = "in the same way" if result.rest_fails == "same" else "in another way"
        lines.append(
            f"without these nodes the model still fails, {how}: a second bug, or the same one in another"
            " place"
        )
    if result.slippage:
        lines.append(
            f"{count_noun(len(result.slippage), 'different failure')} found while reducing: see"
            " other_failures/"
        )
    lines += [facts["output"], *filter(None, [facts["script"]])]
    return "\n".join(lines)


def _describe_certificate(certificate: "Certificate") -> str:
    from opsieve.reducer.sessions.output import census_facts

    tried = ", ".join(f"{line.name} {line.edits}" for line in certificate.lines if line.edits)
    rewriting = sum(line.by_rewriting for line in certificate.lines)
    facts = census_facts(certificate.parts)
    left = [f"not tried: {part['kind']} {part['part']}: {part['why']}" for part in facts["not_tried"]]
    if certificate.minimal:
        first = (
            f"1-minimal: no single remaining edit preserves the failure (tried: {tried or 'none are left'})"
        )
    elif not certificate.beaten:
        first = (
            f"no single edit that was tried preserves the failure, but {count_noun(len(left), 'part')}"
            " could not"
            f" be tried (tried: {tried or 'none are left'})"
        )
    else:
        first = f"not minimal: a single remaining edit preserves the failure (tried: {tried})"
    rows = [(kind, row["tried"], row["parts"] - row["simplest"]) for kind, row in facts["census"].items()]
    kinds = ", ".join(f"{count} of {most} {kind}" for kind, count, most in rows if most)
    parts = [f"parts that were tried: {kinds}"] if kinds else []
    if rewriting:
        parts.append(f"{count_noun(rewriting, 'edit')} lost the failure by what they rewrite besides")
    return "\n".join([first, *parts, *_split_safe("\n".join(left[:_MOST_PRINTED]))]).rstrip()


def _split_safe(text: str) -> list[str]:
    return [printable(line.expandtabs(4), "?") for line in text.split("\n")]
