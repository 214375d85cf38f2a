"""The page on what opsieve has found, made from the collection alone."""

from collections import Counter
from collections.abc import Mapping

from opsieve.backends.registry import resolve
from opsieve.backends.releases.installers import release_key
from opsieve.backends.target import Target
from opsieve.gen.model.printable import markdown
from opsieve.triage.corpus.collection import latest, status
from opsieve.triage.corpus.corpus_file import Bug, CorpusEntry

KINDS = {"crash": "crash", "mismatch": "wrong result", "error": "error"}
_STATUSES = ("live", "fixed", "not judged")
_FEWEST_RELEASES = 4  # that make a picture
_CASES = "../samples"  # from the folder of the page
_HEAD = """# What opsieve has found

<!-- Made by `opsieve bugs --page docs/found.md`; tests/cli/test_bugs.py compares it with the collection. -->

{live} of {distinct} distinct bugs are live in the newest release that was judged of their compiler, and {fixed} are fixed.
`opsieve bugs` lists them, `opsieve bugs replay --newest` judges all of them on the newest releases, and `opsieve sample NAME` copies one.

"""
_METHOD = """## Method

opsieve generates programs that a compiler supports and judges each one with the ONNX reference evaluator in float64 and an independent
implementation. A failure that both confirm, and that repeats in a fresh process, is reduced to the smallest program that still shows it.
Attribution and bisection name the guilty pass and the first bad release. A person reads the reduced program and writes `confirm.py`, at
most 30 lines that confirm the bug with numpy, onnxruntime or the compiler's own API, without opsieve. A scheduled workflow replays every
case on the newest releases, and the tests run every `confirm.py` whose compiler is installed.

## What counts

One bug is one faulty place in the source or one faulty pass: the same pass with other operators counts once unless the fixes differ. A
second case of a bug is kept and marked "same as", and not counted. Operators and types that a compiler states it lacks, results that ONNX
leaves open, and limits of opsieve itself are no bugs.

"""


def found_page(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    """Return the page in Markdown: totals, releases, method, and a row for each case."""
    counted = {name: (entry, bug) for name, (entry, bug) in bugs.items() if not bug.same_as}
    statuses = Counter(status(entry, bug) for entry, bug in counted.values())
    head = _HEAD.format(live=statuses["live"], distinct=len(counted), fixed=statuses["fixed"])
    return head + _totals(counted) + _releases(counted) + _METHOD + _rows(bugs)


def kind_of(entry: CorpusEntry, bug: Bug) -> str:
    """Return the kind of failure on the target on which the bug was found."""
    seen = entry.targets.get(bug.fails)
    return KINDS.get(seen.kind or "", seen.kind or "") if seen else ""


def _totals(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    counts: dict[str, Counter[str]] = {}
    for entry, bug in bugs.values():
        row = counts.setdefault(Target.parse(bug.fails).backend, Counter())
        row.update([status(entry, bug), kind_of(entry, bug)])
    columns = [*_STATUSES, *KINDS.values()]
    rows = [(name, *(str(row[column]) for column in columns)) for name, row in sorted(counts.items())]
    total = Counter(column for row in counts.values() for column in row.elements())
    rows.append(("all", *(str(total[column]) for column in columns)))
    return "## By compiler and kind\n\n" + _table(("compiler", *columns), rows)


def _releases(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    """Draw how many bugs were live in each release, for packages whose bugs have a known first bad
    release.
    """
    packages: dict[str, list[tuple[CorpusEntry, Bug]]] = {}
    for entry, bug in bugs.values():
        if bug.first_bad:
            packages.setdefault(resolve(bug.fails).facts.package, []).append((entry, bug))
    parts = []
    for package, known in sorted(packages.items()):
        targets = [Target.parse(text) for entry, bug in known for text in (bug.fails, latest(entry, bug)[0])]
        ends = {release for _, bug in known for release in (bug.first_bad, bug.fixed_in)}
        releases = sorted((ends | {target.release for target in targets}) - {""}, key=release_key)
        if len(releases) < _FEWEST_RELEASES:
            continue
        lives = [sum(_is_live(bug, release) for _, bug in known) for release in releases]
        parts.append(
            f"{package}, {len(known)} bugs whose first bad release is known:\n\n```mermaid\nxychart-beta\n"
            f"    x-axis [{', '.join(f'{release!r}' for release in releases)}]\n".replace("'", '"')
            + f'    y-axis "live bugs" 0 --> {max(lives) + 1}\n    bar [{", ".join(map(str, lives))}]\n```\n\n'
        )
    return "## Live bugs by release\n\n" + "".join(parts) if parts else ""


def _is_live(bug: Bug, release: str) -> bool:
    """Return whether a release has a bug, by its first bad release and its fix."""
    begins = release_key(bug.first_bad) <= release_key(release)
    return begins and not (bug.fixed_in and release_key(bug.fixed_in) <= release_key(release))


def _rows(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    columns = (
        "bug",
        "status",
        "found on",
        "kind",
        "operators",
        "guilty",
        "since",
        "fixed in",
        "what goes wrong",
    )
    rows = []
    for name, (entry, bug) in bugs.items():
        target, seen = latest(entry, bug)
        state = f"same as {bug.same_as}" if bug.same_as else status(entry, bug)
        issue = f" ([issue]({bug.upstream}))" if bug.upstream.startswith("https://github.com/") else ""
        rows.append(
            (
                f"[{name}]({_CASES}/{name}) ([confirm]({_CASES}/{name}/confirm.py))",
                f"{state}, {Target.parse(target).release}" if seen else state,
                *map(markdown, (bug.fails, kind_of(entry, bug), ", ".join(bug.operators), bug.guilty)),
                bug.first_bad,
                f"{bug.fixed_in} ({bug.fixed_on})" if bug.fixed_on else bug.fixed_in,
                markdown(bug.what) + issue,
            )
        )
    return "## Bugs\n\n" + _table(columns, rows).rstrip("\n") + "\n"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"
