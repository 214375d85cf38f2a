"""What a shell completes for the values of options and arguments. Nothing is ever an error here: what cannot
be known is not offered.
"""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

_MOST = 200


def targets(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of backends."""
    from opsieve.backends.registry import names

    return [CompletionItem(name) for name in names() if name.startswith(begun)]


def operators(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of operators, after a leading `-` and behind the last comma, too."""
    from opsieve.gen.declarations.catalogue import operators as catalogue

    head, comma, last = begun.rpartition(",")
    sign = "-" if last.startswith("-") else ""
    found = (name for name in sorted(catalogue()) if name.startswith(last.removeprefix("-")))
    return [CompletionItem(f"{head}{comma}{sign}{name}") for name in found]


def clusters(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Ids of the clusters of the store, with their titles."""
    from opsieve.gen.errors import BadInput
    from opsieve.triage.store.queries import Queries

    try:
        with Queries(Path(context.params.get("folder") or "opsieve-store")) as store:
            rows = store.clusters(limit=_MOST).rows
    except (BadInput, OSError):
        return []
    return [CompletionItem(row.id, help=row.title[:60]) for row in rows if row.id.startswith(begun)]


def cases(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Ids of clusters, else files."""
    return clusters(context, parameter, begun) or [CompletionItem(begun, type="file")]


def filters(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Fields of a filter, then their values, after a leading `-` and behind the last comma, too."""
    field, colon, value = begun.removeprefix("-").partition(":")
    sign = "-" if begun.startswith("-") else ""
    if not colon:
        from opsieve.triage.store.index.filters import FIELDS

        return [CompletionItem(f"{sign}{name}:") for name in (*FIELDS, "since") if name.startswith(field)]
    head, comma, last = value.rpartition(",")
    values = [name for name in _values(field) if name.lower().startswith(last.lower())]
    return [CompletionItem(f"{sign}{field}:{head}{comma}{name}") for name in values[:_MOST]]


def _values(field: str) -> list[str]:
    """What a field of a filter may be, as far as it is a list that is known without a store."""
    if field == "op":
        from opsieve.gen.declarations.catalogue import operators as catalogue

        return sorted(catalogue())
    if field in ("target", "backend"):
        from opsieve.backends.registry import names

        return list(names())
    from opsieve.triage.store.index.filters import VALUES

    return list(VALUES.get(field, ()))
