import os
from pathlib import Path

import hostile
import numpy as np
import onnx
import pytest
import valid_models
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.model_file import check, load_program
from opsieve.gen.model.files import BUDGET
from opsieve.gen.model.structure import check_structure


def external_model(folder: Path, **where: str) -> Path:
    model = valid_models.plain()
    valid_models.make_external(model.graph.initializer[0], {"location": "w.bin", **where})
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_plain_file_is_taken_byte_for_byte(tmp_path):
    data = valid_models.branching().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    program = load_program(tmp_path / "m.onnx")
    assert (program.model, program.name) == (data, "m.onnx")


@pytest.mark.parametrize("model", [valid_models.plain, valid_models.branching, valid_models.functional])
def test_sound_models_have_no_complaint(model):
    check_structure(model())
    assert check(model().SerializeToString()) == ""


@pytest.mark.parametrize(
    "where",
    [{}, {"offset": "0"}, {"offset": "8", "length": "24"}, {"location": "sub/./w.bin"}, {"checksum": "0"}],
    ids=str,
)
def test_external_data_is_taken_in(tmp_path, where):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "sub").mkdir()
    data = bytes(int(where.get("offset", "0"))) + weights.tobytes()
    (tmp_path / "w.bin").write_bytes(data + b"what follows" * ("length" in where))
    (tmp_path / "sub" / "w.bin").symlink_to("../w.bin")  # a link that stays inside
    program = load_program(external_model(tmp_path, **where))
    tensor = program.proto.graph.initializer[0]
    assert np.array_equal(numpy_helper.to_array(tensor), weights)
    assert not tensor.external_data
    assert check(program.model) == ""


def test_external_data_of_bodies_and_functions_is_taken_in(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    model = valid_models.functional()
    constant = helper.make_node("Constant", [], ["k"], value=valid_models.external("w.bin"))
    model.functions[0].node.insert(0, constant)
    branch = valid_models.branching().graph.node[0]
    branch.attribute[0].g.initializer.append(valid_models.external("w.bin", name="inner"))
    branch.output[0] = "z"
    model.graph.initializer.extend(valid_models.branching().graph.initializer)
    model.graph.node.append(branch)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    program = load_program(tmp_path / "m.onnx")
    assert b"w.bin" not in program.model
    assert check(program.model) == ""


def test_a_way_up_is_refused_even_when_it_leads_back(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    with pytest.raises(BadInput, match="not a path inside"):
        load_program(external_model(tmp_path, location="sub/../w.bin"))


def test_a_missing_data_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"w\.bin"):
        load_program(external_model(tmp_path))


def test_a_link_to_a_model_is_followed_and_its_folder_is_the_links(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "w.bin").write_bytes(bytes(24))
    (tmp_path / "here" / "model.onnx").symlink_to(external_model(tmp_path / "store"))
    load_program(tmp_path / "here" / "model.onnx")


def test_the_scopes_of_onnx():
    """What looks like a second definition but is none: a default, an input of a body that hides, equal names
    in two branches.
    """
    model = valid_models.branching()
    # `c` has an initializer: a default.
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    one, two = (attribute.g for attribute in model.graph.node[0].attribute)
    two.node[0].output[0] = two.output[0].name = "then_out"
    check_structure(model)
    for number in range(2):  # second outputs that are left out
        one.node.append(helper.make_node("MaxPool", ["image"], [f"pooled{number}", ""], kernel_shape=[1, 1]))
    model.graph.initializer.append(helper.make_tensor("image", TensorProto.FLOAT, [1, 1, 1, 1], [1.0]))
    check_structure(model)
    body = helper.make_graph(
        [helper.make_node("Identity", [name], [f"{name}_out"]) for name in ("x", "go")],
        "body",
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("go", 9), ("x", 1))],
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("go_out", 9), ("x_out", 1))],
    )
    # An input left out; `x` is hidden.
    model.graph.node.append(helper.make_node("Loop", ["", "c", "x"], ["z"], body=body))
    model.graph.value_info.append(helper.make_tensor_value_info("z", 1, None))
    check_structure(model)
    assert check(model.SerializeToString()) == ""


def test_sparse_initializers_are_values():
    model = valid_models.plain()
    values, indices = helper.make_tensor("k", 1, [1], [1.0]), helper.make_tensor("", 7, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    model.graph.node[1].input[1] = "k"
    check_structure(model)


def test_graphs_may_be_nested_as_deep_as_stated(tmp_path):
    data = valid_models.plain().SerializeToString()
    for depth, fine in ((BUDGET.depth - 1, True), (BUDGET.depth, False)):
        (tmp_path / "m.onnx").write_bytes(data + hostile._field(7, hostile._nested(depth)))
        if fine:
            load_program(tmp_path / "m.onnx")
        else:
            with pytest.raises(BadInput, match="nested"):
                load_program(tmp_path / "m.onnx")


def test_the_cycle_is_named_by_its_node(tmp_path):
    model = valid_models.plain()
    model.graph.node[0].input[0] = "b"
    with pytest.raises(
        BadInput, match=r"node 0 \('Mul'\) uses 'b', which is made only later: the graph is cyclic"
    ):
        check_structure(model)


def test_an_output_without_a_rank_is_no_complaint():
    model = valid_models.plain()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert check(model.SerializeToString()) == ""
    model.graph.output[0].ClearField("type")
    assert check(model.SerializeToString()) == ""


def test_a_complaint_is_one_bounded_line():
    model = valid_models.plain()
    model.graph.node[0].op_type = "No\nSuch\x1b[31m" * 500
    complaint = check(model.SerializeToString())
    assert 0 < len(complaint) <= 300
    assert complaint.isprintable()


def test_no_conformance_model_is_refused(node_tests, tmp_path):
    assert len(node_tests) > 1800
    path = tmp_path / "m.onnx"
    for test in node_tests:
        path.write_bytes(test.model.SerializeToString())
        assert check(load_program(path).model) == "", test.name


def test_special_files_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "m.onnx")  # opening it would wait for a writer for ever
    with pytest.raises(BadInput, match="FIFO"):
        load_program(tmp_path / "m.onnx")


def test_onnx_is_what_the_corpus_is_made_for():
    onnx.checker.check_model(valid_models.plain(), full_check=True)


def test_large_tensors_are_declared_to_the_checker_and_wrong_ones_are_not(monkeypatch):
    def model(elements: int) -> bytes:
        tensor = onnx.TensorProto(
            name="w", data_type=TensorProto.FLOAT, dims=[elements], raw_data=bytes(1 << 22)
        )
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 20])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1 << 20])],
            [tensor],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()

    seen = []
    infer = onnx.shape_inference.infer_shapes

    def infer_shapes(given: bytes, **options: bool) -> onnx.ModelProto:
        seen.append(len(given))
        return infer(given, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer_shapes)
    assert check(model(1 << 20)) == ""
    assert seen[0] < 1000
    # The bytes fit no tensor of this size, and the sum none of that output.
    assert check(model(7))
