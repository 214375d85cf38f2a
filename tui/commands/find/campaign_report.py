"""The report of a campaign as a file: Markdown or HTML that stands alone. Everything that came out of a
compiler is escaped.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import reason
from opsieve.gen.model.printable import counted, markdown, single_line
from opsieve.triage.store.queries import Queries
from opsieve.tui.commands.find.campaign_picture import Point, picture

if TYPE_CHECKING:
    from opsieve.triage.store.finished_test import Campaign
    from opsieve.triage.store.store import Store

_POINTS = 240  # of the picture
_NAME = "growth"  # what they are kept under
SUFFIXES = (".md", ".html")
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0"
    " 1em;color:#222}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em"
    " .6em;text-align:left;overflow-wrap:anywhere}svg{max-width:100%;height:auto}"
)


@dataclass(slots=True)
class Growth:
    """Seconds, tests and clusters, as a campaign goes on; points are thinned out so that it stays small."""

    points: list[Point] = field(default_factory=list)
    before: float = 0.0  # seconds of earlier runs
    _every: float = 0.5

    @classmethod
    def of(cls, store: "Store", campaign: "Campaign") -> "Growth":
        """What was kept of earlier runs of a campaign."""
        try:
            kept = json.loads(store.learnt(campaign).get(_NAME, "[]"))
            points = [(float(seconds), int(tests), int(clusters)) for seconds, tests, clusters in kept]
        except (ValueError, TypeError, OverflowError, RecursionError):
            points = []  # a picture is not worth a refusal
        return cls(points, points[-1][0] if points else 0.0)

    def note(self, seconds: float, tests: int, clusters: int) -> None:
        """So it stands after some seconds of this run."""
        now = self.before + seconds
        if self.points and now - self.points[-1][0] < self._every:
            return
        self.points.append((round(now, 2), tests, clusters))
        if len(self.points) > _POINTS:
            self.points, self._every = self.points[::2], 2 * self._every

    def finish(self, store: "Store", campaign: "Campaign", seconds: float, tests: int, clusters: int) -> None:
        """The run is over: keep it."""
        self.points.append((round(self.before + seconds, 2), tests, clusters))
        store.learn(campaign, {_NAME: json.dumps(self.points)})


def checked(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files to write; BadInput for one that is neither Markdown nor HTML, or whose folder is not
    there.
    """
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise BadInput(f"a report is Markdown or HTML: end {shown(path, 200)} in .md or .html")
        if not path.parent.is_dir():
            raise BadInput(
                f"there is no folder {shown(path.parent, 200)} for the report; make it, or name another file"
            )
    return tuple(paths)


def write_reports(
    paths: Sequence[Path], folder: Path, facts: Mapping[str, Any], growth: Sequence[Point]
) -> None:
    """Write the report of a campaign of the store at `folder` to files. BadInput when one cannot be
    written.
    """
    rows = new_clusters(folder, facts)
    for path in paths:
        try:
            as_html = path.suffix.lower() == ".html"
            path.write_text(html_report(facts, rows, growth) if as_html else markdown_report(facts, rows))
        except OSError as error:
            raise BadInput(f"cannot write {shown(path, 200)}: {reason(error)}") from None


def new_clusters(folder: Path, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The clusters that no earlier campaign has met, as they stand now: triage may have joined or moved some
    meanwhile.
    """
    rows = []
    with Queries(folder) as store:
        for item in facts["new_clusters"]:
            try:
                rows.append(asdict(store.cluster(item["cluster"])))
            except BadInput:
                continue
    return rows


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What a campaign did, in a few sentences."""
    new = len(facts["new_clusters"])
    again = max(0, facts["clusters"] - new)
    lines = [
        f"{counted(facts['tests'], 'test')} with seed {facts['seed']};"
        f" {counted(sum(facts['failures'].values()), 'failure')} in {counted(facts['clusters'], 'cluster')}:"
        f" {new} that no other campaign of the store has met, {again} met before."
    ]
    if "auto_triage" in facts:
        done = facts["auto_triage"]
        lines.append(
            f"Beside the hunt {counted(done['reduced'], 'case')} reduced, passes asked of"
            f" {done['attributed']}, releases of {done['bisected']}, in {done['seconds']:.0f} s."
        )
    lines += [
        f"{known['target']} fails at {known['feature']} again and again: such programs seldom go there"
        f" ({known['left_out']} left out)."
        for known in facts.get("known_failures", ())
    ]
    return lines


_CLUSTERS = ("cluster", "what", "target", "failures", "nodes", "pass", "first bad release")


def _cells(row: Mapping[str, Any]) -> list[str]:
    nodes = str(row["nodes"]) if row["reduced"] is None else f"{row['nodes']} to {row['reduced']}"
    targets = ", ".join(row["targets"])
    return [
        row["id"],
        row["title"],
        targets,
        str(row["members"]),
        nodes,
        row["guilty_pass"],
        row["first_bad"],
    ]


_TARGETS = ("target", "tests", "verdicts", "tests a second of its own time")


def _target_cells(facts: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            name,
            str(sum(each["verdicts"].values())),
            ", ".join(f"{count} {verdict}" for verdict, count in each["verdicts"].items()),
            str(each["tests_per_second"]),
        ]
        for name, each in facts["targets"].items()
    ]


_STRATEGIES = ("strategy", "tests", "new", "share of the next, in thousandths")


def _tables(
    facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    strategies = [
        [name, str(each["tests"]), str(each["new"]), str(each["share"])]
        for name, each in facts.get("strategies", {}).items()
    ]
    found = [
        ("New since the last campaign", _CLUSTERS, [_cells(row) for row in rows]),
        ("Targets", _TARGETS, _target_cells(facts)),
        ("Strategies", _STRATEGIES, strategies),
    ]
    return [table for table in found if table[2]]


def markdown_report(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The report as Markdown."""
    lines = ["# Campaign", "", *(markdown(sentence) + "\n" for sentence in sentences(facts))]
    for title, heads, table in _tables(facts, rows):
        lines += [f"## {title}", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        lines += [f"| {' | '.join(map(markdown, cells))} |" for cells in table]
        lines.append("")
    return "\n".join(lines)


def html_report(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], growth: Sequence[Point]) -> str:
    """The report as one HTML file that loads nothing."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>opsieve campaign</title>',
        (
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
            " 'unsafe-inline'\">"
        ),
        f"<style>{_STYLE}</style></head><body><h1>Campaign</h1>",
        *(f"<p>{_html(sentence)}</p>" for sentence in sentences(facts)),
        picture(growth),
    ]
    for title, heads, table in _tables(facts, rows):
        parts.append(f"<h2>{title}</h2><table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>")
        parts += ["<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in cells) + "</tr>" for cells in table]
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>\n"])


def _html(text: str) -> str:
    return html.escape(single_line(text))
