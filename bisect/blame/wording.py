"""What a commit says and what its changed lines name, held against what is known of a failure. Pure.

Names of operators stand in code as the words of identifiers (`AveragePool2DTask`), in tests with underscores
(`test_average_pool`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from opsieve.bisect.blame.commit_range import Entry, Patch
from opsieve.bisect.blame.ranking import Clue

CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".rs", ".td"])
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_WORDS = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
_FUNCTION = re.compile(r"\b[A-Za-z_]\w{0,99}(?:::~?\w{1,100}){1,8}")
_STATED = re.compile(r"\bOp \((\w{1,60})\)|\brunning (\w{1,60}) node")
_NAMED_TEST = re.compile(r"\b(?:def|class|TEST\w*|TYPED_TEST\w*)\b")
_SHORTEST = 16  # characters of a text that is looked for
_MANY = 6  # operators, of which one says little
_WORD = 4  # letters of a word that says something
_RARE = 3  # of a hundred commits have a rare word
_MOST_NAMES = 40  # files
_MOST_MESSAGE = 2_000  # characters


@dataclass(frozen=True, slots=True)
class Clues:
    """What is known of a failure: guilty passes, operators of the reduced case, what the compiler said, and
    what one sees (`crash at run`).

    `fixed` tells that the commit looked for is the one that ended it.
    """

    passes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    message: str = ""
    symptom: str = ""
    fixed: bool = False

    @property
    def telling(self) -> tuple[str, ...]:
        """The operators that tell commits apart: of many those alone that the message names, and none that
        the name of a guilty pass holds.
        """
        passes = re.sub(r"[_-]", "", "".join(self.passes).lower())
        stated = [name for pair in _STATED.findall(self.message) for name in pair if name]
        named = [name for name in self.operators if _has_word(self.message, name)]
        wanted = dict.fromkeys([*stated, *named, *(self.operators if len(self.operators) <= _MANY else ())])
        return tuple(name for name in wanted if name.lower() not in passes)

    @property
    def functions(self) -> tuple[str, ...]:
        """The last two parts of the names of functions in the message."""
        return tuple(
            dict.fromkeys("::".join(name.split("::")[-2:]) for name in _FUNCTION.findall(self.message))
        )


def said(entry: Entry, clues: Clues) -> dict[Clue, str]:
    """What the subject and the description of a commit say about the failure."""
    subject, description = entry.subject, entry.description
    words = re.findall(r"[a-z]+", subject.lower())
    known = frozenset().union(*(_SYMPTOMS.get(word, frozenset()) for word in clues.symptom.split()))
    found: dict[Clue, str | None] = {
        Clue.PASS_WORD: _first(name for name in clues.passes if _speaks_of_pass(subject, name)),
        Clue.OPERATOR_WORD: _first(name for name in clues.telling if _names_operator(subject, name)),
        Clue.SYMPTOM_WORD: _first(word for word in words if word in known),
        Clue.MENDS: _first(word for word in words if clues.fixed and word in _MENDING),
        Clue.QUOTES: _first(
            f'"{text[:80]}"' for text in constant_texts(clues.message) if text in description
        ),
        Clue.DESCRIBES_PASS: _first(
            name for name in clues.passes if last_name(name).lower() in description.lower()
        ),
        Clue.DESCRIBES_OPERATOR: _first(name for name in clues.telling if _has_word(description, name)),
    }
    return {kind: about for kind, about in found.items() if about is not None}


def changed(patch: Patch, clues: Clues) -> dict[Clue, str]:
    """What the lines that a commit changes, and the functions that they stand in, name."""
    lines = [
        (file, text) for file, text in (*patch.lines, *patch.places) if PurePosixPath(file).suffix in CODE
    ]
    code = "\n".join(text for file, text in lines if not is_test(file))
    tests = "\n".join(text for file, text in lines if is_test(file) and _NAMED_TEST.search(text))
    found: dict[Clue, str | None] = {
        Clue.CODE_OPERATOR: _first(name for name in clues.telling if _has_word(code, name)),
        Clue.CODE_PASS: _first(
            name for name in clues.passes if last_name(name) in code or last_name(name) in tests
        ),
        Clue.FUNCTION: _first(name for name in clues.functions if name in code),
        Clue.TEST: _first(
            name for name in clues.telling if _has_word(tests, name) or _has_snake(tests, name)
        ),
    }
    return {kind: about for kind, about in found.items() if about is not None}


def rare_words(entries: Mapping[str, Entry], clues: Clues) -> dict[str, dict[Clue, str]]:
    """The commits whose message or names of files have words of the failure that few others have.

    A word stands for those that it begins (pool, pooling): what is rare among the commits tells them apart,
    whatever a project talks of all day.
    """
    source = " ".join((clues.message[:_MOST_MESSAGE], *clues.telling, *map(last_name, clues.passes)))
    wanted = sorted({word.lower() for word in _WORDS.findall(source) if len(word) >= _WORD})
    texts = {sha: _text_words(entry) for sha, entry in entries.items()}
    shared = {word: [sha for sha, text in texts.items() if f" {word}" in text] for word in wanted}
    most = max(1, len(entries) * _RARE // 100)
    found: dict[str, list[str]] = {}
    for word, holders in shared.items():
        for sha in holders if len(holders) <= most else ():
            found.setdefault(sha, []).append(word)
    return {
        sha: {Clue.RARE_WORDS: " and ".join(words[:3])} if len(words) > 1 else {Clue.RARE_WORD: words[0]}
        for sha, words in found.items()
    }


def constant_texts(message: str) -> list[str]:
    """The parts of a message that a source is likely to hold as they are: without quoted names, numbers and
    paths; the longest first.
    """
    parts = [part for line in message.splitlines() for part in re.split(_QUOTED, line)]
    pieces = [
        piece.strip(" .,:;()[]{}=")
        for part in parts
        for piece in re.split(r"[\d/\\<>{}\[\]]+|\s{2,}|: ", part)
    ]
    return sorted(
        {piece for piece in pieces if len(piece) >= _SHORTEST and " " in piece}, key=len, reverse=True
    )[:3]


def last_name(name: str) -> str:
    """Of a pass with a prefix (`tir.LowerIntrin`) the name alone: the prefix goes when a folder is
    renamed.
    """
    return name.rpartition(".")[2]


def is_test(file: str) -> bool:
    """Whether a file lies among tests, or is named as one."""
    return any("test" in part.lower() for part in PurePosixPath(file).parts)


def stem(file: str) -> str:
    """The name of a file without its suffix and signs, in lower case."""
    return re.sub(r"[_-]", "", PurePosixPath(file).stem.lower())


def _text_words(entry: Entry) -> str:
    """The words of a commit's message but the first, a verb, and of the names of its files, in lower case,
    each after a blank.
    """
    text = " ".join(
        (
            *_after_verb(entry.subject),
            entry.description,
            *(PurePosixPath(file).stem for file in entry.files[:_MOST_NAMES]),
        )
    )
    return " " + " ".join(_WORDS.findall(text)).lower()


def _first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)


def _speaks_of_pass(subject: str, name: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(name)} - _COMMON
    spoken = {word.lower() for word in _WORDS.findall(subject)}
    plain = re.sub(r"[_-]", "", last_name(name).lower())
    return plain in re.sub(r"[\s_-]", "", subject.lower()) or (len(words) > 1 and words <= spoken)


def _names_operator(subject: str, name: str) -> bool:
    """Whether a subject has the name as a word; not as its first, where "Add" and "Split" are what the commit
    does.
    """
    camel = bool(re.search(r"[a-z][A-Z]", name))
    return name in _after_verb(subject) or (
        camel and name.lower() in re.findall(r"[a-z]\w*", subject.lower())
    )


def _after_verb(subject: str) -> list[str]:
    """The words of a subject without the first, and what stands before it: `[CPU] Split` or `fix: split`."""
    return re.findall(r"[A-Za-z]\w*", re.sub(r"^\s*(?:\[[^\]]*\]|\w+:)\s*", "", subject))[1:]


def _has_word(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![a-z])", text))


def _has_snake(text: str, name: str) -> bool:
    parts = [re.escape(word.lower()) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|\d+", name)]
    return bool(parts) and bool(re.search(rf"(?<![a-z]){'_?'.join(parts)}(?![a-z])", text))


_COMMON = frozenset(
    ["fusion", "pass", "fuse", "op", "ops", "transformer", "elimination", "rule", "rewrite", "optimizer"]
)
_MENDING = frozenset(
    [
        "fix",
        "fixes",
        "fixed",
        "fixing",
        "bugfix",
        "bug",
        "correct",
        "corrects",
        "correctly",
        "incorrect",
        "wrong",
        "invalid",
        "prevent",
        "prevents",
        "avoid",
        "avoids",
        "handle",
        "handles",
        "guard",
        "reject",
        "validate",
        "resolve",
        "resolves",
        "restore",
        "regression",
        "crash",
        "error",
        "issue",
        "revert",
    ]
)


# What subjects of commits say of what one sees.
_SYMPTOMS: dict[str, frozenset[str]] = {
    "crash": frozenset(
        ["crash", "crashes", "crashing", "segfault", "segv", "sigsegv", "overflow", "bounds", "abort"]
    ),
    "hang": frozenset(["hang", "hangs", "deadlock", "loop", "infinite"]),
    "out-of-memory": frozenset(["memory", "leak", "oom"]),
    "inf": frozenset(["inf", "infinity", "infinite", "nan", "overflow"]),
    "nan": frozenset(["nan", "nans", "inf", "infinity", "division"]),
    "shape": frozenset(["shape", "shapes", "rank", "dim", "dims", "dimension", "dimensions"]),
    "dtype": frozenset(["type", "types", "dtype"]),
}
