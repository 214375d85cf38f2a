"""The forms that a program can have: how each is named in `case.json`, where it lies in a case folder, how
its inputs are made up.

Of a TVM module `module.json` is the program; `module.py` beside it is TVM's printing of it, for people, which
nothing here reads.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opsieve.gen.data.inputs import seeded_inputs, seeded_values
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.tvm.program import RelaxProgram, TirProgram, TvmProgram, check_passes
from opsieve.gen.model.files import read_file
from opsieve.gen.model.model import load_program
from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.tensors import Value

MODULE, PASSES, SCRIPT = "module.json", "passes.json", "module.py"
NOTE = (
    "# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.\n"
)
_MAX_MODULE = 256 << 20  # bytes
_MAX_PASSES = 1 << 20


@dataclass(frozen=True)
class Form:
    """One form. `files` are those that belong to the program in a case folder, the program itself first."""

    name: str
    files: tuple[str, ...]
    suffix: str
    read: Callable[[Path], Program]  # the program in a file, and in what lies beside it
    write: Callable[[Program, Path], None]  # its files, into a folder
    seeded: Callable[[Program, int], dict[str, Value]]


def form_of(program: Program) -> Form:
    """The form of a program."""
    return FORMS[program.form]


def form_named(name: str) -> Form:
    """The form called `name`; BadInput when there is none."""
    if name not in FORMS:
        raise BadInput(f"there is no form of program {shown(name)}; there are {', '.join(FORMS)}")
    return FORMS[name]


def form_in(folder: Path) -> Form | None:
    """The form of the program that lies in a folder without `case.json`."""
    return next((form for form in FORMS.values() if (folder / form.files[0]).exists()), None)


def read_program(path: Path) -> Program:
    """The program in a file, by its name: `.json` is a module of TVM, everything else an ONNX model. BadInput
    for `.py`.
    """
    if path.suffix == ".py":
        raise BadInput(
            f"{shown(path, 160)} is code, which opsieve does not run; `opsieve import --script` makes a case"
            " of TVMScript of your own"
        )
    return read_module(path) if path.suffix == ".json" else load_program(path)


def read_module(path: Path) -> TvmProgram:
    """The Relax module or TIR function in a file of TVM's JSON; a module with a Relax function counts as
    Relax.
    """
    relax = _read_tvm(RelaxProgram, path)
    return tvm_program(relax.module, relax.name, relax.passes)


def tvm_program(module: bytes, name: str, passes: tuple[str, ...] = ()) -> TvmProgram:
    """The Relax module or TIR function of TVM's JSON; BadInput when it is none."""
    relax = RelaxProgram(module, passes, name)
    if any(function.type == RelaxProgram.entry_type for function in relax.functions.values()):
        return relax
    return TirProgram(module, passes, name)


def make_inputs(program: Program, seed: int) -> dict[str, Value]:
    """A value for every input, of its type, the same for the same seed. BadInput where a type cannot be made
    up.
    """
    return form_of(program).seeded(program, seed)


def _write_onnx(program: Program, folder: Path) -> None:
    with open(folder / "model.onnx", "wb") as file:
        file.writelines(program.chunks())


def _seeded_onnx(program: Program, seed: int) -> dict[str, Value]:
    assert isinstance(program, OnnxProgram)
    return seeded_inputs(program.proto, seed)


def _read_tvm(kind: type[TvmProgram], path: Path) -> TvmProgram:
    beside = path.parent / PASSES
    passes: tuple[str, ...] = ()
    if beside.exists():
        try:
            items = json.loads(read_file(beside, _MAX_PASSES))
        except (ValueError, RecursionError):
            raise BadInput(f"{shown(beside, 160)} is no list of passes") from None
        if not isinstance(items, list):
            raise BadInput(f"{shown(beside, 160)} is no list of passes")
        passes = check_passes(items)
    program = kind(read_file(path, _MAX_MODULE), passes, path.name)
    program.inputs()  # what cannot be read is refused now
    return program


def _write_tvm(program: Program, folder: Path) -> None:
    (folder / MODULE).write_bytes(program.data)
    if program.passes:
        (folder / PASSES).write_text(json.dumps(program.passes, indent=2) + "\n")
    if isinstance(program, TvmProgram) and program.script:
        (folder / SCRIPT).write_text(NOTE + program.script.rstrip() + "\n", encoding="utf-8")


def _seeded_tvm(program: Program, seed: int) -> dict[str, Value]:
    sizes = program.shapes() if isinstance(program, RelaxProgram) else {}
    return seeded_values(program.inputs(), seed, sizes)


_TVM_FILES = (MODULE, PASSES, SCRIPT)
FORMS: Mapping[str, Form] = {
    "onnx": Form("onnx", ("model.onnx",), ".onnx", load_program, _write_onnx, _seeded_onnx),
    "relax": Form("relax", _TVM_FILES, ".json", partial(_read_tvm, RelaxProgram), _write_tvm, _seeded_tvm),
    "tir": Form("tir", _TVM_FILES, ".json", partial(_read_tvm, TirProgram), _write_tvm, _seeded_tvm),
}


def named(program: Program, name: str) -> Program:
    """The same program under another name."""
    again: Program = replace(program, name=name)  # type: ignore[type-var]  # every form is a dataclass
    # What `cached_property` holds of the same bytes: a large model is not parsed once more.
    for derived in ("proto", "digest"):
        if derived in program.__dict__:
            again.__dict__[derived] = program.__dict__[derived]
    return again
