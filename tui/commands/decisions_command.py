"""`opsieve merge, split, mark, pin, note, rename, undo, redo`: what a person decides of clusters."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.tui.commands.store_table import JSON, STORE, printable

if TYPE_CHECKING:
    from opsieve.triage.store.decision_log import Decision
    from opsieve.triage.store.decisions import Ledger

STATUSES = ("new", "confirmed", "known", "fixed", "wontfix")


@click.command("merge")
@click.argument("into", metavar="CLUSTER")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@STORE
@JSON
def merge(into: str, others: tuple[str, ...], folder: Path, as_json: bool) -> int:
    """Say that OTHER... are the same bug as CLUSTER: it takes all their failures, present and future."""
    return _decided(folder, as_json, lambda ledger: ledger.merge(into, *others))


@click.command("split")
@click.argument("name", metavar="FINGERPRINT|CASE")
@STORE
@JSON
def split(name: str, folder: Path, as_json: bool) -> int:
    """Take a fingerprint out of its cluster, or a case out of its fingerprint: it becomes a cluster of its own and stays one."""
    return _decided(folder, as_json, lambda ledger: ledger.split(name))


@click.command("mark")
@click.argument("name", metavar="CLUSTER")
@click.argument("status", type=click.Choice(STATUSES))
@click.option("--issue", help="The address of its issue; an empty one removes it.")
@STORE
@JSON
def mark(name: str, status: str, issue: str | None, folder: Path, as_json: bool) -> int:
    """Say how things stand with a cluster."""
    return _decided(folder, as_json, lambda ledger: ledger.mark(name, status, issue))  # type: ignore[arg-type]


@click.command("pin")
@click.argument("name", metavar="CLUSTER")
@click.option("--off", is_flag=True, help="Pin it no longer.")
@STORE
@JSON
def pin(name: str, off: bool, folder: Path, as_json: bool) -> int:
    """Put a cluster before all others."""
    return _decided(folder, as_json, lambda ledger: ledger.pin(name, not off))


@click.command("note")
@click.argument("name", metavar="CLUSTER")
@click.argument("text")
@STORE
@JSON
def note(name: str, text: str, folder: Path, as_json: bool) -> int:
    """Write a note on a cluster; an empty one removes it."""
    return _decided(folder, as_json, lambda ledger: ledger.note(name, text))


@click.command("rename")
@click.argument("name", metavar="CLUSTER")
@click.argument("title")
@STORE
@JSON
def rename(name: str, title: str, folder: Path, as_json: bool) -> int:
    """Give a cluster a title of your own; an empty one gives back the one made from the failure."""
    return _decided(folder, as_json, lambda ledger: ledger.rename(name, title))


@click.command("undo")
@STORE
@JSON
def undo(folder: Path, as_json: bool) -> int:
    """Take back the latest decision; again, the one before."""
    return _decided(folder, as_json, lambda ledger: ledger.undo())


@click.command("redo")
@STORE
@JSON
def redo(folder: Path, as_json: bool) -> int:
    """Do again what was undone last."""
    return _decided(folder, as_json, lambda ledger: ledger.redo())


def _decided(folder: Path, as_json: bool, decide: "Callable[[Ledger], Decision]") -> int:
    from opsieve.triage.store.decisions import Ledger
    from opsieve.triage.store.queries import bring_up

    bring_up(folder)
    with Ledger(folder) as ledger:
        decision = decide(ledger)
    click.echo(
        json.dumps(asdict(decision))
        if as_json
        else f"{'undone: ' if decision.state == 'undone' else ''}{printable(decision.text)}"
    )
    return 0
