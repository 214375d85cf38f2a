"""Filters saved with a store, by name: `filters.json` in its folder."""

import json
from pathlib import Path

from opsieve.gen.errors import BadInput
from opsieve.gen.model.durable import write_output
from opsieve.gen.model.files import bound_reading, read_file

FILE = "filters.json"
_MOST = 100
# characters, as of any filter
_LONGEST = 500
# A store may come from a stranger, and with it this file.
_BYTES = 1 << 20


@bound_reading
def read_filters(folder: Path) -> dict[str, str]:
    """Read the filters of a store by name; {} if the file is missing or invalid."""
    try:
        found = json.loads(read_file(folder / FILE, _BYTES))
    except (BadInput, ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    kept = [(name[:60], text) for name, text in pairs if isinstance(text, str) and 0 < len(text) <= _LONGEST]
    return dict(kept[:_MOST])


def save_filter(folder: Path, name: str, text: str) -> None:
    """Save a filter under a name; an empty text removes it.

    Raises:
        BadInput: If the file cannot be written, or there are too many filters.
    """
    filters = read_filters(folder) | {name: text}
    if not text:
        filters.pop(name)
    if len(filters) > _MOST:
        raise BadInput(f"{_MOST} filters are saved already; remove one (save it with nothing in the filter)")
    write_output(folder / FILE, json.dumps(filters, indent=1) + "\n")
