"""The record of ONNX, the IR that the generator's core is written in."""

from functools import lru_cache
from typing import Any

from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.irs.ir import IR, Lines, ScriptFacts
from opsieve.gen.irs.onnx.drawing import graph_lines
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import MODEL, OnnxProgram, graph_details
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.lowering import lower_ir, lower_opset, lowest_ir
from opsieve.gen.model.structure import all_nodes

# The size in bytes from which the lowered copy of a model is not cached.
_HEAVY = 16 << 20


def payload(program: OnnxProgram, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes to send and additional header fields of the test: the model with the lowest IR version
    that it allows, unless it stays `as_is`.
    """
    if len(program.pieces) > 1:
        return _pack_large(program, as_is)
    if as_is:
        return program.data, {}
    return (_lower_ir_version(program) if len(program.data) < _HEAVY else program.data + _lower(program)), {}


def older(program: OnnxProgram) -> OnnxProgram | None:
    """Return the same operators under the lowest opset that has them; `None` if that is the program
    itself.
    """
    lowered = lower_opset(program.proto).SerializeToString()
    return None if lowered == program.proto.SerializeToString() else OnnxProgram(lowered, program.name)


def _lower(program: OnnxProgram) -> bytes:
    """What lowers the IR version of a serialised model that it is added to: of a field that stands twice
    protobuf takes the last one.
    """
    lowest = lowest_ir(program.proto)
    return b"" if lowest == program.proto.ir_version else b"\x08" + bytes([lowest])


@lru_cache(maxsize=64)
def _lower_ir_version(program: OnnxProgram) -> bytes:
    """Return the model with its IR version lowered, so that a release does not refuse it for the number
    alone.
    """
    return lower_ir(program.model)


def _pack_large(program: OnnxProgram, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes around the large tensors of a model, behind them the model with references, and where
    the worker finds the tensors.
    """
    end = b"" if as_is else _lower(program)
    pieces = (*program.pieces, end)
    bare = program.model + end
    tensors = [
        [tensor.name, tensor.data_type, list(tensor.dims), part.offset, part.length]
        for tensor in program.proto.graph.initializer
        if (part := part_of(tensor)) is not None
    ]
    places = [[len(piece)] if isinstance(piece, bytes) else [piece.offset, piece.length] for piece in pieces]
    sent = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    return sent + bare, {"outside": {"pieces": places, "tensors": tensors, "bare": len(bare)}}


def _describe(program: OnnxProgram) -> Lines:
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in program.proto.opset_import)
    return [("opsets", opsets), ("IR version", str(program.proto.ir_version))]


def _operators(program: OnnxProgram) -> list[str]:
    nodes = all_nodes(program.proto.graph.node)
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes]


# By what the strategies found in equal CPU time, and what only they found (docs/benchmarks/generator.md,
# "Yield"), by planted faults that need several neighbours (`chains` meets most of these), by the balance of
# operators (`pattern` would drown the rest in Add and Mul), and by cost.
_WEIGHTS = {
    "isra": 140,
    "hirfuzz": 240,
    "pattern": 90,
    "chains": 390,
    "function-rewrite": 64,
    "mutate": 72,
    "nnsmith": 4,
}
ONNX = IR(
    name="onnx",
    suffix=".onnx",
    files=(MODEL,),
    read=load_program,
    load=lambda data, passes, name: OnnxProgram(data, name),
    validator="checker",
    checker="checker",
    seed_inputs=lambda program, seed: seeded_inputs(program.proto, seed),
    payload=payload,
    lower=lambda program: lower_ir(program.data),
    older=older,
    graph=lambda program: program.proto,
    details=lambda program: graph_details(program.proto),
    # A campaign that names one of these loads no other IR.
    strategies={**_WEIGHTS, "mix": 0, "disruptive": 0, "documented": 0},
    usual_features=50.0,
    rewrites="opsieve.gen.rewrites.onnx_rewriting:REWRITES",
    reduction="opsieve.reducer.irs.onnx:OnnxReduction",
    printer=lambda program: "checker:tell=text",
    script=ScriptFacts(
        noun="model",
        packages=("numpy", "onnx"),
        imports=("onnx", "onnx.parser"),
        parse="onnx.parser.parse_model({}).SerializeToString()",
        authors={
            "reference:float64": "ONNX's reference evaluator in float64",
            "reference": "ONNX's reference evaluator",
        },
        serialised=True,
        trusts_baseline=False,
    ),
    lines=lambda program: graph_lines(program.proto.graph),
    describe=_describe,
    operators=_operators,
)
