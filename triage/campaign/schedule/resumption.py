"""What a resumed campaign asks of what was decided before it was stopped."""

from collections.abc import Mapping

from opsieve.gen.errors import BadInput
from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule import batch
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.store import Store

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def resumed(store: Store, campaign: Campaign, plan: CampaignPlan) -> Schedule:
    """The schedule of a campaign as its store has kept it; BadInput when that makes no sense: the store may
    be a stranger's.
    """
    try:
        return Schedule(campaign, plan, store.learnt(campaign))
    except UNREADABLE:
        raise BadInput(
            "what the store has kept of the campaign's decisions cannot be read: start a new campaign without"
            " --resume"
        ) from None


def shares_of(learnt: Mapping[str, str], number: int) -> tuple[tuple[str, float], ...]:
    """The shares by which a test was made, by what was kept of its batch."""
    kept = learnt.get(f"batch|{number // BATCH}")
    try:
        return batch.read(kept).of_strategies if kept else ()
    except UNREADABLE:
        return ()


def forget_changed(store: Store, campaign: Campaign, plan: CampaignPlan, versions: Mapping[str, str]) -> None:
    """What targets were known to fail at is forgotten of those that have another version than when it was
    learnt.
    """
    if not plan.costs:
        return
    learnt = store.learnt(campaign)
    had = store.versions(campaign) | {
        name.partition("|")[2]: version for name, version in learnt.items() if name.startswith("version|")
    }
    schedule = resumed(store, campaign, plan)
    for name, version in versions.items():
        if name in campaign.targets and had.get(name, version) != version:
            store.learn(campaign, schedule.new_version(name) | {f"version|{name}": version})
