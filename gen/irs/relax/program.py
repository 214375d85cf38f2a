"""A Relax module as a program. A run calls its function `main`; the leaves of the result are the outputs
`output_0`, `output_1`, ... in the order of the nested tuples.
"""

import re
from functools import cached_property
from typing import ClassVar

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.relax.passes import computing_dtype
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode
from opsieve.gen.irs.tvm.program import (
    TvmProgram,
    attribute_of,
    leaf_nodes,
    leaves_of,
    object_nodes,
    size_of,
    type_of,
)
from opsieve.gen.model import program, tensors

_KINDS = {"size": "relation", "missing": "missing-input"}
_FAULT = re.compile(r"[A-Za-z0-9_.]{1,60} [ -~]{1,80}", re.ASCII)


class RelaxProgram(TvmProgram):
    """A Relax module, run by its function `main`."""

    ir: ClassVar[str] = "relax"
    kind: ClassVar[str] = "a Relax module"
    entry_type: ClassVar[str] = "relax.expr.Function"

    @cached_property
    def entry(self) -> ObjectNode:
        """The function `main`; BadInput when there is none."""
        candidates = [name for name, node in self.functions.items() if node.type == self.entry_type]
        if candidates and "main" not in candidates:
            raise BadInput(
                f"{shown(self.name or 'the module')} has no function `main`, which is the one that is run:"
                f" rename one of {shown(', '.join(candidates), 200)}, or choose it with `import --script"
                " --entry`"
            )
        return super().entry

    def inputs(self) -> dict[str, tensors.ValueType]:
        """What `main` takes, tuples field by field."""
        found: dict[str, tensors.ValueType] = {}
        for parameter in object_nodes(self.entry.get("params")):
            found.update(leaves_of(str(parameter.get("name")), parameter.get("ty")))
        return found

    def outputs(self) -> dict[str, tensors.ValueType]:
        """Return the types of the leaves of `main`'s result, in order."""
        leaves = leaves_of("", self.entry.get("ret_ty")).values()
        return {f"output_{place}": type_ for place, type_ in enumerate(leaves)}

    def tensor_types(self) -> dict[str, tensors.ValueType]:
        """Return the types of the outputs that are tensors; a scalar comes back as a Python number, whose
        width differs.
        """
        leaves = leaf_nodes("", self.entry.get("ret_ty")).values()
        return {
            f"output_{place}": type_of(node)
            for place, node in enumerate(leaves)
            if isinstance(node, ObjectNode) and node.type == "relax.TensorType"
        }

    @property
    def computing_dtype(self) -> str:
        """Return the shorter type that a pass of the program makes floats be computed in."""
        return computing_dtype(self.passes)

    @property
    def fault(self) -> program.Broken | None:
        """Return the intended defect that the module records (gen/irs/relax/mutation.py)."""
        said = attribute_of(self.root, program.FAULT)
        if not isinstance(said, str) or _FAULT.fullmatch(said) is None:
            return None
        operator, _, place = said.partition(" ")
        return program.Broken(operator, _KINDS.get(place.partition(" ")[0], "mixed-dtypes"), place)

    def text(self) -> str:
        """Return the module as Relax is written, read here from the graph; constants are cut short."""
        from opsieve.gen.irs.relax.reading import from_json
        from opsieve.gen.irs.relax.text import module_text

        try:
            return module_text(from_json(self.module.decode("utf-8")))
        except (MalformedGraph, UnicodeDecodeError):
            # The trees of gen/irs/relax cannot hold it.
            return super().text()

    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """Return, for each input that is a shape or a symbolic scalar, the sizes that it stands for."""
        found: dict[str, tuple[int | str, ...]] = {}
        for parameter in object_nodes(self.entry.get("params")):
            kind = parameter.get("ty")
            if (
                isinstance(kind, ObjectNode)
                and kind.type == "relax.ShapeType"
                and isinstance(kind.get("values"), tuple)
            ):
                found[str(parameter.get("name"))] = tuple(
                    size_of(item) or 1
                    for item in kind["values"]  # type: ignore[union-attr]
                )
        return found
