"""Parameters that nodes compute: they are what was asked for, in the share that was asked for."""

from dataclasses import replace

import numpy as np
import onnx
from hypothesis import given, settings, strategies as st
from onnx.reference import ReferenceEvaluator

from opsieve.gen.declarations.builder import Style
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, fill, start
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.parameters import OPERATORS
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.graph.writing import serialize
from opsieve.gen.strategies.registry import generate

SHAPED = {"Reshape": 1, "Expand": 1, "Tile": 1, "Slice": 1, "Pad": 1, "TopK": 1, "Clip": 1, "Split": 1}


def grown(seed: int) -> GraphBuilder:
    builder = start(GenRequest(nodes=6, only=OPERATORS | {"Relu"}), seed, "test")
    builder.style = replace(builder.style, computed=1.0, fed=0.0)
    fill(builder, GenRequest(nodes=6, only=OPERATORS | {"Relu"}))
    return builder


@given(st.integers(0, 2**40), st.data())
@settings(deadline=None, max_examples=60)
def test_the_nodes_compute_the_numbers_that_were_asked_for(seed: int, data: st.DataObject) -> None:
    builder = grown(seed)
    dtype = data.draw(st.sampled_from(("int64", "int32", "float32", "float16")))
    numbers = st.integers(-9, 40) if dtype.startswith("int") else st.integers(-9, 40).map(lambda n: n / 2)
    values = data.draw(st.lists(numbers, min_size=1, max_size=5))
    scalar = data.draw(st.booleans())
    asked = values[:1] if scalar else values
    made = builder.ints(asked, dtype, () if scalar else None)
    model, inputs = serialize(builder, [made], "asked")
    assert made.values == tuple(asked)
    if made.leaf:  # nothing here has a size to begin with
        return
    (found,) = ReferenceEvaluator(onnx.load_model_from_string(model)).run(None, inputs)
    assert found.dtype == np.dtype(dtype)
    assert found.shape == made.shape
    assert found.ravel().tolist() == asked


def test_a_third_of_the_parameters_of_the_mix_are_computed() -> None:
    computed = parameters = 0
    for seed in range(150):
        graph = generate("mix", seed, GenRequest(nodes=16)).program.proto.graph
        made = {out for node in graph.node if node.op_type != "Constant" for out in node.output}
        for node in graph.node:
            place = SHAPED.get(node.op_type, 99)
            if place < len(node.input) and node.input[place]:
                parameters += 1
                computed += node.input[place] in made
    assert parameters > 200
    assert computed >= 0.28 * parameters


def test_a_style_without_them_has_constants_only_and_so_have_narrow_integers() -> None:
    builder = grown(3)
    assert not builder.ints([1, 2], "int8").name.startswith("v")
    plain = GraphBuilder(ProgramState(Rng(1), SUPPORTED, Style(computed=0.0), builder.budget))
    assert plain.ints([3]).leaf in ("constant", "initializer")
