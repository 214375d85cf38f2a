"""One call of `opsieve import`: models and values of other tools, each written as a case folder."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opsieve.backends.workers.questions.programs import Choice, read_script
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, Origin, save
from opsieve.gen.case.import_folder import Imported, ImportResult, Skipped, gather
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import ir_of, make_inputs


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The files or folders to import, and the folder of the cases.

    With `scripts` the paths are Python files that make programs, which a worker runs; `module`, `entry`
    and `passes` choose among their contents.
    """

    paths: tuple[Path, ...]
    output: Path
    scripts: bool = False
    module: str = ""
    entry: str = ""
    passes: str = ""


@dataclass(frozen=True, slots=True)
class ImportedCase:
    """A case written to the folder `case`: its source, its kind, and whether it has expected outputs."""

    path: Path
    kind: str
    case: Path
    expected: bool


def import_cases(request: ImportRequest) -> Iterator[ImportedCase | Skipped]:
    """Import every case that the paths hold; a refused one does not affect the others.

    Raises:
        BadInput: If options of scripts are given without `scripts`.
    """
    if not request.scripts and (request.module or request.entry or request.passes):
        raise BadInput("--module, --entry and --passes are about scripts: add --script")
    used: Counter[str] = Counter()
    for found in _iter_scripts(request) if request.scripts else _iter_folders(request):
        if isinstance(found, Skipped):
            yield found
            continue
        parts = [part for part in (found.path.parent.name, found.path.stem) if part]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))[:80].lstrip(".-") or "case"
        # Many tools call every file model.onnx; the digest tells different models apart.
        name = f"{name}-{found.case.program.digest[:8]}"
        # One model with other values, or in another place
        used[name] += 1
        folder = request.output / (name if used[name] == 1 else f"{name}-{used[name]}")
        try:
            save(found.case, folder)
        except BadInput as error:
            yield Skipped(found.path, str(error))
        else:
            yield ImportedCase(found.path, found.kind, folder, found.case.expected is not None)


def _iter_folders(request: ImportRequest) -> Iterator[ImportResult]:
    for path in request.paths:
        yield from gather(path)


def _iter_scripts(request: ImportRequest) -> Iterator[ImportResult]:
    """Import the cases of files that make programs."""
    with Workers() as workers:
        for path in request.paths:
            try:
                choice = Choice(request.module, request.entry, request.passes)
                program, given = read_script(path, workers, choice)
            except BadInput as error:
                yield Skipped(path, str(error))
            else:
                # A script may bring no values; inputs are then drawn from a fixed seed.
                inputs = {**make_inputs(program, 0), **given}
                origin = Origin("import", 0, {}, "script" if given else "seeded")
                yield Imported(path, ir_of(program).script_language, Case(program, inputs, origin=origin))
