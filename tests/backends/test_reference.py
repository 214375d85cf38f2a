"""The reference backend: native and in float64, fed by name, with the hazards that it meets."""

import math
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings, strategies as st
from onnx import TensorProto, helper
from onnx.reference.op_run import RuntimeImplementationError

from opsieve.backends.protocol import Request
from opsieve.backends.reference.forbidden import ill_typed
from opsieve.backends.reference.reference import BACKEND, REFUSED
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, tuple[int, Any]],
    opset: int = 21,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(
    proto: onnx.ModelProto, feeds: dict[str, Any], precision: str = "native"
) -> tuple[dict[str, Any], Request]:
    request = Request(proto.SerializeToString(), {"precision": precision}, feeds, lambda _: None)
    return BACKEND.prepare(request)(feeds), request


def test_float64_computes_what_float32_rounds_away() -> None:
    proto = model(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Sub", ["s", "x"], ["z"])],
        {"x": (F, [1]), "y": (F, [1])},
        {"z": (F, [1])},
    )
    feeds = {"y": np.float32([1e-8]), "x": np.float32([1.0]), "not an input": np.ones(1)}
    native, wide = run(proto, feeds)[0]["z"], run(proto, feeds, "float64")[0]["z"]
    assert (native.dtype, native[0]) == (np.float32, 0.0)
    assert wide.dtype == np.float64
    assert wide[0] == pytest.approx(1e-8, rel=1e-6)


def test_scalars_stay_scalars() -> None:
    proto = model([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (F, [2])}, {"y": (F, [])})
    for precision in ("native", "float64"):
        assert run(proto, {"x": np.float32([1, 2])}, precision)[0]["y"].shape == ()


def test_function_bodies_with_float32_constants_run_in_float64() -> None:
    proto = model(
        [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])],
        {"x": (F, [1, 2, 2, 2])},
        {"y": (F, None)},
        13,
    )
    got = run(proto, {"x": np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)}, "float64")[0]["y"]
    assert got.dtype == np.float64
    assert got.std() == pytest.approx(1.0, abs=1e-3)


def test_sequences_and_absent_optionals() -> None:
    has = helper.make_node("OptionalHasElement", ["o"], ["p"])
    pack = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    optional = helper.make_tensor_type_proto(F, [2])
    graph = helper.make_graph(
        [has, pack],
        "g",
        [
            helper.make_value_info("o", helper.make_optional_type_proto(optional)),
            helper.make_tensor_value_info("x", F, [2]),
        ],
        [
            helper.make_tensor_value_info("p", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", F, None),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    values, _ = run(proto, {"x": np.float32([1, 2])}, "float64")
    assert not values["p"]
    assert [item.dtype for item in values["s"]] == [np.float64, np.float64]


@pytest.mark.parametrize(("shape", "trips"), [((), 3), ((2, 2), 3), ((2,), 0)])
def test_loop_stacks_its_scan_outputs(shape: tuple[int, ...], trips: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["x"], ["scan"])],
        "body",
        [helper.make_tensor_value_info("i", I, []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("scan", F, shape),
        ],
    )
    proto = model(
        [helper.make_node("Loop", ["n", ""], ["y"], body=body)],
        {"n": (I, []), "x": (F, shape)},
        {"y": (F, None)},
    )
    got = run(proto, {"n": np.array(trips), "x": np.ones(shape, np.float32)})[0]["y"]
    assert got.shape == (trips, *shape)


@pytest.mark.parametrize("precision", ["native", "float64"])
def test_mean_broadcasts_its_first_input(precision: str) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ab"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Mean", ["a", "b"], ["y"])], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    values, _ = run(model, {"a": np.float32([1, 3]), "b": np.float32([[1, 1], [3, 5]])}, precision)
    assert values["y"].tolist() == [[1, 2], [2, 4]]


@pytest.mark.parametrize("shape", [(), (3,)])
def test_softsign_takes_any_rank(shape: tuple[int, ...]) -> None:
    proto = model([helper.make_node("Softsign", ["x"], ["y"])], {"x": (F, shape)}, {"y": (F, shape)})
    for precision, dtype in (("native", np.float32), ("float64", np.float64)):
        got = run(proto, {"x": np.full(shape, -3, np.float32)}, precision)[0]["y"]
        assert (got.dtype, got.tolist()) == (dtype, np.full(shape, -0.75).tolist())


@st.composite
def max_pools(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A MaxPool with all that it can be told, save what onnxruntime does otherwise than the formulas of its
    page (SAME and dilated).
    """
    rank = draw(st.integers(1, 3))
    kernel, sides = (draw(st.lists(st.integers(1, top), min_size=rank, max_size=rank)) for top in (3, 6))
    told: dict[str, Any] = {
        "kernel_shape": kernel,
        "auto_pad": draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
    }
    if draw(st.booleans()):
        told["strides"] = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    if not told["auto_pad"].startswith("SAME") and draw(st.booleans()):
        told["dilations"] = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    if told["auto_pad"] == "NOTSET":
        told["pads"] = [draw(st.integers(0, side - 1)) for side in kernel * 2]
        told["ceil_mode"] = draw(st.integers(0, 1))
    reach = [
        (size - 1) * wide + 1 for size, wide in zip(kernel, told.get("dilations", [1] * rank), strict=True)
    ]
    pads = told.get("pads", [0] * 2 * rank)
    fits = [side + pads[axis] + pads[axis + rank] >= reach[axis] for axis, side in enumerate(sides)]
    assume(told["auto_pad"].startswith("SAME") or all(fits))
    told["storage_order"] = draw(st.integers(0, 1))
    names = ["y", "places"][: draw(st.integers(1, 2))]
    number, dtype = draw(
        st.sampled_from([(F, np.float32), (TensorProto.UINT8, np.uint8), (TensorProto.INT8, np.int8)])
    )
    shape = [2, 2, *sides]
    proto = model(
        [helper.make_node("MaxPool", ["x"], names, **told)],
        {"x": (number, shape)},
        {"y": (number, None), **({"places": (I, None)} if len(names) == 2 else {})},
        22,
    )
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0 if dtype is np.uint8 else -9, 4, shape
    )
    return proto, {"x": values.astype(dtype)}


@given(max_pools())
def test_max_pools_are_those_of_onnxruntime_unoptimised(
    workers: Workers, drawn: tuple[onnx.ModelProto, dict[str, Any]]
) -> None:
    proto, feeds = drawn
    seen = workers.observe(resolve("onnxruntime:disable_all"), OnnxProgram(proto.SerializeToString()), feeds)
    try:
        values, _ = run(proto, feeds)
    except RuntimeImplementationError:  # what the page of MaxPool leaves open
        told = {item.name for item in proto.graph.node[0].attribute}
        assert told & {"dilations", "strides"}
        return
    assert seen.outputs is not None, seen.message
    for name, wanted in seen.outputs.items():
        assert (values[name].dtype, values[name].shape) == (wanted.dtype, wanted.shape), name
        assert values[name].tolist() == wanted.tolist(), name


def test_max_pool_refuses_a_window_that_does_not_fit() -> None:
    proto = model(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3])], {"x": (F, [1, 1, 1])}, {"y": (F, None)}
    )
    with pytest.raises(ValueError, match="does not fit"):
        run(proto, {"x": np.ones((1, 1, 1), np.float32)})


def test_max_pool_covers_what_uneven_pads_say() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3], pads=[0, 2], strides=[1])
    proto = model([node], {"x": (F, [1, 1, 4])}, {"y": (F, None)})
    for precision in ("native", "float64"):
        assert run(proto, {"x": np.float32([[[4, 3, 2, 1]]])}, precision)[0]["y"].tolist() == [[[4, 3, 2, 1]]]
    some = run(proto, {"x": np.float32([[[np.nan, 3, np.nan, np.nan]]])})[0]["y"].tolist()
    assert some[0][0][:2] == [3, 3]
    assert np.isnan(some[0][0][2:]).all()


@st.composite
def recurrent(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """An RNN, GRU or LSTM with all that onnxruntime takes of what it can be told (`layout` it does not)."""
    kind = draw(st.sampled_from(["RNN", "GRU", "LSTM"]))
    gates, taken = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[kind]
    steps, batch, wide, hidden = (draw(st.integers(1, top)) for top in (4, 3, 3, 3))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    told: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if draw(st.booleans()):
        named = st.sampled_from(["Relu", "Tanh", "Sigmoid", "Softsign"])
        told["activations"] = draw(st.lists(named, min_size=taken * directions, max_size=taken * directions))
    if draw(st.booleans()):
        told["clip"] = 0.4
    if kind == "GRU":
        told["linear_before_reset"] = draw(st.integers(0, 1))
    if kind == "LSTM":
        told["input_forget"] = draw(st.integers(0, 1))
    shapes = {
        "X": [steps, batch, wide],
        "W": [directions, gates * hidden, wide],
        "R": [directions, gates * hidden, hidden],
        "B": [directions, 2 * gates * hidden],
        "lengths": [batch],
        "h": [directions, batch, hidden],
        "c": [directions, batch, hidden],
        "P": [directions, 3 * hidden],
    }
    names = list(shapes)[: 8 if kind == "LSTM" else 6]
    names = [name if name in "XWR" or draw(st.booleans()) else "" for name in names]
    values = np.random.default_rng(draw(st.integers(0, 99)))
    feeds = {name: values.normal(size=shapes[name]).astype(np.float32) for name in names if name}
    if "lengths" in feeds:
        feeds["lengths"] = np.array(
            draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch)), np.int32
        )
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    proto = model(
        [helper.make_node(kind, names, outputs, **told)],
        {name: (TensorProto.INT32 if name == "lengths" else F, shapes[name]) for name in feeds},
        dict.fromkeys(outputs, (F, None)),
        22,
    )
    return proto, feeds


@given(recurrent())
def test_recurrent_layers_are_those_of_onnxruntime_unoptimised(
    workers: Workers, drawn: tuple[onnx.ModelProto, dict[str, Any]]
) -> None:
    try:
        same_as_onnxruntime(workers, *drawn)
    except RuntimeImplementationError:  # a cell beyond the clip, which compilers read in two ways
        assert "clip" in {item.name for item in drawn[0].graph.node[0].attribute}


def same_as_onnxruntime(workers: Workers, proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    seen = workers.observe(resolve("onnxruntime:disable_all"), OnnxProgram(proto.SerializeToString()), feeds)
    assert seen.outputs is not None, seen.message
    for precision in ("native", "float64"):
        values, _ = run(proto, feeds, precision)
        for name, wanted in seen.outputs.items():
            assert values[name].shape == wanted.shape, name
            np.testing.assert_allclose(values[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_layout_with_the_batch_first_is_the_same_layer_turned(kind: str, direction: str) -> None:
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 2 if direction == "bidirectional" else 1
    values = np.random.default_rng(1)
    shapes = {
        "X": [3, 2, 2],
        "W": [directions, gates * 3, 2],
        "R": [directions, gates * 3, 3],
        "h": [directions, 2, 3],
    }
    feeds = {name: values.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["n"] = np.int32([3, 2])
    found = []
    for layout in (0, 1):
        fed = {
            name: np.swapaxes(value, 0, 1) if layout and name in "Xh" else value
            for name, value in feeds.items()
        }
        node = helper.make_node(
            kind,
            ["X", "W", "R", "", "n", "h"],
            ["Y", "Y_h"],
            hidden_size=3,
            direction=direction,
            layout=layout,
        )
        inputs = {name: (TensorProto.INT32 if name == "n" else F, value.shape) for name, value in fed.items()}
        found.append(run(model([node], inputs, {"Y": (F, None), "Y_h": (F, None)}, 22), fed)[0])
    np.testing.assert_array_equal(found[1]["Y"], found[0]["Y"].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(found[1]["Y_h"], np.swapaxes(found[0]["Y_h"], 0, 1))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("shape", [(1, 5, 2, 3), (3, 2, 2, 1), (2, 1, 1, 1)])
def test_lrn_adds_up_the_channels_whatever_the_batch(
    workers: Workers, shape: tuple[int, ...], size: int
) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.7, beta=0.6, bias=1.5)
    values = np.random.default_rng(size).normal(size=shape).astype(np.float32)
    # onnxruntime wants odd sizes; ONNX defines even ones: one channel more behind.
    if size % 2:
        same_as_onnxruntime(workers, model([node], {"x": (F, shape)}, {"y": (F, None)}), {"x": values})
        return
    got = run(model([node], {"x": (F, shape)}, {"y": (F, None)}), {"x": values}, "float64")[0]["y"]
    wide = values.astype(np.float64)
    for at in range(shape[1]):
        squares = (wide[:, max(0, at - (size - 1) // 2) : at + size // 2 + 1] ** 2).sum(axis=1)
        np.testing.assert_allclose(
            got[:, at],
            wide[:, at] / (1.5 + float(np.float32(0.7)) / size * squares) ** float(np.float32(0.6)),
            rtol=1e-12,
        )


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 2), (1, 2, 2, 3, 2)])
def test_global_max_pools_take_any_rank(workers: Workers, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    proto = model([helper.make_node("GlobalMaxPool", ["x"], ["y"])], {"x": (F, shape)}, {"y": (F, None)}, 22)
    got = run(proto, {"x": values})[0]["y"]
    assert got.tolist() == values.max(axis=tuple(range(2, len(shape))), keepdims=True).tolist()
    if len(shape) > 2:  # onnxruntime does not take fewer
        same_as_onnxruntime(workers, proto, {"x": values})


@pytest.mark.parametrize("precision", ["native", "float64"])
def test_an_optional_is_the_value_itself(precision: str) -> None:
    nodes = [
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("OptionalGetElement", ["o"], ["y"]),
    ]
    proto = model(nodes, {"x": (F, [2])}, {"has": (TensorProto.BOOL, []), "y": (F, [2])})
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [2]))
    proto.graph.output.append(helper.make_value_info("o", optional))
    values, _ = run(proto, {"x": np.float32([1, 2])}, precision)
    assert values["has"]
    assert values["o"].tolist() == values["y"].tolist() == [1, 2]


@settings(max_examples=50)
@given(st.data())
def test_elements_are_gathered_by_indices_of_any_shape_inside_the_data(
    workers: Workers, data: st.DataObject
) -> None:
    sides = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(sides), len(sides) - 1))
    shape = [data.draw(st.integers(1, side)) for side in sides]
    shape[axis] = data.draw(st.integers(1, 5))
    numbers = np.random.default_rng(data.draw(st.integers(0, 99)))
    indices = numbers.integers(-sides[axis], sides[axis], shape)
    feeds = {"x": numbers.normal(size=sides).astype(np.float32), "at": indices}
    node = helper.make_node("GatherElements", ["x", "at"], ["y"], axis=axis)
    proto = model([node], {"x": (F, sides), "at": (I, shape)}, {"y": (F, shape)})
    same_as_onnxruntime(workers, proto, feeds)
    indices.flat[0] = sides[axis]
    with pytest.raises(ValueError, match="out of range"):
        run(proto, feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_is_by_sizes(workers: Workers, p: int, axis: int) -> None:
    node = helper.make_node("LpNormalization", ["x"], ["y"], p=p, axis=axis)
    values = np.float32([[1, -2, 3], [-4, 0.5, 2]])
    same_as_onnxruntime(workers, model([node], {"x": (F, [2, 3])}, {"y": (F, None)}), {"x": values})
    nothing = run(model([node], {"x": (F, [2, 3])}, {"y": (F, None)}), {"x": np.zeros((2, 3), np.float32)})[
        0
    ]["y"]
    assert nothing.tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.parametrize("shape", [(), (0,), (3,)])
def test_erf_has_the_digits_of_its_type(shape: tuple[int, ...]) -> None:
    proto = model([helper.make_node("Erf", ["x"], ["y"])], {"x": (F, shape)}, {"y": (F, shape)})
    for precision, dtype in (("native", np.float32), ("float64", np.float64)):
        got = run(proto, {"x": np.full(shape, 0.5, np.float32)}, precision)[0]["y"]
        assert (got.dtype, got.shape) == (dtype, shape)
        assert (got == dtype(math.erf(0.5))).all()


def test_hazards_are_told_with_the_outputs_that_depend_on_them() -> None:
    nodes = [
        helper.make_node("Div", ["a", "b"], ["q"], name="divide"),
        helper.make_node("Add", ["a", "b"], ["s"]),
    ]
    proto = model(nodes, {"a": (I, [2]), "b": (I, [2])}, {"q": (I, [2]), "s": (I, [2])})
    _, request = run(proto, {"a": np.array([4, 4]), "b": np.array([2, 0])}, "float64")
    assert request.hazards == [
        {"rule": "integer-division-by-zero", "node": "divide", "operator": "Div", "outputs": ["q"]}
    ]
    assert run(proto, {"a": np.array([4, 4]), "b": np.array([2, 1])})[1].hazards == []


def test_what_is_open_is_told_though_no_output_depends_on_it() -> None:
    """A compiler may raise an error all the same."""
    nodes = [
        helper.make_node("Div", ["a", "b"], ["q"], name="divide"),
        helper.make_node("Where", ["c", "q", "a"], ["y"]),
    ]
    types = {"a": (I, [2]), "b": (I, [2]), "c": (onnx.TensorProto.BOOL, [2])}
    given = {"a": np.array([4, 4]), "b": np.array([2, 0]), "c": np.array([True, False])}
    _, request = run(model(nodes, types, {"y": (I, [2])}), given)
    assert request.hazards == [
        {"rule": "integer-division-by-zero", "node": "divide", "operator": "Div", "outputs": []}
    ]


def test_a_guarded_division_is_no_hazard() -> None:
    zero = helper.make_node("Constant", [], ["zero"], value_int=0)
    nodes = [
        zero,
        helper.make_node("Equal", ["b", "zero"], ["is_zero"]),
        helper.make_node("Div", ["a", "b"], ["q"]),
        helper.make_node("Where", ["is_zero", "a", "q"], ["y"]),
    ]
    proto = model(nodes, {"a": (I, [2]), "b": (I, [2])}, {"y": (I, [2]), "q": (I, [2])})
    _, request = run(proto, {"a": np.array([4, 4]), "b": np.array([2, 0])})
    assert [hazard["outputs"] for hazard in request.hazards] == [["q"]]


def test_hazards_inside_bodies_count_for_their_node() -> None:
    body = helper.make_graph(
        [helper.make_node("Mod", ["a", "b"], ["m"])], "then", [], [helper.make_tensor_value_info("m", I, [1])]
    )
    node = helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body)
    proto = model([node], {"p": (TensorProto.BOOL, []), "a": (I, [1]), "b": (I, [1])}, {"y": (I, [1])})
    _, request = run(proto, {"p": np.array(True), "a": np.array([5]), "b": np.array([0])})
    assert [(h["rule"], h["operator"], h["outputs"]) for h in request.hazards] == [
        ("integer-division-by-zero", "Mod", ["y"])
    ]


def test_the_checker_s_refusal_is_noted_and_the_model_runs_all_the_same() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], unknown=1)], {"x": (F, [1])}, {"y": (F, [1])})
    request = Request(proto.SerializeToString(), {"precision": "native"}, {}, lambda _: None)
    assert BACKEND.prepare(request)({"x": np.float32([-1])})["y"] == [0.0]
    assert request.notes[0].startswith(REFUSED)


def test_what_an_exception_means() -> None:
    with pytest.raises(NotImplementedError) as lacking:
        run(
            model(
                [helper.make_node("RandomBlob", ["x"], ["y"])],
                {"x": (F, [1]), "i": (I, [1])},
                {"y": (F, [1])},
                9,
            ),
            {},
        )
    kind = f"{type(lacking.value).__module__}.{type(lacking.value).__qualname__}"
    assert BACKEND.classify("compile", kind, str(lacking.value)) == "unsupported"
    gather = model(
        [helper.make_node("Gather", ["x", "i"], ["y"])], {"x": (F, [2]), "i": (I, [1])}, {"y": (F, [1])}
    )
    with pytest.raises(IndexError) as outside:
        run(gather, {"x": np.float32([1, 2]), "i": np.array([7])})
    assert BACKEND.classify("run", "IndexError", str(outside.value)) == "rejected"
    assert BACKEND.classify("run", "ValueError", "anything") == "error"


def test_a_type_that_an_operator_has_only_in_a_later_opset_is_seen_in_bodies_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : %d]> g (bool c, bfloat16[1,2,4] x, bfloat16[2,2,3] w) => (bfloat16[1,2,2] y) {
        y = If (c) <then_branch = t () => (bfloat16[1,2,2] a) { a = Conv(x, w) },
                    else_branch = e () => (bfloat16[1,2,2] b) { b = Conv(x, w) }> }"""
    of_opset = {
        opset: onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text % opset)) for opset in (21, 22)
    }
    assert ill_typed(of_opset[21]) == "Conv of opset 21 takes no tensor(bfloat16) as input 1"
    assert ill_typed(of_opset[22]) == ""
