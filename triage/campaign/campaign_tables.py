"""The operator tables with which a campaign began, kept in its store, so that a resumed campaign makes the
same programs.

STORE/support/CAMPAIGN-1.json.xz is the table of its first target, and so on.
"""

from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.probing.operator_support import Support, collect_support
from opsieve.backends.probing.support_tables import SupportTable, pack_table, unpack_table
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import make_folder, write_file
from opsieve.gen.model.files import bound_reading, read_file, reason

_FOLDER = "support"
# Bytes of a file
_MOST = 16 << 20
_MOST_TARGETS = 64


def make_support(table: SupportTable) -> Support:
    """Convert a stored table."""
    dtypes = None if table.dtypes is None else frozenset(table.dtypes)
    return collect_support(table.backend, table.version, table.answers, dtypes)


def save_tables(tables: Sequence[SupportTable], campaign: str, store: Path) -> None:
    """Write the tables of a campaign.

    Raises:
        BadInput: If they cannot be written.
    """
    try:
        make_folder(store / _FOLDER)
        for number, table in enumerate(tables, 1):
            write_file(_get_path(store, campaign, number), pack_table(table))
    except OSError as error:
        raise BadInput(f"cannot write into {shown(store / _FOLDER, 200)}: {reason(error)}") from None


@bound_reading
def load_tables(campaign: str, store: Path) -> list[SupportTable]:
    """Load the tables of a campaign; [] without any.

    Raises:
        BadInput: For an invalid file.
    """
    found = []
    for number in range(1, _MOST_TARGETS + 1):
        path = _get_path(store, campaign, number)
        if not path.exists():
            break
        try:
            found.append(unpack_table(read_file(path, _MOST)))
        except ValueError as error:
            raise BadInput(f"{shown(path, 200)} cannot be read: {shown(str(error), 100)}") from None
    return found


def _get_path(store: Path, campaign: str, number: int) -> Path:
    # The index of a foreign store is untrusted.
    if not campaign.isalnum():
        raise BadInput(f"{shown(campaign, 80)} is no name of a campaign")
    return store / _FOLDER / f"{campaign}-{number}.json.xz"
