"""What a target says that it lacks: programs with such an operator seldom go to it, whatever its table says
or leaves open.

An operator counts as lacked when programs are refused as unsupported for it again and again, and none with it
was taken since the campaign began. One program in eight that holds it still goes there, and one that is taken
ends it.
"""

import re
from collections.abc import Collection, Mapping

from opsieve.triage.campaign.schedule.features import is_operator

UNSUPPORTED = "unsupported"  # in the place of a fingerprint
OFTEN = 3  # refusals
_TAKEN = -1


class Lacks:
    """The operators that each target refused, and how often; `learnt` is what was kept of it."""

    def __init__(self, learnt: Mapping[str, str]):
        self._refused: dict[str, dict[str, int]] = {}
        self._settled: dict[
            str, set[str]
        ] = {}  # features of which a target takes programs, or that are no operators
        for name, value in learnt.items():
            kind, _, rest = name.partition("|")
            target, _, operator = rest.partition("|")
            if kind == "lack" and value:
                self._refused.setdefault(target, {})[operator] = int(value)

    def refused(self, target: str, has: Collection[str], what: str) -> dict[str, str]:
        """A program that `has` features was refused with these words. What changed."""
        words = set(re.findall(r"\w{1,80}", what[:1000]))
        blamed = [feature for feature in has if is_operator(feature) and feature.rpartition("::")[2] in words]
        of_target = self._refused.setdefault(target, {})
        if len(blamed) != 1 or of_target.get(blamed[0]) == _TAKEN:
            return {}
        of_target[blamed[0]] = of_target.get(blamed[0], 0) + 1
        return {f"lack|{target}|{blamed[0]}": str(of_target[blamed[0]])}

    def taken(self, target: str, has: Collection[str]) -> dict[str, str]:
        """A program that `has` features was not refused. What changed."""
        of_target, settled = self._refused.setdefault(target, {}), self._settled.setdefault(target, set())
        new = [
            feature
            for feature in set(has) - settled
            if is_operator(feature) and of_target.get(feature) != _TAKEN
        ]
        of_target.update(dict.fromkeys(new, _TAKEN))
        settled.update(has)
        return {f"lack|{target}|{operator}": str(_TAKEN) for operator in new}

    def decide(self) -> dict[str, dict[str, str]]:
        """By target the operators that it lacks."""
        return {
            target: lacked
            for target, counts in sorted(self._refused.items())
            if (lacked := {name: UNSUPPORTED for name, count in sorted(counts.items()) if count >= OFTEN})
        }

    def forget(self, target: str) -> dict[str, str]:
        """The target has another version. What changed."""
        self._settled.pop(target, None)
        return {f"lack|{target}|{operator}": "" for operator in self._refused.pop(target, {})}
