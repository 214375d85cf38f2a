"""Large tensors outside of memory: what a model of them is, on every way out of the process."""

import contextlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.edits import cut
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Graph
from opsieve.gen.model.detached import SCHEME, detach, part_of
from opsieve.gen.model.tensors import read_tensor
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.problem.order import byte_size

WIDE = 1 << 18  # floats: 1 MiB, the least


def model() -> onnx.ModelProto:
    """Two weights of 1 MiB and one of 4-bit integers, with a small one between them."""
    weights = [
        numpy_helper.from_array(np.arange(WIDE, dtype=np.float32), "w0"),
        numpy_helper.from_array(np.float32(3), "small"),
        numpy_helper.from_array(np.arange(WIDE, dtype=np.float32) * 2, "w1"),
        TensorProto(name="packed", data_type=TensorProto.INT4, dims=[1 << 21], raw_data=b"\x21" * (1 << 20)),
    ]
    nodes = [
        helper.make_node("Add", ["x", "w0"], ["a"]),
        helper.make_node("Mul", ["a", "small"], ["b"]),
        helper.make_node("Add", ["b", "w1"], ["y"]),
        helper.make_node("DequantizeLinear", ["packed", "small"], ["z"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDE]) for name in "xy"]
    infos.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1 << 21]))
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights, value_info=infos[:1])
    graph.value_info[0].name = "a"
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=11)


def stored(folder: Path, external: bool) -> OnnxProgram:
    folder.mkdir()
    made = model()
    onnx.save_model(
        made, folder / "m.onnx", save_as_external_data=external, location="w.bin", size_threshold=1024
    )
    program = load_program(folder / "m.onnx")
    (folder / "w.bin").unlink(missing_ok=True)  # it is read once
    return program


@pytest.mark.parametrize("external", [True, False])
def test_a_model_of_references_is_the_model_wherever_it_is_read(
    tmp_path: Path, workers: Workers, external: bool
) -> None:
    program, whole = stored(tmp_path / "here", external), model()
    assert len(program.model) < 2000
    assert program.byte_size == len(program.data)
    again = onnx.ModelProto.FromString(program.data)
    assert again.graph.initializer == whole.graph.initializer
    assert again.graph.node == whole.graph.node
    values = {tensor.name: read_tensor(tensor) for tensor in program.proto.graph.initializer}
    assert np.array_equal(values["w1"], np.arange(WIDE) * 2)
    assert values["packed"][:2].astype(int).tolist() == [1, 2]
    assert not values["w0"].flags.writeable
    save(Case(program, {"x": np.ones(WIDE, np.float32)}), tmp_path / "case")
    assert load(tmp_path / "case").program == program  # equal data, equal references
    assert onnx.load(tmp_path / "case" / "model.onnx").graph.initializer == whole.graph.initializer
    right = (1 + np.arange(WIDE, dtype=np.float32)) * 3 + np.arange(WIDE, dtype=np.float32) * 2
    # maps them, takes them in, asked again
    for target in (
        "onnxruntime",
        "reference",
        "onnxruntime:disable_all",
    ):
        seen = workers.observe(resolve(target), program, {"x": np.ones(WIDE, np.float32)})
        assert seen.outcome == "ok", seen.message
        assert np.array_equal((seen.outputs or {})["y"], right)
        assert (seen.outputs or {})["z"][:2].tolist() == [3, 6]


def test_what_is_cut_out_refers_to_the_same_data_and_counts_it(tmp_path: Path) -> None:
    program = stored(tmp_path / "here", True)
    subject = OnnxReduction().subject(Case(program, {"x": np.ones(WIDE, np.float32)}))
    kept = cut(Graph(subject), [0])
    assert kept is not None
    (tensor,) = kept.model.graph.initializer
    assert part_of(tensor) is not None
    assert kept.model.ByteSize() < 1000 < 4 * WIDE < byte_size(kept.model) < byte_size(subject.model)
    assert OnnxReduction().size(kept).bytes == byte_size(kept.model)


def test_memory_is_what_the_small_tensors_take(tmp_path: Path) -> None:
    """60 MiB that take no place on the disk."""
    made, dims = model(), [15 << 20]
    made.graph.initializer[0].dims[:] = dims
    made.graph.initializer[0].raw_data = b""
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="holes")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(60 << 20)
    before = anonymous()
    program = load_program(tmp_path / "m.onnx")
    assert program.digest
    assert anonymous() - before < 20 << 20
    part = part_of(program.proto.graph.initializer[0])
    assert part is not None
    assert len(part) == 60 << 20


def test_a_forked_process_writes_to_a_file_of_its_own(tmp_path: Path) -> None:
    program = stored(tmp_path / "here", True)
    whole = program.data
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            other = TensorProto(name="t", data_type=TensorProto.UINT8, dims=[2 << 20])
            detach(other, [b"\x01" * (2 << 20)])
            fine = read_tensor(other).all() and program.data == whole
            os._exit(0 if fine else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mine = TensorProto(name="t", data_type=TensorProto.UINT8, dims=[2 << 20])
    detach(mine, [b"\x02" * (2 << 20)])
    assert (read_tensor(mine) == 2).all()


def anonymous() -> int:
    """Bytes of memory of this process that no file stands behind."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))


def test_nobody_makes_up_a_reference(tmp_path: Path) -> None:
    """A file that names the digest of data that another model has."""
    program = stored(tmp_path / "here", True)
    (tmp_path / "m.onnx").write_bytes(program.model)
    assert SCHEME.encode() in program.model
    with pytest.raises(BadInput, match="missing"):
        load_program(tmp_path / "m.onnx")
    unknown = TensorProto(name="t", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    unknown.external_data.add(key="location", value=SCHEME + "0" * 64)
    with pytest.raises(BadInput, match="in another file"):
        read_tensor(unknown)
