"""Find the public issue that a cluster probably matches: an exact signature of the failure in the text of an
issue. Pure.

Similar text proves nothing (one sentence of a compiler, "Load model failed", occurs in hundreds of issues),
so an issue is named only if it has a *signature* of the cluster: the compiler's message, the functions of its
stack, the guilty pass with the operators of the reduced program, or operators in the title beside the kind of
failure. A signature shared by many issues does not count. rapidfuzz orders several matching issues by
similarity.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from rapidfuzz.fuzz import token_set_ratio

from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.fingerprint.component import ComponentName
from opsieve.triage.known.issues import ClusterSignature, KnownIssue, ProbableIssue

# Issues of a cluster
MOST_NAMED = 3
# A signature shared by more issues is too common to identify one.
_MOST_SHARING = 5
# The same limit for operators in titles, which are weaker.
_MOST_IN_TITLE = 2
# Of the words of a message
_QUOTED = 0.7
# Words of a message that are one after the other
_CLAUSE = 4
# words: of as many, people leave out some at either end
_LONG_CLAUSE = 10
# Of the words of a long clause, one after the other
_LONG_QUOTED = 0.8
_FEWEST_FRAMES = 2
# Of a program that is small enough to be known by them
_MOST_OPERATORS = 4
# The longest quotation in a reason, in characters.
_LONGEST = 80
_WORD = re.compile(r"[A-Za-z_]\w*")
_BREAK = re.compile(r"<\w+>|[^\w\s'\".,-]+|\s-+\s|(?<=\w)[.,](?=\s|$)|\n")
# Words that a compiler puts before every message of a kind; what failed stands behind the last of them.
_WRAPPER = re.compile(
    r"Status Message:|Exception during initialization:|This is an invalid model\.(?: Error:)?|Caused"
    r" by:|InternalError:|Check failed:"
)
# The condition of a check: signs would cut it into words that mean nothing by themselves.
_CONDITION = re.compile(
    r"Check failed: \(([^\n]{1,400})\) is false"
    r"|Assertion [`'\"]([^\n`'\"]{1,400})[`'\"] failed"
    r"|Check '([^\n']{1,400})' failed"
    r"|Check failed: ([^\n(]{1,200}(?:\([^\n()]{0,80}\)[^\n(]{0,200}){1,4}) \("
)
_COMPOUND = re.compile(r"\w{2,}_\w{2,}|[a-z]{2,}[A-Z]\w+")
_HUMPS = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")
_VERSION = re.compile(r"(?<![\w.])\d{1,3}\.\d{1,4}(?:\.\d{1,4})?(?![\w.])")
_GENERIC = frozenset(
    [
        "run",
        "main",
        "call",
        "forward",
        "apply",
        "init",
        "load",
        "build",
        "compile",
        "convert",
        "invoke",
        "check",
        "execute",
    ]
)
# How people name kinds of failures in issues.
_KIND_WORDS = {
    "crash": (
        r"segfault|segmentation|sigsegv|core dumped|crash|abort|assert|sigfpe|floating[ -]point"
        r" exception|access violation"
    ),
    "mismatch": (
        r"wrong|incorrect|mismatch|differ|inconsisten|discrepan|inaccura|unexpected|not"
        r" (?:equal|match|correct)|\bnan\b|invalid (?:result|output)"
    ),
    "hang": r"\bhang|time[sd]? ?out|infinite loop|deadlock|stuck|freez|never (?:ends|returns|finishes)",
    "memory": r"out of memory|\boom\b|memory leak|bad_alloc|memory",
    "slowdown": r"slow|performance|regress",
    "nondeterminism": r"non-?determin|random|flaky|different (?:results|outputs)",
}
_ERROR_WORDS = r"error|exception|fail|invalid|assert|check|raise"


class IssueIndex:
    """Issues, looked up by their words."""

    def __init__(self, issues: Sequence[KnownIssue]):
        self.issues = tuple(issues)
        # The words of each, lower case, with one space before and after each
        self._texts: list[str] = []
        self._names: list[frozenset[str]] = []
        self._titles: list[frozenset[str]] = []
        self._holders: dict[str, set[int]] = {}
        for number, issue in enumerate(self.issues):
            words = _WORD.findall(issue.text)
            lower = [word.lower() for word in words]
            self._texts.append(f" {' '.join(lower)} ")
            self._names.append(frozenset(words))
            self._titles.append(frozenset(_WORD.findall(issue.title)))
            # Without underscores too, since people write PadFusion and pad_fusion.
            for word in set(lower) | {word.replace("_", "") for word in lower}:
                self._holders.setdefault(word, set()).add(number)

    def find_quoting(self, clause: str) -> set[int]:
        """Find the issues that hold the words of a clause in sequence."""
        # With spaces around it, so that only whole words match.
        wanted = f" {clause} "
        return {number for number in self.find_holding(clause.split()) if wanted in self._texts[number]}

    def find_quoting_most(self, clause: str) -> set[int]:
        """Find the issues that quote a clause, or most of a long one without its ends."""
        words = clause.split()
        kept = math.ceil(_LONG_QUOTED * len(words)) if len(words) >= _LONG_CLAUSE else len(words)
        runs = (" ".join(words[at : at + kept]) for at in range(len(words) - kept + 1))
        return set().union(*map(self.find_quoting, runs))

    def find_holding(self, words: Iterable[str]) -> set[int]:
        """Find the issues that hold all of these words, in lower case."""
        # The rarest word first: the intersection is never larger than that.
        holders = sorted((self._holders.get(word, set()) for word in words), key=len)
        return set.intersection(*holders) if holders else set()

    def find_naming(self, names: frozenset[str], *, in_title: bool) -> set[int]:
        """Find the issues that hold all of these names as they are written."""
        sets = self._titles if in_title else self._names
        return {
            number for number in self.find_holding(name.lower() for name in names) if names <= sets[number]
        }

    def find_about(self, backend: str) -> set[int]:
        """Find the issues that may be about a compiler."""
        return {
            number
            for number, issue in enumerate(self.issues)
            if backend in (compilers := _load_compilers().get(issue.repository.lower(), [backend]))
            or not compilers
        }


def find_probable(cluster: ClusterSignature, index: IssueIndex) -> tuple[ProbableIssue, ...]:
    """Find the issues that a cluster probably matches, at most `MOST_NAMED`: most kinds of evidence first,
    then most alike.
    """
    about = index.find_about(cluster.backend)
    reasons: dict[int, list[str]] = {}
    for found in (
        _match_message(cluster, index),
        _match_frames(cluster, index),
        _match_pass(cluster, index),
        _match_title(cluster, index),
    ):
        for number, reason in found.items():
            if number in about and reason not in reasons.setdefault(number, []):
                reasons[number].append(reason)
    text = f"{cluster.title} {' '.join(sorted(cluster.operators))}"
    probable = []
    for number, why in reasons.items():
        if not why:
            continue
        issue = index.issues[number]
        # The beginning of the text only: logs at its end have words of everything.
        score = round(token_set_ratio(text.lower(), f"{issue.title} {issue.text[:1000]}".lower()))
        # A version supports other evidence and is none by itself, so it comes after the loop above.
        if common := cluster.versions & set(_VERSION.findall(issue.text)):
            why.append(f"it names the version {sorted(common)[-1]}")
        probable.append(ProbableIssue(issue.name, issue.url, issue.title, issue.state, score, tuple(why)))
    return tuple(sorted(probable, key=lambda one: (-len(one.reasons), -one.score, one.name))[:MOST_NAMED])


def _match_message(cluster: ClusterSignature, index: IssueIndex) -> dict[int, str]:
    """Match issues that quote the compiler's message: most of its words, and among them a rare clause."""
    found: dict[int, str] = {}
    for components in cluster.components:
        for name in (ComponentName.MESSAGE, ComponentName.FOUND):
            message = next((part.value for part in components if part.name is name), "")
            check = _CONDITION.search(message)
            failed = next(filter(None, check.groups()), "") if check else ""
            words = _WORD.findall(re.sub(r"<\w+>", " ", failed))
            # Two names will do where one of them is the author's own: `slot->value_computed`, not
            # `n.defined()`.
            known = len(words) >= _CLAUSE or (len(words) > 1 and any(map(_COMPOUND.fullmatch, words)))
            if condition := (" ".join(words).lower() if known else ""):
                same = index.find_quoting(condition)
                reason = f"it quotes the check: {condition[:_LONGEST]}"
                found |= dict.fromkeys(same, reason) if len(same) <= _MOST_SHARING else {}
            # Split a message into clauses of constant words at values and signs: `axes has a duplicate`.
            message = _WRAPPER.split(message)[-1] or message
            cut = (" ".join(_WORD.findall(part)).lower() for part in _BREAK.split(message))
            clauses = list(dict.fromkeys(part for part in cut if len(part) > 1))[:20]
            holders = [index.find_quoting_most(clause) for clause in clauses]
            lengths = [len(clause.split()) for clause in clauses]
            for number in set().union(*holders):
                quoted = [at for at, holding in enumerate(holders) if number in holding]
                telling = [
                    at for at in quoted if lengths[at] >= _CLAUSE and len(holders[at]) <= _MOST_SHARING
                ]
                if telling and sum(lengths[at] for at in quoted) >= _QUOTED * sum(lengths):
                    clause = max((clauses[at] for at in telling), key=len)
                    found.setdefault(number, f"it quotes the message: {clause[:_LONGEST]}")
    return found


def _match_frames(cluster: ClusterSignature, index: IssueIndex) -> dict[int, str]:
    """Match issues whose stack has the innermost functions of the failure, one of them rare elsewhere."""
    found: dict[int, str] = {}
    for components in cluster.components:
        frames = next(
            (part.items for part in components if part.name is ComponentName.FRAMES and part.kept), ()
        )
        names = [name for frame in frames[:4] for name in _split_frame(frame)]
        # One function alone must be the author's own word: `eraseOutput`, not `normalize`.
        if len(names) < _FEWEST_FRAMES and not any(
            _COMPOUND.search(frame.rpartition(" ")[2]) for frame in frames[:1]
        ):
            continue
        holders = index.find_holding(names)
        if len(names) < _FEWEST_FRAMES:
            holders = {number for number in holders if _is_of_kind(cluster.kind, index.issues[number])}
        # A stack that many issues have is that of a common entry point.
        if 0 < len(holders) <= _MOST_SHARING:
            for number in holders:
                found.setdefault(number, f"its stack has {' in '.join(names)[:_LONGEST]}")
    return found


def _split_frame(frame: str) -> list[str]:
    """Return the function of a frame (`onnx_frontend.py Split._impl_v13`), with its class, without generic
    names like `main`.
    """
    words = _WORD.findall(frame.rpartition(" ")[2].lower())[-2:]
    # Short names are words of ordinary sentences as well.
    return [word for word in words if len(word) > 4 and word.strip("_") not in _GENERIC]


def _match_pass(cluster: ClusterSignature, index: IssueIndex) -> dict[int, str]:
    """Match issues that name the guilty pass and every operator of the program, or the pass in the title."""
    if not cluster.guilty_pass or not cluster.operators:
        return {}
    naming = set.intersection(*(_find_naming_pass(name, index) for name in cluster.guilty_pass.split()))
    naming = {number for number in naming if _is_of_kind(cluster.kind, index.issues[number])}
    found = naming & index.find_naming(cluster.operators, in_title=False)
    titled = {
        number
        for number in naming
        if _normalise_spelling(cluster.guilty_pass) in _normalise_spelling(index.issues[number].title)
    }
    reason = f"it names {cluster.guilty_pass} and {' '.join(sorted(cluster.operators))}"[: 2 * _LONGEST]
    title = f"its title names {cluster.guilty_pass}, and it tells of the same kind of failure"[: 2 * _LONGEST]
    return {
        **(dict.fromkeys(titled, title) if len(titled) <= _MOST_IN_TITLE else {}),
        **(dict.fromkeys(found, reason) if len(found) <= _MOST_SHARING else {}),
    }


def _find_naming_pass(name: str, index: IssueIndex) -> set[int]:
    """Find the issues that name a pass, in one word (`PadFusion`, `pad_fusion`) or in several (`Pad
    Fusion`).
    """
    words = " ".join(filter(None, _HUMPS.split(name))).lower()
    return index.find_holding([name.lower().replace("_", "")]) | index.find_quoting(words)


def _normalise_spelling(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _match_title(cluster: ClusterSignature, index: IssueIndex) -> dict[int, str]:
    """Match issues about the same kind of failure with every operator of the small program in the title.

    For a single operator, which has many bugs, the text must also name one of its attributes. Errors are
    excluded: their message says more.
    """
    if not 0 < len(cluster.operators) <= _MOST_OPERATORS or cluster.kind == "error":
        return {}
    # List the reduced program's attribute names that are compound words (`ceil_mode`, not `axis`).
    parts = [
        part
        for components in cluster.components
        for part in components
        if part.name is ComponentName.ATTRIBUTES
    ]
    names = (item.partition(".")[2].partition("=")[0] for part in parts for item in part.items)
    attributes = frozenset(name for name in names if "_" in name)
    found = {
        number
        for number in index.find_naming(cluster.operators, in_title=True) & index.find_about(cluster.backend)
        if _is_of_kind(cluster.kind, index.issues[number])
        and (
            len(cluster.operators) > 1
            or any(index.find_naming(frozenset([name]), in_title=False) & {number} for name in attributes)
        )
    }
    if len(found) > _MOST_IN_TITLE:
        return {}
    operators = " and ".join(sorted(cluster.operators))
    return dict.fromkeys(
        found, f"its title names {operators}, and it tells of the same kind of failure"[: 2 * _LONGEST]
    )


def _is_of_kind(kind: str, issue: KnownIssue) -> bool:
    words = _KIND_WORDS.get("mismatch" if kind in WRONG_OUTPUTS else kind, _ERROR_WORDS)
    return re.search(words, issue.text[:4000], re.IGNORECASE) is not None


@cache
def _load_compilers() -> dict[str, list[str]]:
    text = Path(__file__).with_name("repositories.toml").read_text("utf-8")
    return {name.lower(): compilers for name, compilers in tomllib.loads(text).items()}
