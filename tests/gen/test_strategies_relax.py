"""The strategies of Relax modules beside `relax` itself, and what the generator leaves out."""

import numpy as np
import pytest
from models import program as onnx_program

from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.relax import passes
from opsieve.gen.irs.relax.generator import generate as module_of
from opsieve.gen.irs.relax.known_faults import patterns
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import Call, Constant, GlobalVar
from opsieve.gen.irs.relax.walk import expressions, functions, is_recursive
from opsieve.gen.strategies.registry import generate
from opsieve.gen.strategies.relax import relax


def test_every_program_of_relax_passes_has_a_legal_sequence_and_none_is_made_wrong() -> None:
    for seed in range(20):
        case = generate("relax-passes", seed, GenRequest(nodes=5))
        assert case.program.passes
        assert passes.legalise_steps(case.program.passes) == tuple(case.program.passes)
        assert case.program.fault is None
        assert set(case.inputs) == set(case.program.inputs())


def test_relax_mutate_changes_modules_of_the_corpus() -> None:
    first = generate("relax-passes", 3, GenRequest(nodes=6)).program
    assert isinstance(first, RelaxProgram)
    corpus = (RelaxProgram(first.module),)
    made = [generate("relax-mutate", seed, GenRequest(nodes=6, corpus=corpus)) for seed in range(6)]
    assert any(case.program.data != first.data for case in made)
    assert all(case.program.inputs().keys() == first.inputs().keys() for case in made)
    again = generate("relax-mutate", 0, GenRequest(nodes=6, corpus=corpus))
    assert again.program.data == made[0].program.data


@pytest.mark.parametrize("strategy", ["relax", "relax-mutate"])
def test_every_recursion_ends(strategy: str) -> None:
    """Only the generator's loops call themselves, and others call these with a small constant count."""
    loops = 0
    for seed in range(60):
        program = generate(strategy, seed, GenRequest(nodes=8)).program
        assert isinstance(program, RelaxProgram)
        module = from_json(program.module.decode())
        table = dict(module.functions)
        recursive = {name for name, _ in functions(module) if is_recursive(table, name)}
        assert all(name.startswith("loop") for name in recursive), (seed, recursive)
        loops += len(recursive)
        for name, function in functions(module):
            if name in recursive:
                continue
            for call in expressions(function.body):
                callee = call.op if isinstance(call, Call) else None
                if isinstance(callee, GlobalVar) and callee.name in recursive:
                    assert isinstance(call, Call)
                    assert isinstance(count := call.args[1], Constant)
                    assert 0 <= np.frombuffer(count.array.data, np.int64)[0] <= 3
    assert loops


def test_a_corpus_without_a_relax_module_is_refused() -> None:
    with pytest.raises(BadInput, match="is a Relax module that can be mutated"):
        generate(
            "relax-mutate",
            0,
            GenRequest(corpus=(onnx_program("g (float[2] x) => (float[2] y) { y = Relu(x) }"),)),
        )


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"known-faults"}))
def test_the_generator_makes_nothing_that_tvm_is_known_to_fail_at(policy: str) -> None:
    for seed in range(15):
        assert not patterns(module_of(seed, POLICIES[policy]()).module)


def test_the_policy_of_known_faults_makes_them() -> None:
    left = {"closure-passed", "constant-condition", "constant-cast", "branch-storage", "rms-norm-axes"}
    for seed in range(300):
        left -= patterns(module_of(seed, POLICIES["known-faults"]()).module)
        if not left:
            return
    pytest.fail(f"{left} in none of 300 modules")


@pytest.mark.slow(seconds=3)
def test_programs_made_wrong_break_a_type_a_size_or_the_number_of_arguments() -> None:
    """TVM refuses each kind: `benchmarks/invariants.py --only valid/relax` asks it."""
    faults = [relax(GenRequest(), seed).program.fault for seed in range(220)]
    kinds = {fault.kind for fault in faults if fault is not None}
    assert kinds == {"mixed-dtypes", "relation", "missing-input"}
