"""Cases out of whatever lies in a folder: what other tools leave behind, recognised by the files that it
consists of; and Polygraphy's JSON of inputs.
"""

import base64
import binascii
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opsieve.gen.case.case import Case, Origin, is_case, open_case
from opsieve.gen.case.plain_pickle import read_oracle
from opsieve.gen.data.data_set import check_values, fit_values, read_npy
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.model import printable, tensors
from opsieve.gen.model.files import bound_reading, is_folder, read_file

# The deepest nesting of folders that is searched.
_DEPTH = 8
# The most entries that are looked at.
_MOST = 100_000
# Endings of files that belong to a model; they are not reported as skipped.
_PASSED_BY = (
    ".pb",
    ".npz",
    ".json",
    ".log",
    ".txt",
    ".md",
    ".data",
    ".bin",
    ".weight",
)
_FOREIGN = {
    "it is an archive: unpack it first": (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z"),
    "it is a model of another format: export it to ONNX first": (
        ".pt", ".pth", ".pt2", ".h5", ".keras", ".tflite", ".ort", ".mlmodel",
    ),
    "it holds values and there is no model beside it": (".npz", ".npy", ".pb"),
    "it is a pickle, which is read only as oracle.pkl beside one model": (".pkl", ".pickle"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Imported:
    """A case that was found, its kind in words, and where."""

    path: Path
    kind: str
    case: Case


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was found and not taken, and why."""

    path: Path
    reason: str
    # The exception, if a fault of opsieve itself is the reason.
    fault: Exception | None = None


ImportResult = Imported | Skipped


def gather(path: Path) -> Iterator[ImportResult]:
    """Yield every case at `path` or below it, in the order of names, and the skipped files.

    A case folder; an NNSmith bug folder (a model and `oracle.pkl`); a folder with a model and ONNX data sets,
    as ONNX's and onnxruntime's own tests have it, which gives a case for each data set; a model with inputs
    that Polygraphy saved, which gives a case for each iteration; a model with an `.npz` of its name or
    `inputs.npz` beside it, or alone, with seeded inputs. Links to folders are not followed, nor are links to
    files out of `path`.
    """
    if not is_folder(path):
        yield _alone(path)
        return
    root, seen = os.path.realpath(path), 0
    unread: list[OSError] = []
    for folder, inner, files in os.walk(path, onerror=unread.append):
        # In place, since `os.walk` goes through this list.
        inner.sort()
        here = Path(folder)
        seen += len(files) + 1
        if seen > _MOST or len(here.relative_to(path).parts) >= _DEPTH:
            inner.clear()
            yield Skipped(here, "it lies too deep or there is too much: import a part")
            continue
        astray = _astray(here, [*inner, *sorted(files)], root)
        yield from astray.values()
        try:
            found, used = _folder(here, [name for name in sorted(files) if name not in astray], root)
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001
            # A fault of opsieve in one folder must not stop the import of the others.
            found, used = [Skipped(here, "opsieve failed to read it", error)], set()
        yield from found
        if is_case(here):
            inner.clear()
        inner[:] = [name for name in inner if name not in used]
        if not found:
            for name in sorted(files):
                if name not in astray and (not name.endswith(_PASSED_BY) or name.endswith((".npz", ".pb"))):
                    yield Skipped(here / name, _stranger(name))
    yield from (Skipped(Path(error.filename), f"it cannot be read: {error.strerror}") for error in unread)


def _astray(folder: Path, names: list[str], root: str) -> dict[str, Skipped]:
    """Return the links among these names that are not followed: a foreign folder may link to any file."""
    found = {}
    for name in names:
        path = folder / name
        if not path.is_symlink():
            continue
        try:
            outside = os.path.commonpath([root, os.path.realpath(path, strict=True)]) != root
            if is_folder(path):
                found[name] = Skipped(
                    path, "it is a link to a folder, which is not followed: import that folder itself"
                )
            elif outside:
                found[name] = Skipped(
                    path, "it is a link out of the folder that is imported: put the file itself there"
                )
        except (OSError, RuntimeError):
            # A broken link, or a link to itself.
            found[name] = Skipped(path, "it is a link that leads nowhere")
    return found


def _stranger(name: str) -> str:
    """Explain why a file in a folder without a model is not imported."""
    for what, endings in _FOREIGN.items():
        if name.lower().endswith(endings):
            return what
    return "it is no model, and there is none beside it"


def _folder(folder: Path, files: list[str], root: str) -> tuple[list[ImportResult], set[str]]:
    """Import the cases of one folder, and return the names of the inner folders that belong to them."""
    if is_case(folder):
        return [_import_case(folder, "case", folder)], set()
    models = [folder / name for name in files if name.endswith(".onnx")]
    sets = sorted(
        entry.name for entry in folder.glob("test_data_set_*") if entry.is_dir() and not entry.is_symlink()
    )
    if len(models) == 1 and "oracle.pkl" in files:
        return [_nnsmith(folder, models[0])], set()
    if len(models) == 1 and sets:
        return [_data_set(folder / name, models[0], root) for name in sets], set(sets)
    saved = [folder / name for name in files if name.endswith(".json") and len(models) == 1]
    saved = [path for path in saved if is_polygraphy(path)]
    if saved:
        found = [one for path in saved for one in _polygraphy(path, models[0])]
        beside = [] if any(isinstance(one, Imported) for one in found) else [_alone(models[0], True)]
        return found + beside, set()
    return [_alone(model, len(models) == 1) for model in models], set()


def _alone(model: Path, only: bool = False) -> ImportResult:
    """Return a model, with values of its own name beside it if there are any."""
    own = model.with_suffix(".npz")
    if own.exists():
        return _import_case(model, "model with .npz", model, own)
    if only and (model.parent / "inputs.npz").exists():
        expected = model.parent / "expected.npz"
        return _import_case(model, "model with .npz", model, model.parent / "inputs.npz", expected)
    return _import_case(model, "model", model)


def _data_set(folder: Path, model: Path, root: str) -> ImportResult:
    try:
        astray = _astray(folder, sorted(entry.name for entry in folder.iterdir()), root)
    except OSError as error:
        return Skipped(folder, f"it cannot be read: {error.strerror}")
    return next(iter(astray.values()), None) or _import_case(folder, "ONNX data set", model, folder)


def _import_case(
    path: Path, kind: str, model: Path, inputs: Path | None = None, expected: Path | None = None
) -> ImportResult:
    try:
        given = expected if expected is not None and expected.exists() else None
        return Imported(path, kind, open_case(model, inputs, given))
    except BadInput as error:
        return Skipped(path, str(error))
    except Exception as error:  # noqa: BLE001  as above
        return Skipped(path, "opsieve failed to read it", error)


def _polygraphy(path: Path, model: Path) -> list[ImportResult]:
    """Return a case for each iteration whose inputs are saved at `path`; what did not fit is reported for the
    first of them only.
    """
    try:
        program = load_program(model)
        feeds = read_polygraphy_inputs(path)
        types = tensors.graph_inputs(program.proto)
        values = [fit_values(feed, types, "input", shown(path, 120)) for feed in feeds]
    except BadInput as error:
        return [Skipped(path, str(error))]
    origin = Origin("user", None, {}, printable.escape_surrogates(path.name))
    return [Imported(path, "Polygraphy inputs", Case(program, dict(feed), None, origin)) for feed in values]


def _nnsmith(folder: Path, model: Path) -> ImportResult:
    try:
        program = load_program(model)
        oracle = read_oracle(folder / "oracle.pkl")
        inputs, outputs = tensors.graph_inputs(program.proto), tensors.graph_outputs(program.proto)
        if "input" not in oracle:
            raise BadInput(f"{shown(folder / 'oracle.pkl', 160)} holds no inputs")
        values = {name: oracle["input"][name] for name in inputs if name in oracle["input"]}
        check_values(values, inputs, "input", "oracle.pkl")
        given = oracle.get("output")
        expected = {name: given[name] for name in outputs if name in given} if given else None
        if expected is not None:
            check_values(expected, outputs, "output", "oracle.pkl")
    except BadInput as error:
        return Skipped(folder, str(error))
    program = replace(program, name=folder.name)
    return Imported(
        folder,
        "NNSmith bug",
        Case(program, dict(values), expected and dict(expected), Origin("nnsmith", None, {}, "oracle.pkl")),
    )


# Inputs as Polygraphy saves them: JSON with base64 of numpy's `.npy` files.


# Inputs as base64 take four thirds of their bytes, so this admits about 190 MiB of arrays.
_LIMIT = 256 << 20
_CLASS = "polygraphy_class"

Arrays = dict[str, np.ndarray[Any, Any]]


@bound_reading
def is_polygraphy(path: Path) -> bool:
    """Return whether a JSON file speaks of Polygraphy's classes; False for one that cannot be read or is over
    256 MiB.
    """
    try:
        return f'"{_CLASS}"'.encode() in read_file(path, _LIMIT)
    except BadInput:
        return False


@bound_reading
def read_polygraphy_inputs(path: Path) -> list[Arrays]:
    """Return the arrays by name of each iteration; BadInput for results of runners, and for anything that is
    not plain arrays.
    """
    where = shown(path, 160)
    try:
        feeds = msgspec.json.decode(read_file(path, _LIMIT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{where} is not readable JSON: {shown(str(error), 120)}") from None
    if isinstance(feeds, dict) and feeds.get(_CLASS) == "RunResults":
        raise BadInput(f"{where} holds the results of some runners, which may be wrong: import their inputs")
    if not isinstance(feeds, list) or not feeds or not all(isinstance(feed, dict) for feed in feeds):
        raise BadInput(f"{where} holds no list of inputs as Polygraphy saves them")
    return [
        {name: _array(value, f"the value of {shown(name)} in {where}") for name, value in feed.items()}
        for feed in feeds
    ]


def _array(value: Any, where: str) -> np.ndarray[Any, Any]:
    if (
        not isinstance(value, dict)
        or value.get(_CLASS) != "ndarray"
        or not isinstance(value.get("array"), str)
    ):
        kind = value.get(_CLASS) if isinstance(value, dict) else type(value).__name__
        raise BadInput(f"{where} is {shown(kind)} instead of an array: save numpy arrays")
    try:
        data = base64.b64decode(value["array"], validate=True)
        return read_npy(io.BytesIO(data), len(data), where)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{where} is not an array in base64: {shown(str(error), 120)}") from None
