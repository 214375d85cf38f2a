"""Every operator declared: what the declaration says, ONNX's checker and inference say, and a run gives."""

import math
from collections.abc import Mapping

import onnx.defs
import pytest
from operator_soak import forms, instances, soaked

from opsieve.gen.catalogue import first_dtypes, operators, qualified
from opsieve.gen.declaration import OUTPUTS, Operator, Tensor
from opsieve.gen.domains import Domain
from opsieve.gen.growth import Wish, case
from opsieve.gen.strategies import generate
from opsieve.gen.structure import all_nodes

# Not declared, and why. Nothing else of ai.onnx may be missing.
EXCLUDED = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "no two compilers draw the same numbers, so no oracle has an answer",
    ),
    "ImageDecoder": "its input is a file format, and compilers differ in the pixels by design",
    "Constant": "every leaf may be one (gen/sketch.py)",
    "SequenceEmpty": "made where something is put into it at once (gen/operators/containers.py)",
}
# What onnxruntime 1.31.1 does wrong where ONNX's own evaluator or inference agrees with the declaration, each looked at.
KNOWN = (
    "MaxPool", "AveragePool", "LpPool",  # SAME_* paddings with dilations give another size than inferred
    "Resize",  # cubic on int8 and int32 writes floats into the result
)  # fmt: skip


def test_every_operator_of_onnx_is_declared_or_excluded_with_a_reason() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain and not schema.deprecated}
    declared = {name for name in operators() if "::" not in name}
    assert known - declared == EXCLUDED.keys()
    assert len(declared) >= 170


def faults(name: str, seen: Mapping[str, int]) -> dict[str, int]:
    """What is wrong with the declaration of an operator, of what `soaked` tells."""
    excused = ("unsupported", "onnxruntime") if name in KNOWN else ("unsupported",)
    return {text: times for text, times in seen.items() if text and not text.startswith(excused)}


@pytest.mark.parametrize("name", operators())
def test_instances_are_what_they_are_declared_to_be(name: str) -> None:
    seen = soaked(operators()[name], 1)
    assert not faults(name, seen)
    assert seen[""] or any(text.startswith("unsupported") for text in seen)


def test_a_wrong_declaration_is_found_out() -> None:
    relu = operators()["Relu"]
    lying = Operator("Relu", relu.sample, lambda ins, attrs: [(ins[0].dtype, (*ins[0].shape, 1))])
    assert any(text.startswith("checker") for text in soaked(lying, 1, [18]))
    narrow = Operator("Relu", relu.sample, bounds=lambda ins, attrs: (0.0, 0.001))
    assert any(text.startswith("values") for text in soaked(narrow, 4, [18]))


@pytest.mark.parametrize("operator", operators().values(), ids=operators())
def test_what_is_sampled_satisfies_what_is_required(operator: Operator) -> None:
    for opset in forms(operator):
        for dtype in sorted(first_dtypes(operator, opset))[:2]:
            for _, sketch in instances(operator, dtype, opset, 3):
                assert sketch is not None, (operator.name, dtype, opset)
                node = sketch.nodes[-1]
                assert all(operator.requires(node.ins, node.attrs)), sketch.nodes[-1].ins  # type: ignore[arg-type]
                assert OUTPUTS not in node.attrs


@pytest.mark.slow
@pytest.mark.parametrize("operator", operators().values(), ids=operators())
def test_twenty_instances_of_every_dtype_and_form(operator: Operator) -> None:
    assert not faults(qualified(operator), soaked(operator, 20))


def test_a_program_gives_something_though_what_read_its_last_value_was_not_taken() -> None:
    sketch = next(found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None)
    for node in sketch.nodes:
        for tensor in node.outs:
            tensor.reads += 1
    assert len(case(sketch, Wish(), "single", 1).program.proto.graph.output) == 1


def test_an_empty_sequence_is_filled_or_measured_and_never_read() -> None:
    """Also the one whose SequenceInsert was drawn and not taken."""
    only = frozenset(("SequenceInsert", "SequenceAt", "SequenceLength", "ConcatFromSequence", "Add", "Relu", "Mul"))
    filled = 0
    for seed in range(100):
        nodes = list(all_nodes(generate("hirfuzz", seed, Wish(nodes=20, only=only)).program.proto.graph.node))
        empty = {node.output[0] for node in nodes if node.op_type == "SequenceEmpty"}
        readers = {node.op_type for node in nodes if empty & set(node.input)}
        assert readers <= {"SequenceInsert", "SequenceLength"}, seed
        filled += "SequenceInsert" in readers
    assert filled > 5
    sketch = next(found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None)
    sketch.emit("SequenceEmpty", "", [], {}, [("sequence(float32)", (2,))], (0.0, 1.0))  # as `mutate` lays one
    assert sketch.matching("sequence(float32)", (2,)) is None


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
    sketch = next(found for _, found in instances(operators()["Relu"], "float32", 21, 9) if found is not None)
    x = sketch.leaf("float32", (2, 3))
    ends = [[sketch.ints([start]), sketch.ints([2])] for start in (2, 1)]
    assert sketch.add(operators()["Slice"], [x, *ends[0]], {}) is None
    assert sketch.add(operators()["Slice"], [x, *ends[1]], {}) is not None
