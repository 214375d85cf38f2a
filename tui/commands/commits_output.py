"""`opsieve bisect --commits`: the search through a repository, and how its answer is told."""

import json
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.registry import resolve
from opsieve.bisect.culprit import keep_culprit
from opsieve.bisect.search.search import expected_tests
from opsieve.bisect.sources.case_check import CaseCheck
from opsieve.bisect.sources.commit_source import CommitResult, Commits
from opsieve.bisect.sources.journal import default_root
from opsieve.gen.case.open_case import open_case
from opsieve.gen.model.bad_input import BadInput


def bisect_commits(
    case: Path | None,
    repository: Path,
    good: str | None,
    bad: str | None,
    after: dict[str, Any] | None = None,
    **options: Any,
) -> int:
    """Run the search and print it; the options are those of the command. `after` is the answer of the search before this one."""
    if good is None or bad is None:
        raise BadInput("name --good and --bad: a tag, a branch, a hash or a date each")
    with ExitStack() as stack:
        check: Path | CaseCheck | None = options["check"]
        if check is None:
            check = stack.enter_context(_case_check(case, options))
        source = stack.enter_context(
            Commits(
                repository,
                good,
                bad,
                check,
                options["build"],
                paths=options["paths"],
                first_parent=options["first_parent"],
                sparse=options["sparse"],
                root=default_root(),
                say=say,
            )
        )
        if options["dry_run"]:
            return _dry_run(source, options["chance"], options["as_json"])
        started = time.monotonic()
        found = source.search(
            chance=options["chance"],
            confidence=options["confidence"],
            jobs=options["jobs"],
            progressed=lambda progress: say(
                f"{progress.candidates} commits left, about {progress.expected:.0f} probes"
            ),
        )
        answer = _answer(found) | {"seconds": round(time.monotonic() - started, 2)}
    if source.wanted is not None and source.wanted.key:
        answer |= {"fingerprint": source.wanted.key, "symptom": source.wanted.symptom}
    if case is not None:
        keep_culprit(case, "commits", answer)
    if options["as_json"]:
        click.echo(json.dumps(answer if after is None else {**after, "commits_search": answer}))
        return 0
    for line in _lines(found, answer):
        click.echo("".join(c if c.isprintable() else " " for c in line))
    click.echo(
        f"opsieve: {answer['probes']} probes, {found.recalled} of them from before, {answer['seconds']} s", err=True
    )
    return 0


def _case_check(case: Path | None, options: dict[str, Any]) -> CaseCheck:
    """The case as the check of commits."""
    if case is None:
        raise BadInput(
            "name the CASE that tells good from bad, or --check, a script that exits 0 for good, 125 for untestable, else 1 to 127"
        )
    opened = open_case(case, options["inputs"], options["expected"], options["seed"])
    target = options["target"] or opened.parameters.get("target", "")
    if not target:
        raise BadInput("name --target, the backend that is built: onnxscript, say")
    return CaseCheck(opened, resolve(target), policy_of(options))


def policy_of(options: dict[str, Any]) -> Policy:
    """The tolerance policy, or the user's own numbers in place of it."""
    given = options["rtol"], options["atol"]
    return replace(POLICY, tolerance=None if given == (None, None) else (given[0] or 0.0, given[1] or 0.0))


def say(sentence: str) -> None:
    """SearchProtocol, on stderr, without control characters."""
    click.echo(f"opsieve: {''.join(c if c.isprintable() else ' ' for c in sentence)}", err=True)


def _answer(found: CommitResult) -> dict[str, Any]:
    """The keys of docs/reference/cli.md."""
    one = found.culprits[0] if len(found.culprits) == 1 else None
    change = "regression" if found.direction.value == "regression" else "fix"
    transitions = []
    if one:
        before, after = ("good", "bad") if change == "regression" else ("bad", "good")
        parent = one.parents[0] if one.parents else ""
        transitions.append(
            {
                "kind": change,
                "last_before": parent,
                "first_after": one.sha,
                "exact": True,
                "before": before,
                "after": after,
            }
        )
    return {
        "package": "",
        "answer": _sentence(found),
        "transitions": transitions,
        "first_bad": one.sha if one and change == "regression" else "",
        "first_good": one.sha if one and change == "fix" else "",
        "culprit_commit": one.sha if one else "",
        "culprits": [asdict(commit) for commit in found.culprits],
        "confidence": found.confidence,
        "ends_verified": found.trouble in ("", "elsewhere"),
        "wrong_ends": [list(item) for item in found.wrong_ends],
        "commits": found.size,
        "seen": {sha: asdict(item) for sha, item in found.seen.items()},
        "probes": found.probed + found.recalled,
        "recalled": found.recalled,
    }


def _sentence(found: CommitResult) -> str:
    sentences = [f"the end {sha[:12]} is {answer}, not what it was named for" for sha, answer in found.wrong_ends]
    if found.base:
        sentences.append(f"the ends lie on two branches: their merge base {found.base[:12]} is the good end")
    change = "bad" if found.direction.value == "regression" else "good"
    if found.trouble == "untestable":
        sentences.append("neither end can be tested")
    elif found.trouble == "elsewhere":
        sentences.append("none of the commits that touch the paths: the change came from elsewhere")
    elif found.trouble:
        sentences.append(f"no commit that was tested is {'good' if found.trouble == 'always' else 'bad'}")
    elif len(found.culprits) == 1:
        sentences.append(f"first {change} commit {found.culprits[0].sha}")
    else:
        sentences.append(f"the first {change} commit is one of {len(found.culprits)}: those between cannot be tested")
    return "; ".join(sentences)


def _lines(found: CommitResult, answer: dict[str, Any]) -> list[str]:
    sentence = answer["answer"]
    lines = [sentence[:1].upper() + sentence[1:]]
    for commit in found.culprits[:20]:
        pull = f" (pull request {commit.pull_request})" if commit.pull_request else ""
        lines.append(f"  {commit.sha[:12]} {commit.subject}{pull}")
        lines.append(f"    {commit.author}, {commit.date}; {commit.diffstat}")
        lines += [f"    {name}" for name in commit.files[:10]]
        if commit.link:
            lines.append(f"    {commit.link}")
    if answer["confidence"] < 1 and found.culprits:
        lines.append(f"  confidence {answer['confidence']:.1%}")
    return lines


def _dry_run(source: Commits, chance: object, as_json: bool) -> int:
    plan = source.plan
    size = len(plan.between.commits)
    most = expected_tests(size, chance if isinstance(chance, float) else 1.0)
    known = sum(source.recall(sha) is not None for sha in (plan.row[plan.good], plan.row[plan.bad]))
    facts = {
        "commits": size,
        "first": [plan.row[plan.good], plan.row[plan.bad]],
        "known": known,
        "expected_probes": most,
    }
    click.echo(json.dumps(facts) if as_json else f"{size} commits between the ends; about {most} probes, {known} known")
    return 0
