"""The names that a program gives its values and nodes, as far as they can be known from words of a compiler's
author.

A message may hold such a name without any quotes (`node conv1/relu_7 has no ...`). What varies from program
to program is no part of a bug's message, so `normalise` replaces it; but a word that the author wrote must
stay whatever the program is like, or one bug gets two fingerprints. So names of letters alone (`data`,
`shape`, `Result`) are not given out, nor those that ONNX's operator pages use (`constant_value`, `ReduceL1`).
"""

import functools
import re
from collections.abc import Collection, Iterable, Iterator

import onnx

from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.structure import all_nodes, bodies

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
