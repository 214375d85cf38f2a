"""Exported scripts, run where nothing is installed but what their own first line installs.

    python benchmarks/exports.py [SAMPLE]... [--folder FOLDER] [--python 3.12]

Every sample (or those named) is exported as an issue and as a script with the target that it fails on; the
script in the issue and `repro.py` run in an environment that uv makes of the packages that the script names,
one environment for each set of packages. Printed is a row for each sample: the kind of failure, lines of both
scripts, whether bytes in base64 stand in one, and how each ended: `shows` (an exception or a death of the
compiler, exit code 1 of `repro.py`) or what it said instead. Exit code 1 when one does not show its failure.
"""

import argparse
import hashlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import open_case
from opsieve.gen.errors import NoFailure
from opsieve.reducer.sessions.export import reproduce_failure
from opsieve.triage.corpus.corpus_file import read_bugs
from opsieve.triage.export.exports import export_failure
from opsieve.tui.samples import SAMPLES

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
INSTALL = re.compile(r"^(?:# |    )pip install (.*)$", re.M)
# of the script, not of the compiler
_ENDED = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")


@dataclass(frozen=True)
class Row:
    """A sample, its scripts and how they ended."""

    name: str
    kind: str
    lines: tuple[int, int]
    base64: bool
    ended: tuple[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*")
    parser.add_argument(
        "--folder", type=Path, help="where scripts and environments are kept; a temporary one without"
    )
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="exports-"))
    print(
        "| sample | failure | lines in the issue | of `repro.py` | base64 | in the issue | `repro.py`"
        " |\n|---|---|---|---|---|---|---|"
    )
    rows = []
    for name, (_, bug) in read_bugs(SAMPLES).items():
        if given.samples and name not in given.samples:
            continue
        row = tried(SAMPLES / name, bug.fails, folder / name, given.python)
        rows.append(row)
        cells = (row.name, row.kind, *row.lines, "yes" if row.base64 else "", *row.ended)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    shown = sum(row.ended == ("shows", "shows") for row in rows)
    for place, what in enumerate(("in the issue", "`repro.py`")):
        counts = [row.lines[place] for row in rows if row.lines[place]]
        print(
            f"{what}: {len(counts)} scripts, median {statistics.median(counts or [0]):g} lines, at most"
            f" {max(counts or [0])}"
        )
    print(f"both show the failure: {shown} of {len(rows)}")
    return 0 if shown == len(rows) else 1


def tried(sample: Path, target: str, folder: Path, python: str) -> Row:
    """Export a sample into a folder and run what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = sample.name
    with Workers(Limits()) as workers:
        try:
            exported = reproduce_failure(open_case(sample, None, None, 0), target, sample, workers)
        except NoFailure as error:
            return Row(name, "", (0, 0), False, (f"not exported: {error.reason[:80]}", ""))
        issue, script = (
            export_failure(exported, kind, workers).data.decode() for kind in ("issue", "script")
        )
    (folder / "issue.md").write_text(issue)
    short = next((text for text in _FENCE.findall(issue) if "import" in text), "")
    ended = []
    for text, file, code in ((short, "issue.py", None), (script, "repro.py", 1)):
        (folder / file).write_text(text)
        ended.append(run(folder / file, folder.parent, python, code))
    kind = exported.verdict.kind or ""
    return Row(
        name, kind, (short.count("\n"), script.count("\n")), "base64" in short + script, (ended[0], ended[1])
    )


def run(script: Path, folder: Path, python: str, code: int | None) -> str:
    """How a script ends in a clean environment: `shows` when it ends with `code`, or, where that is None,
    with an error that is not its own.
    """
    found = INSTALL.search(script.read_text())
    if found is None:
        return "says nothing of what it needs"
    place = environment(shlex.split(found[1]), folder, python)
    if place is None:
        return "cannot be installed"
    done = subprocess.run(
        [place / "bin" / "python", script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    as_meant = (
        done.returncode == code if code is not None else done.returncode and not last.startswith(_ENDED)
    )
    return "shows" if as_meant else f"exit code {done.returncode}: {ascii(last)[1:120]}"


def environment(packages: Sequence[str], folder: Path, python: str) -> Path | None:
    """An environment of nothing but these packages and what they need; None when they cannot be had."""
    name = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:12]
    place = folder / "environments" / name
    if not (place / "made").exists():
        subprocess.run(["uv", "venv", "-q", "--clear", "--python", python, str(place)], check=True)
        install = ["uv", "pip", "install", "-q", "-p", str(place / "bin" / "python"), *packages]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            return None
        (place / "made").touch()
    return place


if __name__ == "__main__":
    sys.exit(main())
