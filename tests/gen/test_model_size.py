"""A model of more nodes than can be walked through is refused before it is walked through, wherever they are."""

import onnx
import pytest
from models import chain
from onnx import helper

from opsieve.gen.model import structure
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.model.structure import check_structure


def test_nodes_of_all_graphs_and_functions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MAX_NODES", 4)
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
    model.graph.MergeFromString((b"\x0a" + bytes([len(node)]) + node) * (structure.MAX_NODES + 1))
    with pytest.raises(BadInput, match="it has 500,002 nodes, and 500,000 are read"):
        check_structure(model)
