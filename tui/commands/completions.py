"""Shell completion for the values of options and arguments. Errors are ignored: unknown values are not
offered.
"""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from opsieve.gen.errors import BadInput

# A longer list is of no use in a shell.
_MOST = 200


def complete_targets(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete names of backends."""
    from opsieve.backends.registry import names

    return [CompletionItem(name) for name in names() if name.startswith(begun)]


def complete_operators(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete names of operators, also after a leading `-` and the last comma."""
    from opsieve.gen.declarations.catalogue import operators as catalogue

    head, comma, last = begun.rpartition(",")
    sign = "-" if last.startswith("-") else ""
    found = (name for name in sorted(catalogue()) if name.startswith(last.removeprefix("-")))
    return [CompletionItem(f"{head}{comma}{sign}{name}") for name in found]


def complete_clusters(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete ids of the store's clusters, with their titles."""
    from opsieve.triage.store.queries import Queries

    try:
        # The shell asks before all options are parsed, so that the default is not in there yet.
        with Queries(Path(context.params.get("folder") or "opsieve-store")) as store:
            rows = store.clusters(limit=_MOST).rows
    # A sentence in the middle of a command line would only disturb.
    except (BadInput, OSError):
        return []
    return [CompletionItem(row.id, help=row.title[:60]) for row in rows if row.id.startswith(begun)]


def complete_cases(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete ids of clusters, else files."""
    # Ids come first, since a folder of the working directory can also be typed as ./c1.
    return complete_clusters(context, parameter, begun) or [CompletionItem(begun, type="file")]


def complete_filters(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete fields of a filter, then their values, also after a leading `-` and the last comma."""
    field, colon, value = begun.removeprefix("-").partition(":")
    sign = "-" if begun.startswith("-") else ""
    if not colon:
        from opsieve.triage.store.index.filters import FIELDS

        return [CompletionItem(f"{sign}{name}:") for name in (*FIELDS, "since") if name.startswith(field)]
    head, comma, last = value.rpartition(",")
    # Without regard to case, as the filter itself compares.
    values = [name for name in _list_values(field) if name.lower().startswith(last.lower())]
    return [CompletionItem(f"{sign}{field}:{head}{comma}{name}") for name in values[:_MOST]]


def _list_values(field: str) -> list[str]:
    """List the values of a filter's field, if they are known without a store."""
    if field == "op":
        from opsieve.gen.declarations.catalogue import operators as catalogue

        return sorted(catalogue())
    if field in ("target", "backend"):
        from opsieve.backends.registry import names

        return list(names())
    from opsieve.triage.store.index.filters import VALUES

    return list(VALUES.get(field, ()))
