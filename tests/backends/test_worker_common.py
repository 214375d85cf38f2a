"""What backend files share: types at a model's border, meanings of errors."""

import pytest
from onnx import GraphProto, TensorProto, ValueInfoProto, helper

from opsieve.backends.compilers.worker_common import meaning_of, onnx_name, refuse_border

SEQUENCE = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])))
PACKED = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(22, [2])))
FLOAT = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])


def graph(taken: ValueInfoProto, given: ValueInfoProto) -> GraphProto:
    return helper.make_graph([], "g", [taken], [given])


@pytest.mark.parametrize(
    ("taken", "given", "said"),
    [
        (FLOAT, FLOAT, ""),
        (FLOAT, SEQUENCE, ""),
        (SEQUENCE, FLOAT, "a sequence type cannot cross the border of a model in it"),
        (FLOAT, PACKED, "a tensor of int4 cannot cross the border of a model in it"),
    ],
)
def test_a_border_lets_through_what_its_side_carries(
    taken: ValueInfoProto, given: ValueInfoProto, said: str
) -> None:
    found = ""
    try:
        refuse_border(
            graph(taken, given), "it", onnx_name, lambda name: name != "int4", ((), ("sequence_type",))
        )
    except NotImplementedError as error:
        found = str(error)
    assert found == said


def test_the_class_of_an_exception_comes_before_its_words() -> None:
    patterns = (("environment", "not here"), ("unsupported", "not"))
    assert meaning_of("a.b.MemoryError", "not here", patterns) == "out-of-memory"
    assert meaning_of("RuntimeError", "not here", patterns) == "environment"
    assert meaning_of("RuntimeError", "it is not", patterns) == "unsupported"
    assert meaning_of("RuntimeError", "", patterns) == "error"
