"""A test case, in memory and as a folder that a person can read and `cp -r`.

    case.json           format, origin, parameters (`knobs`)
    model.onnx          the program, without external data (module.json and passes.json for a module of TVM:
    gen/irs) test_data_set_0/    input_K.pb and output_K.pb in the graph's order: ONNX's own layout, which
    other tools run too

What else lies in the folder (observations/, repro.py, notes.md) belongs to others and is left alone.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from opsieve.gen.data.data_set import check_values, read_folder, read_npz, write_folder
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import (
    ONNX,
    all_irs,
    ir_in,
    ir_named,
    ir_of,
    make_inputs,
    read_program,
    rename,
    write_program,
)
from opsieve.gen.model import printable, tensors
from opsieve.gen.model.durable import SAVING, put_folder, sweep
from opsieve.gen.model.files import bound_reading, is_folder, read_file, reason
from opsieve.gen.model.program import Program

# 2: programs of other IRs than ONNX, which need the key `form`.
FORMAT = 2
OF_ONNX = (
    # The format of ONNX cases, which releases before other IRs existed can read.
    1
)
# The name in ONNX's own test data, so that other tools find the values.
DATA = "test_data_set_0"
# A case may come from a stranger. A case.json of opsieve has kilobytes; the limit keeps a hostile one from
# filling the memory.
_MAX_JSON = 8 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a case: enough to generate it again.

    `generator` is what made the program (`user` for one that was given), `seed` its seed, `versions` those of
    the packages that took part. `inputs` says how the inputs came about: `seeded`, or the name of the file or
    folder they were read from. `wish` is what a generator was asked for, by name (gen/generation/request.py).
    `states` are the states of rewrites that the program holds (gen/strategies/patterns).
    """

    generator: str = "user"
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    inputs: str = ""
    wish: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A program, values for its inputs by name, its expected outputs (None if unknown), origin and
    parameters.

    `parameters` are the determinism settings that belong to the case: thread counts, seeds, environment
    variables.
    """

    program: Program
    inputs: dict[str, tensors.Value]
    expected: dict[str, tensors.Value] | None = None
    origin: Origin = field(default_factory=Origin)
    parameters: Mapping[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Return the program drawn, for notebooks."""
        return printable.drawing(ir_of(self.program).lines(self.program))


class _Origin(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    generator: str
    seed: int | None
    versions: dict[str, str]
    inputs: str
    wish: dict[str, str] = {}
    states: tuple[str, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: int
    name: str
    origin: _Origin
    knobs: dict[str, str]
    form: str = "onnx"


class _Format(msgspec.Struct):
    format: int


def is_case(folder: Path) -> bool:
    """Return whether a folder is a saved case, sound or not."""
    return os.path.lexists(folder / "case.json")


def save(case: Case, folder: Path, claimed: bool = False) -> None:
    """Write a case atomically: it is written beside `folder` and moved there. Equal cases give equal bytes.

    A case at that place is replaced; foreign files in its folder stay. Raises BadInput if the values do not
    fit the program, if the folder exists, is not a case and is not `claimed` by the caller, or if it cannot
    be written.
    """
    inputs, outputs = case.program.inputs(), case.program.outputs()
    check_values(case.inputs, inputs, "input", "the case")
    if case.expected is not None:
        check_values(case.expected, outputs, "output", "the case")
    folder = Path(os.path.abspath(folder))
    try:
        if (
            os.path.lexists(folder)
            and not (claimed and folder.is_dir())
            and not is_case(folder)
            and not (folder.is_dir() and not any(folder.iterdir()))
        ):
            raise BadInput(f"{shown(folder, 200)} is there already and is not a case; choose another folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        prefix = f"{SAVING}{os.getpid()}-"
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=prefix, ignore_cleanup_errors=True
        ) as scratch:
            fresh = Path(scratch) / "case"
            (fresh / DATA).mkdir(parents=True)
            (fresh / "case.json").write_bytes(_encode_case(case))
            write_program(case.program, fresh)
            write_folder(fresh / DATA, case.inputs, inputs, "input")
            if case.expected is not None:
                write_folder(fresh / DATA, case.expected, outputs, "output")
            _put(fresh, folder)
    except OSError as error:
        raise BadInput(f"cannot write the case {shown(folder, 200)}: {reason(error)}") from error


def load(folder: Path) -> Case:
    """Return the case in a folder; BadInput when a part of it is missing, corrupt, or written by a newer
    opsieve.
    """
    file = _decode_file(folder / "case.json")
    program = _read_program(folder, file)
    data = folder / DATA
    inputs = read_folder(data, program.inputs(), "input")
    expected = read_folder(data, program.outputs(), "output") if any(data.glob("output_*.pb")) else None
    found = file.origin
    origin = Origin(found.generator, found.seed, found.versions, found.inputs, found.wish, found.states)
    return Case(program, inputs, expected, origin, file.knobs)


def load_case_program(folder: Path) -> Program:
    """Return the program of a case folder, without its values; BadInput as `load`."""
    return _read_program(folder, _decode_file(folder / "case.json"))


def _read_program(folder: Path, file: "_File") -> Program:
    ir = ir_named(file.form)
    return rename(ir.read(folder / ir.files[0]), file.name)


def _encode_case(case: Case) -> bytes:
    origin = case.origin
    file = _File(
        OF_ONNX if case.program.ir == ONNX else FORMAT,
        case.program.name,
        _Origin(
            origin.generator,
            origin.seed,
            dict(sorted(origin.versions.items())),
            origin.inputs,
            dict(sorted(origin.wish.items())),
            origin.states,
        ),
        dict(sorted(case.parameters.items())),
        case.program.ir,
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


@bound_reading
def _decode_file(path: Path) -> _File:
    data = read_file(path, _MAX_JSON)
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise BadInput(
                f"{shown(path, 160)} has format {shown(found)}, newer than this opsieve's {FORMAT}; upgrade"
                " opsieve"
            )
        if found < 1:
            raise BadInput(f"{shown(path, 160)} has the unknown format {shown(found)}")
        return msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{shown(path, 160)} is not a case description: {shown(str(error), 120)}") from None


def _put(fresh: Path, folder: Path) -> None:
    """Move a finished case to its place. Foreign files of the old folder are linked into it before, so that
    they are never missing.
    """
    if os.path.lexists(folder):
        # The records of the IRs are loaded only where the folder holds other files than the new ones.
        left = [entry for entry in folder.iterdir() if not os.path.lexists(fresh / entry.name)]
        owned = {DATA, *(file for ir in all_irs() for file in ir.files)} if left else set()
        for entry in left:
            if entry.name in owned:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, fresh / entry.name, symlinks=True, copy_function=os.link)
            else:
                os.link(entry, fresh / entry.name, follow_symlinks=False)
    put_folder(fresh, folder)


Values = dict[str, tensors.Value]


def open_case(path: Path, inputs: Path | None = None, expected: Path | None = None, seed: int = 0) -> Case:
    """Return the case that `path` names, with the inputs and expected outputs that were named, or lie beside
    the model, or by `seed`.

    `path` is an `.onnx` file, a `.json` of TVM's, a case folder, or a folder with `model.onnx` or
    `module.json` and values: `test_data_set_0/`, or `inputs.npz` with or without `expected.npz`. In a folder
    the values must fit the model; beside an `.onnx` file that was named itself, those that do not fit belong
    to something else and are passed by. `inputs` and `expected` are an `.npz` file, an ONNX data set, or a
    folder that holds one or the other; expected outputs that come with `inputs` count too. Inputs that nobody
    gave are seeded. BadInput for anything that cannot be read or does not fit.
    """
    case = _find_case(path, seed, given=inputs is not None)
    if inputs is not None:
        # Outputs of the old inputs say nothing about new ones, so both are replaced.
        values, outputs = _values(inputs, case.program)
        if values is None:
            raise BadInput(f"{shown(inputs, 200)} holds no inputs: neither input_0.pb nor inputs.npz")
        case = replace(case, inputs=values, expected=outputs, origin=replace(case.origin, inputs=inputs.name))
    if expected is not None:
        case = replace(case, expected=_read_expected(expected, case.program))
    return case


def list_models(path: Path) -> list[Path]:
    """List the models that `path` names: itself, or the `.onnx` files, programs and cases in a folder."""
    if not is_folder(path) or _has_program(path):
        return [path]
    return sorted(each for each in path.glob("*") if each.suffix == ".onnx" or _has_program(each)) or [path]


def _has_program(folder: Path) -> bool:
    return is_case(folder) or ir_in(folder) is not None


def program_at(path: Path) -> Program:
    """Return the program that `path` names as `open_case` reads it, without values; BadInput likewise."""
    if not is_folder(path):
        return read_program(path)
    if is_case(path):
        return load_case_program(path)
    ir = ir_in(path)
    if ir is None:
        raise BadInput(
            f"the folder {shown(path, 200)} holds no program: it has neither case.json nor model.onnx nor"
            " module.json"
        )
    return ir.read(path / ir.files[0])


def _find_case(path: Path, seed: int, given: bool) -> Case:
    """Open the case at `path`; if inputs are `given`, its own are not read."""
    if is_case(path):
        return load(path)
    program = program_at(path)
    folder = path if is_folder(path) else path.parent
    values: Values | None = None
    outputs: Values | None = None
    source = ""
    if not given:
        source = DATA if _is_data_set(folder / DATA) else "inputs.npz"
        try:
            values, outputs = _values(folder, program)
        except BadInput:
            # Values beside a model that was named itself may belong to another model.
            if is_folder(path):
                raise
    if values is not None or given:
        return Case(program, values or {}, outputs, Origin(inputs=source))
    return Case(program, make_inputs(program, seed), None, Origin(seed=seed, inputs="seeded"))


def _values(path: Path, program: Program) -> tuple[Values | None, Values | None]:
    """Read inputs and expected outputs at `path`, a folder or an `.npz`; `None` for missing ones."""
    types, results = program.inputs(), program.outputs()
    if not is_folder(path):
        return read_npz(path, types, "input"), None
    for folder in (path, path / DATA):
        if _is_data_set(folder):
            # Data sets without outputs are allowed: users often have inputs only.
            outputs = read_folder(folder, results, "output") if any(folder.glob("output_*.pb")) else None
            return read_folder(folder, types, "input"), outputs
    if not (path / "inputs.npz").exists():
        return None, None
    outputs = read_npz(path / "expected.npz", results, "output") if (path / "expected.npz").exists() else None
    return read_npz(path / "inputs.npz", types, "input"), outputs


def _read_expected(path: Path, program: Program) -> Values:
    results = program.outputs()
    if not is_folder(path):
        return read_npz(path, results, "output")
    for folder in (path, path / DATA):
        if any(folder.glob("output_*.pb")):
            return read_folder(folder, results, "output")
    if (path / "expected.npz").exists():
        return read_npz(path / "expected.npz", results, "output")
    raise BadInput(f"{shown(path, 200)} holds no expected outputs: neither output_0.pb nor expected.npz")


def _is_data_set(folder: Path) -> bool:
    return any(folder.glob("input_*.pb")) or any(folder.glob("output_*.pb"))
