"""Cluster failures of a log, in which lines and callers of one version of a compiler can be compared. Pure.

A fingerprint drops line numbers, since they change between versions. A log is of one version if one line of
it made calls that differ. There lines and callers tell bugs of one fingerprint apart: one sentence that two
statements raise, one shared function that three callers use wrongly, a runner of passes that hides the
exception that it caught. Keys that a program chose (tuples, members of an enum, names of values) are no
difference.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.backends.observation import Frame
from opsieve.triage.clustering.clusters import (
    MOST_COMPARED,
    find_common_texts,
    get_statement,
    make_alternative_titles,
)
from opsieve.triage.fingerprint import component, normalise, stack

# So many callers of a statement that Python could not execute, each seen often, passed as many wrong values.
# Two callers may share a mistake of the statement, and one that fails for more callers is taken to be wrong
# itself. The number fits logs of planted faults: no log of a real tool that was tried has a statement with
# three such callers.
_CALLERS_AT_FAULT = 3
# Failures of a caller, after which it counts by itself
_OFTEN = 2
# Python's own values do not have what the statement wants: its callers passed wrong ones.
_WRONG_VALUE = re.compile(
    r"\b(?:NoneType|bool|int|float|str|bytes|list|tuple|dict|set) object"
    r" (?:has no attribute|is not (?!callable))"
)
_ATTRIBUTE = re.compile(r"object has no attribute (\w+)")
_METHODS = frozenset(name for kind in (str, list, dict, set) for name in dir(kind))
# A runner of passes names the pass whose exception it replaced.
_PASS = re.compile(
    r"\b(?:pass|stage|phase|rule|rewrite|transform|transformation)"
    r" ['\"`]?([A-Za-z]\w*_\w+|[A-Z]\w*[a-z][A-Z]\w*)"
    r"|\b(?:pass|stage|phase|rule|rewrite|transform|transformation) ['\"`](\w+)['\"`]"
    r"|['\"`](\w+)['\"`] (?:pass|stage|phase|rule|rewrite|transform|transformation)\b"
)
# Exceptions of Python about what a statement asked for
_UNMET = frozenset(["AttributeError", "TypeError"])
_TEXT_KEY = re.compile(r"'([^'\n]{1,200})'|\"([^\"\n]{1,200})\"")
# What a statement asked for and no object or function has: the same mistake for any class or callee.
_ASKED = re.compile(
    r"has no attribute .*|got an unexpected keyword .*|missing \S+ required .*"
    r"|takes (?:no|exactly|from|at|<n>) .*|is not callable"
)


@dataclass(frozen=True, slots=True)
class LoggedFailure:
    """Failures of a log that nothing tells apart: fingerprint, `file:line` of the innermost frame and of its
    caller, the pass that the message names, the text that was looked up in vain, the exception with which all
    began and the template of its message.
    """

    key: str
    place: str = ""
    caller: str = ""
    guilty_pass: str = ""
    item: str = ""
    exception: str = ""
    said: str = ""


def describe_failure(
    key: str, backend: str, exception: str, message: str, frames: Sequence[Frame], hides_cause: bool = True
) -> tuple[LoggedFailure, tuple[str, ...]]:
    """Describe a failure by its fingerprint, the exception with which it began and its frames; also return
    the places of its calls, innermost first.

    A pass that the message names counts if the exception `hides_cause`.
    """
    exception, said = exception.rpartition(".")[2], normalise.normalise_message(message)
    calls = stack.list_calls(frames, backend, checked=not normalise.is_about_data(exception, said))
    place, caller = (*calls[:2], "", "")[:2]
    match = _PASS.search(message[:2000]) if hides_cause else None
    name = next(filter(None, match.groups()), "") if match else ""
    text = _TEXT_KEY.fullmatch(message.strip()) if exception == "KeyError" else None
    item = (text[1] or text[2]) if text else ""
    return LoggedFailure(key, place, caller, name, item, exception, said), calls


class LogClusters:
    """Failures in order of arrival; `assign_clusters` names the cluster of each."""

    def __init__(self) -> None:
        self._counts: Counter[LoggedFailure] = Counter()
        self._components: dict[LoggedFailure, Sequence[component.Component]] = {}
        self._inner: defaultdict[str, set[str]] = defaultdict(set)

    def add_failure(
        self, failure: LoggedFailure, components: Sequence[component.Component], calls: Sequence[str]
    ) -> None:
        """Add a failure; `calls` are the places of its calls, innermost first."""
        self._counts[failure] += 1
        self._components.setdefault(failure, components)
        for inner, outer in itertools.pairwise(calls):
            # Two are enough to know that one line made different calls.
            if len(self._inner[outer]) < 2:
                self._inner[outer].add(inner)

    def assign_clusters(self) -> dict[LoggedFailure, str]:
        """Return the cluster of each failure: the fingerprint of its first one, with a place where several
        clusters have it.
        """
        parents = {failure: failure for failure in self._counts}

        def find(failure: LoggedFailure) -> LoggedFailure:
            while parents[failure] is not failure:
                failure = parents[failure]
            return failure

        order = {failure: number for number, failure in enumerate(parents)}
        rules = _Rules(self._counts, self._components, any(len(each) > 1 for each in self._inner.values()))
        for one, other in rules.list_links():
            # In the order of the log, so that its clusters do not depend on the order of the rules.
            first, later = sorted((find(one), find(other)), key=order.__getitem__)
            parents[later] = first
        names: dict[LoggedFailure, str] = {}
        taken: set[str] = set()
        for failure in parents:
            if find(failure) is failure:
                name = failure.key
                if name in taken:
                    where = filter(None, (failure.place, failure.caller, failure.guilty_pass))
                    name = f"{name}@{'/'.join(where)}"
                # Two clusters may share the place as well; names must still differ.
                while name in taken:
                    name += "'"
                taken.add(name)
                names[failure] = name
        return {failure: names[find(failure)] for failure in parents}


class _Rules:
    """Which failures of a log are linked."""

    def __init__(
        self,
        counts: Counter[LoggedFailure],
        components: dict[LoggedFailure, Sequence[component.Component]],
        one_version: bool,
    ):
        self._counts, self._components, self._one_version = counts, components, one_version
        self._callers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._items: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._said: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for failure, count in counts.items():
            self._callers[failure.place][failure.caller] += count
            self._items[failure.place, failure.caller].add(failure.item)
            self._said[failure.place, failure.caller].add(failure.said)

    def list_links(self) -> list[tuple[LoggedFailure, LoggedFailure]]:
        """List pairs that are one bug: of one fingerprint, of one alternative title, of one statement with
        one text.
        """
        links: list[tuple[LoggedFailure, LoggedFailure]] = []
        alike: defaultdict[str, list[LoggedFailure]] = defaultdict(list)
        statements: defaultdict[str, list[LoggedFailure]] = defaultdict(list)
        for failure in self._counts:
            components = self._components[failure]
            for title in (failure.key, *make_alternative_titles(components), *self._name_call(failure)):
                links += [(other, failure) for other in alike[title] if not self._are_apart(other, failure)]
                if len(alike[title]) < MOST_COMPARED:
                    alike[title].append(failure)
            if statement := get_statement(components):
                others = [each for each in statements[statement] if not self._are_apart(each, failure)]
                texts = find_common_texts(components, [self._components[each] for each in others])
                links += [
                    (other, failure) for other, text in zip(others, texts, strict=True) if text is not None
                ]
                if len(statements[statement]) < MOST_COMPARED:
                    statements[statement].append(failure)
        return links

    def _name_call(self, failure: LoggedFailure) -> tuple[str, ...]:
        """Name the statement that failed, with its caller where another caller may have made another mistake;
        () if the place is unknown.

        It is the same whatever exceptions became of the first one, and whatever called the caller.
        """
        if not failure.place:
            return ()
        about_data = normalise.is_about_data(failure.exception, failure.said)
        asked = self._find_asked(failure)
        anyone = bool(asked) or failure.exception == "KeyError"
        if not (failure.caller or anyone):
            return ()
        caller = "" if anyone else failure.caller
        said = asked or ("" if about_data else failure.said)
        backend = self._read(failure, component.ComponentName.BACKEND)
        return ("\x1f".join(("call", backend, failure.place, caller, failure.exception, said)),)

    def _find_asked(self, failure: LoggedFailure) -> str:
        """Return what a statement asked an object or a function for that does not have it; "" if the caller
        may have passed a wrong value.
        """
        asked = None if _is_wrong_value(failure.said) else _ASKED.search(failure.said)
        return asked[0] if asked and failure.exception in _UNMET else ""

    def _read(self, failure: LoggedFailure, name: component.ComponentName) -> str:
        return next((part.value for part in self._components[failure] if part.name is name), "")

    def _are_apart(self, one: LoggedFailure, other: LoggedFailure) -> bool:
        """Return whether two failures that look alike are two bugs."""
        if one.guilty_pass and other.guilty_pass and one.guilty_pass != other.guilty_pass:
            return True
        # Line numbers of two versions cannot be compared.
        if not self._one_version or not (one.place and other.place):
            return False
        about_data = normalise.is_about_data(one.exception, one.said)
        if one.place != other.place:
            return one.item != other.item if one.item and other.item else not about_data
        if one.caller == other.caller:
            return False
        callers = self._callers[one.place]
        often = all(callers[each.caller] >= _OFTEN for each in (one, other))
        if self._find_asked(one):
            # Callers that each pass a class of their own confuse what they pass: `add(node, context)`.
            single = all(len(self._said[each.place, each.caller]) == 1 for each in (one, other))
            return often and single and one.said != other.said
        if one.item and other.item:
            # A caller that looks up many keys takes them from the program; they tell no bugs apart.
            vary = any(len(self._items[each.place, each.caller]) > 1 for each in (one, other))
            return one.item != other.item and not vary
        return often and ((about_data and len(callers) == _CALLERS_AT_FAULT) or _is_wrong_value(one.said))


def _is_wrong_value(said: str) -> bool:
    """Return whether a statement that asks for the right thing was given a wrong value: one of Python's own
    types, or one without a method that these have (`'Name' object has no attribute 'startswith'`).
    """
    asked = _ATTRIBUTE.search(said)
    return _WRONG_VALUE.search(said) is not None or (asked is not None and asked[1] in _METHODS)
