"""The rewrites of ONNX models, by name."""

import hashlib
from collections.abc import Mapping
from functools import partial

from onnx import NodeProto

from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.declarations.properties import dropout, random_numbers
from opsieve.gen.irs.ir import Rewriter, Rewritten
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.structure import model_nodes
from opsieve.gen.model.tensors import Value
from opsieve.gen.rewrites import nodes as rewrites
from opsieve.gen.rewrites.batches import split_batch
from opsieve.gen.rewrites.nodes import Rewrite, start_rewriting


def _apply_rewrite(
    rewrite: Rewrite, program: OnnxProgram, inputs: Mapping[str, Value], seed: str
) -> Rewritten | None:
    """Apply a rewrite, in about half of the places if there is a seed."""
    model = program.proto
    if any(map(_is_random, model_nodes(model))):
        return None

    def is_chosen(place: str) -> bool:
        return not seed or hashlib.sha256(f"{seed} {place}".encode()).digest()[0] % 2 == 0

    at = start_rewriting(model, inputs, is_chosen)
    rewrite(at)
    if not at.rewritten:
        return None
    return Rewritten(OnnxProgram(at.finish().SerializeToString(deterministic=True), program.name), at.inputs)


def _is_random(node: NodeProto) -> bool:
    """Return whether a program's results depend on drawn numbers, whose order a rewrite may change."""
    operator = find_operator(node.domain, node.op_type)
    undefined = () if operator is None else operator.undefined
    # Dropout draws in training only, which its third input switches on.
    return random_numbers in undefined or (dropout in undefined and len(node.input) > 2)


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
