"""Cases, stores, corpora and collections of bugs for Python: import, export, triage and replay."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from opsieve.gen.case.import_folder import Skipped
from opsieve.gen.model.durable import write_output
from opsieve.reducer.sessions import store_session, triage_session
from opsieve.reducer.sessions.export import ExportRequest, export_case
from opsieve.triage.corpus import session
from opsieve.triage.corpus.corpus_file import CorpusResult, latest, read_bugs, status
from opsieve.triage.corpus.session import AddedCase, CorpusRequest
from opsieve.triage.corpus.watch import WatchedCluster, WatchRequest, record_decisions, watch_store
from opsieve.triage.export.exports import Export, Kind
from opsieve.triage.external import external_logs, import_session
from opsieve.triage.judging import RefusedModel
from opsieve.tui.api import Model, Say, Values, ignore, make_limits, name_targets, write_files
from opsieve.tui.samples import SAMPLES

_Path = str | os.PathLike[str]
_T = TypeVar("_T")


def import_cases(
    paths: Sequence[_Path],
    output: _Path = "opsieve-store/imported",
    *,
    scripts: bool = False,
    module: str = "",
    entry: str = "",
    passes: str = "",
    progress: Callable[[import_session.ImportedCase | Skipped], object] = ignore,
) -> list[import_session.ImportedCase | Skipped]:
    """Import models and values of other tools, each as a case folder, as `opsieve import` does.

    Args:
        paths: Files or folders.
        output: Folder in which the cases are written.
        scripts: Whether `paths` are your own Python files that make modules of TVM. A worker runs them.
        module: With `scripts`: the module or the function that builds it, if a file has several.
        entry: With `scripts`: the function of the module to run instead of ``main``.
        passes: With `scripts`: names of passes separated by commas, or a Python file that defines some.
        progress: Receives each item as soon as it is known.

    Returns:
        For each item ``path`` and either ``case``, ``kind`` and ``expected``, or the ``reason`` of a refusal.

    Raises:
        BadInput: If an option of scripts is given without `scripts`.
    """
    request = import_session.ImportRequest(
        tuple(map(Path, paths)), Path(output), scripts, module, entry, passes
    )
    return _collect(import_session.import_cases(request), progress)


def export(
    case: Model,
    kind: Kind = "script",
    *,
    output: _Path | None = None,
    store: _Path = "opsieve-store",
    target: str = "",
    oracle: Sequence[str] = (),
    inputs: Values = None,
    expected: Values = None,
    seed: int = 0,
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    newest: bool = False,
    say: Say = ignore,
) -> Export:
    """Reproduce a failure and write it for people without opsieve, as `opsieve export` does.

    Args:
        case: A model in one of the forms that `open_case` takes, or the name of a case or a cluster of
            `store`.
        kind: ``script``, ``issue``, ``pytest`` or ``case`` (a zip file).
        output: File or folder to write to; nothing is written if None.
        store: The store that a name refers to.
        target: The compiler that fails; the one on record if empty.
        oracle: Names of oracles to consult too.
        inputs: Input values, in the forms that `open_case` takes.
        expected: Expected outputs.
        seed: Seed of the inputs that are drawn.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        newest: Whether an issue says what the newest release of the compiler does, which is installed.
        say: Receives diagnostics, one sentence per call.

    Returns:
        The file: ``name``, and ``data`` as bytes.

    Raises:
        BadInput: If the failure does not repeat, or a file of this kind cannot show it.
    """
    limits = make_limits(seconds, memory)
    with (
        name_targets([target] if target else [], oracle) as named,
        write_files(case, inputs, expected) as files,
    ):
        request = ExportRequest(
            str(files.model),
            kind,
            Path(store),
            "".join(named.targets),
            named.oracles.names,
            files.inputs,
            files.expected,
            seed,
            limits,
            offline,
            newest,
        )
        made, _ = export_case(request, say)
    if output is not None:
        place = Path(output)
        write_output(place / made.name if place.is_dir() else place, made.data)
    return made


def triage_store(
    store: _Path = "opsieve-store",
    *,
    attribute: bool = False,
    reduce: bool = False,
    budget: float = 600.0,
    members: int = 1,
    jobs: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    refingerprint: bool = False,
    dry_run: bool = False,
    offline: bool = False,
    say: Say = ignore,
    progress: Callable[[store_session.ReducedCase], object] = ignore,
) -> triage_session.TriageAnswer:
    """Rank the clusters of a store and match them with known bugs, as `opsieve triage` does.

    Args:
        store: The folder of the store.
        attribute: Whether to find the passes that cause wrong results first.
        reduce: Whether to reduce cases first.
        budget: Time limit of the reductions, and of the attributions, in seconds of wall time.
        members: Cases per fingerprint that are reduced.
        jobs: Cases that are reduced at once; one, or as many as the cluster has threads, if None.
        scheduler: Address of a Dask cluster that reduces.
        resources: Resources that a worker of the cluster must have.
        refingerprint: Whether to recompute all fingerprints with the rules of this version.
        dry_run: With `refingerprint`: only list what would move.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Receives each reduced case as soon as it ends.

    Returns:
        ``facts`` are the keys of ``--json``, ``clusters`` the first page of the ranked list.

    Raises:
        BadInput: If the folder holds no store.
    """
    if attribute:
        from opsieve.bisect.sessions.store_attribution import attribute_store

        attribute_store(Path(store), budget, offline, say)
    switches = (refingerprint, dry_run, offline)
    request = triage_session.TriageRequest(
        Path(store), reduce, budget, members, jobs, scheduler, resources or {}, *switches
    )
    return triage_session.triage_store(request, say, progress)


def triage_logs(path: _Path) -> external_logs.LogTriage:
    """Cluster the failures in logs of other tools, as `opsieve triage --logs` does.

    Args:
        path: A file or folder: ``.jsonl``, ``.jsonl.gz``, text, JUnit, or what ``run --save`` wrote.

    Returns:
        ``assignments`` of records to clusters, and ``skipped`` records.

    Raises:
        BadInput: If the path cannot be read.
    """
    return external_logs.read_and_cluster(Path(path))


def add_to_corpus(
    folder: _Path,
    cases: Sequence[_Path],
    targets: Sequence[str] = (),
    *,
    oracle: Sequence[str] = (),
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
    progress: Callable[[AddedCase | RefusedModel], object] = ignore,
) -> list[AddedCase | RefusedModel]:
    """Copy cases into a corpus and record the verdicts of their targets, as `opsieve corpus add` does.

    Args:
        folder: The corpus; it is made if there is none.
        cases: ``.onnx`` files or case folders.
        targets: Compilers that judge the cases; the recorded one of each case if empty.
        oracle: Names of oracles to consult too.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Receives each item as soon as it is known.

    Returns:
        For each case its ``name`` and the verdicts of its ``targets``, or the ``reason`` of a refusal.

    Raises:
        BadInput: If a target is unknown.
    """
    limits = make_limits(seconds, memory)
    with name_targets(targets, oracle) as named:
        request = CorpusRequest(Path(folder), named.targets, limits, offline, named.oracles)
        return _collect(session.add_cases(tuple(map(Path, cases)), request, say), progress)


def replay_corpus(
    folder: _Path,
    targets: Sequence[str] = (),
    *,
    oracle: Sequence[str] = (),
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
    progress: Callable[[CorpusResult], object] = ignore,
) -> list[CorpusResult]:
    """Judge every case of a corpus and compare the verdicts with its record, as `opsieve corpus run` does.

    Args:
        folder: The corpus.
        targets: Compilers that judge the cases; the recorded ones of each case if empty.
        oracle: Names of oracles to consult too.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Receives each result as soon as it is known.

    Returns:
        For each case and target ``state`` (``newly-failing``, ``changed``, ``still-failing``, ``fixed``,
        ``passing`` or ``not-judged``), the verdicts ``before`` and ``after``, and a ``sentence``.

    Raises:
        BadInput: If the folder is no corpus, or a target is unknown.
    """
    limits = make_limits(seconds, memory)
    with name_targets(targets, oracle) as named:
        request = CorpusRequest(Path(folder), named.targets, limits, offline, named.oracles)
        return _collect(map(_make_result, session.replay_corpus(request, say)), progress)


def watch(
    store: _Path = "opsieve-store",
    targets: Sequence[str] = (),
    *,
    members: int = 2,
    dry_run: bool = False,
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
    progress: Callable[[WatchedCluster], object] = ignore,
) -> list[WatchedCluster]:
    """Judge the cases of a store on new releases, close what is fixed and reopen what fails again, as
    `opsieve watch` does.

    Args:
        store: The folder of the store.
        targets: Compilers that judge the cases; the newest release of each one that failed if empty.
        members: Cases of each cluster to judge, besides its reduced one.
        dry_run: Whether to leave the clusters as they are.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Receives the result of each cluster.

    Returns:
        Results like those of `replay_corpus`, each with its ``cluster`` and ``title``.

    Raises:
        BadInput: If the folder holds no store, or a target is unknown.
    """
    limits = make_limits(seconds, memory)
    with name_targets(targets) as named:
        request = WatchRequest(Path(store), named.targets, members, limits, offline)
        results = _collect(watch_store(request, say), progress)
    if not dry_run:
        record_decisions(request.store, results)
    return results


def compare_corpus(old: _Path, new: _Path) -> list[CorpusResult]:
    """Compare two outputs of `opsieve corpus run --json`, as `opsieve corpus diff` does.

    Args:
        old: The earlier output.
        new: The later one.

    Returns:
        Results like those of `replay_corpus`.

    Raises:
        BadInput: If a file is invalid.
    """
    return list(session.compare_results(Path(old), Path(new)))


def list_bugs(folder: _Path | None = None) -> list[dict[str, Any]]:
    """List the bugs of a collection with their status, as `opsieve bugs` does.

    Args:
        folder: The collection; the one that comes with opsieve if None.

    Returns:
        The entries of ``opsieve bugs --json``.

    Raises:
        BadInput: If the folder is no collection.
    """
    return [
        {"name": name, "status": status(entry, bug), "target": latest(entry, bug)[0], **asdict(bug)}
        for name, (entry, bug) in read_bugs(Path(folder or SAMPLES)).items()
    ]


def replay_bugs(
    names: Sequence[str] = (),
    folder: _Path | None = None,
    *,
    newest: bool = False,
    update: bool = False,
    resume: _Path | None = None,
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
    progress: Callable[[CorpusResult], object] = ignore,
) -> list[CorpusResult]:
    """Judge bugs of a collection on the newest release on record, as `opsieve bugs replay` does.

    Args:
        names: Names of bugs; all of them if empty.
        folder: The collection; the one that comes with opsieve if None.
        newest: Whether to install and judge the newest release of each compiler.
        update: Whether to record the results in the collection.
        resume: File that keeps each result, so that an interrupted replay continues.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Receives each result as soon as it is known.

    Returns:
        Results like those of `replay_corpus`.

    Raises:
        BadInput: If there is no such bug or collection.
    """
    place = Path(folder or SAMPLES)
    request = session.BugsRequest(
        place,
        tuple(names),
        newest,
        None if resume is None else Path(resume),
        make_limits(seconds, memory),
        offline,
    )
    results = _collect(map(_make_result, session.replay_bugs(request, say)), progress)
    if update:
        session.update_bugs(place, results)
    return results


def _make_result(found: CorpusResult | RefusedModel) -> CorpusResult:
    return session.make_refusal(found) if isinstance(found, RefusedModel) else found


def _collect(found: Iterator[_T], progress: Callable[[_T], object]) -> list[_T]:
    """Collect items, and pass each one on as soon as it is known."""
    items = []
    for item in found:
        items.append(item)
        progress(item)
    return items
