"""Cases out of whatever lies in a folder: what other tools leave behind, each told apart by the files that it consists of."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.gen.bad_input import BadInput, shown
from opsieve.gen.case import Case, Origin, is_case
from opsieve.gen.data_set import check_values
from opsieve.gen.files import is_folder
from opsieve.gen.intake import open_case
from opsieve.gen.model import load_program
from opsieve.gen.plain_pickle import read_oracle
from opsieve.gen.tensors import graph_inputs, graph_outputs

_DEPTH = 8  # folders inside folders
_MOST = 100_000  # things looked at
_PASSED_BY = (".pb", ".npz", ".json", ".log", ".txt", ".md", ".data", ".bin", ".weight")  # what belongs to a model


@dataclass(frozen=True, slots=True)
class Taken:
    """A case that was found, its kind in words, and where."""

    path: Path
    kind: str
    case: Case


@dataclass(frozen=True, slots=True)
class Left:
    """Something that was found and not taken, and why."""

    path: Path
    reason: str


def gather(path: Path) -> Iterator[Taken | Left]:
    """Every case at `path` or below it, in the order of names, and what was left.

    A case folder; an NNSmith bug folder (a model and `oracle.pkl`); a folder with a model and ONNX data sets, as ONNX's and
    onnxruntime's own tests have it, which gives a case for each data set; a model with an `.npz` of its name or `inputs.npz` beside it,
    or alone, with seeded inputs. Links to folders are not followed.
    """
    seen = 0
    if not is_folder(path):
        yield _alone(path)
        return
    for folder, inner, files in os.walk(path):
        inner.sort()
        here = Path(folder)
        seen += len(files) + 1
        if seen > _MOST or len(here.relative_to(path).parts) >= _DEPTH:
            inner.clear()
            yield Left(here, "it lies too deep or there is too much: import a part")
            continue
        found, used = _folder(here, sorted(files))
        yield from found
        if is_case(here):
            inner.clear()
        inner[:] = [name for name in inner if name not in used]
        if not found:
            for name in sorted(files):
                if not name.endswith(_PASSED_BY) or name.endswith((".npz",)):
                    yield Left(here / name, "it is no model, and there is none beside it")


def _folder(folder: Path, files: list[str]) -> tuple[list[Taken | Left], set[str]]:
    """What a folder itself holds, and the names of the folders inside that belong to it."""
    if is_case(folder):
        return [_taken(folder, "case", folder)], set()
    models = [folder / name for name in files if name.endswith(".onnx")]
    sets = sorted(entry.name for entry in folder.glob("test_data_set_*") if entry.is_dir())
    if len(models) == 1 and "oracle.pkl" in files:
        return [_nnsmith(folder, models[0])], set()
    if len(models) == 1 and sets:
        return [_taken(folder / name, "ONNX data set", models[0], folder / name) for name in sets], set(sets)
    return [_alone(model, len(models) == 1) for model in models], set()


def _alone(model: Path, only: bool = False) -> Taken | Left:
    """A model, with values of its own name beside it if there are any."""
    own = model.with_suffix(".npz")
    if own.exists():
        return _taken(model, "model with .npz", model, own)
    if only and (model.parent / "inputs.npz").exists():
        expected = model.parent / "expected.npz"
        return _taken(model, "model with .npz", model, model.parent / "inputs.npz", expected)
    return _taken(model, "model", model)


def _taken(
    path: Path, kind: str, model: Path, inputs: Path | None = None, expected: Path | None = None
) -> Taken | Left:
    try:
        given = expected if expected is not None and expected.exists() else None
        return Taken(path, kind, open_case(model, inputs, given))
    except BadInput as error:
        return Left(path, str(error))


def _nnsmith(folder: Path, model: Path) -> Taken | Left:
    try:
        program = load_program(model)
        oracle = read_oracle(folder / "oracle.pkl")
        inputs, outputs = graph_inputs(program.proto), graph_outputs(program.proto)
        if "input" not in oracle:
            raise BadInput(f"{shown(folder / 'oracle.pkl', 160)} holds no inputs")
        values = {name: oracle["input"][name] for name in inputs if name in oracle["input"]}
        check_values(values, inputs, "input", "oracle.pkl")
        given = oracle.get("output")
        expected = {name: given[name] for name in outputs if name in given} if given else None
        if expected is not None:
            check_values(expected, outputs, "output", "oracle.pkl")
    except BadInput as error:
        return Left(folder, str(error))
    program = replace(program, name=folder.name)
    return Taken(
        folder,
        "NNSmith bug",
        Case(program, dict(values), expected and dict(expected), Origin("nnsmith", None, {}, "oracle.pkl")),
    )
