"""What is decided of a campaign's tests, from what was recorded before and nothing else: a resumed campaign
decides as one that went on.

What decisions stand on, and the decisions of batches, are kept in the store with the tests (`learnt`, texts
by name), in the transaction that records them.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.errors import BadInput
from opsieve.gen.strategies.mix import BATCH, placed
from opsieve.gen.values.values import special_kinds
from opsieve.triage.campaign.plan import CampaignPlan, seed_of
from opsieve.triage.campaign.schedule.batch import BatchDecision, read_decision
from opsieve.triage.campaign.schedule.known_failures import UNSUPPORTED, KnownFailures, Lacks, left_out
from opsieve.triage.campaign.schedule.pace import Pace
from opsieve.triage.campaign.schedule.shares import Shares
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.store import Store

# batches from the last one that a decision stands on to the one that it is for: lanes are in those between
BACK = 4
BACK_SLOW = 2  # where tests are slow, lanes share a batch
_TAKEN = ("pass", "fail")  # verdicts on a program that a target has all operators of
_SLOW = 100.0  # milliseconds of a test


class Schedule:
    """The decisions of a campaign, whose plan states what its targets cost, beginning with what is
    `learnt`.
    """

    def __init__(self, campaign: Campaign, plan: CampaignPlan, learnt: Mapping[str, str]):
        self._campaign, self._plan = campaign, plan
        self._pace = Pace(campaign.targets, plan.costs, learnt)
        others = not special_kinds(plan.request.values)  # special values are of ONNX models
        self._shares = Shares(plan.costs, learnt, others) if plan.strategy == "mix" else None
        self._known, self._lacks = KnownFailures(learnt), Lacks(learnt)
        least = min(plan.costs.of(place, "onnx") for place in range(len(campaign.targets)))
        self.back = BACK_SLOW if least >= _SLOW else BACK
        first = BatchDecision(self._shares.usual() if self._shares is not None else {})
        self._batches = dict.fromkeys(range(self.back), first)
        self._left_out: dict[str, int] = {}
        for name, value in learnt.items():
            kind, _, rest = name.partition("|")
            if kind == "batch":
                self._batches[int(rest)] = read_decision(value)
            elif kind == "left-out":
                self._left_out[rest] = int(value)

    @property
    def quick(self) -> tuple[str, ...]:
        """The targets that are asked about every program that they take."""
        return self._pace.quick

    def batch(self, number: int) -> BatchDecision | None:
        """What was decided of a batch, None while that is not yet known."""
        return self._batches.get(number)

    def decide(self, test: FinishedTest) -> tuple[tuple[str, ...], dict[str, str]]:
        """Of the next test, which was done on some targets: the others that are to be asked about it, and
        what was learnt.
        """
        if not self._pace.slow:
            return (), {}
        failed = [item.fingerprint.key for item in test.findings if item.verdict.verdict == "fail"]
        known = self._batches[test.number // BATCH].known
        known_to_fail = {
            name
            for name in self._pace.slow
            if left_out(self._campaign.seed, test.number, name, test.features, known)
            and name not in test.answers
        }
        aside = self._plan.unsuited(test.number) | known_to_fail
        return self._pace.decide(test.number, test.ir, test.features, test.answers, failed, aside)

    def note(self, test: FinishedTest) -> dict[str, str]:
        """The next test is wholly done and about to be recorded: what was learnt, but for what `changes`
        gives when several are done.
        """
        learnt: dict[str, str] = {}
        if not test.number:
            learnt = {f"batch|{number}": decided.text() for number, decided in self._batches.items()}
        keys: dict[str, list[str]] = {name: [] for name in test.answers}
        for item in test.findings:
            if item.verdict.verdict == "fail":
                keys.setdefault(item.target, []).append(item.fingerprint.key)
        for name in test.answers:
            self._known.note(name, test.features, keys[name])
            if test.answers[name][0] in _TAKEN:
                learnt |= self._lacks.taken(name, test.features)
        for lack in test.non_bugs:
            if lack.verdict == UNSUPPORTED:
                learnt |= self._lacks.refused(lack.target, test.features, lack.what)
        for name, feature in test.left_out.items():
            place = f"{name}|{feature}"
            self._left_out[place] = self._left_out.get(place, 0) + 1
            learnt[f"left-out|{place}"] = str(self._left_out[place])
        decided = self._batches[test.number // BATCH]
        if self._shares is not None:
            strategy, _ = placed(seed_of(self._campaign.seed, test.number), decided.of_strategies)
            places = {name: place for place, name in enumerate(self._campaign.targets)}
            cost = sum(self._plan.costs.of(places[name], test.ir) for name in test.answers)
            found = {key for of_target in keys.values() for key in of_target}
            learnt |= self._shares.note(strategy, cost, found, test.reached > 0)
        if (test.number + 1) % BATCH == 0:
            learnt |= self._next(test.number // BATCH + self.back)
        return learnt

    def _next(self, number: int) -> dict[str, str]:
        """Decide on a batch."""
        shares = {} if self._shares is None else self._shares.decide()
        known, lacks = self._known.decide(), self._lacks.decide()
        left_out = {name: known.get(name, {}) | lacks.get(name, {}) for name in sorted({*known, *lacks})}
        made = self._batches[number] = BatchDecision(shares, left_out)
        for old in [each for each in self._batches if each < number - 2 * self.back]:
            del self._batches[old]
        return {f"batch|{number}": made.text()}

    def changes(self) -> dict[str, str]:
        """What changed with the tests that were noted since this was asked last, to be kept with them."""
        return self._known.changes() | ({} if self._shares is None else self._shares.kept())

    def new_version(self, target: str) -> dict[str, str]:
        """The target has another version than before: what it was known to fail at is asked again. What
        changed.
        """
        learnt = self._known.forget(target) | self._lacks.forget(target)
        for number, decided in self._batches.items():
            if target in decided.known:
                rest = {name: known for name, known in decided.known.items() if name != target}
                self._batches[number] = BatchDecision(decided.shares, rest)
                learnt[f"batch|{number}"] = self._batches[number].text()
        return learnt

    def facts(self) -> dict[str, Any]:
        """For who asks: tests and finds by strategy, and what targets are known to fail at."""
        latest = self._batches[max(self._batches)]
        known: list[dict[str, Any]] = []
        lacks: list[dict[str, Any]] = []
        for target, features in latest.known.items():
            for feature, key in features.items():
                entry = {
                    "target": target,
                    "feature": feature,
                    "left_out": self._left_out.get(f"{target}|{feature}", 0),
                }
                if key == UNSUPPORTED:
                    lacks.append(entry)
                else:
                    known.append({**entry, "fingerprint": key})
        strategies = {} if self._shares is None else self._shares.facts()
        for name, facts in strategies.items():
            facts["share"] = round(latest.shares.get(name, 0.0))
        return {"strategies": strategies, "known_failures": known, "lacks": lacks}


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
        return read_decision(kept).of_strategies if kept else ()
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
