"""Pattern: every structure can be planted, near misses are others, and programs are valid."""

from collections import Counter

import onnx
import pytest
from hypothesis import given, settings, strategies as st

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.builder import Budget, Style
from opsieve.gen.declarations.catalogue import choices
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, choose_outputs
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.graph.writing import serialize
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.strategies.patterns.strategy import PATTERNS, Planter
from opsieve.gen.strategies.registry import generate
from opsieve_research.graph import operations
from opsieve_research.structure import Structure

PLAIN = resolve("onnxruntime:disable_all")
SEEDS = st.integers(0, 2**40)
DRAWS = 40


def blank(seed: str) -> GraphBuilder:
    builder = GraphBuilder(
        ProgramState(Rng(seed), SUPPORTED, Style(palette=("float32", "float32", "int64")), Budget())
    )
    builder.program.choices = choices(SUPPORTED)
    return builder


def planted(name: str, seed: int, twisted: bool, broken: int | None = None) -> GraphBuilder | None:
    """A builder with one structure alone; None when this draw did not fit."""
    builder = blank(f"{name} {seed}")
    try:
        PATTERNS[name](PatternBuilder(builder, twisted, broken))
    except Misfit:
        return None
    return builder


def told(builder: GraphBuilder) -> tuple[object, ...]:
    """What a structure is, names aside: operators, attributes, types, who reads whom, what is given."""
    exposed = {tensor.name for tensor in builder.program.exposed}
    nodes = [
        (
            node.op,
            sorted((name, str(value)) for name, value in node.attrs.items()),
            [
                tensor and (tensor.name, tensor.dtype, tensor.shape, tensor.values, tensor.leaf)
                for tensor in node.ins
            ],
            [tensor.name in exposed for tensor in node.outs],
        )
        for node in builder.nodes
    ]
    return (nodes,)


def test_there_are_many_structures() -> None:
    assert len(PATTERNS) >= 40


@pytest.mark.parametrize("name", PATTERNS)
def test_every_structure_can_be_planted_and_is_valid(name: str) -> None:
    for twisted in (False, True):
        found = [builder for seed in range(DRAWS) if (builder := planted(name, seed, twisted)) is not None]
        assert len(found) >= DRAWS // 10, (name, twisted, len(found))
        for builder in found[:4]:
            model, _ = serialize(builder, choose_outputs(builder), name)
            onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)


def test_near_misses_are_others() -> None:
    """From the same draws a twisted structure is now and then another one; most structures have several near
    misses.
    """
    kinds = {
        name: {
            str(told(near))
            for seed in range(DRAWS)
            if (near := planted(name, seed, True)) is not None
            and ((plain := planted(name, seed, False)) is None or told(near) != told(plain))
        }
        for name in PATTERNS
    }
    several = [name for name, found in kinds.items() if len(found) >= 3]
    assert len(several) >= 0.8 * len(PATTERNS), sorted(set(PATTERNS) - set(several))


def test_a_single_condition_can_be_broken() -> None:
    """All else is as in the plain structure from the same draws: nothing is broken where there are fewer
    conditions.
    """
    others = {
        name: {
            place
            for place in range(PatternBuilder.rates.sites)
            for seed in range(DRAWS // 4)
            if (plain := planted(name, seed, False)) is not None
            and ((near := planted(name, seed, True, place)) is None or told(near) != told(plain))
        }
        for name in PATTERNS
    }
    assert sum(len(places) >= 2 for places in others.values()) >= 0.5 * len(PATTERNS), others
    assert sum(bool(places) for places in others.values()) >= 0.8 * len(PATTERNS), others
    for name in PATTERNS:
        plain, near = planted(name, 3, False), planted(name, 3, True, 99)
        assert (plain and told(plain)) == (near and told(near))


def test_a_structure_begins_where_another_ends_or_at_a_tensor_inside_of_it() -> None:
    builder = blank("links")
    first = PatternBuilder(builder)
    given = PATTERNS["conv_scaled"](first)
    before = len(builder.nodes)
    PATTERNS["conv_bn"](PatternBuilder(builder, onto=given))
    assert builder.nodes[before].op == "Conv"
    assert builder.nodes[before].ins[0] is given  # nothing between the two
    before = len(builder.nodes)
    PATTERNS["conv_activation"](PatternBuilder(builder, onto=first.inner[0]))
    assert builder.nodes[before].ins[0] is first.inner[0]
    assert first.inner[0].reads == 2
    with pytest.raises(Misfit):  # of another rank
        PATTERNS["gemm_forms"](PatternBuilder(builder, onto=given))


def test_structures_meet_in_programs() -> None:
    """Some begin at what the last one gave or inside of it, in the program or in bodies around which it
    stands.
    """
    seen = Counter[str]()
    for seed in range(120):
        builder, planter = blank(f"meet {seed}"), Planter()
        for _ in range(3):
            ends, inner = list(planter.given), list(planter.inner)
            before = len(builder.nodes)
            planter.plant_structure(builder)
            read = [tensor for node in builder.nodes[before : before + 1] for tensor in node.ins]
            seen["fed"] += any(tensor is end for tensor in read for end in ends)
            seen["shared"] += any(tensor is x for tensor in read for x in inner)
        body = builder.start_body()
        planter.plant_structure(body)
        outside = {id(out) for node in builder.nodes for out in node.outs}
        seen["body"] += any(id(tensor) in outside for node in body.nodes for tensor in node.ins)
        seen["given"] += any(tensor.reads for tensor in builder.program.exposed)
    assert min(seen[kind] for kind in ("fed", "shared", "body", "given")) >= 8, seen


@given(SEEDS, st.integers(1, 25))
@settings(deadline=None, max_examples=60)
def test_programs_are_valid(seed: int, size: int) -> None:
    model = generate("pattern", seed, GenRequest(nodes=size)).program.proto
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.node) >= 1


def test_programs_run(workers: Workers) -> None:
    cases = [generate("pattern", seed, GenRequest(nodes=8)) for seed in range(150)]
    tests = [Test(case.program, case.inputs) for case in cases]
    seen = Counter[str]()
    for case, answer in zip(cases, workers.observe_many(PLAIN, tests), strict=True):
        seen[answer.outcome] += 1
        assert answer.outcome in ("ok", "unsupported", "environment"), (case.program.name, answer.message)
    assert seen["ok"] > 100, seen


def test_structures_stand_in_bodies_and_go_on_from_each_other() -> None:
    models = [generate("pattern", seed, GenRequest(nodes=20)).program.proto for seed in range(60)]
    inner = [
        len(body.node) for model in models for node in all_nodes(model.graph.node) for body in bodies(node)
    ]
    assert sum(count > 3 for count in inner) >= 4  # grown bodies have three nodes at most, and what adapts
    found = Structure()
    for model in models:
        found.add(operations(model))
    assert found.figures()["longest_path"] > 13
