"""What is decided of a campaign's tests, from what was recorded before and nothing else: a resumed campaign decides as one that went on.

What decisions stand on is kept in the store with the tests (`learnt`, texts by name), in the transaction that records them.
"""

from collections.abc import Mapping

from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule.pace import Pace
from opsieve.triage.store.store import Campaign, FinishedTest


class Schedule:
    """The decisions of a campaign, whose plan states what its targets cost, beginning with what is `learnt`."""

    def __init__(self, campaign: Campaign, plan: CampaignPlan, learnt: Mapping[str, str]):
        self._plan = plan
        self._pace = Pace(campaign.targets, plan.costs, learnt)

    @property
    def quick(self) -> tuple[str, ...]:
        """The targets that are asked about every program that they take."""
        return self._pace.quick

    @property
    def paced(self) -> bool:
        """Whether some targets are not."""
        return bool(self._pace.slow)

    def decide(self, test: FinishedTest) -> tuple[tuple[str, ...], dict[str, str]]:
        """Of the next test, which was done on some targets: the others that are to be asked about it, and what was learnt."""
        if not self.paced:
            return (), {}
        failed = [item.fingerprint.key for item in test.findings if item.verdict.verdict == "fail"]
        unsuited = self._plan.unsuited(test.number)
        return self._pace.decide(test.number, test.form, test.features, test.answers, failed, unsuited)
