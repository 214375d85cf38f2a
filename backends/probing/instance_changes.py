"""Small changes of an instance that was refused: first of what the message names, towards what it says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.documented_shapes import Shape
from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot
from opsieve.backends.probing.instance_drawing import MOST_RANK, PALETTE, InstanceDrawing, reshaped
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import ShapePlan, Trial, TrialInput, drawn_dtypes
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import is_float

_NO_NUMBERS = ("string", "bool")


@dataclass(frozen=True, slots=True)
class ChangeRates:
    """How often something is changed: rates between 0 and 1.

    `together`: all inputs that the message names are added or left out; `repeated`: an input that may be
    repeated is, as a group of several; `named`: what the message names is changed, `as_named` to a number in
    it, `stated` to a shape or between the numbers that it states; `planned`: a size or shape of the
    documentation is, rather than a single input; `left`: an attribute that may be is left out; `common`: a
    size becomes one of another input; `dropped`: beside the change something that may be left out is.
    """

    together: float = 0.3
    repeated: float = 0.2
    named: float = 0.7
    as_named: float = 0.5
    stated: float = 0.5
    planned: float = 0.5
    left: float = 0.2
    common: float = 0.7
    dropped: float = 0.1


_RATES = ChangeRates()


class InstanceChanges:
    """What may be changed of instances of one operator."""

    def __init__(self, schema: DomainSchema, drawing: InstanceDrawing, rng: Rng) -> None:
        self.schema, self.drawing, self.rng = schema, drawing, rng

    def changed(self, trial: Trial, reason: str) -> tuple[Trial, bool]:
        """Up to three things of an instance are others: those that the message names rather than any; whether
        only such were.
        """
        hints = MessageHints(reason, trial.inputs, self.schema, self.drawing.named)
        bodies = [name for name, value in trial.attributes.items() if isinstance(value, LearnedBody)]
        if bodies and self.drawing.bodies.is_meant(reason):
            name = self.rng.choice(bodies)
            body = self.drawing.bodies.changed(trial.attributes[name], reason, hints)
            return replace(trial, attributes={**trial.attributes, name: body}), True
        aimed = True
        if self.rng.chance(_RATES.dropped):
            trial = self._without_one(trial)
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
                made = (
                    e and replace(e, constant=e.constant or i in chosen) for i, e in enumerate(trial.inputs)
                )
                trial = replace(trial, inputs=tuple(made))
            elif hints.required and self.rng.chance(_RATES.stated):
                trial = self._completed(trial, hints.places)
            elif hints.interval is not None and self.rng.chance(_RATES.stated):
                trial = self._within(trial, hints.places, hints.interval)
            elif hints.shapes and hints.places and self.rng.chance(_RATES.stated):
                trial = self._stated(trial, self.rng.choice(hints.places), self.rng.choice(hints.shapes))
            elif trial.plan is not None and (sizes or places) and self.rng.chance(_RATES.planned):
                trial = self._replanned(trial, sizes, places, hints)
            elif names and (not places or self.rng.chance(len(names) / (len(names) + 2 * len(places)))):
                trial = self._other_attribute(trial, self.rng.choice(names), hints.numbers)
            elif places:
                trial = self._other_input(trial, self.rng.choice(places), hints)
        return self.drawing.laid(replace(trial, draw=self.rng.below(1 << 30))), aimed

    def _without_one(self, trial: Trial) -> Trial:
        """The instance without one input or attribute that may be left out: conditions are fewer then."""
        places = [i for i, each in enumerate(trial.inputs) if each is not None and self._slot(i).optional]
        names = [name for name in trial.attributes if name not in self.schema.required]
        if not places and not names:
            return trial
        chosen = self.rng.choice([*places, *names])
        if isinstance(chosen, str):
            return replace(trial, attributes={k: v for k, v in trial.attributes.items() if k != chosen})
        return replace(
            trial, inputs=_trimmed([None if i == chosen else e for i, e in enumerate(trial.inputs)])
        )

    def _completed(self, trial: Trial, places: Sequence[int]) -> Trial:
        """The instance with an input that was left out: one of these, or any, for a kernel that counts its
        inputs names another than it lacks.
        """
        there = [place for place, each in enumerate(trial.inputs) if each is not None]
        absent = [place for place in range(len(self.schema.inputs)) if place not in there]
        wanted = [place for place in absent if place in places] or absent
        if not wanted:
            return trial
        ins = [*trial.inputs]
        plan = self._with_shapes(trial.plan, self._added(ins, self.rng.choice(wanted), ()))
        return replace(trial, inputs=tuple(ins), plan=plan)

    def _within(self, trial: Trial, places: Sequence[int], interval: tuple[int, int]) -> Trial:
        """The instance where the elements of an input of whole numbers, of these rather than any, lie in an
        interval.
        """
        ins = [*trial.inputs]
        whole = [
            i
            for i, each in enumerate(ins)
            if each and not is_float(each.dtype) and each.dtype not in _NO_NUMBERS
        ]
        chosen = [place for place in places if place in whole] or whole
        if chosen:
            place = self.rng.choice(chosen)
            old = ins[place]
            ins[place] = old and replace(old, low=interval[0], high=interval[1], values=())
        return replace(trial, inputs=tuple(ins))

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
        """The instance where all these inputs are there, are left out as far as they may be, or have one
        shape.
        """
        ins = [*trial.inputs, *[None] * (max(places) + 1 - len(trial.inputs))]
        what, plan = self.rng.below(3), trial.plan
        if what == 0:
            added = [each for place in places if ins[place] is None for each in self._added(ins, place, ())]
            plan = self._with_shapes(plan, added)
        elif what == 1:
            ins = [
                None if place in places and self._slot(place).optional else each
                for place, each in enumerate(ins)
            ]
        else:
            there = [each.shape for place in places if (each := ins[place]) is not None]
            shape = self.rng.choice(there) if there else ()
            ins = [
                each and reshaped(each, shape) if place in places else each for place, each in enumerate(ins)
            ]
        found = replace(trial, inputs=_trimmed(ins), plan=plan)
        for place in places if what == 2 else ():
            found = freed(found, place)
        return found

    def _with_shapes(self, plan: ShapePlan | None, places: Sequence[int]) -> ShapePlan | None:
        """The plan with shapes of the documentation for inputs that it has none for."""
        if plan is None:
            return None
        shapes = {
            each: self.rng.choice(self._stated_shapes(each)) for each in places if self._stated_shapes(each)
        }
        return replace(plan, shapes={**plan.shapes, **shapes})

    def _replanned(
        self, trial: Trial, sizes: Sequence[str], places: Sequence[int], hints: MessageHints
    ) -> Trial:
        """The instance by another plan: a size is another, is tied to others, stands elsewhere, or an input
        has another shape of those stated.
        """
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
            side = (
                rng.choice(pool) if pool and rng.chance(_RATES.as_named) else rng.choice((*PALETTE, 32, 64))
            )
            ties = {tied: term for tied, term in plan.ties.items() if tied != name}
            values = {**trial.attributes, **({name: side} if name in trial.attributes else {})}
            return replace(
                trial, attributes=values, plan=replace(plan, sizes={**plan.sizes, name: side}, ties=ties)
            )
        if what == 1:
            one, other = rng.choice(names), rng.choice(names)
            term = rng.choice((one, f"{one} * {other}", f"{one} + {other}", f"{one} * 2"))
            return replace(trial, plan=replace(plan, ties={**plan.ties, name: term}))
        place = rng.choice(stated)
        shape = plan.shapes.get(place, ())
        if what == 2 and shape:
            axis = hints.axis if hints.axis is not None and hints.axis < len(shape) else rng.below(len(shape))
            term = rng.choice(hints.sizes or names)
            shape = (
                *shape[:axis],
                rng.choice((term, term, f"{term} / 2", f"{term} * 2")),
                *shape[axis + 1 :],
            )
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
            plan = self._with_shapes(
                plan, self._added(ins, place, kindred if self.rng.chance(_RATES.common) else ())
            )
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
                made = self.drawing.input(self.rng.choice(same or allowed), first, PALETTE)
                ins[each] = replace(made, sparse=slot.sparse)
                added.append(each)
        return added

    def _retyped(self, ins: list[TrialInput | None], place: int, wanted: Sequence[str]) -> None:
        """Give an input, and all that have its type variable, another dtype or range; of inputs that differ
        it alone.
        """
        slot = self._slot(place)
        allowed = drawn_dtypes(self.schema, slot.type)
        allowed = [dtype for dtype in allowed if dtype in wanted] or allowed
        old = ins[place]
        dtype = (
            self.rng.choice(allowed)
            if allowed and (old is None or self.rng.chance(0.5))
            else old and old.dtype
        )
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
            return replace(made, constant=old.constant, sparse=old.sparse)
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


def freed(trial: Trial, place: int) -> Trial:
    """The instance where the shape of an input is no longer that of the plan."""
    plan = trial.plan
    shapes = (
        {other: shape for other, shape in plan.shapes.items() if other != place} if plan is not None else {}
    )
    return replace(trial, plan=plan and replace(plan, shapes=shapes))
