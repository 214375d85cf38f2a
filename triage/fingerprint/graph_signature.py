"""The shape of a small graph in words: what identifies a wrong result once its program is reduced.

Names, sizes and values are the program's own and vary between two programs that show one bug; which operators
there are, what feeds what, of which rank the tensors are, and of which class the attributes, is what the
compiler's rules match on.
"""

from collections.abc import Iterable

import onnx

from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.structure import all_nodes
from opsieve.triage.fingerprint.evidence import Signature

MOST_NODES = 12  # a graph with more nodes is not reduced, and its shape says little
_MAX_WORD = 100


def signature_of(model: onnx.ModelProto) -> Signature:
    """The signature of a model's graph, its bodies included; an empty one for more than `MOST_NODES` nodes.
    No code of a compiler runs.
    """
    nodes = list(all_nodes(model.graph.node))
    if len(nodes) > MOST_NODES:
        return Signature()
    made = {name: node.op_type for node in nodes for name in node.output if name}
    ranks = _ranks(model.graph)
    edges: set[str] = set()
    ranked: set[str] = set()
    attributes: set[str] = set()
    for node in nodes:
        fed = [name for name in node.input if name]
        edges.update(f"{made.get(name, '')}>{node.op_type}" for name in fed)
        if fed and fed[0] in ranks:
            ranked.add(f"{node.op_type}:{ranks[fed[0]]}")
        attributes.update(
            f"{node.op_type}.{item.name}={kind}"
            for item in node.attribute
            if (kind := _class(item)) is not None
        )
    return Signature(
        _words(node.op_type for node in nodes), _words(edges), _words(ranked), _words(attributes)
    )


def program_signature(program: Program) -> Signature:
    """The signature of a program of any form; of a module of TVM its operators and what feeds what."""
    if isinstance(program, OnnxProgram):
        return signature_of(program.proto)
    if program.size > MOST_NODES:
        return Signature()
    edges = (f"{producer}>{consumer}" for producer, consumer in program.edges())
    return Signature(_words(program.operators()), _words(edges))


def _words(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({"".join(item.split())[:_MAX_WORD] for item in items}))


def _ranks(graph: onnx.GraphProto) -> dict[str, int]:
    declared = {
        item.name: len(item.type.tensor_type.shape.dim)
        for item in [*graph.input, *graph.output, *graph.value_info]
        if item.type.tensor_type.HasField("shape")
    }
    return declared | {tensor.name: len(tensor.dims) for tensor in graph.initializer}


def _class(item: onnx.AttributeProto) -> str | None:
    """The class of an attribute's value, None for one that says nothing: a tensor, a graph, a real number."""
    if item.type == onnx.AttributeProto.INT:
        return str(item.i) if item.i in (0, 1) else "n"
    if item.type == onnx.AttributeProto.STRING:
        return item.s.decode("utf-8", "replace")[:40]
    if item.type == onnx.AttributeProto.INTS:
        values = set(item.ints)
        return "zeros" if values <= {0} else "equal" if len(values) == 1 else "mixed"
    return None
