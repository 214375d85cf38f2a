"""Each strategy's share of the programs: proportional to its yield per time, and at least a part of its usual
share.

A yield is the first failure of a fingerprint in the campaign, or a test that reached new coverage. Time is
the stated cost of tests (costs.py). Old results count less. Shares are decided for a batch of 256 tests, from
batches some way back, so that lanes can work on several batches at once.
"""

import json
from collections.abc import Collection, Mapping

from opsieve.gen.irs.registry import all_irs
from opsieve.gen.strategies.mix import WEIGHTS
from opsieve.gen.strategies.registry import list_names as installed
from opsieve.triage.campaign.schedule.costs import Costs

# Of its usual share that a strategy keeps
FLOOR = 0.25
# Times its usual share that it can have
MOST = 4.0
# The weight of a batch once the next one is done.
_FADES = 0.95
# A prior of this many expected finds, because a few finds may be luck.
_DOUBT = 3.0


class Shares:
    """The strategies of a campaign and their yields.

    `learnt` is the stored state, `others` includes strategies for IRs other than ONNX.
    """

    def __init__(self, costs: Costs, learnt: Mapping[str, str], others: bool = True):
        self._costs = costs
        taken = {ir for each in costs.by_target for ir in each}
        self._ir = {name: "onnx" for name in WEIGHTS if name in installed() and "onnx" in taken}
        self._usual = {name: float(WEIGHTS[name]) for name in self._ir}
        for ir in filter(lambda ir: ir.name in taken, all_irs() if others else ()):
            for name, weight in ir.strategies.items():
                if weight and name in installed():
                    self._ir[name], self._usual[name] = ir.name, float(weight)
        state = json.loads(learnt.get("yield", "{}"))
        self._time: dict[str, float] = dict.fromkeys(self._usual, 0.0) | _read_numbers(state, "time")
        self._found: dict[str, float] = dict.fromkeys(self._usual, 0.0) | _read_numbers(state, "found")
        self._tests: dict[str, int] = {
            name: int(count) for name, count in _read_numbers(state, "tests").items()
        }
        self._all_found: dict[str, int] = {
            name: int(count) for name, count in _read_numbers(state, "all_found").items()
        }
        self._seen = {name.partition("|")[2] for name in learnt if name.startswith("found|")}

    def get_usual(self) -> dict[str, float]:
        """Return the initial shares in thousandths of the programs."""
        return self._share_programs(self._usual)

    def note_test(
        self, strategy: str, cost: float, failures: Collection[str], reached: bool
    ) -> dict[str, str]:
        """Record a test of a strategy: its cost, its failures' fingerprints, and whether it reached new
        coverage.

        Returns the new fingerprints; `get_state` has the other changes.
        """
        new = sorted(set(failures) - self._seen)
        self._seen.update(new)
        found = len(new) + reached
        self._time[strategy] = self._time.get(strategy, 0.0) + cost
        self._found[strategy] = self._found.get(strategy, 0.0) + found
        self._tests[strategy] = self._tests.get(strategy, 0) + 1
        self._all_found[strategy] = self._all_found.get(strategy, 0) + found
        return {f"found|{key}": strategy for key in new}

    def compute_shares(self) -> dict[str, float]:
        """Close a batch and return the shares, in thousandths of the programs, for a later one. Older results
        then count less.
        """
        whole_time, whole_found = sum(self._time.values()), sum(self._found.values())
        wanted = {}
        for name, usual in self._usual.items():
            expected = whole_found * self._time[name] / whole_time if whole_time else 0.0
            ratio = (self._found[name] + _DOUBT) / (expected + _DOUBT)
            wanted[name] = usual * min(MOST, max(FLOOR, ratio))
        for each in (self._time, self._found):
            for name in each:
                each[name] *= _FADES
        return self._share_programs(_normalise(wanted, self._usual))

    def get_state(self) -> dict[str, str]:
        """Return the state for the store."""
        state = {"time": self._time, "found": self._found, "tests": self._tests, "all_found": self._all_found}
        return {"yield": json.dumps(state)}

    def list_facts(self) -> dict[str, dict[str, int]]:
        """Return tests and new failures by strategy."""
        return {
            name: {"tests": count, "new": self._all_found.get(name, 0)}
            for name, count in sorted(self._tests.items())
        }

    def _share_programs(self, of_time: Mapping[str, float]) -> dict[str, float]:
        """Convert shares of time to shares of programs: expensive programs are fewer."""
        programs = {name: share / self._sum_cost(self._ir[name]) for name, share in of_time.items()}
        whole = sum(programs.values())
        return {name: round(1000 * share / whole, 3) for name, share in programs.items()}

    def _sum_cost(self, ir: str) -> float:
        """Return the mean time of a program of an IR on the quick targets that take it, else on all
        that do.
        """
        taking = [place for place in range(len(self._costs.by_target)) if ir in self._costs.by_target[place]]
        asked = [place for place in taking if place in self._costs.quick] or taking
        return sum(self._costs.get_cost(place, ir) for place in asked) / len(asked)


def _normalise(wanted: Mapping[str, float], usual: Mapping[str, float]) -> dict[str, float]:
    """Scale the shares to the sum of the usual ones, each at least at its floor."""
    floors = {name: FLOOR * share for name, share in usual.items()}
    spare = sum(usual.values()) - sum(floors.values())
    above = {name: max(0.0, share - floors[name]) for name, share in wanted.items()}
    whole = sum(above.values())
    return {name: floors[name] + (spare * above[name] / whole if whole else 0.0) for name in usual}


def _read_numbers(state: Mapping[str, Mapping[str, float]], name: str) -> dict[str, float]:
    return {str(strategy): float(number) for strategy, number in state.get(name, {}).items()}
