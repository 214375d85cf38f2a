"""Generated modules of Relax, seen without TVM (tests/workers asks TVM of them)."""

import random

from hypothesis import given, settings, strategies as st
from relax_interface import inputs, operators as operators_of, outputs

from opsieve.gen.irs.relax.catalogue import Solutions, operators, yielding
from opsieve.gen.irs.relax.declaration import Draw, Solution, Want
from opsieve.gen.irs.relax.generator import Generated, generate
from opsieve.gen.irs.relax.policies import POLICIES, ControlFlow, FusableChains
from opsieve.gen.irs.relax.program import module_text
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import BindingBlock, Function, If, Module
from opsieve.gen.irs.relax.types import RelaxTensorType
from opsieve.gen.irs.relax.walk import all_bindings, expressions, functions
from opsieve.gen.irs.relax.writing import to_json

SEEDS = st.integers(0, 2**32)
policies = st.sampled_from(sorted(POLICIES))


def made(seed: int, policy: str) -> Generated:
    return generate(seed, POLICIES[policy]())


@settings(max_examples=40, deadline=None)
@given(SEEDS, policies)
def test_a_module_comes_back_from_its_json(seed: int, policy: str) -> None:
    module = made(seed, policy).module
    text = to_json(module)
    assert to_json(from_json(text)) == text


@settings(max_examples=20, deadline=None)
@given(SEEDS, policies)
def test_equal_seeds_give_equal_modules(seed: int, policy: str) -> None:
    assert to_json(made(seed, policy).module) == to_json(made(seed, policy).module)


@settings(max_examples=20, deadline=None)
@given(SEEDS, policies)
def test_every_name_is_bound_once_and_the_text_names_them(seed: int, policy: str) -> None:
    module = made(seed, policy).module
    names = [binding.var.name for _, function in functions(module) for binding in all_bindings(function.body)]
    names += [param.name for _, function in functions(module) for param in function.params]
    assert len(names) == len(set(names))
    text = module_text(module)
    assert all(name in text for name in names)
    assert list(inputs(module)) == [param.name for param in module.main.params]
    assert outputs(module)


def test_policies_make_what_they_say() -> None:
    def branches(module: Module) -> int:
        return sum(isinstance(e, If) for _, f in functions(module) for e in expressions(f.body))

    def dataflow(module: Module) -> int:
        return sum(block.dataflow for _, f in functions(module) for block in blocks(f))

    def blocks(function: Function) -> tuple[BindingBlock, ...]:
        return function.body.blocks

    chains = [generate(seed, FusableChains()).module for seed in range(20)]
    control = [generate(seed, ControlFlow()).module for seed in range(20)]
    assert sum(map(branches, chains)) == 0 < sum(map(branches, control))
    assert sum(map(dataflow, chains)) > sum(map(dataflow, control))


def test_all_operators_are_reached() -> None:
    draw = Draw(random.Random(0))
    solutions = Solutions(draw)
    seen = {
        name
        for seed in range(400)
        for name in operators_of(generate(seed, POLICIES["general"](), solutions).module)
    }
    seen |= {name for name in operators() for _ in [operators()[name].sample(draw)]}
    assert len(operators()) >= 120
    assert set(operators()) <= seen


def test_what_is_sampled_is_recognised_and_solved() -> None:
    for name, operator in sorted(operators().items()):
        draw = Draw(random.Random(7))
        for _ in range(10):
            kind, solution = operator.sample(draw)
            assert operator in yielding(kind), name
            for want in wanted(solution):
                assert isinstance(want.type, RelaxTensorType), name
                assert all(isinstance(size, int) and size >= 0 for size in want.type.shape or ()), name


def wanted(solution: Solution) -> list[Want]:
    parts = [part for arg in solution.args for part in (arg if isinstance(arg, tuple) else (arg,))]
    return [part for part in parts if isinstance(part, Want)]
