"""Instances of an operator that a compiler accepts, searched for by what it says of those that it refuses.

Compilers check one condition after the other, so a message that is new is a step further: the instance is kept, and later ones are small changes of
such, of those rather that took most steps. A message names what it refuses, so an input, attribute or size that stands in it is changed first, its numbers are tried as
ranks, sizes and values, and a shape that it states is taken.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.documented_shapes import Shape
from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot
from opsieve.backends.probing.instance_drawing import MOST_RANK, PALETTE, InstanceDrawing, reshaped
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import ShapePlan, Trial, TrialAnswer, TrialInput, drawn_dtypes
from opsieve.gen.spec.rng import Rng

_BEGINNINGS = 3  # searches from scratch, until one finds something
_ROUNDS, _BATCH = 75, 48
_FURTHER = 8  # rounds in which more kinds are sought where one was found
_PATIENCE = 24  # rounds without anything new, after which no more are begun
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")
_DEADLY, _REDRAWN = 3, 6
_MOST_DEATHS = 400  # of the compiler, each of which costs it a start


@dataclass(frozen=True, slots=True)
class SearchRates:
    """How often something is changed: rates between 0 and 1.

    `changed`: an instance is a change of another, `deepest` of one that took most steps, `neglected` of one that was changed least often; `swept`: where nothing new came, all instances
    of a round are one in which a single size varies; `renewed`: of several instances with one
    message the latest is kept; `together`: all inputs that the message names are added or left out; `repeated`: an
    input that may be repeated is, as a group of several; `named`: what the message names is changed, `as_named` to a number in it,
    `stated` to a shape in it; `planned`: a size or shape of the documentation is, rather than a single input; `left`: an attribute that may be is left out;
    `common`: a size becomes one of another input.
    """

    changed: float = 0.8
    deepest: float = 0.3
    neglected: float = 0.45
    swept: float = 0.25
    renewed: float = 0.2
    together: float = 0.3
    repeated: float = 0.2
    named: float = 0.7
    as_named: float = 0.5
    stated: float = 0.5
    planned: float = 0.5
    left: float = 0.2
    common: float = 0.7


_RATES = SearchRates()
Answers = Callable[[Sequence[Trial]], Sequence[TrialAnswer]]


@dataclass(frozen=True, slots=True)
class _Step:
    """An instance to change, what was said of it, and how many new messages led to it."""

    trial: Trial
    reason: str = ""
    depth: int = 0
    tried: int = 0


class InstanceSearch:
    """The search for one operator. `last` is what was said of the last instance that was refused."""

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self.schema, self.rng = schema, rng
        self.drawing = InstanceDrawing(schema, rng)
        self.last = ""
        self._died = 0

    def run(self, answers: Answers, enough: int) -> list[Trial]:
        """Instances that were accepted, one of each kind (dtypes, ranks, inputs and attributes that are there); about as many kinds as are enough."""
        for _ in range(_BEGINNINGS):
            found = self._climb(answers, enough)
            if found or self._died > _MOST_DEATHS:
                return found
        return []

    def _climb(self, answers: Answers, enough: int) -> list[Trial]:
        steps: dict[str, _Step] = {}
        found: dict[object, Trial] = {}
        deadly = Counter[tuple[bool, ...]]()  # how often the compiler died with these inputs
        idle = 0
        origins: Sequence[_Step | None]
        for number in range(_ROUNDS):
            known = len(found) + len(steps)
            if idle and steps and not found and self.rng.chance(_RATES.swept):
                step = self._origin(found, steps) or self.rng.choice([*steps.values()])
                origins, trials = [step] * _BATCH, [(trial, True) for trial in self._swept(step)]
            else:
                origins = [self._origin(found, steps) for _ in range(_BATCH)]
                trials = [
                    (self.drawing.drawn(), False) if origin is None else self._changed(origin) for origin in origins
                ]
            answered = answers([trial for trial, _ in trials])
            for origin, (trial, aimed), answer in zip(origins, trials, answered, strict=True):
                deadly[_inputs_there(trial)] += 1 if answer.died else -_DEADLY
                self._died += answer.died
                if answer.died:
                    continue  # no condition was checked, so nothing is to be learnt of it
                if answer.outputs is None:
                    self.last = answer.reason[:160]
                    key, old = _said(answer.reason), steps.get(_said(answer.reason))
                    depth = origin.depth + 1 if origin is not None and aimed else 0
                    if old is None:
                        steps[key] = _Step(trial, answer.reason, depth)
                    elif self.rng.chance(_RATES.renewed):
                        steps[key] = replace(old, trial=trial, reason=answer.reason, depth=min(depth, old.depth))
                elif all(0 not in shape for _, shape in answer.outputs):
                    found.setdefault(_kind(trial), trial)
            idle = 0 if len(found) + len(steps) > known else idle + 1
            if len(found) >= enough or idle == _PATIENCE or self._died > _MOST_DEATHS or (found and number >= _FURTHER):
                break
        return [*found.values()]

    def _next(self, origin: _Step | None, deadly: Mapping[tuple[bool, ...], int]) -> tuple[Trial, bool]:
        """The next instance, and whether it is a change that was aimed; rather none with inputs of which the compiler only died so far."""
        for _ in range(_REDRAWN):
            found = (self.drawing.drawn(), False) if origin is None else self._changed(origin)
            if deadly[_inputs_there(found[0])] < _DEADLY:
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
        chosen = self.rng.choice(pool)
        key = _said(chosen.reason)
        steps[key] = replace(chosen, tried=chosen.tried + 1)
        return chosen

    def _swept(self, step: _Step) -> list[Trial]:
        """The instance with one size, of those that the message names rather than any, from 1 on, or by multiples of it."""
        hints = MessageHints(step.reason, step.trial.inputs, self.schema, self.drawing.named)
        ins = step.trial.inputs
        spots = [(i, axis) for i, each in enumerate(ins) if each is not None for axis in range(len(each.shape))]
        spots = [spot for spot in spots if spot[0] in hints.places] or spots
        if not spots:
            return [self.drawing.drawn() for _ in range(_BATCH)]
        place, axis = self.rng.choice(spots)
        each, unit = ins[place], self.rng.choice((1, 1, 4))
        assert each is not None
        trials = []
        for side in range(unit, unit * _BATCH + 1, unit):
            shape = (*each.shape[:axis], side, *each.shape[axis + 1 :])
            trials.append(replace(step.trial, inputs=(*ins[:place], reshaped(each, shape), *ins[place + 1 :])))
        return [_freed(trial, place) for trial in trials]

    def _changed(self, step: _Step) -> tuple[Trial, bool]:
        """Up to three things of an instance are others: those that the message names rather than any; whether only such were."""
        trial, hints = step.trial, MessageHints(step.reason, step.trial.inputs, self.schema, self.drawing.named)
        aimed = True
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            names, places, sizes = hints.attributes, hints.places, hints.sizes
            if not (self.rng.chance(_RATES.named) and (names or places or sizes)):
                aimed = aimed and not (names or places or sizes)
                names, places = [*self.schema.attributes], [*range(max(len(trial.inputs), 1))]
                sizes = [*self.drawing.named]
            if self.schema.inputs[-1].variadic and self.rng.chance(_RATES.repeated):
                trial = self._repeated(trial, hints.numbers)
            elif len(hints.places) > 1 and self.rng.chance(_RATES.together):
                trial = self._together(trial, hints.places)
            elif hints.constant and self.rng.chance(_RATES.named):
                chosen = hints.places or range(1, len(trial.inputs))
                made = (e and replace(e, constant=e.constant or i in chosen) for i, e in enumerate(trial.inputs))
                trial = replace(trial, inputs=tuple(made))
            elif hints.shapes and hints.places and self.rng.chance(_RATES.stated):
                trial = self._stated(trial, self.rng.choice(hints.places), self.rng.choice(hints.shapes))
            elif trial.plan is not None and (sizes or places) and self.rng.chance(_RATES.planned):
                trial = self._replanned(trial, sizes, places, hints)
            elif names and (not places or self.rng.chance(len(names) / (len(names) + 2 * len(places)))):
                trial = self._other_attribute(trial, self.rng.choice(names), hints.numbers)
            elif places:
                trial = self._other_input(trial, self.rng.choice(places), hints)
        return self.drawing.laid(replace(trial, draw=self.rng.below(1 << 30))), aimed

    def _stated(self, trial: Trial, place: int, shape: Shape) -> Trial:
        """The instance where an input has the shape that a message states."""
        ins = [*trial.inputs, *[None] * (place + 1 - len(trial.inputs))]
        self._added(ins, place, ())
        plan = trial.plan or ShapePlan({}, {}, {})
        return replace(trial, inputs=tuple(ins), plan=replace(plan, shapes={**plan.shapes, place: shape}))

    def _repeated(self, trial: Trial, numbers: Sequence[int]) -> Trial:
        """The instance where the inputs of the last slot are another number of equal groups."""
        first = len(self.schema.inputs) - 1
        size = self.rng.choice([number for number in numbers if 0 < number < MOST_RANK] or (1, 2, 3))
        tail = trial.inputs[first:]
        if not tail:
            return trial
        group = (tail * size)[:size]
        return replace(trial, inputs=(*trial.inputs[:first], *group * self.rng.between(1, 3)))

    def _together(self, trial: Trial, places: Sequence[int]) -> Trial:
        """The instance where all these inputs are there, are left out as far as they may be, or have one shape."""
        ins = [*trial.inputs, *[None] * (max(places) + 1 - len(trial.inputs))]
        what, plan = self.rng.below(3), trial.plan
        if what == 0:
            added = [each for place in places if ins[place] is None for each in self._added(ins, place, ())]
            plan = self._with_shapes(plan, added)
        elif what == 1:
            ins = [None if place in places and self._slot(place).optional else each for place, each in enumerate(ins)]
        else:
            there = [each.shape for place in places if (each := ins[place]) is not None]
            shape = self.rng.choice(there) if there else ()
            ins = [each and reshaped(each, shape) if place in places else each for place, each in enumerate(ins)]
        found = replace(trial, inputs=_trimmed(ins), plan=plan)
        for place in places if what == 2 else ():
            found = _freed(found, place)
        return found

    def _with_shapes(self, plan: ShapePlan | None, places: Sequence[int]) -> ShapePlan | None:
        """The plan with shapes of the documentation for inputs that it has none for."""
        if plan is None:
            return None
        shapes = {each: self.rng.choice(self._stated_shapes(each)) for each in places if self._stated_shapes(each)}
        return replace(plan, shapes={**plan.shapes, **shapes})

    def _replanned(self, trial: Trial, sizes: Sequence[str], places: Sequence[int], hints: MessageHints) -> Trial:
        """The instance by another plan: a size is another, is tied to others, stands elsewhere, or an input has another shape of those stated."""
        rng, plan = self.rng, trial.plan
        assert plan is not None
        names = [*plan.sizes] or [*self.drawing.named]
        if not names:
            return trial
        name = rng.choice(sizes or names)
        stated = [place for place in places if place in plan.shapes or self._stated_shapes(place)]
        what = rng.below(4 if stated else 2)
        if what == 0:
            pool = [number for number in (*hints.numbers, *self.schema.numbers.get(name, ())) if number > 0]
            side = rng.choice(pool) if pool and rng.chance(_RATES.as_named) else rng.choice((*PALETTE, 32, 64))
            ties = {tied: term for tied, term in plan.ties.items() if tied != name}
            values = {**trial.attributes, **({name: side} if name in trial.attributes else {})}
            return replace(trial, attributes=values, plan=replace(plan, sizes={**plan.sizes, name: side}, ties=ties))
        if what == 1:
            one, other = rng.choice(names), rng.choice(names)
            term = rng.choice((one, f"{one} * {other}", f"{one} + {other}", f"{one} * 2"))
            return replace(trial, plan=replace(plan, ties={**plan.ties, name: term}))
        place = rng.choice(stated)
        shape = plan.shapes.get(place, ())
        if what == 2 and shape:
            axis = hints.axis if hints.axis is not None and hints.axis < len(shape) else rng.below(len(shape))
            term = rng.choice(hints.sizes or names)
            shape = (*shape[:axis], rng.choice((term, term, f"{term} / 2", f"{term} * 2")), *shape[axis + 1 :])
        else:
            shape = rng.choice([*self._stated_shapes(place), *hints.shapes] or [shape])
        return replace(trial, plan=replace(plan, shapes={**plan.shapes, place: shape}))

    def _slot(self, place: int) -> SchemaSlot:
        return self.schema.inputs[min(place, len(self.schema.inputs) - 1)]

    def _stated_shapes(self, place: int) -> Sequence[tuple[str, ...]]:
        return self.drawing.shapes[min(place, len(self.schema.inputs) - 1)]

    def _other_attribute(self, trial: Trial, name: str, numbers: Sequence[int]) -> Trial:
        sizes = [side for each in trial.inputs if each is not None for side in each.shape]
        value = self.drawing.value(name, numbers or sizes)
        values = dict(trial.attributes)
        if value is not None:
            values[name] = value
        if name not in self.schema.required and self.rng.chance(_RATES.left):
            values.pop(name, None)
        return replace(trial, attributes=values, plan=trial.plan)

    def _other_input(self, trial: Trial, place: int, hints: MessageHints) -> Trial:
        ins = [*trial.inputs, *[None] * (place + 1 - len(trial.inputs))]
        old, slot = ins[place], self._slot(place)
        others = [each for other, each in enumerate(ins) if each is not None and other != place]
        plan = trial.plan
        if old is None:
            word = self.rng.choice(slot.name.split("_"))
            kindred = [other for other, each in enumerate(self.schema.inputs) if word in each.name.split("_")]
            plan = self._with_shapes(plan, self._added(ins, place, kindred if self.rng.chance(_RATES.common) else ()))
            return replace(trial, inputs=tuple(ins), plan=plan)
        what = self.rng.below(10)
        if what == 1 and slot.optional:
            ins[place] = None
        elif what in (5, 6):
            self._retyped(ins, place, hints.dtypes)
        elif what in (7, 9):
            attributes = [value for value in trial.attributes.values() if type(value) is int and value >= 0]
            sizes = [side for each in others for side in each.shape] + attributes
            ins[place] = self.drawing.exact(old, [*sizes, *(plan.sizes.values() if plan is not None else ())])
        elif what == 8 and old.shape:
            size, new = self.rng.choice(old.shape), self.rng.choice(PALETTE)
            ins = [e and reshaped(e, tuple(new if side == size else side for side in e.shape)) for e in ins]
            plan = None
        else:
            ins[place] = self._resized(old, others, hints.numbers)
            plan = plan and replace(plan, shapes={k: v for k, v in plan.shapes.items() if k != place})
        if not slot.alike and ins[place] is not None:  # those of one role come again and again
            groups = [number for number in hints.numbers if 0 < number < MOST_RANK] or [1, 2, 3]
            for other in range(place, len(ins), self.rng.choice((*groups, len(ins)))):
                ins[other] = ins[place]
        return replace(trial, inputs=_trimmed(ins), plan=plan)

    def _added(self, ins: list[TrialInput | None], place: int, kindred: Sequence[int]) -> list[int]:
        """Put an input in that was left out, and all of its kindred that were; which."""
        added = []
        for each in {place, *kindred}:
            ins.extend([None] * (each + 1 - len(ins)))
            slot = self._slot(each)
            allowed = drawn_dtypes(self.schema, slot.type)
            there = [(other, one) for other, one in enumerate(ins) if one is not None]
            same = [one.dtype for other, one in there if self._slot(other).type == slot.type]
            if allowed and ins[each] is None:
                first = self.rng.choice(there)[1] if there else None
                ins[each] = self.drawing.input(self.rng.choice(same or allowed), first, PALETTE)
                added.append(each)
        return added

    def _retyped(self, ins: list[TrialInput | None], place: int, wanted: Sequence[str]) -> None:
        """Give an input, and all that have its type variable, another dtype or range; of inputs that differ it alone."""
        slot = self._slot(place)
        allowed = drawn_dtypes(self.schema, slot.type)
        allowed = [dtype for dtype in allowed if dtype in wanted] or allowed
        old = ins[place]
        dtype = self.rng.choice(allowed) if allowed and (old is None or self.rng.chance(0.5)) else old and old.dtype
        if not dtype:
            return
        low, high = self.drawing.range(dtype)
        for other, each in enumerate(ins):
            alike = other == place or (slot.alike and self._slot(other).type == slot.type)
            if each is None or not alike:
                continue
            if each.dtype != dtype:
                ins[other] = replace(each, dtype=dtype, low=low, high=high, values=())
            elif other == place:
                ins[other] = replace(each, low=low, high=high, values=())

    def _resized(self, old: TrialInput, others: Sequence[TrialInput], numbers: Sequence[int]) -> TrialInput:
        """An input of another shape."""
        rng = self.rng
        what = rng.below(5)
        if what == 4:
            return reshaped(old, ())
        sides = [side for each in others for side in each.shape]
        if what == 0:
            made = self.drawing.input(old.dtype, rng.choice(others) if others else None, PALETTE)
            return replace(made, constant=old.constant)
        if what == 1:
            ranks = [number for number in numbers if number < MOST_RANK]
            rank = rng.choice(ranks) if ranks and rng.chance(_RATES.as_named) else rng.below(MOST_RANK)
            more = tuple(rng.choice(sides or PALETTE) for _ in range(rank))
            return reshaped(old, (*old.shape, *more)[:rank])
        if what == 2 and old.shape:
            axis = rng.below(len(old.shape))
            pool = [number for number in numbers if number] if rng.chance(_RATES.as_named) else sides
            side = rng.choice(pool) if pool and rng.chance(_RATES.common) else rng.choice(PALETTE)
            return reshaped(old, (*old.shape[:axis], side, *old.shape[axis + 1 :]))
        return reshaped(old, rng.choice(others).shape) if others else old


def _trimmed(ins: Sequence[TrialInput | None]) -> tuple[TrialInput | None, ...]:
    """The inputs without those at the end that are left out."""
    count = max((place + 1 for place, each in enumerate(ins) if each is not None), default=0)
    return tuple(ins[:count])


def _freed(trial: Trial, place: int) -> Trial:
    """The instance where the shape of an input is no longer that of the plan."""
    plan = trial.plan
    shapes = {other: shape for other, shape in plan.shapes.items() if other != place} if plan is not None else {}
    return replace(trial, plan=plan and replace(plan, shapes=shapes))


def _inputs_there(trial: Trial) -> tuple[bool, ...]:
    return tuple(each is not None for each in trial.inputs)


def _said(reason: str) -> str:
    """A message without its numbers."""
    return _NUMBERS.sub("#", reason)[:400]


def _kind(trial: Trial) -> object:
    ins = tuple(each and (each.dtype, len(each.shape)) for each in trial.inputs)
    return ins, tuple(sorted(trial.attributes))
