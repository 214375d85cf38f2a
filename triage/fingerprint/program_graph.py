"""What a fingerprint takes from a program: the names that it gives its values, and the shape of a small graph.

A message may hold a name of the program without any quotes (`node conv1/relu_7 has no ...`). Such names vary
between programs and are no part of a bug's message, so `normalise` replaces them. A word that an author wrote
must stay whatever the program is like, or one bug gets two fingerprints. So names of letters alone (`data`,
`shape`, `Result`) are not given out, nor those that ONNX's operator pages use (`constant_value`, `ReduceL1`).

The signature identifies a wrong result once its program is reduced. Names, sizes and values vary between two
programs that show one bug; the compiler's rules match on the operators, what feeds what, the ranks of tensors
and the classes of attributes.
"""

import functools
import re
from collections.abc import Collection, Iterable, Iterator

import onnx

from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.triage.fingerprint.component import Signature

_NOT_IN_A_NAME = re.compile(r"\W")


class ProgramNames(Collection[str]):
    """The names that a program of any form gives, as `given_names` has them; gathered when a word that could
    be one is looked up.
    """

    def __init__(self, program: Program):
        self._program = program

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        if isinstance(self._program, OnnxProgram):
            return given_names(self._program.proto)
        return frozenset(filter(_is_telling, self._program.names()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _is_telling(name) and name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        """True without gathering them: every program names something."""
        return True


def program_names(program: Program) -> Collection[str]:
    """The names that a program of any form gives."""
    return ProgramNames(program)


def given_names(model: onnx.ModelProto) -> frozenset[str]:
    """The names of inputs, outputs, initializers, values and nodes, of bodies and functions too, that no
    author would write.

    Each also as a compiler writes that takes only letters, digits and underscores (`conv1/relu:0`,
    `conv1_relu_0`). A name of one letter is there, too: alone a letter tells nothing, whoever wrote it.
    """
    nodes = list(
        all_nodes([*model.graph.node, *(node for function in model.functions for node in function.node)])
    )
    found = {name for graph in _graphs(model.graph, nodes) for name in _of_graph(graph)}
    found |= {name for node in nodes for name in (node.name, *node.input, *node.output)}
    found |= {name for function in model.functions for name in (*function.input, *function.output)}
    # bytes: it is no UTF-8
    found |= {_NOT_IN_A_NAME.sub("_", name) for name in found if isinstance(name, str)}
    words = _words_of_onnx() | {node.op_type for node in nodes}
    return frozenset(
        name for name in found if isinstance(name, str) and _is_telling(name) and name not in words
    )


def _is_telling(name: str) -> bool:
    return len(name) == 1 if name.isalpha() else any(sign.isalnum() for sign in name) and not name.isdecimal()


def _graphs(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in nodes:
        yield from bodies(node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[str]:
    for part in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from (item.name for item in part)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


@functools.cache
def _words_of_onnx() -> frozenset[str]:
    """Operators, their parameters and attributes, as the installed onnx documents them."""
    found: set[str] = set()
    for schema in onnx.defs.get_all_schemas():
        found.add(schema.name)
        found.update(schema.attributes)
        found.update(parameter.name for parameter in (*schema.inputs, *schema.outputs))
    return frozenset(found)


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
