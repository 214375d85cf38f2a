"""Decide whether a campaign fails in continuous integration: its new clusters and the output for each."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.backends.verdict import JUDGED
from opsieve.tui.commands.output import CiOutput, choose_exit_code, print_message

if TYPE_CHECKING:
    from opsieve.triage.corpus.corpus_file import CorpusResult
    from opsieve.triage.review.review import JudgedCluster


@dataclass(frozen=True, slots=True)
class CampaignVerdict:
    """The options of the decision.

    `fail_on` is `new`, `any` or `none`; `known` is the store of known failures; `listed` lists every cluster;
    `allow_unjudged` accepts a target that judged no program.
    """

    fail_on: str
    known: Path | None
    output: CiOutput
    listed: bool
    allow_unjudged: bool = False

    def check_options(self) -> None:
        """Raise BadInput, before the campaign begins, for an unusable store of known failures or output
        file.
        """
        from opsieve.triage.store.queries import Queries

        self.output.check_paths()
        if self.known is not None:
            # Opened once: a wrong path is reported before the campaign and not after its hours.
            Queries(self.known).close()

    def choose_exit_code(self, folder: Path, facts: dict[str, Any], *, annotate_on_stderr: bool) -> int:
        """Choose the exit code; judged clusters go into `facts` and the files if requested."""

        unjudged = {
            target: (
                ", ".join(f"{count} {verdict}" for verdict, count in of_target["verdicts"].items())
                or "no programs"
            )
            for target, of_target in facts["targets"].items()
            # A target without any verdict would make a broken installation look green.
            if not JUDGED & of_target["verdicts"].keys()
        }
        named = [f"{target} ({why})" for target, why in unjudged.items()]
        # Judging clusters reads the whole store, which only these want.
        if not (self.listed or self.known or self.output != CiOutput() or self.fail_on == "new"):
            return choose_exit_code(
                self.fail_on == "any" and bool(facts["failures"]), named, self.allow_unjudged
            )
        from opsieve.triage.corpus.corpus_file import FAIL_ON, CorpusResult
        from opsieve.triage.review.review import judge_clusters, list_rule_problems

        found = judge_clusters(folder, facts["campaign"], self.known)
        facts["ci_clusters"] = [
            {"cluster": one.row.id, "title": one.row.title, "members": one.row.members, "known": one.known}
            for one in found
        ]
        results = [_make_result(one) for one in found]
        failing = any(result.state in FAIL_ON[self.fail_on] for result in results)
        results += [
            CorpusResult("campaign", target, "not-judged", reason=why) for target, why in unjudged.items()
        ]
        red = FAIL_ON[self.fail_on] if self.allow_unjudged else {*FAIL_ON[self.fail_on], "not-judged"}
        self.output.write_results(
            results, red, folder.as_posix(), f"fuzz {folder}", annotate_on_stderr=annotate_on_stderr
        )
        print_message(
            f"{sum(not one.known for one in found)} new, {sum(bool(one.known) for one in found)} known"
        )
        problems = list_rule_problems(folder, self.known)
        for problem in problems:
            print_message(problem)
        # A broken rule knows nothing, so that its failures look new.
        return choose_exit_code(failing, named, self.allow_unjudged) or 2 * bool(problems)


def _make_result(one: "JudgedCluster") -> "CorpusResult":
    """Turn a cluster into a corpus result: its representative, newly failing or still failing."""
    from opsieve.triage.corpus.corpus_file import CorpusResult, SeenVerdict

    row = one.row
    seen = SeenVerdict("fail", row.kind, row.stage or None, one.fingerprint)
    why = f"{row.title}; {one.known or 'not known before'}"
    probably = f"; probably {row.probably[0].name}" if row.probably else ""
    before = seen if one.known else None
    return CorpusResult(
        row.representative or row.id, " ".join(row.targets),
        "still-failing" if one.known else "newly-failing", before, seen, f"{why}{probably}",
    )  # fmt: skip
