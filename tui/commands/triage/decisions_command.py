"""`opsieve merge, split, mark, pin, note, rename, undo, redo`: decisions about clusters."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.gen.model.printable import single_line
from opsieve.tui.commands import completions, options

if TYPE_CHECKING:
    from opsieve.triage.store.decisions import Ledger
    from opsieve.triage.store.rows import Decision

# Repeated here, since importing the store would cost every --help its start-up time.
STATUSES = ("new", "confirmed", "known", "fixed", "wontfix")


@click.command("merge")
@click.argument("into", metavar="CLUSTER", shell_complete=completions.complete_clusters)
@click.argument(
    "others", metavar="OTHER...", nargs=-1, required=True, shell_complete=completions.complete_clusters
)
@options.STORE
@options.JSON
def merge(into: str, others: tuple[str, ...], folder: Path, as_json: bool) -> int:
    """Merge the clusters OTHER... into CLUSTER: their present and future failures belong to it."""
    return _make_decision(folder, as_json, lambda ledger: ledger.merge(into, *others))


@click.command("split")
@click.argument("name", metavar="FINGERPRINT|CASE")
@options.STORE
@options.JSON
def split(name: str, folder: Path, as_json: bool) -> int:
    """Split a fingerprint out of its cluster, or a case out of its fingerprint, into a separate cluster for
    good.
    """
    return _make_decision(folder, as_json, lambda ledger: ledger.split(name))


@click.command("mark")
@click.argument("name", metavar="CLUSTER", shell_complete=completions.complete_clusters)
@click.argument("status", type=click.Choice(STATUSES))
@click.option("--issue", help="URL of its issue; an empty one removes it.")
@options.STORE
@options.JSON
def mark(name: str, status: str, issue: str | None, folder: Path, as_json: bool) -> int:
    """Set the status of a cluster."""
    return _make_decision(
        folder,
        as_json,
        lambda ledger: ledger.mark(name, status, issue),  # type: ignore[arg-type]
    )


@click.command("pin")
@click.argument("name", metavar="CLUSTER", shell_complete=completions.complete_clusters)
@click.option("--off", is_flag=True, help="Unpin it.")
@options.STORE
@options.JSON
def pin(name: str, off: bool, folder: Path, as_json: bool) -> int:
    """Pin a cluster to the top of the list."""
    return _make_decision(folder, as_json, lambda ledger: ledger.pin(name, not off))


@click.command("note")
@click.argument("name", metavar="CLUSTER", shell_complete=completions.complete_clusters)
@click.argument("text")
@options.STORE
@options.JSON
def note(name: str, text: str, folder: Path, as_json: bool) -> int:
    """Attach a note to a cluster; an empty one removes it."""
    return _make_decision(folder, as_json, lambda ledger: ledger.note(name, text))


@click.command("rename")
@click.argument("name", metavar="CLUSTER", shell_complete=completions.complete_clusters)
@click.argument("title")
@options.STORE
@options.JSON
def rename(name: str, title: str, folder: Path, as_json: bool) -> int:
    """Give a cluster another title; an empty one restores the generated title."""
    return _make_decision(folder, as_json, lambda ledger: ledger.rename(name, title))


@click.command("undo")
@options.STORE
@options.JSON
def undo(folder: Path, as_json: bool) -> int:
    """Undo the latest decision; repeat to undo earlier ones."""
    return _make_decision(folder, as_json, lambda ledger: ledger.undo())


@click.command("redo")
@options.STORE
@options.JSON
def redo(folder: Path, as_json: bool) -> int:
    """Redo the decision undone last."""
    return _make_decision(folder, as_json, lambda ledger: ledger.redo())


def _make_decision(folder: Path, as_json: bool, decide: "Callable[[Ledger], Decision]") -> int:
    from opsieve.triage.store.decisions import Ledger
    from opsieve.triage.store.queries import upgrade_index

    # The ledger wants an index of the current schema.
    upgrade_index(folder)
    with Ledger(folder) as ledger:
        decision = decide(ledger)
    click.echo(
        json.dumps(asdict(decision))
        if as_json
        else f"{'undone: ' if decision.state == 'undone' else ''}{single_line(decision.text)}"
    )
    return 0
