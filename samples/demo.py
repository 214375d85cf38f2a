"""The demo, in about two minutes: real failures replayed, one made small, a campaign on what is installed,
and what it found.

    python samples/demo.py [PICTURE.svg]

Run by `make demo`. Installs the releases of onnxruntime that the samples need. With a file name it also draws
what it printed, for README.md. What it makes lies in build/demo, anew each time.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.registry import resolve
from opsieve.backends.releases.installers import HASHES
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.probe_backend import list_examined
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import open_case
from opsieve.gen.model.variables import variable_set
from opsieve.gen.strategies.registry import generate
from opsieve.triage.corpus.corpus_file import Bug, read_bugs
from opsieve.triage.store.store import Store

SAMPLES = Path(__file__).resolve().parent
MADE = SAMPLES.parent / "build" / "demo"
STORE = MADE / "store"
COLOURS = {"pass": "green", "fail": "red"}
ONE = "resnet-pad-maxpool-wrong-value"
OLD = (  # two of the samples have it installed; the campaign has a release with bugs to find
    "onnxruntime==1.20.1"
)
NO_COMPILERS = ("reference", "checker", "fake")
SLOW = 0.25  # seconds for one small test: compilers that take longer would hold up the others
WIDTH = 120  # characters, of the picture and of what is printed to no terminal
BUDGET, GRACE = 120.0, 15.0  # seconds for everything but installing, and how long a campaign may take to end


def main() -> int:
    """Replay, reduce, hunt; 1 when a sample no longer shows what it is kept for."""
    console = Console(highlight=False, record=True)
    if len(sys.argv) > 1 or not console.is_terminal:
        console.width = WIDTH
    with Workers(say=lambda sentence: console.print(f"[dim]{escape(sentence)}[/dim]")) as workers:
        prepare(workers)
        started = time.monotonic()
        installed = installed_targets(workers)
        quick = quick_targets(workers, installed)
        wrong = replay(console, workers, installed)
    reduce(console)
    hunt(console, quick, sorted(set(installed) - set(quick)), BUDGET - (time.monotonic() - started))
    console.print(
        f"\nDone in {time.monotonic() - started:.0f} s. Try one yourself: "
        f"[bold].venv/bin/opsieve run samples/{ONE} -t {OLD}[/bold]"
    )
    for sentence in wrong:
        console.print(f"[red]not as expected:[/red] {escape(sentence)}")
    if len(sys.argv) > 1:
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="make demo"), flags=re.DOTALL)
        Path(sys.argv[1]).write_text(drawn)  # without the fonts that it would fetch from elsewhere
    return 1 if wrong else 0


def samples() -> list[tuple[Path, Bug]]:
    """The folder of each case of the collection with its bug."""
    return [(SAMPLES / name, bug) for name, (_, bug) in read_bugs(SAMPLES).items()]


def installed_targets(workers: Workers) -> dict[str, str]:
    """The version of every compiler that is installed here, by its name."""
    found = {}
    for name in list_examined():
        try:
            found[name] = workers.version(resolve(name))
        except Unavailable:
            continue
    return {name: version for name, version in found.items() if name not in NO_COMPILERS}


def quick_targets(workers: Workers, installed: dict[str, str]) -> list[str]:
    """Those of them that do a few small tests quickly, the first of all left aside."""
    cases, quick = [generate("isra", seed) for seed in range(4)], []
    for name in installed:
        seen = [workers.observe(resolve(name), case.program, case.inputs) for case in cases]
        if sum(one.total_seconds for one in seen[1:]) / len(seen[1:]) < SLOW:
            quick.append(name)
    return quick


def prepare(workers: Workers) -> None:
    """Install the releases of onnxruntime that the samples name, from files of known hashes: set-up, not part
    of the time.
    """
    named = {text for _, sample in samples() for text in (sample.fails, sample.passes)}
    with variable_set(HASHES, str(SAMPLES / "hashes")):
        for target in map(resolve, sorted(named)):
            if target.name == "onnxruntime":
                workers.version(target)


def replay(console: Console, workers: Workers, installed: dict[str, str]) -> list[str]:
    """Judge each sample on the target that fails and on one that passes; sentences on what is not as
    documented.
    """
    console.print("[bold]Real failures[/bold], each judged where the bug is and where it is not.\n")
    table = Table("sample", "with the bug", "without it", "what goes wrong", box=None, pad_edge=False)
    wrong, left, lab = [], [], ObservationCache(workers)
    for folder, sample in samples():
        failing = resolve(sample.fails)
        if failing.name != "onnxruntime":
            if installed.get(failing.name, "") != failing.release:
                left.append(f"{failing.name} {failing.release}")
                continue
            failing = failing.with_release("")
        case = open_case(folder)
        cells, message = [], ""
        for target, wanted in ((failing, "fail"), (resolve(sample.passes), "pass")):
            verdict = judge_program(
                case.program, case.inputs, target, lab, expected=case.expected, oracles=SECOND_ORACLES
            ).verdict
            if verdict.verdict == "environment":
                # The tool is here, but a package that it needs (sympy, say) is not.
                left.append(f"{target.name} {installed.get(target.name, target.release)}")
                break
            options = "".join(f":{name}={value}" for name, value in target.target.options)
            version = target.release or workers.version(target)
            cells.append(
                f"{escape(f'{target.name} {version}{options}')}"
                f" [{COLOURS.get(verdict.verdict, 'yellow')}]{verdict.verdict}[/]"
            )
            message = message or summary(verdict)
            if verdict.verdict != wanted:
                wrong.append(f"{folder.name} on {target}: {verdict.verdict}, not {wanted} ({verdict.reason})")
        else:
            table.add_row(folder.name, *cells, escape(message))
    console.print(table)
    if left:
        names = ", ".join(sorted(set(left)))
        console.print(f"[dim]Not replayed, for these or what they need are not installed: {names}.[/dim]")
    return wrong


def summary(verdict: Verdict) -> str:
    """A few words on a failure."""
    found = verdict.mismatch
    if found is None:
        return f"{verdict.kind} at {verdict.stage}" if verdict.kind else ""
    if found.what == "shape":
        return f"a result of shape {found.got}, not {found.expected}"
    return f"a value of {found.got}, not {found.expected}"


def reduce(console: Console) -> None:
    """Make one sample smaller, as the command `reduce` does."""
    console.print(f"\n[bold]One of them made small[/bold]: reduce samples/{ONE}\n")
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir(parents=True)
    command = [
        sys.executable,
        "-c",
        "import sys; from opsieve.tui.commands.examine.reduce_command import main; sys.exit(main())",
    ]
    command += [str(SAMPLES / ONE), "--target", OLD, "--output", str(MADE / "reduced")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUDGET)
    lines = done.stdout.splitlines() or done.stderr.splitlines()
    console.print(escape("\n".join(line for line in lines if str(MADE) not in line)))


def hunt(console: Console, quick: list[str], slow: list[str], seconds: float) -> None:
    """A campaign for what is left of the time, and a table of what it found."""
    targets = [*quick, OLD]
    minutes = max(20.0, seconds - GRACE) / 60
    console.print(
        f"\n[bold]A campaign[/bold] of {60 * minutes:.0f} s: programs made at random, on all of these."
    )
    command = [
        sys.executable,
        "-m",
        "opsieve",
        "fuzz",
        "--no-probe",
        "--store",
        str(STORE),
        "--seed",
        "1",
        "-j",
        "2",
        "--json",
    ]
    command += ["--minutes", f"{minutes:.2f}", *(word for name in targets for word in ("--target", name))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as going:
        try:
            out, _ = going.communicate(timeout=60 * minutes + GRACE)
        except subprocess.TimeoutExpired:
            console.print(
                "[dim]The time is over: the campaign is interrupted, and stores what it has done.[/dim]"
            )
            going.send_signal(signal.SIGINT)
            out, _ = going.communicate()
    if not out:
        console.print("This machine was too busy for a test in that time: .venv/bin/opsieve fuzz --minutes 5")
        return
    summary = json.loads(out)
    table = Table(
        "target", "tests", "pass", "fail", "unsupported", "tests a second", box=None, pad_edge=False
    )
    for name, one in summary["targets"].items():
        counts = one["verdicts"]
        cells = [sum(counts.values()), *(counts.get(word, 0) for word in ("pass", "fail", "unsupported"))]
        table.add_row(escape(name), *map(str, cells), f"{one['tests_per_second']:.0f}")
    console.print(table)
    console.print(
        f"[dim]tests a second: of a target's own time; {summary['tests_per_second']:.0f} for all"
        " together[/dim]"
    )
    if slow:
        console.print(f"[dim]Left out, for they are slow: {', '.join(slow)}.[/dim]")
    console.print("\n[bold]What it found[/bold]\n")
    console.print(findings())


def findings() -> Table | str:
    """A row for each different failure in the store."""
    with Store(STORE) as store:
        counts = store.count_failures()
    if not counts:
        return "Nothing, this time. Longer: .venv/bin/opsieve fuzz --minutes 60 -j 2"
    table = Table("failure", "times", "nodes", "what is said", box=None, pad_edge=False)
    for key, count in sorted(counts.items()):
        record = json.loads((STORE / "cases" / key / "1" / "failure.json").read_text())
        said = "".join(c if c.isprintable() else " " for c in record["message"] or record["reason"])
        table.add_row(f"[red]{escape(key)}[/red]", str(count), str(record["nodes"]), escape(said[:100]))
    return table


if __name__ == "__main__":
    sys.exit(main())
