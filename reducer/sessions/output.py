"""The output of a reduction on disk: a case folder with the reduced model, its inputs, a script and the whole
story.

FOLDER/case.reduced.onnx    the model (.json for a module of TVM; model.onnx and case.json too: the folder is
a case that every command takes)
FOLDER/test_data_set_0/     its inputs
FOLDER/repro.py             a script that shows the failure without opsieve
FOLDER/reduction.json       figures, certificate and every attempt
FOLDER/other_failures/KEY/  different failures found while reducing, a case folder each
"""

import errno
import hashlib
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from opsieve.backends.judge.oracle_names import ORACLE
from opsieve.backends.judge.oracles import DERIVING
from opsieve.backends.judge.reasons import describe_mismatch
from opsieve.backends.judge.shown_failure import compare_runs
from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import print_program
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, Origin, save
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import ir_of, rename
from opsieve.gen.model.durable import make_folder, write_output
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.census import PartLine
from opsieve.reducer.engine.certificate import Certificate
from opsieve.reducer.engine.form import Size, SubjectKind
from opsieve.reducer.engine.interestingness import ResultKind, runs_for
from opsieve.reducer.engine.journal import Attempt, Journal
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.reducer.sessions.reduction import Reduction
from opsieve.triage.export.export_input import ORACLES, ExportedFailure, find_expected, use_given_program
from opsieve.triage.export.program_source import get_text
from opsieve.triage.export.script import write_script as written
from opsieve.triage.store.failure_record import NAME, read_failure
from opsieve.version import VERSION

# The suffix of the IR is appended: `.onnx`, `.json`.
MODEL = "case.reduced"
STORY = "reduction.json"
SCRIPT = "repro.py"
OTHERS = "other_failures"
# Keys become folder names and may come from a resumed journal, so that only these characters are allowed.
_KEY = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NOTHING: dict[str, Any] = {
    "checks": 0,
    "node_checks": 0,
    "invalid_candidates": 0,
    "seconds": 0.0,
    "level": "",
    "judged": False,
    "same": False,
    "minimal": False,
    "census": {},
    "not_tried": [],
    "census_checks": 0,
    "replays": None,
    "noise": None,
    "slippage": 0,
    # Releases before 0.2 called `slippage` so, and scripts may read it.
    "slipped": 0,
    "rest_fails": "",
    "finished": True,
    "message": "",
}
STOPPED = "the budget is spent: the same command continues from the best so far"
UNFINISHED = "interrupted: the best so far, which the judge has not seen"


def lock_folder(folder: Path) -> socket.socket:
    """Return a lock on the folder of a result, which ends with this process at the latest.

    Raises:
        BadInput: If another reduction holds it: each would remove what the other one wrote.
    """
    # An abstract name leaves nothing on disk; elsewhere than on Linux there is none, and no lock.
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind("\0opsieve-" + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            lock.close()
            raise BadInput(
                f"another reduction writes {shown(folder, 200)}: wait for it, or name another folder with -o"
            ) from None
    return lock


def save_subject(
    subject: Runnable,
    folder: Path,
    name: str,
    origin: Origin,
    target: str,
    oracle: str = "",
    expected: dict[str, Value] | None = None,
) -> None:
    """Write a subject as a case, all or nothing, and its model under the name that people look for.

    `target` is the failing one, "" if a user's check decides. Commands that take the case run it there, with
    the optional `oracle` that saw the failure (`name_optional_oracle`), and compare with `expected`.
    """
    parameters = {name: value for name, value in (("target", target), (ORACLE, oracle)) if value}
    case = Case(rename(subject.program, name), subject.inputs, expected, origin, parameters)
    save(case, folder, claimed=True)
    write_output(folder / model_name(subject.program), subject.program.chunks())


def model_name(program: Program) -> str:
    """Return the name of the model's file in the result's folder."""
    return f"{MODEL}{ir_of(program).suffix}"


def save_reduction(
    reduction: Reduction[Any],
    folder: Path,
    name: str,
    origin: Origin,
    facts: dict[str, Any],
    journal: Journal,
    script: str,
    oracle: str,
    expected: dict[str, Value] | None,
) -> None:
    """Write everything. `facts` are the keys that `--json` prints."""
    save_subject(reduction.best, folder, name, origin, facts["target"], oracle, expected)
    if script:
        write_output(folder / SCRIPT, script.encode())
    attempts = [msgspec.to_builtins(attempt) for attempt in journal.attempts]
    save_story(folder, {**facts, **certificate_rows(reduction.certificate), "attempts": attempts})
    for key, subject in sorted(reduction.slippage.items()):
        if key and set(key) <= _KEY:
            make_folder(folder / OTHERS)
            save_subject(subject, folder / OTHERS / key, name, origin, facts["target"])


def save_story(folder: Path, facts: dict[str, Any]) -> None:
    """Write `reduction.json`."""
    story = {"opsieve": VERSION, **facts}
    write_output(folder / STORY, msgspec.json.format(msgspec.json.encode(story), indent=1) + b"\n")


def shapes(subject: Runnable) -> list[str]:
    """List the inputs of a subject as `name type[shape]`, with names shortened and escaped."""
    found: Sequence[tuple[str, Any]] = list(subject.inputs.items())
    return [
        f"{shown(name, 30)}"
        f" {value.dtype.name if hasattr(value, 'dtype') else 'sequence'}{list(getattr(value, 'shape', []))}"
        for name, value in found
    ]


def facts_of(
    form: SubjectKind[Any], reduction: Reduction[Any], premise: Premise | None, level: str, seconds: float
) -> dict[str, Any]:
    """Return the facts of a finished reduction; without a premise, a user's check decided what fails."""
    return {
        **_failure(premise),
        **_sizes(form.size(reduction.start), form.size(reduction.best)),
        "checks": reduction.checks,
        "node_checks": reduction.node_checks,
        "invalid_candidates": reduction.invalid,
        "seconds": round(seconds, 3),
        "level": "" if premise is None else "cure" if reduction.judged else level,
        "judged": reduction.judged,
        "same": reduction.same,
        "minimal": reduction.minimal,
        **census_facts(reduction.certificate.parts),
        "census_checks": reduction.census_checks,
        "replays": _replays(reduction.replays),
        "noise": None
        if (noise := reduction.noise) is None
        else {"start": _replays(noise.start), "rest": _replays(noise.rest)},
        "slippage": len(reduction.slippage),
        # Its name before 0.2
        "slipped": len(reduction.slippage),
        "rest_fails": reduction.rest_fails,
        "finished": reduction.certificate.complete,
        "message": "" if reduction.certificate.complete else STOPPED,
    }


def facts_unfinished(
    form: SubjectKind[Any], start: Any, best: Any, premise: Premise | None, level: str, checks: int
) -> dict[str, Any]:
    """Return the facts of an interrupted reduction: the last test saw the failure in `best`, and the
    judge did not run.
    """
    sizes = _sizes(form.size(start), form.size(best))
    found = {"checks": checks, "level": level, "same": True, "finished": False, "message": UNFINISHED}
    return {**_failure(premise), **sizes, **_NOTHING, **found}


def facts_of_none(size: Size, message: str) -> dict[str, Any]:
    """Return the same keys as `facts_of` for a program that does not fail."""
    nothing = {**_NOTHING, "message": message, "output": "", "script": ""}
    return {**_failure(None), "kind": "", **_sizes(size, size), **nothing}


def acceptance(attempts: Iterable[Attempt]) -> dict[str, dict[str, int]]:
    """Count the results of each dimension's candidates, in the order in which dimensions were first tried."""
    found: dict[str, dict[str, int]] = {}
    for attempt in attempts:
        row = found.setdefault(attempt.dimension, dict.fromkeys(get_args(ResultKind), 0))
        row[attempt.result().kind] += 1
    return found


def certificate_rows(certificate: Certificate) -> dict[str, Any]:
    """Return the certificate as JSON, by dimension and by part; `slipped` is the old name of `slippage`,
    from before 0.2.
    """
    lines = [{**asdict(line), "slipped": line.slippage} for line in certificate.lines]
    return {"certificate": lines, "parts": [asdict(part) for part in certificate.parts]}


def census_facts(parts: Sequence[PartLine]) -> dict[str, Any]:
    """Count the parts of each kind: all, tried, and already simplest; and list the parts that were not
    tried.
    """
    census: dict[str, dict[str, int]] = {}
    for part in parts:
        row = census.setdefault(part.kind, {"parts": 0, "tried": 0, "simplest": 0})
        row["parts"] += 1
        row["tried"] += not part.why
        row["simplest"] += part.simplest
    left = [{"kind": part.kind, "part": part.part, "why": part.why} for part in parts if part.is_open]
    return {"census": census, "not_tried": left}


def _failure(premise: Premise | None) -> dict[str, Any]:
    return {
        "target": "" if premise is None else premise.target.display,
        "kind": "check" if premise is None else premise.failure.verdict.kind,
        "fingerprint": "" if premise is None else premise.failure.fingerprint.key,
    }


def _sizes(before: Size, after: Size) -> dict[str, Any]:
    return {
        "nodes_before": before.nodes,
        "inner_nodes_before": before.inner_nodes,
        "nodes_after": after.nodes,
        "inner_nodes_after": after.inner_nodes,
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
    }


def _replays(seen: tuple[int, int] | None) -> dict[str, int] | None:
    return None if seen is None else {"failed": seen[0], "runs": seen[1]}


# Find cases of a store to reduce by the names that people use, with the targets on which they fail.


def place_of(what: Path, store: Path) -> Path:
    """Return the case folder for a path, or for the name of a cluster or a fingerprint in a store: its
    smallest case.

    Raises BadInput for a name that the store does not know, or whose cases it did not keep. Anything else is
    returned unchanged.
    """
    # A path that exists always means itself, also if a cluster has its name.
    if what.exists() or len(what.parts) != 1 or what.suffix or not store.is_dir():
        return what
    from opsieve.triage.store.queries import Queries
    from opsieve.triage.store.store_folder import get_case_folder

    with Queries(store) as queries:
        found = queries.cluster(str(what)).representative
    if not found:
        raise BadInput(f"of {shown(what, 120)} no case was kept in {shown(store, 120)}; name another cluster")
    return get_case_folder(store, found)


def target_of(place: Path) -> str:
    """Return the target on which a case of a store fails; "" for any other case."""
    return read_failure(place).target if (place / NAME).is_file() else ""


def title_of(place: Path) -> str:
    """Return the name for the results of a case: its own, preceded by the fingerprint if it lies in a store,
    where cases are only numbered.
    """
    place = place.resolve()
    name = place.name.removesuffix(".onnx")
    return f"{place.parent.name}-{name}" if (place / NAME).is_file() else name


def print_subject(subject: Runnable, workers: Workers) -> str:
    """Return the program as text; a sentence for a model that onnx cannot print."""
    ir = ir_of(subject.program)
    if ir.keeps_script or not ir.printer(subject.program):
        return subject.program.text()
    return print_program(subject.program, workers).text or "(onnx.printer cannot print it)"


def script(subject: Runnable, premise: Premise, workers: Workers) -> str:
    """Return the source of `repro.py`. An arbiter that the user named takes precedence over the reference.

    Raises:
        BadInput: If no script can show the failure.
    """
    case, lab = Case(subject.program, subject.inputs), ObservationCache(workers)
    seen = lab.observe(premise.target, case.program, case.inputs)
    # The oracle that derives types has no values to write into a script.
    arbiter = () if premise.arbiter in (None, DERIVING) else (premise.arbiter,)
    oracles = arbiter if premise.named else (*ORACLES, *arbiter)
    verdict = replace(premise.failure.verdict, reason=premise.reason)
    if verdict.kind in WRONG_OUTPUTS and premise.arbiter is not None:
        worst = compare_runs(
            subject.program, seen, lab.observe(premise.arbiter, case.program, case.inputs)
        ).worst
        reason = (
            f"{premise.target.display} differs from {premise.arbiter.display}: {describe_mismatch(worst)}"
        )
        verdict = replace(verdict, mismatch=worst, reason=reason)
    # An invalid program has no right outputs.
    if verdict.kind == "accepts-invalid":
        exported = ExportedFailure(case, premise.target, verdict, seen)
    elif premise.chance < 1:
        # This run may have passed; the premise holds a run that failed.
        right, source = find_expected(case, verdict, None, lab, oracles)
        exported = ExportedFailure(
            case,
            premise.target,
            verdict,
            premise.observation,
            right,
            source,
            premise.replays,
            runs_for(premise.chance),
        )
    else:
        right, source = find_expected(case, verdict, seen.outputs, lab, oracles)
        exported = ExportedFailure(case, premise.target, verdict, seen, right, source)
    exported = use_given_program(exported)
    return written(exported, get_text(exported, workers))
