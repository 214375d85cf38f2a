"""Share the time of a campaign: the cost of a test, the programs that a slow target runs, and each strategy's
share.

The cost of a test on a target is in milliseconds stated by its backend, or measured by `opsieve doctor
--costs` (cost_table.py), never by the campaign, so that equal campaigns decide alike. A campaign keeps its
initial costs in its text: `11.5+930/relax:150/tir:40`, one target after another, ONNX models first.

Targets have equal shares of the time, slow ones get promising programs. While the quick targets run every
program, a slow one saves up the time that each of them took; it runs a program once it has saved enough and
the program is as promising as the best of late. Promising are new failures of another target, and operators
and edges that the slow target has not met. Such programs are larger than others, so a test counts by its
features. A decision about a test follows from the tests before it and from the quick targets' answers.

A strategy's share of the programs is proportional to its yield per time, and at least a part of its usual
share. A yield is the first failure of a fingerprint in the campaign, or a test that reached new coverage.
Old results count less. Shares are decided for a batch of 256 tests, from batches some way back, so that
lanes can work on several batches at once.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.backends.registry import ResolvedTarget
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import ONNX, ir_named, ir_names
from opsieve.gen.strategies.registry import list_names as installed
from opsieve.triage.campaign.schedule import batch, cost_table

# A target that costs more than this multiple of the cheapest gets only some programs.
SLOW = 2.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds of a test by target, in the campaign's order, and IR of the program; a missing IR is not
    taken.
    """

    by_target: tuple[Mapping[str, float], ...]

    def __bool__(self) -> bool:
        return bool(self.by_target)

    def __str__(self) -> str:
        return "+".join(
            "/".join(f"{ir}:{cost:g}" for ir, cost in sorted(each.items())) for each in self.by_target
        )

    def get_cost(self, place: int, ir: str) -> float:
        """Return the cost of a program of an IR on a target; infinity if the target does not take the IR."""
        return self.by_target[place].get(ir, float("inf"))

    @property
    def quick(self) -> tuple[int, ...]:
        """The places of the targets that are quick enough to run every program. Costs of ONNX models count,
        if a target takes them, since most programs are ONNX models.
        """
        ir = "onnx" if any("onnx" in each for each in self.by_target) else min(self.by_target[0])
        least = min(self.get_cost(place, ir) for place in range(len(self.by_target)))
        return tuple(
            place for place in range(len(self.by_target)) if self.get_cost(place, ir) <= SLOW * least
        )

    @property
    def slow(self) -> tuple[int, ...]:
        """The places of all other targets."""
        return tuple(place for place in range(len(self.by_target)) if place not in self.quick)


NONE = Costs(())


def read_stated(targets: Sequence[ResolvedTarget]) -> Costs:
    """Return the costs of targets: those measured on this machine, else those that their backends state."""
    measured, found = cost_table.load_costs(), []
    for target in targets:
        costs = {**target.facts.milliseconds}
        if target.name in measured:
            # Only ONNX models are measured; other IRs keep what the backend states.
            costs[ONNX] = measured[target.name]
        found.append({ir: float(costs.get(ir, cost_table.USUAL)) for ir in target.irs})
    return Costs(tuple(found))


def parse_costs(text: str) -> Costs:
    """Parse the costs in a campaign's text; raises BadInput for an invalid text."""
    try:
        found = tuple(
            {ir: float(cost) for ir, _, cost in (item.partition(":") for item in target.split("/"))}
            for target in text.split("+")
        )
        # The text may come from a stranger's store, and the costs are divisors.
        if not all(0 < cost < float("inf") for each in found for cost in each.values()):
            raise ValueError
    except ValueError:
        raise BadInput(f"{shown(text)} states no costs; was the campaign begun by a newer opsieve?") from None
    return Costs(found)


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
            # Further failures change no decision, so that they need no row in the store.
            if seen <= _OFTEN + 1:
                changes[f"failed|{key}"] = str(seen)
        # Time grows with the size of a program, which its number of features stands for.
        size = max(1, len(has)) / ir_named(ir).usual_features
        taken = [
            size * self._costs.get_cost(place, ir) for name, place in self._quick.items() if name in answered
        ]
        # The mean of the quick targets: each slow one gets as much time as one of them.
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
            # Bounded, or a target that was idle for long would later hold up all lanes.
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
            _OPERATOR if batch.is_operator(feature) else _EDGE for feature in has if feature not in met
        )
        # It fades within the time that one test takes
        best = self._bar[name] * (1 - min(1.0, income / cost))
        self._bar[name] = max(score, best)
        # Every target is tried early, so that one that always fails is seen at once.
        if number < ALONE + FIRST:
            return number >= ALONE and self._saved[name] > -LENT
        saved = self._saved[name] / cost
        # A target with much saved runs anything: its time would otherwise be lost.
        return saved >= 0 and (score >= best or (saved >= SAVED_ENOUGH and score > 0) or saved >= SAVED)


# Of its usual share that a strategy keeps
FLOOR = 0.25
# Times its usual share that it can have
MOST = 4.0
# Older batches fade, because strategies run out of new failures at different times.
_FADES = 0.95
# A prior of this many expected finds, because a few finds may be luck.
_DOUBT = 3.0
_HALVINGS = 60


class Shares:
    """The strategies of a campaign and their yields.

    `learnt` is the stored state, `others` includes strategies for IRs other than ONNX.
    """

    def __init__(self, costs: Costs, learnt: Mapping[str, str], others: bool = True):
        self._costs = costs
        taken = {ir for each in costs.by_target for ir in each}
        self._ir, self._usual = dict[str, str](), dict[str, float]()
        for ir in map(ir_named, filter(taken.__contains__, ir_names() if others else (ONNX,))):
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
        ratios = {}
        for name in self._usual:
            # What a strategy would find if all were equally good for their time.
            expected = whole_found * self._time[name] / whole_time if whole_time else 0.0
            ratios[name] = (self._found[name] + _DOUBT) / (expected + _DOUBT)
        for each in (self._time, self._found):
            for name in each:
                each[name] *= _FADES

        def scale_shares(factor: float) -> dict[str, float]:
            return {
                name: usual * min(MOST, max(FLOOR, factor * ratios[name]))
                for name, usual in self._usual.items()
            }

        # The factor with which the shares, each within its limits, have the sum of the usual ones. Bisection:
        # the sum grows with the factor, and this many halvings exhaust a float.
        whole, low, high = sum(self._usual.values()), 0.0, MOST / min(ratios.values())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if sum(scale_shares(middle).values()) > whole else (middle, high)
        return self._share_programs(scale_shares(low))

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
        # Rounded, because the shares are stored as text and must be the same when they are read.
        return {name: round(1000 * share / whole, 3) for name, share in programs.items()}

    def _sum_cost(self, ir: str) -> float:
        """Return the mean time of a program of an IR on the quick targets that take it, else on all
        that do.
        """
        taking = [place for place in range(len(self._costs.by_target)) if ir in self._costs.by_target[place]]
        asked = [place for place in taking if place in self._costs.quick] or taking
        return sum(self._costs.get_cost(place, ir) for place in asked) / len(asked)


def _read_numbers(state: Mapping[str, Mapping[str, float]], name: str) -> dict[str, float]:
    return {str(strategy): float(number) for strategy, number in state.get(name, {}).items()}
