"""Every operator declared: what the declaration says, ONNX's checker and inference say, and a run gives."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx.defs
import pytest
from operator_soak import forms, instances, problem, soaked

from opsieve.gen.declarations.catalogue import first_dtypes, known_operators, name_with_domain, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.tensor import Attributes, Domain, Tensor
from opsieve.gen.generation.random_graph import GenRequest, finish
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.scope import ProgramState
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate

# What onnxruntime 1.31.1 does wrong where ONNX's own evaluator or inference agrees with the declaration, each
# looked at.
KNOWN = (
    "MaxPool", "AveragePool", "LpPool",  # SAME_* paddings with dilations give another size than inferred
    "Resize",  # cubic on int8 and int32 writes floats into the result
)  # fmt: skip

# Their declarations do not say all that their further inputs must be; mutations leave nodes of their families
# as they are.
UNTOLD = (
    "CausalConvWithState",
    "LinearAttention",
    "NegativeLogLikelihoodLoss",
    "STFT",
    "Scan",
    "TensorScatter",
)


# What parts do not do, and why.
SAMPLED = {
    **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), "grows a body"),
    **dict.fromkeys(("SequenceInsert", "SequenceErase"), "puts a node before itself"),
    **dict.fromkeys(("Slice", "Pad"), "draws several numbers for each axis that hang together"),
}

FAMILIES: dict[str, list[Operator]] = {}
for _operator in operators().values():
    FAMILIES.setdefault(_operator.family, []).append(_operator)


def test_every_operator_of_onnx_is_declared_or_excluded_with_a_reason() -> None:
    there = {
        schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain and not schema.deprecated
    }
    assert there <= known_operators().keys()
    assert len([name for name in operators() if "::" not in name]) >= 170
    assert all(len(operator.excluded) > 20 for operator in known_operators().values() if operator.excluded)


def test_only_what_parts_cannot_say_has_a_sampler() -> None:
    assert {name for name, operator in operators().items() if operator.sample is not None} == SAMPLED.keys()


def test_what_is_usually_drawn_is_safe() -> None:
    """Where both are plain sets of numbers: values that nobody gave leave no operator's domain."""
    for operator in known_operators().values():
        for position, usual in operator.usual.items():
            if isinstance(usual, Domain) and usual.exact is None and position < len(operator.safe):
                safe = operator.safe[position]
                assert safe.low <= usual.low <= usual.high <= safe.high, (operator.name, position)


def faults(name: str, seen: Mapping[str, int]) -> dict[str, int]:
    """What is wrong with the declaration of an operator, of what `soaked` tells."""
    excused = ("unsupported", "onnxruntime") if name in KNOWN else ("unsupported",)
    return {text: times for text, times in seen.items() if text and not text.startswith(excused)}


@pytest.mark.parametrize("family", FAMILIES)
def test_instances_are_what_they_are_declared_to_be(family: str) -> None:
    wrong, silent = {}, []
    for operator in FAMILIES[family]:
        seen = soaked(operator, 1)
        wrong |= {
            (name_with_domain(operator), text): times
            for text, times in faults(name_with_domain(operator), seen).items()
        }
        silent += [operator.name] * (
            not seen[""] and not any(text.startswith("unsupported") for text in seen)
        )
    assert (wrong, silent) == ({}, [])


def test_a_wrong_declaration_is_found_out() -> None:
    relu = operators()["Relu"]
    lying = Operator("Relu", relu.sample, infer=lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape, 1))])
    assert any(text.startswith("checker") for text in soaked(lying, 1, [18]))
    narrow = Operator("Relu", relu.sample, bounds=lambda ins, attrs: (0.0, 0.001))
    assert any(text.startswith("values") for text in soaked(narrow, 4, [18]))


def test_what_is_sampled_satisfies_what_is_required() -> None:
    for operator, opset in ((each, opset) for each in operators().values() for opset in forms(each)):
        for dtype in sorted(first_dtypes(operator, opset))[:2]:
            for _, builder in instances(operator, dtype, opset, 3):
                assert builder is not None, (operator.name, dtype, opset)
                node = builder.nodes[-1]
                assert all(operator.requires(node.ins, node.attrs)), (operator.name, node.ins)  # type: ignore[arg-type]


# Windows and normalisations meet open faults: onnxruntime refuses an output_padding that ONNX allows, and
# MeanVarianceNormalization gives NaN.
@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_instances_of_every_dtype_and_form(family: str) -> None:
    found = {
        name_with_domain(operator): faults(name_with_domain(operator), soaked(operator, 20))
        for operator in FAMILIES[family]
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_program_gives_something_though_what_read_its_last_value_was_not_taken() -> None:
    builder = next(
        found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None
    )
    for node in builder.nodes:
        for tensor in node.outs:
            tensor.reads += 1
    assert len(finish(builder, GenRequest(), "single", 1).program.proto.graph.output) == 1


def test_an_empty_sequence_is_filled_or_measured_and_never_read() -> None:
    """Also the one whose SequenceInsert was drawn and not taken."""
    only = frozenset(
        ("SequenceInsert", "SequenceAt", "SequenceLength", "ConcatFromSequence", "Add", "Relu", "Mul")
    )
    filled = 0
    for seed in range(100):
        nodes = list(
            all_nodes(generate("hirfuzz", seed, GenRequest(nodes=20, only=only)).program.proto.graph.node)
        )
        empty = {node.output[0] for node in nodes if node.op_type == "SequenceEmpty"}
        readers = {node.op_type for node in nodes if empty & set(node.input)}
        assert readers <= {"SequenceInsert", "SequenceLength"}, seed
        filled += "SequenceInsert" in readers
    assert filled > 5
    builder = next(
        found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None
    )
    # as `mutate` lays one
    builder.emit("SequenceEmpty", "", [], {}, [("sequence(float32)", (2,))], (0.0, 1.0))
    assert builder.scope.match("sequence(float32)", (2,)) is None


def test_an_interval_that_ends_at_zero_but_for_rounding_has_zeros_in_it() -> None:
    zero = Tensor("x", "float32", (2,))
    bounds = operators()["Sin"].bounds([zero], {})
    assert isinstance(bounds, tuple)
    wave = Tensor("y", "float32", (2,), *bounds)
    assert not wave.within(Domain(nonzero=True))
    assert Tensor("y", "float32", (2,), 0.01, 1).within(Domain(nonzero=True))
    assert Tensor("y", "float32", (2,), -1, -0.01).within(Domain(nonzero=True))


def test_no_bounds_are_promised_for_the_variance_of_one_element() -> None:
    bounds = operators()["MeanVarianceNormalization"].bounds
    assert bounds([Tensor("x", "float32", (1, 4, 1), -2, 2)], {"axes": [0, 2]}) == (-math.inf, math.inf)
    assert bounds([Tensor("x", "float32", (1, 4, 1), -2, 2)], {"axes": [0, 1]}) == (-2.0, 2.0)


def test_what_would_be_empty_is_not_added() -> None:
    """As mutations would have it, of a Slice whose input is another."""
    builder = next(
        found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None
    )
    x = builder.leaf("float32", (2, 3))
    ends = [[builder.ints([start]), builder.ints([2])] for start in (2, 1)]
    assert builder.add(operators()["Slice"], [x, *ends[0]], {}) is None
    assert builder.add(operators()["Slice"], [x, *ends[1]], {}) is not None


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("InstanceNormalization", [(1, 3, 4), (3,), (3, 1)], {}),
        ("GroupNormalization", [(1, 4, 2), (4, 1), (4,)], {"num_groups": 2}),
        ("Gemm", [(2, 3), (3, 4), (1, 2, 4)], {}),
        ("Gemm", [(2, 3), (3, 1), (2, 4)], {}),
        ("Gemm", [(2, 3), (3, 4, 1)], {}),
        ("Einsum", [(2, 3), (3, 4, 1)], {"equation": "ij,jk->ik"}),
        ("ConvTranspose", [(1, 2, 4), (2, 3, 2), (2,)], {}),
        ("ConvTranspose", [(1, 2, 4), (2, 3, 2)], {"kernel_shape": [3]}),
        ("Conv", [(1, 2, 4), (3, 2, 2), (3, 1)], {}),
        ("DeformConv", [(1, 1, 2, 2), (1, 1, 1, 1), (1, 2, 2, 2), (2,)], {}),
        ("DeformConv", [(1, 1, 2, 2), (1, 1, 1, 1), (1, 2, 2, 2), (1,), (1, 1, 2, 1)], {}),
        ("MeanVarianceNormalization", [(2, 3)], {"axes": [0, 2]}),
    ],
)
def test_inputs_of_other_shapes_are_not_taken(
    name: str, shapes: list[tuple[int, ...]], attrs: Attributes
) -> None:
    """As mutations would have them."""
    ins = [Tensor(f"x{n}", "float32", shape) for n, shape in enumerate(shapes)]
    assert not all(operators()[name].requires(ins, attrs))


def test_bits_are_cast_to_as_many_bits() -> None:
    required = operators()["BitCast"].requires
    x = [Tensor("x", "int8", (2,))]
    assert all(required(x, {"to": 2}))
    assert not all(required(x, {"to": 7}))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_required_is_all_that_is_asked_of_further_inputs(family: str) -> None:
    """Of instances whose leaves have another shape those that satisfy all relations are sound."""
    told = [op for op in FAMILIES[family] if not op.domain and op.relation is None and op.name not in UNTOLD]
    for operator, opset in ((each, opset) for each in told for opset in forms(each)):
        for dtype in sorted(first_dtypes(operator, opset) & {"float32", "int64", "bool"})[:2]:
            for _, builder in instances(operator, dtype, opset, 4):
                if builder is not None and len(builder.nodes) == 1:
                    wrong = [
                        text for text in reshaped(operator, builder) if text.startswith(("checker", "types"))
                    ]
                    assert not wrong, operator.name


def reshaped(operator: Operator, builder: GraphBuilder) -> Iterator[str]:
    """What is wrong with a single instance once one of its further leaves has another shape, for all that its
    declaration takes.
    """
    (node,) = builder.nodes
    for place, old in enumerate(node.ins):
        if not place or old is None or old.values is not None:
            continue
        shape = old.shape
        for other in ((*shape, 1), (1, *shape), shape[1:], tuple(1 for _ in shape), (*shape[:-1], 7)):
            new = Tensor(old.name, old.dtype, other, old.low, old.high, None, "input")
            ins = [new if tensor is old else tensor for tensor in node.ins]
            try:
                if other == shape or not all(operator.requires(ins, node.attrs)):  # type: ignore[arg-type]
                    continue
                types = operator.infer(ins, node.attrs)[: len(node.outs)]  # type: ignore[arg-type]
            except (IndexError, KeyError, ValueError):  # rules for what is drawn: `mutate` takes that as a no
                continue
            whole = GraphBuilder(ProgramState(builder.rng, builder.opset, builder.style, builder.budget))
            whole.program.leaves = [new if tensor is old else tensor for tensor in builder.program.leaves]
            made = whole.emit(operator.name, "", ins, dict(node.attrs), types, (-1e30, 1e30))
            for left, tensor in zip(made, node.outs, strict=True):
                left.name = left.name if tensor.name else ""
            yield problem(whole, run=False)


@pytest.mark.parametrize(
    ("equation", "shapes", "wanted"),
    [
        ("...ij,...jk->...ik", [(3, 4), (5, 4, 2)], (5, 3, 2)),
        ("...ij,...jk->...ik", [(7, 1, 3, 4), (5, 4, 2)], (7, 5, 3, 2)),
        ("...i,...i->...", [(3,), (2, 3)], (2,)),
        ("i,...j->...ij", [(3,), (2, 4)], (2, 3, 4)),
        ("...i,...j", [(2, 3), (2, 4)], (2, 3, 4)),
    ],
)
def test_ellipses_of_unequal_rank_broadcast(
    equation: str, shapes: list[tuple[int, ...]], wanted: tuple[int, ...]
) -> None:
    ins = [Tensor(f"x{place}", "float32", shape) for place, shape in enumerate(shapes)]
    einsum = operators()["Einsum"]
    assert np.einsum(equation, *(np.zeros(shape) for shape in shapes)).shape == wanted
    assert all(einsum.requires(ins, {"equation": equation}))
    assert einsum.infer(ins, {"equation": equation}) == [("float32", wanted)]


def test_ellipses_that_do_not_broadcast_are_refused() -> None:
    ins = [Tensor("x", "float32", (2, 3)), Tensor("y", "float32", (4, 3))]
    assert not all(operators()["Einsum"].requires(ins, {"equation": "...i,...i->..."}))
