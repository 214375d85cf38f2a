"""Decisions about a campaign's tests, made from recorded results only: a resumed campaign decides like an
uninterrupted one.

The input of decisions and the decisions about batches are stored with the tests (`learnt`, texts by name), in
the same transaction.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.errors import BadInput
from opsieve.gen.strategies.mix import BATCH, find_place
from opsieve.gen.strategies.patterns.strategy import list_states
from opsieve.gen.values.values import special_kinds
from opsieve.triage.campaign.plan import CampaignPlan, make_seed
from opsieve.triage.campaign.schedule import batch, costs
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.store import Store

# batches from the last one that a decision stands on to the one that it is for: lanes are in those between
BACK = 4
# Where tests are slow, lanes share a batch
BACK_SLOW = 2
# Verdicts on a program that a target has all operators of
_TAKEN = ("pass", "fail")
# Milliseconds of a test
_SLOW = 100.0
# How the states of rewrites that programs had are stored
_STATE = "state|"


class Schedule:
    """The decisions of a campaign whose plan states the costs of its targets; `learnt` is the stored
    state.
    """

    def __init__(self, campaign: Campaign, plan: CampaignPlan, learnt: Mapping[str, str]):
        self._campaign, self._plan = campaign, plan
        self._pace = costs.Pace(campaign.targets, plan.costs, learnt)
        # Special values are of ONNX models
        others = not special_kinds(plan.request.values)
        self._shares = costs.Shares(plan.costs, learnt, others) if plan.strategy == "mix" else None
        self._known, self._lacks = batch.KnownFailures(learnt), batch.Lacks(learnt)
        least = min(plan.costs.get_cost(place, "onnx") for place in range(len(campaign.targets)))
        self.back = BACK_SLOW if least >= _SLOW else BACK
        first = batch.BatchDecision(self._shares.get_usual() if self._shares is not None else {})
        # The first batches are decided before anything is known.
        self._batches = dict.fromkeys(range(self.back), first)
        self._left_out: dict[str, int] = {}
        self._states = {name.removeprefix(_STATE) for name in learnt if name.startswith(_STATE)}
        for name, value in learnt.items():
            kind, _, rest = name.partition("|")
            if kind == "batch":
                self._batches[int(rest)] = batch.read_decision(value)
            elif kind == "left-out":
                self._left_out[rest] = int(value)

    @property
    def quick(self) -> tuple[str, ...]:
        """The targets that run every program they take."""
        return self._pace.quick

    def get_decision(self, number: int) -> batch.BatchDecision | None:
        """Return the decision about a batch, or None if it is still open."""
        return self._batches.get(number)

    def choose_further(self, test: FinishedTest) -> tuple[tuple[str, ...], dict[str, str]]:
        """Choose the further targets for the next test, and return them with the changes."""
        if not self._pace.slow:
            return (), {}
        failed = [item.fingerprint.key for item in test.findings if item.verdict.verdict == "fail"]
        # The decision of the test's own batch and not the latest, which depends on how far other lanes are.
        known = self._batches[test.number // BATCH].known
        known_to_fail = {
            name
            for name in self._pace.slow
            if batch.choose_skipped_feature(self._campaign.seed, test.number, name, test.features, known)
            and name not in test.answers
        }
        aside = self._plan.list_unsuited(test.number) | known_to_fail
        # States of rewrites that a slow target has not met make a program promising, like its features. They
        # are few, so the size of a program, which features stand for, hardly changes.
        return self._pace.choose_slow(
            test.number, test.ir, (*test.features, *test.states), test.answers, failed, aside
        )

    def note_test(self, test: FinishedTest) -> dict[str, str]:
        """Take in a test that is about to be recorded; return the changes, except those of `take_changes`."""
        learnt: dict[str, str] = {}
        # Stored once, with the first test, so that a resumed campaign has them too.
        if not test.number:
            learnt = {f"batch|{number}": decided.to_text() for number, decided in self._batches.items()}
        learnt |= {f"{_STATE}{state}": "" for state in set(test.states) - self._states}
        self._states.update(test.states)
        keys: dict[str, list[str]] = {name: [] for name in test.answers}
        for item in test.findings:
            if item.verdict.verdict == "fail":
                keys.setdefault(item.target, []).append(item.fingerprint.key)
        for name in test.answers:
            self._known.note_test(name, test.features, keys[name])
            if test.answers[name][0] in _TAKEN:
                learnt |= self._lacks.note_success(name, test.features)
        for lack in test.non_bugs:
            if lack.verdict == batch.UNSUPPORTED:
                learnt |= self._lacks.note_refusal(lack.target, test.features, lack.what)
        for name, feature in test.left_out.items():
            place = f"{name}|{feature}"
            self._left_out[place] = self._left_out.get(place, 0) + 1
            learnt[f"left-out|{place}"] = str(self._left_out[place])
        decided = self._batches[test.number // BATCH]
        if self._shares is not None:
            seed = make_seed(self._campaign.seed, test.number // self._plan.request.siblings)
            strategy, _ = find_place(seed, decided.strategy_shares)
            places = {name: place for place, name in enumerate(self._campaign.targets)}
            cost = sum(self._plan.costs.get_cost(places[name], test.ir) for name in test.answers)
            found = {key for of_target in keys.values() for key in of_target}
            learnt |= self._shares.note_test(strategy, cost, found, test.reached > 0)
        if (test.number + 1) % BATCH == 0:
            learnt |= self._decide_batch(test.number // BATCH + self.back)
        return learnt

    def _decide_batch(self, number: int) -> dict[str, str]:
        """Decide about a batch."""
        shares = {} if self._shares is None else self._shares.compute_shares()
        known, lacks = self._known.list_known(), self._lacks.list_lacking()
        left_out = {name: known.get(name, {}) | lacks.get(name, {}) for name in sorted({*known, *lacks})}
        made = self._batches[number] = batch.BatchDecision(shares, left_out)
        # Lanes are never farther behind than that.
        for old in [each for each in self._batches if each < number - 2 * self.back]:
            del self._batches[old]
        return {f"batch|{number}": made.to_text()}

    def take_changes(self) -> dict[str, str]:
        """Return the changes since the last call, for the store."""
        return self._known.take_changes() | ({} if self._shares is None else self._shares.get_state())

    def note_new_version(self, target: str) -> dict[str, str]:
        """Forget the known failures of a target that has another version; return the changes."""
        learnt = self._known.forget_target(target) | self._lacks.forget_target(target)
        for number, decided in self._batches.items():
            if target in decided.known:
                rest = {name: known for name, known in decided.known.items() if name != target}
                self._batches[number] = batch.BatchDecision(decided.shares, rest)
                learnt[f"batch|{number}"] = self._batches[number].to_text()
        return learnt

    def list_facts(self) -> dict[str, Any]:
        """Return tests and new failures by strategy, the known failures of targets, and the states of
        rewrites that programs had.
        """
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
                if key == batch.UNSUPPORTED:
                    lacks.append(entry)
                else:
                    known.append({**entry, "fingerprint": key})
        strategies = {} if self._shares is None else self._shares.list_facts()
        for name, facts in strategies.items():
            facts["share"] = round(latest.shares.get(name, 0.0))
        return {
            "strategies": strategies,
            "known_failures": known,
            "lacks": lacks,
            "states": {"met": len(self._states), "of": len(set(list_states()))},
        }


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def resume_schedule(store: Store, campaign: Campaign, plan: CampaignPlan) -> Schedule:
    """Rebuild the schedule of a campaign from its store.

    Raises:
        BadInput: If the stored state is invalid, as in an untrusted store.
    """
    try:
        return Schedule(campaign, plan, store.read_state(campaign))
    except UNREADABLE:
        raise BadInput(
            "what the store has kept of the campaign's decisions cannot be read: start a new campaign without"
            " --resume"
        ) from None


def get_shares(learnt: Mapping[str, str], number: int) -> tuple[tuple[str, float], ...]:
    """Return the strategies' shares for the batch of a test, from the stored decisions."""
    kept = learnt.get(f"batch|{number // BATCH}")
    try:
        return batch.read_decision(kept).strategy_shares if kept else ()
    except UNREADABLE:
        # A decision of a later version has other fields; the campaign then begins with the usual shares.
        return ()


def forget_changed(store: Store, campaign: Campaign, plan: CampaignPlan, versions: Mapping[str, str]) -> None:
    """Forget the known failures of targets whose version has changed."""
    if not plan.costs:
        return
    learnt = store.read_state(campaign)
    had = store.get_versions(campaign) | {
        # Versions that were noted at an earlier resumption replace those of the beginning.
        name.partition("|")[2]: version
        for name, version in learnt.items()
        if name.startswith("version|")
    }
    schedule = resume_schedule(store, campaign, plan)
    for name, version in versions.items():
        if name in campaign.targets and had.get(name, version) != version:
            store.write_state(campaign, schedule.note_new_version(name) | {f"version|{name}": version})
