"""Modules of TVM with their inputs as subjects: their order, equality and size. For Relax modules and TIR
functions alike.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.tvm.nodes import from_node, to_numpy
from opsieve.gen.irs.tvm.program import TvmProgram, walk
from opsieve.gen.model.tensors import Value, misfit
from opsieve.reducer.engine import edit, engine, form
from opsieve.reducer.problem.order import value_complexity


@dataclass(frozen=True)
class TvmSubject:
    """A module with its passes, and a value for every input, by name; it is never changed in place."""

    program: TvmProgram
    inputs: dict[str, Value]

    def with_module(self, module: bytes) -> "TvmSubject | None":
        """Return the same test of another module, with the values that still fit; `None` if it needs
        others.
        """
        # The text belongs to the old module; the final one is printed anew.
        program = replace(self.program, module=module, script="", script_is_exact=False)
        try:
            wanted = program.inputs()
        except BadInput:
            return None
        # An edit that changes the inputs brings its own values; here the old ones have to fit.
        if any(name not in self.inputs or misfit(self.inputs[name], type_) for name, type_ in wanted.items()):
            return None
        return TvmSubject(program, {name: self.inputs[name] for name in wanted})


TvmEdit: TypeAlias = edit.Edit[TvmSubject]
TvmPass: TypeAlias = edit.Pass[TvmSubject]


class TvmForm:
    """Fewer operators other than ones first, then fewer passes, inputs, elements, simpler values, fewer
    bytes, simpler constants.
    """

    def simpler(self, candidate: TvmSubject, than: TvmSubject) -> bool:
        """Compare by the first part of the key that differs."""
        return _key(candidate) < _key(than)

    def size(self, subject: TvmSubject) -> form.Size:
        """Return the number of operators and the bytes of the JSON."""
        return form.Size(subject.program.size, 0, len(subject.program.data))

    def digest(self, subject: TvmSubject) -> str:
        """Return a digest of module, passes and values."""
        state = hashlib.sha256(subject.program.digest.encode())
        for name, value in sorted(subject.inputs.items()):
            array = np.asarray(value)
            state.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        return state.hexdigest()[: engine.DIGITS]


def _key(subject: TvmSubject) -> tuple[int, int, int, int, int, int, int, bytes, tuple[str, ...]]:
    program = subject.program
    arrays = [np.asarray(value) for value in subject.inputs.values()]
    constants = (to_numpy(from_node(node)) for node in walk(program.root) if node.type == "ffi.Tensor")
    return (
        # An edit puts a call that makes ones in the place of a tensor too large for a constant.
        sum(name != "relax.ones" for name in program.operators()),
        # A pass with an argument weighs twice, so that dropping the argument is a gain.
        len(program.passes) + sum(":" in item for item in program.passes),
        len(arrays),
        sum(array.size for array in arrays),
        sum(map(value_complexity, arrays)),
        # Bytes after values: a shorter name is no gain that is worth a larger tensor.
        len(program.data),
        sum(value_complexity(array) for array in constants if array is not None),
        program.data,
        program.passes,
    )
