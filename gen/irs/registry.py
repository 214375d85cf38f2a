"""The IRs that are installed, by entry point in the group `opsieve.irs`: `NAME = "module:RECORD"`.

A record is loaded when a program of its IR is met. ONNX comes first wherever all of them are gone through: it
is what most files are, and then no other record is loaded.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from opsieve.gen.errors import BadInput, load_plugin, shown
from opsieve.gen.irs.ir import IR
from opsieve.gen.model import printable, tensors
from opsieve.gen.model.program import AnotherIR, Program

GROUP = "opsieve.irs"
ONNX = "onnx"
P = TypeVar("P", bound=Program)


@functools.cache
def _entries() -> dict[str, EntryPoint]:
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if ONNX not in found:
        raise BadInput(
            "this installation of opsieve is older than its code: install it anew (make check does)"
        )
    return {name: found[name] for name in sorted(found, key=lambda name: (name != ONNX, name))}


def ir_names() -> tuple[str, ...]:
    """Return the names of the IRs, ONNX first; no record is loaded for them."""
    return tuple(_entries())


@functools.cache
def ir_named(name: str) -> IR[Program]:
    """Return the IR called `name`; BadInput when there is none, or its package cannot be loaded."""
    if name not in _entries():
        raise BadInput(f"there is no IR {shown(name)}; there are {', '.join(ir_names())}")
    found: IR[Program] = load_plugin(_entries()[name], "IR")
    return found


def all_irs() -> Iterator[IR[Program]]:
    """Return every IR, loaded one after the other."""
    return map(ir_named, ir_names())


def ir_of(program: Program) -> IR[Program]:
    """Return the IR of a program."""
    return ir_named(program.ir)


def ir_in(folder: Path) -> IR[Program] | None:
    """Return the IR of the program that lies in a folder without `case.json`."""
    return next((ir for ir in all_irs() if (folder / ir.files[0]).exists()), None)


def read_program(path: Path) -> Program:
    """Return the program in a file, by the end of its name; one that no IR claims is taken for an ONNX model.

    BadInput for `.py`.
    """
    if path.suffix == ".py":
        raise BadInput(
            f"{shown(path, 160)} is code, which opsieve does not run; `opsieve import --script` makes a case"
            " of a script of your own"
        )
    onnx = ir_named(ONNX)
    others = [] if path.suffix == onnx.suffix else list(all_irs())
    claiming = [ir for ir in others if path.suffix in (ir.suffix, *ir.also_reads)]
    return first_program(claiming or [onnx], lambda ir: ir.read(path))


def first_program(irs: Iterable[IR[Program]], read: Callable[[IR[Program]], Program]) -> Program:
    """Return the program of the first IR that accepts the file; the others raise AnotherIR."""
    refused: AnotherIR | None = None
    for ir in irs:
        try:
            return read(ir)
        except AnotherIR as error:
            refused = refused or error
    assert refused is not None
    raise refused


def write_program(program: Program, folder: Path) -> None:
    """Write the files of a program into a folder."""
    for name, chunks in program.files().items():
        with open(folder / name, "wb") as file:
            file.writelines(chunks)


def make_inputs(program: Program, seed: int) -> dict[str, tensors.Value]:
    """Return a value for every input, of its type, the same for the same seed. BadInput where a type cannot
    be made up.
    """
    return ir_of(program).seed_inputs(program, seed)


def load_named(text: str) -> Any:
    """Import the object that a record names as `module:name`. Raises BadInput if that fails."""
    return load_plugin(EntryPoint(text, text, GROUP), "part")


def keep_script(program: P, script: str, exact: bool) -> P:
    """Return the same program with its compiler's printing."""
    # Some programs make their text themselves, so there is no field to set.
    if (program.script, program.script_is_exact) == (script, exact):
        return program
    again: P = replace(program, script=script, script_is_exact=exact)  # type: ignore[type-var]
    return again


def rename(program: P, name: str) -> P:
    """Return the same program under another name."""
    # mypy does not know that every program is a dataclass.
    again: P = replace(program, name=printable.escape_surrogates(name))  # type: ignore[type-var]
    # The bytes are the same, so their cached results are kept: parsing a large model again is slow.
    for derived in ("proto", "digest"):
        if derived in program.__dict__:
            again.__dict__[derived] = program.__dict__[derived]
    return again
