"""A large model is sent as it lies, with the lowest IR version that it allows."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.irs.onnx import ir
from opsieve.gen.irs.onnx.program import OnnxProgram


def test_a_large_model_is_lowered_without_being_serialised_again() -> None:
    stored = numpy_helper.from_array(np.zeros((5 << 20,), np.float32), "w")
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5 << 20])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [info], [stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
    program = OnnxProgram.of(model)
    ir._lower_ir_version.cache_clear()
    sent, _ = ir.payload(program, as_is=False)
    assert sent.startswith(program.data)
    assert onnx.load_model_from_string(sent).ir_version < 10
    assert ir.payload(program, as_is=True)[0] is program.data
    assert ir._lower_ir_version.cache_info().currsize == 0
