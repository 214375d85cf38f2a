"""A store as one self-contained HTML page: a searchable list of clusters, each with its facts, graph and
script.

The page loads nothing: its policy forbids that, and allows only the script below, by its digest. Text from
compilers and models is escaped. Without JavaScript the list works and the search does not. Pure.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opsieve.gen.model.printable import count_noun, escape_markup, escaped_lines, facts_table
from opsieve.triage.store.rows import ClusterRow, Counts, FingerprintRow, MemberRow
from opsieve.tui.app.widgets.visible import format_time

# Characters of a text
_CUT = 4000
# `color-scheme` makes the page follow the reader's light or dark setting.
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em}
input{font:inherit;width:100%;box-sizing:border-box;padding:.4em .6em}
details{border-top:1px solid #8886}summary{padding:.35em 0;cursor:pointer;overflow-wrap:anywhere}
summary b{display:inline-block;min-width:4em}summary i{font-style:normal;opacity:.7;margin-right:.6em}
summary:focus-visible,input:focus-visible{outline:2px solid #2f6f9f}
table{border-collapse:collapse;margin:.4em 0}
td,th{border:1px solid #8886;padding:.15em .6em;text-align:left;overflow-wrap:anywhere}
th{font-weight:normal;opacity:.8;white-space:nowrap;overflow-wrap:normal}
pre{overflow:auto;max-height:32em;border:1px solid #8886;padding:.6em;font-size:13px;line-height:1.35}
[hidden]{display:none}
"""
# The same fields as the filter of the app, so that a search can be copied from one to the other.
_SCRIPT = """
const box = document.getElementById('search'), shown = document.getElementById('shown');
const clusters = [...document.querySelectorAll('details.cluster')];
const texts = clusters.map(one => one.dataset.text);
function look() {
  const terms = box.value.toLowerCase().split(/\\s+/).filter(term => term);
  let count = 0;
  clusters.forEach((one, at) => {
    const found = terms.every(term => {
      const not = term.startsWith('-') && term.length > 1, word = not ? term.slice(1) : term;
      const field = word.match(/^(kind|status|stage|target|op|pass|id):(.+)$/);
      const sought = field && (field[1] === 'target' ? field[2] : ' ' + field[2] + ' ');
      const has = field ? (' ' + one.dataset[field[1]] + ' ').includes(sought) : texts[at].includes(word);
      return has !== not;
    });
    one.hidden = !found;
    count += found;
  });
  shown.textContent = count + ' of ' + clusters.length;
}
function unfold() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named && named.tagName === 'DETAILS') {
    named.hidden = false;
    named.open = true;
    named.scrollIntoView();
  }
}
document.getElementById('bar').hidden = false;
box.addEventListener('input', look);
addEventListener('hashchange', unfold);
look();
unfold();
"""


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """The page's data about a cluster; `graph` and `script` may be "", and `problem` then says why."""

    row: ClusterRow
    prints: Sequence[FingerprintRow]
    members: Sequence[MemberRow]
    message: str = ""
    commits: Sequence[str] = ()
    graph: str = ""
    script: str = ""
    problem: str = ""


def write_page(name: str, counts: Counts, clusters: Sequence[StoredCluster], total: int, made: float) -> str:
    """Write the page of a store of this name; `total` is its number of clusters, `made` the time in seconds
    since 1970.
    """
    # By its digest: an inline script that a text smuggles in would not run.
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    kinds = ", ".join(f"{many} {kind}" for kind, many in counts.clusters_by_kind.items()) or "none"
    statuses = ", ".join(f"{many} {status}" for status, many in counts.by_status.items())
    # Said, because a search in the page finds only what it holds.
    cut = f" The first {len(clusters):,} are listed." if len(clusters) < total else ""
    # No template engine: the page has one loop, and everything that comes from outside is escaped where it
    # enters.
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>opsieve: {escape_markup(name)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape_markup(name)}</h1>",
            (
                f"<p>{count_noun(counts.failures, 'failure')} of {count_noun(counts.tests, 'test')} in"
                f" {count_noun(total, 'cluster')} ({escape_markup(kinds)};"
                f" {escape_markup(statuses)}).{cut} Not bugs:"
                f" {counts.unsupported:,} unsupported, {counts.environment:,} environment, {counts.flaky:,}"
                f" flaky. {format_time(made)} UTC.</p>"
            ),
            (
                '<p id="bar" hidden><label for="search">Search: words, or kind: status: stage: target: op:'
                ' pass: id:, a leading - negates (<span id="shown"></span>)</label><input id="search"'
                ' type="search" autocomplete="off"></p>'
            ),
            *(part for cluster in clusters for part in _write_cluster(cluster)),
            f"<script>{_SCRIPT}</script></body></html>\n",
        ]
    )


def _list_facts(one: StoredCluster) -> list[tuple[str, str]]:
    """Return the (name, value) rows of a cluster's table."""
    row = one.row
    size = (
        count_noun(row.nodes, "node")
        if row.reduced is None
        else f"{count_noun(row.reduced, 'node')}, reduced"
    )
    seen = f"{format_time(row.first_seen)} to {format_time(row.last_seen)}" if row.last_seen else ""
    return [
        ("kind", f"{row.kind} at {row.stage}" if row.stage else row.kind),
        ("message", one.message),
        ("failures", f"{row.members:,}, {count_noun(row.fingerprints, 'fingerprint')}"),
        ("seen", seen),
        ("targets", ", ".join(row.targets)),
        ("smallest", f"{size}: {' '.join(row.operators)}"),
        ("guilty pass", row.guilty_pass),
        ("first bad", row.first_bad),
        ("commits", "; ".join(one.commits)),
        ("rule", row.rule),
        ("issue", row.issue),
        ("note", row.note),
        *(
            ("probably", f"{known.name}: {known.title}; {'; '.join(known.reasons)}; {known.url}")
            for known in row.probably
        ),
    ]


def _write_cluster(one: StoredCluster) -> Iterator[str]:
    row = one.row
    words = " ".join(
        (
            row.id,
            row.listed_title,
            row.own_title,
            one.message,
            row.note,
            *row.operators,
            *row.targets,
            row.guilty_pass,
        )
    )
    fields = {
        # Each cluster carries its text a second time, for the search.
        "text": words[:_CUT],
        "kind": row.kind,
        "status": row.status,
        "stage": row.stage,
        "target": " ".join(row.targets),
        "op": " ".join(row.operators),
        "pass": row.guilty_pass,
        "id": row.id,
    }
    # In lower case, since the script compares with `includes`.
    data = " ".join(f'data-{name}="{escape_markup(value.lower())}"' for name, value in fields.items())
    yield f'<details class="cluster" id="{escape_markup(row.id)}" {data}>'
    yield (
        f"<summary><b>{escape_markup(row.id)}</b><i>{escape_markup(row.status)}</i>"
        f"<i>{escape_markup(row.kind)}</i><i>{row.members:,}</i>{escape_markup(row.listed_title)}</summary>"
    )
    yield facts_table(_list_facts(one))
    for title, text in (("Graph", one.graph), ("Script", one.script)):
        if text:
            yield f"<details open><summary>{title}</summary><pre>{escaped_lines(text)}</pre></details>"
    if one.problem:
        yield f"<p>{escape_markup(one.problem)}</p>"
    for each in one.prints:
        yield (
            f"<details><summary>Why: {escape_markup(each.key)}, {count_noun(each.count, 'failure')};"
            f" {escape_markup(each.why)}</summary>"
        )
        yield facts_table(
            [
                *(
                    (("+ " if part.kept else "- ") + part.name, f"{part.value} ({part.hint})")
                    for part in each.components
                )
            ]
        )
        yield "</details>"
    heads = "".join(f"<th>{head}</th>" for head in ("member", "nodes", "target", "version"))
    yield (
        f"<details><summary>{len(one.members)} of"
        f" {count_noun(row.members, 'member')}</summary><table><tr>{heads}</tr>"
    )
    for member in one.members:
        nodes = str(member.nodes) if member.reduced is None else f"{member.nodes} to {member.reduced}"
        cells = (member.name, nodes, member.target, member.version)
        yield "<tr>" + "".join(f"<td>{escape_markup(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></details></details>"
