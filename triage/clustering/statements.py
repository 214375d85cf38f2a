"""Join failures of one statement in a compiler's source: they are one bug if their messages are instances of
one text.

A message is an author's format filled with data of the program: names of values, spellings of types. Only
other instances of the same message show which words vary. So messages of one statement (the same file, line
and exception; for a statement that called the raising function, reached from the same other files) are
compared word by word, as Drain does with log lines of equal length (He and others, "Drain", ICWS 2017,
section III): they are instances of one text if most of their words are equal. Varying words are replaced by
`<*>`.

Names of operators must not vary in messages of C++ code, nor in messages about missing features, since a
feature missing for one operator is another bug than for another. A Python statement names operators because
it prints a node, or is a shared function (`Slice axis 3 is out of range`). Pure. `Links` applies the rules of
a store to fingerprints in memory, without a store.
"""

import functools
import re
from collections.abc import Sequence

from rapidfuzz.distance import LCSseq, Prefix

from opsieve.triage.clustering.clusters import make_alternative_titles
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.normalise import is_from_interpreter

VARIES = "<*>"
# Fingerprints of one statement
MOST_COMPARED = 64
# of the words of the longer message, Drain's threshold; of one `raise` of the shorter, which has one text
_SAME = 0.5
# Words that both have
_FEWEST = 2
# The number of first words that identify a `raise`; a whole program may follow them.
_FIRST = 3
_MOST_WORDS = 80
_CALLERS = 3
_WORD = re.compile(r"<\w+>|[\w.:]+")
# Words of messages about what is not there.
_LACK = re.compile(
    r"support|implement|regist|kernel|convert|handler|unknown|unrecogni[sz]ed|missing|not found",
    re.IGNORECASE,
)


def get_statement(components: Sequence[Component]) -> str:
    """Return the common identity of failures of one statement; "" if it is unknown, or for other kinds than
    errors.
    """
    known = {part.name: part.value for part in components}
    if known.get(ComponentName.KIND) != "error" or ComponentName.STATEMENT not in known:
        return ""
    names = (ComponentName.BACKEND, ComponentName.EXCEPTION, ComponentName.STATEMENT)
    return "\x1f".join(known.get(name, "") for name in names)


def find_common_texts(mine: Sequence[Component], others: Sequence[Sequence[Component]]) -> list[str | None]:
    """Apply `find_common_text` to a failure and each other one of its statement.

    A message of the interpreter about a value (`'int' object has no attribute 'inputs'`) may be the caller's
    mistake: such failures with other frames are one bug only once `_CALLERS` ways to reach the statement are
    known.
    """
    texts = [find_common_text(other, mine) for other in others]
    if not is_from_interpreter(" ".join(_split_words(mine))):
        return texts
    alike = [_get_frames(other) for other, text in zip(others, texts, strict=True) if text is not None]
    if len({_get_frames(mine), *alike}) >= _CALLERS:
        return texts
    return [
        text if _get_frames(other) == _get_frames(mine) else None
        for other, text in zip(others, texts, strict=True)
    ]


def find_common_text(one: Sequence[Component], other: Sequence[Component]) -> str | None:
    """Return the text of which the messages of two failures are instances; None if they differ."""
    mine, theirs = (_split_words(parts) for parts in (one, other))
    fixed = frozenset() if _may_vary(one, mine) and _may_vary(other, theirs) else _list_operators()
    if mine == theirs:
        # A text of placeholders alone says nothing: `raise RuntimeError(f"{code}: {what}")` in a shared
        # function.
        says = not mine or any(any(map(str.isalpha, word)) for word in mine if word[0] != "<")
        return " ".join(mine) if says or _get_frames(one) == _get_frames(other) else None
    common = LCSseq.similarity(mine, theirs)
    raised = _is_raise(one) and _is_raise(other)
    length = min if raised else max
    begins = (
        raised
        and Prefix.similarity(*([word for word in each if word[0] != "<"] for each in (mine, theirs)))
        >= _FIRST
    )
    if common < _FEWEST or (not begins and common < _SAME * length(len(mine), len(theirs))):
        return None
    text: list[str] = []
    for edit in LCSseq.opcodes(mine, theirs):
        if edit.tag == "equal":
            text += mine[edit.src_start : edit.src_end]
            continue
        changed = (*mine[edit.src_start : edit.src_end], *theirs[edit.dest_start : edit.dest_end])
        if not fixed.isdisjoint(changed):
            return None
        text += [VARIES] if text[-1:] != [VARIES] else []
    return " ".join(text)


def _may_vary(components: Sequence[Component], words: Sequence[str]) -> bool:
    """Whether operators in a message may vary: for a Python statement whose message is not about a missing
    feature.
    """
    frames = _get_frames(components)
    return (
        frames[:1] != () and frames[0].partition(" ")[0].endswith(".py") and not _LACK.search(" ".join(words))
    )


def _is_raise(components: Sequence[Component]) -> bool:
    """Whether the statement is identified by its place alone: a `raise` of Python."""
    return any(part.name is ComponentName.STATEMENT and len(part.items) == 1 for part in components)


@functools.cache
def _list_operators() -> frozenset[str]:
    # Not loaded by commands that only look
    import onnx

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas())


def _get_frames(components: Sequence[Component]) -> tuple[str, ...]:
    return next((part.items for part in components if part.name is ComponentName.FRAMES), ())


def _split_words(components: Sequence[Component]) -> list[str]:
    message = next((part.value for part in components if part.name is ComponentName.MESSAGE), "")
    return _WORD.findall(message)[:_MOST_WORDS]


class Links:
    """Fingerprints in order of arrival; `find_cluster` gives the key of the first one linked to a key."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._titled: dict[str, str] = {}
        self._statements: dict[str, list[tuple[str, Sequence[Component]]]] = {}

    def add_fingerprint(self, key: str, components: Sequence[Component]) -> None:
        """Add a fingerprint; an existing one stays as it is."""
        if key in self._parents:
            return
        self._parents[key] = key
        for title in make_alternative_titles(components):
            self._link_keys(key, self._titled.setdefault(title, key))
        if statement := get_statement(components):
            others = self._statements.setdefault(statement, [])
            for (other, _), text in zip(
                others, find_common_texts(components, [its for _, its in others]), strict=True
            ):
                if text is not None:
                    self._link_keys(key, other)
            if len(others) < MOST_COMPARED:
                others.append((key, components))

    def find_cluster(self, key: str) -> str:
        """Return the first key of the cluster of a key."""
        while (parent := self._parents[key]) != key:
            key = parent
        return key

    def _link_keys(self, key: str, other: str) -> None:
        order = list(dict.fromkeys([self.find_cluster(other), self.find_cluster(key)]))
        for later in order[1:]:
            self._parents[later] = order[0]
