"""Public issues exported by people, the index of them in a store, and the issues that a cluster probably
matches.

    gh issue list -R microsoft/onnxruntime --state all --limit 5000 --json
    number,title,body,url,state,comments > ort.json

This module never uses the network. A file is hostile input: sizes are bounded, and an invalid issue is
counted, not an error.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import make_folder, write_output
from opsieve.gen.model.files import bound_reading, read_file, reason
from opsieve.gen.model.printable import escape_surrogates, printable
from opsieve.triage.fingerprint.component import Component

SUFFIX = ".issues.json"
# Bytes of a file that is imported
_MAX_EXPORT = 1 << 30
_MAX_INDEX = 1 << 30
# Characters of an issue that are kept
_MAX_TEXT = 16_000
_MAX_TITLE = 300
_MAX_COMMENTS = 20
# Issues of a repository
_MOST = 100_000
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}/[A-Za-z0-9._-]{1,100}")
_URL = re.compile(r"https://[^/\s]{1,100}/([^/\s]{1,61}/[^/\s]{1,100})/(?:issues|pull)/(\d{1,9})")
_API = re.compile(r"https://[^/\s]{1,100}/repos/([^/\s]{1,61}/[^/\s]{1,100})/(?:issues|pulls)/(\d{1,9})")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """A public issue: `name` is `owner/repository#number`; `text` is its title, body and comments,
    with single spaces.

    `state` is `open`, `closed` or "".
    """

    repository: str
    number: int
    title: str
    url: str
    # `open`, `closed` or ""
    state: str
    text: str

    @property
    def name(self) -> str:
        """The issue's name for people."""
        return f"{self.repository}#{self.number}"


@dataclass(frozen=True, slots=True)
class ExportedIssues:
    """The issues in a file, and the number of its invalid entries."""

    issues: tuple[KnownIssue, ...]
    skipped: int


@bound_reading
def read_export(path: Path, repository: str = "") -> ExportedIssues:
    """Read the issues of a file: a JSON array, an object for each line, or pages of arrays (`gh api
    --paginate`).

    `repository` (`owner/name`) is for exports without addresses.

    Raises:
        BadInput: If the file has no issue.
    """
    if repository and not _REPOSITORY.fullmatch(repository):
        raise BadInput(
            f"{shown(repository)} is not a repository; write OWNER/NAME, such as microsoft/onnxruntime"
        )
    found: list[KnownIssue] = []
    skipped = 0
    for entry in _iter_entries(path):
        issue = _parse_issue(entry, repository)
        if issue is None:
            skipped += 1
        else:
            found.append(issue)
    if not found:
        hint = (
            "" if repository else "; if its entries have no url, name their repository with --repo OWNER/NAME"
        )
        raise BadInput(f"{shown(path, 200)} holds no issue with a number and a title{hint}")
    return ExportedIssues(tuple(found[:_MOST]), skipped)


def add_issues(folder: Path, issues: Iterable[KnownIssue]) -> dict[str, int]:
    """Add issues to the index in `folder`, replacing earlier copies; return the new size of each
    repository.
    """
    by_repository: dict[str, list[KnownIssue]] = {}
    for issue in issues:
        by_repository.setdefault(issue.repository, []).append(issue)
    sizes = {}
    try:
        make_folder(folder)
    except OSError as error:
        raise BadInput(f"cannot write issues into {shown(folder, 200)}: {reason(error)}") from None
    for repository, new in by_repository.items():
        path = folder / (repository.replace("/", "~") + SUFFIX)
        known = {issue.number: issue for issue in _read_index(path)} if path.exists() else {}
        known |= {issue.number: issue for issue in new}
        rows = [asdict(known[number]) for number in sorted(known)]
        write_output(path, msgspec.json.encode(rows))
        sizes[repository] = len(rows)
    return sizes


def read_issues(folder: Path) -> tuple[list[KnownIssue], list[str]]:
    """Read the index in `folder`, and a sentence for each unreadable file; a missing folder is empty."""
    found: list[KnownIssue] = []
    problems: list[str] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            found += _read_index(path)
        except BadInput as error:
            problems.append(str(error))
    return found, problems


@bound_reading
def _read_index(path: Path) -> list[KnownIssue]:
    try:
        found = msgspec.json.decode(read_file(path, _MAX_INDEX), type=list[KnownIssue])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{shown(path.name, 120)} is not an index of issues ({shown(error, 80)}); remove it and"
            " import them again"
        ) from None
    kept = [issue for issue in found[:_MOST] if _REPOSITORY.fullmatch(issue.repository) and issue.number > 0]
    return [_bound_issue(issue) for issue in kept]


def _bound_issue(issue: KnownIssue) -> KnownIssue:
    # An index may come with a stranger's store; only addresses of issues become links.
    url = issue.url if issue.url.isprintable() and _URL.fullmatch(issue.url) else ""
    state = issue.state if issue.state in ("open", "closed") else ""
    title = printable(issue.title[:_MAX_TITLE]).strip()
    return KnownIssue(
        issue.repository, issue.number, title, url, state, escape_surrogates(issue.text[:_MAX_TEXT])
    )


def _iter_entries(path: Path) -> Iterator[Any]:
    data = read_file(path, _MAX_EXPORT)
    try:
        # With or without the mark that PowerShell writes before redirected output.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(
            f"{shown(path, 200)} is not UTF-8 text; give the JSON that gh issue list --json prints"
        ) from None
    at, decoder = 0, json.JSONDecoder()
    try:
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            # `gh api --paginate` prints arrays one behind another, which is no single JSON value.
            value, at = decoder.raw_decode(text, at)
            yield from value if isinstance(value, list) else [value]
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{shown(path, 200)} is not JSON ({reason(error)}); give what gh issue list --json prints"
        ) from None


def _parse_issue(entry: Any, repository: str) -> KnownIssue | None:
    """Parse an entry; None for an invalid one, or a pull request in the REST answers."""
    if not isinstance(entry, Mapping) or "pull_request" in entry:
        return None
    number, title = entry.get("number"), entry.get("title")
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 0 < number < 10**9
        or not isinstance(title, str)
    ):
        return None
    urls = [value for key in ("html_url", "url") if isinstance(value := entry.get(key), str)]
    match = next((found for url in urls if (found := _URL.match(url) or _API.match(url))), None)
    repository = match[1] if match else repository
    if not _REPOSITORY.fullmatch(repository):
        return None
    url = next(
        (url for url in urls if _URL.fullmatch(url)), f"https://github.com/{repository}/issues/{number}"
    )
    state = str(entry.get("state") or "").lower()
    parts = [title, entry.get("body"), *_list_comments(entry.get("comments"))]
    # Line breaks in a quoted message depend on who pasted it.
    text = _SPACE.sub(" ", " ".join(part for part in parts if isinstance(part, str)))
    return _bound_issue(KnownIssue(repository, number, _SPACE.sub(" ", title), url, state, text))


def _list_comments(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return []
    return [comment.get("body") for comment in value[:_MAX_COMMENTS] if isinstance(comment, Mapping)]


# Issues of a cluster
_MOST_NAMED = 5
# Characters of a text
_LONGEST_FIELD = 400


@dataclass(frozen=True, slots=True)
class ClusterSignature:
    """The features by which a cluster is recognised among public issues and in another store.

    `operators` are those of its smallest case; `components` and `keys` are those of its fingerprints.
    """

    cluster: int
    backend: str
    kind: str
    title: str
    # Of its fingerprints
    components: tuple[tuple[Component, ...], ...]
    operators: frozenset[str]
    guilty_pass: str = ""
    versions: frozenset[str] = frozenset()
    # Of its fingerprints
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProbableIssue:
    """An issue that a cluster probably matches: name, address, title, and the reasons, the strongest first.

    `score`, 0 to 100, is the similarity of title and text (rapidfuzz); it only orders the issues.
    """

    name: str
    url: str
    title: str
    state: str
    score: int
    reasons: tuple[str, ...]


def encode_issues(issues: Sequence[ProbableIssue]) -> str:
    """Encode issues for the index."""
    return json.dumps([asdict(issue) for issue in issues])


def decode_issues(text: str) -> tuple[ProbableIssue, ...]:
    """Decode the issues of an index, which may be untrusted: () for an invalid value, and only https
    addresses.
    """
    if not text:
        return ()
    try:
        return tuple(
            ProbableIssue(
                str(one["name"])[:_LONGEST_FIELD],
                # Other schemes, such as javascript:, would run code on a page.
                str(one["url"])[:_LONGEST_FIELD] if str(one["url"]).startswith("https://") else "",
                str(one["title"])[:_LONGEST_FIELD],
                str(one["state"])[:10],
                int(one["score"]),
                tuple(str(reason)[:_LONGEST_FIELD] for reason in list(one["reasons"])[:_MOST_NAMED]),
            )
            for one in json.loads(text)[:_MOST_NAMED]
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        # The file comes from a stranger and may hold any JSON.
        return ()
