"""`corpus.json` with the recorded verdicts of a corpus's cases, and the results printed by `corpus run
--json`.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_output
from opsieve.gen.model.files import bound_reading, read_file
from opsieve.triage.corpus.states import SeenVerdict, Word

NAME = "corpus.json"
FORMAT = 1
_MOST = 256 << 20
# One folder in the corpus, never a path out of it
_CASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")


@dataclass(frozen=True, slots=True)
class Bug:
    """The facts of the bug that a case shows, for a corpus that is a collection of bugs.

    `fails` is the target on which the bug was found, with its release, and `passes` a target without the bug.
    `what` says in one line what is wrong. `guilty` is the pass or the place in the source that is at fault.
    `fixed_in` is the first release without the bug and `fixed_on` the day on which that was observed;
    `upstream` is the address of the project's own issue. `same_as` names the case of the same bug that is
    counted; other cases of that bug are kept, and not counted. All but the first five may be "", unknown.
    """

    fails: str
    passes: str
    what: str
    operators: tuple[str, ...]
    oracles: tuple[str, ...]
    guilty: str = ""
    first_bad: str = ""
    fixed_in: str = ""
    fixed_on: str = ""
    upstream: str = ""
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """A case of a corpus: a digest of its program and values, what was seen of it by target, and its bug."""

    digest: str
    targets: dict[str, SeenVerdict] = field(default_factory=dict)
    bug: Bug | None = None


@dataclass(frozen=True, slots=True)
class _CorpusFile:
    format: int
    cases: dict[str, CorpusEntry]


@dataclass(frozen=True, slots=True)
class _Result:
    case: Word
    target: Word
    after: SeenVerdict | None
    reason: str = ""
    seconds: float = 0.0
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Results:
    results: list[_Result]


def is_corpus(folder: Path) -> bool:
    """Whether a folder has a corpus.json."""
    return (folder / NAME).exists()


@bound_reading
def read_corpus(folder: Path) -> dict[str, CorpusEntry]:
    """Read the cases of a corpus by name.

    Raises:
        BadInput: If the file is missing or invalid.
    """
    path = folder / NAME
    if not is_corpus(folder):
        raise BadInput(f"{shown(folder, 200)} is no corpus: it has no {NAME}; `opsieve corpus add` makes one")
    try:
        file = msgspec.json.decode(read_file(path, _MOST), type=_CorpusFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{shown(path, 200)} is no description of a corpus: {shown(str(error), 120)}"
        ) from None
    if file.format > FORMAT:
        raise BadInput(
            f"{shown(path, 200)} has format {file.format}, newer than this opsieve's {FORMAT}; upgrade"
            " opsieve"
        )
    if file.format < 1:
        raise BadInput(f"{shown(path, 200)} has the unknown format {file.format}")
    for name in file.cases:
        if not _CASE.fullmatch(name):
            raise BadInput(
                f"{shown(path, 200)} names the case {shown(name)}, which is no name of a folder in a corpus"
            )
    return file.cases


def write_corpus(folder: Path, cases: Mapping[str, CorpusEntry]) -> None:
    """Write corpus.json atomically, sorted by name.

    Raises:
        BadInput: If it cannot be written.
    """
    found = {
        name: {
            "digest": entry.digest,
            "targets": {text: asdict(seen) for text, seen in sorted(entry.targets.items())},
            **({} if entry.bug is None else {"bug": asdict(entry.bug)}),
        }
        for name, entry in sorted(cases.items())
    }
    data = msgspec.json.format(msgspec.json.encode({"format": FORMAT, "cases": found}), indent=2) + b"\n"
    write_output(folder / NAME, data)


@bound_reading
def read_results(path: Path) -> list[_Result]:
    """Read the results in an output of `corpus run --json`.

    Raises:
        BadInput: If it is invalid.
    """
    try:
        return msgspec.json.decode(read_file(path, _MOST), type=_Results).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{shown(path, 200)} is no output of `corpus run --json`: {shown(str(error), 120)}"
        ) from None


def make_case_name(path: Path) -> str:
    """Make a name for the case at `path`: `X-reduced` for the folder `reduced` of X."""
    path = path.absolute()
    words = path.stem if path.suffix in (".onnx", ".json") else path.name
    if words in ("model", "module", "reduced", "case"):
        words = f"{path.parent.name}-{words}"
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in words)[:100].lstrip(
        "-."
    )
    return name or "case"
