"""Failures of one statement in a compiler's source: one bug where their messages are instances of one text.

A message is a format of the author's, filled with what the program had: names of values, spellings of types.
One message alone does not say which of its words are which; its other instances do, the words that vary
between them. So messages of one statement (the same file, line and exception; where it did not raise by
itself but called what did, reached from the same other files) are compared word by word, as Drain does with
the lines of a log that have the same length (He and others, "Drain", ICWS 2017, section III): they are
instances of one text when most of their words are the same. What varies is replaced by `<*>`. Names of
operators do not vary in what C++ says, nor where a lack is spoken of, since what one operator lacks is
another bug than what another lacks; a Python statement names them because it shows a node, or is a helper's
(`Slice axis 3 is out of range`). Pure.

`Links` applies the rules of a store to fingerprints that are in memory, without a store.
"""

import functools
import re
from collections.abc import Sequence

from rapidfuzz.distance import LCSseq

from opsieve.triage.clustering.clusters import alternatives
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.normalise import is_interpreters

VARIES = "<*>"
MOST_COMPARED = 64  # fingerprints of one statement
# of the words of the longer message, Drain's threshold; of one `raise` of the shorter, which has one text
_SAME = 0.5
_FEWEST = 2  # words that both have
_MOST_WORDS = 80
_CALLERS = 3
_WORD = re.compile(r"<\w+>|[\w.:]+")
# Words of messages about what is not there.
_LACK = re.compile(
    r"support|implement|regist|kernel|convert|handler|unknown|unrecogni[sz]ed|missing|not found",
    re.IGNORECASE,
)


def statement_of(components: Sequence[Component]) -> str:
    """What failures of one statement have in common, as text; "" where that is not known, or for what is no
    error.
    """
    known = {part.name: part.value for part in components}
    if known.get(ComponentName.KIND) != "error" or ComponentName.STATEMENT not in known:
        return ""
    names = (ComponentName.BACKEND, ComponentName.EXCEPTION, ComponentName.STATEMENT)
    return "\x1f".join(known.get(name, "") for name in names)


def common_texts(mine: Sequence[Component], others: Sequence[Sequence[Component]]) -> list[str | None]:
    """`common_text` of a failure with each of the others of its statement.

    What the interpreter says of a value (`'int' object has no attribute 'inputs'`) may be the mistake of who
    called the function: there failures with other frames are one bug only once `_CALLERS` ways to reach the
    statement are known.
    """
    texts = [common_text(other, mine) for other in others]
    if not is_interpreters(" ".join(_words(mine))):
        return texts
    alike = [_frames(other) for other, text in zip(others, texts, strict=True) if text is not None]
    if len({_frames(mine), *alike}) >= _CALLERS:
        return texts
    return [
        text if _frames(other) == _frames(mine) else None for other, text in zip(others, texts, strict=True)
    ]


def common_text(one: Sequence[Component], other: Sequence[Component]) -> str | None:
    """The text that the messages of two failures of one statement are instances of; None when they are of
    different ones.
    """
    mine, theirs = (_words(parts) for parts in (one, other))
    fixed = frozenset() if _varies(one, mine) and _varies(other, theirs) else _operators()
    if mine == theirs:
        return " ".join(mine)
    common = LCSseq.similarity(mine, theirs)
    length = min if _raised(one) and _raised(other) else max
    if common < max(_FEWEST, _SAME * length(len(mine), len(theirs))):
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


def _varies(components: Sequence[Component], words: Sequence[str]) -> bool:
    """Whether operators in a message may be those of the program at hand: a Python statement says so, and
    speaks of no lack.
    """
    frames = _frames(components)
    return (
        frames[:1] != () and frames[0].partition(" ")[0].endswith(".py") and not _LACK.search(" ".join(words))
    )


def _raised(components: Sequence[Component]) -> bool:
    """Whether the statement is known by its place alone: a `raise` of Python."""
    return any(part.name is ComponentName.STATEMENT and len(part.items) == 1 for part in components)


@functools.cache
def _operators() -> frozenset[str]:
    import onnx  # not loaded by commands that only look

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas())


def _frames(components: Sequence[Component]) -> tuple[str, ...]:
    return next((part.items for part in components if part.name is ComponentName.FRAMES), ())


def _words(components: Sequence[Component]) -> list[str]:
    message = next((part.value for part in components if part.name is ComponentName.MESSAGE), "")
    return _WORD.findall(message)[:_MOST_WORDS]


class Links:
    """Fingerprints as they come; `cluster` gives the key of the first one of those that are linked."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._titled: dict[str, str] = {}
        self._statements: dict[str, list[tuple[str, Sequence[Component]]]] = {}

    def add(self, key: str, components: Sequence[Component]) -> None:
        """Enter a fingerprint; one that is there already stays as it is."""
        if key in self._parents:
            return
        self._parents[key] = key
        for title in alternatives(components):
            self._link(key, self._titled.setdefault(title, key))
        if statement := statement_of(components):
            others = self._statements.setdefault(statement, [])
            for (other, _), text in zip(
                others, common_texts(components, [its for _, its in others]), strict=True
            ):
                if text is not None:
                    self._link(key, other)
            if len(others) < MOST_COMPARED:
                others.append((key, components))

    def cluster(self, key: str) -> str:
        """The first key of the cluster that a key belongs to."""
        while (parent := self._parents[key]) != key:
            key = parent
        return key

    def _link(self, key: str, other: str) -> None:
        order = list(dict.fromkeys([self.cluster(other), self.cluster(key)]))
        for later in order[1:]:
            self._parents[later] = order[0]
