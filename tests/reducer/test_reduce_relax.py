"""Relax modules reduced: planted faults come down to the known minimum, sequences of passes to the guilty
ones.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from relax_interface import operators
from slow_params import keep_quick

from opsieve.gen.irs.relax.edits import make_literal, make_ones
from opsieve.gen.irs.relax.generator import generate
from opsieve.gen.irs.relax.passes import draw
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import (
    Bind,
    BindingBlock,
    Call,
    Function,
    GlobalVar,
    If,
    Module,
    Projection,
    RelaxOperator,
    Scalar,
    Seq,
    Var,
)
from opsieve.gen.irs.relax.types import FuncType, RelaxTensorType, TupleType
from opsieve.gen.irs.relax.walk import all_bindings, expressions, functions
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.strategies.relax import fitting_inputs
from opsieve.reducer.engine.certificate import certify, to_fixpoint
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Rules
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.relax.edits import read_tree
from opsieve.reducer.irs.relax.passes import PASSES, relax_parts
from opsieve.reducer.irs.tvm.subject import TvmForm, TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction

FILLS = {"relax.full", "relax.ones", "relax.zeros"}  # what a reduction puts in the place of what it takes out
Fault = Callable[[TvmSubject], bool]


def module_of(subject: TvmSubject) -> Module:
    return read_tree(subject.program.data).module


class Planted:
    """A test that is `same` where the fault shows."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self.asked = fault, 0

    def evaluate(self, subjects: Sequence[TvmSubject]) -> Iterator[CheckResult]:
        for subject in subjects:
            self.asked += 1
            yield CheckResult("same" if self.fault(subject) else "gone")


class Anything:
    def complaints(self, subjects: Sequence[TvmSubject]) -> list[str]:
        return [""] * len(subjects)


def start(seed: int, policy: str, steps: tuple[str, ...] = ()) -> TvmSubject:
    chosen = POLICIES[policy]()
    chosen.bindings = 6
    made = generate(seed, chosen)
    program = RelaxProgram(to_json(made.module).encode(), steps)
    return TvmSubject(program, fitting_inputs(program, made.symbols, seed))


def test_a_negative_size_has_no_literal() -> None:
    """TVM infers such a size for a slice that ends before it begins."""
    assert make_literal(RelaxTensorType("float32", (4, -2))) is None
    assert make_literal(RelaxTensorType("float32", (-1, -2))) is None
    assert make_literal(RelaxTensorType("float32", (4, 0))) is not None


def reduced(subject: TvmSubject, fault: Fault) -> tuple[TvmSubject, int]:
    """The result and the number of tests before it was found."""
    test, dimensions = Planted(fault), RelaxReduction().passes()
    engine = Engine(subject, Rules(TvmForm(), [test], Anything()), Journal(""))
    to_fixpoint(engine, dimensions)
    found = test.asked
    certificate = certify(engine, dimensions)
    assert certificate.minimal, certificate.lines
    return engine.best, found


def applies(name: str) -> Fault:
    return lambda subject: name in operators(module_of(subject))


def feeds(subject: TvmSubject, first: str, second: str) -> bool:
    """Whether what one operator yields is read by another."""
    for _, function in functions(module_of(subject)):
        made = {
            b.var.name: b.value.op.name
            for b in all_bindings(function.body)
            if isinstance(b.value, Call) and isinstance(b.value.op, RelaxOperator)
        }
        for binding in all_bindings(function.body):
            call = binding.value
            if (
                isinstance(call, Call)
                and call.op == RelaxOperator(second)
                and any(isinstance(arg, Var) and made.get(arg.name) == first for arg in call.args)
            ):
                return True
    return False


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(30), marks=pytest.mark.slow)], ids=["few", "thirty"]
)
def test_planted_faults_come_down_to_one_operation(seeds: range) -> None:
    asked, small = [], 0
    for seed in seeds:
        subject = start(seed, list(POLICIES)[seed % 6])
        present = [name for name in operators(module_of(subject)) if name not in FILLS]
        if not present:
            continue
        name = random.Random(seed).choice(present)
        best, checks = reduced(subject, applies(name))
        left = operators(module_of(best))
        assert left.count(name) == 1
        small += set(left) - FILLS <= {name} and len(module_of(best).functions) <= 2
        asked.append(checks)
    assert small >= 0.8 * len(asked)
    assert median(asked) <= 30


@pytest.mark.slow(seconds=3)
def test_an_edge_between_two_operators_comes_down_to_the_two() -> None:
    for seed in (3, 8):
        subject = start(seed, "fusable")
        pairs = [
            (a, b)
            for a in sorted(set(operators(module_of(subject))))
            for b in sorted(set(operators(module_of(subject))))
            if a != b and not {a, b} & FILLS and feeds(subject, a, b)
        ]
        if pairs:
            first, second = pairs[0]
            best, _ = reduced(subject, lambda s, first=first, second=second: feeds(s, first, second))
            assert set(operators(module_of(best))) - FILLS == {first, second}


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000))
def test_a_sequence_of_passes_comes_down_to_the_guilty_two(seed: int) -> None:
    rng = random.Random(seed)
    steps = tuple(dict.fromkeys(draw(rng, 12)))
    guilty = tuple(sorted(rng.sample(range(len(steps)), 2)))
    first, second = steps[guilty[0]], steps[guilty[1]]

    def fault(subject: TvmSubject) -> bool:
        there = subject.program.passes
        return first in there and second in there and there.index(first) < there.index(second)

    best, _ = reduced(start(seed % 50, "general", steps), fault)
    assert best.program.passes == (first, second)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_candidate_is_a_module_in_order(policy: str) -> None:
    subject = start(5, policy)
    for dimension in PASSES:
        for edit in list(dimension.edits(subject))[:8]:
            smaller = edit.apply(subject)
            if smaller is not None:
                assert list(smaller.inputs) == [param.name for param in module_of(smaller).main.params]
                assert list(RelaxProgram(smaller.program.data).inputs()) == list(smaller.inputs)


@pytest.mark.parametrize("policy", ["control-flow", "higher-order"])
def test_a_fault_inside_a_branch_or_a_function_needs_neither(policy: str) -> None:
    for seed in range(40, 70):
        subject = start(seed, policy)
        inner = {
            expr.op.name
            for _, function in functions(module_of(subject))
            for binding in all_bindings(function.body)
            if isinstance(binding.value, If)
            for side in (binding.value.then, binding.value.other)
            for expr in expressions(side)
            if isinstance(expr, Call) and isinstance(expr.op, RelaxOperator)
        } - FILLS
        if inner:
            name = min(inner)
            best, _ = reduced(subject, applies(name))
            assert [item for item in operators(module_of(best)) if item not in FILLS] == [name]
            assert [function for function, _ in module_of(best).functions] == ["main"]
            return
    pytest.fail("no module with an operator in a branch was drawn")


def passes_a_scalar(subject: TvmSubject) -> bool:
    """Whether a function of the module is given a scalar: TVM 0.27 prints it as a number of Python, and
    cannot read that again.
    """
    return any(
        isinstance(expr, Call)
        and isinstance(expr.op, GlobalVar)
        and any(isinstance(arg, Scalar) for arg in expr.args)
        for _, function in functions(module_of(subject))
        for expr in expressions(function.body)
    )


@pytest.mark.parametrize("seed", keep_quick([10, 4], 1))
def test_a_parameter_that_nothing_reads_stays_where_the_failure_needs_it(seed: int) -> None:
    subject = start(seed, "control-flow")
    assert passes_a_scalar(subject)
    best, _ = reduced(subject, passes_a_scalar)
    assert operators(module_of(best)) == []
    (called,) = [f for name, f in module_of(best).functions if name != "main" and isinstance(f, Function)]
    assert len(called.params) == 1
    assert not module_of(best).main.params
    calls = [e for e in expressions(module_of(best).main.body) if isinstance(e, Call)]
    assert len(calls) == 1


def test_a_binding_that_nothing_reads_stays_where_the_failure_needs_it() -> None:
    def fault(subject: TvmSubject) -> bool:
        return any(name == "main" for name, _ in read_tree(subject.program.data).unread.bindings)

    subject = next(found for seed in range(40) if fault(found := start(seed, "fusable")))
    best, _ = reduced(subject, fault)
    assert len(read_tree(best.program.data).unread.bindings) == 1
    assert len(operators(module_of(best))) <= 1
    assert not module_of(best).main.params


def test_an_unread_call_goes_where_the_failure_needs_the_function_that_it_alone_calls() -> None:
    """Seed 1011 of the attack: the function went with its only call, so the call stayed."""
    kind = RelaxTensorType("float32", ())
    given, less, called, result = Var("p", kind), Var("less", kind), Var("called", kind), Var("result", kind)
    subtract = Bind(less, Call(RelaxOperator("relax.subtract"), (given, given), kind))
    helper = Function((given,), Seq((BindingBlock((subtract,)),), less), kind)
    name = GlobalVar("helper", FuncType((kind,), kind))
    x = Var("x", kind)
    bindings = (
        Bind(called, Call(name, (x,), kind)),
        Bind(result, Call(RelaxOperator("relax.abs"), (x,), kind)),
    )
    main = Function((x,), Seq((BindingBlock(bindings),), result), kind)
    program = RelaxProgram(to_json(Module((("helper", helper), ("main", main)))).encode())
    subject = TvmSubject(program, {"x": np.ones((), np.float32)})

    def fault(now: TvmSubject) -> bool:
        return {"relax.subtract", "relax.abs"} <= {*operators(module_of(now))} and len(
            module_of(now).functions
        ) == 2

    best, _ = reduced(subject, fault)
    assert [len(list(all_bindings(f.body))) for _, f in functions(module_of(best))] == [1, 1]


def test_ones_that_are_too_large_for_a_constant_are_as_simple_as_a_tensor_gets() -> None:
    large, kind = RelaxTensorType("float32", (480,)), RelaxTensorType("float32", ())
    ones, total, x = Var("ones", large), Var("total", kind), Var("x", kind)
    call = make_ones(large)
    assert call is not None
    bindings = (Bind(ones, call), Bind(total, Call(RelaxOperator("relax.sum"), (ones,), kind)))
    main = Function((x,), Seq((BindingBlock(bindings),), total), kind)
    subject = TvmSubject(RelaxProgram(to_json(Module((("main", main),))).encode()), {"x": np.ones((), "f")})
    simplest = {part.key: part.simplest for part in relax_parts(subject) if part.kind == "bindings"}
    assert simplest == {"ones": "it makes ones", "total": ""}


def test_a_module_that_takes_a_tuple_is_reduced() -> None:
    """What main takes field by field stays fed, and the tuple may become constants."""
    kind = RelaxTensorType("float64", (3,))
    pair, taken = Var("pair", TupleType((kind, kind))), Var("taken", kind)
    total = Var("total", kind)
    bindings = (
        Bind(taken, Projection(pair, 1, kind)),
        Bind(total, Call(RelaxOperator("relax.add"), (taken, taken), kind)),
    )
    main = Function((pair,), Seq((BindingBlock(bindings),), total), kind)
    program = RelaxProgram(to_json(Module((("main", main),))).encode())
    subject = TvmSubject(program, {name: np.ones(3) for name in program.inputs()})
    candidates = [edit.apply(subject) for dimension in PASSES for edit in dimension.edits(subject)]
    assert any(candidate and candidate.inputs for candidate in candidates)
    for candidate in filter(None, candidates):
        assert list(candidate.inputs) == list(RelaxProgram(candidate.program.data).inputs())
    best, _ = reduced(subject, applies("relax.add"))
    assert (operators(module_of(best)), dict(best.inputs)) == (["relax.add"], {})
