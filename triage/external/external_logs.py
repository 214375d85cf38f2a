"""Cluster failures from other tools: records without models.

The rules are those of the store's failures (`opsieve.triage.fingerprint.fingerprint`); a record is first
converted to the verdict and the observation of an equal run of opsieve.
"""

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.backends import registry, target
from opsieve.backends.observation import Frame, Observation, Stage
from opsieve.backends.stacks.frames import read_tracebacks, select_causes
from opsieve.backends.verdict import KIND_OF_OUTCOME, Mismatch, Verdict
from opsieve.gen.model.files import bound_reading
from opsieve.gen.model.printable import printable
from opsieve.triage.clustering.log_clusters import LogClusters, LoggedFailure, describe_failure
from opsieve.triage.external.external_records import BadRecord, Record, read_records
from opsieve.triage.fingerprint import component, fingerprint, normalise, traces

_LISTS = Path(__file__).parent.parent / "fingerprint" / "frame_denylist.toml"
# Names that tools for TVM, torch and ONNX give their phases; any other is taken for the run.
_STAGES: Mapping[str, Stage] = {
    "import": "import",
    "load": "import",
    "parse": "import",
    "convert": "import",
    "frontend": "import",
    "session": "compile",
    "compile": "compile",
    "build": "compile",
    "legalize": "compile",
    "optimize": "compile",
    "lower": "compile",
    "codegen": "compile",
    "export": "compile",
}
_COMPARING = frozenset(["compare", "verify", "check", "comparison"])
# The kernel's out-of-memory killer sends it; nothing else does to a compiler that crashes.
_SIGKILL = 9
# Bad lines that are named; the others are counted
_MAX_SKIPPED = 1000
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Record `index` (from 0, bad ones counted) belongs to `cluster`, the key of its fingerprint.

    `why` lists the components that count. `kind` is that of a failure (`opsieve.backends.verdict`), or
    `unsupported` or `environment`, which are not bugs.
    """

    index: int
    cluster: str
    title: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class LogTriage:
    """The failures in a file.

    `skipped` are the numbers of invalid lines (from 1), each with the reason; for a text log, numbers of
    failures. Beyond a thousand the others are counted in a last entry numbered 0.
    """

    assignments: list[Assignment]
    skipped: list[tuple[int, str]]


@bound_reading
def read_and_cluster(path: Path) -> LogTriage:
    """Read the failures of a file or folder (see `read_records`), and assign each to its cluster.

    Raises:
        BadInput: If `path` cannot be read.
    """
    skipped: list[tuple[int, str]] = []
    bad = 0

    def good() -> Iterable[tuple[int, Record]]:
        nonlocal bad
        for index, record in read_records(path):
            if isinstance(record, Record):
                # A text log is no failure by itself: most of a CI run passes.
                if not record.text or traces.read_trace(record.text).kind:
                    yield index, record
                    continue
                record = BadRecord(index + 1, "it holds no failure")
            bad += 1
            if bad <= _MAX_SKIPPED:
                skipped.append((record.number, record.why))

    assignments = cluster_records(good())
    if bad > _MAX_SKIPPED:
        skipped.append((0, f"{bad - _MAX_SKIPPED} more lines are no records"))
    return LogTriage(assignments, skipped)


def cluster_records(records: Iterable[tuple[int, Record]]) -> list[Assignment]:
    """Assign each record, given with its index, to its cluster; one record is in memory at a time."""
    clusters = LogClusters()
    seen: dict[LoggedFailure, fingerprint.Fingerprint] = {}
    failures: list[tuple[int, LoggedFailure]] = []
    for index, record in records:
        observation, found = fingerprint_record(record)
        # Of a crash the frames are in the key already.
        kind, backend = (
            found.get_value(name) for name in (component.ComponentName.KIND, component.ComponentName.BACKEND)
        )
        frames = observation.frames if kind == "error" else ()
        chain = select_causes(read_tracebacks(observation.traceback))
        first = chain[0] if len(chain) > 1 else observation
        failure, calls = describe_failure(
            found.key, backend, first.exception, first.message, frames, hides_cause=first is observation
        )
        clusters.add_failure(failure, found.components, calls)
        # The first one gives the title, so that the order of the file decides and not that of a set.
        seen.setdefault(failure, found)
        failures.append((index, failure))
    assigned = clusters.assign_clusters()
    described: dict[str, tuple[str, str, str]] = {}
    for failure, found in seen.items():
        if assigned[failure] not in described:
            kind = found.get_value(component.ComponentName.KIND)
            why = "; ".join(
                f"{part.name}: {part.value} ({part.hint})" for part in found.components if part.kept
            )
            described[assigned[failure]] = fingerprint.make_title(found), kind, printable(why)
    return [Assignment(index, assigned[each], *described[assigned[each]]) for index, each in failures]


def fingerprint_record(record: Record) -> tuple[Observation, fingerprint.Fingerprint]:
    """Turn another tool's record into an observation of our own, with its fingerprint."""
    text = record.text or record.traceback
    trace = traces.read_trace(text or record.output)
    message = record.message or trace.message
    backend = _find_backend(record, trace)
    stage = "run" if not record.phase else _STAGES.get(record.phase.lower(), "run")
    mismatch = _find_mismatch(record, trace, message)
    outcome = _choose_outcome(record, trace, backend, stage, message)
    observation = Observation(
        backend,
        "",
        outcome,
        stage,
        exception=record.exception or trace.exception,
        message=message,
        traceback=text,
        frames=trace.frames,
        signal=record.signal or trace.signal,
        log=record.output or record.text,
    )
    kind = KIND_OF_OUTCOME.get(outcome)
    if mismatch is not None:
        kind = "mismatch"
    verdict = Verdict("fail", "", kind, stage, message, mismatch=mismatch)
    return observation, fingerprint.make_fingerprint(verdict, observation, record.operators)


def _find_mismatch(record: Record, trace: traces.FailureTrace, message: str) -> Mismatch | None:
    """Find the wrong property in a record of a wrong result, by its phase and message, or by its message
    alone.
    """
    # A process that died compared nothing.
    if record.signal or record.timed_out or (trace.kind not in ("mismatch", "error", "")):
        return None
    if record.phase.lower() in _COMPARING or (record.exception or trace.exception).endswith("AssertionError"):
        return traces.find_wrong_result(message)
    return None


def _choose_outcome(
    record: Record, trace: traces.FailureTrace, backend: str, stage: Stage, message: str
) -> Any:
    if record.timed_out or trace.kind == "hang":
        return "hang"
    if record.signal == _SIGKILL or trace.kind == "out-of-memory":
        return "out-of-memory"
    if record.signal or trace.kind == "crash":
        return "crash"
    # Only the program that called the compiler was running: Python code of one file outside of packages. Code
    # in another file may be that of an editable install.
    if normalise.is_from_interpreter(message) and (
        len({frame.file for frame in trace.frames}) == 1
        and not any(
            frame.language == "native" or "site-packages/" in frame.file or "dist-packages/" in frame.file
            for frame in trace.frames
        )
    ):
        return "environment"
    # Cut for the cache, which would hold whole logs as keys.
    return _classify_exception(backend, stage, record.exception or trace.exception, message[:4000])


@functools.lru_cache(maxsize=4096)
def _classify_exception(backend: str, stage: Stage, exception: str, message: str) -> str:
    """Classify an exception by its backend's rules; `error` for an unknown compiler."""
    if backend not in registry.names():
        return "error"
    try:
        return registry.plugin(backend).backend.classify(stage, exception, message)
    except target.BadTarget:
        return "error"


@functools.cache
def _load_backends() -> dict[str, dict[str, list[str]]]:
    backends: dict[str, dict[str, list[str]]] = tomllib.loads(_LISTS.read_text(encoding="utf-8"))["backends"]
    return backends


def _find_backend(record: Record, trace: traces.FailureTrace) -> str:
    """Find the failed compiler: as named by the record, else the innermost one with a frame in its files,
    else `unknown`.
    """
    if record.backend:
        # It becomes a part of the fingerprint, so that a stranger's text is cut and cleaned.
        named = record.backend[:60].lower()
        name = next((name for name, lists in _load_backends().items() if named in lists["aliases"]), named)
        return _NOT_A_NAME.sub("-", name).strip("-") or "unknown"
    # The innermost frame: a compiler that calls another one is not at fault for it.
    return next((name for frame in trace.frames[::-1] if (name := _find_owner(frame))), "unknown")


@functools.lru_cache(maxsize=4096)
def _find_owner(frame: Frame) -> str:
    # The patterns begin with a folder, and the end of a path says whose it is.
    places = [f"/{place[-400:].lstrip('/')}" for place in (frame.file, frame.module, frame.function) if place]
    for name, lists in _load_backends().items():
        for pattern in lists["places"]:
            if any(fnmatch.fnmatchcase(place, pattern) for place in places):
                return name
    return ""
