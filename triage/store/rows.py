"""Rows that the index and the queries of a store return, and the names of its clusters and failures."""

from dataclasses import dataclass
from pathlib import Path

from opsieve.backends.observation import Observation
from opsieve.gen.model.printable import rows_table
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.known.issues import ProbableIssue


def format_cluster(cluster: int) -> str:
    """Return the name of a cluster: `c17`."""
    return f"c{cluster}"


def format_member(campaign: str, test: int, target: str) -> str:
    """Return the name of a failure, with or without a kept case: `CAMPAIGN:TEST:TARGET`."""
    return f"{campaign}:{test}:{target}"


CLUSTER_HEADS = ("id", "status", "kind", "compiler", "failures", "nodes", "title")


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster. Times are seconds since 1970, sizes nodes; `reduced` is None until a member is reduced.

    `title` is the title to show, `own_title` the one made from the fingerprint. `status` is `known` for a new
    cluster that a rule explains. `representative` is the case folder, relative to the store, of the smallest
    (reduced) member; "" without a kept case.
    """

    id: str
    title: str
    own_title: str
    kind: str
    backend: str
    stage: str
    status: str
    issue: str
    note: str
    pinned: bool
    rule: str
    members: int
    fingerprints: int
    nodes: int
    reduced: int | None
    representative: str
    targets: tuple[str, ...]
    operators: tuple[str, ...]
    guilty_pass: str
    first_bad: str
    first_seen: float
    last_seen: float
    severity: int
    rank: int
    # Public issues that it probably is, the likeliest first
    probably: tuple[ProbableIssue, ...] = ()

    @property
    def number(self) -> int:
        """The number in the id: 17 of `c17`."""
        return int(self.id[1:])

    @property
    def cells(self) -> tuple[object, ...]:
        """The cells under `CLUSTER_HEADS`; `*` means pinned, `nodes` are those of the smallest case."""
        nodes = self.nodes if self.reduced is None else self.reduced
        name = f"{self.id}{'*' if self.pinned else ''}"
        return (name, self.status, self.kind, self.backend, self.members, nodes, self.listed_title)

    @property
    def listed_title(self) -> str:
        """The title in lists: prefixed by the cluster's probable public issue until a person decides."""
        return (
            f"[probably {self.probably[0].name}] {self.title}"
            if self.probably and self.status == "new"
            else self.title
        )


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Rows, how many the filter lets through in all, and where the next page begins ("": this is the
    last).
    """

    rows: tuple[ClusterRow, ...]
    total: int
    next: str

    def _repr_html_(self) -> str:
        """The rows as a table, for notebooks."""
        return (
            rows_table(CLUSTER_HEADS, [row.cells for row in self.rows])
            + f"<p>{len(self.rows):,} of {self.total:,}</p>"
        )


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A failure. `folder` is its case folder, relative to the store; "" if it was only counted."""

    campaign: str
    test: int
    target: str
    version: str
    verdict: str
    kind: str
    stage: str
    fingerprint: str
    message: str
    reason: str
    blame: str
    digest: str
    folder: str
    seen: float
    nodes: int
    reduced: int | None
    operators: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name for commands: the case folder, or `CAMPAIGN:TEST:TARGET`."""
        return self.folder or format_member(self.campaign, self.test, self.target)


@dataclass(frozen=True, slots=True)
class MemberPage:
    """As ClusterPage; `total` are all members of the cluster."""

    rows: tuple[MemberRow, ...]
    total: int
    next: str


@dataclass(frozen=True, slots=True)
class FingerprintRow:
    """A fingerprint of a cluster; `why` explains its membership."""

    key: str
    number: int
    version: int
    title: str
    count: int
    kept: int
    apart: bool
    first_seen: float
    last_seen: float
    components: tuple[Component, ...]
    why: str


@dataclass(frozen=True, slots=True)
class BlamedCommit:
    """A commit that a search found (`share` 1) or suspects with that probability; `subject` is the author's
    text.
    """

    sha: str
    subject: str
    share: float

    def __str__(self) -> str:
        return f"{self.sha} {self.subject}" + ("" if self.share == 1 else f" ({self.share:.0%})")


@dataclass(frozen=True, slots=True)
class CaseDetails:
    """A failure with its files.

    `folder` and `reduced` are case folders to load (`opsieve.gen.case.case.load`), or None. `observations`
    are the stored ones (without outputs), that of the blamed target first; `problem` explains their absence.
    `commits` caused the failure, or are suspected.
    """

    member: MemberRow
    cluster: str
    folder: Path | None
    reduced: Path | None
    components: tuple[Component, ...]
    observations: tuple[Observation, ...]
    problem: str
    commits: tuple[BlamedCommit, ...] = ()


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """A cluster that looks like another: how much, from 0 to 1, and why."""

    cluster: ClusterRow
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """A value of the grouping property, with its numbers of clusters and failures."""

    value: str
    clusters: int
    members: int


@dataclass(frozen=True, slots=True)
class Counts:
    """A store in figures. `verdicts` count answers, test by target; failures, clusters and rules are of
    confirmed failures.
    """

    tests: int
    failures: int
    clusters: int
    by_status: dict[str, int]
    failures_by_kind: dict[str, int]
    clusters_by_kind: dict[str, int]
    verdicts: dict[str, int]
    unsupported: int
    environment: int
    flaky: int
    rules: dict[str, int]
    unexplained: int


@dataclass(frozen=True, slots=True)
class NonBugRow:
    """An entry of verdicts that are not confirmed bugs: the missing feature as a template, its first message,
    and a count.

    For flaky failures `what` is the title, `target` all targets, and `case` the folder of the first one,
    relative to the store ("": not kept).
    """

    target: str
    verdict: str
    what: str
    message: str
    count: int
    case: str = ""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of a known bug and the number of failures that it explains."""

    name: str
    title: str
    issue: str
    count: int


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """A campaign and the number of its finished tests."""

    id: str
    generator: str
    seed: int
    targets: tuple[str, ...]
    done: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of the log; `text` is a sentence, `state` is `done`, `undone`, or `dropped` (undone for
    good).
    """

    id: int
    at: float
    action: str
    text: str
    state: str


@dataclass(frozen=True, slots=True)
class KeptCase:
    """A failure with a kept case: its row, its place in the store, and the index's facts about it and its
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
    """A fingerprint: number, cluster (None: flaky), whether it stays out of other clusters, failures, cases,
    components.
    """

    key: str
    number: int
    cluster: int | None
    apart: int
    count: int
    kept: int
    components: tuple[Component, ...]


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
class Candidate:
    """A kept case to reduce: its folder in the store, the failing target, its fingerprint, cluster and nodes,
    its test, and a reduced case of the same test ("" for none).
    """

    place: str
    target: str
    fingerprint: str
    cluster: str
    nodes: int
    test: str = ""
    reduced_twin: str = ""
