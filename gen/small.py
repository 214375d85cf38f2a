"""A first generator: small ONNX models that are valid by construction, for campaigns until the generator core is here.

A model is built forwards. Every value carries its type, its shape and an interval that holds all its elements, so an operator is
only applied where its result is defined and of moderate size: a divisor keeps away from zero, a logarithm from what is not positive,
an integer from overflow. No solver and no retries of whole models: a choice that does not fit is drawn again.
"""

from collections.abc import Callable

import onnx
from onnx import TensorProto, helper, numpy_helper

from opsieve.gen.case import Case, Origin
from opsieve.gen.program import Program
from opsieve.gen.small_graph import OPSET, Graph
from opsieve.gen.small_layouts import LAYOUTS
from opsieve.gen.small_operators import OPERATORS

NAME = "small-1"  # raise the number when an equal seed no longer gives equal bytes
MIN_NODES, MAX_NODES = 5, 30

_DTYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def generate(seed: int, min_nodes: int = MIN_NODES, max_nodes: int = MAX_NODES) -> Case:
    """The case of a seed: a model of `min_nodes` to `max_nodes` nodes and values for its inputs. Equal seeds give equal bytes.

    Types are float32 or float16 (one of them a model, but for casts), int64 and bool; tensors have up to 4 dimensions and at
    most 1,024 elements. The outputs are the values that no node reads.
    """
    graph = Graph(seed)
    wanted = graph.draw.between(min_nodes, max_nodes)
    kinds: list[Callable[[Graph], bool]] = [kind for kind, weight in (*OPERATORS, *LAYOUTS) for _ in range(weight)]
    while len(graph.nodes) < wanted:
        graph.room = wanted - len(graph.nodes)
        graph.draw.choice(kinds)(graph)
    outputs = [value for value in graph.values if value.name not in graph.read and value.name not in graph.inputs]
    infos = [
        helper.make_tensor_value_info(value.name, _DTYPES[value.dtype], value.shape)
        for value in (*graph.values[: len(graph.inputs)], *outputs)
    ]
    made = helper.make_graph(
        graph.nodes,
        "small",
        infos[: len(graph.inputs)],
        infos[len(graph.inputs) :],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model: onnx.ModelProto = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="opsieve"
    )
    program = Program(model.SerializeToString(deterministic=True), f"{NAME}-{seed}")
    return Case(program, dict(graph.inputs), None, Origin(NAME, seed, {}, "generated"))
