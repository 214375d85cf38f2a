"""Models that bring onnx's C++ down cost one answer: of what the reducer asks onnx_subprocess, and of every
command that is given one.
"""

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, shape_inference

from opsieve import reduce as reduce_model
from opsieve.gen.errors import BadInput
from opsieve.reducer.onnx_edit import onnx_subprocess

FLOAT = TensorProto.FLOAT
X = helper.make_tensor_value_info("x", FLOAT, [1, 2, 3, 4])
SOUND = [helper.make_node("Relu", ["x"], ["y"])]
# Inference reads through a null pointer, and before the beginning of a shape (onnx 1.23).
UNTYPED = [
    helper.make_node("Foo", ["x"], ["z"], domain="com.x"),
    helper.make_node("EyeLike", ["z"], ["y"], dtype=FLOAT),
]
FAR = [
    helper.make_node("Constant", [], ["i"], value_ints=[0]),
    helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-100),
]


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [X], [helper.make_tensor_value_info("y", FLOAT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.x", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("nodes", [UNTYPED, FAR], ids=["untyped", "far"])
def test_a_death_is_a_refusal_and_the_next_question_is_answered(nodes: list[onnx.NodeProto]) -> None:
    for strict in (False, True):
        assert onnx_subprocess.infer_types(model(nodes), strict) is None
    assert onnx_subprocess.infer_types(model(SOUND), True) == shape_inference.infer_shapes(
        model(SOUND), strict_mode=True
    )


def test_a_refusal_is_no_answer() -> None:
    shapeless = model([helper.make_node("Add", ["x"], ["y"])])
    assert onnx_subprocess.infer_types(shapeless, True) is None
    assert onnx_subprocess.infer_types(shapeless, False) is not None


def test_outputs_of_a_node_alone() -> None:
    types = {
        "a": helper.make_tensor_type_proto(FLOAT, [2, 3]),
        "s": helper.make_tensor_type_proto(TensorProto.INT64, [1]),
    }
    known = [helper.make_tensor("s", TensorProto.INT64, [1], [6])]
    node = helper.make_node("Reshape", ["a", "s"], ["b"])
    assert onnx_subprocess.outputs(node, types, known, 21) == {"b": helper.make_tensor_type_proto(FLOAT, [6])}
    assert onnx_subprocess.outputs(helper.make_node("Nonsense", ["a"], ["b"]), types, [], 21) is None


def test_functions_are_inlined() -> None:
    asked = model([helper.make_node("F", ["x"], ["y"], domain="com.x")])
    asked.functions.append(
        helper.make_function("com.x", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [])
    )
    asked.functions[0].opset_import.extend([helper.make_opsetid("", 21)])
    found = onnx_subprocess.inline_functions(asked, [("com.x", "F")])
    assert found is not None
    assert [node.op_type for node in found.graph.node] == ["Relu"]


def test_the_process_ends_with_its_owner() -> None:
    script = (
        "import os, onnx; from opsieve.reducer.onnx_edit import onnx_subprocess\n"
        "onnx_subprocess.infer_types(onnx.ModelProto(), False)\n"
        "print(onnx_subprocess.HELPER._process.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        process = os.pidfd_open(int(owner.stdout.readline()))
        try:
            owner.kill()
            assert select.select([process], [], [], 60)[0]
        finally:
            os.close(process)


def test_a_reduction_without_inference_is_refused_and_not_called_minimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that cannot start says nothing about the candidates."""
    monkeypatch.setattr(
        onnx_subprocess, "_start_child", lambda: subprocess.Popen(["/bin/false"], stdin=-1, stdout=-1)
    )
    monkeypatch.setattr(onnx_subprocess, "HELPER", onnx_subprocess._Helper())
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Erf", ["z"], ["y"])]
    with pytest.raises(BadInput, match="inference cannot run"):
        reduce_model(model(nodes), targets=["fake:crash@Erf"])


COMMANDS = """
import sys
from opsieve.backends.workers.zygotes.shared_zygotes import ZYGOTES
from opsieve.tui.cli import main
from opsieve.tui.commands.examine.reduce_command import main as reduce
ZYGOTES.keep_idle(8)
for command in (
    ["run", "-t", "onnxruntime"],
    ["metrics"],
    ["gen", "-n", "1", "--check", "--strategy", "mutate", "--corpus"],
    ["reduce", "--check", "/bin/true"],
):
    start = main
    if command[0] == "reduce":
        start, command = reduce, command[1:]
    try:
        sys.argv[1:] = [*command, sys.argv[-1]]
        start()
    except SystemExit as end:
        print("status", end.code)
"""


@pytest.mark.slow(seconds=3)
def test_commands_survive_it(tmp_path: Path) -> None:
    onnx.save(model(FAR), tmp_path / "far.onnx")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(tmp_path / "far.onnx")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall("^status (.*)$", done.stdout, re.MULTILINE) == ["2", "0", "2", "0"], done.stderr
    assert "Traceback" not in done.stderr
