"""How people name what lies in a store: `c17`, a fingerprint's key or its tail, a case folder, a member."""

import re
import sqlite3
from pathlib import Path

from opsieve.gen.model.bad_input import BadInput, shown

_CLUSTER = re.compile(r"c?(\d{1,12})")
_PLACE = re.compile(r"(?:^|/)(cases/[^/]+/[^/]+)(?:/reduced)?/?$")
_MEMBER = re.compile(r"([^/:\s]+):(\d+):(.+)", re.DOTALL)


def name_of(cluster: int) -> str:
    """The name of a cluster: `c17`."""
    return f"c{cluster}"


def member_name(campaign: str, test: int, target: str) -> str:
    """The name of a failure, whether its case is kept or not: `CAMPAIGN:TEST:TARGET`."""
    return f"{campaign}:{test}:{target}"


def cluster_of(connection: sqlite3.Connection, name: str) -> int:
    """The cluster that `name` means, today: of `c17` that has become part of another cluster, that one.

    `name` is `c17`, `17`, a fingerprint's key or a tail of it, or what `member_of` takes. BadInput when there is none, or more than one.
    """
    text = name.encode("utf-8", "replace").decode().strip()
    match = _CLUSTER.fullmatch(text)
    if match:
        number = int(match[1])
        row = connection.execute("SELECT id FROM clusters WHERE id = ? AND members > 0", [number]).fetchone()
        row = (
            row
            or connection.execute(
                "SELECT cluster FROM fingerprints WHERE number = ? AND cluster IS NOT NULL", [number]
            ).fetchone()
        )
        if row:
            return int(row[0])
        if text.startswith("c"):
            raise BadInput(f"there is no cluster {shown(text)}; opsieve clusters lists them")
    key = member_of(connection, text)[3] if "/" in text or ":" in text else _key(connection, text)
    row = connection.execute("SELECT cluster FROM fingerprints WHERE key = ?", [key]).fetchone()
    if row is None or row[0] is None:
        raise BadInput(
            f"{shown(text, 120)} is flaky and in no cluster; opsieve clusters --non-bugs lists what is flaky"
        )
    return int(row[0])


def member_of(connection: sqlite3.Connection, name: str) -> tuple[str, int, str, str]:
    """Campaign, test, target and fingerprint of the failure that `name` means: a case folder of the store, or `CAMPAIGN:TEST:TARGET`."""
    name = name.encode("utf-8", "replace").decode()  # a command line may hold bytes that are no text
    columns = "SELECT campaign, test, target, fingerprint FROM failures"
    place, match = _PLACE.search(Path(name).as_posix()), _MEMBER.fullmatch(name)
    row = None
    if place:
        row = connection.execute(f"{columns} WHERE folder = ? AND folder != ''", [place[1]]).fetchone()
    if row is None and match and len(match[2]) < 18:
        row = connection.execute(
            f"{columns} WHERE campaign = ? AND test = ? AND target = ?", [match[1], int(match[2]), match[3]]
        ).fetchone()
    if row is None:
        raise BadInput(
            f"{shown(name, 120)} is no member of the store; name a case folder of it, or CAMPAIGN:TEST:TARGET as opsieve show lists them"
        )
    return str(row[0]), int(row[1]), str(row[2]), str(row[3])


def _key(connection: sqlite3.Connection, text: str) -> str:
    rows = connection.execute("SELECT key FROM fingerprints WHERE key = ?", [text]).fetchall()
    if not rows and len(text) >= 4 and re.fullmatch(r"[\w~@-]+", text):
        like = text.replace("_", r"\_")
        rows = connection.execute(
            "SELECT key FROM fingerprints WHERE key LIKE ? ESCAPE '\\' AND cluster IS NOT NULL LIMIT 2", [f"%{like}"]
        ).fetchall()
    if len(rows) != 1:
        many = "more than one fingerprint ends so; write more of it" if rows else "opsieve clusters lists the clusters"
        raise BadInput(f"{shown(text, 120)} names no cluster, fingerprint or case of the store; {many}")
    return str(rows[0][0])
