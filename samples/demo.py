"""The demo: every sample on the release that fails and on one that passes. Run by `make demo`; installs the releases it needs.

    python samples/demo.py [PICTURE.svg]

With a file name it also draws what it printed, for README.md.
"""

import re
import sys
import time
import tomllib
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opsieve.backends.judge import SECOND_VOICES, judge
from opsieve.backends.lab import Lab
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers import Workers
from opsieve.gen.intake import open_case

SAMPLES = Path(__file__).resolve().parent
COLOURS = {"pass": "green", "fail": "red"}


def main() -> int:
    """Judge, print a table; 1 when a sample no longer shows what it is kept for."""
    console = Console(highlight=False, record=True, width=100 if len(sys.argv) > 1 else None)
    console.print("Real failures of released onnxruntimes, each judged on a release with the bug and on one without.\n")
    table = Table("sample", "with the bug", "without it", "what goes wrong", box=None, pad_edge=False)
    wrong = []
    folders = sorted(path.parent for path in SAMPLES.glob("*/sample.toml"))
    started = time.monotonic()
    with Workers(say=lambda sentence: console.print(f"[dim]{escape(sentence)}[/dim]")) as workers:
        lab = Lab(workers)
        for folder in folders:
            sample = tomllib.loads((folder / "sample.toml").read_text())
            case = open_case(folder)
            cells, told = [], ""
            for name, wanted in (("fails", "fail"), ("passes", "pass")):
                target = resolve(sample[name])
                verdict = judge(
                    case.program, case.inputs, target, lab, expected=case.expected, voices=SECOND_VOICES
                ).verdict
                version = target.release or workers.version(target)
                cells.append(f"{version} [{COLOURS.get(verdict.verdict, 'yellow')}]{verdict.verdict}[/]")
                told = told or summary(verdict)
                if verdict.verdict != wanted:
                    wrong.append(f"{folder.name} on {sample[name]}: {verdict.verdict}, not {wanted} ({verdict.reason})")
            table.add_row(folder.name, *cells, escape(told))
    console.print()
    console.print(table)
    console.print(
        f"\n{2 * len(folders)} judgements, each failure confirmed in a fresh process, in {time.monotonic() - started:.1f} s."
    )
    console.print(
        "Try one yourself: [bold].venv/bin/opsieve run samples/pad-maxpool-wrong-value -t onnxruntime==1.20.1[/bold]"
    )
    for sentence in wrong:
        console.print(f"[red]not as expected:[/red] {escape(sentence)}")
    if len(sys.argv) > 1:
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="make demo"), flags=re.DOTALL)
        Path(sys.argv[1]).write_text(drawn)  # without the fonts that it would fetch from elsewhere
    return 1 if wrong else 0


def summary(verdict: Verdict) -> str:
    """A few words on a failure."""
    found = verdict.mismatch
    if found is None:
        return f"{verdict.kind} at {verdict.stage}" if verdict.kind else ""
    if found.what == "shape":
        return f"a result of shape {found.got}, not {found.expected}"
    return f"a value of {found.got}, not {found.expected}"


if __name__ == "__main__":
    sys.exit(main())
