"""The tables of operators that a campaign was begun with, kept in its store: a resumed one makes the same
programs, whatever was learnt since.

STORE/support/CAMPAIGN-1.json.xz    what its first target has, and so on
"""

from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.probing.operator_support import Support, support_of
from opsieve.backends.probing.support_tables import SupportTable, packed, unpacked
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file, reason

_FOLDER = "support"
_MOST = 16 << 20  # bytes of a file
_MOST_TARGETS = 64


def support(table: SupportTable) -> Support:
    """What a table says."""
    dtypes = None if table.dtypes is None else frozenset(table.dtypes)
    return support_of(table.backend, table.version, table.answers, dtypes)


def save(tables: Sequence[SupportTable], campaign: str, store: Path) -> None:
    """Write the tables of a campaign. BadInput when they cannot be written."""
    try:
        (store / _FOLDER).mkdir(exist_ok=True)
        for number, table in enumerate(tables, 1):
            write_file(_file(store, campaign, number), packed(table))
    except OSError as error:
        raise BadInput(f"cannot write into {shown(store / _FOLDER, 200)}: {reason(error)}") from None


def load(campaign: str, store: Path) -> list[SupportTable]:
    """The tables of a campaign, none where none were kept. BadInput for a file that holds none."""
    found = []
    for number in range(1, _MOST_TARGETS + 1):
        path = _file(store, campaign, number)
        if not path.exists():
            break
        try:
            found.append(unpacked(read_file(path, _MOST)))
        except ValueError as error:
            raise BadInput(f"{shown(path, 200)} cannot be read: {shown(str(error), 100)}") from None
    return found


def _file(store: Path, campaign: str, number: int) -> Path:
    if not campaign.isalnum():  # the index of a stranger's store could say anything
        raise BadInput(f"{shown(campaign, 80)} is no name of a campaign")
    return store / _FOLDER / f"{campaign}-{number}.json.xz"
