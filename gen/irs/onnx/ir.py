"""The record of ONNX, the IR that the generator's core is written in."""

from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.irs.ir import IR, Lines, ScriptFacts
from opsieve.gen.irs.onnx.drawing import graph_lines
from opsieve.gen.irs.onnx.graph_facts import graph_details
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.payload import older, payload
from opsieve.gen.irs.onnx.program import MODEL, OnnxProgram
from opsieve.gen.model.lowering import lower_ir
from opsieve.gen.model.structure import all_nodes


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
