"""Chains of operators that optimisers rewrite: the sequence that they follow, and the programs."""

import itertools

import onnx.checker

from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.chains import OPERATORS, iterate_symbols
from opsieve.gen.strategies.patterns.strategy import load_rewrites
from opsieve.gen.strategies.registry import generate
from opsieve_research.graph import operations


def test_every_three_symbols_come_once_in_a_period_and_any_place_can_be_begun_at() -> None:
    count = len(OPERATORS)
    assert count == len(set(OPERATORS) & operators().keys())
    period = count**3 - 1
    symbols = list(itertools.islice(iterate_symbols(0), period + 2))
    assert len(set(zip(symbols, symbols[1:], symbols[2:], strict=False))) == period
    for place in (1, 1000, period - 1, 3 * period + 77):
        assert list(itertools.islice(iterate_symbols(place), 4)) == [
            symbols[(place + i) % period] for i in range(4)
        ]


def test_programs_hold_more_different_chains_of_these_operators_than_those_of_isra() -> None:
    met = {}
    for name in ("chains", "isra"):
        found = set()
        for seed in range(40):
            program = generate(name, seed, GenRequest(nodes=20)).program
            onnx.checker.check_model(program.proto, full_check=True)  # type: ignore[union-attr]
            nodes = operations(program.proto)  # type: ignore[union-attr]
            for node in nodes:
                for second in node.consumers:
                    for third in nodes[second].consumers:
                        found.add((node.operator, nodes[second].operator, nodes[third].operator))
        met[name] = sum(set(chain) <= set(OPERATORS) for chain in found)
    assert met["chains"] > 2 * met["isra"]
    assert (
        generate("chains", 5, GenRequest(nodes=9)).program.digest
        == generate("chains", 5, GenRequest(nodes=9)).program.digest
    )


def test_rewrites_that_optimisers_list_stand_in_programs_and_in_bodies() -> None:
    listed = {rewrite.operators for rewrite in load_rewrites()}
    assert {name for names in listed for name in names} <= operators().keys()
    met, in_bodies = set(), 0
    for seed in range(60):
        nodes = operations(generate("chains", 3000 + seed, GenRequest(nodes=30)).program.proto)  # type: ignore[union-attr]
        for node in nodes:
            followed = {(node.operator, nodes[reader].operator) for reader in node.consumers}
            met |= followed
            in_bodies += node.holder >= 0 and bool(followed & set(listed))
    pairs = {names for names in listed if len(names) == 2}
    assert len(pairs & met) > 0.6 * len(pairs)
    assert in_bodies
