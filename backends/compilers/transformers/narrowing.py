"""The checks for a tool that gives up precision by design: constants within the bound of their new format,
and the same program around them.

The result of such a tool is not compared with the values of the original. It must load and run, and declare
the same as the original; every constant that it narrowed must lie within the step of its format; and the
result with its precision restored (original constants, casts and quantisation undone) must compute the same
as the original, by the usual policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opsieve.backends.compilers.worker_common import BrokenModel


def iter_graphs(model: Any) -> Iterator[Any]:
    """Yield the graph of a ModelProto and every graph within its nodes, then those of its functions."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop(0)
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def constants_by_name(model: Any) -> dict[str, Any]:
    """Map the names of initializers and of values of Constant nodes to their TensorProtos; the first tensor
    of a name is kept.
    """
    found: dict[str, Any] = {}
    for graph in iter_graphs(model):
        for tensor in getattr(graph, "initializer", ()):
            # A name can occur again inside of a graph.
            found.setdefault(tensor.name, tensor)
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                found.setdefault(node.output[0], node.attribute[0].t)
    return found


def element_types(model: Any) -> list[int]:
    """Return the element types in all places where a narrowing tool could introduce them: constants, casts,
    declared values.
    """
    kinds = [tensor.data_type for tensor in constants_by_name(model).values()]
    for graph in iter_graphs(model):
        for node in graph.node:
            kinds += [attribute.i for attribute in node.attribute if attribute.name in ("to", "dtype")]
        kinds += [value.type.tensor_type.elem_type for value in typed_values(graph)]
    return kinds


def typed_values(graph: Any) -> list[Any]:
    """Return the declared values of a graph or a function, whose inputs and outputs are names alone."""
    values = [value for name in ("input", "output", "value_info") for value in getattr(graph, name, ())]
    return [value for value in values if not isinstance(value, str)]


def check_rounding(name: str, narrow: Any, wide: Any, step: Any) -> None:
    """Raise BrokenModel if a narrowed constant lies further than `step` (one number, or one an element) from
    its old value.
    """
    import numpy as np

    if np.shape(narrow) != np.shape(wide):
        raise BrokenModel(
            f"the constant {name[:60]!a} has the shape {np.shape(narrow)} and had {np.shape(wide)}"
        )
    got, want = np.asarray(narrow, np.float64), np.asarray(wide, np.float64)
    # Equal infinities, whose difference is NaN, are the same.
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        # Not `> step`, which a NaN would pass.
        bad = ~same & ~(np.abs(got - want) <= step)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        said = (name[:60], list(place), got[place], want[place])
        raise BrokenModel(
            "the constant {!a} at {} is {:.9g}, beyond a step of its format from {:.9g}".format(*said)
        )


def run_both(narrowed: Callable[[Any], Any], restored: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that runs the narrowed model, compares the shapes and types of its results with those
    of the restored one, and returns the latter's.
    """

    def run(values: Any) -> Any:
        import numpy as np

        got, right = narrowed(values), restored(values)
        for name, value in right.items():
            if isinstance(value, (list, type(None))):
                # The elements of a sequence differ in shape
                continue
            kinds: list[tuple[Any, ...]] = [
                (np.shape(each), getattr(each, "dtype", None)) for each in (got[name], value)
            ]
            if kinds[0] != kinds[1]:
                said = (name[:60], kinds[0][1], list(kinds[0][0]), kinds[1][1], list(kinds[1][0]))
                raise BrokenModel(
                    "the narrowed model gives {!a} as {}{}, and with its precision back as {}{}".format(*said)
                )
        # The values of the restored one: those of the narrowed one are wrong by design.
        return right

    return run
