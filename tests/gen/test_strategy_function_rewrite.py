"""Function-rewrite: valid programs that compute what they did before, with functions of every kind in
them.
"""

import re
from collections import Counter

import numpy as np
import onnx
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.model_file import parse_model
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import list_captured
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.gen.rewrites.functions import RewriteLimits, rewrite_parts
from opsieve.gen.rewrites.parts import assemble_model, choose_part, compose_function, take_apart
from opsieve.gen.strategies.registry import generate

PLAIN = resolve("onnxruntime:disable_all")
SEEDS = st.integers(0, 2**40)


def rewrite_functions(program: OnnxProgram, rng: Rng) -> OnnxProgram:
    return OnnxProgram(rewrite_parts(take_apart(program.model), rng, RewriteLimits()), program.name)


def functions(model: onnx.ModelProto) -> dict[tuple[str, str], onnx.FunctionProto]:
    return {(function.domain, function.name): function for function in model.functions}


@given(SEEDS, st.integers(1, 25))
@settings(deadline=None, max_examples=50)
def test_programs_are_valid(seed: int, size: int) -> None:
    model = generate("function-rewrite", seed, GenRequest(nodes=size)).program.proto
    check_structure(model)
    onnx.checker.check_model(model, full_check=True)
    there = functions(model)
    assert len(there) == len(model.functions)
    imported = {entry.domain for entry in model.opset_import}
    assert {node.domain for node in all_nodes(model.graph.node)} <= imported
    for function in model.functions:
        assert {node.domain for node in all_nodes(function.node)} <= {
            entry.domain for entry in function.opset_import
        }


def test_they_compute_what_the_programs_before_them_did(workers: Workers) -> None:
    pairs, tests = [], []
    for seed in range(90):
        base = generate(("isra", "pattern", "mutate")[seed % 3], seed, GenRequest(nodes=8, types=True))
        new = rewrite_functions(base.program, Rng(seed))
        pairs.append((base, new))
        tests += [Test(base.program, base.inputs), Test(new, base.inputs)]
    answers = list(workers.observe_many(PLAIN, tests))
    ran = 0  # results may differ by roundings of float16, which a normalisation behind them enlarges
    for place, (base, new) in enumerate(pairs):
        before, after = answers[2 * place : 2 * place + 2]
        if before.outputs is None or not new.proto.functions:
            continue
        if after.outputs is None:
            # onnxruntime derives type constraints for functions that it does not for nodes, and lacks float8
            # and numbers of 4 bits there and in an Identity.
            assert re.search(
                r"Type Error: Type 'tensor\((float8|u?int4)|implementation for Identity\(", after.message
            ), (
                base.program.name,
                after.message,
            )
            continue
        ran += 1
        for name, value in before.outputs.items():
            if isinstance(value, np.ndarray):
                assert np.array_equal(
                    np.asarray(value, "U" if value.dtype == object else None), after.outputs[name]
                ) or (
                    np.allclose(
                        value.astype(np.float64), after.outputs[name].astype(np.float64), 4e-3, 4e-3, True
                    )
                ), (base.program.name, name)
    assert ran > 45


def test_every_kind_of_function_comes_up() -> None:
    seen = Counter[str]()
    for seed in range(90):
        model = generate("function-rewrite", seed, GenRequest(nodes=12)).program.proto
        there = functions(model)
        calls = Counter(
            (node.domain, node.op_type) for node in model.graph.node if (node.domain, node.op_type) in there
        )
        seen["shared"] += any(count > 1 for count in calls.values())
        for function in model.functions:
            inner = [node for node in all_nodes(function.node) if (node.domain, node.op_type) in there]
            seen["nested"] += bool(inner)
            seen["through"] += len(function.node) == len(inner) == 1
            seen["closure"] += any(
                node.op_type == "If" and node.input[0] == "always" for node in function.node
            )
            seen["handed"] += all(node.op_type == "Identity" for node in function.node)
            seen["attributes"] += len(function.attribute)
            seen["defaults"] += len(function.attribute_proto)
            seen["forwarded"] += any(item.ref_attr_name for node in inner for item in node.attribute)
            for node in all_nodes(function.node):
                for item in node.attribute:
                    if item.ref_attr_name:
                        own = {*function.attribute, *(value.name for value in function.attribute_proto)}
                        assert item.ref_attr_name in own
    assert min(seen.values()) >= 5, seen
    assert len(seen) == 8, seen


def test_only_what_is_let_in_is_added() -> None:
    only = frozenset(("Add", "Relu", "MatMul"))
    for seed in range(40):
        model = generate("function-rewrite", seed, GenRequest(nodes=6, only=only)).program.proto
        there = functions(model)
        for nodes in (model.graph.node, *(function.node for function in model.functions)):
            for node in all_nodes(nodes):
                assert node.op_type in only | {"Constant"} or (node.domain, node.op_type) in there


DIAMOND = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y) {
    a = Relu (x)
    b = Neg (a)
    c = Abs (a)
    y = Add (b, c)
}"""


@given(st.integers(0, 400), st.integers(1, 4))
def test_parts_are_never_such_that_a_path_leaves_and_comes_back(seed: int, most: int) -> None:
    model = onnx.parser.parse_model(DIAMOND)
    taken = take_apart(model.SerializeToString())
    part = choose_part(taken, Rng(seed), most)
    if part is None:
        return
    assert not ({0, 3} <= set(part) and len(part) < 4)
    compose_function(taken, part, "local", Rng(seed))
    made = assemble_model(taken)
    onnx.checker.check_model(made, full_check=True)
    check_structure(made)


def test_what_bodies_take_from_around_them_is_read_by_their_node() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (bool c, float[2] x, float[2] z) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] u) { v = Relu (x)  u = Neg (v) },
                        else_branch = e () => (float[2] w) { w = Abs (z) }>
        }"""
    )
    assert list(list_captured(model.graph.node[0])) == ["c", "x", "z"]
    program = OnnxProgram(model.SerializeToString())
    for seed in range(20):
        made = rewrite_functions(program, Rng(seed))
        assert parse_model(made.model, __file__).functions  # type: ignore[arg-type]
        onnx.checker.check_model(made.proto, full_check=True)
