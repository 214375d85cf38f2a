"""Clusters, members and groups as rows of lists, and a cluster as lines of text. Pure."""

from collections.abc import Sequence

from opsieve.gen.model.printable import counted
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.store.rows import (
    ClusterGroup,
    ClusterRow,
    Decision,
    FingerprintRow,
    MemberRow,
    RelatedRow,
)
from opsieve.tui.app.widgets.paged_list import Column, Row
from opsieve.tui.app.widgets.visible import Line, ago, moment, one_line

CLUSTERS = (
    Column("", 1),
    Column("id", 6),
    Column("status", 9, spare=2),
    Column("kind", 8, spare=1),
    Column("failures", 8, right=True, spare=3),
    Column("nodes", 5, right=True, spare=4),
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
    Column("member"),
    Column("target", 22, spare=1),
    Column("version", 10, spare=3),
    Column("seen", 4, right=True, spare=2),
    Column("operators", 24, spare=4),
)
GROUPS = (Column("clusters", 8, right=True), Column("failures", 9, right=True), Column("value"))
_QUIET = ("fixed", "wontfix")


def cluster_cells(row: ClusterRow, now: float) -> Row:
    """A cluster as a row. A `*` says pinned, a size with `r` reduced."""
    size = f"{row.nodes}" if row.reduced is None else f"{row.reduced}r"
    cells = (
        "*" if row.pinned else "", row.id, row.status, row.kind, f"{row.members:,}", size,
        one_line(row.listed_title, 300), row.stage, one_line(", ".join(row.targets), 80),
        one_line(" ".join(row.operators), 80), ago(row.first_seen, now), ago(row.last_seen, now),
        one_line(row.guilty_pass, 60), one_line(row.first_bad, 40),
    )  # fmt: skip
    return Row(row.id, cells, "strong" if row.pinned else "dim" if row.status in _QUIET else "")


def member_cells(row: MemberRow, now: float) -> Row:
    """A member as a row; one that was only counted is quiet."""
    size = f"{row.nodes}" if row.reduced is None else f"{row.reduced} of {row.nodes}"
    cells = (
        "▪" if row.folder else "", size, _short(row), one_line(row.target, 60), one_line(row.version, 30),
        ago(row.seen, now), one_line(" ".join(row.operators), 80),
    )  # fmt: skip
    return Row(row.name, cells, "" if row.folder else "dim")


def _short(row: MemberRow) -> str:
    """The end of a case folder's name, which tells it from others; of a member that was only counted all of
    its name.
    """
    if not row.folder:
        return one_line(row.name, 200)
    return one_line(row.folder.removeprefix("cases/").rpartition("-")[2], 200)


def group_cells(group: ClusterGroup) -> Row:
    """A group as a row."""
    return Row(
        group.value, (f"{group.clusters:,}", f"{group.members:,}", one_line(group.value, 200) or "(none)")
    )


def facts(*pairs: tuple[str, str], width: int = 12) -> list[Line]:
    """Names and values, those without a value left out."""
    return [
        ((f"{name:{width}} ", "dim"), (one_line(value, 2000), "")) for name, value in pairs if value.strip()
    ]


def cluster_lines(row: ClusterRow, now: float) -> list[Line]:
    """A cluster in full."""
    size = row.nodes if row.reduced is None else row.reduced
    smallest = f"{counted(size, 'node')}, {'not reduced yet' if row.reduced is None else 'reduced'}"
    first, last = moment(row.first_seen), moment(row.last_seen)
    seen = f"{first}{f' to {last}' if last != first else ''} ({ago(row.last_seen, now)} ago)" if last else ""
    status = f"{row.status}{', pinned' if row.pinned else ''}{f' (rule {row.rule})' if row.rule else ''}"
    return [
        ((f"{row.id}  ", "accent"), (one_line(row.title, 600), "strong")),
        *facts(
            ("status", status),
            ("issue", row.issue),
            *(
                ("probably", f"{each.name}: {each.title}; {'; '.join(each.reasons)} {each.url}")
                for each in row.probably
            ),
            ("note", row.note),
            ("kind", f"{row.kind} at {row.stage}" if row.stage else row.kind),
            ("failures", f"{row.members:,} in {counted(row.fingerprints, 'fingerprint')}"),
            ("seen", seen),
            ("targets", ", ".join(row.targets)),
            ("smallest", smallest),
            ("operators", " ".join(row.operators)),
            ("guilty pass", row.guilty_pass),
            ("first bad", row.first_bad),
            ("own title", row.own_title if row.own_title != row.title else ""),
        ),
    ]


def component_lines(components: Sequence[Component]) -> list[Line]:
    """The components of a fingerprint: + counts, - does not, and why."""
    found: list[Line] = []
    for part in components:
        sign, tone = ("+ ", "good") if part.kept else ("- ", "dim")
        found.append(
            (
                (sign, tone),
                (f"{one_line(part.name, 40):12} ", tone),
                (one_line(part.value, 600), "" if part.kept else "dim"),
            )
        )
        found.append(((f"  {one_line(part.hint, 300)}", "dim"),))
    return found


def fingerprint_lines(fingerprints: Sequence[FingerprintRow], *, components: bool = True) -> list[Line]:
    """Why each fingerprint is in its cluster, and what it is made of."""
    found: list[Line] = []
    for each in fingerprints:
        found += [(), ((one_line(each.key, 120), "accent"), (f"  {counted(each.count, 'failure')}", ""))]
        found.append((("here because ", "dim"), (one_line(each.why, 400), "")))
        if components:
            found += component_lines(each.components)
    return found


def related_lines(related: Sequence[RelatedRow]) -> list[Line]:
    """Clusters that look like this one, and why."""
    if not related:
        return [(("no other cluster looks like this one", "dim"),)]
    found: list[Line] = []
    for each in related:
        found.append(
            (
                (f"{each.cluster.id:7}", "accent"),
                (f"{each.score:.2f}  ", ""),
                (one_line(each.cluster.title, 300), ""),
            )
        )
        found.append(((f"       {one_line(each.reason, 300)}", "dim"),))
    return found


def history_lines(decisions: Sequence[Decision]) -> list[Line]:
    """What people decided, the latest first."""
    if not decisions:
        return [(("nobody decided anything here yet", "dim"),)]
    found: list[Line] = []
    for each in decisions:
        done = each.state == "done"
        text = (one_line(each.text, 300), "" if done else "dim")
        found.append(((f"{moment(each.at)}  ", "dim"), text, ("" if done else f"  ({each.state})", "warn")))
    return found


def member_difference(first: MemberRow, second: MemberRow) -> list[Line]:
    """What two members have in common and where they differ."""
    found: list[Line] = [
        ((f"{one_line(first.name, 200)}", "accent"),),
        ((f"{one_line(second.name, 200)}", "accent"),),
        (),
    ]
    names = ["target", "version", "verdict", "kind", "stage", "fingerprint"]
    names += ["blame", "nodes", "reduced", "reason", "message"]
    same: list[str] = []
    for name in names:
        one, other = str(getattr(first, name)), str(getattr(second, name))
        if one == other:
            same.append(name)
        else:
            found += _both(name, one, other)
    mine, others = set(first.operators), set(second.operators)
    if mine == others:
        same.append("operators")
    else:
        found += _both("operators", " ".join(sorted(mine - others)), " ".join(sorted(others - mine)))
    found += [(), (("equal: ", "dim"), (", ".join(same) or "nothing", ""))]
    return found


def _both(name: str, one: str, other: str) -> list[Line]:
    """What two members have under a name."""
    first, second = one_line(one, 1000), one_line(other, 1000)
    return [((name, "strong"),), (("  < ", "bad"), (first, "")), (("  > ", "good"), (second, ""))]
