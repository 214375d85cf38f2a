"""Choose the programs that a slow target runs: targets have equal shares of the time, slow ones get promising
programs.

While the quick targets run every program, a slow one saves up the time that each of them took; it runs a
program once it has saved enough and the program is as promising as the best of late. Promising are new
failures of another target, and operators and edges that the slow target has not met. Such programs are larger
than others, so a test counts by its features.

All times are the stated costs (costs.py), in the order of the tests: a decision about a test follows from the
tests before it and from the quick targets' answers.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from opsieve.gen.irs.registry import ir_named
from opsieve.triage.campaign.schedule.batch import is_operator
from opsieve.triage.campaign.schedule.costs import Costs

# Tests that quick targets do alone: the first results do not wait for the imports of slow ones
ALONE = 2
# The number of first tests of every target, as far as its time allows.
FIRST = 8
# Milliseconds that a target may borrow from the others.
LENT = 1000.0
# Tests for which a target may save
SAVED = 2.0
# The number of saved tests after which it gets programs with new features again.
SAVED_ENOUGH = 1.0
# The expected gain of a failure, of an operator and of an edge.
_FAILURE, _OPERATOR, _EDGE = 100.0, 3.0, 1.0
# Failures of one fingerprint; further ones promise nothing
_OFTEN = 3


class Pace:
    """The slow targets of a campaign by name, with the features each has met; `learnt` is the stored
    state.
    """

    def __init__(self, names: tuple[str, ...], costs: Costs, learnt: Mapping[str, str]):
        self._costs = costs
        self._quick = {names[place]: place for place in costs.quick}
        self._slow = {names[place]: place for place in costs.slow}
        self._saved: dict[str, float] = dict.fromkeys(self._slow, 0.0)
        self._bar: dict[str, float] = dict.fromkeys(self._slow, 0.0)
        self._met: dict[str, set[str]] = {name: set() for name in self._slow}
        self._failures: dict[str, int] = {}
        for key, value in learnt.items():
            kind, _, rest = key.partition("|")
            if kind == "pace":
                state = json.loads(value)
                self._saved |= {str(target): float(saved) for target, saved in state["saved"].items()}
                self._bar |= {str(target): float(bar) for target, bar in state["bar"].items()}
            elif kind == "met":
                name, _, feature = rest.partition("|")
                self._met.setdefault(name, set()).add(feature)
            elif kind == "failed":
                self._failures[rest] = int(value)

    @property
    def quick(self) -> tuple[str, ...]:
        """The targets that run every program."""
        return tuple(self._quick)

    @property
    def slow(self) -> tuple[str, ...]:
        """The other targets."""
        return tuple(self._slow)

    def choose_slow(
        self, number: int, ir: str, has: Collection[str], answered: Collection[str], failed: Iterable[str],
        left_out: Collection[str]
    ) -> tuple[tuple[str, ...], dict[str, str]]:  # fmt: skip
        """Choose the slow targets for a test that the `answered` targets ran, except those in `left_out`;
        return the changes too.

        `failed` are the fingerprints of its failures.
        """
        changes: dict[str, Any] = {}
        new = False
        for key in failed:
            seen = self._failures[key] = self._failures.get(key, 0) + 1
            new = new or seen <= _OFTEN
            if seen <= _OFTEN + 1:
                changes[f"failed|{key}"] = str(seen)
        size = max(1, len(has)) / ir_named(ir).usual_features
        taken = [
            size * self._costs.get_cost(place, ir) for name, place in self._quick.items() if name in answered
        ]
        income = sum(taken) / len(taken) if taken else 0.0
        asked = []
        for name, place in self._slow.items():
            cost = self._costs.get_cost(place, ir)
            # No other target supports such a program.
            if name in answered:
                asked_now, wanted = True, False
            else:
                wanted = name not in left_out and cost != float("inf")
                asked_now = wanted and self._is_promising(name, cost, income, number, has, new)
            self._saved[name] = min(self._saved[name] + income, SAVED * cost if wanted else float("inf"))
            if asked_now:
                self._saved[name] -= size * cost
                fresh = sorted(set(has) - self._met[name])
                self._met[name].update(fresh)
                changes |= {f"met|{name}|{feature}": "" for feature in fresh}
            if asked_now and name not in answered:
                asked.append(name)
        changes["pace"] = json.dumps({"saved": self._saved, "bar": self._bar})
        return tuple(asked), changes

    def _is_promising(
        self, name: str, cost: float, income: float, number: int, has: Collection[str], new: bool
    ) -> bool:
        """Whether a slow target should run the program now."""
        met = self._met[name]
        score = _FAILURE * new + sum(
            _OPERATOR if is_operator(feature) else _EDGE for feature in has if feature not in met
        )
        # It fades within the time that one test takes
        best = self._bar[name] * (1 - min(1.0, income / cost))
        self._bar[name] = max(score, best)
        if number < ALONE + FIRST:
            return number >= ALONE and self._saved[name] > -LENT
        saved = self._saved[name] / cost
        return saved >= 0 and (score >= best or (saved >= SAVED_ENOUGH and score > 0) or saved >= SAVED)
