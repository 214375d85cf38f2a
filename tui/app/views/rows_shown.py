"""Clusters, members and groups as rows of lists, and a cluster as lines of text. Pure."""

import math
from collections.abc import Mapping, Sequence

from opsieve.gen.model.printable import count_noun
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.store import queries, rows
from opsieve.tui.app.widgets.paged_list import Column, Row
from opsieve.tui.app.widgets.visible import Line, format_age, format_time, to_one_line

# `spare`: where the terminal is too narrow, the columns with the highest number are left out first.
CLUSTERS = (
    Column("", 1),
    Column("id", 6),
    Column("status", 9, spare=3),
    Column("kind", 8, spare=2),
    Column("compiler", 13, spare=1),
    Column("failures", 8, right=True, spare=4),
    Column("bar", 6, spare=6),
    Column("nodes", 5, right=True, spare=5),
    Column("title"),
    Column("stage", 7, spare=7),
    Column("target", 18, spare=6),
    Column("operators", 20, spare=8),
    Column("first", 5, right=True, spare=10),
    Column("last", 4, right=True, spare=9),
    Column("guilty pass", 16, spare=11),
    Column("first bad", 9, spare=12),
)
MEMBERS = (
    Column("", 1),
    Column("nodes", 9, right=True),
    Column("member", least=24),
    Column("target", 22, spare=1),
    Column("version", 10, spare=3),
    Column("seen", 4, right=True, spare=2),
    Column("operators", 24, spare=4),
)
GROUPS = (Column("clusters", 8, right=True), Column("failures", 9, right=True), Column("value"))
# The order of a click on the title of a column
SORT_OF_COLUMN: Mapping[str, queries.Sort] = {
    "id": "id", "kind": "severity", "failures": "members", "bar": "members", "nodes": "size",
    "title": "title", "first": "first", "last": "last",
}  # fmt: skip
ORDERS: Mapping[queries.Sort, str] = {
    "rank": "rank: read in this order", "members": "members: how many failures", "last": "last seen",
    "first": "first seen", "size": "size of the smallest case", "severity": "grave ones first (severity)",
    "title": "title", "id": "id",
}  # fmt: skip
# Nobody needs to look at these again.
_QUIET = ("fixed", "wontfix")
_TONES = {
    "crash": "bad",
    "hang": "bad",
    "memory": "bad",
    "mismatch": "warn",
    "new": "accent",
    "confirmed": "warn",
    "fixed": "good",
}
# Eighths of a cell, so that six cells tell 48 lengths apart.
_BLOCKS = " ▏▎▍▌▋▊▉█"


def make_cluster_row(row: rows.ClusterRow, now: float, most: int = 1) -> Row:
    """Make the row of a cluster; `*` means pinned, a size with `r` reduced. `most` failures fill the bar."""
    size = f"{row.nodes}" if row.reduced is None else f"{row.reduced}r"
    cells = (
        "*" if row.pinned else "", row.id, row.status, row.kind, to_one_line(row.backend, 30),
        f"{row.members:,}", make_bar(row.members, most, 6), size,
        to_one_line(row.listed_title, 300), row.stage, to_one_line(", ".join(row.targets), 80),
        to_one_line(" ".join(row.operators), 80), format_age(row.first_seen, now), format_age(row.last_seen,
        now),
        to_one_line(row.guilty_pass, 60), to_one_line(row.first_bad, 40),
    )  # fmt: skip
    tone = "strong" if row.pinned else "dim" if row.status in _QUIET else ""
    # The columns of status and kind
    tones = {at: _TONES[cells[at]] for at in (2, 3) if cells[at] in _TONES}
    return Row(row.id, cells, tone, tones if tone != "dim" else {})


def list_counts(counts: rows.Counts, decided: str, is_wide: bool) -> list[str]:
    """List the failures of a store, and the decision that undo takes back, or else what stands apart."""
    words = [f"· {count_noun(counts.failures, 'failure')}"]
    if decided:
        words.append(f"· u undoes: {to_one_line(decided, 60)}")
    elif is_wide:
        apart = (
            f"{counts.unsupported:,} unsupported, {counts.environment:,} environment, {counts.flaky:,} flaky"
        )
        words.append(f"· apart: {apart}")
    return words


def make_bar(count: int, most: int, width: int) -> str:
    """Draw a bar, on a logarithmic scale, since a few clusters have most of the failures."""
    eighths = round(8 * width * math.log1p(count) / math.log1p(max(1, count, most)))
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def make_member_row(row: rows.MemberRow, now: float) -> Row:
    """Make the row of a member; one that was only counted is dimmed."""
    size = f"{row.nodes}" if row.reduced is None else f"{row.reduced} of {row.nodes}"
    cells = (
        "▪" if row.folder else "", size, _shorten_name(row), to_one_line(row.target, 60),
        to_one_line(row.version, 30),
        format_age(row.seen, now), to_one_line(" ".join(row.operators), 80),
    )  # fmt: skip
    return Row(row.name, cells, "" if row.folder else "dim")


def _shorten_name(row: rows.MemberRow) -> str:
    """Return the distinctive end of a case folder's name, or the whole name of a counted member."""
    if not row.folder:
        return to_one_line(row.name, 200)
    return to_one_line(row.folder.removeprefix("cases/").rpartition("-")[2], 200)


def make_group_row(group: rows.ClusterGroup) -> Row:
    """Make the row of a group."""
    return Row(
        group.value, (f"{group.clusters:,}", f"{group.members:,}", to_one_line(group.value, 200) or "(none)")
    )


def list_facts(*pairs: tuple[str, str], width: int = 12) -> list[Line]:
    """List names and values, without empty values."""
    return [
        ((f"{name:{width}} ", "dim"), (to_one_line(value, 2000), ""))
        for name, value in pairs
        if value.strip()
    ]


def name_release(target: object, version: object) -> str:
    """Return a target with the version that ran, once."""
    return str(target) if f"=={version}" in str(target) else f"{target} {version}"


def list_cluster(row: rows.ClusterRow, now: float) -> list[Line]:
    """List all facts about a cluster."""
    size = row.nodes if row.reduced is None else row.reduced
    smallest = f"{count_noun(size, 'node')}, {'not reduced yet' if row.reduced is None else 'reduced'}"
    first, last = format_time(row.first_seen), format_time(row.last_seen)
    seen = (
        f"{first}{f' to {last}' if last != first else ''} ({format_age(row.last_seen, now)} ago)"
        if last
        else ""
    )
    status = f"{row.status}{', pinned' if row.pinned else ''}{f' (rule {row.rule})' if row.rule else ''}"
    return [
        ((f"{row.id}  ", "accent"), (to_one_line(row.title, 600), "strong")),
        *list_facts(
            ("status", status),
            ("issue", row.issue),
            *(
                ("probably", f"{each.name}: {each.title}; {'; '.join(each.reasons)} {each.url}")
                for each in row.probably
            ),
            ("note", row.note),
            ("kind", f"{row.kind} at {row.stage}" if row.stage else row.kind),
            ("failures", f"{row.members:,} in {count_noun(row.fingerprints, 'fingerprint')}"),
            ("seen", seen),
            ("targets", ", ".join(row.targets)),
            ("smallest", smallest),
            ("operators", " ".join(row.operators)),
            ("guilty pass", row.guilty_pass),
            ("first bad", row.first_bad),
            ("own title", row.own_title if row.own_title != row.title else ""),
        ),
    ]


def list_components(components: Sequence[Component]) -> list[Line]:
    """List the components of a fingerprint: + counts, - does not, and why."""
    found: list[Line] = []
    for part in components:
        sign, tone = ("+ ", "good") if part.kept else ("- ", "dim")
        found.append(
            (
                (sign, tone),
                (f"{to_one_line(part.name, 40):12} ", tone),
                (to_one_line(part.value, 600), "" if part.kept else "dim"),
            )
        )
        found.append(((f"  {to_one_line(part.hint, 300)}", "dim"),))
    return found


def list_fingerprints(fingerprints: Sequence[rows.FingerprintRow], *, components: bool = True) -> list[Line]:
    """List the reason for each fingerprint's membership, and its components."""
    found: list[Line] = []
    for each in fingerprints:
        found += [
            (),
            ((to_one_line(each.key, 120), "accent"), (f"  {count_noun(each.count, 'failure')}", "")),
        ]
        found.append((("here because ", "dim"), (to_one_line(each.why, 400), "")))
        if components:
            found += list_components(each.components)
    return found


def list_related(related: Sequence[rows.RelatedRow]) -> list[Line]:
    """List clusters that look like this one, and why."""
    if not related:
        return [(("no other cluster looks like this one", "dim"),)]
    found: list[Line] = []
    for each in related:
        found.append(
            (
                (f"{each.cluster.id:7}", "accent"),
                (f"{each.score:.2f}  ", ""),
                (to_one_line(each.cluster.title, 300), ""),
            )
        )
        found.append(((f"       {to_one_line(each.reason, 300)}", "dim"),))
    return found


def list_history(decisions: Sequence[rows.Decision]) -> list[Line]:
    """List the decisions, the latest first."""
    if not decisions:
        return [(("no decisions yet", "dim"),)]
    found: list[Line] = []
    for each in decisions:
        done = each.state == "done"
        text = (to_one_line(each.text, 300), "" if done else "dim")
        found.append(
            ((f"{format_time(each.at)}  ", "dim"), text, ("" if done else f"  ({each.state})", "warn"))
        )
    return found


def compare_members(first: rows.MemberRow, second: rows.MemberRow) -> list[Line]:
    """List the common and the different facts of two members."""
    found: list[Line] = [
        ((f"{to_one_line(first.name, 200)}", "accent"),),
        ((f"{to_one_line(second.name, 200)}", "accent"),),
        (),
    ]
    # The names of a person's question: where, what, and only then the texts.
    names = ["target", "version", "verdict", "kind", "stage", "fingerprint"]
    names += ["blame", "nodes", "reduced", "reason", "message"]
    same: list[str] = []
    for name in names:
        one, other = str(getattr(first, name)), str(getattr(second, name))
        if one == other:
            same.append(name)
        else:
            found += _list_both(name, one, other)
    mine, others = set(first.operators), set(second.operators)
    if mine == others:
        same.append("operators")
    else:
        found += _list_both("operators", " ".join(sorted(mine - others)), " ".join(sorted(others - mine)))
    found += [(), (("equal: ", "dim"), (", ".join(same) or "nothing", ""))]
    return found


def _list_both(name: str, one: str, other: str) -> list[Line]:
    """List the values of two members under a name."""
    first, second = to_one_line(one, 1000), to_one_line(other, 1000)
    return [((name, "strong"),), (("  < ", "bad"), (first, "")), (("  > ", "good"), (second, ""))]
