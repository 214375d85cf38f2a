"""Decide which fingerprints are one bug: equivalent titles, the place of a new fingerprint, related clusters.
Pure.

A fingerprint is exact; beside it are *alternative titles*, less exact names of the same failure, for the
several symptoms of one bug (a broken heap ends by SIGSEGV or SIGABRT; one check is reached while compiling
and while running). Fingerprints that share one are joined: syzkaller's AltTitles (pkg/report, "alternative
titles"). Merely similar text only suggests (`find_related`), over whole clusters by average link, since
single link chains everything together (precision .04 on labelled traces). A commit that bisection blames for
both also suggests: one change may break two things.

Failures of one statement in a compiler's source are one bug if their messages are instances of one text. A
message is an author's format filled with data of the program: names of values, spellings of types. Only
other instances of the same message show which words vary. So messages of one statement (the same file, line
and exception; for a statement that called the raising function, reached from the same other files) are
compared word by word, as Drain does with log lines of equal length (He and others, "Drain", ICWS 2017,
section III): they are instances of one text if most of their words are equal. Varying words are replaced by
`<*>`. Names of operators must not vary in messages of C++ code, nor in messages about missing features, since
a feature missing for one operator is another bug than for another. A Python statement names operators because
it prints a node, or is a shared function (`Slice axis 3 is out of range`).
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Indel, LCSseq, Prefix
from rapidfuzz.process import cdist

from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.normalise import is_from_interpreter

# Mean similarity from which clusters are suggested as related
ALIKE = 0.6
# Fingerprints of a cluster that are compared
_MOST_UNITS = 12
# Of a message
_WORDS = 60
# Between the parts of an alternative title
SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Placement:
    """The cluster of a new fingerprint, and the clusters that it links and that become part of this one."""

    cluster: int
    absorbed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RelatedCluster:
    """A cluster that looks like another: `score` from 0 to 1, and why."""

    cluster: int
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class SimilarityFeatures:
    """The input of similarity: frames innermost first, a message's template, the operators of a small
    graph.
    """

    backend: str
    kind: str
    frames: tuple[str, ...]
    words: tuple[str, ...]
    operators: frozenset[str]
    guilty_pass: str = ""


def get_kept_items(components: Sequence[Component], name: ComponentName) -> tuple[str, ...]:
    """Return the items of a component that is part of the fingerprint, or ()."""
    return next((part.items for part in components if part.name is name and part.kept), ())


def make_alternative_titles(components: Sequence[Component]) -> frozenset[str]:
    """Make the alternative titles of a fingerprint: strings that are equal for fingerprints of one bug.

    Vague failures get an empty set. A crash is its frames, whatever the signal; an error is its place or its
    frames with its message, whatever the stage and the exception; a failure with a known guilty pass is that
    pass on the operators of its reduced graph, or with what a reader of the broken model objects to.
    """
    kept = {part.name: part for part in components if part.kept}

    def text(name: ComponentName) -> str:
        return kept[name].value if name in kept else ""

    backend, frames = text(ComponentName.BACKEND), get_kept_items(components, ComponentName.FRAMES)
    message, guilty = text(ComponentName.MESSAGE), text(ComponentName.GUILTY_PASS) or text(ComponentName.CURE)
    found: set[tuple[str, ...]] = set()
    # A single frame is often a function of the C library, in which many bugs end.
    if text(ComponentName.KIND) == "crash" and len(frames) > 1 and not any(map(is_offset, frames)):
        found.add(("crash", backend, text(ComponentName.FRAMES), text(ComponentName.LINE)))
    # Whoever called: it is the call on that line that died.
    if text(ComponentName.KIND) == "crash" and ComponentName.LINE in kept:
        found.add(("crash", backend, *frames[:1], text(ComponentName.LINE)))
    # A message without a place may be written by many functions.
    if text(ComponentName.KIND) == "error" and message and (text(ComponentName.PLACE) or frames):
        where = text(ComponentName.PLACE), text(ComponentName.FRAMES)
        operators = text(ComponentName.OPERATOR), text(ComponentName.OPERATORS)
        found.add(("error", backend, *where, message, *operators))
    graph = next((part for part in components if part.name is ComponentName.OPERATORS), None)
    if reduced := any(part.name is ComponentName.EDGES for part in components):
        guilty = guilty or next((p.value for p in components if p.name is ComponentName.GUILTY_PASS), "")
    if guilty and graph and (graph.kept or reduced):
        found.add(("mismatch", backend, guilty, graph.value))
    # One pass that breaks models in one way does so whatever operators it meets.
    if guilty and (objection := next((p.value for p in components if p.name is ComponentName.FOUND), "")):
        found.add(("broken", backend, guilty, objection))
    return frozenset(SEPARATOR.join(title) for title in found)


def is_offset(frame: str) -> bool:
    """Whether a frame is named by an offset into a module, which is valid for one build only."""
    return "+0x" in frame


def choose_cluster(number: int, sharing: Mapping[int, bool]) -> Placement:
    """Choose the cluster of a new fingerprint.

    `sharing` maps clusters with one of its alternative titles to whether a person decided about them. Decided
    clusters are never joined with each other; other clusters join the chosen one. Without any, the
    fingerprint starts a cluster with its own number.
    """
    decided = [cluster for cluster, is_decided in sharing.items() if is_decided]
    # The lowest number is the oldest cluster, which people and notes refer to.
    chosen = min(decided or sharing, default=number)
    return Placement(
        chosen, tuple(sorted(c for c, is_decided in sharing.items() if c != chosen and not is_decided))
    )


def make_features(components: Sequence[Component]) -> SimilarityFeatures:
    """Make the features by which a fingerprint is compared, from components inside and outside the
    fingerprint.
    """

    every = {part.name: part for part in components}

    def text(name: ComponentName) -> str:
        return every[name].value if name in every else ""

    return SimilarityFeatures(
        text(ComponentName.BACKEND),
        text(ComponentName.KIND),
        every[ComponentName.FRAMES].items if ComponentName.FRAMES in every else (),
        tuple(text(ComponentName.MESSAGE).split()[:_WORDS]),
        frozenset(get_kept_items(components, ComponentName.OPERATORS)),
        text(ComponentName.GUILTY_PASS),
    )


def find_related(
    own: Sequence[SimilarityFeatures], others: Mapping[int, Sequence[SimilarityFeatures]], most: int = 10
) -> list[RelatedCluster]:
    """Find clusters like this one, the most alike first, by average link between the fingerprints of both.

    Frames are compared if both have them, else operators of wrong results, else messages.
    """
    own = own[:_MOST_UNITS]
    flat = [(cluster, like) for cluster, likes in others.items() for like in likes[:_MOST_UNITS]]
    if not own or not flat:
        return []
    # All pairs in one call to C, instead of a call for each pair.
    frames = _compute_similarity([like.frames for like in own], [like.frames for _, like in flat])
    words = _compute_similarity([like.words for like in own], [like.words for _, like in flat])
    found: dict[int, list[tuple[float, str]]] = {}
    for row, mine in enumerate(own):
        for column, (cluster, other) in enumerate(flat):
            pair = _compare_pair(mine, other, frames[row][column], words[row][column])
            found.setdefault(cluster, []).append(pair)
    ranked = []
    for cluster, pairs in found.items():
        score = sum(score for score, _ in pairs) / len(pairs)
        if score >= ALIKE:
            ranked.append(RelatedCluster(cluster, round(score, 3), max(pairs)[1]))
    return sorted(ranked, key=lambda one: (-one.score, one.cluster))[:most]


def find_same_commit(
    own: Mapping[str, float], others: Mapping[int, Mapping[str, float]], most: int = 10
) -> list[RelatedCluster]:
    """Find clusters caused by the same commit, the likeliest first.

    Commits have probabilities, 1 if a search found them; the score is the probability that one commit is
    behind both.
    """
    found = []
    for cluster, commits in others.items():
        common = {commit: own[commit] * share for commit, share in commits.items() if commit in own}
        score = sum(common.values())
        if score >= ALIKE:
            commit = max(common, key=lambda one: common[one])
            found.append(RelatedCluster(cluster, round(score, 3), f"the same commit: {commit}"[:160]))
    return sorted(found, key=lambda one: (-one.score, one.cluster))[:most]


def merge_suggestions(*suggestions: Sequence[RelatedCluster], most: int = 10) -> list[RelatedCluster]:
    """Merge suggestions of several kinds, each cluster once with its strongest reason."""
    best: dict[int, RelatedCluster] = {}
    for one in (one for several in suggestions for one in several):
        if one.cluster not in best or one.score > best[one.cluster].score:
            best[one.cluster] = one
    return sorted(best.values(), key=lambda one: (-one.score, one.cluster))[:most]


def _compare_pair(
    mine: SimilarityFeatures, other: SimilarityFeatures, frames: float, words: float
) -> tuple[float, str]:
    if mine.backend != other.backend:
        return 0.0, ""
    if mine.frames and other.frames:
        shared = [name for name in mine.frames if name in other.frames]
        return frames, f"{len(shared)} of {len(mine.frames)} frames in common: {', '.join(shared)[:120]}"
    if mine.kind == other.kind and mine.kind in WRONG_OUTPUTS:
        if mine.guilty_pass and mine.guilty_pass == other.guilty_pass:
            return 1.0, f"the same guilty pass: {mine.guilty_pass[:80]}"
        common, either = mine.operators & other.operators, mine.operators | other.operators
        return len(common) / len(
            either
        ) if either else 0.0, f"operators in common: {' '.join(sorted(common))[:120]}"
    if mine.words and other.words and not mine.frames and not other.frames:
        return words, f"messages with {round(100 * words)} % of their words alike"
    return 0.0, ""


def _compute_similarity(
    rows: Sequence[tuple[str, ...]], columns: Sequence[tuple[str, ...]]
) -> list[list[float]]:
    """Compute the similarity of sequences of names, each name encoded as one code point so that the
    comparison runs in C.
    """
    codes: dict[str, str] = {}

    def encoded(names: tuple[str, ...]) -> str:
        # above the surrogates, which are no characters
        return "".join(codes.setdefault(name, chr(0x10000 + len(codes) % 0xF0000)) for name in names)

    found: list[list[float]] = cdist(
        [encoded(names) for names in rows],
        [encoded(names) for names in columns],
        scorer=Indel.normalized_similarity,
    ).tolist()
    return found


VARIES = "<*>"
# Fingerprints of one statement
MOST_COMPARED = 64
# of the words of the longer message, Drain's threshold; of one `raise` of the shorter, which has one text
_SAME = 0.5
# Words that both have
_FEWEST = 2
# The number of first words that identify a `raise`; a whole program may follow them.
_FIRST = 2
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
    """Return the common text whose instances the messages of two failures are; None if they differ."""
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
    # Sorted: of several longest alignments, the same is chosen whichever message comes first.
    mine, theirs = sorted((mine, theirs))
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
