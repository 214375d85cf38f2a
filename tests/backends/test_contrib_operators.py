"""Operators of onnxruntime's own domain: the reference against the kernels, on random instances
(support/contrib_instances).
"""

import numpy as np
from contrib_instances.drawing import Instance, model_of
from contrib_instances.instances import INSTANCES
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.reference.contrib.operators import DOMAIN, NOT_COMPUTED, OPERATORS
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

TARGET = resolve("onnxruntime:disable_all")
# The kernel is wrong on these (samples/upstream/onnxruntime-contrib.md), so only their defined instances are compared.
_FAULTY = {"QMoE", "QLinearSoftmax", "Attention"}


def test_every_kernel_on_the_cpu_has_a_reference_or_a_reason() -> None:
    kernels = {
        kernel.op_name
        for kernel in get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == DOMAIN
    }
    computed = {each.__name__ for each in OPERATORS}
    assert kernels - computed - set(NOT_COMPUTED) == set()
    assert computed & set(NOT_COMPUTED) == set()


def test_the_reference_agrees_with_each_kernel(workers: Workers) -> None:
    doubtful = {name: why for name in sorted(INSTANCES) if (why := find_disagreement(workers, name))}
    assert doubtful == {}


def find_disagreement(workers: Workers, name: str) -> str:
    """How the reference and the kernel differ on one of the first two instances that the kernel computes."""
    agreed = 0
    for number in range(8):
        instance = INSTANCES[name](np.random.default_rng([7, number]))
        model, fed = model_of(name, instance, "" if name == "SimplifiedLayerNormalization" else DOMAIN)
        program = OnnxProgram(model.SerializeToString(), name)
        lab = ObservationCache(workers)
        seen = lab.observe(TARGET, program, fed)
        if seen.outputs is None:
            continue
        if (reference := lab.observe(FLOAT64, program, fed)).outcome != "ok":
            return f"{reference.outcome}: {reference.message}"
        verdict = judge_program(program, fed, TARGET, lab).verdict
        if name not in _FAULTY and verdict.verdict != "pass":
            return verdict.reason
        agreed += verdict.verdict == "pass"
        if agreed == 2:
            return ""
    return f"{agreed} of 8 instances agree"


def test_a_row_of_one_is_certain(workers: Workers) -> None:
    # onnxruntime 1.31.1 gives the zero point
    one = Instance(
        [np.full((2, 1), 5, np.uint8), np.float32(0.1), np.uint8(3), np.float32(1 / 256), np.uint8(0)]
    )
    model, fed = model_of("QLinearSoftmax", Instance(one.inputs, {"axis": -1, "opset": 13}))
    seen = workers.observe(FLOAT64, OnnxProgram(model.SerializeToString(), "one"), fed)
    assert seen.outputs is not None
    assert seen.outputs["y0"].ravel().tolist() == [255, 255]


def test_short_floats_keep_their_type_and_absent_inputs_are_none(workers: Workers) -> None:
    node = helper.make_node(
        "SkipLayerNormalization", ["x", "s", "g", "", "b"], ["y", "", "", "t"], domain=DOMAIN, epsilon=1e-5
    )
    kinds = {"x": [1, 2, 4], "s": [1, 2, 4], "g": [4], "b": [4]}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, sides) for name, sides in kinds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 2, 4]) for name in ("y", "t")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    draw = np.random.default_rng(0)
    fed = {name: draw.normal(size=sides).astype(np.float16) for name, sides in kinds.items()}
    seen = workers.observe(resolve("reference"), OnnxProgram(model.SerializeToString(), "half"), fed)
    assert seen.outputs is not None
    assert {name: value.dtype.name for name, value in seen.outputs.items()} == {
        "y": "float16",
        "t": "float16",
    }
    np.testing.assert_allclose(seen.outputs["t"], fed["x"] + fed["s"] + fed["b"], atol=1e-2)
