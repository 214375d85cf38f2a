"""A process that dies at any step of saving leaves the old or the new, never neither, and the next one sweeps
what it left.
"""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import done, filled, finding

from opsieve.gen.case.case import load, save
from opsieve.gen.model import durable
from opsieve.gen.model.durable import Journal
from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.failure_record import NAME
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store


def dies_at(step: int, act: Callable[[], object]) -> bool:
    """Whether a child that does `act` dies by SIGKILL at a step; False when it had fewer steps and ended."""
    child = os.fork()
    if not child:
        taken = 0

        def kill(what: str) -> None:
            nonlocal taken
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)

        durable.step = kill
        try:
            act()
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child of fork must not go on as the test
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def killed_everywhere(act: Callable[[], object], check: Callable[[], None]) -> int:
    step = 1
    while dies_at(step, act):
        check()
        step += 1
    check()
    return step - 1


def test_a_file_is_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def check() -> None:
        assert path.read_bytes() in (b"old", b"new")

    assert killed_everywhere(lambda: durable.write_file(path, b"new"), check) >= 4
    durable.sweep.cache_clear()
    durable.sweep(tmp_path)
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "mine")
    durable.write_file(tmp_path / "file", b"new")
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "log").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="symbolic links"):
        durable.append(tmp_path / "log", b"x")


def test_a_half_line_is_ended(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\nhal")
    durable.append(tmp_path / "log", b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\nhal\ntwo\n"


def test_a_full_disk_names_the_file_and_half_a_line_is_an_error(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the system writes a part, then refuses."""
    path = tmp_path / "journal"
    path.write_bytes(b"one\n")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, usual[1]))
    try:
        for write in (durable.append, durable.write_file):
            with pytest.raises(OSError, match="File too large") as raised:
                write(path, b"a line of more than eight bytes\n")
            assert raised.value.filename == str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"one\na li"
    assert os.listdir(tmp_path) == ["journal"]


def test_a_journal_loses_no_whole_line(tmp_path: Path) -> None:
    """Neither by a kill at any step nor by what an earlier kill left half."""
    journal = Journal(tmp_path / "log", dict[str, int])
    assert journal.read() == []
    journal.add([{"a": 1}, {"b": 2}])
    (tmp_path / "log").write_bytes((tmp_path / "log").read_bytes() + b'{"c": ')

    def check() -> None:
        known = journal.read()
        assert known[:2] == [{"a": 1}, {"b": 2}]
        assert {tuple(record.items()) for record in known[2:]} <= {(("d", 4),)}

    assert killed_everywhere(lambda: journal.add([{"d": 4}]), check) >= 3
    assert {"d": 4} in journal.read()


@pytest.mark.parametrize("exchange", [True, False])
def test_a_case_is_old_or_new_and_keeps_what_others_put_there(
    tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = done(0, operators=("Relu",)).case, done(0, operators=("Tanh", "Relu")).case
    place = tmp_path / "case"
    save(old, place)
    (place / "reduced").mkdir()
    (place / "reduced" / "notes").write_text("kept")
    if not exchange:
        monkeypatch.setattr(durable, "_renameat2", lambda: None)

    def check() -> None:
        # where no system call exchanges them
        found = place if place.exists() else next(tmp_path.glob("case.old-*"))
        assert found == place or not exchange
        assert load(found).program.digest in (old.program.digest, new.program.digest)
        assert (found / "reduced" / "notes").read_text() == "kept"
        if found != place:
            found.rename(place)

    assert killed_everywhere(lambda: save(new, place), check) >= 1
    assert load(place).program.digest == new.program.digest


def test_a_store_knows_each_case_or_does_not(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", [done(0, finding("no room"))])

    def record() -> None:
        with Store(store) as writer:
            (campaign,) = writer.list_campaigns()
            writer.record_tests(campaign, [done(writer.count_done(campaign), finding("no air"))])

    def check() -> None:
        with Store(store) as writer:
            rows = writer.list_failures()
        assert {row["folder"] for row in rows} == {
            str(path.parent.relative_to(store)) for path in store.glob(f"cases/*/*/{NAME}")
        }
        assert not os.listdir(store / "staging")

    assert killed_everywhere(record, check) >= 4


def test_a_decision_is_taken_or_not(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", [done(0, finding("no room"))])
    turn = 0

    def decide() -> None:
        with Ledger(store) as ledger:
            ledger.note("c1", f"note {turn}")

    def check() -> None:
        nonlocal turn
        turn += 1
        with Queries(store) as queries:
            before = queries.cluster("c1").note
        (store / "index.sqlite").rename(tmp_path / f"index-{turn}")
        with Store(store) as writer:
            problems = writer.adopt_cases()[1]
        assert problems == []
        with Queries(store) as queries:
            assert before == queries.cluster("c1").note or before < queries.cluster("c1").note

    assert killed_everywhere(decide, check) >= 2
    assert (store / FILE).read_bytes().endswith(b"\n")
