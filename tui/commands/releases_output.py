"""`opsieve bisect --releases`: the search through the releases of a package, and how its answer is told."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from opsieve.backends.compare import Policy
from opsieve.backends.registry import display, resolve
from opsieve.backends.target import Target
from opsieve.backends.workers.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.culprit import keep_culprit
from opsieve.bisect.passes.pass_source import attributable, blame_passes
from opsieve.bisect.search.search import expected_tests
from opsieve.bisect.sources.git_history import open_repository, tag_of
from opsieve.bisect.sources.journal import Journal, case_digest, default_root
from opsieve.bisect.sources.release_source import Releases, backend_of, releases_of
from opsieve.bisect.sources.transitions import Transition, monotone, transitions
from opsieve.bisect.sources.version_sequence import Timeline, VersionSequence, place_of
from opsieve.bisect.sources.version_source import opener
from opsieve.gen.case.case import Case
from opsieve.gen.case.open_case import open_case
from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.triage.fingerprint.fingerprint import VERSION
from opsieve.tui.commands.commits_output import bisect_commits, policy_of, say


def bisect_releases(case: Path, package: str, good: str | None, bad: str | None, **options: Any) -> int:
    """Run the search and print it; the options are those of the command."""
    if options["then_commits"] is not None:
        open_repository(options["then_commits"]).close()
    opened = open_case(case, options["inputs"], options["expected"], options["seed"])
    backend = backend_of(package)
    named = options["target"] or opened.parameters.get("target", "")
    target = resolve(named) if named else Target(backend)
    if target.backend != backend:
        raise BadInput(f"--target is {display(target)}, but {package} belongs to the backend {backend}")
    policy = policy_of(options)
    versions = releases_of(package, options["offline"], root=default_root())
    bad = bad or (target.release if target.release in versions else None)
    ends = place_of(good, versions, "--good"), place_of(bad, versions, "--bad")
    started = time.monotonic()
    with Workers(offline=options["offline"], say=say) as workers:
        source = Releases(opened, target, workers, default_root(), policy=policy, say=say)
        if options["dry_run"]:
            return _dry_run(source, versions, ends, options)
        timeline = _timeline(source, versions, ends, options)
        answer = _answer(timeline, package)
        if not options["no_attribute"] and answer["first_bad"]:
            answer |= _guilty(opened, source, answer["first_bad"], workers, policy)
    answer |= {"probes": timeline.probed + timeline.recalled, "recalled": timeline.recalled}
    answer |= {"seconds": round(time.monotonic() - started, 2), "target": display(source.target)}
    goes_on = options["then_commits"] is not None and bool(answer["first_bad"])
    if goes_on:
        try:
            answer["next"] = _next(options["then_commits"], answer)
        except BadInput as error:  # no such tags: what was found is told all the same
            say(str(error))
            goes_on = False
    keep_culprit(case, "releases", answer)
    if goes_on and (options["build"] or options["check"]):
        return _then_commits(case, answer, options)
    _print(answer, options["as_json"])
    return 0


def bisect_source(case: Path, source: str, good: str | None, bad: str | None, **options: Any) -> int:
    """The same over versions of a plug-in, `NAME` or `NAME:ARGUMENT`."""
    name, _, argument = source.partition(":")
    opened = open_case(case, options["inputs"], options["expected"], options["seed"])
    named = options["target"] or opened.parameters.get("target", "")
    if not named:
        raise BadInput("name --target, the backend and its options")
    target = resolve(named)
    with opener(name)(opened, target, argument, options["offline"]) as found:
        versions = list(found.versions)
        if not versions:
            raise BadInput(f"the source {shown(source)} has no versions")
        ends = place_of(good, versions, "--good"), place_of(bad, versions, "--bad")
        question = {"source": source, "case": case_digest(opened), "target": display(target), "fingerprints": VERSION}
        row = VersionSequence(found.evaluate, Journal(default_root(), question), name, say)
        if options["dry_run"]:
            return _dry_run(row, versions, ends, options)
        started = time.monotonic()
        timeline = _timeline(row, versions, ends, options)
    answer = _answer(timeline, source) | {"target": display(target)}
    answer |= {"probes": timeline.probed + timeline.recalled, "recalled": timeline.recalled}
    answer |= {"seconds": round(time.monotonic() - started, 2)}
    keep_culprit(case, "releases", answer)
    _print(answer, options["as_json"])
    return 0


def _then_commits(case: Path, answer: dict[str, Any], options: dict[str, Any]) -> int:
    """Go on between the tags of the two releases; both answers are printed, as one object with `commits_search` for the second."""
    step = answer["next"]
    if not options["as_json"]:
        _print(answer, False)
    ends = {"repository": options["then_commits"], "good": step["good"], "bad": step["bad"], "target": answer["target"]}
    return bisect_commits(case, **{**options, **ends}, after=answer if options["as_json"] else None)


def _timeline(
    source: VersionSequence, versions: list[str], ends: tuple[int | None, int | None], options: dict[str, Any]
) -> Timeline:
    """A search, or a sweep when one was asked for or the two ends do not differ."""
    if options["sweep"]:
        return source.sweep(versions, options["jobs"])

    def progressed(progress: Any) -> None:
        say(f"{progress.candidates} releases left, about {progress.expected:.0f} probes")

    found = source.search(
        versions,
        *ends,
        chance=options["chance"],
        confidence=options["confidence"],
        jobs=options["jobs"],
        progressed=progressed,
    )
    assert found.outcome is not None
    if found.outcome.ends.trouble in ("always", "never"):
        say("the two ends do not differ: every release is looked at")
        return source.sweep(versions, options["jobs"])
    return found


def _answer(timeline: Timeline, package: str) -> dict[str, Any]:
    """The keys of docs/reference/cli.md."""
    changes = transitions(timeline.versions, timeline.seen)
    outcome = timeline.outcome
    wanted = timeline.wanted
    followed = [change for change in changes if change.kind != "symptom"]
    if outcome is not None and outcome.suspects is not None:
        first = [timeline.versions[place] for place in outcome.first]
        followed = [
            c for c in changes if c.first_after == first[-1] and c.last_before == timeline.versions[outcome.last_before]
        ]
    regressions = [change for change in followed if change.kind == "regression" or _appears(change, timeline)]
    fixes = [change for change in followed if change.kind == "fix"]
    turned = [change for change in followed if change not in regressions and change.kind == "symptom"]
    wrong = [] if outcome is None else [timeline.versions[place] for place, _ in outcome.ends.wrong]
    return {
        "package": package,
        "answer": _sentence(timeline, regressions, fixes, turned, wrong),
        "transitions": [asdict(change) for change in changes],
        "monotone": monotone(changes),
        "first_bad": regressions[-1].first_after if regressions else "",
        "first_good": fixes[-1].first_after if fixes else "",
        "candidates": [] if outcome is None else [timeline.versions[place] for place in outcome.first],
        "culprit_commit": "",
        "confidence": _confidence(timeline, changes),
        "ends_verified": outcome is None or not outcome.ends.trouble,
        "wrong_ends": wrong,
        "evidence": _evidence(timeline, [*regressions, *fixes, *turned]),
        "fingerprint": wanted.key if wanted else "",
        "symptom": wanted.symptom if wanted else "",
    }


def _evidence(timeline: Timeline, followed: list[Transition]) -> list[dict[str, str]]:
    """The two runs beside each change: what was seen, in a sentence."""
    sentences = dict(zip(timeline.versions, timeline.seen, strict=True))
    beside = dict.fromkeys(version for change in followed for version in (change.last_before, change.first_after))
    seen = [(version, sentences[version]) for version in beside]
    return [
        {"version": version, "symptom": item.symptom, "text": item.text} for version, item in seen if item is not None
    ]


def _appears(change: Transition, timeline: Timeline) -> bool:
    """Whether the failure that was followed is what a change of symptom brought."""
    return change.kind == "symptom" and timeline.wanted is not None and change.after == timeline.wanted.symptom


def _confidence(timeline: Timeline, changes: list[Transition]) -> float:
    if timeline.outcome is not None and timeline.outcome.suspects is not None:
        return timeline.outcome.suspects.confidence
    return 1.0 if changes else 0.0


def _sentence(
    timeline: Timeline,
    regressions: list[Transition],
    fixes: list[Transition],
    turned: list[Transition],
    wrong: list[str],
) -> str:
    outcome = timeline.outcome
    sentences = [f"the end {release} is not what it was named for" for release in wrong]
    if outcome is not None and outcome.ends.trouble == "untestable":
        sentences.append("no release could be tested")
    if outcome is not None and outcome.suspects is not None and not outcome.exact:
        names = ", ".join(timeline.versions[place] for place in outcome.first)
        sentences.append(f"one of {names}: those between cannot be tested")
    sentences += [f"first bad release {change.first_after} (last good {change.last_before})" for change in regressions]
    sentences += [f"first good release {change.first_after} (last bad {change.last_before})" for change in fixes]
    sentences += [f"from {change.first_after} on it fails otherwise: {change.after}" for change in turned]
    if not sentences:
        testable = [item for item in timeline.seen if item is not None and item.state != "skip"]
        sentences.append(
            "no release could be tested"
            if not testable
            else f"{'it fails' if testable[0].state == 'bad' else 'it is fine'} in every release that can be tested"
        )
    return "; ".join(sentences)


def _guilty(case: Case, source: Releases, release: str, workers: Any, policy: Policy) -> dict[str, Any]:
    """The pass that is guilty in the first bad release, where passes can be switched off."""
    if source.target.backend not in attributable():
        return {}
    known = source.journal.conclusion(f"passes-{release}")
    if known is not None:
        return known
    try:
        found = blame_passes(
            case, replace(source.target, release=release), ObservationCache(workers), policy
        ).attribution
    except BadInput as error:
        say(str(error))
        return {}
    answer: dict[str, Any] = {"attribution": found.answer, "guilty_passes": list(found.passes)}
    source.journal.conclude(f"passes-{release}", answer)
    return answer


def _next(repository: Path, answer: dict[str, Any]) -> dict[str, str]:
    """The ends in the repository that the release answer names: tags of the two releases."""
    change = next(item for item in answer["transitions"] if item["first_after"] == answer["first_bad"])
    good, bad = (tag_of(repository, change[name]) for name in ("last_before", "first_after"))
    return {"repository": str(repository), "good": good, "bad": bad}


def _dry_run(
    source: VersionSequence, versions: list[str], ends: tuple[int | None, int | None], options: dict[str, Any]
) -> int:
    known = [version for version in versions if source.recall(version) is not None]
    good, bad = ends
    last = len(versions) - 1 if bad is None else bad
    first = versions if options["sweep"] else list(dict.fromkeys((versions[good or 0], versions[last])))
    chance = options["chance"] if isinstance(options["chance"], float) else 1.0
    most = len(versions) if options["sweep"] else expected_tests(len(versions) - 1, chance)
    facts = {"versions": versions, "known": known, "first": first, "expected_probes": most}
    if options["as_json"]:
        click.echo(json.dumps(facts))
        return 0
    click.echo(f"{len(versions)} versions from {versions[0]} to {versions[-1]}; {len(known)} are known from before")
    click.echo(f"first: {', '.join(first)}; about {most} probes")
    return 0


def _print(answer: dict[str, Any], as_json: bool, echo: Callable[[str], None] = click.echo) -> None:
    if as_json:
        echo(json.dumps(answer))
        return
    printable = "".join(c if c.isprintable() else " " for c in answer["answer"])
    echo(printable[:1].upper() + printable[1:])
    if answer.get("guilty_passes"):
        echo(f"Pass {' and '.join(answer['guilty_passes'])}")
    elif answer.get("attribution") == "not-a-pass":
        echo("Not an optimiser pass: it fails with all optimisation off")
    if answer["fingerprint"]:
        echo(f"Failure {answer['fingerprint']}: {answer['symptom']}")
    for change in answer["transitions"]:
        exact = "" if change["exact"] else " (those between were not needed or cannot be tested)"
        echo(
            f"  {change['kind']:<10} {change['last_before']} -> {change['first_after']}: {change['before']} -> {change['after']}{exact}"
        )
    if not answer["monotone"]:
        echo("  It came or went more than once.")
    if "next" in answer:
        step = answer["next"]
        ends = f"--commits {step['repository']} --good {step['good']} --bad {step['bad']}"
        echo(f"Between the releases: {ends}")
    click.echo(
        f"opsieve: {answer['probes']} probes, {answer['recalled']} of them from before, {answer['seconds']} s", err=True
    )
