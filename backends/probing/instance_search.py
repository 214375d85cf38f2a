"""Search instances of an operator that a compiler accepts, guided by the messages of refused ones.

Compilers check one condition after the other, so a new message means progress: the instance is kept, and
later ones are small changes of it, preferring those that got furthest. A message names the refused part, so
an input, attribute or size in it is changed first, its numbers are tried as ranks, sizes and values, and a
stated shape is taken.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.instance_changes import InstanceChanges, free_shape
from opsieve.backends.probing.instance_drawing import InstanceDrawing, reshape_input
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import Trial, TrialAnswer
from opsieve.gen.declarations.rng import Rng

# Searches from scratch, until one finds something
_BEGINNINGS = 8
_ROUNDS, _BATCH = 120, 48
# Rounds in which more kinds are sought where one was found
_FURTHER = 8
# The number of rounds without news before the search stops.
_PATIENCE = 32
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")
_LISTED = re.compile(r"#(?:[,x] ?#)+")
# Deaths after which an input may be blamed, how many times oftener it is than without; draws until it is put
# up with.
_DEADLY, _FAR, _REDRAWN = 5, 4, 8
# The limit on crashes of the compiler, each of which costs a restart.
_MOST_DEATHS = 400


@dataclass(frozen=True, slots=True)
class SearchRates:
    """Rates between 0 and 1 for the search.

    `changed`: an instance is a change of another, `deepest` of one that got furthest, `neglected` of one
    changed least often, `rare` of one with a rare message; `swept`: without progress, all instances of a
    round vary a single size; of several instances with one message the latest replaces the others: `renewed`,
    and `simpler` if it has fewer inputs and attributes.
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
    """An instance to change: its message, the number of new messages that led to it, its changes, the
    message's count.
    """

    trial: Trial
    reason: str = ""
    depth: int = 0
    tried: int = 0
    seen: int = 1


class _Deaths:
    """Correlates crashes with inputs that are present or absent."""

    def __init__(self, places: int) -> None:
        self._places = range(places)
        self._asked, self._died = Counter[tuple[int, bool]](), Counter[tuple[int, bool]]()
        self.total = 0

    def note_result(self, trial: Trial, died: bool) -> None:
        """Count the result of an instance."""
        self.total += died
        for spot in self._iter_spots(trial):
            self._asked[spot] += 1
            self._died[spot] += died

    def is_expected(self, trial: Trial) -> bool:
        """Whether an instance is likely to crash the compiler."""
        return any(self._is_deadly(place, there) for place, there in self._iter_spots(trial))

    def _is_deadly(self, place: int, there: bool) -> bool:
        with_it, without = (place, there), (place, not there)
        enough = self._died[with_it] >= _DEADLY and self._asked[without] >= _DEADLY
        return (
            enough
            and self._died[with_it] * self._asked[without] > _FAR * self._died[without] * self._asked[with_it]
        )

    def _iter_spots(self, trial: Trial) -> Iterator[tuple[int, bool]]:
        return (
            (place, place < len(trial.inputs) and trial.inputs[place] is not None) for place in self._places
        )


class InstanceSearch:
    """The search for one operator. `furthest` is the depth and message of the refused instance that got
    furthest.
    """

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self.schema, self.rng = schema, rng
        self.drawing = InstanceDrawing(schema, rng)
        self.changes = InstanceChanges(schema, self.drawing, rng)
        self.furthest = (-1, "")
        self._deaths = _Deaths(len(schema.inputs))

    def search_instances(self, answers: Answers, enough: int) -> list[Trial]:
        """Search accepted instances, one of each kind (dtypes, ranks, given inputs and attributes), until
        about `enough` kinds.
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
                step = self._choose_origin(found, steps) or self.rng.choice([*steps.values()])
                origins, trials = [step] * _BATCH, [(trial, True) for trial in self._sweep_size(step)]
            else:
                origins = [self._choose_origin(found, steps) for _ in range(_BATCH)]
                trials = [self._draw_next(origin) for origin in origins]
            answered = answers([trial for trial, _ in trials])
            for origin, (trial, aimed), answer in zip(origins, trials, answered, strict=True):
                self._deaths.note_result(trial, answer.died)
                if answer.died:
                    # No condition was checked, so nothing is to be learnt of it
                    continue
                if answer.outputs is None:
                    key, old = _normalise_reason(answer.reason), steps.get(_normalise_reason(answer.reason))
                    depth = origin.depth + 1 if origin is not None and aimed else 0
                    if depth > self.furthest[0]:
                        self.furthest = (depth, answer.reason)
                    if old is None:
                        steps[key] = _Step(trial, answer.reason, depth)
                    else:
                        steps[key] = self._choose_step(
                            old, replace(old, trial=trial, reason=answer.reason), depth
                        )
                elif all(0 not in shape for _, shape in answer.outputs):
                    found.setdefault(_get_kind(trial), trial)
            idle = 0 if len(found) + len(steps) > known else idle + 1
            if (
                len(found) >= enough
                or idle == _PATIENCE
                or self._deaths.total > _MOST_DEATHS
                or (found and number >= _FURTHER)
            ):
                break
        return [*found.values()]

    def _choose_step(self, old: _Step, new: _Step, depth: int) -> _Step:
        """Choose which of two instances with one message is kept."""
        simpler = _count_parts(new.trial) < _count_parts(old.trial) and self.rng.chance(_RATES.simpler)
        kept = (
            replace(new, depth=min(depth, old.depth)) if simpler or self.rng.chance(_RATES.renewed) else old
        )
        return replace(kept, seen=old.seen + 1)

    def _draw_next(self, origin: _Step | None) -> tuple[Trial, bool]:
        """Draw the next instance, avoiding likely crashes, and whether it is a targeted change."""
        for _ in range(_REDRAWN):
            found = (
                (self.drawing.draw_instance(), False)
                if origin is None
                else self.changes.change_instance(origin.trial, origin.reason)
            )
            if not self._deaths.is_expected(found[0]):
                break
        return found

    def _choose_origin(self, found: Mapping[object, Trial], steps: dict[str, _Step]) -> _Step | None:
        """Choose the instance to change; None to draw a new one."""
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
        key = _normalise_reason(chosen.reason)
        steps[key] = replace(chosen, tried=chosen.tried + 1)
        return chosen

    def _sweep_size(self, step: _Step) -> list[Trial]:
        """Vary one size, preferably one named by the message, from 1 on, or by multiples of it."""
        hints = MessageHints(step.reason, step.trial.inputs, self.schema, self.drawing.named)
        ins = step.trial.inputs
        spots = [
            (i, axis) for i, each in enumerate(ins) if each is not None for axis in range(len(each.shape))
        ]
        spots = [spot for spot in spots if spot[0] in hints.places] or spots
        if not spots:
            return [self.drawing.draw_instance() for _ in range(_BATCH)]
        place, axis = self.rng.choice(spots)
        each, unit = ins[place], self.rng.choice((1, 1, 4))
        assert each is not None
        trials = []
        for side in range(unit, unit * _BATCH + 1, unit):
            shape = (*each.shape[:axis], side, *each.shape[axis + 1 :])
            trials.append(
                replace(step.trial, inputs=(*ins[:place], reshape_input(each, shape), *ins[place + 1 :]))
            )
        return [free_shape(trial, place) for trial in trials]


def _count_parts(trial: Trial) -> int:
    return sum(each is not None for each in trial.inputs) + len(trial.attributes)


def _normalise_reason(reason: str) -> str:
    """Return a message without its numbers and the length of its lists."""
    return _LISTED.sub("#", _NUMBERS.sub("#", reason))[:400]


def _get_kind(trial: Trial) -> object:
    ins = tuple(each and (each.dtype, len(each.shape)) for each in trial.inputs)
    return ins, tuple(sorted(trial.attributes))
