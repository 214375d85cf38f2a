"""Small changes of a refused instance: first of the parts named by the message, towards its request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.documented_shapes import Shape
from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot
from opsieve.backends.probing.instance_drawing import MOST_RANK, PALETTE, InstanceDrawing, reshape_input
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import ShapePlan, Trial, TrialInput, list_dtypes
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import is_float

_NO_NUMBERS = ("string", "bool")


@dataclass(frozen=True, slots=True)
class ChangeRates:
    """Rates between 0 and 1 for changes of an instance.

    `together`: all inputs in the message are added or left out; `repeated`: a variadic input is repeated, as
    a group of several; `named`: a named part changes, `as_named` to a number in the message, `stated` to a
    stated shape or range; `planned`: a size or shape of the documentation changes, rather than a single
    input; `left`: an optional attribute is left out; `common`: a size becomes one of another input;
    `dropped`: an optional part is left out beside the change.
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
    """The possible changes of instances of one operator."""

    def __init__(self, schema: DomainSchema, drawing: InstanceDrawing, rng: Rng) -> None:
        self.schema, self.drawing, self.rng = schema, drawing, rng

    def change_instance(self, trial: Trial, reason: str) -> tuple[Trial, bool]:
        """Change up to three parts of an instance, preferably those in the message; return whether only such
        changed.
        """
        hints = MessageHints(reason, trial.inputs, self.schema, self.drawing.named)
        bodies = [name for name, value in trial.attributes.items() if isinstance(value, LearnedBody)]
        if bodies and self.drawing.bodies.is_meant(reason):
            name = self.rng.choice(bodies)
            body = self.drawing.bodies.change_body(trial.attributes[name], reason, hints)
            return replace(trial, attributes={**trial.attributes, name: body}), True
        aimed = True
        if self.rng.chance(_RATES.dropped):
            trial = self._drop_one(trial)
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            names, places, sizes = hints.attributes, hints.places, hints.sizes
            if not (self.rng.chance(_RATES.named) and (names or places or sizes)):
                aimed = aimed and not (names or places or sizes)
                names, places = [*self.schema.attributes], [*range(max(len(trial.inputs), 1))]
                sizes = [*self.drawing.named]
            if self.schema.inputs[-1].variadic and self.rng.chance(_RATES.repeated):
                trial = self._repeat_groups(trial, hints.numbers)
            elif len(hints.places) > 1 and self.rng.chance(_RATES.together):
                trial = self._change_together(trial, hints.places)
            elif hints.constant and self.rng.chance(_RATES.named):
                chosen = hints.places or range(1, len(trial.inputs))
                made = (
                    e and replace(e, constant=e.constant or i in chosen) for i, e in enumerate(trial.inputs)
                )
                trial = replace(trial, inputs=tuple(made))
            elif hints.required and self.rng.chance(_RATES.stated):
                trial = self._add_missing(trial, hints.places)
            elif hints.interval is not None and self.rng.chance(_RATES.stated):
                trial = self._limit_elements(trial, hints.places, hints.interval)
            elif hints.shapes and hints.places and self.rng.chance(_RATES.stated):
                trial = self._apply_stated(
                    trial, self.rng.choice(hints.places), self.rng.choice(hints.shapes)
                )
            elif trial.plan is not None and (sizes or places) and self.rng.chance(_RATES.planned):
                trial = self._change_plan(trial, sizes, places, hints)
            elif names and (not places or self.rng.chance(len(names) / (len(names) + 2 * len(places)))):
                trial = self._change_attribute(trial, self.rng.choice(names), hints.numbers)
            elif places:
                trial = self._change_input(trial, self.rng.choice(places), hints)
        return self.drawing.apply_plan(replace(trial, draw=self.rng.below(1 << 30))), aimed

    def _drop_one(self, trial: Trial) -> Trial:
        """Drop one optional input or attribute: fewer conditions apply then."""
        places = [i for i, each in enumerate(trial.inputs) if each is not None and self._get_slot(i).optional]
        names = [name for name in trial.attributes if name not in self.schema.required]
        if not places and not names:
            return trial
        chosen = self.rng.choice([*places, *names])
        if isinstance(chosen, str):
            return replace(trial, attributes={k: v for k, v in trial.attributes.items() if k != chosen})
        return replace(
            trial, inputs=_trim_inputs([None if i == chosen else e for i, e in enumerate(trial.inputs)])
        )

    def _add_missing(self, trial: Trial, places: Sequence[int]) -> Trial:
        """Add a missing input: one of these, or any, since kernels that count inputs may name the wrong
        one.
        """
        there = [place for place, each in enumerate(trial.inputs) if each is not None]
        absent = [place for place in range(len(self.schema.inputs)) if place not in there]
        wanted = [place for place in absent if place in places] or absent
        if not wanted:
            return trial
        ins = [*trial.inputs]
        plan = self._add_shapes(trial.plan, self._add_inputs(ins, self.rng.choice(wanted), ()))
        return replace(trial, inputs=tuple(ins), plan=plan)

    def _limit_elements(self, trial: Trial, places: Sequence[int], interval: tuple[int, int]) -> Trial:
        """Limit the elements of an integer input, preferably one of these, to an interval."""
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

    def _apply_stated(self, trial: Trial, place: int, shape: Shape) -> Trial:
        """Give an input the shape that a message states."""
        ins = [*trial.inputs, *[None] * (place + 1 - len(trial.inputs))]
        self._add_inputs(ins, place, ())
        plan = trial.plan or ShapePlan({}, {}, {})
        return replace(trial, inputs=tuple(ins), plan=replace(plan, shapes={**plan.shapes, place: shape}))

    def _repeat_groups(self, trial: Trial, numbers: Sequence[int]) -> Trial:
        """Change the number of equal groups of inputs in the last slot."""
        first = len(self.schema.inputs) - 1
        size = self.rng.choice([number for number in numbers if 0 < number < MOST_RANK] or (1, 2, 3))
        tail = trial.inputs[first:]
        if not tail:
            return trial
        group = (tail * size)[:size]
        return replace(trial, inputs=(*trial.inputs[:first], *group * self.rng.between(1, 3)))

    def _change_together(self, trial: Trial, places: Sequence[int]) -> Trial:
        """Add all these inputs, leave them out as far as possible, or give them one shape."""
        ins = [*trial.inputs, *[None] * (max(places) + 1 - len(trial.inputs))]
        what, plan = self.rng.below(3), trial.plan
        if what == 0:
            added = [
                each for place in places if ins[place] is None for each in self._add_inputs(ins, place, ())
            ]
            plan = self._add_shapes(plan, added)
        elif what == 1:
            ins = [
                None if place in places and self._get_slot(place).optional else each
                for place, each in enumerate(ins)
            ]
        else:
            there = [each.shape for place in places if (each := ins[place]) is not None]
            shape = self.rng.choice(there) if there else ()
            ins = [
                each and reshape_input(each, shape) if place in places else each
                for place, each in enumerate(ins)
            ]
        found = replace(trial, inputs=_trim_inputs(ins), plan=plan)
        for place in places if what == 2 else ():
            found = free_shape(found, place)
        return found

    def _add_shapes(self, plan: ShapePlan | None, places: Sequence[int]) -> ShapePlan | None:
        """Add documented shapes to the plan for inputs without one."""
        if plan is None:
            return None
        shapes = {
            each: self.rng.choice(self._list_stated_shapes(each))
            for each in places
            if self._list_stated_shapes(each)
        }
        return replace(plan, shapes={**plan.shapes, **shapes})

    def _change_plan(
        self, trial: Trial, sizes: Sequence[str], places: Sequence[int], hints: MessageHints
    ) -> Trial:
        """Change the plan: a size, a tie, the place of a size, or the stated shape of an input."""
        rng, plan = self.rng, trial.plan
        assert plan is not None
        names = [*plan.sizes] or [*self.drawing.named]
        if not names:
            return trial
        name = rng.choice(sizes or names)
        stated = [place for place in places if place in plan.shapes or self._list_stated_shapes(place)]
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
            shape = rng.choice([*self._list_stated_shapes(place), *hints.shapes] or [shape])
        return replace(trial, plan=replace(plan, shapes={**plan.shapes, place: shape}))

    def _get_slot(self, place: int) -> SchemaSlot:
        return self.schema.inputs[min(place, len(self.schema.inputs) - 1)]

    def _list_stated_shapes(self, place: int) -> Sequence[tuple[str, ...]]:
        return self.drawing.shapes[min(place, len(self.schema.inputs) - 1)]

    def _change_attribute(self, trial: Trial, name: str, numbers: Sequence[int]) -> Trial:
        sizes = [side for each in trial.inputs if each is not None for side in each.shape]
        value = self.drawing.draw_value(name, numbers or sizes)
        values = dict(trial.attributes)
        if value is not None:
            values[name] = value
        if name not in self.schema.required and self.rng.chance(_RATES.left):
            values.pop(name, None)
        return replace(trial, attributes=values, plan=trial.plan)

    def _change_input(self, trial: Trial, place: int, hints: MessageHints) -> Trial:
        ins = [*trial.inputs, *[None] * (place + 1 - len(trial.inputs))]
        old, slot = ins[place], self._get_slot(place)
        others = [each for other, each in enumerate(ins) if each is not None and other != place]
        plan = trial.plan
        if old is None:
            word = self.rng.choice(slot.name.split("_"))
            kindred = [other for other, each in enumerate(self.schema.inputs) if word in each.name.split("_")]
            plan = self._add_shapes(
                plan, self._add_inputs(ins, place, kindred if self.rng.chance(_RATES.common) else ())
            )
            return replace(trial, inputs=tuple(ins), plan=plan)
        what = self.rng.below(10)
        if what == 1 and slot.optional:
            ins[place] = None
        elif what in (5, 6):
            self._change_dtype(ins, place, hints.dtypes)
        elif what in (7, 9):
            attributes = [value for value in trial.attributes.values() if type(value) is int and value >= 0]
            sizes = [side for each in others for side in each.shape] + attributes
            ins[place] = self.drawing.draw_elements(
                old, [*sizes, *(plan.sizes.values() if plan is not None else ())]
            )
        elif what == 8 and old.shape:
            size, new = self.rng.choice(old.shape), self.rng.choice(PALETTE)
            ins = [
                e and reshape_input(e, tuple(new if side == size else side for side in e.shape)) for e in ins
            ]
            plan = None
        else:
            ins[place] = self._change_shape(old, others, hints.numbers)
            plan = plan and replace(plan, shapes={k: v for k, v in plan.shapes.items() if k != place})
        # Those of one role come again and again
        if not slot.alike and ins[place] is not None:
            groups = [number for number in hints.numbers if 0 < number < MOST_RANK] or [1, 2, 3]
            for other in range(place, len(ins), self.rng.choice((*groups, len(ins)))):
                ins[other] = ins[place]
        return replace(trial, inputs=_trim_inputs(ins), plan=plan)

    def _add_inputs(self, ins: list[TrialInput | None], place: int, kindred: Sequence[int]) -> list[int]:
        """Add a missing input and its missing kindred; return their places."""
        added = []
        for each in {place, *kindred}:
            ins.extend([None] * (each + 1 - len(ins)))
            slot = self._get_slot(each)
            allowed = list_dtypes(self.schema, slot.type)
            there = [(other, one) for other, one in enumerate(ins) if one is not None]
            same = [one.dtype for other, one in there if self._get_slot(other).type == slot.type]
            if allowed and ins[each] is None:
                first = self.rng.choice(there)[1] if there else None
                made = self.drawing.draw_input(self.rng.choice(same or allowed), first, PALETTE)
                ins[each] = replace(made, sparse=slot.sparse)
                added.append(each)
        return added

    def _change_dtype(self, ins: list[TrialInput | None], place: int, wanted: Sequence[str]) -> None:
        """Give an input, and all with its type variable, another dtype or range; of differing inputs only
        itself.
        """
        slot = self._get_slot(place)
        allowed = list_dtypes(self.schema, slot.type)
        allowed = [dtype for dtype in allowed if dtype in wanted] or allowed
        old = ins[place]
        dtype = (
            self.rng.choice(allowed)
            if allowed and (old is None or self.rng.chance(0.5))
            else old and old.dtype
        )
        if not dtype:
            return
        low, high = self.drawing.draw_range(dtype)
        for other, each in enumerate(ins):
            alike = other == place or (slot.alike and self._get_slot(other).type == slot.type)
            if each is None or not alike:
                continue
            if each.dtype != dtype:
                ins[other] = replace(each, dtype=dtype, low=low, high=high, values=())
            elif other == place:
                ins[other] = replace(each, low=low, high=high, values=())

    def _change_shape(
        self, old: TrialInput, others: Sequence[TrialInput], numbers: Sequence[int]
    ) -> TrialInput:
        """Give an input another shape."""
        rng = self.rng
        what = rng.below(5)
        if what == 4:
            return reshape_input(old, ())
        sides = [side for each in others for side in each.shape]
        if what == 0:
            made = self.drawing.draw_input(old.dtype, rng.choice(others) if others else None, PALETTE)
            return replace(made, constant=old.constant, sparse=old.sparse)
        if what == 1:
            ranks = [number for number in numbers if number < MOST_RANK]
            rank = rng.choice(ranks) if ranks and rng.chance(_RATES.as_named) else rng.below(MOST_RANK)
            more = tuple(rng.choice(sides or PALETTE) for _ in range(rank))
            return reshape_input(old, (*old.shape, *more)[:rank])
        if what == 2 and old.shape:
            axis = rng.below(len(old.shape))
            pool = [number for number in numbers if number] if rng.chance(_RATES.as_named) else sides
            side = rng.choice(pool) if pool and rng.chance(_RATES.common) else rng.choice(PALETTE)
            return reshape_input(old, (*old.shape[:axis], side, *old.shape[axis + 1 :]))
        return reshape_input(old, rng.choice(others).shape) if others else old


def _trim_inputs(ins: Sequence[TrialInput | None]) -> tuple[TrialInput | None, ...]:
    """Return the inputs without missing ones at the end."""
    count = max((place + 1 for place, each in enumerate(ins) if each is not None), default=0)
    return tuple(ins[:count])


def free_shape(trial: Trial, place: int) -> Trial:
    """Release the shape of an input from the plan."""
    plan = trial.plan
    shapes = (
        {other: shape for other, shape in plan.shapes.items() if other != place} if plan is not None else {}
    )
    return replace(trial, plan=plan and replace(plan, shapes=shapes))
