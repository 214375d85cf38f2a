"""Stores from a stranger for hostile_drill.py: each changes a copy of one sound store, by what it attacks."""

import json
import os
import shutil
import socket
import sqlite3
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.failure_record import NAME
from opsieve.triage.store.index.index_file import INDEX

Change = Callable[[Path, Path], None]  # of a store, and of a folder of the user's that no store may touch
TEXTS = {
    "escapes": "\x1b]0;mine\x07\x1b[2J\x9b31m",
    "bidi": "\u202e\u2066gnp.exe\u2069",
    "lines": "one\r\ntwo\u2028three\x00four",
    "markup": "[red]x[/red]<script>alert(1)</script>`rm -rf ~`$(id)",
    "a long text": "x" * 300_000,
    "a surrogate": "\udc80",
    "a path": "../../../canary/papers",
}
NUMBERS = {
    "2^63": 2**63,
    "-2^63": -(2**63),
    "10^400": 10**400,
    "a fraction": 0.5,
    "infinity": float("inf"),
    "NaN": float("nan"),
}
PLACES = [
    "/etc",
    "..",
    "../canary/papers",
    "cases/../../canary",
    "cases/x/../../../canary",
    "cases//1",
    ".",
    "\0",
    "cases/a/-1",
    "known/x",
    "~",
]


def first_case(store: Path) -> Path:
    return min((store / "cases").glob("*/1"))


def links() -> Iterator[tuple[str, Change]]:
    """Parts of a store that are links to what is the user's, to a device, to themselves or to a pipe."""
    parts = ["staging", "cases", "known", FILE, "lock", INDEX, f"{INDEX}-wal", f"{INDEX}-journal"]
    inner = [
        ".",
        "case.json",
        NAME,
        "model.onnx",
        "observations",
        "test_data_set_0",
        "observations/00-fake.json",
        "test_data_set_0/input_0.pb",
    ]
    for part in parts:
        for goal in ("the user's", "/dev/zero", part):
            yield f"{part} is a link to {goal}", partial(_link, part, goal)
    for part in inner:
        for goal in ("the user's", "/dev/zero"):
            yield f"{part} of a case is a link to {goal}", partial(_link_case, part, goal)
    for part in (FILE, INDEX, "lock", "cases"):
        yield f"{part} is a pipe", partial(_pipe, part)


def _goal(part: str, goal: str, mine: Path) -> Path:
    folder = Path(part).name in ("staging", "cases", "known", ".", "observations", "test_data_set_0", "")
    return (mine / "papers" if folder else mine / "papers" / "text") if goal == "the user's" else Path(goal)


def _gone(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def _link(part: str, goal: str, store: Path, mine: Path) -> None:
    _gone(store / part)
    (store / part).symlink_to(_goal(part, goal, mine))


def _link_case(part: str, goal: str, store: Path, mine: Path) -> None:
    path = Path(os.path.normpath(first_case(store) / part))
    _gone(path)
    path.symlink_to(_goal(part, goal, mine))
    _gone(store / INDEX)


def _pipe(part: str, store: Path, mine: Path) -> None:
    _gone(store / part)
    os.mkfifo(store / part)


def rows() -> Iterator[tuple[str, Change]]:
    """An index whose rows say where to write, or what no program of ours writes."""
    for place in PLACES:
        yield f"a row whose folder is {place!r}", partial(_sql, [("UPDATE failures SET folder = ?", [place])])
        yield f"a staged case whose row says {place!r}", partial(_staged, place)
    for what, text in TEXTS.items():
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        change = ("UPDATE clusters SET title = ?, operators = ?, representative = ?", [text] * 3)
        yield (
            f"names of {what}",
            partial(_sql, [change, ("UPDATE failures SET message = ?, target = target || ?", [text, text])]),
        )
    for what, value in {
        "2^63-1": 2**63 - 1,
        "-1": -1,
        "a blob": b"\xff" * 9,
        "infinity": float("inf"),
    }.items():
        change = ("UPDATE clusters SET members = ?, first_seen = ?, severity = ?, rank = ?", [value] * 4)
        yield (
            f"numbers of {what}",
            partial(_sql, [change, ("UPDATE failures SET seen = ?, nodes = ?", [value] * 2)]),
        )
        yield (
            f"titles of {what}",
            partial(_sql, [("UPDATE clusters SET title = ?, targets = ?, status = ?", [value] * 3)]),
        )


def _sql(changes: list[tuple[str, list[Any]]], store: Path, mine: Path) -> None:
    connection = sqlite3.connect(store / INDEX)
    for statement, values in changes:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def _staged(place: str, store: Path, mine: Path) -> None:
    shutil.copytree(first_case(store), store / "staging" / "x")
    record = json.loads((first_case(store) / NAME).read_text())
    (store / "staging" / "x" / NAME).write_text(json.dumps({**record, "test": 77}))
    values = [record["campaign"], record["target"], record["fingerprint"], place]
    insert = (
        "INSERT INTO failures (campaign, test, target, verdict, kind, fingerprint, folder) VALUES (?, 77, ?,"
        " 'fail', 'error', ?, ?)"
    )
    _sql([(insert, values)], store, mine)


_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
SCHEMAS = [
    *(f"PRAGMA user_version = {number}" for number in (-(2**31), -5, 0, 1, 2**31 - 1)),
    *(f"CREATE TRIGGER t AFTER {act} BEGIN DELETE FROM failures; END" for act in ("INSERT ON decisions", "UPDATE ON clusters")),
    *(f"DROP TABLE {name}; CREATE VIEW {name} AS {_ENDLESS} x AS id, x AS number, x AS title FROM n" for name in ("clusters", "aside", "rules")),
    "CREATE VIEW more AS " + _ENDLESS + " x FROM n", "DROP TABLE failures", "DROP INDEX failures_kept",
    "CREATE TABLE more (x)",
    "ALTER TABLE clusters ADD COLUMN more TEXT GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL",
    "DROP TABLE texts; CREATE TABLE texts (title, message, operators)",
    "DROP TABLE texts; CREATE VIRTUAL TABLE texts USING fts5 (title, content = 'failures')",
    "UPDATE texts_data SET block = zeroblob(100)",
    "PRAGMA writable_schema = on; UPDATE sqlite_master SET sql = 'nonsense' WHERE name = 'clusters'",
    "PRAGMA writable_schema = on; UPDATE sqlite_master SET rootpage = 1 WHERE name = 'failures'",
    "PRAGMA writable_schema = on; UPDATE sqlite_master SET rootpage = 100000 WHERE name = 'clusters'",
    "PRAGMA writable_schema = on; DELETE FROM sqlite_master",
    "DROP TABLE rules; CREATE TABLE rules (name TEXT PRIMARY KEY, title TEXT, issue TEXT, count INTEGER CHECK (length(hex(zeroblob(400000000))) > 0))",
    "DROP INDEX failures_by_folder; CREATE INDEX failures_by_folder ON failures (length(hex(zeroblob(400000000)))) WHERE folder != ''",
    "DROP TABLE learnt; CREATE TABLE learnt (campaign TEXT, name TEXT, value TEXT DEFAULT (hex(zeroblob(400000000))), PRIMARY KEY (campaign, name)) WITHOUT ROWID",
    "DROP TABLE aside; CREATE VIRTUAL TABLE aside USING fts5 (target, verdict, what, message, count)",
    "ANALYZE; UPDATE sqlite_stat1 SET stat = 'x y 99999999999999999999'",
    "PRAGMA application_id = 1; PRAGMA page_size = 512; PRAGMA journal_mode = delete; VACUUM",
    "CREATE TEMP TABLE x (y); PRAGMA auto_vacuum = 1; PRAGMA journal_mode = delete; VACUUM",
]  # fmt: skip


def schemas() -> Iterator[tuple[str, Change]]:
    """An index whose tables are none of ours."""
    for statement in SCHEMAS:
        yield f"an index after {statement[:60]}", partial(_script, statement)


def parts() -> Iterator[tuple[str, Change]]:
    """Files of a store that are none, or another's, too; names that are no plain words."""
    for part in (
        INDEX,
        FILE,
        "lock",
        "cases",
        "case.json",
        NAME,
        "model.onnx",
        "observations",
        "test_data_set_0/input_0.pb",
    ):
        for kind in ("a socket", "a folder", "a sparse file", "a hard link"):
            yield f"{part} is {kind}", partial(_odd_part, part, kind)
    for name in ("a\nb", "\x1b[2Jx", "\u202egnp", "-rf", "x" * 255, "$(id)", "%s%n", "..x"):
        yield f"a fingerprint's folder is called {name[:20]!r}", partial(_called, name)
    for length in (2**20, 2**23):
        changes = (
            ("UPDATE clusters SET title = ?, note = ?", ["x" * length] * 2),
            ("UPDATE failures SET message = ?", ["y " * (length // 2)]),
        )
        yield f"texts of {length} bytes in each row", partial(_sql, list(changes))


def _odd_part(part: str, kind: str, store: Path, mine: Path) -> None:
    path = store / part if part in (INDEX, FILE, "lock", "cases") else first_case(store) / part
    _gone(path)
    if part not in (INDEX, FILE, "lock", "cases"):
        _gone(store / INDEX)
    if kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            before = os.getcwd()
            os.chdir(path.parent)  # the address of a socket is short
            bound.bind(path.name)
            os.chdir(before)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a sparse file":
        with path.open("wb") as file:
            file.truncate(3 << 30)
    else:
        os.link(mine / "papers" / "text", path)


def _called(name: str, store: Path, mine: Path) -> None:
    (store / INDEX).unlink()
    first_case(store).parent.rename(store / "cases" / name)


def _script(statement: str, store: Path, mine: Path) -> None:
    connection = sqlite3.connect(store / INDEX)
    connection.executescript(statement)
    connection.close()


def damaged() -> Iterator[tuple[str, Change]]:
    """An index that is no sound file of SQLite."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda data: b"",
        "text": lambda data: b"hello\n" * 100,
        "a head alone": lambda data: data[:100],
        "half of it": lambda data: data[: len(data) // 2],
        "zeros after the head": lambda data: data[:100] + bytes(len(data) - 100),
        "ones after the first page": lambda data: data[:4096] + b"\xff" * (len(data) - 4096),
        "two thousand bytes more": lambda data: data + b"x" * 2000,
        "another SQLite": lambda data: data.replace(b"SQLite format 3", b"SQLite format 4"),
    }
    for at, value in (
        (16, 0),
        (16, 3),
        (18, 9),
        (28, 2**31),
        (32, 2**31),
        (44, 77),
        (52, 2**30),
        (56, 2),
        (96, 0),
    ):
        changes[f"a head with {value} at {at}"] = partial(_head, at, value)
    for page in range(1, 9):
        changes[f"page {page} is another"] = partial(_page, page)
    for what, change in changes.items():
        yield f"an index that is {what}", partial(_file, INDEX, change)


def _head(at: int, value: int, data: bytes) -> bytes:
    size = 1 if at == 18 else 2 if at == 16 else 4
    return data[:at] + struct.pack({1: ">B", 2: ">H", 4: ">I"}[size], value) + data[at + size :]


def _page(page: int, data: bytes) -> bytes:
    other = data[8 * 4096 : 9 * 4096] if page != 8 else data[:4096]
    return data[: page * 4096] + other + data[(page + 1) * 4096 :]


def _file(name: str, change: Callable[[bytes], bytes], store: Path, mine: Path) -> None:
    (store / name).write_bytes(change((store / name).read_bytes() if (store / name).exists() else b""))


def decisions() -> Iterator[tuple[str, Change]]:
    """Logs of decisions."""
    base = {"id": 1, "at": 0, "born": 9, "action": "note", "patch": {"clusters": [[1, "note", "", "x"]]}}
    lines: dict[str, list[Any]] = {
        "many changes": [{**base, "patch": {"clusters": [[1, "note", "", "x"]] * 200_000}}],
        "doubling keys": [
            {
                **base,
                "id": at,
                "action": "rekey",
                "patch": {},
                "keys": {"k": ["k", "l"], "l": ["k", "l", f"m{at}"]},
            }
            for at in range(60)
        ],
        "a field of none": [{**base, "patch": {"clusters": [[1, "note = 'x'; --", "", "x"]]}}],
        "an action of none": [{**base, "action": "os.system"}],
        "undo of nothing": [{**base, "action": "undo", "patch": {}}] * 1000,
        "a gigantic line": ["[" + "1," * 4_000_000 + "1]"],
        "brackets": ["[" * 200_000],
        "no UTF-8": [b"\xff\xfe\x00"],
        "moves to nowhere": [
            {**base, "action": "merge", "patch": {"moves": [["nobody", 1, 2**52, 2**52 + 1]]}}
        ],
        "members of none": [
            {**base, "action": "split", "patch": {"members": [["c0ffee", 2**52, "fake", "../..", "/etc", 1]]}}
        ],
        "a link of a key": [
            {**base, "action": "rekey", "patch": {}, "keys": {"../../canary": ["/etc/passwd"]}}
        ],
    }
    lines |= {
        f"numbers of {what}": [{**base, "id": value, "at": value, "born": value}]
        for what, value in NUMBERS.items()
    }
    lines |= {f"notes of {what}": [{**base, "patch": {"clusters": [[1, field, "", text] for field in ("note", "name", "issue")]}}]
              for what, text in TEXTS.items()}  # fmt: skip
    for what, wanted in lines.items():
        yield f"decisions: {what}", partial(_decided, wanted)


def _decided(lines: list[Any], store: Path, mine: Path) -> None:
    data = [
        item if isinstance(item, bytes) else (item if isinstance(item, str) else json.dumps(item)).encode()
        for item in lines
    ]
    (store / FILE).write_bytes(b"\n".join(data) + b"\n")
    (store / INDEX).unlink()


def records() -> Iterator[tuple[str, Change]]:
    """Records of failures and of observations in the folders of a store's cases."""
    values: dict[str, Any] = {**TEXTS, **NUMBERS, "nested lists": [[[[1]]]], "nothing": None}
    for name in (NAME, "observations/00-fake.json", "case.json"):
        for what, value in values.items():
            yield f"{name} with {what} everywhere", partial(_everywhere, name, value)
        yield f"{name} of brackets", partial(_case_bytes, name, b"[" * 100_000)
        yield f"{name} of 80 MB", partial(_case_bytes, name, b'{"format": 1' + b" " * (80 << 20) + b"}")
    for what, text in TEXTS.items():
        yield f"a case whose messages are {what}", partial(_messages, text)


def _case_bytes(name: str, data: bytes, store: Path, mine: Path) -> None:
    (first_case(store) / name).write_bytes(data)
    (store / INDEX).unlink()


def _everywhere(name: str, value: Any, store: Path, mine: Path) -> None:
    """Each value of the record in turn, one a case, as long as there are cases; the last has them all."""
    cases = sorted((store / "cases").glob("*/1"))
    record = json.loads((cases[0] / name).read_text())
    for case, keys in zip(cases, (list(record)[1:4], list(record)[4:8], list(record)[1:]), strict=True):
        (case / name).write_text(
            json.dumps(json.loads((case / name).read_text()) | dict.fromkeys(keys, value))
        )
    (store / INDEX).unlink()


def _messages(text: str, store: Path, mine: Path) -> None:
    for case in (store / "cases").glob("*/1"):
        record = json.loads((case / NAME).read_text())
        for part in record["components"]:
            part["value"] = text if part["name"] in ("message", "exception") else part["value"]
        (case / NAME).write_text(
            json.dumps({**record, "message": text, "reason": text, "version": text, "operators": [text]})
        )
    (store / INDEX).unlink()


FAMILIES = {
    "links": links,
    "index rows": rows,
    "parts of a store": parts,
    "index schemas": schemas,
    "index files": damaged,
    "decision logs": decisions,
    "case records": records,
}
