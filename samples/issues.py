"""Write the text of an issue, README.md, of samples anew, as `opsieve export --as issue` writes it.

    python samples/issues.py [NAME ...]

Installs the releases that the samples name. What corpus.json knows of a bug is part of its text: the first
bad release, the release that fixed it, and the guilty pass if the failure is gone without it.
"""

import sys
from dataclasses import replace
from pathlib import Path

from demo import SAMPLES

from opsieve.backends.registry import resolve
from opsieve.backends.releases.installers import release_key
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import open_case
from opsieve.gen.errors import BadInput
from opsieve.reducer.sessions.export import reproduce_failure, try_variants
from opsieve.triage.corpus.corpus_file import Bug, read_bugs
from opsieve.triage.export import issue, script
from opsieve.triage.export.exports import export_failure


def main(names: list[str]) -> int:
    """Write the files; 1 when a sample does not fail."""
    # A development version says nothing to the readers of an issue.
    issue.VERSION = script.VERSION = issue.VERSION.partition(".dev")[0]
    wrong = 0
    with Workers(say=lambda sentence: print(sentence, file=sys.stderr)) as workers:
        for name, (entry, bug) in read_bugs(SAMPLES).items():
            folder = SAMPLES / name
            if names and name not in names:
                continue
            # The newest release that fails, with the options of the case
            failing = [text for text, seen in entry.targets.items() if seen.verdict == "fail"]
            target = max(failing, key=lambda text: release_key(resolve(text).release), default=bug.fails)
            try:
                text = write_issue(folder, bug, target, workers)
            except (BadInput, Unavailable) as error:
                wrong = 1
                print(f"{folder.name}: {error}")
                continue
            (folder / "README.md").write_bytes(text)
            print(f"{folder.name}: written", flush=True)
    return wrong


def write_issue(folder: Path, bug: Bug, target: str, workers: Workers) -> bytes:
    """Judge the sample again and write its issue."""
    found = reproduce_failure(open_case(folder, None, None, 0), target, folder, workers)
    guilty = (bug.guilty,) if bug.guilty and " " not in bug.guilty else ()
    tried = try_variants(replace(found, passes=guilty), workers)
    # Many guilty places are functions, which no option skips.
    if dict(tried.variants).get(f"without {bug.guilty}") != "passes":
        tried = try_variants(found, workers)
    known = replace(
        tried,
        first_bad=bug.first_bad,
        regression=f"The first release that fails is {bug.first_bad}." if bug.first_bad else "",
        fixed=f"Fixed in {bug.fixed_in}." if bug.fixed_in else "",
    )
    return export_failure(known, "issue", workers).data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
