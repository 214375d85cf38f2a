import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from opsieve.gen.errors import BadInput
from opsieve.gen.model.tensors import (
    DTYPES,
    NUMBERS,
    OptionalType,
    OtherType,
    SequenceType,
    TensorType,
    graph_inputs,
    graph_outputs,
    misfit,
    read_tensor,
    read_value,
    tensor_problem,
    write_value,
)

SHAPES = [(), (0,), (1,), (3,), (2, 0, 3), (5, 3)]
NUMERIC = sorted(set(DTYPES.values()) - {"string"})
BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}


def patterns(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Any bits that the dtype can have: NaNs, infinities and negative zeros among them."""
    kind = helper.tensor_dtype_to_np_dtype(NUMBERS[dtype])
    count = int(np.prod(shape))
    raw = np.random.default_rng(seed).integers(0, 256, count * kind.itemsize, np.uint8)
    if dtype == "bool":
        raw &= 1
    if dtype in BITS:
        raw &= 2 ** BITS[dtype] - 1
        if dtype.startswith("int"):  # ml_dtypes keeps a signed narrow integer sign-extended in its byte
            return (raw.astype(np.int64) - 2 ** (BITS[dtype] - 1)).astype(kind).reshape(shape)
    return raw.view(kind).reshape(shape)


def same(one: np.ndarray, two: np.ndarray) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(shape):
    for dtype in NUMERIC:
        array = patterns(dtype, shape)
        type_ = TensorType(dtype, shape)
        data = write_value(array, type_, "x")
        back = read_value(data, type_)
        assert same(back, array), dtype
        assert misfit(back, type_) == "", dtype
        assert write_value(back, type_, "x") == data, dtype


def test_onnx_knows_no_dtype_that_is_not_here():
    assert set(DTYPES) == set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}


@pytest.mark.parametrize("dtype", NUMERIC)
def test_typed_fields_are_read_as_onnx_writes_them(dtype):
    array = (
        patterns(dtype, (3, 3))
        if "complex" not in dtype
        else np.arange(9).reshape(3, 3).astype(dtype) * (1 + 2j)
    )
    values = array.ravel() if "complex" not in dtype else array.ravel().tolist()
    with np.errstate(all="ignore"):
        tensor = helper.make_tensor("t", NUMBERS[dtype], array.shape, values)
    assert tensor_problem(tensor) == ""
    back = read_tensor(tensor)
    assert back.dtype.name == dtype
    finite = np.isfinite(array.astype(np.complex128))
    assert np.array_equal(back.astype(np.complex128)[finite], array.astype(np.complex128)[finite])


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_strings_keep_their_bytes(items):
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[len(items)], string_data=items)
    array = read_tensor(tensor)
    assert array.dtype == object
    assert all(isinstance(item, str) for item in array)
    assert list(TensorProto.FromString(write_value(array, TensorType("string", None))).string_data) == items


def test_strings_of_numpy_types_are_written_too():
    for array in (np.array([["a", "bü\0"]]), np.array([["a", "bü\0"]], dtype=object)):
        back = read_value(write_value(array, TensorType("string", None)), TensorType("string", None))
        assert back.shape == (1, 2)
        assert back[0, 0] == "a"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (SequenceType(TensorType("float32", None)), []),
        (SequenceType(TensorType("bfloat16", None)), [patterns("bfloat16", (2,)), patterns("bfloat16", ())]),
        (SequenceType(SequenceType(TensorType("int64", None))), [[], [np.int64([1, 2])]]),
        (OptionalType(TensorType("float32", (2,))), None),
        (OptionalType(TensorType("float32", (2,))), np.float32([1, 2])),
        (OptionalType(SequenceType(TensorType("int4", None))), None),
        (OptionalType(SequenceType(TensorType("int4", None))), [patterns("int4", (3,))]),
        (SequenceType(OptionalType(TensorType("int8", None))), [None, np.int8([3])]),
    ],
    ids=str,
)
def test_sequences_and_optionals_come_back(type_, value):
    def equal(one, two):
        if isinstance(one, list):
            return isinstance(two, list) and len(one) == len(two) and all(map(equal, one, two))
        return two is None if one is None else same(one, two)

    data = write_value(value, type_, "v")
    assert equal(value, read_value(data, type_))
    assert misfit(value, type_) == ""


def test_types_of_a_graph():
    tensor = helper.make_tensor_type_proto(TensorProto.BFLOAT16, ["n", 3, None])
    infos = [
        helper.make_value_info("a", tensor),
        helper.make_value_info(
            "b", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, None))
        ),
        helper.make_value_info("c", helper.make_optional_type_proto(tensor)),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
        onnx.ValueInfoProto(name="m", type=onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=7))),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    model = helper.make_model(helper.make_graph([], "g", infos, infos[:1], [weight]))
    bfloat = TensorType("bfloat16", ("n", 3, None))
    assert graph_inputs(model) == {
        "a": bfloat,
        "b": SequenceType(TensorType("string", None)),
        "c": OptionalType(bfloat),
        "m": OtherType("map"),
    }
    assert graph_outputs(model) == {"a": bfloat}
    assert str(bfloat) == "bfloat16[n, 3, ?]"


@pytest.mark.parametrize(
    ("value", "type_", "said"),
    [
        (np.zeros(2), TensorType("float32", (2,)), "float64"),
        (np.zeros(2, np.float32), TensorType("float32", (3,)), "shape (2,)"),
        (np.zeros((), np.float32), TensorType("float32", (1,)), "shape ()"),
        ([], TensorType("float32", (1,)), "no tensor"),
        (None, TensorType("float32", (1,)), "no tensor"),
        (np.zeros(2), SequenceType(TensorType("float64", None)), "no sequence"),
        ([np.zeros(2), np.zeros(2, int)], SequenceType(TensorType("float64", None)), "element 1"),
        (np.zeros(2), OptionalType(TensorType("float32", None)), "float64"),
        (np.zeros(2), OtherType("map"), "map"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_named(value, type_, said):
    assert said in misfit(value, type_)


def test_symbolic_dimensions_fit_any_size():
    assert misfit(np.zeros((7, 0, 3)), TensorType("float64", ("n", None, 3))) == ""
    assert misfit(np.zeros(7), TensorType("float64", None)) == ""


def test_a_numpy_scalar_is_a_tensor_of_no_dimension():
    type_ = TensorType("float32", ())
    assert misfit(np.float32(2), type_) == ""
    assert read_value(write_value(np.float32(2), type_), type_).shape == ()
    assert "float64" in misfit(np.float64(2), type_)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_value_or_a_sentence(data):
    for type_ in (
        TensorType("float32", None),
        SequenceType(TensorType("int8", None)),
        OptionalType(TensorType("string", None)),
    ):
        try:
            read_value(data, type_)
        except BadInput as error:
            said = str(error)
        else:
            said = "fine"
        assert said.isprintable()
        assert len(said) < 400
