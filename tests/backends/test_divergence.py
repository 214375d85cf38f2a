"""The first node whose output is wrong given correct inputs, also where reading a value hides the failure."""

import random
from typing import Any

import numpy as np
import pytest
from in_process import InProcessLab
from onnx import ModelProto, NodeProto, TensorProto, helper

from opsieve.backends.judge.divergence import Divergence, locate_divergence
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

TARGET = resolve("fake")
KINDS = ("Tanh", "Neg", "Sigmoid", "Add", "Sub", "Mul")
FEEDS = {"x": np.float32([0.25, 0.5, -0.75])}


class BrokenCompiler(InProcessLab):
    """The native reference, which doubles the value `broken`, unless one of `fused` is an output."""

    def __init__(self, broken: str, fused: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.broken, self.fused = broken, fused

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        if target != TARGET:
            return super().observe(target, program, inputs, fresh=fresh)
        assert isinstance(program, OnnxProgram)
        model = ModelProto.FromString(program.model)
        if not {value.name for value in model.graph.output} & set(self.fused):
            nodes: list[NodeProto] = []
            for node in model.graph.node:
                nodes.append(NodeProto.FromString(node.SerializeToString()))
                if self.broken in node.output:
                    nodes[-1].output[0] += "_half"
                    half = nodes[-1].output[0]
                    nodes.append(helper.make_node("Add", [half, half], [self.broken]))
            del model.graph.node[:]
            model.graph.node.extend(nodes)
        return super().observe(NATIVE, OnnxProgram(model.SerializeToString()), inputs)


def make_program(seed: int, nodes: int, operators: tuple[str, ...] = KINDS) -> OnnxProgram:
    rng, names, made = random.Random(seed), ["x"], []
    for at in range(nodes):
        operator = rng.choice(operators)
        reads = [names[-1]] if operator in KINDS[:3] else [names[-1], rng.choice(names)]
        made.append(helper.make_node(operator, reads, [f"v{at}"]))
        names.append(f"v{at}")
    value = helper.make_tensor_value_info
    ends = value("x", TensorProto.FLOAT, [3]), value(names[-1], TensorProto.FLOAT, [3])
    graph = helper.make_graph(made, "g", [ends[0]], [ends[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return OnnxProgram(model.SerializeToString())


def locate(lab: BrokenCompiler, program: OnnxProgram) -> Divergence:
    outputs = lab.observe(TARGET, program, FEEDS).outputs
    assert outputs is not None
    return locate_divergence(program, FEEDS, TARGET, outputs, lab)


@pytest.mark.parametrize("seed", range(12))
def test_the_node_that_is_broken_is_named_whatever_follows(seed: int) -> None:
    program, rng = make_program(seed, 9), random.Random(seed)
    broken = f"v{rng.randrange(9)}"
    found = locate(BrokenCompiler(broken), program)
    states = {value.name: value.state for value in found.values}
    if states["v8"] == "right":  # what follows hides it: a product by zero, a difference of itself
        return
    assert (found.first, found.runs) == (broken, 1)
    assert [name for name, state in states.items() if state == "wrong"] == [broken]
    later = [value for value in found.values if value.on_path]
    assert later[0].name == broken
    assert later[-1].name == "v8"


def test_what_cannot_be_read_without_a_cure_is_hidden_and_counts_among_the_suspects() -> None:
    program = make_program(3, 6, KINDS[:3])
    found = locate(BrokenCompiler("v3", fused=("v2",)), program)
    states = {value.name: value.state for value in found.values}
    assert states["v2"] == "hidden"
    assert [value.name for value in found.values if value.state == "wrong"] == ["v3"]
    makers = {value.name: value.operator for value in found.values}
    assert found.nodes == (makers["v2"], makers["v3"])
    assert found.runs > 2


def test_a_value_that_is_right_again_is_no_fault() -> None:
    found = locate(BrokenCompiler("nothing"), make_program(5, 6))
    assert (found.first, {value.state for value in found.values}) == ("", {"right"})
