"""Canonical names: inputs x0, x1 ..., stored tensors c0 ..., computed values v0 ..., nodes n0 ..., in the
order of the graph.
"""

from collections.abc import Mapping

import onnx

from opsieve.gen.irs.onnx import program, view
from opsieve.gen.irs.onnx.edits import keep
from opsieve.gen.model.structure import all_nodes, bodies, copied


def make_canonical(subject: view.Subject) -> view.Subject | None:
    """Return the subject with canonical names everywhere; `None` if it already has them.

    Names of one graph stay distinct from all names it can see. A body's names get numbers of their own beyond
    those outside. Names inside local functions stay. Dimensions are called d0, d1 ... The name of a graph
    that records an intended defect stays while the operator it names is present.
    """
    model = copied(subject.model)
    names = _Names()
    top = names.rename(model.graph, {})
    fault = program.read_broken_mark(subject.model)
    # A generated invalid model states its defect in the graph's name, which the judge reads.
    if fault is not None and any(node.op_type == fault.operator for node in all_nodes(model.graph.node)):
        model.graph.name = subject.model.graph.name
    names.rename_dimensions(model.graph)
    if model.SerializeToString(deterministic=True) == subject.model.SerializeToString(deterministic=True):
        return None
    inputs = {top.get(name, name): value for name, value in subject.inputs.items()}
    values = {top[name]: value for name, value in subject.values.items() if name in top}
    return view.Subject(model, inputs, values)


class _Names:
    def __init__(self) -> None:
        self.counts = dict.fromkeys("xcvngd", 0)
        self.dimensions: dict[str, str] = {}

    def fresh(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind] - 1}"

    def rename(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> dict[str, str]:
        """Rename a graph and its bodies; returns the new name of every name that it defines or sees."""
        names = dict(outer)
        graph.name = self.fresh("g")
        for info in graph.input:
            names[info.name] = info.name = self._give_name(names, info.name, "x")
        inputs = {info.name for info in graph.input}
        for tensor in graph.initializer:
            if names.get(tensor.name) in inputs:
                # An initializer under the name of an input is its default: both keep one name.
                tensor.name = names[tensor.name]
            else:
                names[tensor.name] = tensor.name = self._give_name(names, tensor.name, "c")
        for sparse in graph.sparse_initializer:
            names[sparse.values.name] = sparse.values.name = self._give_name(names, sparse.values.name, "c")
        for node in graph.node:
            for body in bodies(node):
                self.rename(body, names)
            for place, name in enumerate(node.input):
                if name:
                    node.input[place] = names.get(name, name)
            # Nodes without a name stay so: names are optional, and a name would make the model larger.
            if node.name:
                node.name = self.fresh("n")
            for place, name in enumerate(node.output):
                if name:
                    node.output[place] = self._give_name(names, name, "v")
        for info in graph.output:
            info.name = names.get(info.name, info.name)
        keep(graph.value_info, lambda info: info.name in names)
        for info in graph.value_info:
            info.name = names[info.name]
        # Annotations refer to tensors by their old names.
        del graph.quantization_annotation[:]
        return names

    def _give_name(self, names: dict[str, str], name: str, kind: str) -> str:
        names[name] = self.fresh(kind)
        return names[name]

    def rename_dimensions(self, graph: onnx.GraphProto) -> None:
        """Rename the symbolic dimensions; those of equal name keep equal names."""
        for info in (*graph.input, *graph.output, *graph.value_info):
            for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                if dim.dim_param:
                    if dim.dim_param not in self.dimensions:
                        self.dimensions[dim.dim_param] = self.fresh("d")
                    dim.dim_param = self.dimensions[dim.dim_param]
