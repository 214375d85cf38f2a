"""Draw instances of an operator from its schema and its documentation."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx.defs

from opsieve.backends.probing.body_drawing import BodyDrawing
from opsieve.backends.probing.documented_shapes import Shape, evaluate_size, list_names, read_shapes
from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot
from opsieve.backends.probing.trials import ShapePlan, Trial, TrialInput, list_dtypes
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import is_float

PALETTE = (1, 2, 3, 4, 6, 8, 16)
# of what documentation names: divisible by each other more often than not
_SIDES = (
    1,
    2,
    2,
    3,
    4,
    4,
    8,
    16,
    32,
)
_RANGES = ((0, 0), (0, 1), (1, 1), (1, 4), (2, 2), (0, 15))
_FLOAT_RANGES = ((-1.0, 1.0), (-1.0, 1.0), (0.25, 1.0))
_INTS = (0, 1, 2, 4, 8, 16, 32, -1)
_FLOATS = (0.5, 1.0, 0.01)
# what names of inputs say
_SCALAR = re.compile("scale|zero|point|alpha|seed|thresh|value|size|len", re.IGNORECASE)
MOST_RANK = 5
# Elements whose values are drawn one by one
_MOST_EXACT = 8
# Elements of an input
_LARGEST = 1 << 18
# After how many inputs the types of one that is repeated come again
_PERIODS = (1, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class DrawingRates:
    """How often something is drawn: rates between 0 and 1.

    `documented`: shapes are those of the documentation, `first_stated`: the first one of each input; `tied`:
    a size there is what it says of it, `referred`: an attribute that it names is given.
    `usual`: a dtype is float32; `bare`: no optional input is given, else at the rate `kindred` those that
    have a word of their name in common, else each at the rate `present`;
    `given`: an attribute is, in a third of the instances; `like_first`, `last_only`: an input has the shape
    of the first, or one of its sizes alone; `scalar`: those whose names say so are scalars;
    `constant`: all inputs but the first are initializers; `exact`: the elements of a few whole numbers are
    drawn one by one, `ascending`: in order from 0.
    """

    documented: float = 0.8
    first_stated: float = 0.4
    tied: float = 0.75
    referred: float = 0.7
    usual: float = 0.5
    bare: float = 0.4
    kindred: float = 0.4
    present: float = 0.35
    given: float = 0.25
    like_first: float = 0.25
    last_only: float = 0.25
    scalar: float = 0.7
    constant: float = 0.2
    exact: float = 0.25
    ascending: float = 0.4


RATES = DrawingRates()


class InstanceDrawing:
    """The random choices for one operator."""

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self.schema, self.rng = schema, rng
        self.bodies = BodyDrawing(schema, rng)
        self.shapes = [read_shapes(slot.text) for slot in schema.inputs]
        named = {
            name for shapes in self.shapes for shape in shapes for term in shape for name in list_names(term)
        }
        numbers = {name for name, kind in schema.attributes.items() if kind == "INT"}
        known = named | numbers
        self.ties: dict[str, list[str]] = {}
        # A definition may name sizes of another
        for _ in range(2):
            for name, expressions in schema.definitions.items():
                sound = [each for each in expressions if set(list_names(each)) & known]
                if name in named - numbers and sound:
                    self.ties[name] = sound
                    named.update(part for each in sound for part in list_names(each))
                    known = named | numbers
        self.named = tuple(sorted(named))

    def draw_instance(self) -> Trial:
        """Draw an instance."""
        rng, schema = self.rng, self.schema
        plan = self._draw_plan()
        meant: dict[str, str] = {}
        ins: list[TrialInput | None] = []
        shapes: dict[int, Shape] = {}
        named = tuple(plan.sizes.values()) if plan is not None else ()
        palette = named or tuple(rng.choice(PALETTE) for _ in range(3))
        lone, constant = rng.chance(RATES.scalar), rng.chance(RATES.constant)
        present, first_stated = self._draw_presence(), rng.chance(RATES.first_stated)
        for place, slot in enumerate(schema.inputs):
            if not list_dtypes(schema, slot.type) or (slot.optional and not present[place]):
                ins.append(None)
                continue
            for dtype in self._draw_dtypes(slot, meant):
                stated = self.shapes[place] if plan is not None else ()
                if stated:
                    shapes[len(ins)] = stated[0] if first_stated else rng.choice(stated)
                made = self.draw_input(dtype, ins[0] if ins else None, palette)
                scalar = (
                    lone
                    and not stated
                    and (_SCALAR.search(slot.name) or (not slot.alike and rng.chance(0.5)))
                )
                made = replace(made, shape=()) if scalar else made
                ins.append(replace(made, constant=constant and bool(ins), sparse=slot.sparse))
        while ins and ins[-1] is None:
            ins.pop()
        # Most operators refuse instances with most optional parts.
        share = rng.choice((0.0, 0.0, RATES.given))
        given = [name for name in schema.attributes if self._is_given(name, plan, share)]
        values = {name: self.draw_value(name, palette) for name in given}
        attributes = {name: value for name, value in values.items() if value is not None}
        return self.apply_plan(
            Trial(tuple(ins), attributes, plan and replace(plan, shapes=shapes), rng.below(1 << 30))
        )

    def _is_given(self, name: str, plan: ShapePlan | None, share: float) -> bool:
        if name in self.schema.required:
            return True
        return self.rng.chance(RATES.referred if plan is not None and name in self.named else share)

    def _draw_plan(self) -> ShapePlan | None:
        if not any(self.shapes) or not self.rng.chance(RATES.documented):
            return None
        numbers = self.schema.numbers
        sizes = {
            name: self.rng.choice([n for n in numbers.get(name, ()) if n > 0] or _SIDES)
            if self.rng.chance(0.5)
            else self.rng.choice(_SIDES)
            for name in self.named
        }
        ties = {
            name: self.rng.choice(each) for name, each in self.ties.items() if self.rng.chance(RATES.tied)
        }
        return ShapePlan(sizes, ties, {})

    def _draw_presence(self) -> list[bool]:
        """Draw which optional inputs are given."""
        rng, slots = self.rng, self.schema.inputs
        if rng.chance(RATES.bare):
            return [False] * len(slots)
        words = sorted({word for slot in slots if slot.optional for word in slot.name.split("_")})
        if words and rng.chance(RATES.kindred):
            word = rng.choice(words)
            return [word in slot.name.split("_") for slot in slots]
        share = rng.choice((RATES.present, RATES.present, 1.0))
        return [rng.chance(share) for _ in slots]

    def _draw_dtypes(self, slot: SchemaSlot, meant: dict[str, str]) -> list[str]:
        """Draw the dtypes of an input, one for each repetition."""
        rng, allowed = self.rng, list_dtypes(self.schema, slot.type)
        usual = "float32" in allowed and rng.chance(RATES.usual)
        dtype = meant.setdefault(slot.type, "float32" if usual else rng.choice(allowed))
        if not slot.variadic:
            return [dtype]
        if slot.alike:
            return [dtype] * rng.choice((1, 2, 2, 3))
        period = [rng.choice(allowed) for _ in range(rng.choice(_PERIODS))]
        return period * rng.choice((1, 2, 2, 3))

    def draw_input(self, dtype: str, first: TrialInput | None, palette: Sequence[int]) -> TrialInput:
        """Draw an input of this dtype, with the shape of the first one, one of its sizes, or any shape."""
        rng = self.rng
        low, high = self.draw_range(dtype)
        if first is not None and rng.chance(RATES.like_first):
            return TrialInput(dtype, first.shape, low, high)
        if first is not None and first.shape and rng.chance(RATES.last_only):
            return TrialInput(dtype, (rng.choice(first.shape),), low, high)
        return TrialInput(dtype, tuple(rng.choice(palette) for _ in range(rng.below(MOST_RANK))), low, high)

    def draw_range(self, dtype: str) -> tuple[float, float]:
        """Draw the range of the elements."""
        return (0, 0) if dtype == "string" else self.rng.choice(_FLOAT_RANGES if is_float(dtype) else _RANGES)

    def draw_elements(self, each: TrialInput, sizes: Sequence[int]) -> TrialInput:
        """Draw the elements of a small integer input from sizes of the instance; other inputs stay as they
        are.
        """
        rng, count = self.rng, math.prod(each.shape)
        if is_float(each.dtype) or each.dtype in ("string", "bool") or not 0 < count <= _MOST_EXACT:
            return each
        pool = (0, 1, *sizes, *(side - 1 for side in sizes if side))
        values = [rng.choice(pool) for _ in range(count)]
        if rng.chance(RATES.ascending):
            values = sorted(values)
            values[0] = 0
        most = 127 if each.dtype.endswith("int8") else 1 << 15
        return replace(each, values=tuple(min(value, most) for value in values))

    def draw_value(self, name: str, numbers: Sequence[int]) -> Any:
        """Draw a value of an attribute, or return None if its kind cannot be drawn."""
        rng, kind = self.rng, self.schema.attributes[name]
        if kind in ("STRING", "STRINGS"):
            words = self.schema.words.get(name) or _list_operator_names()
            return (
                rng.choice(words)
                if kind == "STRING"
                else [rng.choice(words) for _ in range(rng.between(1, 3))]
            )
        if kind in ("INT", "INTS"):
            stated = self.schema.numbers.get(name, ())
            whole = stated if stated and rng.chance(0.5) else (*_INTS, *numbers)
            counts = [number for number in stated if 0 < number <= _MOST_EXACT] if rng.chance(0.5) else []
            count = rng.choice(counts or (1, 2, 3, 4))
            return rng.choice(whole) if kind == "INT" else [rng.choice(whole) for _ in range(count)]
        if kind in ("FLOAT", "FLOATS"):
            return (
                rng.choice(_FLOATS)
                if kind == "FLOAT"
                else [rng.choice(_FLOATS) for _ in range(rng.between(1, 4))]
            )
        return self.bodies.draw_body() if kind == "GRAPH" else None

    def apply_plan(self, trial: Trial) -> Trial:
        """Apply the sizes of its plan to shapes and attributes."""
        plan = trial.plan
        if plan is None:
            return trial
        sizes = {
            **plan.sizes,
            **{k: v for k, v in trial.attributes.items() if k in self.named and type(v) is int},
        }
        choice, ins = self.rng.below(4), [*trial.inputs]
        for place, shape in plan.shapes.items():
            each = ins[place] if place < len(ins) else None
            if each is not None:
                sides = tuple(self._evaluate_side(term, sizes, plan, choice) for term in shape)
                sides = sides if math.prod(sides) <= _LARGEST else tuple(min(one, 4) for one in sides)
                ins[place] = reshape_input(each, sides)
        return replace(trial, inputs=tuple(ins), plan=replace(plan, sizes=sizes))

    def _evaluate_side(self, term: str, sizes: dict[str, int], plan: ShapePlan, choice: int) -> int:
        for name in list_names(term):
            sizes.setdefault(name, self.rng.choice(_SIDES))
        try:
            return evaluate_size(term, sizes, plan.ties, choice)
        except KeyError:
            # A tie names an unknown size, or is circular.
            return self.rng.choice(_SIDES)


def reshape_input(each: TrialInput, shape: tuple[int, ...]) -> TrialInput:
    """Return the input with another shape; exact elements stay if their number is the same."""
    same = math.prod(shape) == len(each.values)
    return replace(each, shape=shape, values=each.values if same else ())


def _list_operator_names() -> list[str]:
    """List ONNX's operators of one input and one output, the names of activations."""
    return [
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == "" and len(schema.inputs) == 1 == len(schema.outputs)
    ]
