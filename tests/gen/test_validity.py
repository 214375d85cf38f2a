"""What declarations say of nodes in models from elsewhere: nothing valid is refused, types are right, what is
refused is invalid.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.parser import parse_model
from operator_soak import LENIENT, forms, instances

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.validity import check_model
from opsieve.gen.declarations.catalogue import first_dtypes, name_with_domain, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.irs.onnx.model_file import check, infer_types
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.tensors import (
    NUMBERS,
    TensorType,
    Value,
    dtype_name,
    graph_inputs,
    graph_outputs,
    read_tensor,
    read_type,
)
from opsieve.gen.strategies.disruptive import Violation, list_violations
from opsieve.gen.strategies.registry import generate

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
PLAIN = resolve("onnxruntime:disable_all")


def value(item: Any) -> Value:
    if isinstance(item, TensorProto):
        return read_tensor(item)
    return item if item is None or isinstance(item, list) else np.asarray(item)


def test_no_valid_model_is_refused_and_types_are_those_of_a_run(node_tests: Sequence[TestCase]) -> None:
    told, wrong = 0, list[object]()
    for test in node_tests:
        inputs, outputs = test.data_sets[0]
        fed = {name: value(item) for name, item in zip(graph_inputs(test.model), inputs, strict=False)}
        wanted = {name: value(item) for name, item in zip(graph_outputs(test.model), outputs, strict=False)}
        found = check_model(test.model, fed)
        if found.fault:
            wrong.append((test.name, found.fault))
        for output, array in wanted.items():
            if output in found.types and isinstance(array, np.ndarray):
                told += 1
                if found.types[output] != (dtype_name(array), array.shape):
                    wrong.append((test.name, found.types[output], array.shape))
    assert not wrong
    assert told > 1000


def differing(model: bytes, fed: dict[str, Value]) -> list[object]:
    """Types that are told otherwise than ONNX infers them."""
    proto = onnx.load_model_from_string(model)
    found = check_model(proto, fed)
    assert not found.fault
    wrong: list[object] = []
    graph = onnx.load_model_from_string(infer_types(model)).graph
    for info in (*graph.value_info, *graph.output):
        type_ = read_type(info.type)
        if info.name in found.types and isinstance(type_, TensorType) and type_.shape is not None:
            dtype, shape = found.types[info.name]
            same = len(shape) == len(type_.shape) and dtype == type_.dtype
            if not same or any(
                isinstance(q, int) and p != q for p, q in zip(shape, type_.shape, strict=True)
            ):
                wrong.append((info.name, found.types[info.name], type_))
    return wrong


@pytest.mark.parametrize("strategy", ["mix", "mutate", "pattern", "function-rewrite"])
def test_types_are_those_that_onnx_infers(strategy: str) -> None:
    for seed in range(12):
        case = generate(strategy, seed, GenRequest(nodes=12))
        assert not differing(case.program.model, case.inputs), seed


def broken_by(node: Node, violation: Violation, opset: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of the node alone as a violation has it."""
    infos, stored, fed, names = [], [], dict[str, np.ndarray](), list[str]()
    for place, tensor in enumerate(violation.ins):
        names.append("" if tensor is None else f"i{place}")
        if tensor is None:
            continue
        dtype = helper.tensor_dtype_to_np_dtype(NUMBERS[tensor.dtype])
        if tensor.values is not None:
            stored.append(
                numpy_helper.from_array(
                    np.array(tensor.values).reshape(tensor.shape).astype(dtype), names[-1]
                )
            )
        else:
            infos.append(helper.make_tensor_value_info(names[-1], NUMBERS[tensor.dtype], tensor.shape))
            fed[names[-1]] = np.ones(tensor.shape).astype(dtype)
    attrs = {
        name: numpy_helper.from_array(held) if isinstance(held, np.ndarray) else held
        for name, held in violation.attrs.items()
    }
    outs = [(f"o{place}" if out.name else "", out.dtype) for place, out in enumerate(node.outs)]
    given = [helper.make_tensor_value_info(name, NUMBERS[dtype], None) for name, dtype in outs if name]
    proto = helper.make_node(node.op, names, [name for name, _ in outs], **attrs)
    graph = helper.make_graph([proto], "near_miss", infos, given, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString(), fed


def near_misses(op: Operator, count: int) -> Iterator[tuple[str, bytes, dict[str, np.ndarray]]]:
    """Instances of an operator with one rule broken, as models."""
    opset = forms(op)[-1]
    dtypes = sorted(first_dtypes(op, opset))
    for dtype in ("float32",) if "float32" in dtypes else dtypes[:1]:
        for _, builder in instances(op, dtype, opset, count):
            node = builder.nodes[-1] if builder is not None else None
            if (
                builder is None
                or node is None
                or any(isinstance(held, BodyGraph) for held in node.attrs.values())
            ):
                continue
            if any("(" in tensor.dtype for tensor in (*node.ins, *node.outs) if tensor is not None):
                continue
            for violation in list_violations(builder, node, op):
                if violation.kind == "relation":
                    yield violation.place, *broken_by(node, violation, opset)


def taken(names: Sequence[str], count: int) -> tuple[int, list[tuple[str, str]]]:
    """How many near misses the declarations refuse, and those that both the checker and onnxruntime take."""
    refused, accepted = 0, list[tuple[str, str]]()
    with Workers() as workers:
        for name in names:
            for place, model, fed in near_misses(operators()[name], count):
                if not check_model(onnx.load_model_from_string(model), fed).fault:
                    continue
                refused += 1
                if not check(model) and workers.observe(PLAIN, OnnxProgram(model), fed).outcome == "ok":
                    accepted.append((name, place))
    return refused, accepted


STANDARD = [name_with_domain(op) for op in operators().values() if not op.domain]


def test_what_is_refused_is_refused_by_others_too() -> None:
    refused, accepted = taken(STANDARD[::5], 1)
    assert refused > 20
    assert {name for name, _ in accepted} <= LENIENT.keys(), accepted


def test_of_all_near_misses_others_take_but_a_few() -> None:
    refused, accepted = taken(STANDARD, 3)
    assert {name for name, _ in accepted} <= LENIENT.keys(), accepted
    assert len(accepted) < 0.03 * refused


def fault(text: str, **inputs: Any) -> str:
    return check_model(parse_model(text), {name: np.asarray(held) for name, held in inputs.items()}).fault


def test_faults_are_found_behind_other_nodes() -> None:
    text = "g (float[2,8] x) => (float[2,8] y) {{ a = Transpose (x) r = Relu (a) y = Gemm (r, {}) }}"
    assert fault(HEAD + text.format("x")) == ""
    assert "Gemm" in fault(HEAD + text.format("a"))


def test_a_split_with_more_outputs_than_parts_is_refused_even_where_its_input_is_unknown() -> None:
    text = "g ({} x) => (float y, float z) {{ y, z = Split <num_outputs: int = {}> (x) }}"
    assert fault(HEAD + text.format("float[N]", 2)) == ""
    assert "num_outputs 1" in fault(HEAD + text.format("float[N]", 1))


@pytest.mark.parametrize(
    "body",
    [
        "y = Reshape (x, s)",  # of a shape that a run tells
        "a = Unheard.Of (x) y = MatMul (a, x)",
        "y = ConvTranspose <output_shape: ints = [9]> (x, x)",
    ],
)
def test_nothing_is_said_of_what_is_not_known(body: str) -> None:
    found = check_model(
        parse_model(
            '<ir_version: 8, opset_import: ["" : 18, "Unheard" : 1]> g (float[2,3,4] x, int64[N] s) =>'
            f" (float y) {{ {body} }}"
        ),
        {},
    )
    assert found.fault == ""
    assert "y" not in found.types


def test_values_that_are_fed_bind_open_sizes() -> None:
    model = parse_model(HEAD + "g (float[N] x, float[M] w) => (float y) { y = Add (x, w) }")
    assert check_model(model, {}).types.get("y") is None
    three = np.zeros(3, np.float32)
    assert check_model(model, {"x": three, "w": three}).types["y"] == ("float32", (3,))
    assert check_model(model, {"x": three, "w": np.zeros(2, np.float32)}).fault


@pytest.mark.parametrize("opset", [10, 11, 13])
def test_a_form_that_is_older_than_the_declarations_is_checked(opset: int) -> None:
    def fault(corners: int) -> str:
        text = f"""g (float[1,2,{corners}] b, float[1,1,2] s, int64[1] m) => (int64[N,3] y) {{
            y = NonMaxSuppression (b, s, m) }}"""
        return check_model(parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>{text}'), {}).fault

    assert not fault(4)
    # Opset 10 has another form of it.
    assert bool(fault(1)) == (opset > 10)


@pytest.mark.parametrize(
    ("pads", "axes", "fault"),
    [("[2]", "[1]", False), ("[1,2]", "[1]", True), ("[3]", "[1]", True), ("[2]", "[1,1]", True)],
)
def test_the_shapes_of_pads_and_axes_that_are_fed_are_checked(pads: str, axes: str, fault: bool) -> None:
    text = f'g (float[1,2] x, int64{pads} p, int64{axes} a) => (float[M,N] y) {{ y = Pad (x, p, "", a) }}'
    assert (
        bool(check_model(parse_model(f'<ir_version: 8, opset_import: ["" : 18]>{text}'), {}).fault) == fault
    )
