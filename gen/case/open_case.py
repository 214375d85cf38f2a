"""Open the paths that users name on the command line as cases: a model, a case folder, an ONNX test folder,
with or without values.
"""

from dataclasses import replace
from pathlib import Path

from opsieve.gen.case.case import DATA, Case, Origin, is_case, load, load_case_program
from opsieve.gen.data.data_set import read_folder, read_npz
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import ir_in, make_inputs, read_program
from opsieve.gen.model.files import is_folder
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value

Values = dict[str, Value]


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
    """List the models that `path` names: itself, or the `.onnx` files of a folder without a case."""
    if not is_folder(path) or is_case(path) or ir_in(path) is not None:
        return [path]
    return sorted(path.glob("*.onnx")) or [path]


def program_at(path: Path) -> Program:
    """Return the program that `path` names as `open_case` reads it, without values; BadInput likewise."""
    if not is_folder(path):
        return read_program(path)
    if is_case(path):
        return load_case_program(path)
    ir = ir_in(path)
    if ir is None:
        raise BadInput(f"the folder {shown(path, 200)} has neither case.json nor model.onnx nor module.json")
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
