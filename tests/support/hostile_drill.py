"""Hostile stores, cases, models, values, modules and logs, given to the commands that read them: `python
tests/support/hostile_drill.py [--every N] [CLASS...]`.

Each command is a process of its own with limits on time and memory, a home folder of its own, and a folder of
the user's beside it. It must end by itself with a sentence, without a traceback or a control character, and
change nothing but its store and its output folder. Prints a table by class; exit code 1 on any fault.
"""

import argparse
import hashlib
import importlib
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
if __name__ == "__main__":  # a process that only imports this file keeps its environment
    os.environ["OPENBLAS_NUM_THREADS"] = "1"

import hostile_inputs
import hostile_stores
from stores import done, filled, finding

from opsieve.tui.cli import main

SECONDS = 60  # of one command; most take under one
MEMORY = 12 << 30  # of addresses, of which a sandboxed worker maps many
LONGEST = 5000  # characters of a line of an answer
_MODEL = [
    ["run", "{}", "-t", "onnxruntime", "--seconds", "5", "--offline"],
    ["import", "{}", "-o", "out"],
    ["reduce", "{}", "-t", "onnxruntime", "--seconds", "5", "--offline", "-o", "out"],
]
_CASE = [
    ["run", "{}", "-t", "onnxruntime", "--seconds", "5", "--offline"],
    ["show", "{}"],
    ["import", "{}", "-o", "out"],
    ["export", "{}", "--as", "case", "-o", "out", "--seconds", "5", "--offline"],
    ["reduce", "{}", "--seconds", "5", "--offline", "-o", "out"],
]
_STORE = [
    ["clusters", "--store", "{}"],
    ["show", "c1", "--store", "{}"],
    ["index", "--store", "{}"],
    ["mark", "c1", "known", "--store", "{}"],
    ["triage", "{}"],
    ["export", "c1", "--store", "{}", "-o", "out", "--seconds", "5", "--offline"],
    ["reduce", "c1", "--store", "{}", "-o", "out", "--seconds", "5", "--offline"],
]
COMMANDS = {
    "models": _MODEL,
    "values": _MODEL,
    "cases": _CASE,
    "modules of TVM": [[*_CASE[0][:2], "-t", "tvm", "--seconds", "5", "--offline"], *_CASE[1:3]],
    "logs": [["triage", "--logs", "{}"], ["import", "{}", "-o", "out"]],
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended."""

    command: str
    code: int  # negative: the signal that ended it
    output: str
    seconds: float  # of CPU

    def faults(self) -> Iterator[str]:
        if self.code not in (0, 1, 2, 3) and not (self.code == 130 and self.command.startswith("reduce ")):
            yield f"exit code {self.code}"
        if "Traceback" in self.output:
            yield "a traceback"
        if self.code and not self.output.strip():
            yield "no sentence"
        if any(len(line) > LONGEST for line in self.output.splitlines()):
            yield "a line without end"
        if odd := {char for char in self.output if not char.isprintable() and char != "\n"}:
            yield f"control characters {sorted(odd)!r}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A hostile item with the answers of its commands and what was wrong."""

    what: str
    answers: tuple[Answer, ...]
    faults: tuple[str, ...]


class Surroundings:
    """A folder with what is the user's, a home, and a place for items: watched from outside of them."""

    def __init__(self, folder: Path):
        self.folder, self.mine, self.home = folder, folder / "canary", folder / "home"
        (self.mine / "papers").mkdir(parents=True)
        (self.mine / "papers" / "text").write_text("years of work\n")
        (self.mine / "site-packages").mkdir()
        for name in ("home/.ssh", "tmp", "items"):
            (folder / name).mkdir(parents=True)
        (self.home / ".ssh" / "key").write_text("secret\n")
        self.sound = filled(
            folder / "sound",
            [done(at, finding(f"no {word}")) for at, word in enumerate(["room", "air", "time"])],
        )

    def picture(self, item: Path) -> dict[str, tuple[object, ...]]:
        """All that is outside of an item's own folder: kinds, rights, contents. The state and caches of
        opsieve itself are left out.
        """
        found: dict[str, tuple[object, ...]] = {}
        for root, folders, files in os.walk(self.folder):
            folders[:] = [
                name
                for name in folders
                if Path(root, name) != item and not name.startswith((".cache", ".local", ".config"))
            ]
            for name in [*folders, *files]:
                path = Path(root, name)
                status = path.lstat()
                content = (
                    hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
                )
                found[str(path.relative_to(self.folder))] = (status.st_mode, content)
        return found


def ask(arguments: Sequence[str], place: Path, around: Surroundings) -> Answer:
    """Run a command in a child, which imported nothing of the item, in `place`."""
    log = around.folder / "items" / f"{place.name}.log"
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.chdir(place)
            os.environ.update(HOME=str(around.home), TMPDIR=str(around.folder / "tmp"), COLUMNS="200")
            tempfile.tempdir = None
            null, out = os.open("/dev/null", os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for target, source in ((0, null), (1, out), (2, out)):
                os.dup2(source, target)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 a test runner's are not these
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            main(list(arguments))
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(int(ended.code or 0))
        except BaseException:  # noqa: BLE001 a child of fork must not go on as the drill
            os.write(2, b"Traceback: an exception left the command")
            os._exit(99)
        os._exit(0)
    # What really fails is reduced for as long as it gets smaller; Ctrl-C ends that with the best so far.
    watch = [
        threading.Timer(at, os.kill, [child, how])
        for at, how in ((5 * SECONDS, signal.SIGINT), (6 * SECONDS, signal.SIGKILL))
    ]
    for timer in watch:
        timer.start()
    _, status, used = os.wait4(child, 0)  # with what its workers used
    for timer in watch:
        timer.cancel()
    code = os.waitstatus_to_exitcode(status)
    output = log.read_bytes().decode("utf-8", "replace")
    log.unlink()
    return Answer(" ".join(arguments), code, output, used.ru_utime + used.ru_stime)


def families() -> dict[str, list[tuple[str, object]]]:
    return {
        name: list(make()) for name, make in {**hostile_stores.FAMILIES, **hostile_inputs.FAMILIES}.items()
    }


def attempt(family: str, what: str, make: object, around: Surroundings, all_commands: bool) -> Tried:
    """Make one item, give it to its commands, and compare what is around it before and after. Each command
    meets the item fresh.
    """
    answers, faults = [], []
    for command in COMMANDS.get(family, _STORE):
        if command[0] in ("reduce", "export") and not all_commands:
            continue
        place = Path(tempfile.mkdtemp(dir=around.folder / "items"))
        if family in COMMANDS:
            item = make(place)  # type: ignore[operator]
        else:
            item = place / "store"
            shutil.copytree(around.sound, item)
            make(item, around.mine)  # type: ignore[operator]
        before = around.picture(place)
        answer = ask([part.format(item) for part in command], place, around)
        after = around.picture(place)
        found = list(answer.faults())
        if changed := sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        ):
            found.append(f"changed {changed[:4]}")
        if strange := sorted(set(os.listdir(place)) & {"mark", "evil"}):
            found.append(f"ran {strange}")
        faults += [f"{command[0]}: {fault}: {answer.output[-300:]!r}" for fault in found]
        answers.append(answer)
        shutil.rmtree(place)
    return Tried(what, tuple(answers), tuple(faults))


def drill(names: Sequence[str] = (), every: int = 1, loud: bool = False) -> dict[str, list[Tried]]:
    """Try the items of these classes (all, if none is named), of which only each `every`-th."""
    tried: dict[str, list[Tried]] = {}
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        around = Surroundings(Path(folder).resolve())
        _warm(around.folder)
        for family, items in families().items():
            if names and family not in names:
                continue
            tried[family] = []
            for at, (what, make) in enumerate(items[::every]):
                # Those that start compilers cost a hundred times the others: for each third item, beginning
                # with the first.
                tried[family].append(attempt(family, what, make, around, all_commands=at % 3 == 0))
                if loud:
                    _tell(family, tried[family][-1])
    return tried


def _warm(folder: Path) -> None:
    """Import what the commands import, once and not in each child: by asking for what is not there, and for a
    sound store.
    """
    importlib.import_module("opsieve.reducer.sessions.session")
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for given, commands in (
            (folder / "none", [*_CASE, *_STORE, *COMMANDS["logs"]]),
            (folder / "sound", _STORE[:2]),
        ):
            for command in commands:
                with suppress(SystemExit):
                    main([part.format(given) for part in command])


def _tell(family: str, item: Tried) -> None:
    codes = " ".join(f"{answer.code}" for answer in item.answers)
    slowest = max(answer.seconds for answer in item.answers)
    print(
        f"{family}: {item.what[:70]!r}: {codes}, {slowest:.1f} s",
        *item.faults,
        sep="\n    FAULT ",
        file=sys.stderr,
        flush=True,
    )


def table(tried: dict[str, list[Tried]]) -> str:
    head = (
        "| class | items | commands | refused (2) | went on (0, 1, 3) | most CPU of a command | faults"
        " |\n|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for family, items in [*tried.items(), ("**all**", [item for group in tried.values() for item in group])]:
        answers = [answer for item in items for answer in item.answers]
        refused = sum(answer.code == 2 for answer in answers)
        slowest = max((answer.seconds for answer in answers), default=0)
        faults = sum(bool(item.faults) for item in items)
        rows.append(
            f"| {family} | {len(items)} | {len(answers)} | {refused} | {len(answers) - refused} |"
            f" {slowest:.1f} s | {faults} |\n"
        )
    return head + "".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    chosen = parser.parse_args()
    results = drill(chosen.classes, chosen.every, loud=True)
    print(table(results))
    sys.exit(any(item.faults for items in results.values() for item in items))
