"""What a resumed campaign asks of what was decided before it was stopped."""

from collections.abc import Mapping

from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.campaign.schedule import batch
from opsieve.triage.campaign.schedule.schedule import Schedule
from opsieve.triage.store.store import Campaign, Store


def shares_of(learnt: Mapping[str, str], number: int) -> tuple[tuple[str, float], ...]:
    """The shares by which a test was made, by what was kept of its batch."""
    kept = learnt.get(f"batch|{number // BATCH}")
    return batch.read(kept).of_strategies if kept else ()


def forget_changed(store: Store, campaign: Campaign, plan: CampaignPlan, versions: Mapping[str, str]) -> None:
    """What targets were known to fail at is forgotten of those that have another version than when it was learnt."""
    if not plan.costs:
        return
    learnt = store.learnt(campaign)
    had = store.versions(campaign) | {
        name.partition("|")[2]: version for name, version in learnt.items() if name.startswith("version|")
    }
    schedule = Schedule(campaign, plan, learnt)
    for name, version in versions.items():
        if name in campaign.targets and had.get(name, version) != version:
            store.learn(campaign, schedule.new_version(name) | {f"version|{name}": version})
