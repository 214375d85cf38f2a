"""The page on what opsieve has found, made from the collection alone."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from opsieve.backends.registry import resolve
from opsieve.backends.releases.installers import release_key
from opsieve.backends.target import Target
from opsieve.gen.model.printable import markdown
from opsieve.triage.corpus.corpus_file import Bug, CorpusEntry, latest, status

KINDS = {"crash": "crash", "mismatch": "wrong result", "error": "error"}
_STATUSES = ("live", "fixed", "not judged")
# That make a picture
_FEWEST_RELEASES = 4
# From the folder of the page
_CASES = "../samples"
_HEAD = """# What opsieve has found

<!-- Made by `opsieve bugs --page docs/found.md`; tests/cli/test_bugs.py compares it with the collection. -->

{live} of {distinct} distinct bugs are live in the newest judged release of their compiler; {fixed} are fixed.

    opsieve bugs                      # list them
    opsieve bugs replay --newest      # judge all of them on the newest releases
    opsieve sample NAME               # copy the case of one

"""
_METHOD = """## Method

A failure that the float64 reference and a second, independent implementation confirm is reduced. An engineer
then writes `confirm.py`, which shows the bug without opsieve in at most 30 lines. The tests run it where the
compiler is installed, and a scheduled workflow replays every case on the newest releases.

## What counts

One bug is one faulty place in the source or one faulty pass. The same pass with other operators is a second
bug only if its fix differs. A second case of a bug is marked "same as" and not counted. Missing operators and
types that a compiler reports, results that ONNX leaves open, and limits of opsieve itself do not count.

## Bugs

Each bug is a folder of [samples](../samples) with the case, its `confirm.py` and the text of an issue. The
site lists them below; `opsieve bugs` prints one line for each, and with `--json` all facts.

"""
# In the order of a table's columns
_COUNTED_KINDS = ("crash", "wrong result", "error", "other")


def found_page(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    """Return the page in Markdown: counts, releases, method, and a row of numbers for each compiler.

    Its length does not depend on the number of bugs; `list_bugs` makes the list.
    """
    counted = {name: (entry, bug) for name, (entry, bug) in bugs.items() if not bug.same_as}
    statuses = Counter(status(entry, bug) for entry, bug in counted.values())
    head = _HEAD.format(live=statuses["live"], distinct=len(counted), fixed=statuses["fixed"])
    return head + _count_bugs(counted) + _releases(counted) + _METHOD


def kind_of(entry: CorpusEntry, bug: Bug) -> str:
    """Return the kind of failure on the target on which the bug was found."""
    seen = entry.targets.get(bug.fails)
    return KINDS.get(seen.kind or "", seen.kind or "") if seen else ""


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
        counts = {release: sum(_is_live(bug, release) for _, bug in known) for release in releases}
        # Only the releases where the count changes, and the newest: a diagram has room for a dozen.
        changes = [pair[1] for pair in pairwise(releases) if counts[pair[0]] != counts[pair[1]]]
        releases = list(dict.fromkeys([releases[0], *changes, releases[-1]]))
        lives = [counts[release] for release in releases]
        parts.append(
            f"{package}, {len(known)} bugs whose first bad release is known:\n\n```mermaid\nxychart-beta\n"
            f"    x-axis [{','.join(f'{release!r}' for release in releases)}]\n".replace("'", '"')
            + f'    y-axis "live bugs" 0 --> {max(lives) + 1}\n    bar'
            f" [{', '.join(map(str, lives))}]\n```\n\n"
        )
    return "## Live bugs by release\n\n" + "".join(parts) if parts else ""


def _is_live(bug: Bug, release: str) -> bool:
    """Return whether a release has a bug, by its first bad release and its fix."""
    begins = release_key(bug.first_bad) <= release_key(release)
    return begins and not (bug.fixed_in and release_key(bug.fixed_in) <= release_key(release))


def _count_bugs(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    """Count the bugs of each compiler by status and by kind, in a table."""
    rows: dict[str, Counter[str]] = {}
    for entry, bug in bugs.values():
        words = [status(entry, bug), kind_of(entry, bug) or "other"]
        for name in (Target.parse(bug.fails).backend, "all"):
            rows.setdefault(name, Counter()).update(words)
    columns = (*_STATUSES, *_COUNTED_KINDS)
    lines = [
        f"| {' | '.join(['compiler', *columns])} |",
        f"|---|{'---:|' * len(columns)}",
        *(
            f"| {name} | {' | '.join(str(counts[column] or '') for column in columns)} |"
            for name, counts in sorted(rows.items(), key=lambda row: (-row[1].total(), row[0]))
        ),
    ]
    return "\n".join(lines) + "\n\n"


def list_bugs(bugs: Mapping[str, tuple[CorpusEntry, Bug]]) -> str:
    """List the cases by compiler, each as one bullet, in Markdown. Live is not said, because most are."""
    compilers: dict[str, list[str]] = {}
    for name, (entry, bug) in bugs.items():
        state = f"same as {bug.same_as}" if bug.same_as else status(entry, bug)
        facts = [
            bug.first_bad and f"since {bug.first_bad}",
            bug.fixed_in and f"fixed in {bug.fixed_in}" + f" ({bug.fixed_on})" * bool(bug.fixed_on),
            bug.guilty,
        ]
        # A line that begins with a dash would become an item of a list.
        what = markdown(bug.what).replace(" - ", " \\- ")
        text = (
            f"- [{name}]({_CASES}/{name}): "
            + f"{markdown(state)}. " * (state != "live")
            + what
            + f" ({'; '.join(markdown(fact) for fact in facts if fact)})" * any(facts)
            + f" [issue]({bug.upstream})" * bug.upstream.startswith("https://github.com/")
        )
        compilers.setdefault(Target.parse(bug.fails).backend, []).append(text)
    return "\n".join(
        f"### {compiler}\n\n" + "\n".join(sorted(items)) + "\n"
        for compiler, items in sorted(compilers.items())
    )
