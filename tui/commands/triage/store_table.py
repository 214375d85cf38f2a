"""Shared output of the commands on a store: tables of 80 columns, and a cluster's facts."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import single_line

if TYPE_CHECKING:
    from opsieve.triage.store.rows import ClusterRow


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = (), wide: str = ""
) -> None:
    """Print rows.

    In a terminal the column `wide` takes the rest of the width and is truncated with a sign. In a pipe or a
    file every cell is whole.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[single_line(str(cell)) for cell in row] for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            padded = (
                cell.rjust(width) if name in right else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            )
            click.echo("  ".join(padded).rstrip())
        return
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=bool(wide))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column == wide else None,
        )
    for row in cells:
        made.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in row))
    console.print(made)


def print_clusters(rows: "Sequence[ClusterRow]") -> None:
    """Print clusters; `nodes` are those of the smallest case, reduced if possible."""
    print_table(
        ("id", "status", "kind", "failures", "nodes", "title"),
        [(f"{row.id}{'*' if row.pinned else ''}", row.status, row.kind, row.members, row.nodes if row.reduced is None else row.reduced, row.listed_title) for row in rows],
        right=("failures", "nodes"), wide="title",
    )  # fmt: skip


def list_cluster_facts(row: "ClusterRow") -> dict[str, Any]:
    """Return a cluster's facts with the keys of docs/reference/json.md."""
    return {
        "id": row.id,
        "title": row.title,
        "kind": row.kind,
        "stage": row.stage,
        "status": row.status,
        "members": row.members,
        "representative": row.representative,
        "targets": list(row.targets),
        "operators": list(row.operators),
        "guilty_pass": row.guilty_pass,
        "first_bad": row.first_bad,
        "backend": row.backend,
        "issue": row.issue,
        "probably": [asdict(each) for each in row.probably],
        "note": row.note,
        "rule": row.rule,
        "pinned": row.pinned,
        "fingerprints": row.fingerprints,
        "nodes": row.nodes,
        "reduced": row.reduced,
        "severity": row.severity,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
    }
