"""`opsieve run`: judge models on targets."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from opsieve.backends.verdict import FAILING, JUDGED, leave_target_out
from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import printable, quote_argument
from opsieve.tui.app.views.located_lines import list_located
from opsieve.tui.cli import print_problem
from opsieve.tui.commands import options, output

COLOURS = {"pass": "green", "fail": "red", "flaky": "magenta", "undecided": "yellow", "invalid": "yellow"}
TONES = {"bad": "red", "warn": "yellow", "dim": "bright_black", "good": "green", "accent": "cyan"}


@click.command()
@click.argument("models", nargs=-1, required=True, type=options.PATH)
@options.INPUTS
@options.EXPECTED
@options.make_targets(
    "Compiler to test: backend[==release | @path][:option,...]; repeatable.  [default: the target recorded in"
    " the case, else onnxruntime]"
)
@click.option(
    "--values",
    help=(
        "How to choose inputs. search: find inputs that keep every intermediate finite. special[:KINDS]:"
        " inject special values (KINDS of zeros, subnormals, extremes, nan, inf; default all)."
    ),
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Random seed for inputs that were not supplied, and for --values.",
)
@options.make_limits(60.0)
@options.RTOL
@options.ATOL
@options.ORACLE
@options.METAMORPHIC
@click.option("--no-check", is_flag=True, help="Also run models that onnx.checker rejects.")
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@click.option(
    "--save", type=options.PATH, help="Save each failure as a case directory inside this directory."
)
@click.option(
    "--locate",
    is_flag=True,
    help=(
        "Where outputs are wrong, show the first node whose output is wrong given correct inputs, and every"
        " value."
    ),
)
@output.ALLOW_UNJUDGED
@options.JSON
def command(
    models: tuple[Path, ...],
    rtol: float | None,
    atol: float | None,
    allow_unjudged: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run MODELS on one or more compilers and judge the results: pass or fail, with the reason.

    A model is an .onnx file, a case directory, a directory with model.onnx and its data, or a directory of
    cases or .onnx files. Exit code 1 if any verdict is `fail` or `flaky`, else 2 if a model is unusable or a
    target gave no verdict.
    """
    from opsieve.backends.registry import resolve
    from opsieve.gen.case.case import list_models
    from opsieve.triage.judging import JudgeResult, judge_models

    started = time.monotonic()
    results: list[dict[str, Any]] = []
    refused = 0
    faults: list[Exception] = []
    try:
        # All at first, so that a missing path is reported before any test runs.
        listed = [path for model in models for path in list_models(model)]
        # Over all targets at once, because results are printed as they come and must stand in columns.
        width = max(len(resolve(text).display) for text in given["targets"] or ("onnxruntime",))
        for found in judge_models(listed, _make_request(rtol, atol, **given), output.print_message):
            if isinstance(found, JudgeResult):
                results.append(found.facts())
                if not as_json:
                    click.echo(_format_result(results[-1], width))
                    for line in list_located(results[-1].get("located", {})):
                        click.echo("".join(click.style(text, fg=TONES.get(tone)) for text, tone in line))
            else:
                refused += 1
                print_problem(found.reason if found.fault is None else f"{found.model}: {found.reason}")
                faults += [] if found.fault is None else [found.fault]
    finally:
        # Also after Ctrl-C: report what was judged
        if as_json:
            click.echo(json.dumps({"results": results}))
        # One line needs no sum.
        elif len(results) > 1:
            verdicts = Counter(result["verdict"] for result in results)
            counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
            output.print_message(f"{counts} in {time.monotonic() - started:.1f} s")
    # In the order of the results, so that a reader finds the word in the line above.
    words = [word for each in results for word in (*each["rules"], each["verdict"])]
    unclear = [word for word in dict.fromkeys(words) if word not in ("pass", "fail", "environment")]
    if unclear and not as_json:
        output.print_message(f"what {' and '.join(unclear[:2])} means: opsieve explain {unclear[0]}")
    failing = [each for each in results if each["verdict"] in FAILING]
    if failing and not as_json:
        output.print_message(
            f"reduce it: opsieve reduce {quote_argument(failing[0]['model'])} -t"
            f" {quote_argument(failing[0]['target'])}"
        )
    unjudged = [
        f"{each['model']} on {each['target']} ({each['verdict']})"
        for each in results
        if each["verdict"] not in JUDGED
    ]
    code = output.choose_exit_code(bool(failing), unjudged, allow_unjudged)
    return output.report_faults(faults) or code or (BadInput.exit_code if refused else 0)


def _make_request(rtol: float | None, atol: float | None, **given: Any) -> Any:
    """Turn the options into a request; raises BadInput for an unknown oracle."""
    from opsieve.backends.judge.oracle_names import choose_oracles
    from opsieve.triage.judging import JudgeRequest

    choice = choose_oracles(given["oracles"])
    return JudgeRequest(
        targets=given["targets"],
        inputs=given["inputs"],
        expected=given["expected"],
        values=given["values"] or "",
        seed=given["seed"],
        tolerance=None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0),
        metamorphic=given["metamorphic"] or "metamorphic" in choice.names,
        oracles=choice,
        check=not given["no_check"],
        save=given["save"],
        limits=given["limits"],
        offline=given["offline"],
        locate=given["locate"],
    )


def _format_result(result: dict[str, Any], width: int) -> str:
    """Format one result for a person; `width` is that of the column of targets."""
    # Twelve cells hold the longest verdict, `environment`, and a blank.
    word = click.style(
        f"{result['verdict']:<12}", fg=COLOURS.get(result["verdict"]), bold=result["verdict"] == "fail"
    )
    what = f"{result['kind']} at {result['stage']}: " if result["verdict"] == "fail" else ""
    known = f" [{result['fingerprint']}]" if result["fingerprint"] else ""
    reason = leave_target_out(result["reason"], result["target"])
    # The reason says it already.
    if reason.startswith("wrong output"):
        what = ""
    return word + printable(f"{result['target']:<{width}}  {result['model']}  {what}{reason}{known}")
