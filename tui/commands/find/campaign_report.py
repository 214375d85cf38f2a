"""The report of a campaign as a self-contained Markdown or HTML file, with an SVG picture of tests and
clusters over time. Text from compilers is escaped.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import durable, printable
from opsieve.triage.store.queries import Queries

if TYPE_CHECKING:
    from opsieve.triage.store.finished_test import Campaign
    from opsieve.triage.store.store import Store


WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 56, 28, 40
# Blue and orange, which those who see no red can tell apart; one line is dashed.
_TESTS_COLOUR, _CLUSTERS_COLOUR = (
    "#2f6f9f",
    "#b3541e",
)

# seconds, tests, clusters
Point = tuple[float, int, int]


def draw_picture(growth: Sequence[Point]) -> str:
    """Draw the picture; its data are numbers only."""
    points = [(0.0, 0, 0), *growth]
    # No division by zero in a campaign that has just begun.
    seconds = max(1.0, max(point[0] for point in points))
    tests = max(1, *(point[1] for point in points))
    clusters = max(1, *(point[2] for point in points))
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def draw_line(place: int, most: int) -> str:
        return " ".join(
            f"{_LEFT + wide * point[0] / seconds:.1f},{_TOP + high * (1 - point[place] / most):.1f}"
            for point in points
        )

    right, floor = _LEFT + wide, _TOP + high
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
                ' role="img" font-family="sans-serif" font-size="12">'
            ),
            (
                f"<title>{printable.count_noun(tests, 'test')} and"
                f" {printable.count_noun(clusters if growth else 0, 'cluster')} over"
                f" {_format_time(seconds)}</title>"
            ),
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<path d="M{_LEFT} {_TOP}V{floor}H{right}V{_TOP}" fill="none" stroke="#888888"/>',
            f'<polyline points="{draw_line(1, tests)}" fill="none" stroke="{_TESTS_COLOUR}"'
            ' stroke-width="2"/>',
            (
                f'<polyline points="{draw_line(2, clusters)}" fill="none" stroke="{_CLUSTERS_COLOUR}"'
                ' stroke-width="2"'
                ' stroke-dasharray="6 3"/>'
            ),
            f'<text x="{_LEFT}" y="{_TOP - 10}" fill="{_TESTS_COLOUR}">tests</text>',
            (
                f'<text x="{right}" y="{_TOP - 10}" text-anchor="end" fill="{_CLUSTERS_COLOUR}">clusters'
                " (dashed)</text>"
            ),
            f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end" fill="{_TESTS_COLOUR}">{tests:,}</text>',
            f'<text x="{_LEFT - 6}" y="{floor + 4}" text-anchor="end" fill="#444444">0</text>',
            f'<text x="{right + 6}" y="{_TOP + 4}" fill="{_CLUSTERS_COLOUR}">{clusters:,}</text>',
            f'<text x="{right}" y="{HEIGHT - 14}" text-anchor="end"'
            f' fill="#444444">{_format_time(seconds)}</text>',
            "</svg>",
        ]
    )


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Of the picture
_POINTS = 240
# The name under which they are stored.
_NAME = "growth"
SUFFIXES = (".md", ".html")
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0"
    " 1em;color:#222}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em"
    " .6em;text-align:left;overflow-wrap:anywhere}svg{max-width:100%;height:auto}"
)


@dataclass(slots=True)
class Growth:
    """Seconds, tests and clusters over the campaign, thinned out to a bounded number of points.

    `before` are the seconds of earlier runs.
    """

    points: list[Point] = field(default_factory=list)
    # Seconds of earlier runs
    before: float = 0.0
    _every: float = 0.5

    @classmethod
    def read_earlier(cls, store: "Store", campaign: "Campaign") -> "Growth":
        """Read the points of earlier runs of a campaign."""
        try:
            kept = json.loads(store.read_state(campaign).get(_NAME, "[]"))
            points = [(float(seconds), int(tests), int(clusters)) for seconds, tests, clusters in kept]
        except (ValueError, TypeError, OverflowError, RecursionError):
            # A picture is not worth a refusal
            points = []
        return cls(points, points[-1][0] if points else 0.0)

    def add_point(self, seconds: float, tests: int, clusters: int) -> None:
        """Add a point after some seconds of this run."""
        now = self.before + seconds
        if self.points and now - self.points[-1][0] < self._every:
            return
        self.points.append((round(now, 2), tests, clusters))
        # Every second point goes, so that the picture stays evenly spaced.
        if len(self.points) > _POINTS:
            self.points, self._every = self.points[::2], 2 * self._every

    def write_points(
        self, store: "Store", campaign: "Campaign", seconds: float, tests: int, clusters: int
    ) -> None:
        """Keep the points at the end of the run."""
        self.points.append((round(self.before + seconds, 2), tests, clusters))
        store.write_state(campaign, {_NAME: json.dumps(self.points)})


def check_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files to write.

    Raises:
        BadInput: For a file other than Markdown or HTML, or one that cannot be written.
    """
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise BadInput(f"a report is Markdown or HTML: end {shown(path, 200)} in .md or .html")
        durable.check_output(path)
    return tuple(paths)


def write_reports(
    paths: Sequence[Path], folder: Path, facts: Mapping[str, Any], growth: Sequence[Point]
) -> None:
    """Write the report of a campaign of the store at `folder` to files.

    Raises:
        BadInput: If one cannot be written.
    """
    rows = list_new_clusters(folder, facts)
    for path in paths:
        as_html = path.suffix.lower() == ".html"
        text = write_html(facts, rows, growth) if as_html else write_markdown(facts, rows)
        durable.write_output(path, text)


def list_new_clusters(folder: Path, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the clusters that only this campaign has met, in their current state after triage."""
    rows = []
    with Queries(folder) as store:
        for item in facts["new_clusters"]:
            try:
                # A cluster may have been merged since.
                rows.append(asdict(store.cluster(item["cluster"])))
            except BadInput:
                continue
    return rows


def write_sentences(facts: Mapping[str, Any]) -> list[str]:
    """Describe a campaign in a few sentences."""
    new = len(facts["new_clusters"])
    again = max(0, facts["clusters"] - new)
    lines = [
        f"{printable.count_noun(facts['tests'], 'test')} with seed {facts['seed']};"
        f" {printable.count_noun(sum(facts['failures'].values()), 'failure')} in"
        f" {printable.count_noun(facts['clusters'], 'cluster')}:"
        f" {new} that no other campaign of the store has met, {again} met before."
    ]
    if "auto_triage" in facts:
        done = facts["auto_triage"]
        lines.append(
            f"Auto-triage: {done['reduced']} reduced, {done['attributed']} attributed,"
            f" {done['bisected']} bisected, in {done['seconds']:.0f} s."
        )
    lines += [
        f"Rewrites of optimisers: {states['met']:,} of {states['of']:,} states built."
        for states in (facts.get("states"),)
        if states and states["met"]
    ]
    lines += [
        f"{known['target']} keeps failing at {known['feature']}:"
        f" {printable.count_noun(known['left_out'], 'such program')} withheld."
        for known in facts.get("known_failures", ())
    ]
    return lines


_CLUSTERS = ("cluster", "what", "target", "failures", "nodes", "pass", "first bad release")


def _make_cells(row: Mapping[str, Any]) -> list[str]:
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


_STRATEGIES = ("strategy", "tests", "new", "share of the next, in thousandths")


def _make_tables(
    facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    strategies = [
        [name, str(each["tests"]), str(each["new"]), str(each["share"])]
        for name, each in facts.get("strategies", {}).items()
    ]
    found = [
        ("New since the last campaign", _CLUSTERS, [_make_cells(row) for row in rows]),
        (
            "Targets",
            _TARGETS,
            [
                [
                    name,
                    str(sum(each["verdicts"].values())),
                    ", ".join(f"{count} {verdict}" for verdict, count in each["verdicts"].items()),
                    str(each["tests_per_second"]),
                ]
                for name, each in facts["targets"].items()
            ],
        ),
        ("Strategies", _STRATEGIES, strategies),
    ]
    return [table for table in found if table[2]]


def write_markdown(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the report as Markdown."""
    lines = ["# Campaign", "", *(printable.markdown(sentence) + "\n" for sentence in write_sentences(facts))]
    for title, heads, table in _make_tables(facts, rows):
        lines += [f"## {title}", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        lines += [f"| {' | '.join(map(printable.markdown, cells))} |" for cells in table]
        lines.append("")
    return "\n".join(lines)


def write_html(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], growth: Sequence[Point]) -> str:
    """Write the report as one HTML file that loads nothing else."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>opsieve campaign</title>',
        (
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
            " 'unsafe-inline'\">"
        ),
        f"<style>{_STYLE}</style></head><body><h1>Campaign</h1>",
        *(f"<p>{_escape_html(sentence)}</p>" for sentence in write_sentences(facts)),
        draw_picture(growth),
    ]
    for title, heads, table in _make_tables(facts, rows):
        parts.append(f"<h2>{title}</h2><table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>")
        parts += [
            "<tr>" + "".join(f"<td>{_escape_html(cell)}</td>" for cell in cells) + "</tr>" for cells in table
        ]
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>\n"])


def _escape_html(text: str) -> str:
    return html.escape(printable.single_line(text))
