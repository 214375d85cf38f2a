"""`opsieve corpus`: a folder of cases that is replayed on new compilers; and `opsieve bugs`: the collection
of bugs that opsieve has found, listed and replayed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui import cli, samples
from opsieve.tui.commands import options
from opsieve.tui.commands.output import (
    ALLOW_UNJUDGED,
    GITHUB,
    JUNIT,
    SARIF,
    CiOutput,
    choose_exit_code,
    print_message,
    report_faults,
)

if TYPE_CHECKING:
    from opsieve.triage.corpus.corpus_file import CorpusResult, State
    from opsieve.triage.corpus.session import CorpusRequest


_COLOURS = {"newly-failing": "red", "changed": "red", "still-failing": "yellow", "fixed": "green"}
TARGETS = options.make_targets(
    "Compiler to judge the cases on: backend[==release | @path][:option,...]; repeatable."
    "  [default: the targets recorded with each case]"
)
FAIL_ON = click.option(
    "--fail-on",
    type=click.Choice(["new", "any", "none"]),
    default="new",
    show_default=True,
    help=(
        "Results that cause exit code 1. new: a failure that is not in the record; any: every failure; "
        "none: no failure."
    ),
)


@click.group("corpus")
def command() -> None:
    """Keep a folder of failing cases and replay it on new compilers: fixed, still failing or newly
    failing.
    """


@command.command("add")
@click.argument("folder", type=options.PATH)
@click.argument("cases", nargs=-1, required=True, type=options.PATH)
@TARGETS
@options.ORACLE
@options.make_limits(60.0)
@options.OFFLINE
@options.NO_SANDBOX
@options.CONSENT
@ALLOW_UNJUDGED
@options.JSON
def add(folder: Path, cases: tuple[Path, ...], allow_unjudged: bool, as_json: bool, **given: Any) -> int:
    """Copy CASES into the corpus FOLDER and record the verdicts of their targets.

    A case is an .onnx file, a case directory, or a directory with model.onnx and its data; without a recorded
    target it runs on onnxruntime. A case that the corpus already has is judged again. Exit code 2 if a case
    could not be added or a target gave no verdict.
    """
    from opsieve.backends.verdict import JUDGED, leave_target_out
    from opsieve.triage.corpus import corpus_file, session

    added: list[dict[str, Any]] = []
    refused, faults = [], []
    for found in session.add_cases(cases, _make_request(folder, **given), print_message):
        if isinstance(found, session.AddedCase):
            seen = {
                target: corpus_file.get_verdict_facts(verdict) for target, verdict in found.targets.items()
            }
            added.append({"model": found.model, "name": found.name, "targets": seen})
            for target, verdict in () if as_json else found.targets.items():
                reason = leave_target_out(found.reasons[target], target)
                click.echo(printable(f"{found.name}  {target}  {verdict.words}: {reason}"))
        else:
            refused.append({"model": found.model, "reason": found.reason})
            cli.print_problem(f"{found.model}: {found.reason}")
            faults += [] if found.fault is None else [found.fault]
    if as_json:
        click.echo(json.dumps({"corpus": str(folder), "added": added, "refused": refused}))
    else:
        print_message(f"{count_noun(len(added), 'case')} added to {folder}")
    unjudged = [
        f"{case['name']} on {target} ({seen['verdict']})"
        for case in added
        for target, seen in case["targets"].items()
        if seen["verdict"] not in JUDGED
    ]
    # A failure is what a corpus is for, so that adding one is a success.
    code = choose_exit_code(False, unjudged, allow_unjudged)
    return report_faults(faults) or code or (BadInput.exit_code if refused else 0)


@command.command("run")
@click.argument("folder", type=options.PATH)
@TARGETS
@options.ORACLE
@FAIL_ON
@JUNIT
@SARIF
@GITHUB
@options.make_limits(60.0)
@options.OFFLINE
@options.NO_SANDBOX
@options.CONSENT
@ALLOW_UNJUDGED
@options.JSON
def run(
    folder: Path,
    fail_on: str,
    junit: Path | None,
    sarif: Path | None,
    github: bool,
    allow_unjudged: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge every case of the corpus FOLDER and compare the verdicts with its record.

    A target without a record is compared with the same compiler in another release or setting. Exit code 1 as
    --fail-on says, else 2 if a case is unusable or a target gave no verdict.
    """
    from opsieve.triage.corpus.session import make_refusal, replay_corpus
    from opsieve.triage.judging import RefusedModel

    output = CiOutput(junit, sarif, github)
    # Before the tests, which may take hours: a path that cannot be written is reported at once.
    output.check_paths()
    results: list[CorpusResult] = []
    faults = []
    for found in replay_corpus(_make_request(folder, **given), print_message):
        if isinstance(found, RefusedModel):
            faults += [] if found.fault is None else [found.fault]
            results.append(make_refusal(found))
        else:
            results.append(found)
        if not as_json:
            click.echo(_format_result(results[-1]))
    code = report_results(results, folder, fail_on, output, allow_unjudged, as_json)
    return report_faults(faults) or code


@command.command("diff")
@click.argument("old", type=options.PATH)
@click.argument("new", type=options.PATH)
@FAIL_ON
@JUNIT
@SARIF
@GITHUB
@ALLOW_UNJUDGED
@options.JSON
def diff(
    old: Path,
    new: Path,
    fail_on: str,
    junit: Path | None,
    sarif: Path | None,
    github: bool,
    allow_unjudged: bool,
    as_json: bool,
) -> int:
    """Compare two outputs of `corpus run --json`: the failures that NEW fixes and adds relative to OLD.

    Exit codes are those of `corpus run`.
    """
    from opsieve.triage.corpus.session import compare_results

    output = CiOutput(junit, sarif, github)
    output.check_paths()
    results = list(compare_results(old, new))
    for result in () if as_json else results:
        click.echo(_format_result(result))
    return report_results(results, None, fail_on, output, allow_unjudged, as_json)


def _make_request(folder: Path, oracles: tuple[str, ...], **given: Any) -> "CorpusRequest":
    """Turn the options into a request."""
    from opsieve.backends.judge.oracle_names import choose_oracles
    from opsieve.triage.corpus.session import CorpusRequest

    return CorpusRequest(folder, oracles=choose_oracles(oracles), **given)


def report_results(
    results: "Sequence[CorpusResult]",
    folder: Path | None,
    fail_on: str,
    output: CiOutput,
    allow_unjudged: bool,
    as_json: bool,
    words: "Mapping[State, str] | None" = None,
    rows: list[dict[str, Any]] | None = None,
) -> int:
    """Print and write the results in the forms that were asked for, and return the exit code.

    `words` names the states in the counts and in the key `status`; `rows` replace those of `--json`.
    """
    from opsieve.triage.corpus.corpus_file import FAIL_ON as FAILING_STATES, count_states, list_facts

    failing, numbers = FAILING_STATES[fail_on], count_states(results)
    rows = rows or list_facts(results)
    if words is not None:
        numbers = dict(Counter(words[result.state] for result in results))
        rows = [{**row, "status": words[row["state"]]} for row in rows]
    # A case without a verdict must not look green in CI.
    red = failing if allow_unjudged else {*failing, "not-judged"}
    if as_json:
        click.echo(json.dumps({"corpus": str(folder or ""), "counts": numbers, "results": rows}))
    place = "" if folder is None else folder.as_posix()
    # Annotations on stderr with --json, so that stdout stays one JSON object.
    output.write_results(results, red, place, f"corpus {place or 'diff'}", annotate_on_stderr=as_json)
    print_message(
        ", ".join(f"{count} {state.replace('-', ' ')}" for state, count in numbers.items() if count)
        or "no case"
    )
    unjudged = [
        f"{result.case} on {result.target or 'any target'}"
        f" ({result.after.verdict if result.after else result.reason})"
        for result in results
        if result.state == "not-judged" and not result.refused
    ]
    code = choose_exit_code(any(result.state in failing for result in results), unjudged, allow_unjudged)
    return code or (BadInput.exit_code if any(result.refused for result in results) or not results else 0)


def _format_result(result: "CorpusResult") -> str:
    """Format one result for a person; it must not contain a workflow command of a CI server."""
    state = click.style(f"{result.state.replace('-', ' '):<14}", fg=_COLOURS.get(result.state))
    target = f"  {result.target}" if result.target else ""
    # `##[` begins a command of Azure Pipelines, and text of a model may hold it.
    return state + printable(f"{result.case}{target}  {result.sentence}").replace("##[", "## [")


_BUG_COLOURS = {"live": "yellow", "changed": "red", "fixed": "green"}
_FOLDER = click.option(
    "--folder",
    type=options.PATH,
    default=None,
    help="Collection of bugs.  [default: the collection that comes with opsieve]",
)
_PAGE = click.option(
    "--page", type=options.PATH, metavar="FILE", help="Write the collection as a page in Markdown."
)


def _complete_bugs(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from opsieve.triage.corpus.corpus_file import read_bugs

    folder = context.params.get("folder") or samples.SAMPLES
    return [CompletionItem(name) for name in read_bugs(folder) if name.startswith(begun)]


@click.group("bugs", invoke_without_command=True)
@_FOLDER
@_PAGE
@options.JSON
@click.pass_context
def bugs(context: click.Context, folder: Path | None, page: Path | None, as_json: bool) -> int:
    """List the bugs that opsieve has found, with their status in the newest release on record."""
    from opsieve.triage.corpus.corpus_file import latest, read_bugs, status
    from opsieve.tui.commands.output import print_table

    # click calls the group before its subcommand.
    if context.invoked_subcommand is not None:
        return 0
    found = read_bugs(folder or samples.SAMPLES)
    if page is not None:
        _write_page(folder or samples.SAMPLES, page)
    if as_json:
        from opsieve.tui.store_api import list_bugs

        click.echo(json.dumps({"bugs": list_bugs(folder)}))
        return 0
    print_table(
        ("bug", "status", "target", "what"),
        [(name, status(entry, bug), latest(entry, bug)[0], bug.what) for name, (entry, bug) in found.items()],
        # The other columns are needed whole to be copied into a command.
        wide="what",
    )
    counts = Counter(status(entry, bug) for entry, bug in found.values())
    print_message(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 0


@bugs.command("replay")
@click.argument("names", metavar="[BUG]...", nargs=-1, shell_complete=_complete_bugs)
@_FOLDER
@click.option("--newest", is_flag=True, help="Install and judge the newest release of each compiler.")
@click.option("--update", is_flag=True, help="Record the results in the collection.")
@_PAGE
@click.option(
    "--resume",
    type=options.PATH,
    metavar="FILE",
    help=(
        "Append each result to FILE and skip the results that FILE has, to continue an interrupted replay."
    ),
)
@FAIL_ON
@JUNIT
@GITHUB
@options.make_limits(60.0)
@options.OFFLINE
@options.NO_SANDBOX
@options.CONSENT
@ALLOW_UNJUDGED
@options.JSON
def replay_bug_cases(
    names: tuple[str, ...],
    folder: Path | None,
    newest: bool,
    update: bool,
    page: Path | None,
    resume: Path | None,
    fail_on: str,
    junit: Path | None,
    github: bool,
    allow_unjudged: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge each BUG, or all, on the newest release on record: live, fixed, changed or not judged.

    A bug that is still live is not a new failure. Exit code 1 as --fail-on says, else 2 if a case is
    unusable or a target gave no verdict.
    """
    from opsieve.triage.corpus.session import STATUS, BugsRequest, make_refusal, replay_bugs, update_bugs
    from opsieve.triage.judging import RefusedModel

    output, place = CiOutput(junit, None, github), folder or samples.SAMPLES
    output.check_paths()
    results: list[CorpusResult] = []
    faults = []
    for found in replay_bugs(BugsRequest(place, names, newest, resume, **given), print_message):
        if isinstance(found, RefusedModel):
            faults += [] if found.fault is None else [found.fault]
            found = make_refusal(found)
        results.append(found)
        if not as_json:
            word = click.style(f"{STATUS[found.state]:<12}", fg=_BUG_COLOURS.get(STATUS[found.state]))
            click.echo(
                word + printable(f"{found.case}  {found.target}  {found.sentence}").replace("##[", "## [")
            )
    # After all results, so that an interrupted replay records nothing half.
    if update:
        update_bugs(place, results)
    if page is not None:
        _write_page(place, page)
    code = report_results(results, place, fail_on, output, allow_unjudged, as_json, words=STATUS)
    return report_faults(faults) or code


def _write_page(folder: Path, page: Path) -> None:
    from opsieve.gen.model.durable import write_output
    from opsieve.triage.corpus.corpus_file import read_bugs
    from opsieve.triage.corpus.found_page import found_page

    write_output(page, found_page(read_bugs(folder)).encode())
