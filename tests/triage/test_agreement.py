"""Which builds pass a test of a campaign because others give the same: two levels of one compiler are one witness."""

from typing import Any

import numpy as np
from in_process import TableLab
from onnx import TensorProto, helper

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Test
from opsieve.gen.model.program import OnnxProgram
from opsieve.triage.campaign.testing import agreeing

ALL, EXTENDED, BASE, TVM = (
    resolve(each) for each in ("onnxruntime", "onnxruntime:extended", "onnxruntime:disable_all", "tvm")
)


def passed(**values: float) -> set[ResolvedTarget]:
    names = {"full": ALL, "extended": EXTENDED, "base": BASE, "tvm": TVM}
    given: dict[str, Any] = {
        str(names[name]): Observation("", "", "ok", outputs={"y": np.float32([value])})
        for name, value in values.items()
    }
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    test = Test(OnnxProgram(helper.make_model(graph).SerializeToString()), {"x": np.float32([1])})
    return agreeing(test, [names[name] for name in values], TableLab(given))


def test_levels_that_share_a_fault_do_not_pass_each_other() -> None:
    assert passed(full=2, extended=2, base=1) == set()


def test_the_unoptimised_build_and_another_compiler_are_witnesses() -> None:
    assert passed(full=1, extended=2, base=1) == {ALL, BASE}
    assert passed(full=2, base=1, tvm=2) == {ALL, TVM}
    assert passed(full=1, extended=1, base=1) == {ALL, EXTENDED, BASE}
