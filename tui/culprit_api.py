"""The causes of a failure for Python: the guilty pass, release and commit, and the history of a report."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opsieve.bisect.search.search import Given
from opsieve.bisect.sessions import commits, versions
from opsieve.bisect.sessions.replay import ReplayAnswer, ReplayRequest, replay_report
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources.build_sandbox import CheckLimits
from opsieve.tui.api import Model, Say, Values, ignore, make_limits, name_targets, write_files


def attribute(
    model: Model,
    inputs: Values = None,
    target: str = "",
    *,
    oracle: Sequence[str] = (),
    expected: Values = None,
    seed: int = 0,
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
) -> dict[str, Any]:
    """Find the optimizer passes that cause a failure, as `opsieve attribute` does.

    Args:
        model: The failing model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        target: The compiler that fails; the one that the case records if empty.
        oracle: Names of oracles to consult too.
        expected: Expected outputs.
        seed: Seed of the inputs that are drawn.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run, in bytes; 4 GiB if 0.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.

    Returns:
        The keys of ``opsieve attribute --json``: ``answer``, ``passes``, ``levels`` and more.

    Raises:
        BadInput: If the target offers no passes or levels to switch.
    """
    limits = make_limits(seconds, memory)
    with (
        write_files(model, inputs, expected) as files,
        name_targets([target] if target else [], oracle) as named,
    ):
        request = BisectRequest(
            files.model,
            target="".join(named.targets),
            oracles=named.oracles.names,
            inputs=files.inputs,
            expected=files.expected,
            seed=seed,
            seconds=limits.seconds,
            memory=limits.memory,
            offline=offline,
        )
        return versions.attribute_passes(request, say).as_json()


def bisect_releases(
    model: Model,
    inputs: Values = None,
    package: str = "onnxruntime",
    *,
    good: str | None = None,
    bad: str | None = None,
    target: str = "",
    oracle: Sequence[str] = (),
    expected: Values = None,
    seed: int = 0,
    tolerance: tuple[float, float] | None = None,
    repro_rate: Given = None,
    confidence: float = 0.99,
    jobs: int | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    packages: Sequence[str] = (),
    indexes: Sequence[str] = (),
    pre: bool = False,
    builds: str | os.PathLike[str] | None = None,
    sweep: bool = False,
    history: str | os.PathLike[str] | None = None,
    then_commits: str | os.PathLike[str] | None = None,
    fixed: bool = False,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    attribute: bool = True,
    offline: bool = False,
    dry_run: bool = False,
    say: Say = ignore,
) -> dict[str, Any]:
    """Find the release that introduced or ended a failure, as `opsieve bisect --releases` does.

    Args:
        model: The failing model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        package: The compiler's package on PyPI; "" for `builds` alone. Releases are installed on demand.
        good: A release without the failure; the oldest one if None.
        bad: A release with the failure; the newest one if None.
        target: The compiler; the one on record if empty.
        oracle: Names of oracles to consult too.
        expected: Expected outputs, which then define good and bad.
        seed: Seed of the inputs that are drawn.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy.
        repro_rate: Probability that a bad version fails in one run; ``"auto"`` estimates it.
        confidence: Required confidence for flaky failures.
        jobs: Versions that are tested at once.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        packages: Other packages of the same compiler.
        indexes: Further package indexes, or folders of wheels.
        pre: Whether to search pre-releases too.
        builds: A folder of builds to search.
        sweep: Whether to test every release.
        history: A clone in which the commits between the two releases are ranked.
        then_commits: A clone; ``next`` names its tags between which `bisect_commits` continues.
        fixed: Whether to search the release that fixed the failure.
        scheduler: Address of a Dask cluster that runs the tests.
        resources: Resources that a worker of the cluster must have.
        attribute: Whether to find the optimiser pass in the first bad release.
        offline: Use only releases that are installed.
        dry_run: Whether to return only what would be tested.
        say: Receives diagnostics and the progress, one sentence per call.

    Returns:
        The keys of ``opsieve bisect --json``.

    Raises:
        BadInput: If a release does not exist, or the named ends do not differ.
    """
    options = {
        "good": good, "bad": bad, "seed": seed, "tolerance": tolerance, "repro_rate": repro_rate,
        "confidence": confidence, "jobs": jobs,
        "packages": tuple(packages), "indexes": tuple(indexes), "pre": pre, "builds": _as_path(builds),
        "sweep": sweep,
        "history": _as_path(history), "then_commits": _as_path(then_commits), "fixed": fixed,
        "scheduler": scheduler,
        "resources": resources or {}, "attribute": attribute, "offline": offline, "dry_run": dry_run,
    }  # fmt: skip
    with _make_request(model, inputs, expected, target, oracle, seconds, memory, options) as request:
        return versions.bisect_releases(request, package, say).as_json()


def bisect_source(
    model: Model,
    inputs: Values = None,
    source: str = "",
    *,
    good: str | None = None,
    bad: str | None = None,
    target: str = "",
    oracle: Sequence[str] = (),
    expected: Values = None,
    seed: int = 0,
    tolerance: tuple[float, float] | None = None,
    repro_rate: Given = None,
    confidence: float = 0.99,
    jobs: int | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    sweep: bool = False,
    offline: bool = False,
    dry_run: bool = False,
    say: Say = ignore,
) -> dict[str, Any]:
    """Search the versions of a plug-in, as `opsieve bisect --source` does.

    Args:
        model: The failing model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        source: ``NAME`` or ``NAME:ARGUMENT``.
        good: A version without the failure.
        bad: A version with the failure.
        target: The compiler; the one on record if empty.
        oracle: Names of oracles to consult too.
        expected: Expected outputs, which then define good and bad.
        seed: Seed of the inputs that are drawn.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy.
        repro_rate: Probability that a bad version fails in one run; ``"auto"`` estimates it.
        confidence: Required confidence for flaky failures.
        jobs: Versions that are tested at once.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        sweep: Whether to test every version.
        offline: Use only releases that are installed.
        dry_run: Whether to return only what would be tested.
        say: Receives diagnostics and the progress, one sentence per call.

    Returns:
        The keys of ``opsieve bisect --json``.

    Raises:
        BadInput: If there is no such plug-in.
    """
    options = {
        "good": good, "bad": bad, "seed": seed, "tolerance": tolerance, "repro_rate": repro_rate,
        "confidence": confidence, "jobs": jobs,
        "sweep": sweep, "offline": offline, "dry_run": dry_run,
    }  # fmt: skip
    with _make_request(model, inputs, expected, target, oracle, seconds, memory, options) as request:
        return versions.bisect_source(request, source, say).as_json()


def bisect_commits(
    model: Model,
    inputs: Values = None,
    repository: str | os.PathLike[str] = ".",
    *,
    good: str | None = None,
    bad: str | None = None,
    target: str = "",
    oracle: Sequence[str] = (),
    expected: Values = None,
    seed: int = 0,
    tolerance: tuple[float, float] | None = None,
    repro_rate: Given = None,
    confidence: float = 0.99,
    jobs: int | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    build: str | os.PathLike[str] | None = None,
    check: str | os.PathLike[str] | None = None,
    check_seconds: float = 3600.0,
    hang_is_bad: bool = False,
    fresh: bool = False,
    sparse: Sequence[str] = (),
    paths: Sequence[str] = (),
    first_parent: bool = False,
    offline: bool = False,
    dry_run: bool = False,
    say: Say = ignore,
) -> dict[str, Any]:
    """Find the commit that introduced a failure, as `opsieve bisect --commits` does.

    Args:
        model: The failing model, in one of the forms that `open_case` takes; None if `check` decides.
        inputs: Input values, in the forms that `open_case` takes.
        repository: A local git repository of the compiler.
        good: A commit in which the case passes.
        bad: A commit in which the case fails.
        target: The compiler; the one on record if empty.
        oracle: Names of oracles to consult too.
        expected: Expected outputs, which then define good and bad.
        seed: Seed of the inputs that are drawn.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy.
        repro_rate: Probability that a bad version fails in one run; ``"auto"`` estimates it.
        confidence: Required confidence for flaky failures.
        jobs: Versions that are tested at once.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        build: A script that runs in each work tree before the test.
        check: A script to use instead of the case; it exits with 0 for good, 125 for untestable, 1 to 127
            for bad.
        check_seconds: Time limit of one build or check.
        hang_is_bad: Whether a check that exceeds its time limit is bad.
        fresh: Whether to ignore the results of earlier searches.
        sparse: Folders to check out; all if empty.
        paths: Paths that a commit must touch.
        first_parent: Whether to follow only the first parent of merges.
        offline: Use only releases that are installed.
        dry_run: Whether to return only what would be tested.
        say: Receives diagnostics and the progress, one sentence per call.

    Returns:
        The keys of ``opsieve bisect --json``.

    Raises:
        BadInput: If the repository or a commit does not exist.
    """
    options = {
        "good": good, "bad": bad, "seed": seed, "tolerance": tolerance, "repro_rate": repro_rate,
        "confidence": confidence, "jobs": jobs,
        "build": _as_path(build), "check": _as_path(check), "limits": CheckLimits(check_seconds,
        hang_is_bad), "fresh": fresh,
        "sparse": tuple(sparse), "paths": tuple(paths), "first_parent": first_parent, "offline": offline,
        "dry_run": dry_run,
    }  # fmt: skip
    with _make_request(model, inputs, expected, target, oracle, seconds, memory, options) as request:
        return commits.bisect_commits(request, Path(repository), say).as_json()


def replay(
    report: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    targets: Sequence[str] = (),
    *,
    history: bool = True,
    seed: int = 0,
    offline: bool = False,
    say: Say = ignore,
) -> ReplayAnswer:
    """Replay a public issue on the versions that it names and on the installed one, as `opsieve replay` does.

    Args:
        report: The issue, saved as Markdown or HTML.
        model: The model that is attached to it; the one in its text if None.
        inputs: Input values: an ``.npz`` file or an ONNX test data set.
        targets: Compilers to test instead of those in the report.
        history: Whether to search the first bad and the first good release.
        seed: Seed of the inputs that are drawn.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.

    Returns:
        ``facts`` (what the report says), ``results`` of each version, ``still``, ``first_bad``,
        ``first_good``; ``as_json()`` gives the keys of ``--json``.

    Raises:
        BadInput: If the report holds no model that can be read.
    """
    with name_targets(targets) as named:
        asked = ReplayRequest(
            Path(report),
            None if model is None else Path(model),
            None if inputs is None else Path(inputs),
            named.targets,
            seed,
            history,
            offline,
        )
        return replay_report(asked, say)


@contextmanager
def _make_request(
    model: Model,
    inputs: Values,
    expected: Values,
    target: str,
    oracle: Sequence[str],
    seconds: float,
    memory: int,
    options: dict[str, Any],
) -> Iterator[BisectRequest]:
    """Yield the request of a search; a script that decides needs no model."""
    limits = make_limits(seconds, memory)
    with (
        name_targets([target] if target else [], oracle) as named,
        # A place holder: a script that decides reads no model.
        write_files(b"" if model is None else model, inputs, expected) as files,
    ):
        yield BisectRequest(
            None if model is None else files.model,
            target="".join(named.targets),
            oracles=named.oracles.names,
            inputs=files.inputs,
            expected=files.expected,
            seconds=limits.seconds,
            memory=limits.memory,
            **options,
        )


def _as_path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)
