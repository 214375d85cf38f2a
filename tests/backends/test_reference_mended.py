"""Operators that onnx's evaluator gets wrong, held against onnxruntime unoptimised or against their page."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from onnx import TensorProto, helper
from test_reference import F, model, run, same_as_onnxruntime

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

S, U8, I8, I32 = TensorProto.STRING, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
I64 = TensorProto.INT64


@pytest.mark.parametrize("opset", [7, 9, 13, 15])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_batch_normalization_uses_the_given_statistics_in_test_mode(
    workers: Workers, opset: int, shape: Any
) -> None:
    draw = np.random.default_rng(opset)
    feeds = {"x": draw.normal(size=shape).astype(np.float32)}
    feeds |= {name: (draw.random(3) + 0.5).astype(np.float32) for name in ("scale", "bias", "mean", "var")}
    node = helper.make_node("BatchNormalization", list(feeds), ["y"], momentum=0.3, epsilon=0.01)
    proto = model([node], {name: (F, value.shape) for name, value in feeds.items()}, {"y": (F, shape)}, opset)
    same_as_onnxruntime(workers, proto, feeds)


def test_batch_normalization_in_training_gives_the_running_statistics(workers: Workers) -> None:
    draw = np.random.default_rng(0)
    feeds = {"x": draw.normal(size=(4, 3, 5)).astype(np.float32)}
    feeds |= {name: (draw.random(3) + 0.5).astype(np.float32) for name in ("scale", "bias", "mean", "var")}
    node = helper.make_node("BatchNormalization", list(feeds), ["y", "m", "v"], momentum=0.3, training_mode=1)
    outputs = {"y": (F, (4, 3, 5)), "m": (F, (3,)), "v": (F, (3,))}
    proto = model([node], {name: (F, value.shape) for name, value in feeds.items()}, outputs, 15)
    same_as_onnxruntime(workers, proto, feeds)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("by_channel", [False, True])
def test_quantised_convolutions_of_any_rank(workers: Workers, rank: int, by_channel: bool) -> None:
    draw = np.random.default_rng(rank)
    feeds: dict[str, Any] = {
        "x": draw.integers(0, 255, (1, 2, *[6] * rank)).astype(np.uint8),
        "xs": np.float32(0.05),
        "xz": np.uint8(120),
        # Of 7 bits: MLAS saturates pairs without VNNI.
        "w": draw.integers(-60, 60, (3, 2, *[3] * rank)).astype(np.int8),
        "ws": np.float32([0.01, 0.02, 0.03]) if by_channel else np.float32(0.02),
        "wz": np.int8([0, 0, 0]) if by_channel else np.int8(0),
        "ys": np.float32(0.2537),  # no ties
        "yz": np.uint8(101),
        "b": draw.integers(-500, 500, 3).astype(np.int32),
    }
    kinds = {"x": U8, "xs": F, "xz": U8, "w": I8, "ws": F, "wz": I8, "ys": F, "yz": U8, "b": I32}
    inputs = {name: (kind, np.shape(feeds[name])) for name, kind in kinds.items()}
    proto = model([helper.make_node("QLinearConv", list(feeds), ["y"])], inputs, {"y": (U8, None)}, 13)
    same_as_onnxruntime(workers, proto, feeds)


def test_a_tie_is_rounded_before_the_zero_point_is_added() -> None:
    one, half = np.float32(1), np.float32(2)
    feeds = {
        "x": np.uint8([[[1]]]),
        "xs": one,
        "xz": np.uint8(0),
        "w": np.int8([[[1]]]),
        "ws": one,
        "wz": np.int8(0),
    }
    feeds |= {"ys": half, "yz": np.uint8(1)}
    kinds = {"x": U8, "xs": F, "xz": U8, "w": I8, "ws": F, "wz": I8, "ys": F, "yz": U8}
    inputs = {name: (kind, np.shape(feeds[name])) for name, kind in kinds.items()}
    proto = model([helper.make_node("QLinearConv", list(feeds), ["y"])], inputs, {"y": (U8, None)}, 13)
    assert run(proto, feeds)[0]["y"].tolist() == [[[1]]]  # round(1 / 2) is 0, to even


@settings(max_examples=60)
@given(st.data())
def test_grid_samples_are_those_of_onnxruntime_unoptimised(workers: Workers, data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["linear", "nearest", "cubic"]))
    # onnxruntime has cubic for images alone
    rank = 2 if mode == "cubic" else data.draw(st.sampled_from([2, 3]))
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    sides = [data.draw(st.integers(2, 5)) for _ in range(rank)]
    made = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    feeds = {
        "x": draw.normal(size=(2, 2, *sides)).astype(np.float32),
        "grid": draw.uniform(-1.9, 1.9, size=(2, *made, rank)).astype(np.float32),
    }
    node = helper.make_node(
        "GridSample",
        ["x", "grid"],
        ["y"],
        mode=mode,
        padding_mode=data.draw(st.sampled_from(["zeros", "border", "reflection"])),
        align_corners=data.draw(st.integers(0, 1)),
    )
    inputs = {name: (F, value.shape) for name, value in feeds.items()}
    same_as_onnxruntime(workers, model([node], inputs, {"y": (F, None)}, 20), feeds)


@settings(max_examples=12)
@given(st.data())
def test_deformed_convolutions_are_those_of_onnxruntime_unoptimised(
    workers: Workers, data: st.DataObject
) -> None:
    def two(least: int, most: int) -> list[int]:
        return [data.draw(st.integers(least, most)) for _ in range(2)]

    (group, shares), kernel, made, sides = two(1, 2), two(1, 3), two(1, 3), two(1, 5)
    strides, dilations, before = two(1, 2), two(1, 2), two(0, 2)
    # Pads at the ends that make the output as large as was drawn.
    after = [
        (out - 1) * stride + (k - 1) * apart + 1 - side - low
        for out, stride, k, apart, side, low in zip(
            made, strides, kernel, dilations, sides, before, strict=True
        )
    ]
    assume(min(after) >= 0)
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = {
        "x": (2, 2 * group * shares, *sides),
        "w": (2 * group, 2 * shares, *kernel),
        "offset": (2, 2 * shares * math.prod(kernel), *made),
        "b": (2 * group,),
        "mask": (2, shares * math.prod(kernel), *made),
    }
    feeds = {name: draw.normal(size=shape) for name, shape in shapes.items()}
    names = list(shapes)[: data.draw(st.sampled_from([3, 4, 5]))]
    pads = [*before, *after]
    node = helper.make_node(
        "DeformConv",
        names,
        ["y"],
        group=group,
        offset_group=shares,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    feeds = {name: feeds[name] for name in names}
    inputs = {name: (TensorProto.DOUBLE, value.shape) for name, value in feeds.items()}
    proto = model([node], inputs, {"y": (TensorProto.DOUBLE, None)}, 19)
    answer = workers.observe(
        resolve("onnxruntime:level=disable_all"), OnnxProgram(proto.SerializeToString()), feeds
    )
    assert answer.outputs is not None
    np.testing.assert_allclose(
        run(proto, feeds, "float64")[0]["y"], answer.outputs["y"], rtol=1e-12, atol=1e-12
    )


def test_grid_samples_have_the_digits_of_float64() -> None:
    place = 1 / 3
    feeds = {"x": np.array([[[[0.0, 1.0]]]]), "grid": np.array([[[[place, 0.0]]]])}
    inputs = {name: (TensorProto.DOUBLE, value.shape) for name, value in feeds.items()}
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], align_corners=1, mode="bilinear")
    got = run(model([node], inputs, {"y": (TensorProto.DOUBLE, None)}, 16), feeds, "float64")[0]["y"]
    assert got.item() == pytest.approx((1 + place) / 2, abs=1e-15)


@pytest.mark.parametrize("case", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_strings_keep_accents_blanks_and_emptiness(
    workers: Workers, case: str, sensitive: int, shape: Any
) -> None:
    words = np.array(["caf\u00e9 stop", "Stop", "", "stop", "B"], dtype=object).reshape(shape)
    node = helper.make_node(
        "StringNormalizer",
        ["x"],
        ["y"],
        case_change_action=case,
        is_case_sensitive=sensitive,
        stopwords=["stop"],
        locale="C.UTF-8",
    )
    proto = model([node], {"x": (S, shape)}, {"y": (S, None)})
    got = run(proto, {"x": words})[0]["y"]
    kept = [word for word in words.ravel() if (word if sensitive else word.lower()) != "stop"]
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[case]
    assert got.ravel().tolist() == [change(word) for word in kept]
    assert got.ndim == len(shape)


def test_other_cases_of_letters_beyond_ascii_are_left_open() -> None:
    def hazards(words: list[str], case: str) -> list[str]:
        node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action=case)
        proto = model([node], {"x": (S, [len(words)])}, {"y": (S, None)})
        return [each["rule"] for each in run(proto, {"x": np.array(words, dtype=object)})[1].hazards]

    assert hazards(["na\u00efve"], "UPPER") == ["case-by-locale"]
    assert (
        hazards(["na\u00efve"], "LOWER")
        == hazards(["naive"], "UPPER")
        == hazards(["na\u00efve"], "NONE")
        == []
    )


def test_the_scale_of_zeros_is_left_open() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    proto = model([node], {"x": (F, [2])}, {"y": (U8, [2]), "s": (F, []), "z": (U8, [])})
    assert [each["rule"] for each in run(proto, {"x": np.zeros(2, np.float32)})[1].hazards] == [
        "quantisation-of-zeros"
    ]
    assert run(proto, {"x": np.float32([0, 1])})[1].hazards == []


def test_a_window_is_zero_at_its_ends() -> None:
    proto = model(
        [helper.make_node("HannWindow", ["n"], ["y"], periodic=0)],
        {"n": (TensorProto.INT64, [])},
        {"y": (F, None)},
    )
    assert run(proto, {"n": np.array(3)}, "float64")[0]["y"].tolist() == [0, 1, 0]


def test_words_of_a_pattern_are_those_of_ascii(workers: Workers) -> None:
    words = np.array(["naive", "na\u00efve", "a b"], dtype=object)
    proto = model(
        [helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="\\w+")],
        {"x": (S, [3])},
        {"y": (TensorProto.BOOL, [3])},
    )
    same_as_onnxruntime(workers, proto, {"x": words})


def test_quantised_products_round_before_the_zero_point() -> None:
    one, zero = np.float32(1), np.uint8(0)
    feeds = {"a": np.uint8([[1]]), "as": one, "az": zero, "b": np.uint8([[1]]), "bs": one, "bz": zero}
    feeds |= {"ys": np.float32(2), "yz": np.uint8(1)}
    kinds = {"a": U8, "as": F, "az": U8, "b": U8, "bs": F, "bz": U8, "ys": F, "yz": U8}
    inputs = {name: (kind, np.shape(feeds[name])) for name, kind in kinds.items()}
    proto = model([helper.make_node("QLinearMatMul", list(feeds), ["y"])], inputs, {"y": (U8, None)}, 21)
    assert run(proto, feeds)[0]["y"].tolist() == [[1]]


def test_the_substrings_of_an_empty_string_are_left_open_where_there_is_a_delimiter() -> None:
    def hazards(words: list[str], **attributes: Any) -> list[str]:
        proto = model(
            [helper.make_node("StringSplit", ["x"], ["y", "n"], **attributes)],
            {"x": (S, [len(words)])},
            {"y": (S, None), "n": (TensorProto.INT64, None)},
        )
        return [each["rule"] for each in run(proto, {"x": np.array(words, dtype=object)})[1].hazards]

    assert hazards(["a,b", ""], delimiter=",") == ["split-of-empty-string"]
    assert hazards(["a,b", ""]) == []
    assert hazards(["a,b"], delimiter=",") == []


def test_a_loop_inside_a_function_runs() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "x"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", F, [1]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", F, [1]),
        ],
    )
    inner = [
        helper.make_node(
            "Constant", [], ["go0"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True])
        ),
        helper.make_node("Loop", ["trips", "go0", "x"], ["y"], body=body),
    ]
    proto = model(
        [helper.make_node("Sum3", ["a", "n"], ["z"], domain="own")],
        {"a": (F, [1]), "n": (TensorProto.INT64, [])},
        {"z": (F, [1])},
    )
    function = helper.make_function(
        "own", "Sum3", ["x", "trips"], ["y"], inner, [helper.make_opsetid("", 21)]
    )
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    for precision in ("native", "float64"):
        values, _ = run(proto, {"a": np.float32([2]), "n": np.array(3)}, precision)
        assert values["z"].tolist() == [8]


@pytest.mark.parametrize("opset", [13, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_shifted_by_half_a_pixel_from_opset_16_on(
    workers: Workers, opset: int, mode: str
) -> None:
    draw = np.random.default_rng(opset)
    feeds = {
        "x": draw.normal(size=(2, 3, 5, 4)).astype(np.float32),
        "rois": np.float32([[1.5, 0.6, 2.9, 3.4], [0.2, 0.3, 0.6, 0.7]]),
        "batch": np.int64([0, 1]),
    }
    node = helper.make_node(
        "RoiAlign", list(feeds), ["y"], mode=mode, output_height=2, output_width=2, sampling_ratio=2
    )
    inputs = {"x": (F, (2, 3, 5, 4)), "rois": (F, (2, 4)), "batch": (I64, (2,))}
    same_as_onnxruntime(workers, model([node], inputs, {"y": (F, (2, 3, 2, 2))}, opset), feeds)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("outputs", [["y"], ["y", "at", "back", "times"]])
def test_unique_along_any_axis_in_either_order(
    workers: Workers, axis: int | None, in_order: int, outputs: list[str]
) -> None:
    feeds = {"x": np.float32([[3, 1, 3], [2, 1, 2], [3, 1, 3]])}
    along = {} if axis is None else {"axis": axis}
    node = helper.make_node("Unique", ["x"], outputs, sorted=in_order, **along)
    kinds = {name: (F if name == "y" else I64, None) for name in outputs}
    same_as_onnxruntime(workers, model([node], {"x": (F, (3, 3))}, kinds, 13), feeds)


def test_a_negative_power_of_an_integer_is_an_open_result_and_no_error() -> None:
    node = helper.make_node("Pow", ["x", "z"], ["y"])
    proto = model([node], {"x": (I32, (3,)), "z": (I32, (3,))}, {"y": (I32, (3,))}, 15)
    outputs, request = run(proto, {"x": np.int32([2, 1, 0]), "z": np.int32([3, -1, -1])})
    assert outputs["y"].tolist()[:2] == [8, 1]
    assert "negative-integer-power" in [hazard["rule"] for hazard in request.hazards]


def test_bits_of_integers_are_read_in_float64_too() -> None:
    nodes = [
        helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.FLOAT16),
        helper.make_node("Sqrt", ["y"], ["z"]),
    ]
    proto = model(nodes, {"x": (TensorProto.INT16, (1,))}, {"z": (TensorProto.FLOAT16, None)}, 26)
    got = run(proto, {"x": np.array([2], np.float16).view(np.int16)}, "float64")[0]["z"]
    assert got.tolist() == [2**0.5]
    read = model(
        [helper.make_node("BitCast", ["x"], ["y"], to=I32)], {"x": (F, (1,))}, {"y": (I32, None)}, 26
    )
    with pytest.raises(NotImplementedError, match="BitCast"):
        run(read, {"x": np.float32([2])}, "float64")


@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
def test_the_first_stage_of_a_normalisation_has_the_type_that_the_node_names(operator: str) -> None:
    feeds = {"x": np.array([[300, -300, 100, 0]], np.float16), "s": np.ones(4, np.float16)}
    inputs = {name: (TensorProto.FLOAT16, value.shape) for name, value in feeds.items()}
    outputs = {"y": (TensorProto.FLOAT16, None)}
    proto = model([helper.make_node(operator, list(feeds), list(outputs), axis=-1)], inputs, outputs, 23)
    got = run(proto, feeds)[0]["y"]
    assert got.dtype == np.float16
    right = run(proto, feeds, "float64")[0]["y"]
    np.testing.assert_allclose(got, right, rtol=2e-3)  # their squares are beyond float16


@pytest.mark.parametrize(
    ("how", "scale"), [("pytorch_half_pixel", 0.4), ("align_corners", 0.9), ("align_corners", 0.4)]
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_counts_the_elements_it_makes(workers: Workers, how: str, scale: float, mode: str) -> None:
    feeds = {"x": np.float32([[[[1, 10, 100]]]]), "s": np.float32([1, 1, 1, scale])}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode=how, mode=mode)
    inputs = {name: (F, value.shape) for name, value in feeds.items()}
    same_as_onnxruntime(workers, model([node], inputs, {"y": (F, None)}, 19), feeds)


LACKING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("OneHot", {"i": np.array([1, 0]), "d": np.array(2), "v": np.array(["off", "on"], object)}, {}),
    ("NonMaxSuppression", {"b": np.float32([[[0, 0, 1, 1], [0, 0, 1, 1.1], [3, 3, 4, 4]]]), "s": np.float32([[[0.9, 0.8, 0.7]]]), "n": np.array(2)}, {}),
    ("NonMaxSuppression", {"b": np.float32([[[0, 0, 1, 1]]]), "s": np.float32([[[0.9]]])}, {}),
    ("Pad", {"x": np.arange(12.0, dtype=np.float32).reshape(3, 4), "p": np.array([-1, 2, 1, -3])}, {}),
    ("Pad", {"x": np.arange(12.0, dtype=np.float32).reshape(3, 4), "p": np.array([-1, 0, 1, -2])}, {"mode": "reflect"}),
    ("GlobalLpPool", {"x": np.arange(-6.0, 6, dtype=np.float32).reshape(1, 2, 3, 2)}, {"p": 3}),
    ("MaxRoiPool", {"x": np.arange(50.0, dtype=np.float32).reshape(1, 2, 5, 5), "r": np.float32([[0, 1, 1, 6, 5], [0, 7, 2, 7, 3]])}, {"pooled_shape": [2, 3], "spatial_scale": 0.5},),
    ("TfIdfVectorizer", {"x": np.array([3, 1, 1, 2])}, {"mode": "IDF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0], "ngram_indexes": [1, 0], "pool_int64s": [1, 2]}),
]  # fmt: skip


BOOLEANS: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
    ("OneHot", {"i": np.array([[1, -1], [7, 0]]), "d": np.array([3]), "v": np.array([True, False])}, {"axis": 0}, np.array([[[0]], [[1]], [[2]]]) != [[1, 2], [7, 0]]),
    ("Resize", {"x": np.array([[True, False]]), "": None, "s": np.float32([2, 2])}, {}, [[True, True, False, False]] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "feeds", "attributes", "right"), BOOLEANS)
def test_booleans_for_which_onnxruntime_has_no_kernel(
    operator: str, feeds: dict[str, Any], attributes: dict[str, Any], right: Any
) -> None:
    given = {name: value for name, value in feeds.items() if name}
    kinds = {
        name: (helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in given.items()
    }
    proto = model([helper.make_node(operator, list(feeds), ["y"], **attributes)], kinds, {}, 21)
    proto.graph.output.append(helper.make_empty_tensor_value_info("y"))
    value = run(proto, given)[0]["y"]
    assert value.dtype == bool
    np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize(("operator", "feeds", "attributes"), LACKING)
def test_what_onnx_lacks_or_refuses(
    workers: Workers, operator: str, feeds: dict[str, Any], attributes: dict[str, Any]
) -> None:
    given = {name: value for name, value in feeds.items() if name}
    kinds = {
        name: (helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in given.items()
    }
    node = helper.make_node(operator, list(feeds), ["y"], **attributes)
    proto = model([node], kinds, {}, 21)
    proto.graph.output.append(helper.make_empty_tensor_value_info("y"))
    seen = workers.observe(resolve("onnxruntime:disable_all"), OnnxProgram(proto.SerializeToString()), given)
    assert seen.outputs is not None, seen.message
    for precision in ("native", "float64"):
        value = run(proto, given, precision)[0]["y"]
        assert value.shape == seen.outputs["y"].shape
        if value.dtype == object:
            assert value.tolist() == seen.outputs["y"].tolist()
        else:
            np.testing.assert_allclose(value, seen.outputs["y"], rtol=1e-5)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"output_shape": [7, 9]},
        {"auto_pad": "SAME_LOWER"},
        {"pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ],
)
def test_a_transposed_convolution_of_groups(workers: Workers, asked: dict[str, Any]) -> None:
    draw = np.random.default_rng(4)
    feeds = {
        name: draw.normal(size=shape).astype(np.float32)
        for name, shape in (("x", (2, 4, 3, 4)), ("w", (4, 3, 3, 2)), ("b", (6,)))
    }
    node = helper.make_node(
        "ConvTranspose", list(feeds), ["y"], group=2, strides=[2, 2], dilations=[1, 2], **asked
    )
    proto = model([node], {name: (F, value.shape) for name, value in feeds.items()}, {}, 21)
    proto.graph.output.append(helper.make_empty_tensor_value_info("y"))
    same_as_onnxruntime(workers, proto, feeds)


def test_a_scan_goes_in_either_direction_along_any_axis_and_over_nothing(workers: Workers) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "item"], ["sum"]), helper.make_node("Identity", ["sum"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, F, [2]) for name in ("state", "item")],
        [helper.make_tensor_value_info(name, F, [2]) for name in ("sum", "out")],
    )
    node = helper.make_node(
        "Scan", ["start", "items"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[-1], scan_output_directions=[1],
    )  # fmt: skip
    feeds = {"start": np.float32([1, 2]), "items": np.arange(6.0, dtype=np.float32).reshape(2, 3)}
    proto = model(
        [node], {"start": (F, (2,)), "items": (F, (2, None))}, {"last": (F, (2,)), "all": (F, (2, None))}
    )
    same_as_onnxruntime(workers, proto, feeds)
    # onnxruntime 1.31.1 dies of SIGFPE on this one.
    values, _ = run(proto, {**feeds, "items": np.zeros((2, 0), np.float32)})
    assert values["last"].tolist() == [1, 2]
    assert values["all"].shape == (2, 0)
