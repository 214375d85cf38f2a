"""Each dimension reaches its minimum on small examples, by a tiny greedy driver: the first edit that keeps a
predicate wins.
"""

from importlib.metadata import entry_points

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model
from shrinking import operators, reduced, runs, subject, valid

from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.irs.onnx import GROUP
from opsieve.reducer.passes.attributes import PASS as ATTRIBUTES
from opsieve.reducer.passes.bodies import PASS as BODIES
from opsieve.reducer.passes.initializers import PASS as VALUES
from opsieve.reducer.passes.model import PASS as MODEL
from opsieve.reducer.passes.onnx import DIMENSIONS, DTYPES
from opsieve.reducer.passes.ranks import PASS as RANKS
from opsieve.reducer.passes.sharing import PASS as SHARING
from opsieve.reducer.problem.order import simpler

PASSES = [
    BODIES,
    DIMENSIONS,
    RANKS,
    ATTRIBUTES,
    DTYPES,
    VALUES,
    MODEL,
]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def test_pad_and_pool_reach_the_smallest_shapes_and_attributes() -> None:
    start = subject(
        f"""{HEAD} g (float[2,3,8,8] x) => (float[2,3,8,8] y) <int64[8] p = {{0,0,1,1,0,0,1,1}}> {{
            a = Pad (x, p)
            y = AveragePool <count_include_pad: int = 0, kernel_shape: ints = [3, 3], pads: ints = [0,0,0,0],
                             ceil_mode: int = 0, strides: ints = [1, 1]> (a)
        }}""",
        x=np.linspace(-1, 1, 384, dtype=np.float32).reshape(2, 3, 8, 8),
    )

    def keeps(candidate: Subject) -> bool:
        return operators(candidate) == ["Pad", "AveragePool"] and runs(candidate)[0].size > 0

    end = reduced(start, PASSES, keeps)
    assert end.inputs == {} or all(value.size == 1 for value in end.inputs.values())
    assert set(attributes(end.model.graph.node[1])) == {"kernel_shape"}
    assert attributes(end.model.graph.node[1])["kernel_shape"] in ([1, 1], [0, 0], [1])
    assert end.model.ByteSize() < 150


def test_channels_of_convolution_and_batch_norm_shrink_together() -> None:
    weights = np.ones((8, 4, 3, 3), np.float32)
    graph = parse_model(
        f"""{HEAD} g (float[2,4,9,9] x, float[8] s, float[8] b, float[8] m, float[8] v) => (float[2,8,7,7] y) {{
            a = Conv <kernel_shape: ints = [3, 3]> (x, w)
            r = Relu (a)
            y = BatchNormalization (r, s, b, m, v)
        }}"""
    )
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    eight = np.ones(8, np.float32)
    start = Subject(
        graph,
        {"x": np.ones((2, 4, 9, 9), np.float32), **dict.fromkeys("sbmv", eight)},
        {"a": np.ones((2, 8, 7, 7))},
    )
    labels = [edit.label for edit in DIMENSIONS.edits(start)]
    assert any("from 8 to 1" in label for label in labels)
    end = reduced(start, [DIMENSIONS], lambda candidate: runs(candidate)[0].size >= 1)
    assert sum(value.size for value in end.inputs.values()) == 5
    assert end.values == {}, "a recorded value of another shape is of no use"


def test_a_size_that_is_needed_stays_and_all_others_go() -> None:
    start = subject(
        f"{HEAD} g (float[4,6,5] x, float[5,7] w) => (float[4,6,7] y) {{ y = MatMul (x, w) }}",
        x=np.ones((4, 6, 5), np.float32),
        w=np.ones((5, 7), np.float32),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: candidate.inputs["w"].shape[0] >= 3)
    assert {name: value.shape for name, value in end.inputs.items()} == {"x": (1, 1, 3), "w": (3, 1)}


def test_heads_of_attention_shrink_through_shared_reshape_targets() -> None:
    start = subject(
        f"""{HEAD} g (float[1,4,16] x) => (float[1,4,16] y) <int64[4] split = {{1,4,2,8}}, int64[3] merge = {{1,4,16}}> {{
            q = Reshape (x, split)
            k = Reshape (x, split)
            qt = Transpose <perm: ints = [0, 2, 1, 3]> (q)
            kt = Transpose <perm: ints = [0, 2, 3, 1]> (k)
            a = MatMul (qt, kt)
            s = Softmax (a)
            o = MatMul (s, qt)
            ot = Transpose <perm: ints = [0, 2, 1, 3]> (o)
            y = Reshape (ot, merge)
        }}""",
        x=np.ones((1, 4, 16), np.float32),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: runs(candidate)[0].size > 0)
    assert end.inputs["x"].size == 1


def test_a_vocabulary_shrinks_and_its_indices_follow() -> None:
    start = subject(
        f"{HEAD} g (float[50,4] table, int64[3] ids) => (float[3,4] y) {{ y = Gather (table, ids) }}",
        table=np.ones((50, 4), np.float32),
        ids=np.array([49, 7, -50]),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: runs(candidate)[0].shape[0] == 3)
    assert end.inputs["table"].shape == (1, 1)
    assert end.inputs["ids"].tolist() == [0, 0, 0] or end.inputs["ids"].tolist() == [0, 0, -1]


def test_a_depthwise_convolution_keeps_its_groups_in_step() -> None:
    start = subject(
        f"""{HEAD} g (float[1,6,5,5] x, float[6,1,3,3] w) => (float[1,6,3,3] y) {{
            y = Conv <group: int = 6, kernel_shape: ints = [3, 3]> (x, w) }}""",
        x=np.ones((1, 6, 5, 5), np.float32),
        w=np.ones((6, 1, 3, 3), np.float32),
    )
    end = reduced(
        start,
        [DIMENSIONS],
        lambda candidate: attributes(candidate.model.graph.node[0])["group"] > 1,  # type: ignore[operator]
    )
    assert attributes(end.model.graph.node[0]) == {"group": 2, "kernel_shape": [1, 1]}
    assert {name: value.shape for name, value in end.inputs.items()} == {"x": (1, 2, 1, 1), "w": (2, 1, 1, 1)}


def test_parts_of_a_split_and_of_a_concat_shrink() -> None:
    start = subject(
        f"""{HEAD} g (float[10,2] x, float[10,2] r) => (float[10,2] y) <int64[2] parts = {{6,4}}> {{
            a, b = Split <axis: int = 0> (x, parts)
            c = Neg (a)
            d = Concat <axis: int = 0> (c, b)
            y = Add (d, r) }}""",
        x=np.ones((10, 2), np.float32),
        r=np.ones((10, 2), np.float32),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: runs(candidate)[0].shape[0] >= 2)
    assert {value.shape for value in end.inputs.values()} == {(2, 1)}


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_dimensions_shrink_through_bodies(kind: str) -> None:
    inner = {
        "If": (
            "y = If (c) <then_branch = a () => (float[4,6] o) { o = Add (x, w) }, else_branch = b () =>"
            " (float[4,6] o) { o = Neg (x) }>"
        ),
        "Loop": (
            """y = Loop (m, c, x) <body = b (int64 i, bool p, float[4,6] s) => (bool q, float[4,6] r) {
            q = Identity (p) r = Add (s, w) }>"""
        ),
    }[kind]
    start = subject(
        f"{HEAD} g (bool c, int64 m, float[4,6] x, float[6] w) => (float[4,6] y) {{ {inner} }}",
        c=True,
        m=2,
        x=np.ones((4, 6), np.float32),
        w=np.ones(6, np.float32),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: kind in operators(candidate))
    assert end.inputs["x"].size == 1
    assert end.inputs["w"].size == 1


def test_a_symbolic_dimension_stays_until_it_is_made_static() -> None:
    start = subject(
        f'{HEAD} g (float["batch",6] x) => (float["batch",6] y) {{ y = Relu (x) }}',
        x=np.ones((5, 6), np.float32),
    )
    end = reduced(start, [DIMENSIONS], lambda candidate: True)
    assert end.inputs["x"].shape == (1, 1)
    assert end.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    end = reduced(end, [MODEL], lambda candidate: True)
    assert [dim.dim_value for dim in end.model.graph.input[0].type.tensor_type.shape.dim] == [1, 1]
    assert [dim.dim_value for dim in end.model.graph.output[0].type.tensor_type.shape.dim] == [1, 1]


def test_leading_ones_go_everywhere_at_once() -> None:
    start = subject(
        f"{HEAD} g (float[1,1,3] x) => (float[1,1,3] y) {{ a = Softmax <axis: int = 2> (x) y = Add (a, x) }}",
        x=np.ones((1, 1, 3), np.float32),
    )
    end = reduced(start, [RANKS], lambda candidate: True)
    assert end.inputs["x"].shape == (3,)
    assert attributes(end.model.graph.node[0])["axis"] == 0


@pytest.mark.parametrize("dtype", [TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_a_whole_dtype_becomes_float32_and_shapes_stay_int64(dtype: int) -> None:
    name = {TensorProto.DOUBLE: "double", TensorProto.FLOAT16: "float16"}[dtype]
    array = np.ones((2, 3), helper.tensor_dtype_to_np_dtype(dtype))
    start = subject(
        f"""{HEAD} g ({name}[2,3] x, int64[2] k) => ({name}[3,2] y, int64[2] z) <int64[2] t = {{3,2}}> {{
            c = Cast <to: int = {dtype}> (k)
            r = Reshape (x, t)
            y = Add (r, c)
            z = Add (k, k)
        }}""",
        x=array,
        k=np.array([1, 2]),
    )
    end = reduced(start, [DTYPES], lambda candidate: True)
    assert end.inputs["x"].dtype == np.float32
    assert end.inputs["k"].dtype == np.int32 or end.inputs["k"].dtype == np.float32
    assert attributes(end.model.graph.node[0])["to"] == TensorProto.FLOAT
    assert end.model.graph.initializer[0].data_type == TensorProto.INT64
    runs(end)


def test_values_get_as_plain_as_the_predicate_lets_them() -> None:
    start = subject(
        f"{HEAD} g (float[4] x) => (float[4] y) <float[4] w = {{0.3, 7.25, -2.5, 11.0}}> {{ y = Mul (x,"
        " w) }",
        x=np.array([3.3, 1.7, 2.2, 0.4], np.float32),
    )

    def keeps(candidate: Subject) -> bool:
        return len(candidate.inputs) == 1 and float(np.abs(runs(candidate)[0]).max()) > 5

    end = reduced(start, [VALUES], keeps)
    weights = onnx.numpy_helper.to_array(end.model.graph.initializer[0])
    assert np.array_equal(weights, np.rint(weights))
    assert len(np.unique(weights)) <= 2
    assert float(np.abs(end.inputs["x"] * weights).max()) > 5


def test_equal_initializers_are_shared_and_unused_ones_dropped() -> None:
    start = subject(
        f"""{HEAD} g (float[2] x, float[2] u) => (float[2] y)
            <float[2] a = {{1,2}}, float[2] b = {{1,2}}, float[2] c = {{5,6}}> {{ t = Add (x, a) y = Mul (t, b) }}""",
        x=np.ones(2, np.float32),
        u=np.ones(2, np.float32),
    )
    end = reduced(start, [VALUES, SHARING, MODEL], lambda candidate: len(candidate.inputs) > 0)
    # All of them read the one input that is left.
    assert len(end.model.graph.initializer) == 0
    assert len(end.inputs) == 1


IF = f"""{HEAD} g (bool c, float[2] x) => (float[2] y, float[2] z) {{
    t = Relu (x)
    y, z = If (c) <
        then_branch = a () => (float[2] o, float[2] t2) {{ w = Abs (t) o = Neg (w) t2 = Identity (t) }},
        else_branch = b () => (float[2] o, float[2] t2) {{ w = Exp (t) o = Sin (w) t2 = Identity (t) }}
    > }}"""


@pytest.mark.parametrize(("taken", "inner"), [(True, ["Abs", "Neg"]), (False, ["Exp", "Sin"])])
def test_an_if_is_replaced_by_the_branch_that_is_taken(taken: bool, inner: list[str]) -> None:
    start = subject(IF, c=taken, x=np.array([1, -2], np.float32))
    edit = next(iter(BODIES.edits(start)))
    end = edit.apply(start)
    assert end is not None
    assert valid(end)
    assert "c" not in end.inputs
    assert [name for name in operators(end) if name != "Identity"] == ["Relu", *inner]
    for before, after in zip(runs(start), runs(end), strict=True):
        np.testing.assert_array_equal(before, after)


def test_an_if_that_must_stay_is_reduced_inside() -> None:
    start = subject(
        f"""{HEAD} g (bool c, float[2] x) => (float[2] y) {{
            y = If (c) <
                then_branch = a () => (float[2] o) {{ w = Abs (x) v = Neg (w) o = Sqrt (v) }},
                else_branch = b () => (float[2] o) {{ w = Exp (x) o = Sin (w) }}
            > }}""",
        c=True,
        x=np.array([1, -2], np.float32),
    )
    end = reduced(start, [BODIES], lambda candidate: {"If", "Neg"} <= set(operators(candidate)))
    assert sorted(operators(end)) in (["Exp", "If", "Neg"], ["If", "Neg", "Sin"])


def test_a_loop_is_unrolled_once() -> None:
    start = subject(
        f"""{HEAD} g (int64 m, bool c, float[2] x) => (float[2] y) {{
            y = Loop (m, c, x) <body = b (int64 i, bool p, float[2] s) => (bool q, float[2] r) {{
                q = Identity (p) r = Neg (s) }}> }}""",
        m=1,
        c=True,
        x=np.array([1, -2], np.float32),
    )
    found = next(iter(BODIES.edits(start))).apply(start)
    assert found is not None
    assert valid(found)
    assert "Loop" not in operators(found)
    np.testing.assert_array_equal(runs(found)[0], runs(start)[0])


def test_functions_are_inlined_and_shrunk() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.f (x) }
        <domain: "local", opset_import: ["" : 17]> f (a) => (d) { b = Relu (a) c = Abs (b) d = Neg (c) }
        <domain: "local", opset_import: ["" : 17]> unused (a) => (b) { b = Relu (a) }"""
    start = subject(text, x=np.array([1, -2], np.float32))
    end = reduced(start, [BODIES, MODEL], lambda candidate: "Neg" in operators(candidate))
    assert not end.model.functions
    assert "local" not in {entry.domain for entry in end.model.opset_import}
    kept = reduced(start, [BODIES, MODEL], lambda candidate: len(candidate.model.functions) == 1)
    assert len(kept.model.functions[0].node) == 1


def test_attributes_fall_to_their_defaults_and_optional_inputs_go() -> None:
    start = subject(
        f"""{HEAD} g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {{1,2,3,4,5,6,7,8,9,10,11,12}}, float[4] b = {{1,2,3,4}}> {{
            y = Gemm <alpha: float = 0.7, beta: float = 1.0, transA: int = 0> (x, w, b) }}""",
        x=np.ones((2, 3), np.float32),
    )
    end = reduced(start, [ATTRIBUTES], lambda candidate: "alpha" in attributes(candidate.model.graph.node[0]))
    assert attributes(end.model.graph.node[0]) == {"alpha": 0.0}
    assert len(end.model.graph.node[0].input) == 2
    assert len(end.model.graph.initializer) == 1


def test_the_surroundings_of_the_graph_go() -> None:
    start = subject(
        """<ir_version: 10, opset_import: ["" : 21, "com.example" : 3], producer_name: "somebody", doc_string: "words">
        a_long_graph_name (float[2] the_input) => (float[2] the_output) <float[2] middle> {
            [the_first_node] middle = Relu (the_input)
            two = Constant <value_floats: floats = [2.0, 3.0]> ()
            the_output = Mul (middle, two)
        }""",
        the_input=np.ones(2, np.float32),
    )
    start = Subject(start.model, start.inputs, {"middle": np.ones(2, np.float32)})
    end = reduced(start, [MODEL], lambda candidate: True)
    assert operators(end) == ["Relu", "Mul"]
    assert list(end.inputs) == ["x0"]
    assert set(end.values) == {end.model.graph.node[0].output[0]}
    assert [(entry.domain, entry.version) for entry in end.model.opset_import] == [("", 13)]
    assert end.model.ir_version <= 7
    assert not end.model.producer_name
    assert not end.model.doc_string
    assert not end.model.graph.value_info
    assert not end.model.graph.node[0].name


def test_a_branch_stores_the_constant_that_it_gives() -> None:
    """Its type was forgotten: only nodes were expected to compute what a body gives."""
    start = subject(
        f"""{HEAD} g (bool c, float[2] x) => (float[2] y) {{
            y = If (c) <then_branch = t () => (float[2] a) {{ a = Constant <value: tensor = float[2] {{3, 4}}> () }},
                        else_branch = e () => (float[2] b) {{ b = Neg (x) }}> }}""",
        c=True,
        x=np.ones(2, np.float32),
    )
    end = reduced(start, [MODEL], lambda candidate: "If" in operators(candidate))
    assert operators(end) == ["If", "Neg"]


def test_an_initializer_of_old_is_an_input_no_more() -> None:
    start = subject(
        """<ir_version: 3, opset_import: ["" : 8]> g (float[2] x, float[2] w = {1, 2}) => (float[2] y) {
            c = Constant <value: tensor = float[2] {3, 4}> ()
            t = Add (x, w)
            y = Mul (t, c)
        }""",
        x=np.ones(2, np.float32),
    )
    end = reduced(start, [MODEL], lambda candidate: True)
    assert operators(end) == ["Add", "Mul"]
    assert [info.name for info in end.model.graph.input] == list(end.inputs)
    assert end.model.ir_version == 4
    np.testing.assert_array_equal(runs(end)[0], [6, 12])


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Relu", ["x"], []),
        helper.make_node("Dropout", ["x"], ["", ""]),
        helper.make_node("TopK", ["x", "k"], ["", "i"], axis=1),
        helper.make_node("Constant", [], [], value_int=1),
        helper.make_node("Constant", [], [""], value_int=1),
    ],
    ids=lambda node: f"{node.op_type} {len(node.output)}",
)
def test_nodes_without_outputs_are_put_up_with(node: onnx.NodeProto) -> None:
    """A compiler may well die of one."""
    start = subject(
        HEAD + "g (float[2,3] x) => (float[2,3] y) { k = Constant <value_ints = [1]> () y = Relu (x) }",
        x=np.ones((2, 3), np.float32),
    )
    start.model.graph.node.insert(1, node)
    for point in entry_points(group=GROUP):
        for edit in point.load().edits(start):
            edit.apply(start)


def test_a_constant_that_a_call_gives_to_a_function_stores_nothing():
    text = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) {{ y = local.f <value: tensor = float[2] {{1, {last}}}> (x) }}
        <domain: "local", opset_import: ["" : 21]>
        f <value> (a) => (b) {{ c = Constant <value: tensor = @value> () b = Add (a, c) }}"""
    assert simpler(
        Subject(parse_model(text.format(last=1)), {}, {}), Subject(parse_model(text.format(last=7.5)), {}, {})
    )


def test_one_input_is_read_for_another_of_its_type() -> None:
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { y ='
        " Mul (x, c) }"
    )
    subject = Subject(model, {"x": np.ones(2, np.float32)}, {})
    found = [edit.apply(subject) for edit in SHARING.edits(subject)]
    read = [list(each.model.graph.node[0].input) for each in found if each is not None]
    # under its own value, and under that of the other
    assert read == [
        ["x", "x"],
        ["x", "x"],
        ["c", "c"],
        ["c", "c"],
    ]
    assert [len(each.inputs) for each in found if each is not None] == [1, 1, 0, 0]


def test_one_element_is_left_where_broadcasting_gives_the_others_and_a_sequence_follows() -> None:
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[3] x) => (float[3] y, seq(float[2]) s)'
        " <float[3] c = {5, 6, 7}, float[2] d = {1, 2}> { y = Add (x, c) s = SequenceConstruct (d) }"
    )
    subject = Subject(model, {"x": np.ones(3, np.float32)}, {})
    found = {edit.label: edit.apply(subject) for edit in RANKS.edits(subject)}
    one = found["one element of 'c'"]
    assert one is not None
    assert [dim.dim_value for dim in one.model.graph.output[0].type.tensor_type.shape.dim] == [3]
    assert [list(each.dims) for each in one.model.graph.initializer] == [[], [2]]
    listed = found["one element of 'd'"]
    assert listed is not None
    assert not listed.model.graph.output[1].type.sequence_type.elem_type.tensor_type.shape.dim


@pytest.mark.parametrize("axes", [[0, 1], [1, -2]])
def test_a_dimension_goes_from_the_axes_that_name_it_beside_others(axes: list[int]) -> None:
    nodes = [helper.make_node("ReduceSumSquare", ["x", "axes"], ["y"], keepdims=0)]
    infos = [helper.make_tensor_value_info("x", 1, [1, 1]), helper.make_tensor_value_info("y", 1, [])]
    stored = [helper.make_tensor("axes", TensorProto.INT64, [2], axes)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", infos[:1], infos[1:], stored),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    subject = Subject(model, {"x": np.ones((1, 1), np.float32)}, {})
    found = {edit.label: edit.apply(subject) for edit in RANKS.edits(subject)}
    lower = found["lower rank 2 everywhere"]
    assert lower is not None
    assert lower.inputs["x"].shape == (1,)  # type: ignore[union-attr]
    assert list(onnx.numpy_helper.to_array(lower.model.graph.initializer[0]) % 1) == [0]


def test_a_vector_of_integers_that_is_data_loses_its_dimension_and_one_that_is_a_shape_does_not() -> None:
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (int64[1] x) => (int64[1] y) <int64[1] s = {1}>'
        " { m = Mod (x, x) y = Reshape (m, s) }"
    )
    subject = Subject(model, {"x": np.ones(1, np.int64)}, {})
    found = {edit.label: edit.apply(subject) for edit in RANKS.edits(subject)}
    assert found["lower the rank of 'x'"] is not None
    assert "lower the rank of 's'" not in found
