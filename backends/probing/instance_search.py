"""Instances of an operator that a compiler accepts, searched for by what it says of those that it refuses.

Compilers check one condition after the other, so a message that is new is a step further: the instance is kept, and later ones are small changes of
such, of those rather that took most steps. A message names what it refuses, so an input or attribute that stands in it is changed first, and its numbers are tried as ranks, sizes and values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.gen.spec.dtype_facts import PLAIN, is_float
from opsieve.gen.spec.rng import Rng

_ROUNDS, _BATCH = 16, 48
_PATIENCE = 5  # rounds without anything new, after which no more are begun
_PALETTE = (1, 2, 3, 4, 6, 8, 16)
_RANGES = ((0, 0), (0, 1), (1, 1), (1, 4), (2, 2), (0, 15))
_FLOAT_RANGES = ((-1.0, 1.0), (-1.0, 1.0), (0.25, 1.0))
_INTS = (0, 1, 2, 4, 8, 16, 32, -1)
_FLOATS = (0.5, 1.0, 0.01)
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")
_PLACES = re.compile(r"[Ii]nputs? (\d)\b")
_ORDINALS = ("first", "second", "third", "fourth")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_SCALAR = re.compile("scale|zero|point|alpha|seed|thresh|value|size|len", re.IGNORECASE)  # what names of inputs say
_MOST_RANK, _MOST_NAMED = 5, 64


@dataclass(frozen=True, slots=True)
class SearchRates:
    """How often something is drawn: rates between 0 and 1.

    `usual`: a dtype is float32; `bare`: no optional input is given, else each is at the rate `present`; `given`: an attribute is; `like_first`, `last_only`:
    an input has the shape of the first, or one of its sizes alone; `scalar`: those whose names say so are scalars. `changed`: an instance is a change of another, `deepest` of
    one that took most steps; `named`: what the message names is changed, `as_named` to a number in it; `common`: a size becomes one of another input.
    """

    usual: float = 0.5
    bare: float = 0.4
    present: float = 0.35
    given: float = 0.2
    like_first: float = 0.25
    last_only: float = 0.25
    scalar: float = 0.7
    changed: float = 0.75
    deepest: float = 0.6
    named: float = 0.7
    as_named: float = 0.5
    common: float = 0.7


_RATES = SearchRates()


@dataclass(frozen=True, slots=True)
class TrialInput:
    """The type of an input, and between which numbers its elements lie."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trial:
    """An instance to run: its inputs (None where one is left out) and attributes."""

    inputs: tuple[TrialInput | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The types of the outputs, None where the instance was refused; and what was said then."""

    outputs: tuple[tuple[str, tuple[int, ...]], ...] | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """An instance to change, what was said of it, and how many new messages led to it."""

    trial: Trial
    reason: str = ""
    depth: int = 0


def drawn_dtypes(schema: DomainSchema, type_: str) -> list[str]:
    """The dtypes of a type variable or type that instances are drawn of."""
    return [dtype for dtype in schema.types[type_] if dtype in PLAIN]


class InstanceSearch:
    """The search for one operator. `last` is what was said of the last instance that was refused."""

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self.schema, self.rng = schema, rng
        self.last = ""

    def run(self, answers: Callable[[Sequence[Trial]], Sequence[TrialAnswer]], enough: int) -> list[Trial]:
        """Instances that were accepted, one of each kind (dtypes, ranks, inputs and attributes that are there); about as many kinds as are enough."""
        steps: dict[str, _Step] = {}
        found: dict[object, Trial] = {}
        idle = 0
        for number in range(_ROUNDS):
            known = len(found) + len(steps)
            origins = [self._origin(found, steps) for _ in range(_BATCH)]
            trials = [self._drawn() if origin is None else self._changed(origin) for origin in origins]
            for origin, trial, answer in zip(origins, trials, answers(trials), strict=True):
                if answer.outputs is None:
                    self.last = answer.reason[:160]
                    key = _NUMBERS.sub("#", answer.reason)[:160]
                    depth = origin.depth + 1 if origin is not None else 0
                    if key not in steps:
                        steps[key] = _Step(trial, answer.reason, depth)
                elif all(0 not in shape for _, shape in answer.outputs):
                    found.setdefault(_kind(trial), trial)
            idle = 0 if len(found) + len(steps) > known else idle + 1
            if len(found) >= enough or idle == _PATIENCE or (found and number >= _ROUNDS // 2):
                break
        return [*found.values()]

    def _origin(self, found: Mapping[object, Trial], steps: Mapping[str, _Step]) -> _Step | None:
        """What is changed for the next instance; None where one is drawn."""
        if not (found or steps) or not self.rng.chance(_RATES.changed):
            return None
        if found:
            return _Step(self.rng.choice([*found.values()]))
        pool = [*steps.values()]
        if self.rng.chance(_RATES.deepest):
            most = max(step.depth for step in pool)
            pool = [step for step in pool if step.depth >= most - 1]
        return self.rng.choice(pool)

    # Drawing

    def _drawn(self) -> Trial:
        rng, schema = self.rng, self.schema
        meant: dict[str, str] = {}
        ins: list[TrialInput | None] = []
        palette = tuple(rng.choice(_PALETTE) for _ in range(3))
        bare, lone = rng.chance(_RATES.bare), rng.chance(_RATES.scalar)
        for slot in schema.inputs:
            allowed = drawn_dtypes(schema, slot.type)
            if not allowed or (slot.optional and (bare or not rng.chance(_RATES.present))):
                ins.append(None)
                continue
            usual = "float32" in allowed and rng.chance(_RATES.usual)
            dtype = meant.setdefault(slot.type, "float32" if usual else rng.choice(allowed))
            for _ in range(rng.choice((1, 2, 2, 3)) if slot.variadic else 1):
                made = self._input(dtype, ins[0] if ins else None, palette)
                ins.append(replace(made, shape=()) if lone and _SCALAR.search(slot.name) else made)
        while ins and ins[-1] is None:
            ins.pop()
        given = [name for name in schema.attributes if name in schema.required or rng.chance(_RATES.given)]
        values = {name: self._value(name, palette) for name in given}
        return Trial(tuple(ins), {name: value for name, value in values.items() if value is not None})

    def _input(self, dtype: str, first: TrialInput | None, palette: Sequence[int]) -> TrialInput:
        rng = self.rng
        low, high = rng.choice(_FLOAT_RANGES) if is_float(dtype) else rng.choice(_RANGES)
        if first is not None and rng.chance(_RATES.like_first):
            return TrialInput(dtype, first.shape, low, high)
        if first is not None and first.shape and rng.chance(_RATES.last_only):
            return TrialInput(dtype, (rng.choice(first.shape),), low, high)
        return TrialInput(dtype, tuple(rng.choice(palette) for _ in range(rng.below(_MOST_RANK))), low, high)

    def _value(self, name: str, numbers: Sequence[int]) -> Any:
        """A value of an attribute, None where none can be drawn."""
        rng, kind = self.rng, self.schema.attributes[name]
        if kind == "STRING":
            words = self.schema.words.get(name, ())
            return rng.choice(words) if words else None
        if kind in ("INT", "INTS"):
            whole = (*_INTS, *numbers)
            return rng.choice(whole) if kind == "INT" else [rng.choice(whole) for _ in range(rng.between(1, 4))]
        if kind in ("FLOAT", "FLOATS"):
            return rng.choice(_FLOATS) if kind == "FLOAT" else [rng.choice(_FLOATS) for _ in range(rng.between(1, 4))]
        return None

    # Changing

    def _changed(self, step: _Step) -> Trial:
        """One or two things of an instance are others: those that the message names rather than any."""
        trial = step.trial
        words = {word.lower() for word in _WORDS.findall(step.reason)}
        numbers = [
            int(number) for number in _NUMBERS.findall(step.reason) if number.isdigit() and int(number) <= _MOST_NAMED
        ]
        counted = {int(place) for place in _PLACES.findall(step.reason)}
        counted |= {place for place, word in enumerate(_ORDINALS) if word in words and "input" in words}
        for _ in range(self.rng.between(1, 2)):
            names = [name for name in self.schema.attributes if name.lower() in words]
            places = [
                place for place, slot in enumerate(self.schema.inputs) if slot.name.lower() in words or place in counted
            ]
            directed = self.rng.chance(_RATES.named) and bool(names or places)
            if not directed:
                names, places = [*self.schema.attributes], [*range(max(len(trial.inputs), 1))]
            if names and (not places or self.rng.chance(len(names) / (len(names) + 2 * len(places)))):
                trial = self._other_attribute(trial, self.rng.choice(names), numbers)
            else:
                trial = self._other_input(trial, self.rng.choice(places), numbers)
        return trial

    def _other_attribute(self, trial: Trial, name: str, numbers: Sequence[int]) -> Trial:
        sizes = [side for each in trial.inputs if each is not None for side in each.shape]
        value = self._value(name, numbers or sizes)
        values = dict(trial.attributes)
        if value is not None:
            values[name] = value
        if name not in self.schema.required and self.rng.chance(_RATES.given):
            values.pop(name, None)
        return Trial(trial.inputs, values)

    def _other_input(self, trial: Trial, place: int, numbers: Sequence[int]) -> Trial:
        rng = self.rng
        ins = [*trial.inputs, *[None] * (place + 1 - len(trial.inputs))]
        old = ins[place]
        slot = self.schema.inputs[min(place, len(self.schema.inputs) - 1)]
        allowed = drawn_dtypes(self.schema, slot.type)
        others = [each for other, each in enumerate(ins) if each is not None and other != place]
        if old is None:
            if not allowed:
                return trial
            same = [
                each.dtype
                for other, each in enumerate(ins)
                if each is not None and self.schema.inputs[min(other, len(self.schema.inputs) - 1)].type == slot.type
            ]
            ins[place] = self._input(rng.choice(same or allowed), others[0] if others else None, _PALETTE)
            return Trial(tuple(ins), trial.attributes)
        what = rng.below(7)
        sides = [side for each in others for side in each.shape]
        ranks = [number for number in numbers if number < _MOST_RANK]
        if what == 0:
            ins[place] = self._input(old.dtype, rng.choice(others) if others else None, _PALETTE)
        elif what == 1 and slot.optional:
            ins[place] = None
        elif what in (1, 2):
            rank = rng.choice(ranks) if ranks and rng.chance(_RATES.as_named) else rng.below(_MOST_RANK)
            more = tuple(rng.choice(sides or _PALETTE) for _ in range(rank))
            ins[place] = replace(old, shape=(*old.shape, *more)[:rank])
        elif what == 3 and old.shape:
            axis = rng.below(len(old.shape))
            pool = [number for number in numbers if number] if rng.chance(_RATES.as_named) else sides
            side = rng.choice(pool) if pool and rng.chance(_RATES.common) else rng.choice(_PALETTE)
            ins[place] = replace(old, shape=(*old.shape[:axis], side, *old.shape[axis + 1 :]))
        elif what == 4 and others:
            ins[place] = replace(old, shape=rng.choice(others).shape)
        elif what == 5 and old.shape:
            size, new = rng.choice(old.shape), rng.choice(_PALETTE)
            ins = [e and replace(e, shape=tuple(new if side == size else side for side in e.shape)) for e in ins]
        else:
            dtype = rng.choice(allowed)
            low, high = rng.choice(_FLOAT_RANGES) if is_float(dtype) else rng.choice(_RANGES)
            for other, each in enumerate(ins):
                alike = self.schema.inputs[min(other, len(self.schema.inputs) - 1)].type == slot.type
                if each is not None and alike:
                    ins[other] = replace(each, dtype=dtype, low=low, high=high)
        while ins and ins[-1] is None:
            ins.pop()
        return Trial(tuple(ins), trial.attributes)


def _kind(trial: Trial) -> object:
    ins = tuple(each and (each.dtype, len(each.shape)) for each in trial.inputs)
    return ins, tuple(sorted(trial.attributes))
