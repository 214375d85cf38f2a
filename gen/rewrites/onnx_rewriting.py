"""The rewrites of ONNX models, by name, and the one that splits a batch and concatenates the results.

It fits where each row of the first axis is computed independently. Elementwise families keep rows apart;
other operators declare it (`Operator.rows`).
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from onnx import NodeProto, numpy_helper

from opsieve.gen.declarations import catalogue, properties
from opsieve.gen.irs.ir import Rewriter, Rewritten
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import list_captured
from opsieve.gen.model.structure import bodies, copied, model_nodes
from opsieve.gen.model.tensors import Value
from opsieve.gen.rewrites import nodes as rewrites
from opsieve.gen.rewrites.nodes import Rewrite, Rewriting, start_rewriting

_UNARY = frozenset(("unary",))
_BROADCASTING = frozenset(("binary", "comparison", "bits", "logic", "variadic"))


def split_batch(at: Rewriting) -> None:
    """Run each node that keeps the rows of its first axis apart on two parts, and concatenate the results."""
    # Since opset 13 Split takes its sizes as an input, as written here.
    if at.opset < catalogue.OLDEST:
        return
    parts: dict[str, tuple[str, str]] = {}
    made: list[NodeProto] = []
    for node in at.nodes:
        split = _find_split_inputs(at, node)
        if split is None or not at.chosen(node.output[0]):
            made.append(node)
            continue
        # Once for each value, though several nodes may read its parts.
        for name in dict.fromkeys(name for name, apart in zip(node.input, split, strict=True) if apart):
            if name not in parts:
                parts[name] = (at.fresh(name), at.fresh(name))
                made.append(
                    at.make_node(
                        "Split",
                        [name, _store_sizes(at, properties.row_count(at.tensors[name]))],
                        parts[name],
                        axis=0,
                    )
                )
        halves = [_copy_half(at, node, split, parts, side) for side in (0, 1)]
        made += halves
        for first, second, whole in zip(*(half.output for half in halves), node.output, strict=True):
            # The next node reads the parts directly, so that a chain stays split.
            parts[whole] = (first, second)
            made.append(at.make_node("Concat", [first, second], [whole], axis=0))
        at.rewritten = True
    # Results of which only the parts are read need no Concat.
    read = at.outputs | {name for node in made for name in list_captured(node)}
    at.nodes = [
        node for node in made if node.op_type != "Concat" or any(name in read for name in node.output)
    ]


def _copy_half(
    at: Rewriting, node: NodeProto, split: Sequence[bool], parts: Mapping[str, tuple[str, str]], side: int
) -> NodeProto:
    """Return the copy of a node for one part of the rows."""
    half = copied(node)
    half.name = at.fresh(node.name or node.output[0])
    half.input[:] = [
        parts[name][side] if apart else name for name, apart in zip(node.input, split, strict=True)
    ]
    half.output[:] = [at.fresh(name) for name in node.output]
    return half


def _store_sizes(at: Rewriting, rows: int) -> str:
    """Store the sizes of the two parts as an initializer and return its name."""
    name = at.fresh(f"rows_{rows}")
    at.model.graph.initializer.append(
        numpy_helper.from_array(np.array([rows // 2, rows - rows // 2], np.int64), name)
    )
    return name


def _find_split_inputs(at: Rewriting, node: NodeProto) -> Sequence[bool] | None:
    """Return which inputs of a node are split; None if the node stays whole."""
    op = catalogue.operators().get(node.op_type) if at.is_standard(node) else None
    ins = [at.tensors.get(name) for name in node.input]
    if (
        op is None
        or not all(node.output)
        or any(each is None or not each.dtype for each in ins)
        or any(bodies(node))
    ):
        return None
    known = [each for each in ins if each is not None]
    attributes = {each.name: list(each.ints) or each.i for each in node.attribute}
    if op.family in _UNARY:
        split: Sequence[bool] | None = properties.rows_of_first(known, attributes)
    elif op.family in _BROADCASTING and len(node.output) == 1:
        split = properties.broadcast_rows(known)
    else:
        split = op.rows(known, attributes) if op.rows is not None and len(node.output) == 1 else None
    if split is None:
        return None
    # All split inputs need equally many rows, and two at least, so that both parts have some.
    rows = {properties.row_count(tensor) for tensor, apart in zip(known, split, strict=True) if apart}
    names = [name for name, apart in zip(node.input, split, strict=True) if apart]
    fits = len(rows) == 1 and min(rows) >= 2 and all(at.takes("Split", name) for name in names)
    return split if fits and all(at.takes("Concat", name) for name in node.output) else None


def _apply_rewrite(
    rewrite: Rewrite, program: OnnxProgram, inputs: Mapping[str, Value], seed: str
) -> Rewritten | None:
    """Apply a rewrite, in about half of the places if there is a seed."""
    model = program.proto
    if any(map(_is_random, model_nodes(model))):
        return None

    def is_chosen(place: str) -> bool:
        # By a hash of the name: a reduction that drops other values leaves the choice for this one.
        return not seed or hashlib.sha256(f"{seed} {place}".encode()).digest()[0] % 2 == 0

    at = start_rewriting(model, inputs, is_chosen)
    rewrite(at)
    if not at.rewritten:
        return None
    return Rewritten(OnnxProgram(at.finish().SerializeToString(deterministic=True), program.name), at.inputs)


def _is_random(node: NodeProto) -> bool:
    """Return whether a program's results depend on drawn numbers, whose order a rewrite may change."""
    operator = catalogue.find_operator(node.domain, node.op_type)
    undefined = () if operator is None else operator.undefined
    # Dropout draws in training only, which its third input switches on.
    return properties.random_numbers in undefined or (properties.dropout in undefined and len(node.input) > 2)


REWRITES: Mapping[str, Rewriter[OnnxProgram]] = {
    "insert-identities": partial(_apply_rewrite, rewrites.insert_identities),
    "duplicate": partial(_apply_rewrite, rewrites.duplicate_results),
    "lift-constants": partial(_apply_rewrite, rewrites.lift_constants),
    "freeze-inputs": partial(_apply_rewrite, rewrites.freeze_inputs),
    "split-batch": partial(_apply_rewrite, split_batch),
    "swap-operands": partial(_apply_rewrite, rewrites.swap_operands),
    "reorder": partial(_apply_rewrite, rewrites.reorder_nodes),
    "add-outputs": partial(_apply_rewrite, rewrites.add_outputs),
}
