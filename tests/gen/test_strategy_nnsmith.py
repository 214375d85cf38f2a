"""Programs whose sizes a solver chooses: sound, as wished, the same everywhere, and spread by bins."""

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from in_process import InProcessLab

from opsieve.backends.registry import resolve
from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import choices, operators
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.symbolic_arith import both, either, where
from opsieve.gen.declarations.terms import NUMBER, OpenSize, Term, value
from opsieve.gen.generation.random_graph import GenRequest, start
from opsieve.gen.irs.onnx.model_file import check
from opsieve.gen.operators.slice_concat import count_slice
from opsieve.gen.strategies.nnsmith.solving import Constraints
from opsieve.gen.strategies.nnsmith.strategy import nnsmith
from opsieve.gen.strategies.nnsmith.symbolic_builder import SymbolicBuilder
from opsieve.gen.strategies.registry import generate

HASHES = (
    "import hashlib\nfrom opsieve.gen.generation.random_graph import GenRequest\nfrom"
    " opsieve.gen.strategies.nnsmith.strategy import nnsmith\n"
    + "print(*(hashlib.sha256(nnsmith(GenRequest(nodes=12), seed).program.model).hexdigest() for seed in"
    " (%s)))"
)


def nodes(case: Case) -> int:
    return sum(node.op_type != "Constant" for node in case.program.proto.graph.node)


@pytest.mark.parametrize("size", [1, 10, 20, 50])
def test_programs_are_sound_and_as_long_as_wished(size: int) -> None:
    for seed in range(60 // size if size < 50 else 2):
        case = nnsmith(GenRequest(nodes=size), seed)
        assert check(case.program.model) == ""
        assert nodes(case) >= size
        inferred = onnx.shape_inference.infer_shapes(case.program.proto, check_type=True, strict_mode=True)
        assert [out.type for out in inferred.graph.output] == [
            out.type for out in case.program.proto.graph.output
        ]


def test_equal_seeds_give_equal_bytes_in_any_order_process_and_hash_seed() -> None:
    seeds = list(range(8))
    here = {
        seed: hashlib.sha256(nnsmith(GenRequest(nodes=12), seed).program.model).hexdigest()
        for seed in reversed(seeds)
    }
    there = subprocess.run(
        [sys.executable, "-c", HASHES % ",".join(map(str, seeds))],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert there.split() == [here[seed] for seed in seeds]


def test_every_sampler_for_open_sizes_gives_sound_programs() -> None:
    """Each operator alone, in programs of its own only: those with a sampler for open sizes of their own."""
    for name in (name for name, op in operators().items() if callable(op.symbolic)):
        for seed in range(2):
            case = nnsmith(GenRequest(nodes=3, only=frozenset((name,)), opset=21), seed)
            assert check(case.program.model) == "", name
            assert {node.op_type for node in case.program.proto.graph.node} - {"Constant"} == {name}


def test_how_many_sizes_there_are_is_not_asked_of_a_size_that_is_open() -> None:
    for seed in (0, 4, 7):
        request = GenRequest(
            nodes=10, only=frozenset(("AffineGrid", "Add", "Relu")), dtypes=frozenset(("float32",))
        )
        assert check(nnsmith(request, seed).program.model) == ""


def test_at_least_130_operators_have_open_sizes() -> None:
    assert sum(bool(op.symbolic) for op in operators().values() if not op.domain) >= 130


def test_a_sampler_that_runs_on_open_sizes_is_seldom_refused() -> None:
    """An operator whose sampler looks at numbers would never be inserted."""
    for choice in choices(20):
        if not choice.op.symbolic:
            continue
        for seed in range(12):
            symbolic = SymbolicBuilder(start(GenRequest(opset=20), seed, "nnsmith"))
            symbolic.begin_instance(False)
            dtype = symbolic.rng.choice(choice.leaves)
            x = symbolic.placeholder(dtype, symbolic.shape(choice.low, choice.high), "input")
            made = choice.op.open_instance(symbolic, x)
            if made is None:
                continue
            relations = [*symbolic.relations, *choice.op.requires(made.inputs, made.attributes)]
            if symbolic.constraints.add_relations(relations):
                break
        else:
            pytest.fail(choice.op.name)


def test_bins_make_sizes_differ() -> None:
    """The ablation of docs/benchmarks/generator.md in small: how many shapes there are with and without
    bins.
    """
    told = []
    for bins in (0, 7):
        shapes = set()
        for seed in range(25):
            graph = nnsmith(GenRequest(nodes=6, bins=bins), seed).program.proto.graph
            shapes |= {
                tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim) for info in graph.input
            }
        told.append(len(shapes))
    assert told[1] > 1.3 * told[0]


def test_values_stay_finite() -> None:
    """On onnxruntime; what it lacks a kernel for says nothing."""
    ran = 0
    for seed in range(16):
        case = nnsmith(GenRequest(nodes=8, dtypes=frozenset(("float32", "int64", "bool")), opset=18), seed)
        lab = InProcessLab()
        outputs = lab.observe(resolve("onnxruntime"), case.program, case.inputs).outputs
        for out in (outputs or {}).values():
            ran += 1
            assert out.dtype.kind != "f" or np.isfinite(out).all(), seed
    assert ran > 10


def test_wishes_are_heard() -> None:
    case = generate("nnsmith", 3, GenRequest(nodes=6, only=frozenset(("Add", "Conv", "Relu")), opset=17))
    assert {node.op_type for node in case.program.proto.graph.node} <= {"Add", "Conv", "Relu", "Constant"}
    assert case.program.proto.opset_import[0].version == 17
    assert case.origin.generator == "nnsmith"


@given(
    side=st.integers(1, 9),
    start=st.integers(-20, 20),
    end=st.integers(-20, 20),
    step=st.sampled_from([1, 2, 3, -1, -2]),
)
@settings(max_examples=60, deadline=None)
def test_a_slice_is_as_long_as_a_term_as_in_python(side: int, start: int, end: int, step: int) -> None:
    n, a, b = (Term(NUMBER, (place,)) for place in range(3))
    assert value(count_slice(n, a, b, step), (side, start, end)) == count_slice(side, start, end, step)
    if -side <= start < side:
        assert count_slice(side, start, end, step) == len(range(side)[slice(start, end, step)])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=8), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_what_holds_is_a_solution_and_bins_do_not_break_it(ranges: list[tuple[int, int]], seed: int) -> None:
    constraints = Constraints()
    numbers = [constraints.add_number(low, low + span, (0,) if low == 0 else ()) for low, span in ranges]
    total = sum(low for low, _ in ranges) + 3
    fits = constraints.add_relations([sum(numbers) <= total])
    assert fits
    assert not constraints.add_relations([numbers[0] < ranges[0][0]])
    assert not constraints.add_relations([True, False])
    constraints.spread_numbers(Rng(seed))
    values = [constraints.get_value(number) for number in numbers]
    assert sum(values) <= total
    assert all(low <= value <= low + span for value, (low, span) in zip(values, ranges, strict=True))


def test_what_cannot_hold_leaves_everything_as_it_was_and_what_can_is_found_through_choices_and_chains() -> (
    None
):
    constraints = Constraints()
    a, b, c, d = (constraints.add_number(1, 40) for _ in range(4))
    assert constraints.add_relations([b == a, c == b * 3, d == where(c == 9, c + 1, 2)])
    assert constraints.add_relations([either(d == 10, d == 50)])
    assert [constraints.get_value(size) for size in (a, b, c, d)] == [3, 3, 9, 10]
    assert not constraints.add_relations([a + b + c <= 14])
    assert not constraints.add_relations([d % 7 == 4, a == 5])
    assert [constraints.get_value(size) for size in (a, b, c, d)] == [3, 3, 9, 10]
    assert constraints.add_relations([a < 4, c // 2 == 4])
    assert constraints.add_relations([a * 2 != 7])


_TERMS = st.recursive(
    st.one_of(st.integers(0, 4), st.integers(0, 2).map(lambda place: Term(NUMBER, (place,)))),
    lambda parts: st.one_of(
        st.tuples(st.sampled_from("+-*"), parts, parts).map(lambda it: Term(it[0], it[1:])),
        st.tuples(st.sampled_from(["//", "%"]), parts, st.integers(1, 4)).map(lambda it: Term(it[0], it[1:])),
    ),
    max_leaves=6,
)
_COMPARED = st.tuples(st.sampled_from(["==", "!=", "<=", "<"]), _TERMS, _TERMS).map(
    lambda it: Term(it[0], it[1:])
)
_RELATIONS = st.one_of(
    _COMPARED,
    st.tuples(_COMPARED, _COMPARED).map(lambda it: either(*it)),
    st.tuples(_COMPARED, _COMPARED).map(lambda it: both(*it)),
    st.tuples(_COMPARED, _TERMS, _TERMS, _TERMS).map(
        lambda it: where(it[0], it[1], it[2]) == Term("+", (it[3], 1))
    ),
)


@given(st.lists(st.lists(_RELATIONS, min_size=1, max_size=3), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_relations_are_refused_only_where_no_numbers_hold(questions: list[list[Term]]) -> None:
    """Against a look at all numbers from 1 to 5: what a repair does not find, z3 does."""
    constraints = Constraints()
    sizes = [constraints.add_number(1, 5) for _ in range(3)]
    taken: list[Term] = []
    for relations in questions:
        possible = any(
            all(value(relation, numbers) for relation in (*taken, *relations))
            for numbers in itertools.product(range(1, 6), repeat=3)
        )
        assert constraints.add_relations(relations) is possible
        taken += relations if possible else []
        numbers = [constraints.get_value(size) for size in sizes]
        assert all(value(relation, numbers) for relation in taken)


def test_the_truth_of_an_open_relation_is_no_one_s_to_ask() -> None:
    n, m = (Term(NUMBER, (place,)) for place in range(2))
    assert (n, m) == (n, m)
    assert (n + 1, 3) != (n + 2, 3)
    assert 1 not in (n, m)
    with pytest.raises(OpenSize):
        max(n, m)
