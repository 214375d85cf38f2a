"""Parse rewrites of optimisers and their conditions (rewrites.txt).

    rewrite ConvAddFusion
    from onnxruntime core/optimizer/conv_add_fusion.cc ConvAddFusion::Apply
    x = data(float, 4)
    w = weight(x, [{1..3 ! 1}, x.1, 1, 1])
    y = Conv(x, w)
    once y
    z = Add(y, {weight ! input}(x, [w.0, 1, 1]))

A line names the value of an expression; the last one is the result. `{a | b}` draws one of its alternatives.
In `{met ! broken ~ edge}` those after `!` break a condition of the rewrite, and those after `~` stand on its
boundary; `once y` is the condition that only one node reads `y`. Each condition is met, unless it is the one
that a state breaks. Parsing takes one pass over the tokens and makes a function for each expression
(rewrite_builder.py).
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.declarations.tensor import LARGEST, Tensor
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.strategies.patterns.rewrite_builder import FUNCTIONS, PROPERTIES, RewriteBuilder

Expression = Callable[[RewriteBuilder], Any]
# `..` before `.name`, and numbers without an end in a dot, so that `1..3` is three tokens.
_TOKEN: Final = re.compile(
    r"'[^']*'|\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z_]\w*|\.\.|\.-?\w+|//|[-+*%(){}\[\],|!~=]"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_OPERATORS: Final = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_MARKS: Final = {"!": "broken", "~": "on the edge"}
# What the first state of each rewrite is called.
ALL_MET: Final = "all met"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of optimisers: its name, the sources that have it (project, file, function), the operators of
    its lines, and its states: all conditions met, or the one that is broken or on its edge.
    """

    name: str
    sources: tuple[tuple[str, str, str], ...]
    operators: tuple[str, ...]
    states: tuple[str, ...]
    lines: tuple[Expression, ...]

    def build(self, build: RewriteBuilder) -> Tensor:
        """Add the nodes of the rewrite and return its result.

        Raises:
            Misfit: If an operator is not valid here.
        """
        for line in self.lines:
            made = line(build)
        found: Tensor = made
        return found


def parse_rewrites(text: str, name: str = "rewrites") -> tuple[Rewrite, ...]:
    """Parse a table of rewrites.

    Raises:
        BadInput: With the line, what was expected and what is there.
    """
    found: dict[str, _RewriteParser] = {}
    parser: _RewriteParser | None = None
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        place = f"{name}, line {number}"
        if not words:
            continue
        if words[0] == "rewrite":
            if len(words) != 2 or words[1] in found:
                raise BadInput(f"{place}: expected `rewrite` and a name that no other rewrite has")
            parser = found[words[1]] = _RewriteParser(words[1], place)
        elif parser is None:
            raise BadInput(f"{place}: expected `rewrite NAME` before {shown(words[0])}")
        else:
            parser.read_line(words, line.partition("#")[0], place)
    return tuple(each.finish() for each in found.values())


class _RewriteParser:
    """Parses the lines of one rewrite.

    `_known` are the names of values so far, `_target` is the value, attribute or function at hand, by which a
    condition is named.
    """

    def __init__(self, name: str, place: str) -> None:
        self._name = name
        self._first = self._place = place
        self._sources: list[tuple[str, str, str]] = []
        self._lines: list[Expression] = []
        self._operators: list[str] = []
        self._states = [ALL_MET]
        self._known: set[str] = set()
        self._target = ""
        self._tokens: list[str] = []
        self._at = 0

    def finish(self) -> Rewrite:
        """Return the rewrite."""
        if not self._sources or not self._lines:
            raise BadInput(
                f"{self._first}: {self._name} needs a line `from PROJECT FILE FUNCTION` and values below it"
            )
        return Rewrite(
            self._name,
            tuple(self._sources),
            tuple(self._operators),
            tuple(self._states),
            tuple(self._lines),
        )

    def read_line(self, words: list[str], line: str, place: str) -> None:
        """Read a source, a condition on uses, or a value."""
        self._place, self._at = place, 0
        if words[0] == "from":
            if len(words) != 4:
                raise self._fail("expected `from PROJECT FILE FUNCTION`")
            self._sources.append((words[1], words[2], words[3]))
            return
        # Two ends: the parser looks one token ahead.
        self._tokens = [*_TOKEN.findall(line), "", ""]
        # What the pattern for tokens skips would otherwise vanish silently; a quoted text may hold blanks.
        if "".join(self._tokens) != "".join(words) and "'" not in line:
            odd = _TOKEN.sub("", line).split()[0]
            raise self._fail(f"{shown(odd)} means nothing here")
        if words[0] == "once":
            self._at = 1
            name = self._take_name()
            if name not in self._known:
                raise self._fail(f"{name} is not a value above this line")
            state = self._add_state(f"uses of {name}", "!")
            self._lines.append(lambda build: build.limit_uses(name, state))
        else:
            self._read_value()
        if self._peek():
            raise self._fail(f"expected the end of the line, not {self._peek()}")

    def _read_value(self) -> None:
        names = [self._take_name()]
        while self._accept(","):
            names.append(self._take_name())
        self._expect("=")
        self._target = names[0]
        first = next((token for token in self._tokens if token in operators()), "")
        self._operators += [first] * bool(first)
        value = self._parse_range()
        self._known.update(names)
        self._lines.append(lambda build: build.name_values(names, value))

    # Expressions, from the loosest to the tightest

    def _parse_range(self) -> Expression:
        low = self._parse_binary(("+", "-"), self._parse_product)
        if not self._accept(".."):
            return low
        high = self._parse_binary(("+", "-"), self._parse_product)
        return lambda build: build.rng.between(low(build), high(build))

    def _parse_product(self) -> Expression:
        return self._parse_binary(("*", "//", "%"), self._parse_unary)

    def _parse_binary(self, symbols: tuple[str, ...], parse: Callable[[], Expression]) -> Expression:
        value = parse()
        while self._peek() in symbols:
            value = _apply(_OPERATORS[self._take()], value, parse())
        return value

    def _parse_unary(self) -> Expression:
        if self._accept("-"):
            value = self._parse_unary()
            return lambda build: -value(build)
        value = self._parse_primary()
        while self._peek().startswith(".") and self._peek() != "..":
            value = self._read_property(value, self._take()[1:])
        return value

    def _read_property(self, value: Expression, name: str) -> Expression:
        if name.lstrip("-").isdigit():
            axis = int(name)
            return lambda build: build.size_of(value(build), axis)
        if name not in PROPERTIES:
            raise self._fail(f".{name} is not a property; there are {', '.join(PROPERTIES)} and .0, .-1")
        return lambda build: PROPERTIES[name](value(build))

    def _parse_primary(self) -> Expression:
        token = self._take()
        if token == "{":
            value = self._parse_choice()
            return self._parse_call(value, self._target) if self._peek() == "(" else value
        if token == "[":
            items = self._parse_items("]")
            return lambda build: tuple(item(build) for item in items)
        if token == "(":
            value = self._parse_range()
            self._expect(")")
            return value
        if token.startswith("'"):
            return _make_constant(token[1:-1])
        if token[:1].isdigit():
            return _make_constant(float(token) if "." in token or "e" in token else int(token))
        if not _NAME.fullmatch(token):
            raise self._fail(f"expected a value, not {token or 'the end of the line'}")
        return self._read_name(token)

    def _read_name(self, token: str) -> Expression:
        """Read a value by its name, a function or operator with or without arguments, or a dtype."""
        if token in self._known:
            return lambda build: build.values[token]
        if token == "none":
            return _make_constant(None)
        if token not in operators() and token not in FUNCTIONS and token not in LARGEST and token != "float":
            raise self._fail(f"{token} is neither a value above this line, nor a function, operator or dtype")
        value = _make_constant(token)
        return self._parse_call(value, token) if self._peek() == "(" else value

    def _parse_call(self, name: Expression, target: str) -> Expression:
        self._expect("(")
        # Calls nest: conditions behind this one belong to the outer target again.
        outer, self._target = self._target, target
        inputs: list[Expression] = []
        named: dict[str, Expression] = {}
        while not self._accept(")"):
            # The second of the two ends makes this index valid at the last token.
            if self._tokens[self._at + 1] == "=":
                self._target = key = self._take_name()
                self._expect("=")
                named[key] = self._parse_range()
                self._target = target
            else:
                inputs.append(self._parse_range())
            if self._peek() != ")":
                self._expect(",")
        self._target = outer
        return lambda build: build.call(
            name(build), [each(build) for each in inputs], {key: each(build) for key, each in named.items()}
        )

    def _parse_choice(self) -> Expression:
        """Parse alternatives: those after a mark belong to the state of that mark, and one with conditions
        inside to their states.
        """
        drawn: dict[int, list[Expression]] = {0: []}
        state = 0
        while True:
            first = len(self._states)
            value = self._parse_range()
            drawn[state].append(value)
            # To reach a state inside of an alternative, that alternative has to be drawn.
            drawn.update({inner: [value] for inner in range(first, len(self._states))})
            mark = self._take()
            if mark == "}":
                return lambda build: build.rng.choice(drawn.get(build.state) or drawn[0])(build)
            if mark in _MARKS:
                state = self._add_state(self._target, mark)
                drawn[state] = []
            elif mark != "|":
                raise self._fail(f"expected |, !, ~ or }} in a choice, not {mark or 'the end of the line'}")

    def _parse_items(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while not self._accept(end):
            items.append(self._parse_range())
            if self._peek() != end:
                self._expect(",")
        return items

    def _add_state(self, target: str, mark: str) -> int:
        label = f"{target} {_MARKS[mark]}"
        # Two conditions of one value need two names.
        count = sum(state.rstrip("0123456789 ") == label for state in self._states)
        self._states.append(f"{label} {count + 1}" if count else label)
        return len(self._states) - 1

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        # The end is not passed, so that `_peek` always finds a token.
        self._at += bool(token)
        return token

    def _take_name(self) -> str:
        token = self._take()
        if not _NAME.fullmatch(token):
            raise self._fail(f"expected a name, not {token or 'the end of the line'}")
        return token

    def _accept(self, token: str) -> bool:
        met = self._tokens[self._at] == token
        self._at += met
        return met

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._fail(f"expected {token}, not {self._peek() or 'the end of the line'}")

    def _fail(self, reason: str) -> BadInput:
        return BadInput(f"{self._place}: {reason}")


def _make_constant(value: Any) -> Expression:
    return lambda build: value


def _apply(function: Callable[[Any, Any], Any], left: Expression, right: Expression) -> Expression:
    return lambda build: function(left(build), right(build))
