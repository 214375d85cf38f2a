"""Attribute the wrong results of a store to passes, before they are reduced: programs of one bug differ, and
the pass without which each is right is the same.
"""

import time
from collections.abc import Callable
from pathlib import Path

from opsieve.backends.target import Target
from opsieve.bisect.passes.pass_source import list_attributable
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sessions.versions import attribute_passes
from opsieve.gen.errors import BadInput, NoFailure, Unjudged
from opsieve.triage.store.artifacts import read_artifacts
from opsieve.triage.store.failure_record import read_failure
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.index.index_file import join_index
from opsieve.triage.store.queries import upgrade_index
from opsieve.triage.store.store_folder import get_case_folder


def attribute_store(store: Path, budget: float, offline: bool, say: Callable[[str], None]) -> None:
    """Find the guilty passes of kept wrong results that have none, for `budget` seconds.

    The answers lie beside the cases, where `triage_store` finds them. A case that cannot be attributed is
    named, and stays as it is.

    Raises:
        BadInput: If the store cannot be used.
    """
    upgrade_index(store)
    with join_index(store) as database:
        places = [case.place for case in Index(database).list_kept_cases()]
    waiting = [place for place in places if _is_waiting(get_case_folder(store, place))]
    end = time.monotonic() + budget
    for number, place in enumerate(waiting):
        if time.monotonic() > end:
            say(f"{len(waiting) - number} left; run the same command to continue")
            break
        try:
            request = BisectRequest(get_case_folder(store, place), offline=offline)
            said = " and ".join(attribute_passes(request, lambda _: None).passes) or "no pass"
        except (BadInput, NoFailure, Unjudged) as error:
            said = str(error)
        say(f"[{number + 1}/{len(waiting)}] {place}: {said}")


def _is_waiting(case: Path) -> bool:
    """Return whether a case holds a wrong result without a guilty pass, of a compiler whose passes can be
    switched off.
    """
    try:
        record, known = read_failure(case), read_artifacts(case).guilty_passes
        backend = Target.parse(record.target).backend
    except BadInput:
        return False
    return record.mismatch is not None and not known and backend in list_attributable()
