"""Known bugs, described by rules: STORE/known/*.toml, one file a bug, in the manner of OpenStack's Elastic
Recheck.

    title = "Pad of a negative length is not supported"
    issue = "https://github.com/org/project/issues/1"
    backends = ["onnxruntime"]          # each field that is there must match; at least one besides title and
    issue kind = "error"
    stage = "compile"
    message = 'pads .* must be positive'   # a regular expression of `opsieve.triage.rules.patterns`
    operators = ["Pad"]                 # all of them in the program (the reduced one, once there is one)
    versions = ["1.20.*", "1.21.0"]     # shell patterns
    guilty_pass = "ConstantFolding"

A rule explains failures, by fingerprint and version. A new cluster that rules explain for the most part is
shown as `known`; how many failures no rule explains is counted.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import re2

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import files, printable

# RE2 matches hostile messages in linear time. It has no back-references and no look-around, and a possessive
# repeat (`\d++`) is read as a greedy one.
# Characters of a message that are looked at
LONGEST = 2000
_MAX_PATTERN = 500
# Bytes of a compiled expression, so that the two thousand rules of a store stay below 500 MB.
_MAX_COMPILED = 256 << 10
_POSSESSIVE = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*+\])|([*+?}])\+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled expression."""

    text: str
    compiled: Any

    def is_found_in(self, message: str) -> bool:
        """Whether it matches somewhere in the first `LONGEST` characters of a message."""
        return self.compiled.search(message[:LONGEST].encode("utf-8", "replace")) is not None


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        BadInput: If RE2 rejects it; the message says why.
    """
    if len(text) > _MAX_PATTERN:
        raise BadInput(f"the expression has {len(text)} characters; the limit is {_MAX_PATTERN}")
    options = re2.Options()
    # Messages have several lines, and a rule writes `.*` across them.
    options.dot_nl, options.log_errors, options.max_mem = True, False, _MAX_COMPILED
    greedy = _POSSESSIVE.sub(lambda found: found[1] or found[2], text)
    try:
        return Pattern(text, re2.compile(greedy.encode("utf-8", "surrogatepass"), options))
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise BadInput(
            f"{shown(text, 80)} is not a regular expression of RE2 ({shown(why, 80)}); look-around and"
            " back-references are not among them"
        ) from None


FOLDER = "known"
_MAX_FILE = 64 << 10
# Rules of a store
_MOST = 2000
_TEXTS = frozenset({"title", "issue", "kind", "stage", "message", "guilty_pass"})
_LISTS = frozenset({"backends", "operators", "versions"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A known bug. `name` is its file's name; an empty field matches everything."""

    name: str
    title: str
    issue: str = ""
    backends: tuple[str, ...] = ()
    kind: str = ""
    stage: str = ""
    message: Pattern | None = None
    operators: frozenset[str] = frozenset()
    versions: tuple[str, ...] = ()
    guilty_pass: str = ""


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """The subject of rules: the failures of one fingerprint under one version of the compiler."""

    backend: str
    kind: str
    stage: str
    message: str
    operators: frozenset[str]
    version: str
    guilty_pass: str = ""


def is_explained_by(rule: Rule, subject: RuleSubject) -> bool:
    """Whether a rule matches; cheap fields are compared first."""
    return (
        (not rule.backends or subject.backend in rule.backends)
        and rule.kind in ("", subject.kind)
        and rule.stage in ("", subject.stage)
        and rule.guilty_pass in ("", subject.guilty_pass)
        and rule.operators <= subject.operators
        # Shell patterns become regular expressions, so that their length is bounded.
        and (not rule.versions or any(fnmatchcase(subject.version, shape[:100]) for shape in rule.versions))
        and (rule.message is None or rule.message.is_found_in(subject.message))
    )


def find_rule(rules: Sequence[Rule], subject: RuleSubject) -> Rule | None:
    """Return the first rule by name that matches, so that a failure counts once."""
    return next((rule for rule in rules if is_explained_by(rule, subject)), None)


def parse_rule(name: str, text: str) -> Rule:
    """Parse a rule.

    Raises:
        BadInput: If it is invalid; the message names the file and the field.
    """
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the rule {shown(name)} is not TOML: {shown(str(error), 100)}") from None
    for field, value in fields.items():
        wanted = "a text" if field in _TEXTS else "a list of texts" if field in _LISTS else ""
        if not wanted:
            raise BadInput(
                f"the rule {shown(name)} has the unknown field {shown(field)}; take"
                f" {', '.join(sorted(_TEXTS | _LISTS))}"
            )
        if not (
            isinstance(value, str)
            if field in _TEXTS
            else (isinstance(value, list) and all(isinstance(one, str) for one in value))
        ):
            raise BadInput(f"the rule {shown(name)}: {field} must be {wanted}")
    if not fields.get("title"):
        raise BadInput(f"the rule {shown(name)} has no title; write one, for people")
    if not set(fields) - {"title", "issue"}:
        raise BadInput(
            f"the rule {shown(name)} would explain every failure; say which ones, by message or kind say"
        )
    if fields.get("issue") and not fields["issue"].startswith(("https://", "http://")):
        raise BadInput(f"the rule {shown(name)}: issue must be an address that begins with https://")
    try:
        message = parse_pattern(fields["message"]) if fields.get("message") else None
    except BadInput as error:
        raise BadInput(f"the rule {shown(name)}: message {error}") from None
    return Rule(
        name,
        fields["title"],
        fields.get("issue", ""),
        tuple(fields.get("backends", ())),
        fields.get("kind", ""),
        fields.get("stage", ""),
        message,
        frozenset(fields.get("operators", ())),
        tuple(fields.get("versions", ())),
        fields.get("guilty_pass", ""),
    )


@files.bound_reading
def read_rules(folder: Path) -> tuple[list[Rule], list[str]]:
    """Read the rules of a folder by name, and a sentence for each invalid file; a missing folder is empty."""
    rules, problems = [], []
    # Sorted, since the first rule that matches explains a failure.
    for path in sorted(folder.glob("*.toml"))[:_MOST]:
        try:
            rules.append(
                parse_rule(printable.escape_surrogates(path.stem), files.read_file(path, _MAX_FILE).decode())
            )
        except UnicodeDecodeError:
            problems.append(f"the rule {shown(path.name)} is no UTF-8 text")
        except BadInput as error:
            problems.append(str(error))
    return rules, problems
