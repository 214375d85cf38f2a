"""Whether a campaign is a failure to continuous integration: which of its clusters are new, and what is said
of each.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.tui.commands.ci_results import CiOutput
from opsieve.tui.commands.judged import exit_code
from opsieve.tui.commands.text import say

if TYPE_CHECKING:
    from opsieve.triage.corpus.states import CorpusResult
    from opsieve.triage.review.novelty import JudgedCluster


@dataclass(frozen=True, slots=True)
class CampaignVerdict:
    """What counts (`new`, `any` or `none`), the store of what is known, and where results go.

    `listed`: every cluster is listed. `allow_unjudged`: a target that judged no program is accepted.
    """

    fail_on: str
    known: Path | None
    output: CiOutput
    listed: bool
    allow_unjudged: bool = False

    def check(self) -> None:
        """BadInput, before the campaign begins, for a store of known failures that cannot be used and for
        files that cannot be written.
        """
        from opsieve.triage.store.queries import Queries

        self.output.check()
        if self.known is not None:
            Queries(self.known).close()

    def decide(self, folder: Path, facts: dict[str, Any], *, annotate_on_stderr: bool) -> int:
        """The exit code of the campaign. Clusters are judged where that is asked for; they go into `facts`
        and to the files.
        """
        from opsieve.backends.verdict import JUDGED

        unjudged = {
            target: (
                ", ".join(f"{count} {verdict}" for verdict, count in of_target["verdicts"].items())
                or "no programs"
            )
            for target, of_target in facts["targets"].items()
            if not JUDGED & of_target["verdicts"].keys()
        }
        named = [f"{target} ({why})" for target, why in unjudged.items()]
        if not (self.listed or self.known or self.output != CiOutput() or self.fail_on == "new"):
            return exit_code(self.fail_on == "any" and bool(facts["failures"]), named, self.allow_unjudged)
        from opsieve.triage.corpus.states import FAIL_ON, CorpusResult
        from opsieve.triage.review.novelty import judged_clusters

        found = judged_clusters(folder, facts["campaign"], self.known)
        facts["ci_clusters"] = [
            {"cluster": one.row.id, "title": one.row.title, "members": one.row.members, "known": one.known}
            for one in found
        ]
        results = [_result(one) for one in found]
        failing = any(result.state in FAIL_ON[self.fail_on] for result in results)
        results += [
            CorpusResult("campaign", target, "not-judged", reason=why) for target, why in unjudged.items()
        ]
        red = FAIL_ON[self.fail_on] if self.allow_unjudged else {*FAIL_ON[self.fail_on], "not-judged"}
        self.output.write(
            results, red, folder.as_posix(), f"fuzz {folder}", annotate_on_stderr=annotate_on_stderr
        )
        say(f"{sum(not one.known for one in found)} new, {sum(bool(one.known) for one in found)} known")
        return exit_code(failing, named, self.allow_unjudged)


def _result(one: "JudgedCluster") -> "CorpusResult":
    """A cluster in the form of a result of a corpus: its representative, newly failing or still failing."""
    from opsieve.triage.corpus.states import CorpusResult, SeenVerdict

    row = one.row
    seen = SeenVerdict("fail", row.kind, row.stage or None, one.fingerprint)
    why = f"{row.title}; {one.known or 'not known before'}"
    probably = f"; probably {row.probably[0].name}" if row.probably else ""
    before = seen if one.known else None
    return CorpusResult(
        row.representative or row.id, " ".join(row.targets),
        "still-failing" if one.known else "newly-failing", before, seen, f"{why}{probably}",
    )  # fmt: skip
