"""A TIR function in a module as a program. The function that is run is the one with the attribute
`global_symbol`, or the only one: every buffer is fed, and every buffer is read afterwards.
"""

from typing import ClassVar

from opsieve.gen.irs.tvm import nodes, program
from opsieve.gen.model.tensors import ValueType

_NO_OPERATORS = frozenset(("BufferType", "IterVar", "SeqStmt", "BufferRegionType", "TensorMapType"))


class TirProgram(program.TvmProgram):
    """A TIR function in a module, run on its buffers."""

    ir: ClassVar[str] = "tir"
    kind: ClassVar[str] = "a TIR function"
    entry_type: ClassVar[str] = "tirx.PrimFunc"

    def inputs(self) -> dict[str, ValueType]:
        """Return the buffers and scalars that the function takes; a name that stands twice gets its place
        behind it.
        """
        found: dict[str, ValueType] = {}
        for place, parameter in enumerate(program.object_nodes(self.entry.get("params"))):
            name = str(parameter.get("name"))
            found[name if name not in found else f"{name}_{place}"] = program.type_of(parameter.get("ty"))
        return found

    def outputs(self) -> dict[str, ValueType]:
        """Return the types of all buffers, since any of them may be written."""
        return self.inputs()

    def operators(self) -> list[str]:
        """Statements and arithmetic by their node's type, calls of intrinsics by name."""
        found = []
        for node in (
            program.walk(body) if isinstance(body := self.entry.get("body"), nodes.ObjectNode) else ()
        ):
            dialect, _, name = node.type.rpartition(".")
            if called := program.operator_called(node):
                found.append(called)
            elif dialect in ("tirx", "s_tir", "prim") and name not in _NO_OPERATORS:
                found.append(node.type)
        return found
