"""Instances of an operator that a compiler accepts, searched for by what it says of those that it refuses.

Compilers check one condition after the other, so a message that is new is a step further: the instance is
kept, and later ones are small changes of such, of those rather that took most steps. A message names what it
refuses, so an input, attribute or size that stands in it is changed first, its numbers are tried as ranks,
sizes and values, and a shape that it states is taken.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.instance_changes import InstanceChanges, freed
from opsieve.backends.probing.instance_drawing import InstanceDrawing, reshaped
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import Trial, TrialAnswer
from opsieve.gen.declarations.rng import Rng

_BEGINNINGS = 8  # searches from scratch, until one finds something
_ROUNDS, _BATCH = 120, 48
_FURTHER = 8  # rounds in which more kinds are sought where one was found
_PATIENCE = 32  # rounds without anything new, after which no more are begun
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")
_LISTED = re.compile(r"#(?:[,x] ?#)+")
# Deaths after which an input may be blamed, how many times oftener it is than without; draws until it is put
# up with.
_DEADLY, _FAR, _REDRAWN = 5, 4, 8
_MOST_DEATHS = 400  # of the compiler, each of which costs it a start


@dataclass(frozen=True, slots=True)
class SearchRates:
    """How often something is changed: rates between 0 and 1.

    `changed`: an instance is a change of another, `deepest` of one that took most steps, `neglected` of one
    that was changed least often, `rare` of one whose message few have; `swept`: where nothing new came, all
    instances of a round are one in which a single size varies; of several instances with one message the
    latest is kept: `renewed`, and `simpler` where it has fewer inputs and attributes.
    """

    changed: float = 0.85
    deepest: float = 0.3
    neglected: float = 0.25
    rare: float = 0.3
    swept: float = 0.25
    renewed: float = 0.2
    simpler: float = 0.5


_RATES = SearchRates()
Answers = Callable[[Sequence[Trial]], Sequence[TrialAnswer]]


@dataclass(frozen=True, slots=True)
class _Step:
    """An instance to change, what was said of it, how many new messages led to it, how often it was changed,
    and how often its message was seen.
    """

    trial: Trial
    reason: str = ""
    depth: int = 0
    tried: int = 0
    seen: int = 1


class _Deaths:
    """Of which inputs that are there, or left out, the compiler dies: it dies far oftener with them than
    without.
    """

    def __init__(self, places: int) -> None:
        self._places = range(places)
        self._asked, self._died = Counter[tuple[int, bool]](), Counter[tuple[int, bool]]()
        self.total = 0

    def note(self, trial: Trial, died: bool) -> None:
        """Count what came of an instance."""
        self.total += died
        for spot in self._spots(trial):
            self._asked[spot] += 1
            self._died[spot] += died

    def expects(self, trial: Trial) -> bool:
        """Whether an instance is likely to be deadly."""
        return any(self._is_deadly(place, there) for place, there in self._spots(trial))

    def _is_deadly(self, place: int, there: bool) -> bool:
        with_it, without = (place, there), (place, not there)
        enough = self._died[with_it] >= _DEADLY and self._asked[without] >= _DEADLY
        return (
            enough
            and self._died[with_it] * self._asked[without] > _FAR * self._died[without] * self._asked[with_it]
        )

    def _spots(self, trial: Trial) -> Iterator[tuple[int, bool]]:
        return (
            (place, place < len(trial.inputs) and trial.inputs[place] is not None) for place in self._places
        )


class InstanceSearch:
    """The search for one operator. `furthest` is what was said of the refused instance to which most steps
    led, and how many.
    """

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self.schema, self.rng = schema, rng
        self.drawing = InstanceDrawing(schema, rng)
        self.changes = InstanceChanges(schema, self.drawing, rng)
        self.furthest = (-1, "")
        self._deaths = _Deaths(len(schema.inputs))

    def run(self, answers: Answers, enough: int) -> list[Trial]:
        """Instances that were accepted, one of each kind (dtypes, ranks, inputs and attributes that are
        there); about as many kinds as are enough.
        """
        for _ in range(_BEGINNINGS):
            found = self._climb(answers, enough)
            if found or self._deaths.total > _MOST_DEATHS:
                return found
        return []

    def _climb(self, answers: Answers, enough: int) -> list[Trial]:
        steps: dict[str, _Step] = {}
        found: dict[object, Trial] = {}
        idle = 0
        origins: Sequence[_Step | None]
        for number in range(_ROUNDS):
            known = len(found) + len(steps)
            if idle and steps and not found and self.rng.chance(_RATES.swept):
                step = self._origin(found, steps) or self.rng.choice([*steps.values()])
                origins, trials = [step] * _BATCH, [(trial, True) for trial in self._swept(step)]
            else:
                origins = [self._origin(found, steps) for _ in range(_BATCH)]
                trials = [self._next(origin) for origin in origins]
            answered = answers([trial for trial, _ in trials])
            for origin, (trial, aimed), answer in zip(origins, trials, answered, strict=True):
                self._deaths.note(trial, answer.died)
                if answer.died:
                    continue  # no condition was checked, so nothing is to be learnt of it
                if answer.outputs is None:
                    key, old = _said(answer.reason), steps.get(_said(answer.reason))
                    depth = origin.depth + 1 if origin is not None and aimed else 0
                    if depth > self.furthest[0]:
                        self.furthest = (depth, answer.reason)
                    if old is None:
                        steps[key] = _Step(trial, answer.reason, depth)
                    else:
                        steps[key] = self._renewed(
                            old, replace(old, trial=trial, reason=answer.reason), depth
                        )
                elif all(0 not in shape for _, shape in answer.outputs):
                    found.setdefault(_kind(trial), trial)
            idle = 0 if len(found) + len(steps) > known else idle + 1
            if (
                len(found) >= enough
                or idle == _PATIENCE
                or self._deaths.total > _MOST_DEATHS
                or (found and number >= _FURTHER)
            ):
                break
        return [*found.values()]

    def _renewed(self, old: _Step, new: _Step, depth: int) -> _Step:
        """Which of two instances with one message is kept."""
        simpler = _parts(new.trial) < _parts(old.trial) and self.rng.chance(_RATES.simpler)
        kept = (
            replace(new, depth=min(depth, old.depth)) if simpler or self.rng.chance(_RATES.renewed) else old
        )
        return replace(kept, seen=old.seen + 1)

    def _next(self, origin: _Step | None) -> tuple[Trial, bool]:
        """The next instance, and whether it is a change that was aimed; rather none of which the compiler is
        likely to die.
        """
        for _ in range(_REDRAWN):
            found = (
                (self.drawing.drawn(), False)
                if origin is None
                else self.changes.changed(origin.trial, origin.reason)
            )
            if not self._deaths.expects(found[0]):
                break
        return found

    def _origin(self, found: Mapping[object, Trial], steps: dict[str, _Step]) -> _Step | None:
        """What is changed for the next instance; None where one is drawn."""
        if not (found or steps) or not self.rng.chance(_RATES.changed):
            return None
        if found:
            return _Step(self.rng.choice([*found.values()]))
        pool = [*steps.values()]
        draw = self.rng.random()
        if draw < _RATES.deepest:
            most = max(step.depth for step in pool)
            pool = [step for step in pool if step.depth >= most - 1]
        elif draw < _RATES.deepest + _RATES.neglected:
            pool = [min(pool, key=lambda step: step.tried)]
        elif draw < _RATES.deepest + _RATES.neglected + _RATES.rare:
            pool = sorted(pool, key=lambda step: step.seen)[: 1 + len(pool) // 4]
        chosen = self.rng.choice(pool)
        key = _said(chosen.reason)
        steps[key] = replace(chosen, tried=chosen.tried + 1)
        return chosen

    def _swept(self, step: _Step) -> list[Trial]:
        """The instance with one size, of those that the message names rather than any, from 1 on, or by
        multiples of it.
        """
        hints = MessageHints(step.reason, step.trial.inputs, self.schema, self.drawing.named)
        ins = step.trial.inputs
        spots = [
            (i, axis) for i, each in enumerate(ins) if each is not None for axis in range(len(each.shape))
        ]
        spots = [spot for spot in spots if spot[0] in hints.places] or spots
        if not spots:
            return [self.drawing.drawn() for _ in range(_BATCH)]
        place, axis = self.rng.choice(spots)
        each, unit = ins[place], self.rng.choice((1, 1, 4))
        assert each is not None
        trials = []
        for side in range(unit, unit * _BATCH + 1, unit):
            shape = (*each.shape[:axis], side, *each.shape[axis + 1 :])
            trials.append(
                replace(step.trial, inputs=(*ins[:place], reshaped(each, shape), *ins[place + 1 :]))
            )
        return [freed(trial, place) for trial in trials]


def _parts(trial: Trial) -> int:
    return sum(each is not None for each in trial.inputs) + len(trial.attributes)


def _said(reason: str) -> str:
    """A message without its numbers, and without how many there are in a list."""
    return _LISTED.sub("#", _NUMBERS.sub("#", reason))[:400]


def _kind(trial: Trial) -> object:
    ins = tuple(each and (each.dtype, len(each.shape)) for each in trial.inputs)
    return ins, tuple(sorted(trial.attributes))
