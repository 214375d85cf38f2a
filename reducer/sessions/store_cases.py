"""Find cases of a store to reduce by the names that people use, with the targets on which they fail."""

from pathlib import Path

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.failure_record import NAME, read_failure


def place_of(what: Path, store: Path) -> Path:
    """Return the case folder for a path, or for the name of a cluster or a fingerprint in a store: its
    smallest case.

    Raises BadInput for a name that the store does not know, or whose cases it did not keep. Anything else is
    returned unchanged.
    """
    if what.exists() or len(what.parts) != 1 or what.suffix or not store.is_dir():
        return what
    from opsieve.triage.store.queries import Queries
    from opsieve.triage.store.store_folder import get_case_folder

    with Queries(store) as queries:
        found = queries.cluster(str(what)).representative
    if not found:
        raise BadInput(f"of {shown(what, 120)} no case was kept in {shown(store, 120)}; name another cluster")
    return get_case_folder(store, found)


def target_of(place: Path) -> str:
    """The target that a case of a store fails on; "" for any other case."""
    return read_failure(place).target if (place / NAME).is_file() else ""


def title_of(place: Path) -> str:
    """What to call the results of a case: its name, with the fingerprint before the number where it lies in a
    store.
    """
    place = place.resolve()
    name = place.name.removesuffix(".onnx")
    return f"{place.parent.name}-{name}" if (place / NAME).is_file() else name
