"""The results of a corpus for GitHub Actions: annotations (workflow commands) and a job summary. Whatever a
compiler or a file said is
escaped: it must not become a workflow command, Markdown or HTML.
"""

from collections.abc import Collection, Sequence

from opsieve.gen.model.printable import markdown, single_line
from opsieve.triage.corpus.states import STATES, CorpusResult, counts

_MOST_ANNOTATIONS = 50  # GitHub shows ten of a step
_MOST_ROWS = 500  # a summary has at most 1 MiB
_CUT = 400


def annotations(results: Sequence[CorpusResult], folder: str, red: Collection[str]) -> list[str]:
    """A workflow command for each case that matters: errors first, then failures that are known, then what is
    fixed.
    """
    found: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    for result in results:
        if result.refused or result.state in red:
            level = "error"
        elif result.state not in ("fixed", "passing"):
            level = "warning"
        elif result.state == "fixed":
            level = "notice"
        else:
            continue
        title = f"{result.case}: {'bad case' if result.refused else result.state.replace('-', ' ')}"
        words = f"{result.target}: {result.sentence}" if result.target else result.sentence
        place = f"file={_property(f'{folder}/{result.case}/case.json')}," if folder else ""
        found[level].append(f"::{level} {place}title={_property(title)}::{_data(words)}")
    return [line for lines in found.values() for line in lines][:_MOST_ANNOTATIONS]


def job_summary(results: Sequence[CorpusResult], name: str) -> str:
    """Markdown: how many of each state, and a table of what is not as before."""
    numbers = ", ".join(
        f"{count} {state.replace('-', ' ')}" for state, count in counts(results).items() if count
    )
    lines = [f"## opsieve: {markdown(_cut(name))}", "", (numbers or "no case") + ".", ""]
    rows = [result for state in ("not-judged", *STATES[:4]) for result in results if result.state == state]
    if rows:
        lines += ["| state | case | target | what |", "|---|---|---|---|"]
        for result in rows[:_MOST_ROWS]:
            cells = (result.state.replace("-", " "), result.case, result.target, result.sentence)
            lines.append(f"| {' | '.join(markdown(_cut(cell)) for cell in cells)} |")
        lines.append("")
    if len(rows) > _MOST_ROWS:
        lines += [f"and {len(rows) - _MOST_ROWS:,} more.", ""]
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    """Text as the message of a workflow command; the runner's older commands, which begin anywhere in a line,
    are broken, too.
    """
    return single_line(_cut(text)).replace("##[", "## [").replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else f"{text[:_CUT]}..."
