"""The engine on a form that is no graph at all: words of a sentence, of which a failure needs some."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from opsieve.reducer.engine.census import Part, improve_untried
from opsieve.reducer.engine.certificate import certify, to_fixpoint
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.engine.engine import DIGITS, Engine
from opsieve.reducer.engine.form import Rules, Size
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.engine.subset_search import SubsetSearch

Words = tuple[str, ...]


class Sentences:
    """The form: fewer words first, then shorter ones."""

    def key(self, words: Words) -> tuple[int, int, Words]:
        return len(words), sum(map(len, words)), words

    def simpler(self, candidate: Words, than: Words) -> bool:
        return self.key(candidate) < self.key(than)

    def digest(self, subject: Words) -> str:
        return hashlib.sha256(" ".join(subject).encode()).hexdigest()[:DIGITS]

    def size(self, subject: Words) -> Size:
        return Size(len(subject), 0, sum(map(len, subject)))


class Shorten:
    """A pass: a word without its last letter."""

    name = "letters"

    def edits(self, subject: Words) -> Iterator[Edit[Words]]:
        for place, word in enumerate(subject):
            if len(word) > 1:
                yield Edit(
                    f"shorten {place}", frozenset([str(place)]), lambda words, at=place: _shorter(words, at)
                )


@dataclass
class Drop:
    """A pass: a word less; its edits touch words up to `reach` places beside it too."""

    reach: int = 0
    name: str = "words"

    def edits(self, subject: Words) -> Iterator[Edit[Words]]:
        for place in reversed(range(len(subject))):
            word, near = subject[place], subject[max(0, place - self.reach) : place + self.reach + 1]
            yield Edit(f"drop {word}", frozenset(near), lambda words, gone=word: _without(words, gone))


def _shorter(words: Words, at: int) -> Words:
    return (*words[:at], words[at][:-1], *words[at + 1 :])


def _without(words: Words, gone: str) -> Words | None:
    return tuple(word for word in words if word != gone) if gone in words else None


@dataclass
class Needs:
    """The test: some words have to be there, by their first letters. Counts."""

    letters: str
    count: int = 0

    def evaluate(self, subjects: Sequence[Words]) -> Iterator[CheckResult]:
        for words in subjects:
            self.count += 1
            there = set(self.letters) <= {word[0] for word in words}
            yield CheckResult("same" if there else "gone")


class Valid:
    def complaints(self, subjects: Sequence[Words]) -> list[str]:
        return ["" if all(words) else "an empty word" for words in subjects]


def engine_for(start: Words, test: Needs) -> Engine[Words]:
    engine = Engine(start, Rules(Sentences(), [test], Valid()), Journal(""))
    assert engine.begin().kind == "same"
    return engine


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=4, unique=True), st.integers(0, 1000))
def test_any_form_reaches_the_minimum_and_proves_it(letters: list[str], seed: int) -> None:
    start = tuple(
        f"{letter}{seed * (place + 7) % 101}x{place}" for place, letter in enumerate("abcdefghij" * 4)
    )
    engine = engine_for(start, Needs("".join(letters)))
    passes = [Drop(), Shorten()]
    to_fixpoint(engine, passes)
    assert sorted(engine.best) == sorted(letters)
    certificate = certify(engine, passes)
    assert certificate.minimal
    assert [line.name for line in certificate.lines] == ["words", "letters"]


def every_word(words: Words) -> Iterator[Part[Words]]:
    """The census of a sentence; the plainest edit of a word is to drop it."""
    for word in words:
        drop = Edit(f"drop {word}", frozenset([word]), lambda now, gone=word: _without(now, gone))
        yield Part(
            "words", word, "it is the first" if word == words[0] else "", () if word == "e" else (drop,)
        )


def test_a_part_that_no_pass_tries_is_tried_alone_or_listed_and_the_result_is_not_called_minimal() -> None:
    engine = engine_for(("a", "b", "cc", "e"), Needs("ab"))
    passes = [Shorten()]
    to_fixpoint(engine, passes)
    assert certify(engine, passes).minimal  # as long as nobody counts
    certificate = certify(engine, passes, every_word)
    assert (certificate.minimal, certificate.beaten) == (False, True)
    while improve_untried(engine, passes, every_word):
        to_fixpoint(engine, passes)
    assert engine.best == ("a", "b", "e")
    certificate = certify(engine, passes, every_word)
    found = {line.part: (line.gone, line.same, line.simplest, line.is_open) for line in certificate.parts}
    assert found == {"a": (0, 0, True, False), "b": (1, 0, False, False), "e": (0, 0, False, True)}
    assert (certificate.minimal, certificate.beaten) == (False, False)
    assert certify(
        engine, [Drop()], lambda words: (part for part in every_word(words) if part.key != "e")
    ).beaten


@pytest.mark.parametrize("needed", [[3], [398, 399], [10, 390], [200, 204, 209, 230]])
def test_parts_of_any_form_are_searched_by_place(needed: list[int]) -> None:
    start = tuple("abcd"[needed.index(place)] if place in needed else f"z{place}" for place in range(400))
    test = Needs("abcd"[: len(needed)])
    engine = engine_for(start, test)

    def keep(places: Sequence[int]) -> Words:
        return tuple(start[place] for place in places)

    def nearest(foci, among):  # type: ignore[no-untyped-def]
        (focus,) = foci
        return sorted(among, key=lambda place: abs(place - focus))

    search = SubsetSearch(engine, keep, nearest, "words")
    found = search.minimal(search.within(list(range(400))))
    assert sorted(found) == needed
    assert test.count <= 12 + 14 * len(needed)


def test_what_failed_is_tried_again_only_where_something_changed() -> None:
    test = Needs("ab")
    engine = engine_for(("ax", "bx", *(f"c{place}" for place in range(30))), test)
    to_fixpoint(engine, [Drop(), Shorten()])
    assert engine.best == ("a", "b")
    assert test.count <= 12


@dataclass
class Together:
    """The test: the first word has to be longer than one letter, which what edits rewrite besides is not."""

    asked: list[Words]

    def evaluate(self, subjects: Sequence[Words]) -> Iterator[CheckResult]:
        for words in subjects:
            self.asked.append(words)
            yield CheckResult("same" if words and len(words[0]) > 1 else "gone")


class DropAndShorten:
    """A pass: a word less, and the first one shortened besides."""

    name = "words"

    def edits(self, subject: Words) -> Iterator[Edit[Words]]:
        for word in subject[1:]:
            yield Edit(
                f"drop {word}",
                frozenset([word]),
                lambda words, gone=word: _shorter(_without(words, gone) or (), 0),
            )


def test_an_edit_whose_rewriting_loses_the_failure_by_itself_says_nothing_of_its_part() -> None:
    """The rewriting is tried once without an edit; the certificate counts what it lost, and is not
    minimal.
    """
    test, passes = Together([]), [DropAndShorten()]
    rules = Rules(Sentences(), [test], Valid(), control=lambda best, candidate: _shorter(best, 0))
    engine = Engine(("aa", "b", "c"), rules, Journal(""))
    engine.begin()
    certificate = certify(engine, passes, lambda words: [Part("word", word) for word in words[1:]])
    [line] = certificate.lines
    assert (line.edits, line.gone, line.by_rewriting) == (2, 2, 2)
    assert [part.by_rewriting for part in certificate.parts] == [1, 1]
    assert all("rewrites more" in part.why for part in certificate.parts)
    assert not certificate.minimal
    assert test.asked.count(("a", "b", "c")) == 1
