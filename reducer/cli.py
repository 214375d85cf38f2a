"""The `reduce` command: a failing model in, the smallest model that fails the same way out."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

PATH = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("case", type=PATH)
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option(
    "-t", "--target", "targets", multiple=True, help="backend[==release][:option,...]; default: all installed."
)
@click.option("--against", help="The target that is right; default: whoever the judge hears.")
@click.option(
    "--same", "level", default="fingerprint", show_default=True, type=click.Choice(["loose", "fingerprint", "cure"])
)
@click.option(
    "--check", "script", type=PATH, help="SCRIPT MODEL INPUTS: exit code 0 means that it is still interesting."
)
@click.option(
    "--store", type=PATH, default="opsieve-store", show_default=True, help="The store that an id is looked up in."
)
@click.option("-o", "--output", type=PATH, help="Folder of the results [default: NAME.reduced here].")
@click.option(
    "-j", "--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Slow checks at the same time."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that nobody gave.")
@click.option("--seconds", default=30.0, show_default=True, help="Wall time that one run may take.")
@click.option("--memory", default=4096, show_default=True, help="MiB that one run may use.")
@click.option("--offline", is_flag=True, help="Install no release; use those that are there.")
@click.option("--verify", is_flag=True, help="Only re-check the certificate of CASE, a result of this command.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    case: Path,
    inputs: Path | None,
    expected: Path | None,
    targets: tuple[str, ...],
    against: str | None,
    level: str,
    script: Path | None,
    store: Path,
    output: Path | None,
    jobs: int,
    seed: int,
    seconds: float,
    memory: int,
    offline: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Reduce CASE, an .onnx model, a case folder or an id of a store, to the smallest model that still shows the same failure.

    With no options it finds what fails: every installed compiler is asked, and the reference says who is right. What is left is
    written with its inputs, a script and a certificate. Exit code 3 when nothing fails.
    """
    from opsieve.gen.model.bad_input import BadInput

    if not 0 < seconds <= 86400:
        raise BadInput("--seconds must lie between 0 and 86400.")
    if not 64 <= memory <= 1 << 20:
        raise BadInput("--memory must lie between 64 and 1048576 MiB.")
    from opsieve.backends.workers.zygote import Limits
    from opsieve.reducer.worker_pool import WorkerPool

    with WorkerPool(Limits(seconds=seconds, memory=memory << 20), jobs, offline, targets) as pool:
        from opsieve.reducer.problem.store_cases import place_of
        from opsieve.reducer.session import ReductionRequest, Session  # while the workers start

        place = place_of(case, store)
        wanted = ReductionRequest(place, inputs, expected, targets, against, level, script, output, jobs, seed, seconds)
        with Session(wanted, pool, sys.stderr.isatty() and not as_json) as session:
            return session.verify(as_json) if verify else session.reduce(as_json)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 reduced, 2 bad usage or input, 3 nothing fails, 130 interrupted with the best saved."""
    from opsieve.gen.model.bad_input import BadInput

    try:
        code = command.main(arguments, prog_name="reduce", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        code = complain(f"{error.format_message().rstrip('.')} (see reduce --help).", 2)
    except click.ClickException as error:
        code = complain(error.format_message(), 2)
    except BadInput as error:
        code = complain(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        code = complain("Interrupted.", 130)
    except OSError as error:
        code = complain(f"{error.strerror or error}: {error.filename or 'input or output'}.", 2)
    sys.exit(code or 0)


def complain(sentence: str, code: int) -> int:
    """Tell what is wrong on stderr, as one line without control characters; the exit code for it."""
    click.echo(f"reduce: {''.join(c if c.isprintable() else ' ' for c in sentence)}", err=True)
    return code
