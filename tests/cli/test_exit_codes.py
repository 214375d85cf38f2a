"""docs/reference/exit-codes.md says with which code every command ends; each cell is run here."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from collection import collection_of_one
from commands import opsieve as call
from models import X, chain
from repository import ROOT
from slow_params import keep_quick
from stores import done, filled, finding

from opsieve.gen.case.case import Case, save
from opsieve.tui import cli
from opsieve.tui.cli import COMMANDS

Capture = pytest.CaptureFixture[str]
PAGE = ROOT / "docs" / "reference" / "exit-codes.md"
COLUMNS = ("pass", "failure", "unjudged", "bad input", "interrupted", "fault")
OTHER = "any other"
# Targets that judge the case of `folder` as the column says; attribution needs a compiler whose passes can be
# switched off.
TARGETS = {"pass": "fake", "failure": "fake:wrong@Relu", "unjudged": "fake:unsupported"}
PLUGIN = """
from contextlib import contextmanager
from opsieve.bisect.sources.outcome import VersionOutcome

BAD = VersionOutcome("bad", "key", "trait", "value mismatch", "done")
GOOD, SKIP = VersionOutcome("good", symptom="ok"), VersionOutcome("skip", symptom="environment", text="not installed")


class Versions:
    versions = ["1", "2", "3", "4"]

    def __init__(self, column):
        self.column = column

    def evaluate(self, version):
        if self.column == "failure":
            return BAD if version > "2" else GOOD
        return GOOD if self.column == "pass" else SKIP


@contextmanager
def versions(case, target, argument, offline):
    yield Versions(argument)
"""
REPORT = """It is wrong.
```
<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }
```
"""


def published() -> dict[str, tuple[str, ...]]:
    """The rows of the table: a command, and the cell of each column."""
    rows = re.findall(r"^\| (`[^|]+`|any other) \|(.+)\|$", PAGE.read_text(), re.MULTILINE)
    return {name.strip("`"): tuple(cell.strip() for cell in cells.split("|")) for name, cells in rows}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a case and all else that the commands of the table take."""
    save(Case(chain("Relu", "Exp"), X), tmp_path / "case")
    (tmp_path / "report.md").write_text(REPORT)
    (tmp_path / "versions_plugin.py").write_text(PLUGIN)
    info = tmp_path / "versions_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: versions_plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opsieve.version_sources]\nplanted = versions_plugin:versions\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("OPSIEVE_STORE", "OPSIEVE_PROBES"):
        monkeypatch.setenv(name, str(tmp_path / "cache" / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attributed(column: str) -> list[str]:
    """`attribute` on the sample that onnxruntime gets wrong, on a build that is right, and on one that is not
    installed.
    """
    sample = ROOT / "samples" / "pad-maxpool-wrong-value"
    targets = {"failure": "onnxruntime", "pass": "onnxruntime:disable_all", "unjudged": "onnxruntime==0.0.1"}
    return ["attribute", str(sample), "-t", targets[column], "--offline"]


def verified(column: str) -> list[str]:
    """`reduce --verify` of a result, on the target that it names or on another."""
    return ["reduce", "small", "--verify", "-t", TARGETS[column]]


def replayed(column: str) -> list[str]:
    """`corpus run` on the case, whose record says that it passes."""
    return ["corpus", "run", "corpus", "-t", TARGETS[column]]


def bugs_replayed(column: str) -> list[str]:
    """`bugs replay` of one bug; a failure is one that its record does not have."""
    collection_of_one(Path("bugs"), TARGETS[column])
    return ["bugs", "replay", "--folder", "bugs"]


def compared(column: str) -> list[str]:
    """`corpus diff` of a result that passes and another one."""
    verdicts = {"pass": "pass", "failure": "fail", "unjudged": "environment"}
    for name, verdict in (("old", "pass"), ("new", verdicts[column])):
        result = {"case": "case", "target": "fake", "after": {"verdict": verdict}, "reason": ""}
        Path(f"{name}.json").write_text(json.dumps({"results": [result]}))
    return ["corpus", "diff", "old.json", "new.json"]


def watched(column: str) -> list[str]:
    """`watch` of a store with a failure that was never seen in this way."""
    filled(Path("kept"), [done(0, finding("no kernel", frames=["main", "f"]))])
    return ["watch", "kept", "-t", TARGETS[column]]


# What runs each row of the table that judges; the word is the name of a column.
RUNS: dict[str, Callable[[str], list[str]]] = {
    "run": lambda column: ["run", "case", "-t", TARGETS[column]],
    "replay": lambda column: ["replay", "report.md", "--no-history", "-t", TARGETS[column]],
    "corpus run": replayed,
    "corpus diff": compared,
    "bugs replay": bugs_replayed,
    "watch": watched,
    "corpus add": lambda column: ["corpus", "add", "corpus", "case", "-t", TARGETS[column]],
    "fuzz": lambda column: ["fuzz", "--tests", "4", "--ops", "Relu", "-t", TARGETS[column]],
    "reduce": lambda column: ["reduce", "case", "-t", TARGETS[column]],
    "reduce --verify": verified,
    "export": lambda column: ["export", "case", "-t", TARGETS[column]],
    "bisect": lambda column: ["bisect", "case", "-t", "reference", "--source", f"planted:{column}"],
    "attribute": attributed,
}


@pytest.mark.parametrize("column", COLUMNS[:3])
@pytest.mark.parametrize("row", RUNS)
def test_a_command_that_judges_ends_as_the_table_says(
    row: str, column: str, folder: Path, capsys: Capture
) -> None:
    if row == "reduce --verify":
        assert call("reduce", "case", "-t", TARGETS["failure"], "-o", "small", capsys=capsys)[0] == 0
    if row == "corpus run":
        assert call("corpus", "add", "corpus", "case", "-t", "fake", capsys=capsys)[0] == 0
    code, _, err = call(*RUNS[row](column), capsys=capsys)
    assert str(code) == published()[row][COLUMNS.index(column)], err
    if code == 3:
        assert err.splitlines()[-1].startswith("opsieve: no failure to work on: ")
    if column == "unjudged":
        assert err.splitlines()[-1].startswith("opsieve: not judged: ")


def every_command() -> dict[str, click.Command]:
    """Each command that can be typed, with those of groups, by name."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = cli.opsieve.get_command(click.Context(cli.opsieve, **cli.SETTINGS), name)
        assert command is not None
        inner = getattr(command, "commands", {"": command})
        found |= {f"{name} {part}".strip(): each for part, each in inner.items()}
    return found


def test_the_table_has_a_row_for_all_commands_that_judge() -> None:
    assert set(published()) == {*RUNS, OTHER}
    taking_targets = {
        name
        for name, command in every_command().items()
        if any(parameter.name in ("target", "targets") for parameter in command.params)
    }
    assert taking_targets - set(RUNS) <= {"gen", "doctor", "init"}  # which judge nothing


def test_bad_usage_interruption_and_fault_end_every_command_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A command is called without its arguments' values, and with a body that Ctrl-C or a fault ends."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def code_of(name: str, command: click.Command, error: BaseException | None = None, *words: str) -> str:
        def body(**_: Any) -> None:
            assert error is not None
            raise error

        with monkeypatch.context() as patch:
            if error is not None:
                patch.setattr(command, "callback", body)
                patch.setattr(command, "params", [])
            return str(call(*name.split(), *words, capsys=capsys)[0])

    table = published()
    for name, command in every_command().items():
        codes = (
            code_of(name, command, None, "--no-such-option"),
            code_of(name, command, KeyboardInterrupt()),
            code_of(name, command, TypeError("planted")),
        )
        assert codes == table.get(name, table[OTHER])[3:], name


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        (["fake", "fake:unsupported"], 2),
        (["fake:wrong@Relu", "fake:unsupported"], 1),
        (["fake:unsupported", "fake:wrong@Relu"], 1),
        (["onnxruntime==0.0.1"], 2),
        (["fake", "onnxruntime==0.0.1"], 2),
    ],
    ids=str,
)
def test_one_target_that_did_not_judge_is_not_green(
    targets: list[str], code: int, folder: Path, capsys: Capture
) -> None:
    words = [word for target in targets for word in ("-t", target)]
    ended, out, err = call("run", "case", *words, "--offline", "--json", capsys=capsys)
    assert (ended, len(json.loads(out)["results"])) == (code, len(targets))
    assert "opsieve: not judged: case on " in err
    allowed = call("run", "case", *words, "--offline", "--allow-unjudged", capsys=capsys)[0]
    assert allowed == (1 if code == 1 else 0)
    reduced = call("reduce", "case", *words, "--offline", capsys=capsys)[0]
    assert reduced == {1: 0, 2: 2}[code]


@pytest.mark.parametrize(
    "closed",
    keep_quick([{0, 1, 2}, {0, 1}, {0, 2}, {1, 2}], 1),
    ids=str,
)
def test_a_failure_is_one_whatever_standard_streams_are_closed(closed: set[int], folder: Path) -> None:
    words = "from opsieve.tui.cli import main; main(['run', 'case', '-t', 'fake:wrong@Relu'])"
    closing = " ".join(f"{descriptor}>&-" for descriptor in closed)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {closing}', sys.executable, words], capture_output=True
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stdout + done.stderr
    assert (b"wrong output" in done.stdout) == (1 not in closed)
