"""Commands killed at each call that changes a file: what is there then, and once they are done again: `python
tests/support/kills.py [--every N] [ACT...]`.

The calls of the C library are counted by kill_at_call.c, which is compiled and preloaded, so SQLite's are
among them. A write dies half written. Prints a table; exit code 1 when something was neither old nor new, or
lost, or left over.
"""

import argparse
import ctypes
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import X, chain
from stores import CAMPAIGN, done, filled, finding

from opsieve.gen.case.case import Case, load, save
from opsieve.gen.model import durable
from opsieve.reducer.sessions import session
from opsieve.triage.corpus.corpus_file import read_corpus
from opsieve.triage.known.issues import read_issues
from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.failure_record import NAME
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store
from opsieve.tui.cli import main

HERE = Path(__file__).resolve().parent
OLD, NEW, BETWEEN = "old", "new", "a part"
Made = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Act:
    """What is killed: `prepare` makes a folder, `act` changes it, `state` says which it is (a lost or mixed
    one raises), with all that it holds.
    """

    prepare: Made
    act: Made
    state: Callable[[Path], str]


def killed(act: Made, folder: Path, at: int) -> bool:
    """Whether a child that does `act` was killed at its call `at`; False when it ended before."""
    library = ctypes.CDLL(None)
    child = os.fork()
    if not child:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            durable.sweep.cache_clear()  # a new process would sweep
            library.kill_at(at)
            act(folder)
            os._exit(0)
        except BaseException:  # noqa: BLE001 a child of fork must not go on as this program
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), ended
    return ended != 0


def calls_of(act: Made, folder: Path) -> list[str]:
    """The names of the calls that `act` makes when nothing kills it."""
    library = ctypes.CDLL(None)
    library.called.restype = ctypes.c_char_p
    library.kill_at(0)
    act(folder)
    names = library.called().decode().split()
    library.kill_at(-1)
    return names


def drill(one: Act, place: Path, every: int) -> tuple[Counter[str], list[str], Counter[str]]:
    """States after each kill, faults, and the calls by name. After a kill the act is done again, and must end
    as if nothing had been.
    """
    states: Counter[str] = Counter()
    faults = []
    whole = place / "whole"
    one.prepare(whole)
    names = Counter(calls_of(one.act, whole))
    at = 1
    while True:
        folder = place / f"at{at}"
        one.prepare(folder)
        died = killed(one.act, folder, at)
        try:
            states[one.state(folder)] += died
            killed(one.act, folder, -1)
            if (state := one.state(folder)) != NEW:
                faults.append(f"call {at}: {state} once it was done again")
            faults += [
                f"call {at}: left over: {path.name}"
                for path in folder.rglob("*")
                if path.name.startswith(".saving-")
            ]
        except Exception as error:  # noqa: BLE001 whatever cannot be read is lost
            faults.append(f"call {at}: {type(error).__name__}: {error}")
        shutil.rmtree(folder)
        if not died:
            return states, faults, names
        at += every


# -- a case that takes another's place

BEFORE, AFTER = Case(chain("Relu"), dict(X)), Case(chain("Tanh", "Relu"), dict(X))


def _old_case(folder: Path) -> None:
    save(BEFORE, folder / "case")
    (folder / "case" / "notes").write_text("kept")


def _case_state(folder: Path) -> str:
    assert (folder / "case" / "notes").read_text() == "kept"
    return {BEFORE.program.digest: OLD, AFTER.program.digest: NEW}[load(folder / "case").program.digest]


# -- a store


def _store(folder: Path) -> None:
    filled(folder, [done(0, finding("no room"))])


def _record(folder: Path) -> None:
    with Store(folder, clock=lambda: 1_800_000_000.0) as store:
        if store.count_done(CAMPAIGN) == 1:
            store.record_tests(CAMPAIGN, [done(1, finding("no air"))])


def _record_state(folder: Path) -> str:
    with Store(folder) as store:
        rows, tests = store.list_failures(), store.count_done(CAMPAIGN)
    kept = {str(path.parent.relative_to(folder)) for path in folder.glob(f"cases/*/*/{NAME}")}
    assert {row["folder"] for row in rows} == kept, "cases and rows differ"
    assert len(rows) == tests, "a test without its failure"
    assert not os.listdir(folder / "staging"), "left over in staging"
    for place in kept:
        load(folder / place)
    return {1: OLD, 2: NEW}[tests]


def _decide(folder: Path) -> None:
    with Ledger(folder) as ledger, suppress(ValueError):  # when it is so already
        ledger.note("c1", "new")


def _decided(folder: Path) -> str:
    with Queries(folder) as queries:
        return queries.cluster("c1").note


def _decide_state(folder: Path) -> str:
    """The decision in the index; in one that is built anew from the log it is as new, or newer."""
    note = _decided(folder)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "store"
        shutil.copytree(folder, copy)
        for name in (INDEX, f"{INDEX}-wal", f"{INDEX}-shm"):
            (copy / name).unlink(missing_ok=True)
        with Store(copy) as store:
            store.adopt_cases()  # a line that was half written is left out, and named
        assert _decided(copy) in (note, "new"), "the log knows less than the index"
    return NEW if note == "new" else OLD


def _three(folder: Path) -> None:
    filled(folder, [done(at, finding(f"no {word}")) for at, word in enumerate(["room", "air", "time"])])
    _decide(folder)
    (folder / INDEX).unlink()


def _index(folder: Path) -> None:
    with Store(folder) as store:
        store.adopt_cases()


def _index_state(folder: Path) -> str:
    assert len(list(folder.glob(f"cases/*/*/{NAME}"))) == 3, "a case is lost"
    assert (folder / FILE).read_bytes().count(b"\n") == 1, "a decision is lost"
    if not (folder / INDEX).exists():
        return OLD
    with Store(folder) as store:
        found = len(store.list_failures())
    return NEW if found == 3 and _decided(folder) == "new" else BETWEEN if found else OLD


# -- a reduction


def _failing(folder: Path) -> None:
    save(Case(chain("Relu", "Tanh", "Exp", "Relu"), dict(X)), folder / "case")


def _reduce(folder: Path) -> None:
    session._SAVE_EVERY = 0.0  # the best so far at every step, which is what a kill may cost
    _run_quietly("reduce", folder / "case", "-t", "fake:crash@Tanh>Exp", "-o", folder / "out")


def _reduce_state(folder: Path) -> str:
    assert load(folder / "case").program.size == 4, "the case was changed"
    if not (folder / "out" / "case.json").exists():
        return OLD
    nodes = load(folder / "out").program.size
    return NEW if nodes == 2 and (folder / "out" / "reduction.json").exists() else BETWEEN


# -- issues, and a corpus


def _issues(folder: Path) -> None:
    _store(folder / "s")
    address = "https://github.com/a/b{}/issues/{}"
    issues = [{"number": at, "title": "t", "url": address.format(at % 2, at)} for at in (1, 2, 3)]
    (folder / "issues.json").write_text(json.dumps(issues))


def _run_quietly(*words: object) -> None:
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main([str(word) for word in words])


def _import_issues(folder: Path) -> None:
    _run_quietly("known", "import", folder / "issues.json", "--store", folder / "s")


def _issues_state(folder: Path) -> str:
    _record_state(folder / "s")
    known, problems = read_issues(folder / "s" / "known")
    assert not problems
    return {0: OLD, 3: NEW}.get(len(known), BETWEEN)


def _add(folder: Path) -> None:
    _run_quietly("corpus", "add", folder / "kept", folder / "case", "-t", "fake:error@Relu")


def _add_state(folder: Path) -> str:
    assert load(folder / "case").program.size == 4, "the case was changed"
    return NEW if (folder / "kept" / "corpus.json").exists() and read_corpus(folder / "kept") else OLD


ACTS = {
    "save a case over another": Act(_old_case, lambda folder: save(AFTER, folder / "case"), _case_state),
    "record a test": Act(_store, _record, _record_state),
    "decide": Act(_store, _decide, _decide_state),
    "index": Act(_three, _index, _index_state),
    "reduce": Act(_failing, _reduce, _reduce_state),
    "import issues": Act(_issues, _import_issues, _issues_state),
    "add to a corpus": Act(_failing, _add, _add_state),
}


def preloaded(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """This program in a process that counts its calls. FileNotFoundError without a C compiler."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        library = Path(folder) / "kill_at_call.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "kill_at_call.c", "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OPSIEVE_KILLS": folder}
        command = [sys.executable, "-W", "ignore", __file__, *arguments]
        return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def _table(names: Sequence[str], every: int) -> bool:
    print(
        "| act | calls that change a file | kills | old | a part, gone on with | new | faults"
        " |\n|---|---|---|---|---|---|---|"
    )
    fine = True
    for name in names or ACTS:
        with tempfile.TemporaryDirectory() as place:
            states, faults, calls = drill(ACTS[name], Path(place), every)
        listed = ", ".join(f"{many} {call}" for call, many in calls.most_common())
        cells = [
            name,
            f"{calls.total()}: {listed}",
            states.total(),
            states[OLD],
            states[BETWEEN],
            states[NEW],
            len(faults),
        ]
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        print(*faults, sep="\n", end="\n" * bool(faults))
        fine &= not faults
    return fine


if __name__ == "__main__":
    if "OPSIEVE_KILLS" in os.environ:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("acts", nargs="*")
        parser.add_argument("--every", type=int, default=1)
        chosen = parser.parse_args()
        sys.exit(not _table(chosen.acts, chosen.every))
    answer = preloaded(sys.argv[1:])
    print(answer.stdout, answer.stderr, end="")
    sys.exit(answer.returncode)
