"""A model of more nodes than can be walked through is refused before it is walked through, wherever they
are.
"""

from pathlib import Path

import onnx
import pytest
from models import chain
from onnx import TensorProto, helper

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.model import structure
from opsieve.gen.model.files import ReadingBudget
from opsieve.gen.model.structure import check_structure


def test_nodes_of_all_graphs_and_functions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "BUDGET", ReadingBudget(nodes=4))
    model = onnx.load_model_from_string(chain("Relu", "Tanh", "Exp", "Neg").model)
    check_structure(model)
    function = helper.make_function(
        "f", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], model.opset_import
    )
    model.functions.append(function)
    with pytest.raises(BadInput, match="it has more than 4 nodes, and 4 are read"):
        check_structure(model)


def test_a_chain_without_end_is_a_sentence_at_once() -> None:
    model = onnx.load_model_from_string(chain("Relu").model)
    node = model.graph.node[0].SerializeToString()
    model.graph.MergeFromString((b"\x0a" + bytes([len(node)]) + node) * (structure.BUDGET.nodes + 1))
    with pytest.raises(BadInput, match="it has 500,002 nodes, and 500,000 are read"):
        check_structure(model)


@pytest.mark.parametrize("sparse", [False, True])
def test_external_data_that_files_do_not_hold_is_refused_before_it_is_read(
    tmp_path: Path, sparse: bool
) -> None:
    with (tmp_path / "data").open("wb") as file:
        file.truncate(600_000 if sparse else 0)
        file.write(b"" if sparse else bytes(600_000))
    model = onnx.load_model_from_string(chain("Relu").model)
    for at in range(150):
        tensor = TensorProto(
            name=f"w{at}", data_type=TensorProto.FLOAT, dims=[150_000], data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="data")
        model.graph.initializer.append(tensor)
        if at in (100, 149):
            (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        if at == 100:
            load_program(tmp_path / "m.onnx")  # up to 64 MB names may share what they like
    with pytest.raises(
        BadInput,
        match=r"would take 90,000,000 bytes, of which its files hold (0|600,000); write each tensor once",
    ):
        load_program(tmp_path / "m.onnx")
