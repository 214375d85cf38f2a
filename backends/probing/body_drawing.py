"""Draw graphs as attributes of instances at random, and change them towards the signature that messages
request.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.gen.declarations.learned_body import BodyValue, LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import PLAIN

_NAMED = re.compile(r"\bnamed?(?: as)?[: ]{1,2}['\"`]?([A-Za-z_]\w{0,60})")
_PLACE = re.compile(r"\b(in|out)put (\d)\b")
_NAME = re.compile(r"[A-Za-z_]\w{0,79}")
_WORD = re.compile(r"[A-Za-z]+")
_SPEAKS = re.compile(r"subgraph|graph|\bbody\b|\bbranch", re.IGNORECASE)
_PALETTE = (1, 2, 4, 8)
# Names of sizes that only a run determines.
_WORDS = ("a", "b", "c", "d")
_MOST_RANK, _MOST_VALUES = 5, 8


@dataclass(frozen=True, slots=True)
class BodyRates:
    """Rates between 0 and 1 for changes of a body.

    `meant`: a message about graphs leads to a change of the body, `else_`: another message does; `asked`: a
    requested change is made; `word`: a size is known only at run time; `like`: an output has sizes of an
    input, in its order.
    """

    meant: float = 0.85
    else_: float = 0.1
    asked: float = 0.85
    word: float = 0.6
    like: float = 0.6


_RATES = BodyRates()
Side = tuple[BodyValue, ...]


class BodyDrawing:
    """Bodies for one operator."""

    def __init__(self, schema: DomainSchema, rng: Rng) -> None:
        self._rng = rng
        types = sorted(
            {dtype for slot in (*schema.inputs, *schema.outputs) for dtype in schema.types[slot.type]}
        )
        self._dtypes = [dtype for dtype in types if dtype in PLAIN] or ["float32"]

    def draw_body(self) -> LearnedBody:
        """Draw a body with few inputs and outputs."""
        body = LearnedBody((), ())
        for _ in range(self._rng.below(3)):
            body = self._replace_side(body, 0, self._add_value(body, 0))
        for _ in range(self._rng.between(1, 2)):
            body = self._replace_side(body, 1, self._add_value(body, 1))
        return body

    def is_meant(self, reason: str) -> bool:
        """Whether the next change is one of a body."""
        return self._rng.chance(_RATES.meant if _SPEAKS.search(reason) else _RATES.else_)

    def change_body(self, body: LearnedBody, reason: str, hints: MessageHints) -> LearnedBody:
        """Change the body once, preferably as the message requests."""
        rng, sides = self._rng, (body.inputs, body.outputs)
        words = {word.lower() for word in _WORD.findall(reason)}
        side, place = self._choose_value(sides, reason, words)
        names = [name for name in _NAMED.findall(reason) if name not in {v.name for s in sides for v in s}]
        asked = rng.chance(_RATES.asked)
        if not sides[side] or (
            asked and "number" in words and not _PLACE.search(reason) and hints.axis is None
        ):
            side = rng.below(2)
            count = len(sides[side])
            more = count < _MOST_VALUES and (count <= side or rng.chance(0.7))
            return self._replace_side(body, side, self._add_value(body, side) if more else sides[side][:-1])
        old = sides[side][place]
        if asked and names:
            return self._replace_value(body, side, place, replace(old, name=rng.choice(names)))
        if asked and hints.axis is not None and hints.axis < len(old.sizes):
            axis, pool = hints.axis, [number for number in hints.numbers if number != hints.axis]
            sizes = (*old.sizes[:axis], rng.choice(pool or _PALETTE), *old.sizes[axis + 1 :])
            return self._replace_value(body, side, place, replace(old, sizes=sizes))
        if asked and hints.dtypes:
            return self._replace_value(body, side, place, replace(old, dtype=rng.choice(hints.dtypes)))
        what = rng.below(4)
        if what == 0 and not (asked and words & {"dim", "dims", "dimension", "dimensions", "rank"}):
            return self._replace_value(body, side, place, replace(old, dtype=rng.choice(self._dtypes)))
        if what == 1 and len(sides[side]) > side:
            return self._replace_side(
                body, side, self._add_value(body, side) if rng.chance(0.5) else sides[side][:-1]
            )
        ranks = [number for number in hints.numbers if number <= _MOST_RANK]
        rank = rng.choice(ranks) if asked and ranks else rng.below(_MOST_RANK + 1)
        return self._replace_value(body, side, place, replace(old, sizes=self._draw_sizes(body, side, rank)))

    def _choose_value(self, sides: Sequence[Side], reason: str, words: set[str]) -> tuple[int, int]:
        """Choose the value that a message is about: by its name, its side and number, words of its name, else
        any.
        """
        spots = [(side, place) for side in (0, 1) for place in range(len(sides[side]))]
        exact = [spot for spot in spots if sides[spot[0]][spot[1]].name in _NAME.findall(reason)]
        if exact:
            return self._rng.choice(exact)
        named = _PLACE.search(reason)
        if named is not None and int(named[2]) < len(sides[named[1] == "out"]):
            return int(named[1] == "out"), int(named[2])
        known = [spot for spot in spots if words & set(_WORD.findall(sides[spot[0]][spot[1]].name.lower()))]
        return self._rng.choice(known or spots) if spots else (0, 0)

    def _add_value(self, body: LearnedBody, side: int) -> Side:
        values = (body.inputs, body.outputs)[side]
        name, known = ("given", "made")[side], {value.name for value in (*body.inputs, *body.outputs)}
        free = next(f"{name}_{number}" for number in range(len(known) + 1) if f"{name}_{number}" not in known)
        usual = (
            "float32"
            if "float32" in self._dtypes and self._rng.chance(0.5)
            else self._rng.choice(self._dtypes)
        )
        return (*values, BodyValue(free, usual, self._draw_sizes(body, side, self._rng.below(_MOST_RANK))))

    def _draw_sizes(self, body: LearnedBody, side: int, rank: int) -> tuple[int | str, ...]:
        rng = self._rng
        if side and body.inputs and rng.chance(_RATES.like):
            like = rng.choice(body.inputs).sizes
            return (*like, *(rng.choice(_PALETTE) for _ in range(rank)))[:rank]
        return tuple(
            rng.choice(_WORDS) if rng.chance(_RATES.word) else rng.choice(_PALETTE) for _ in range(rank)
        )

    def _replace_value(self, body: LearnedBody, side: int, place: int, value: BodyValue) -> LearnedBody:
        values = (body.inputs, body.outputs)[side]
        return self._replace_side(body, side, (*values[:place], value, *values[place + 1 :]))

    def _replace_side(self, body: LearnedBody, side: int, values: Side) -> LearnedBody:
        return replace(body, outputs=values) if side else replace(body, inputs=values)
