"""The commands of the chain, asked of a group of rows: what each answered, beside what it should."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from chain_rows import STEPS, Cell, Row
from install_anvil import ENTRY, write_command, write_package, write_plugin, write_store

from opsieve.backends import registry
from opsieve.backends.registry import Plugin, resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import TemplateProcess
from opsieve.gen.case.case import save

Command = Callable[..., tuple[int, str]]  # the words of a command to its exit code and what it printed
_SCRIPTS = """
import contextlib, io, json, os, runpy, sys
answers = {}
for name, path in json.load(sys.stdin).items():
    said = io.StringIO()
    sys.argv = [path]
    with contextlib.redirect_stdout(said):
        code = runpy.run_path(path)["main"]()
    answers[name] = (code, said.getvalue())
sys.stdout.write("ANSWERS" + json.dumps(answers))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step did for a row."""

    row: Row
    step: str
    code: int
    output: str

    @property
    def cell(self) -> Cell:
        """What it should have done."""
        return self.row.cell(self.step)

    @property
    def is_right(self) -> bool:
        """Whether it did that."""
        return self.code == self.cell.code and re.search(self.cell.says, self.output) is not None

    def __str__(self) -> str:
        wanted = f"exit code {self.cell.code} and {self.cell.says!r}"
        return (
            f"{self.row.name}, {self.step}: wanted {wanted}, got exit code {self.code} and\n    "
            + "\n    ".join(self.output.strip()[:1500].splitlines())
        )


@dataclass(frozen=True, slots=True)
class Anvil:
    """Where anvil is installed."""

    folder: Path

    def target(self, row: Row, release: str = "2.0") -> str:
        """A row's target as it is typed."""
        text = row.target.replace("@BUILD", f"@{self.folder / 'build'}").replace(
            "COMMAND", str(self.folder / "command")
        )
        if release != "2.0" and text.startswith("anvil:"):
            return f"{text},like={release}"  # what is installed has a process ready, a release starts one
        return text.replace("2.0", release)

    def searched(self, row: Row) -> tuple[str, ...]:
        """The options of a search over both releases, or both builds."""
        target = ("-t", self.target(row).replace("==2.0", ""))
        if "@BUILD" in row.target:
            return (
                *target,
                "--good",
                f"anvil@{self.folder / 'build-1.0'}",
                "--bad",
                f"anvil@{self.folder / 'build-2.0'}",
            )
        return (*target, "--releases", "anvil", "--offline")

    def imported(self, row: Row) -> Path:
        """The folder from which a script imports the faulty release."""
        return self.folder / "build-2.0"


@dataclass(frozen=True, slots=True)
class RealReleases:
    """Releases of real compilers, installed on demand; `target` of a row is the faulty one."""

    def target(self, row: Row, release: str = "2.0") -> str:
        """A row's target as it is typed."""
        return row.target if release == "2.0" else row.target.replace(row.bad, row.good)

    def searched(self, row: Row) -> tuple[str, ...]:
        """The options of a search between the two releases."""
        target = resolve(row.target)
        ends = ("--good", row.good, "--bad", row.bad)
        return ("-t", str(target.with_release("")), "--releases", target.facts.package, *ends)

    def imported(self, row: Row) -> Path:
        """The folder from which a script imports the faulty release."""
        target = resolve(row.target)
        return ReleaseStore().environment(target.backend, target.release).path[0]


@contextmanager
def installed_anvil(folder: Path) -> Iterator[Anvil]:
    """Two releases of anvil in a store of releases, two builds, and two commands; probes of searches are kept
    beside them.
    """
    write_plugin(folder / "plugin", "2.0")
    for release, faulty in (("1.0", "no such operator"), ("2.0", "Relu")):
        write_package(folder / f"build-{release}", release)
        write_command(folder / f"command-{release}", faulty)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "plugin")
        patch.setenv("OPSIEVE_STORE", str(folder / "store"))
        patch.setenv("OPSIEVE_PROBES", str(folder / "probes"))
        patch.setitem(registry._entries(), ENTRY.name, {ENTRY.value: ENTRY})
        write_store(folder / "store", registry.plugin("anvil").backend, "1.0", "2.0")
        with kept_templates():
            yield Anvil(folder)
    sys.modules.pop("anvil_plugin", None)
    registry.plugin.cache_clear()


@contextmanager
def kept_templates() -> Iterator[None]:
    """Keep the processes from which releases are forked from one command to the next: each row would start one
    for each of its commands, which costs more than all else that a command does.
    """
    kept: dict[object, TemplateProcess] = {}

    def find(self: Workers, source: Plugin, python: Path, environment: dict[str, str]) -> TemplateProcess:
        asked = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
        place = (source.location, python, frozenset(asked.items()))
        if place not in kept or not kept[place].is_alive:
            kept[place] = TemplateProcess(source.location, python, environment)
        return kept[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "_get_template", find)
        yield
    for template in kept.values():
        template.close()


def answers(
    rows: Sequence[Row], anvil: Anvil | RealReleases, folder: Path, command: Command
) -> Iterator[Answer]:
    """Every step of every row, in a folder of its own."""
    exported: dict[Row, Path] = {}
    for row in rows:
        home = folder / row.name
        case, target = home / "case", ("-t", anvil.target(row))
        save(row.case(), case)
        for step, words in (
            ("run", ("run", case, *target, *row.limits, *row.options)),
            ("reduce", ("reduce", case, *target, *row.limits, "-o", home / "reduced")),
            ("verify", ("reduce", home / "reduced", *row.limits, "--verify")),
            ("attribute", ("attribute", case, *target, *row.limits)),
            ("export", ("export", case, *target, *row.limits, "-o", home / "repro.py")),
            ("bisect", ("bisect", case, *anvil.searched(row), *row.limits)),
        ):
            yield Answer(row, step, *command(*words))
        if (home / "repro.py").exists():
            exported[row] = home / "repro.py"
    scripts = run_scripts(exported, anvil)
    yield from (Answer(row, "script", *scripts.get(row, (-1, "there is no script"))) for row in rows)
    yield from corpus_answers(rows, anvil, folder, command)


def run_scripts(scripts: dict[Row, Path], anvil: Anvil | RealReleases) -> dict[Row, tuple[int, str]]:
    """The exit codes of scripts, and what they print; one process that knows nothing of opsieve runs them
    all.
    """
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPTS],
        input=json.dumps({row.name: str(path) for row, path in scripts.items()}),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join({str(anvil.imported(row)) for row in scripts})},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.rpartition("ANSWERS")[2])
    return {row: (code, said) for row in scripts for code, said in [told[row.name]]}


def corpus_answers(
    rows: Sequence[Row], anvil: Anvil | RealReleases, folder: Path, command: Command
) -> Iterator[Answer]:
    """The rows in one corpus, of release 2.0; and the comparison with another, of release 1.0."""
    replays = {}
    for release in ("1.0", "2.0"):
        cases = {}
        for row in rows:
            cases[row] = folder / release / row.name
            case, target = row.case(), anvil.target(row, release)
            if target.startswith("anvil:"):
                target += (
                    ",seed=1"  # faults that take turns begin anew, however many runs the steps before took
                )
            save(replace(case, parameters={**case.parameters, "target": target}), cases[row])
            # A file's command runs once a person has named it: a row by itself names its own.
            if target.startswith("command:") and len(rows) == 1:
                command("run", cases[row], "-t", target, *row.limits)
        corpus = folder / f"corpus-{release}"
        _, added = command("corpus", "add", corpus, *cases.values(), *rows[0].limits, "--json")
        if release == "2.0":
            entries = {entry["name"]: entry["targets"] for entry in json.loads(first_object(added))["added"]}
            for row in rows:
                seen = [f"{each['verdict']} {each['kind']}" for each in entries.get(row.name, {}).values()]
                yield Answer(row, "add", 0 if seen else 2, *(seen or [added]))
        _, replayed = command("corpus", "run", corpus, *rows[0].limits, "--json")
        replays[release] = folder / f"{release}.json"
        replays[release].write_text(first_object(replayed))
        if release == "2.0":
            yield from _states(rows, "corpus", replays[release])
    _, compared = command("corpus", "diff", replays["1.0"], replays["2.0"], "--json")
    replays["diff"] = folder / "diff.json"
    replays["diff"].write_text(first_object(compared))
    yield from _states(rows, "diff", replays["diff"])


def first_object(output: str) -> str:
    """The JSON that a command printed, without what it said on stderr."""
    return output[: output.rindex("}") + 1]


def _states(rows: Sequence[Row], step: str, replay: Path) -> Iterator[Answer]:
    """What became of each row; a command with one row would end with this code."""
    results = {result["case"]: result for result in json.loads(replay.read_text())["results"]}
    for row in rows:
        found = results.get(row.name, {"state": "absent", "reason": ""})
        code = (
            1
            if found["state"] in ("newly-failing", "changed")
            else 2
            if found["state"] in ("not-judged", "absent")
            else 0
        )
        yield Answer(row, step, code, f"{found['state']}: {found['reason']}")


def matrix(found: Sequence[Answer]) -> str:
    """Rows and steps: `ok`, `n/a` where the step does not apply and says so as it should, `WRONG`."""
    widths = [max(len(answer.row.name) for answer in found), *(max(len(step), 5) for step in STEPS)]
    lines = [["", *STEPS]]
    for row in dict.fromkeys(answer.row.name for answer in found):
        words = {each.step: word(each) for each in found if each.row.name == row}
        lines.append([row, *(words.get(step, "-") for step in STEPS)])
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines
    )


def word(answer: Answer) -> str:
    """An answer in the matrix."""
    return "WRONG" if not answer.is_right else "n/a" if answer.cell.why else "ok"
