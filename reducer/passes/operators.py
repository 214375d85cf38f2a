"""Replace an operator by a plainer one: one input (or two, added), no attributes, no bodies.

For a wrong result, the new operator must occur in the model: a bug of another operator would be another bug,
and its wrong result looks the same. A failure with a message or a stack may also be shown with nearly trivial
operators.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import onnx
from onnx import helper

from opsieve.gen.irs.onnx.edits import drop_unused
from opsieve.gen.irs.onnx.view import Subject, graph_at, label, node_at, nodes
from opsieve.gen.model.tensors import DTYPES, Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.typed_view import ABSENT, GraphTensor, Step, changing, only_simpler, view
from opsieve.reducer.problem.order import OnnxEdit

# The fields that an operator replaces. Name and documentation of the node stay.
_CONTENT = ("op_type", "domain", "overload", "input", "output", "attribute")
# The most nodes of a model whose operators are replaced; a model with more is not small yet.
_MOST = 12
# The number of operators of the model that are tried in the place of each.
_OTHERS = 2
# The plainest operators by type; Neg for all others. Identity would be plainer, but optimisers often remove
# it first.
_PLAINEST = {"bool": "Not", "string": "Identity"}
# These are as plain as the Add that replaces other operators of two inputs.
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def simplify_operators(subject: Subject, worded: bool = False) -> Iterator[OnnxEdit]:
    """Put plainer operators in the place of those with inputs or attributes to spare, from the last one up;
    `worded`: the plainest of all too.
    """
    found = [node for _, node in nodes(subject.model.graph)]
    own = list(dict.fromkeys(node.op_type for node in found if _is_plain(node)))[:_OTHERS]
    if len(found) > _MOST or not (own or worded):
        return
    seen = view(subject)
    for step in reversed(seen.steps):
        results = [seen.tensors[number] for number in step.outputs if number != ABSENT]
        if _is_plain(step.node) or len(results) != 1:
            continue
        inputs = [seen.tensors[number] for number in step.inputs if number != ABSENT]
        name = next((each.name for each in inputs if _type(each) == _type(results[0])), "")
        plainest = [_PLAINEST.get(DTYPES.get(results[0].dtype, ""), "Neg")] if worded else []
        for operator in dict.fromkeys((*own, *plainest)) if name else ():
            yield _edit(step, operator, [name])
        alike = [each.name for each in inputs if each.dtype == results[0].dtype]
        if (
            worded
            and len(alike) > 1
            and (DTYPES.get(results[0].dtype, "string") not in ("bool", "string"))
            and step.node.op_type not in _ARITHMETIC
        ):
            yield _edit(step, "Add", alike[:2])


def _type(tensor: GraphTensor) -> tuple[int, tuple[int, ...] | None]:
    return tensor.dtype, tensor.shape


def _is_plain(node: onnx.NodeProto) -> bool:
    return len(node.input) == len(node.output) == 1 and not node.attribute and not node.domain


def _edit(step: Step, operator: str, read: Sequence[str]) -> OnnxEdit:
    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        node, graph = node_at(model, step.path, step.key), graph_at(model, step.path)
        if node is None or graph is None or not set(read) <= set(node.input):
            return None
        plain = helper.make_node(operator, read, [step.key])
        for field in _CONTENT:
            node.ClearField(field)
        node.MergeFrom(plain)
        return drop_unused(model, inputs)

    what = f"{operator} of {' and '.join(repr(each[:40]) for each in read)} for {label(step.node)}"
    return only_simpler(changing(what, {"/".join((*step.path, step.key)), *read}, change, ()))


PASS = ListedPass("operators", simplify_operators)
WORDED = ListedPass("operators", partial(simplify_operators, worded=True))
