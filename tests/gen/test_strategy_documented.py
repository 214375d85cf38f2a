"""Documented: ONNX's node tests and models of a corpus planted among random nodes."""

import onnx
import pytest
from onnx import parser

from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.gen.strategies.registry import generate

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3] x) => (float[2, 3] y) <int64[1] a = {1}> { s = ReduceMax(x, a) t = Sub(x, s) e = Exp(t) y = Celu<alpha: float = 1.25>(e) }"""
PROGRAM = OnnxProgram(parser.parse_model(TEXT).SerializeToString(), "documented")


@pytest.mark.parametrize("seed", range(8))
def test_programs_are_valid_and_made_again(seed: int) -> None:
    request = GenRequest(nodes=8)
    made = generate("documented", seed, request)
    check_structure(made.program.proto)
    onnx.checker.check_model(made.program.proto, full_check=True)
    assert len(list(all_nodes(made.program.proto.graph.node))) >= 8
    assert generate("documented", seed, request).program.digest == made.program.digest


def test_a_model_of_the_corpus_is_planted_with_what_it_needs() -> None:
    request = GenRequest(nodes=10, corpus=(PROGRAM,))
    joined = 0
    for seed in range(10):
        proto = generate("documented", seed, request).program.proto
        made = {name: node for node in proto.graph.node for name in node.output}
        celu = [node for node in proto.graph.node if node.op_type == "Celu" and node.attribute[0].f == 1.25]
        assert celu
        for node in proto.graph.node:
            if node.op_type == "ReduceMax" and node.input[0] in made:
                joined += 1
    assert joined  # a later piece reads what the program made


def test_what_cannot_be_read_is_a_sentence() -> None:
    with pytest.raises(BadInput, match="can be read as parts"):
        generate("documented", 0, GenRequest(nodes=4, corpus=(PROGRAM,), only=frozenset(["Conv"])))
