"""The record of Relax, TVM's IR of graphs."""

from opsieve.gen.data.inputs import seeded_values
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.ir import OtherBuilds
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.tvm.nodes import MalformedGraph
from opsieve.gen.irs.tvm.program import tvm_ir

# Results of these may stay unwritten in whole or in part, since kernels fill newly allocated memory.
_ALLOCATING = frozenset(
    f"relax.{name}" for name in ("builtin.alloc_tensor", "memory.alloc_tensor", "call_tir", "call_dps_packed")
)


def _is_editable(program: RelaxProgram) -> bool:
    """Return whether the trees of gen/irs/relax can hold a module, and values can be made for its inputs."""
    from opsieve.gen.irs.relax.reading import from_json

    try:
        from_json(program.module.decode("utf-8"))
        return bool(program.inputs()) or not program.entry.get("params")
    except (MalformedGraph, UnicodeDecodeError, BadInput):
        return False


RELAX = tvm_ir(
    RelaxProgram,
    seed_inputs=lambda program, seed: seeded_values(program.inputs(), seed, program.shapes()),
    can_be_undefined=lambda program: not _ALLOCATING.isdisjoint(program.operators()),
    # TVM checks a module in the stage `import`, so an error behind that is about a module that it found
    # valid.
    checked_by="TVM's own check of the module",
    # TVM's check infers the type of every result anew and compares it with what the module declares.
    declared_types=RelaxProgram.tensor_types,
    # Other compilers run what a module does with its inputs, as an ONNX model.
    translator="reference:tell=onnx",
    # A build of another pipeline shares TVM's kernels and
    # importer, not the passes in between: where two such builds agree against the target in what no rounding
    # explains, the target is wrong.
    other_builds={
        "tvm": OtherBuilds(
            "pipeline", ("zero", "target", "default"), {"opt": "0", "disabled": "", "trace": "off"}
        )
    },
    strategies={"relax": 80, "relax-passes": 120, "relax-mutate": 0},
    usual_features=17.0,
    rewrites="opsieve.gen.irs.relax.rewrites:REWRITERS",
    evaluator="opsieve.backends.reference.tvm_requests:prepare_relax",
    reduction="opsieve.reducer.irs.tvm_reduction:RelaxReduction",
    is_editable=_is_editable,
    importer="tvm:emit=relax",
)
