"""Decisions about a batch of tests, made before any of them begins, and the features of programs behind them.

A feature is a part of a program that a compiler may not have seen or may fail at: an operator, an operator
that feeds another one, a type at the border of the program, a pass that the program asks for.

Programs on which a target repeatedly fails in the same way are skipped there. A failure is suspected of each
feature of the first programs that showed it. A feature is known if most programs with it fail and many
programs lack it; one program in eight with it still goes to the target, and a feature that no longer fails is
forgotten.

An operator counts as missing if a target repeatedly refuses programs as unsupported for it and has taken no
program with it since the campaign began, whatever the target's table says. One program in eight with it still
goes there, and one success ends this state.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import OptionalType, SequenceType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The decisions about a batch.

    `shares` of the strategies, in thousandths of the programs ({}: the campaign's own strategy makes all);
    `known` maps targets to features they are known to fail at, each with the fingerprint of the failure.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def strategy_shares(self) -> tuple[tuple[str, float], ...]:
        """The shares as `mix` takes them."""
        return tuple(self.shares.items())

    def to_text(self) -> str:
        """Encode the decision for the store."""
        return json.dumps(
            {"shares": dict(self.shares), "known": {name: dict(each) for name, each in self.known.items()}}
        )


def read_decision(text: str) -> BatchDecision:
    """Decode a stored decision; raises Python's errors for an invalid text."""
    kept = json.loads(text)
    shares = {str(name): float(share) for name, share in kept["shares"].items()}
    return BatchDecision(shares, {str(name): {**features} for name, features in kept["known"].items()})


# Of one program
MOST = 400


def list_features(program: Program) -> tuple[str, ...]:
    """List a program's features: `Relu`, `Conv > Relu`, `in float16`, `out sequence(float32)`, `pass
    FuseOps`; each once, sorted.
    """
    # Bounded, because the state of a campaign grows with the features of failing programs.
    return tuple(sorted(set(_iter_features(program))))[:MOST]


def is_operator(feature: str) -> bool:
    """Whether a feature is an operator."""
    return " " not in feature


def _iter_features(program: Program) -> Iterator[str]:
    yield from program.operators()
    yield from (f"{producer} > {consumer}" for producer, consumer in program.edges() if producer)
    yield from (f"in {_name_type(type_)}" for type_ in program.inputs().values())
    yield from (f"out {_name_type(type_)}" for type_ in program.outputs().values())
    # `NAME:ARGUMENT`; `=OPTION:VALUE` is no pass.
    yield from (f"pass {item.partition(':')[0]}" for item in program.passes if not item.startswith("="))


def _name_type(type_: ValueType) -> str:
    if isinstance(type_, SequenceType):
        return f"sequence({_name_type(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({_name_type(type_.element)})"
    return type_.dtype if isinstance(type_, TensorType) else "other"


# One in this many programs with known failures still goes to the target.
STILL = 8
# Failures before it is known
OFTEN = 6
# Shares of the programs with a feature that fail
_SURE, _LIKELY = 0.8, 0.5
# The first programs that showed a failure
_SUSPECTED_BY = 3
# Times the share of all the target's programs that fail so
_MORE = 1.5
# Of the target's programs that hold a feature, at most
_RARE = 0.5
# Failures of a target that are looked at
_MOST = 200


@dataclass(slots=True)
class _Suspicion:
    """A failure: its count, the target's tests before it, and for each feature its failing and total
    programs.
    """

    failures: int = 0
    before: int = 0
    features: dict[str, list[int]] = field(default_factory=dict)

    def list_known(self, tests: int) -> list[str]:
        """List the features by which the failure is recognised."""
        # Tests before the first failure say nothing of a version that did not fail yet.
        seen = max(1, tests - self.before)
        least = max(_LIKELY, _MORE * self.failures / seen)
        likely = {
            feature: failed / held
            for feature, (failed, held) in self.features.items()
            # A feature that most programs have cannot tell the failing ones apart.
            if failed >= OFTEN and failed / held >= least and held <= _RARE * seen
        }
        if not likely:
            return []
        best = max(
            likely,
            # With equal shares an operator explains more than an edge of it; the name makes the choice
            # repeatable.
            key=lambda feature: (likely[feature], is_operator(feature), self.features[feature], feature),
        )
        sure = {feature for feature, share in likely.items() if share >= _SURE} | {best}
        operators = {feature for feature in sure if is_operator(feature)}
        return sorted(
            # An edge of a blamed operator would leave out nothing more.
            feature
            for feature in sure
            if feature in operators or not operators & set(feature.split(" "))
        )

    def to_text(self) -> str:
        """Encode the state for the store."""
        return json.dumps([self.failures, self.before, self.features])


class KnownFailures:
    """The known failures of a campaign's targets; `learnt` is the stored state."""

    def __init__(self, learnt: Mapping[str, str]):
        self._of: dict[str, dict[str, _Suspicion]] = {}
        # Failures by target and feature
        self._suspected: dict[str, dict[str, set[str]]] = {}
        self._tests: dict[str, int] = {}
        # targets, and failures of theirs
        self._changed: set[tuple[str, str]] = set()
        for name, value in learnt.items():
            kind, _, rest = name.partition("|")
            target, _, key = rest.partition("|")
            if kind == "known" and value:
                failures, before, kept = json.loads(value)
                features = {
                    str(feature): [int(failed), int(held)] for feature, (failed, held) in kept.items()
                }
                self._of.setdefault(target, {})[key] = _Suspicion(int(failures), int(before), features)
                for feature in features:
                    self._suspected.setdefault(target, {}).setdefault(feature, set()).add(key)
            elif kind == "tests" and value:
                self._tests[target] = int(value)

    def note_test(self, target: str, has: Collection[str], failures: Collection[str]) -> None:
        """Record that a target ran a program with features `has` and failed with these fingerprints."""
        tests = self._tests[target] = self._tests.get(target, 0) + 1
        suspicions = self._of.setdefault(target, {})
        changed = {""}
        for key in failures:
            # A target that fails everywhere must not fill the store.
            if key not in suspicions and len(suspicions) < _MOST:
                suspicions[key] = _Suspicion(before=tests - 1)
            if key in suspicions:
                suspicions[key].failures += 1
                changed.add(key)
                if suspicions[key].failures <= _SUSPECTED_BY:
                    for feature in has:
                        suspicions[key].features.setdefault(feature, [0, 0])
                        self._suspected.setdefault(target, {}).setdefault(feature, set()).add(key)
        suspected = self._suspected.get(target, {})
        for feature in suspected.keys() & has:
            for key in sorted(suspected[feature]):
                cell = suspicions[key].features[feature]
                cell[0], cell[1] = cell[0] + (key in failures), cell[1] + 1
                # Dropped for good, which keeps the lists short; another failure may suspect it anew.
                if cell[1] >= OFTEN and cell[0] / cell[1] < _LIKELY:
                    del suspicions[key].features[feature]
                    suspected[feature].discard(key)
                changed.add(key)
            if not suspected[feature]:
                del suspected[feature]
        self._changed.update((target, key) for key in changed)

    def take_changes(self) -> dict[str, str]:
        """Return the changes since the last call, for the store."""
        found = {}
        for target, key in self._changed:
            if not key:
                found[f"tests|{target}"] = str(self._tests[target])
            else:
                found[f"known|{target}|{key}"] = self._of[target][key].to_text()
        self._changed.clear()
        return found

    def list_known(self) -> dict[str, dict[str, str]]:
        """List by target the features that it is known to fail at, each with the fingerprint of the
        failure.
        """
        found: dict[str, dict[str, str]] = {}
        for target, suspicions in sorted(self._of.items()):
            for key, suspicion in sorted(suspicions.items()):
                for feature in suspicion.list_known(self._tests[target]):
                    found.setdefault(target, {}).setdefault(feature, key)
        return found

    def forget_target(self, target: str) -> dict[str, str]:
        """Forget a target that has another version; return the changes."""
        changes = {f"known|{target}|{key}": "" for key in self._of.pop(target, {})}
        self._tests.pop(target, None)
        self._suspected.pop(target, None)
        self._changed = {place for place in self._changed if place[0] != target}
        return {**changes, f"tests|{target}": ""}


def choose_skipped_feature(
    seed: int, number: int, target: str, has: Collection[str], known: Mapping[str, Mapping[str, str]]
) -> str:
    """Return the feature for which a target skips a test, or "" if it runs it."""
    held = sorted(set(known.get(target, ())) & set(has))
    # A number from seed and test, so that a resumed campaign decides alike.
    if not held or Rng(f"known {seed} {number} {target}").chance(1 / STILL):
        return ""
    return held[0]


# In the place of a fingerprint
UNSUPPORTED = "unsupported"
# Refusals
REFUSED_OFTEN = 3
_TAKEN = -1


class Lacks:
    """The operators that each target refused, with counts; `learnt` is the stored state."""

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

    def note_refusal(self, target: str, has: Collection[str], what: str) -> dict[str, str]:
        """Record that a program with features `has` was refused with this message; return the changes."""
        # Bounded, because a message may hold a whole model.
        words = set(re.findall(r"\w{1,80}", what[:1000]))
        blamed = [feature for feature in has if is_operator(feature) and feature.rpartition("::")[2] in words]
        of_target = self._refused.setdefault(target, {})
        # A message that names two operators blames neither for certain.
        if len(blamed) != 1 or of_target.get(blamed[0]) == _TAKEN:
            return {}
        of_target[blamed[0]] = of_target.get(blamed[0], 0) + 1
        return {f"lack|{target}|{blamed[0]}": str(of_target[blamed[0]])}

    def note_success(self, target: str, has: Collection[str]) -> dict[str, str]:
        """Record that a program with features `has` was accepted; return the changes."""
        of_target, settled = self._refused.setdefault(target, {}), self._settled.setdefault(target, set())
        new = [
            feature
            for feature in set(has) - settled
            if is_operator(feature) and of_target.get(feature) != _TAKEN
        ]
        of_target.update(dict.fromkeys(new, _TAKEN))
        settled.update(has)
        return {f"lack|{target}|{operator}": str(_TAKEN) for operator in new}

    def list_lacking(self) -> dict[str, dict[str, str]]:
        """List by target the operators that it lacks."""
        return {
            target: lacked
            for target, counts in sorted(self._refused.items())
            if (
                lacked := {
                    name: UNSUPPORTED for name, count in sorted(counts.items()) if count >= REFUSED_OFTEN
                }
            )
        }

    def forget_target(self, target: str) -> dict[str, str]:
        """Forget a target that has another version; return the changes."""
        self._settled.pop(target, None)
        return {f"lack|{target}|{operator}": "" for operator in self._refused.pop(target, {})}
