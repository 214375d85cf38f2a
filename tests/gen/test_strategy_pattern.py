"""Pattern: rewrites as data are parsed, every state builds a valid program of its own, and rewrites meet."""

import contextlib
from collections import Counter

import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import OLDEST, choices, operators
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.pattern_builder import Misfit
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, choose_outputs
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.graph.writing import serialize
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.strategies.patterns.rewrite_builder import RewriteBuilder
from opsieve.gen.strategies.patterns.rewrite_parser import Rewrite, parse_rewrites
from opsieve.gen.strategies.patterns.strategy import Planter, list_states, load_rewrites
from opsieve.gen.strategies.registry import generate
from opsieve_research.graph import operations
from opsieve_research.structure import Structure

PLAIN = resolve("onnxruntime:disable_all")
SEEDS = st.integers(0, 2**40)
PROJECTS = {
    "onnxruntime", "tvm", "openvino", "onnxoptimizer", "onnxscript", "onnxslim", "onnxsim", "inductor",
}  # fmt: skip
HEAD = "rewrite One\nfrom tvm file.cc Pass\n"
GEMM = "x = data(float, 2)\ny = Gemm(x, weight(x, [x.1, 3]))\n"


def blank(seed: str, opset: int = SUPPORTED) -> GraphBuilder:
    builder = GraphBuilder(
        ProgramState(Rng(seed), opset, Style(palette=("float32", "float32", "int64")), Budget())
    )
    builder.program.choices = choices(opset)
    return builder


def built(rewrite: Rewrite, state: int, seed: int) -> GraphBuilder | None:
    """A builder with one rewrite alone; None if this draw does not fit."""
    builder = blank(f"{rewrite.name} {seed}")
    try:
        rewrite.build(RewriteBuilder(builder, state))
    except Misfit:
        return None
    return builder


def described(builder: GraphBuilder | None) -> str:
    """Operators, attributes, types, readers and outputs of a program, without names."""
    assert builder is not None
    exposed = {tensor.name for tensor in builder.program.exposed}
    return str([
        (
            node.op,
            sorted((name, str(value)) for name, value in node.attrs.items()),
            [x and (x.name, x.dtype, x.shape, x.low, x.values, x.leaf) for x in node.ins],
            [tensor.name in exposed for tensor in node.outs],
        )
        for node in builder.nodes
    ])  # fmt: skip


def test_the_table_has_200_rewrites_of_eight_projects_with_their_sources() -> None:
    rewrites = load_rewrites()
    assert len(rewrites) >= 200
    assert sum(len(rewrite.states) - 1 for rewrite in rewrites) >= 600
    assert {project for rewrite in rewrites for project, _, _ in rewrite.sources} == PROJECTS
    assert {name for rewrite in rewrites for name in rewrite.operators} <= operators().keys()
    assert len(set(list_states())) == sum(len(rewrite.states) for rewrite in rewrites)


def test_a_rewrite_is_parsed_into_its_states() -> None:
    text = HEAD + GEMM + "once y\nz = {Relu ! Abs ~ Neg}(y)  # a comment\n"
    (rewrite,) = parse_rewrites(text + "\nrewrite Two\nfrom tvm f g\nx = data(float, 1)\n")[:1]
    assert rewrite.sources == (("tvm", "file.cc", "Pass"),)
    assert rewrite.states == ("all met", "uses of y broken", "z broken", "z on the edge")
    assert rewrite.operators == ("Gemm", "Relu")
    nodes = [[node.op for node in built(rewrite, state, 1).nodes] for state in (0, 2, 3)]  # type: ignore[union-attr]
    assert nodes == [["Gemm", "Relu"], ["Gemm", "Abs"], ["Gemm", "Neg"]]
    twice = built(rewrite, 1, 1)
    assert twice is not None
    assert twice.program.exposed or len(twice.nodes) == 3


def test_a_condition_inside_an_alternative_is_reached_in_its_state() -> None:
    text = HEAD + "x = data(float, 2)\ny = {Relu(x) | Softmax(x, axis={1 ! 0}) | Abs(x)}\n"
    (rewrite,) = parse_rewrites(text)
    assert rewrite.states == ("all met", "axis broken")
    for seed in range(8):
        builder = built(rewrite, 1, seed)
        assert builder is not None
        assert builder.nodes[0].op, builder.nodes[0].attrs == ("Softmax", {"axis": 0})


def test_lists_numbers_and_properties_are_computed() -> None:
    text = HEAD + (
        "x = tensor(float, [2, 3 * 2, 7 // 2])\n"
        "y = Transpose(x, perm=inverse([2, 0, 1]))\n"
        "a, b = Split(y, split=[1, y.0 - 1], axis=0)\n"
        "z = Reshape(b, ints([b.size - 1 % 2 + 1 - 1 + 1] + [1] * (x.rank - 2)))\n"
    )
    (rewrite,) = parse_rewrites(text)
    builder = built(rewrite, 0, 0)
    assert builder is not None
    assert [node.outs[0].shape for node in builder.nodes] == [(6, 3, 2), (1, 3, 2), (30, 1)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("x = data(float, 2)", "line 1: expected `rewrite NAME` before 'x'"),
        ("rewrite One Two", "line 1: expected `rewrite` and a name that no other rewrite has"),
        (HEAD + GEMM + HEAD, "line 5: expected `rewrite` and a name that no other rewrite has"),
        ("rewrite One\nx = data(float, 1)", "line 1: One needs a line `from PROJECT FILE FUNCTION`"),
        (HEAD + "from tvm", "line 3: expected `from PROJECT FILE FUNCTION`"),
        (HEAD + "y = Relu(x)", "line 3: x is neither a value above this line, nor a function, operator"),
        (HEAD + "y = Rely(1)", "line 3: Rely is neither"),
        (HEAD + "once y", "line 3: y is not a value above this line"),
        (HEAD + GEMM + "z = Relu(y", "line 5: expected ,, not the end of the line"),
        (HEAD + GEMM + "z = Relu(y))", "line 5: expected the end of the line, not )"),
        (HEAD + GEMM + "z = {Relu ? Abs}(y)", "line 5: '?' means nothing here"),
        (HEAD + GEMM + "z = {Relu Abs}(y)", "line 5: expected |, !, ~ or } in a choice, not Abs"),
        (HEAD + GEMM + "z = y.colour", "line 5: .colour is not a property"),
        (HEAD + GEMM + "z Relu(y)", "line 5: expected =, not Relu"),
        (HEAD + GEMM + "z = ", "line 5: expected a value, not the end of the line"),
    ],
)
def test_what_cannot_be_parsed_is_named_with_its_line(lines: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_rewrites(lines, "table")
    assert str(raised.value).startswith(f"table, {message}")


def test_every_state_builds_a_valid_program_that_differs_from_the_one_with_all_conditions_met() -> None:
    for rewrite in load_rewrites():
        met: dict[int, str] = {}
        for state, label in enumerate(rewrite.states):
            for seed in range(24):
                builder = built(rewrite, state, seed)
                if seed not in met:
                    plain = built(rewrite, 0, seed)
                    met[seed] = described(plain) if plain is not None else ""
                if builder is not None and (not state or described(builder) not in met.values()):
                    break
            else:
                pytest.fail(f"{rewrite.name}, {label}: no program of its own in 24 draws")
            model, _ = serialize(builder, choose_outputs(builder), "rewrite")
            onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)
            older = blank(f"{rewrite.name} {label}", Rng(label).between(OLDEST, SUPPORTED))
            with contextlib.suppress(Misfit):
                rewrite.build(RewriteBuilder(older, state))
            if older.nodes:
                model, _ = serialize(older, choose_outputs(older), "rewrite")
                onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)


def test_a_rewrite_begins_where_another_ends_or_at_a_tensor_inside_of_it() -> None:
    rewrites = {rewrite.name: rewrite for rewrite in load_rewrites()}
    builder = blank("links")
    first = RewriteBuilder(builder)
    given = rewrites["ConvMul"].build(first)
    before = len(builder.nodes)
    rewrites["ConvBatchNorm"].build(RewriteBuilder(builder, onto=given))
    assert builder.nodes[before].op == "Conv"
    assert builder.nodes[before].ins[0] is given  # nothing between the two
    before = len(builder.nodes)
    rewrites["ConvClip"].build(RewriteBuilder(builder, onto=first.inner[0]))
    assert builder.nodes[before].ins[0] is first.inner[0]
    assert first.inner[0].reads == 2
    with pytest.raises(Misfit):  # of another rank
        rewrites["GemmSum"].build(RewriteBuilder(builder, onto=given))


def test_seeds_in_a_row_build_each_state_before_any_recurs() -> None:
    seen = Counter[str]()
    for seed in range(len(list_states()) // 12):
        builder, planter = blank(f"row {seed}"), Planter(seed * 4)
        for _ in range(4):
            planter.plant_rewrite(builder)
        seen.update(builder.program.states)
    assert len(seen) > 0.24 * len(set(list_states()))
    assert max(count for name, count in seen.items() if not name.endswith("all met")) <= 3


def test_rewrites_meet_in_programs() -> None:
    """Some begin at what the last one gave or inside of it, in the program or in bodies around which it
    stands.
    """
    seen = Counter[str]()
    for seed in range(120):
        builder, planter = blank(f"meet {seed}"), Planter(seed * 4)
        for _ in range(3):
            ends, inner = list(planter.given), list(planter.inner)
            before = len(builder.nodes)
            planter.plant_rewrite(builder)
            read = [tensor for node in builder.nodes[before : before + 1] for tensor in node.ins]
            seen["fed"] += any(tensor is end for tensor in read for end in ends)
            seen["shared"] += any(tensor is x for tensor in read for x in inner)
        body = builder.start_body()
        planter.plant_rewrite(body)
        outside = {id(out) for node in builder.nodes for out in node.outs}
        seen["body"] += any(id(tensor) in outside for node in body.nodes for tensor in node.ins)
        seen["given"] += any(tensor.reads for tensor in builder.program.exposed)
    assert min(seen[kind] for kind in ("fed", "shared", "body", "given")) >= 5, seen


@given(SEEDS, st.integers(1, 25))
@settings(deadline=None, max_examples=60)
def test_programs_are_valid(seed: int, size: int) -> None:
    model = generate("pattern", seed, GenRequest(nodes=size)).program.proto
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.node) >= 1


def test_programs_run(workers: Workers) -> None:
    cases = [generate("pattern", seed, GenRequest(nodes=8)) for seed in range(75)]
    tests = [Test(case.program, case.inputs) for case in cases]
    seen = Counter[str]()
    for case, answer in zip(cases, workers.observe_many(PLAIN, tests), strict=True):
        seen[answer.outcome] += 1
        assert answer.outcome in ("ok", "unsupported", "environment"), (case.program.name, answer.message)
    assert seen["ok"] > 50, seen


def test_rewrites_stand_in_bodies_and_go_on_from_each_other() -> None:
    models = [generate("pattern", seed, GenRequest(nodes=20)).program.proto for seed in range(60)]
    inner = [
        len(body.node) for model in models for node in all_nodes(model.graph.node) for body in bodies(node)
    ]
    assert sum(count > 3 for count in inner) >= 4  # grown bodies have three nodes at most, and what adapts
    found = Structure()
    for model in models:
        found.add(operations(model))
    assert found.figures()["longest_path"] > 13
