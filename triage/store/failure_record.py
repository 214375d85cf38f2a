"""failure.json: the index's facts about a case, and the data from which they can be recomputed."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import durable, files
from opsieve.triage.fingerprint.component import Component, ComponentName, decode_component, encode_component
from opsieve.triage.fingerprint.fingerprint import Fingerprint

NAME = "failure.json"
_MAX_JSON = 1 << 20
_MAX_TEXT = 4000
# The range of SQLite's integers.
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_MAX_OBSERVATION = 64 << 20
_MOST_OBSERVATIONS = 32


@dataclass(frozen=True, slots=True)
class AbsentOutput:
    """An output with only its dtype on record."""

    dtype: str


class FailureRecord(msgspec.Struct, kw_only=True):
    """The contents of the file. Fields added after the first release have defaults, because older files lack
    them.
    """

    format: int
    generator: str
    seed: _Number
    campaign: str
    targets: list[str]
    test: _Number
    target: str
    verdict: str
    kind: str
    stage: str
    fingerprint: str
    fingerprint_version: _Number
    message: str
    reason: str
    blame: str
    version: str
    digest: str
    components: list[dict[str, Any]]
    # The number of the fingerprint in its store, from 1 on; 0 before it has one.
    number: _Number = 0
    # Of the program, bodies included, each once
    operators: list[str] = []
    nodes: _Number = 0
    mismatch: dict[str, Any] | None = None
    # Of the output that is wrong
    dtype: str = ""


@files.bound_reading
def read_failure(folder: Path) -> FailureRecord:
    """Read the file of a case folder.

    Raises:
        BadInput: If it is missing or unreadable.
    """
    path = folder / NAME
    try:
        return msgspec.json.decode(files.read_file(path, _MAX_JSON), type=FailureRecord)
    except (BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{shown(path, 160)} is not a failure record: {shown(str(error), 100)}") from None


def write_failure(folder: Path, record: FailureRecord) -> None:
    """Write the file atomically.

    Raises:
        BadInput: If the disk refuses.
    """
    text = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    durable.write_output(folder / NAME, text)


def parse_components(parts: Sequence[dict[str, Any]]) -> tuple[Component, ...]:
    """Parse components from the form of the file and the index; invalid ones are left out."""
    found = []
    for part in parts:
        # A record of another version may have components that this one does not know.
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found.append(decode_component(part))
    return tuple(found)


def read_components(text: str) -> tuple[Component, ...]:
    """Parse the components in a column of the index; () for an invalid column."""
    try:
        return parse_components(msgspec.json.decode(text, type=list[dict[str, Any]]))
    except (msgspec.DecodeError, RecursionError):
        return ()


def encode_components(fingerprint: Fingerprint) -> list[dict[str, Any]]:
    """Encode the components of a fingerprint for the file."""
    return [{**encode_component(part), "value": bound_text(part.value)} for part in fingerprint.components]


def encode_mismatch(mismatch: Mismatch) -> dict[str, Any]:
    """Encode a mismatch for the file, without numbers that JSON cannot express."""
    fields = {
        name: bound_text(field) if isinstance(field, str) else field
        for name, field in asdict(mismatch).items()
    }
    return {
        name: field
        for name, field in fields.items()
        # JSON has no infinity; a missing field is read as its default.
        if not (isinstance(field, float) and not math.isfinite(field))
    }


def get_verdict(record: FailureRecord) -> Verdict:
    """Rebuild the verdict from the file; a wrong result without a mismatch gets that of the components.

    Raises:
        BadInput: If the verdict is invalid.
    """
    mismatch = None
    known = {part.name: part.value for part in parse_components(record.components)}
    wrong = known.get(ComponentName.MISMATCH)
    with contextlib.suppress(TypeError, msgspec.ValidationError):
        if record.mismatch is not None:
            mismatch = msgspec.convert(record.mismatch, Mismatch)
        elif wrong:
            mismatch = msgspec.convert(
                {"output": known.get(ComponentName.OUTPUT, ""), "what": wrong}, Mismatch
            )
    fields = {
        "verdict": record.verdict,
        "reason": record.reason,
        "kind": record.kind or None,
        "stage": record.stage or None,
        "message": record.message,
        "blame": record.blame,
        "mismatch": mismatch,
    }
    try:
        return msgspec.convert(fields, Verdict)
    except msgspec.ValidationError as error:
        raise BadInput(f"a {NAME} tells of no verdict: {shown(str(error), 100)}") from None


@files.bound_reading
def read_observations(folder: Path) -> tuple[tuple[Observation, ...], str]:
    """Read the observations beside a case in order, and a sentence about an unreadable one ("": all were
    read).
    """
    found, problem = [], ""
    # The names begin with their place, so that the blamed target comes first.
    for path in sorted((folder / "observations").glob("*.json"))[:_MOST_OBSERVATIONS]:
        try:
            fields = msgspec.json.decode(files.read_file(path, _MAX_OBSERVATION), type=dict[str, Any])
            log = path.with_suffix(".log")
            if log.is_file():
                fields["log"] = files.read_file(log, _MAX_OBSERVATION).decode("utf-8", "replace")
            # Not strict, since JSON writes tuples as lists and whole seconds as integers.
            found.append(msgspec.convert(fields, Observation, strict=False))
        except (BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = f"{shown(path, 160)} is no observation: {shown(str(error), 100)}"
    return tuple(found), problem or ("" if found else f"there are no observations in {shown(folder, 160)}")


def read_blamed_observation(record: FailureRecord, folder: Path) -> Observation:
    """Read the observation of the blamed target; of a wrong output only the dtype is kept.

    Raises:
        BadInput: If it is unreadable.
    """
    found, problem = read_observations(folder)
    if not found:
        raise BadInput(problem)
    mismatch = get_verdict(record).mismatch
    return (
        found[0]
        if mismatch is None
        else replace(found[0], outputs={mismatch.output: AbsentOutput(_guess_dtype(record))})
    )


def _guess_dtype(record: FailureRecord) -> str:
    """Return the dtype of the wrong output, or a typical one of its class for older files."""
    known = {part.name: part.value for part in parse_components(record.components)}
    stand_in = {"float": "float32", "narrow float": "float16", "integer": "int64", "string": "object"}
    return record.dtype or stand_in.get(
        known.get(ComponentName.DTYPE, ""), known.get(ComponentName.DTYPE, "")
    )


def bound_text(text: str) -> str:
    """Truncate a compiler's text and escape what JSON and SQLite cannot hold."""
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
