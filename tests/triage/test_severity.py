"""How grave a cluster is: a program that breaks a rule may be refused, so dying of it weighs less."""

from dataclasses import replace
from pathlib import Path

from stores import done, filled, finding

from opsieve.triage.fingerprint.component import Evidence
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.store.finished_test import FoundFailure
from opsieve.triage.store.queries import Queries


def of_invalid(found: FoundFailure) -> FoundFailure:
    told = make_fingerprint(found.verdict, found.observations[0], ["Relu"], Evidence(valid=False))
    return replace(found, fingerprint=told)


def test_a_crash_on_an_invalid_program_is_less_grave(tmp_path: Path) -> None:
    crash = [finding("", kind="crash", frames=["main", name], signal=11) for name in ("fuse", "check")]
    store = filled(tmp_path / "s", [done(0, crash[0]), done(1, of_invalid(crash[1]))])
    with Queries(store) as queries:
        assert sorted(row.severity for row in queries.clusters().rows) == [3, 7]
    filled(tmp_path / "s", [done(2, crash[1])])  # the same death, of a sound program now
    with Queries(store) as queries:
        assert [(row.members, row.severity) for row in queries.clusters(sort="members").rows] == [
            (2, 7),
            (1, 7),
        ]
