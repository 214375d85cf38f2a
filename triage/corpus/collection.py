"""The collection of bugs: a corpus whose entries state the bug that each case shows."""

from dataclasses import replace
from pathlib import Path

from opsieve.backends.target import Target
from opsieve.backends.verdict import FAILING, JUDGED
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.corpus.corpus_file import Bug, CorpusEntry, read_corpus
from opsieve.triage.corpus.states import SeenVerdict, get_place


def read_bugs(folder: Path) -> dict[str, tuple[CorpusEntry, Bug]]:
    """Return the cases of a collection by name; BadInput when the folder holds no corpus with bugs."""
    bugs = {name: (entry, entry.bug) for name, entry in read_corpus(folder).items() if entry.bug is not None}
    if not bugs:
        raise BadInput(f"the corpus {shown(folder, 200)} states no bugs")
    return bugs


def latest(entry: CorpusEntry, bug: Bug) -> tuple[str, SeenVerdict | None]:
    """Return the target of the newest release that judged a bug, and its verdict; None without a record."""
    asked = replace(Target.parse(bug.fails), release="")
    alike = [
        (get_place(target, seen) or (), text, seen)
        for text, seen in entry.targets.items()
        if (target := Target.parse(text)) and replace(target, release="") == asked and seen.verdict in JUDGED
    ]
    return max(alike, key=lambda record: record[0])[1:] if alike else (bug.fails, None)


def status(entry: CorpusEntry, bug: Bug) -> str:
    """Return what the newest release on record makes of a bug: live, fixed or not judged."""
    seen = latest(entry, bug)[1]
    if seen is None:
        return "not judged"
    return "live" if seen.verdict in FAILING else "fixed"
