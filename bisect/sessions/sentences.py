"""Turn the result of a search into an answer with a sentence."""

from opsieve.bisect.search.ends import Ends
from opsieve.bisect.search.search import TestResult
from opsieve.bisect.sessions.answers import CommitAnswer, SeenBeside, SeenVersion, VersionAnswer
from opsieve.bisect.sources import commit_source, version_sequence
from opsieve.bisect.sources.outcome import Transition, find_transitions, is_monotone, is_same_trait

# For which versions could not be tested
_MOST_REASONS = 8
# Two lines of a terminal. Some compilers add their whole log to the message.
_LONGEST_REASON = 200


def make_version_answer(timeline: version_sequence.Timeline, package: str) -> VersionAnswer:
    """Make the answer of a search or sweep through the versions of `package`."""
    outcome = timeline.outcome
    wanted = timeline.wanted
    changes = find_transitions(timeline.versions, timeline.seen, wanted)
    # A failure that only changes its message is still the same failure for whoever searches its origin.
    followed = [change for change in changes if change.kind != "symptom"]
    # A search tests few versions, so changes between versions that it skipped are not its answer.
    if outcome is not None:
        followed = [
            c
            for c in changes
            if outcome.first
            and c.first_after == timeline.versions[outcome.first[-1]]
            and c.last_before == timeline.versions[outcome.last_before]
        ]
    regressions = [
        change
        for change in followed
        # A change of symptom can bring the failure that was followed.
        if change.kind == "regression"
        or (change.kind == "symptom" and wanted is not None and change.after == wanted.symptom)
    ]
    fixes = [change for change in followed if change.kind == "fix"]
    turned = [change for change in followed if change not in regressions and change.kind == "symptom"]
    seen_at = dict(zip(timeline.versions, timeline.seen, strict=True))
    # A dict keeps the order of the changes, and drops a version next to two of them.
    beside = dict.fromkeys(
        version
        # Regressions first, since they answer the usual question.
        for change in [*regressions, *fixes, *turned]
        for version in (change.last_before, change.first_after)
    )
    return VersionAnswer(
        package=package,
        answer=_write_version_sentence(timeline, regressions, fixes, turned),
        transitions=tuple(changes),
        monotone=is_monotone(changes),
        # The latest regression: an older one was fixed in between, and does not explain today's failure.
        first_bad=regressions[-1].first_after if regressions else "",
        first_good=fixes[-1].first_after if fixes else "",
        candidates=() if outcome is None else tuple(timeline.versions[place] for place in outcome.first),
        culprit_commit="",
        confidence=(
            outcome.suspects.confidence
            if outcome is not None and outcome.suspects is not None
            else float(bool(regressions or fixes))
        ),
        ends_verified=outcome is None or not outcome.ends.trouble,
        wrong_ends=tuple(timeline.versions[place] for place, _ in (outcome.ends.wrong if outcome else ())),
        versions=tuple(
            SeenVersion(version, item.state, item.symptom, item.text)
            for version, item in zip(timeline.versions, timeline.seen, strict=True)
            if item is not None
        ),
        evidence=tuple(
            SeenBeside(version, item.symptom, item.text, item.message)
            for version in beside
            if (item := seen_at[version]) is not None
        ),
        fingerprint=wanted.key if wanted else "",
        symptom=wanted.symptom if wanted else "",
        probes=timeline.probed + timeline.recalled,
        recalled=timeline.recalled,
    )


def _write_version_sentence(
    timeline: version_sequence.Timeline,
    regressions: list[Transition],
    fixes: list[Transition],
    turned: list[Transition],
) -> str:
    outcome = timeline.outcome
    sentences = [
        f"{timeline.versions[place]} "
        + ("cannot be tested" if result is TestResult.SKIP else "is not what --good or --bad says")
        for place, result in (outcome.ends.wrong if outcome else ())
    ]
    if outcome is not None and outcome.ends.trouble in ("always", "never"):
        sentences += _describe_equal_ends(timeline, outcome.ends)
    if outcome is not None and outcome.suspects is not None and not outcome.is_exact:
        sentences.append(
            f"one of {', '.join(timeline.versions[place] for place in outcome.first)}: the versions between"
            " cannot be tested"
        )
    changes = [*regressions, *fixes, *turned]
    sentences += [
        f"first bad release {change.first_after} (last good {change.last_before})" for change in regressions
    ]
    sentences += [
        f"first good release {change.first_after} (last bad {change.last_before})" for change in fixes
    ]
    sentences += [_describe_turn(change, timeline) for change in turned]
    if not sentences:
        states = {item.state for item in timeline.seen if item is not None} - {"skip"}
        sentences.append(
            "between the releases with and without it, each fails in another way or cannot be tested"
            if len(states) > 1
            else f"it {'fails in every' if 'bad' in states else 'does not fail in any'} testable release"
            if states
            else "no release could be tested"
        )
    hiding = [
        version
        for version, item in zip(timeline.versions, timeline.seen, strict=True)
        if item is not None and item.state == "bad" and not is_same_trait(item, timeline.wanted)
    ]
    if hiding and not changes:
        sentences.append(f"another failure may hide it in {', '.join(hiding)}")
    # Untestable versions matter only where they keep the answer open.
    if not changes or (outcome is not None and outcome.suspects is not None and not outcome.is_exact):
        sentences += _describe_untestable(timeline)
    if any(item is not None and item.doubted for item in timeline.seen):
        sentences.append(
            "the expected outputs decide, although the reference or another compiler contradicts them"
        )
    return "; ".join(sentences)


def _describe_equal_ends(timeline: version_sequence.Timeline, ends: Ends) -> list[str]:
    """Describe two ends with one result, if releases between them were not tested.

    An end that could not be tested was moved inward; the releases that were skipped over may differ too.
    """
    untested = timeline.seen[min(ends.answers) : max(ends.answers) + 1].count(None)
    if not untested:
        return []
    result = TestResult.BAD if ends.trouble == "always" else TestResult.GOOD
    places = [ends.old, ends.new, *(place for place, seen in ends.answers.items() if seen is result)]
    names = dict.fromkeys(timeline.versions[place] for place in (min(places), max(places)))
    said = (
        f"it fails in {' and in '.join(names)}; --good names a release without it"
        if ends.trouble == "always"
        else f"it does not fail in {' or in '.join(names)}; --bad names a release with it"
    )
    return [f"{said}, --sweep tests the {untested} between"]


def _describe_turn(change: Transition, timeline: version_sequence.Timeline) -> str:
    """Describe the range of versions in which the case fails differently."""
    later = find_transitions(timeline.versions, timeline.seen, timeline.wanted)
    at = timeline.versions.index(change.first_after)
    end = next((item for item in later if timeline.versions.index(item.first_after) > at), None)
    if end is None:
        # Nothing ends this failure, so only its start is known.
        return f"since {change.first_after} it fails differently: {change.after}"
    return f"from {change.first_after} to {end.last_before} it fails differently: {change.after}"


def _describe_untestable(timeline: version_sequence.Timeline) -> list[str]:
    """Describe how many versions could not be tested, grouped by reason without the version's name."""
    reasons: dict[str, list[str]] = {}
    for version, item in zip(timeline.versions, timeline.seen, strict=True):
        if item is not None and item.state == "skip":
            # Messages name their version; without it, equal reasons are one group.
            reasons.setdefault((item.text or item.symptom).replace(version, "..."), []).append(version)
    if not reasons:
        return []
    # The reason of most versions first, since the list is cut.
    groups = sorted(reasons.items(), key=lambda group: -len(group[1]))
    described = [
        f"{len(versions)} ({versions[0]}{f' to {versions[-1]}' if len(versions) > 1 else ''}):"
        f" {why[:_LONGEST_REASON]}"
        for why, versions in groups[:_MOST_REASONS]
    ]
    more = [f"{len(groups) - _MOST_REASONS} more reasons"] if len(groups) > _MOST_REASONS else []
    return [
        f"{sum(map(len, reasons.values()))} of {len(timeline.versions)} could not be tested",
        *described,
        *more,
    ]


def make_commit_answer(found: commit_source.CommitResult) -> CommitAnswer:
    """Make the answer of a search through commits."""
    one = found.culprits[0] if len(found.culprits) == 1 else None
    regression = found.direction.value == "regression"
    transitions: tuple[Transition, ...] = ()
    if one:
        before, after = ("good", "bad") if regression else ("bad", "good")
        parent = one.parents[0] if one.parents else ""
        transitions = (
            Transition("regression" if regression else "fix", parent, one.sha, True, before, after),
        )
    return CommitAnswer(
        package="",
        answer=_write_commit_sentence(found),
        transitions=transitions,
        first_bad=one.sha if one and regression else "",
        first_good=one.sha if one and not regression else "",
        culprit_commit=one.sha if one else "",
        culprits=found.culprits,
        confidence=found.confidence,
        ends_verified=found.trouble in ("", "elsewhere"),
        wrong_ends=found.wrong_ends,
        commits=found.size,
        seen=found.seen,
        probes=found.probed + found.recalled,
        recalled=found.recalled,
    )


def _write_commit_sentence(found: commit_source.CommitResult) -> str:
    sentences = [
        f"commit {sha[:12]} is {answer}, not what --good or --bad says" for sha, answer in found.wrong_ends
    ]
    if found.base:
        sentences.append(
            f"--good and --bad are on different branches: using their merge base {found.base[:12]} as the"
            " good end"
        )
    change = "bad" if found.direction.value == "regression" else "good"
    if found.trouble == "untestable":
        sentences.append("neither --good nor --bad can be tested")
    elif found.trouble == "elsewhere":
        sentences.append("no commit that touches --paths: the change came from elsewhere")
    elif found.trouble:
        sentences.append(
            "no tested commit is good: name another --good"
            if found.trouble == "always"
            else "no tested commit is bad: name another --bad"
        )
    elif len(found.culprits) == 1:
        sentences.append(f"first {change} commit {found.culprits[0].sha}")
    else:
        sentences.append(
            f"the first {change} commit is one of {len(found.culprits)}: the commits between cannot be tested"
        )
    return "; ".join(sentences)
