"""The evaluator of Relax modules: each spelling yields the type that the generator's declaration says, in both
precisions.
"""

import itertools
import random
from typing import Any

import numpy as np
import pytest

from opsieve.backends.protocol import Request
from opsieve.backends.reference.forbidden import Forbidden
from opsieve.backends.reference.tir import Undefined
from opsieve.backends.reference.tvm_requests import prepare_relax as prepare
from opsieve.gen.irs.relax.body import Body
from opsieve.gen.irs.relax.catalogue import operators
from opsieve.gen.irs.relax.declaration import Draw, attributes, number, numbers
from opsieve.gen.irs.relax.generator import Generated, Generator, generate
from opsieve.gen.irs.relax.kernels import kernel
from opsieve.gen.irs.relax.known_faults import lending, with_own_sides
from opsieve.gen.irs.relax.policies import POLICIES, ControlFlow, GenerationPolicy
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import (
    Bind,
    BindingBlock,
    Call,
    Function,
    GlobalVar,
    Module,
    RelaxOperator,
    Seq,
    ShapeValue,
    Text,
    Tuple,
    Var,
)
from opsieve.gen.irs.relax.types import RelaxTensorType, Sym, size_value
from opsieve.gen.irs.relax.walk import functions
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.irs.tir.nodes import integer, replace_node, with_fields
from opsieve.gen.irs.tvm.nodes import ObjectNode, decode, encode
from opsieve.gen.irs.tvm.program import walk
from opsieve.gen.irs.view import FreshNames


def evaluated(
    module: Module, inputs: dict[str, Any], precision: str = "native"
) -> tuple[list[Any], list[Any]]:
    """The outputs and the hazards of a module."""
    request = Request(
        to_json(module).encode(), {"precision": precision}, inputs, lambda stage: None, ir="relax"
    )
    return list(prepare(request)(inputs).values()), request.hazards


@pytest.mark.slow(seconds=4)
def test_a_spelling_yields_the_declared_type() -> None:
    class Literals(GenerationPolicy):
        fuel = 0

    for name, seed in itertools.product(sorted(operators()), range(4)):
        rng = random.Random(seed)
        draw = Draw(rng)
        kind, solution = operators()[name].sample(draw)
        generator = Generator(rng, Literals())
        body = Body(generator.names)
        result = generator._call(operators()[name], solution, kind, body, 0)
        module = Module((("main", Function((), body.seq(result), kind)),))
        for precision in ("native", "float64"):
            try:
                [value] = evaluated(module, {}, precision)[0]
            except NotImplementedError:  # the maximum of a region of interest
                assert name == "relax.vision.roi_align"
                continue
            wide = precision == "float64" and kind.dtype.startswith("float")
            assert list(value.shape) == list(kind.shape or ()), name
            assert value.dtype == ("float64" if wide else kind.dtype)


def ones(made: Generated) -> dict[str, Any]:
    """Ones for each parameter of main."""
    values = {}
    for param in made.module.main.params:
        assert isinstance(param.type, RelaxTensorType)
        shape = [size_value(size, made.symbols) for size in param.type.shape or ()]
        values[param.name] = np.ones(shape, param.type.dtype)
    return values


@pytest.mark.slow(seconds=3)
def test_whole_modules_are_evaluated_in_both_precisions() -> None:
    done = 0
    for seed in range(60):
        made = generate(seed, POLICIES[list(POLICIES)[seed % len(POLICIES)]]())
        values = ones(made)
        try:
            native, wide = (
                evaluated(made.module, values, precision)[0] for precision in ("native", "float64")
            )
        except NotImplementedError:  # an operator without a spelling
            continue
        done += 1
        assert [value.shape for value in native] == [value.shape for value in wide]
    assert done > 50


def test_what_relax_leaves_open_is_a_hazard() -> None:
    kind = RelaxTensorType("int8", (2,))
    x = Var("x", kind)
    body = Body(FreshNames(), [x])
    result = body.bind(Call(RelaxOperator("relax.multiply"), (x, number("int8", 100)), kind), kind)
    module = Module((("main", Function((x,), body.seq(result), kind)),))
    assert not evaluated(module, {"x": np.array([1, -1], np.int8)})[1]
    [hazard] = evaluated(module, {"x": np.array([2, 0], np.int8)})[1]
    assert (hazard["rule"], hazard["outputs"]) == ("integer-overflow", ["output_0"])
    assert hazard["node"].startswith("relax.multiply")


def test_match_cast_binds_symbols_and_refuses() -> None:
    loose, named = RelaxTensorType("float32", None, 1), RelaxTensorType("float32", (Sym("n"),))
    x = Var("x", loose)
    body = Body(FreshNames(), [x])
    first = body.cast(x, named)
    body.cast(numbers("float32", (2,), [1, 2]), named)
    module = Module((("main", Function((x,), body.seq(first), named)),))
    [value] = evaluated(module, {"x": np.ones(2, np.float32)})[0]
    assert value.shape == (2,)
    with pytest.raises(Forbidden):
        evaluated(module, {"x": np.ones(3, np.float32)})


class Lending(ControlFlow):
    known_faults = True


@pytest.mark.slow(seconds=3)
def test_sides_as_functions_of_their_own_give_the_same() -> None:
    changed = 0
    for seed in range(40):
        made = generate(seed, Lending())
        own = with_own_sides(made.module)
        assert not any(lending(function) for _, function in functions(own))
        assert to_json(from_json(to_json(own))) == to_json(own)
        values = ones(made)
        try:
            before, after = (evaluated(module, values)[0] for module in (made.module, own))
        except (NotImplementedError, RecursionError):
            continue
        changed += own != made.module
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
    assert changed > 5


def call_of_kernel(combine: str, rows: int = 2) -> Module:
    """A module that calls a kernel of a user's: `combine` of two tensors, in the first rows of the result."""
    kind = RelaxTensorType("float32", (2, 3))
    added = kernel("mine", "add", kind)
    whole = decode(encode(added).replace('"prim.Add"', f'"prim.{combine}"'))
    assert isinstance(whole, ObjectNode)
    outer = next(node for node in walk(whole) if node.type == "tirx.For")
    written = replace_node(whole, outer, with_fields(outer, extent=integer(rows, "int64")))
    x, y = Var("x", kind), Var("y", kind)
    made = Call(RelaxOperator("relax.call_tir"), (GlobalVar("mine"), Tuple((x, x))), kind)
    main = Function((x,), Seq((BindingBlock((Bind(y, made),)),), y), kind)
    return Module((("mine", written), ("main", main)))


def test_a_kernel_of_ones_own_is_run_by_the_reference_of_tir() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for precision in ("native", "float64"):
        [value] = evaluated(call_of_kernel("Mul"), {"x": x}, precision)[0]
        np.testing.assert_array_equal(value, x * x)


def test_a_kernel_that_leaves_its_result_unwritten_has_no_value() -> None:
    with pytest.raises(Undefined, match="leaves a part of its result unwritten"):
        evaluated(call_of_kernel("Mul", rows=1), {"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize("read", [True, False])
def test_a_tensor_that_nothing_writes_has_no_value(read: bool) -> None:
    kind = RelaxTensorType("float32", (2, 3))
    x, y = Var("x", kind), Var("y", kind)
    sizes = ShapeValue((2, 3))
    made = Call(RelaxOperator("relax.builtin.alloc_tensor"), (sizes, Text("global")), kind)
    body = Seq((BindingBlock((Bind(y, made),)),), y if read else x)
    module = Module((("main", Function((x,), body, kind)),))
    if read:
        with pytest.raises(Undefined, match="a tensor that nothing has written"):
            evaluated(module, {"x": np.ones((2, 3), np.float32)})
    else:
        [value] = evaluated(module, {"x": np.ones((2, 3), np.float32)})[0]
        np.testing.assert_array_equal(value, 1)


def aligned_regions(image: float) -> Module:
    """`roi_align` of one region, with the flag that spares it the least size, at a scale of a half."""
    kind, result = RelaxTensorType("float32", (1, 1, 4, 4)), RelaxTensorType("float32", (1, 1, 1, 2))
    x, y = Var("x", kind), Var("y", result)
    values = {"pooled_size": (1, 2), "spatial_scale": 0.5, "sample_ratio": 1, "aligned": True}
    attrs = attributes("ROIAlignAttrs", **values, layout="NCHW", mode="avg")
    regions = numbers("float32", (1, 5), [image, 0, 2, 4, 4])
    made = Call(RelaxOperator("relax.vision.roi_align"), (x, regions), result, attrs)
    main = Function((x,), Seq((BindingBlock((Bind(y, made),)),), y), result)
    return Module((("main", main),))


def test_aligned_regions_stay_where_they_are() -> None:
    """TVM's flag moves no region, as ONNX's mode of the name does: columns 0 to 2 at row 1.5."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    [value] = evaluated(aligned_regions(0), {"x": x})[0]
    np.testing.assert_allclose(value.ravel(), [6.5, 7.5])


def test_a_region_of_an_image_that_is_not_there_is_refused() -> None:
    with pytest.raises(Forbidden, match="a region of image -2 where there are 1"):
        evaluated(aligned_regions(-2), {"x": np.ones((1, 1, 4, 4), np.float32)})
