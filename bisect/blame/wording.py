"""Compare the message and changed lines of a commit with a failure's clues. Pure.

Operator names appear in code as words of identifiers (`AveragePool2DTask`), and in tests with underscores
(`test_average_pool`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from opsieve.bisect.blame.commit_range import Entry, Patch
from opsieve.bisect.blame.ranking import Clue

CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".rs", ".td"])
# What a message quotes are names and values of this model, which no source file contains.
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# "AveragePool" gives two words and "GPU" one, as people write them.
_WORDS = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
# Bounded repeats: the message may be hostile.
_FUNCTION = re.compile(r"\b[A-Za-z_]\w{0,99}(?:::~?\w{1,100}){1,8}")
# The two ways in which onnxruntime's messages name the operator that failed.
_STATED = re.compile(r"\bOp \((\w{1,60})\)|\brunning (\w{1,60}) node")
_NAMED_TEST = re.compile(r"\b(?:def|class|TEST\w*|TYPED_TEST\w*)\b")
# Characters of a text that is looked for
_SHORTEST = 16
# With this many operators, each one is weak evidence.
_MANY = 6
# The shortest significant word, in letters.
_WORD = 4
# Of a hundred commits have a rare word
_RARE = 3
# Files
_MOST_NAMES = 40
# Characters
_MOST_MESSAGE = 2_000


@dataclass(frozen=True, slots=True)
class Clues:
    """Facts about a failure: guilty passes, operators of the reduced case, the compiler's message, and the
    symptom.

    The symptom is a short name such as `crash at run`. `fixed` means that the search is for the commit that
    ended the failure.
    """

    passes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    message: str = ""
    symptom: str = ""
    fixed: bool = False

    @property
    def distinctive_operators(self) -> tuple[str, ...]:
        """The operators that tell commits apart.

        If there are many operators, only those that the message names count. Operators in the name of a
        guilty pass are excluded.
        """
        passes = re.sub(r"[_-]", "", "".join(self.passes).lower())
        stated = [name for pair in _STATED.findall(self.message) for name in pair if name]
        named = [name for name in self.operators if _has_word(self.message, name)]
        # What the message names comes first, since the first one is the reason that is shown.
        wanted = dict.fromkeys([*stated, *named, *(self.operators if len(self.operators) <= _MANY else ())])
        return tuple(name for name in wanted if name.lower() not in passes)

    @property
    def functions(self) -> tuple[str, ...]:
        """The last two parts of each function name in the message."""
        return tuple(
            dict.fromkeys("::".join(name.split("::")[-2:]) for name in _FUNCTION.findall(self.message))
        )


def find_message_clues(entry: Entry, clues: Clues) -> dict[Clue, str]:
    """Find clues in the subject and the description of a commit."""
    subject, description = entry.subject, entry.description
    words = re.findall(r"[a-z]+", subject.lower())
    known = frozenset().union(*(_SYMPTOMS.get(word, frozenset()) for word in clues.symptom.split()))
    found: dict[Clue, str | None] = {
        Clue.PASS_WORD: _get_first(name for name in clues.passes if _names_pass(subject, name)),
        Clue.OPERATOR_WORD: _get_first(
            name for name in clues.distinctive_operators if _names_operator(subject, name)
        ),
        Clue.SYMPTOM_WORD: _get_first(word for word in words if word in known),
        Clue.MENDS: _get_first(word for word in words if clues.fixed and word in _MENDING),
        Clue.QUOTES: _get_first(
            f'"{text[:80]}"' for text in extract_constant_texts(clues.message) if text in description
        ),
        Clue.DESCRIBES_PASS: _get_first(
            name for name in clues.passes if strip_pass_prefix(name).lower() in description.lower()
        ),
        Clue.DESCRIBES_OPERATOR: _get_first(
            name for name in clues.distinctive_operators if _has_word(description, name)
        ),
    }
    return {kind: about for kind, about in found.items() if about is not None}


def find_code_clues(patch: Patch, clues: Clues) -> dict[Clue, str]:
    """Find clues in the changed lines of a commit and the functions that contain them."""
    lines = [
        (file, text) for file, text in (*patch.lines, *patch.places) if PurePosixPath(file).suffix in CODE
    ]
    code = "\n".join(text for file, text in lines if not is_test(file))
    tests = "\n".join(text for file, text in lines if is_test(file) and _NAMED_TEST.search(text))
    found: dict[Clue, str | None] = {
        Clue.CODE_OPERATOR: _get_first(name for name in clues.distinctive_operators if _has_word(code, name)),
        Clue.CODE_PASS: _get_first(
            name
            for name in clues.passes
            if strip_pass_prefix(name) in code or strip_pass_prefix(name) in tests
        ),
        Clue.FUNCTION: _get_first(name for name in clues.functions if name in code),
        Clue.TEST: _get_first(
            name for name in clues.distinctive_operators if _has_word(tests, name) or _has_snake(tests, name)
        ),
    }
    return {kind: about for kind, about in found.items() if about is not None}


def find_rare_words(entries: Mapping[str, Entry], clues: Clues) -> dict[str, dict[Clue, str]]:
    """Find commits whose message or file names share rare words with the failure.

    A word also matches longer words that begin with it (pool, pooling). Rare words tell the commits apart,
    whatever a project usually writes about.
    """
    source = " ".join(
        (clues.message[:_MOST_MESSAGE], *clues.distinctive_operators, *map(strip_pass_prefix, clues.passes))
    )
    # Sorted, since the order of a set of texts differs between processes and the first word is shown.
    wanted = sorted({word.lower() for word in _WORDS.findall(source) if len(word) >= _WORD})
    texts = {sha: _join_words(entry) for sha, entry in entries.items()}
    shared = {word: [sha for sha, text in texts.items() if f" {word}" in text] for word in wanted}
    # In a range of less than 34 commits the share rounds to 0, and a word of one commit still tells it apart.
    most = max(1, len(entries) * _RARE // 100)
    found: dict[str, list[str]] = {}
    for word, holders in shared.items():
        for sha in holders if len(holders) <= most else ():
            found.setdefault(sha, []).append(word)
    return {
        sha: {Clue.RARE_WORDS: " and ".join(words[:3])} if len(words) > 1 else {Clue.RARE_WORD: words[0]}
        for sha, words in found.items()
    }


def extract_constant_texts(message: str) -> list[str]:
    """Extract the parts of a message that the source probably holds verbatim, the longest first.

    Quoted names, numbers and paths are left out.
    """
    parts = [part for line in message.splitlines() for part in re.split(_QUOTED, line)]
    pieces = [
        piece.strip(" .,:;()[]{}=")
        for part in parts
        for piece in re.split(r"[\d/\\<>{}\[\]]+|\s{2,}|: ", part)
    ]
    return sorted(
        # A blank inside marks a sentence. A long identifier is the name of a thing, which many commits touch.
        {piece for piece in pieces if len(piece) >= _SHORTEST and " " in piece},
        key=len,
        reverse=True,
    )[:3]


def strip_pass_prefix(name: str) -> str:
    """Return the name of a pass without its prefix (`tir.LowerIntrin`), which changes if a folder is
    renamed.
    """
    return name.rpartition(".")[2]


def is_test(file: str) -> bool:
    """Whether a file is in a test folder or named as a test."""
    return any("test" in part.lower() for part in PurePosixPath(file).parts)


def normalise_stem(file: str) -> str:
    """Return the name of a file in lower case without its suffix and signs."""
    return re.sub(r"[_-]", "", PurePosixPath(file).stem.lower())


def _join_words(entry: Entry) -> str:
    """Join the words of a commit's message without its leading verb, and of its file names.

    The words are in lower case, each after a blank.
    """
    text = " ".join(
        (
            *_drop_verb(entry.subject),
            entry.description,
            *(PurePosixPath(file).stem for file in entry.files[:_MOST_NAMES]),
        )
    )
    return " " + " ".join(_WORDS.findall(text)).lower()


def _get_first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)


def _names_pass(subject: str, name: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(name)} - _COMMON
    spoken = {word.lower() for word in _WORDS.findall(subject)}
    plain = re.sub(r"[_-]", "", strip_pass_prefix(name).lower())
    return plain in re.sub(r"[\s_-]", "", subject.lower()) or (len(words) > 1 and words <= spoken)


def _names_operator(subject: str, name: str) -> bool:
    """Whether a subject contains the name as a word.

    The first word does not count: "Add" and "Split" are verbs there.
    """
    camel = bool(re.search(r"[a-z][A-Z]", name))
    # In lower case only a name of several words: "pad" and "concat" are common words.
    return name in _drop_verb(subject) or (camel and name.lower() in re.findall(r"[a-z]\w*", subject.lower()))


def _drop_verb(subject: str) -> list[str]:
    """Return the words of a subject without the first and the prefix before it (`[CPU] Split`, `fix:
    split`).
    """
    # "Add a test for Pad" is no commit about Add.
    return re.findall(r"[A-Za-z]\w*", re.sub(r"^\s*(?:\[[^\]]*\]|\w+:)\s*", "", subject))[1:]


def _has_word(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![a-z])", text))


def _has_snake(text: str, name: str) -> bool:
    parts = [re.escape(word.lower()) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|\d+", name)]
    return bool(parts) and bool(re.search(rf"(?<![a-z]){'_?'.join(parts)}(?![a-z])", text))


# Words of most names of passes: "Pad_Fusion" must not match every subject with "fusion".
_COMMON = frozenset(
    ["fusion", "pass", "fuse", "op", "ops", "transformer", "elimination", "rule", "rewrite", "optimizer"]
)
# What subjects of repairs say; it counts only where the search is for the commit that ended a failure.
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
