"""What the index answers with to those who change it."""

from dataclasses import dataclass

from opsieve.triage.fingerprint.component import Component


@dataclass(frozen=True, slots=True)
class KeptCase:
    """A failure whose case is kept: its row, its place in the store, and what the index has of it and its
    fingerprint.
    """

    row: int
    place: str
    reduced: int | None
    key: str
    cluster: int | None
    guilty_pass: str
    first_bad: str


@dataclass(frozen=True, slots=True)
class FingerprintPlace:
    """Where a fingerprint stands: its number, its cluster (None: flaky), whether it joins nothing by itself,
    and its failures.
    """

    key: str
    number: int
    cluster: int | None
    apart: int
    count: int


@dataclass(frozen=True, slots=True)
class VersionCount:
    """The failures of one fingerprint under one version of the compiler, counted."""

    key: str
    number: int
    kind: str
    stage: str
    message: str
    guilty_pass: str
    version: str
    many: int
    cluster: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the rank of a cluster depends on."""

    id: int
    severity: int
    targets: str
    reduced: int | None
    nodes: int
    members: int
    kind: str
    stage: str
    title: str
    operators: str
    guilty_pass: str
    status: str
    rule: str
    pinned: int


@dataclass(frozen=True, slots=True)
class FingerprintToReduce:
    """A fingerprint whose cluster is open: its components, the rank and the number of the cluster, and its
    kept cases, the smallest first, each with its place, target, nodes, and nodes once reduced.
    """

    key: str
    components: tuple[Component, ...]
    rank: int
    cluster: int
    cases: tuple[tuple[str, str, int, int | None], ...]
