"""How many faults made after fixes of real optimisers the programs of a strategy reach.

    python benchmarks/planted_fixes.py [NAME] [--programs 3000] [--seed 0]

Each fault is what an optimiser that lacks the fix would have rewritten wrongly: operators that read one
another, and the condition that the fix added. It is reached when a program has them. No compiler is asked:
this measures what programs offer, not what a judge sees. The fixes were taken from issue trackers and are not
those that the rewrites of `pattern` were read for.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import onnx
from onnx import numpy_helper

from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.plan import USUAL

MAX32 = 2**31 - 1


@dataclass
class Graph:
    """One graph of a model, with types, constants and readers; `depth` counts the graphs around it."""

    model: onnx.ModelProto
    nodes: list[onnx.NodeProto]
    depth: int = 0
    constants: dict[str, list[float]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)

    def chains(self, *ops: str) -> Iterator[list[onnx.NodeProto]]:
        """Nodes of these operators (several with |), each of which reads the one before it."""

        def go_on(chain: list[onnx.NodeProto]) -> Iterator[list[onnx.NodeProto]]:
            if len(chain) == len(ops):
                yield chain
                return
            for output in chain[-1].output:
                for reader in self.readers.get(output, []):
                    if reader.op_type in ops[len(chain)].split("|"):
                        yield from go_on([*chain, reader])

        for node in self.nodes:
            if node.op_type in ops[0].split("|"):
                yield from go_on([node])

    def rank(self, name: str) -> int:
        return len(self.shapes.get(name, ()))

    def ints(self, node: onnx.NodeProto, place: int) -> list[float]:
        """The elements of a constant input; empty if it is none."""
        return self.constants.get(node.input[place], []) if len(node.input) > place else []

    def is_shared(self, node: onnx.NodeProto) -> bool:
        """Whether the first output is read twice or is an output of the program."""
        name = node.output[0]
        return name in self.outputs or len(self.readers.get(name, [])) > 1


def attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    return next(
        (
            onnx.helper.get_attribute_value(each)
            for each in node.attribute
            if each.name == name and not each.ref_attr_name
        ),
        default,
    )


def graphs(model: onnx.ModelProto) -> Iterator[Graph]:
    shapes = {
        info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    constants = {
        each.name: numpy_helper.to_array(each).ravel().tolist()
        for each in model.graph.initializer
        if math.prod(each.dims) < 64
    }
    shapes |= {each.name: tuple(each.dims) for each in model.graph.initializer}

    def visit(nodes: list[onnx.NodeProto], outputs: set[str], depth: int) -> Iterator[Graph]:
        made = Graph(model, nodes, depth, constants, shapes, outputs)
        for node in nodes:
            for output in node.output:
                made.makers[output] = node
            for name in dict.fromkeys(node.input):
                made.readers.setdefault(name, []).append(node)
            for each in node.attribute:
                if node.op_type == "Constant" and each.name == "value" and each.HasField("t"):
                    constants[node.output[0]] = numpy_helper.to_array(each.t).ravel().tolist()
                    shapes[node.output[0]] = tuple(each.t.dims)
                if each.type == onnx.AttributeProto.GRAPH:
                    shapes.update(
                        {
                            info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
                            for info in (*each.g.value_info, *each.g.output)
                        }
                    )
                    inner = {output.name for output in each.g.output}
                    yield from visit(list(each.g.node), inner, depth + 1)
        yield made

    yield from visit(list(model.graph.node), {output.name for output in model.graph.output}, 0)
    for function in model.functions:
        yield from visit(list(function.node), set(function.output), 1)


def normal(axes: list[float], rank: int) -> set[int]:
    return {int(axis) % rank for axis in axes} if rank else set()


def quick_gelu(g: Graph) -> bool:
    return any(
        (b.output[0] in g.outputs or a.output[0] in g.outputs) and a.input[0] in c.input
        for a, b, c in g.chains("Mul", "Sigmoid", "Mul")
    )


def gemm_bias_transposed(g: Graph) -> bool:
    return any(len(b.input) > 2 and b.input[2] == a.output[0] for a, b in g.chains("Transpose", "Gemm"))


def bias_wider_than_product(g: Graph) -> bool:
    return any(g.shapes.get(a.output[0]) != g.shapes.get(b.output[0]) for a, b in g.chains("MatMul", "Add"))


def slice_backwards_of_same_shape(g: Graph) -> bool:
    return any(
        -1 in g.ints(node, 4)
        and g.shapes.get(node.input[0]) == g.shapes.get(node.output[0], ())
        and g.shapes.get(node.input[0], ())[int((g.ints(node, 3) or [0])[0])] > 1
        for (node,) in g.chains("Slice")
    )


def concat_sliced_on_another_axis(g: Graph) -> bool:
    return any(
        g.ints(b, 3) and int(attribute(a, "axis", 0)) % g.rank(a.output[0]) not in normal(g.ints(b, 3), g.rank(a.output[0]))  # type: ignore[call-overload]
        for a, b in g.chains("Concat", "Slice")
        if g.rank(a.output[0])
    )  # fmt: skip


def squeezes_of_negative_axes(g: Graph) -> bool:
    return any(any(axis < 0 for axis in g.ints(b, 1)) for _, b in g.chains("Squeeze", "Squeeze"))


def expand_of_lower_rank(g: Graph) -> bool:
    return any(
        g.ints(node, 1) and len(g.ints(node, 1)) != g.rank(node.input[0]) for (node,) in g.chains("Expand")
    )


def shape_of_part(g: Graph) -> bool:
    return any(attribute(node, "end") is not None for (node,) in g.chains("Shape"))


def gather_of_shape_of_part(g: Graph) -> bool:
    return any(
        attribute(a, "start", 0) != 0 and any(index < 0 for index in g.ints(b, 1))
        for a, b in g.chains("Shape", "Gather")
    )


def slice_of_shape_of_part(g: Graph) -> bool:
    return any(attribute(a, "start", 0) != 0 for a, _ in g.chains("Shape", "Slice"))


def transpose_reduced_by_input_axes(g: Graph) -> bool:
    return any(len(b.input) > 1 for _, b in g.chains("Transpose", "ReduceMax|ReduceMin|ReduceMean|ReduceL2"))


def conv_swapped_conv(g: Graph) -> bool:
    return any(
        list(attribute(b, "perm", [])) == [0, 1, 3, 2]  # type: ignore[call-overload]
        for _, b, _ in g.chains("Conv", "Transpose", "Conv")
    )


def conv_squeezed(g: Graph) -> bool:
    return any(1 in normal(g.ints(b, 1), g.rank(b.input[0])) for _, b in g.chains("Conv", "Squeeze"))


def attention_scaled_by_tensor(g: Graph) -> bool:
    return any(
        any(math.prod(g.shapes.get(name, ())) > 1 for name in b.input if name != a.output[0])
        for a, b, _, _ in g.chains("MatMul", "Mul|Div", "Softmax", "MatMul")
    )


def transpose_slice_shared_axes(g: Graph) -> bool:
    return any(
        len(b.input) > 3 and len(g.readers.get(b.input[3], [])) > 1 for _, b in g.chains("Transpose", "Slice")
    )


def transpose_mul_of_rank_five(g: Graph) -> bool:
    return any(
        g.rank(a.output[0]) == 5 and any(name in g.constants for name in b.input)
        for a, b in g.chains("Transpose", "Mul")
    )


def concat_not_first(g: Graph) -> bool:
    return any(b.input[0] != a.output[0] and attribute(a, "axis") == attribute(b, "axis") for a, b in g.chains("Concat", "Concat"))  # fmt: skip


def squeeze_in_body(g: Graph) -> bool:
    return g.depth > 0 and any(g.ints(node, 1) for (node,) in g.chains("Squeeze"))


def resizes_around_mean(g: Graph) -> bool:
    return any(g.chains("Resize", "ReduceMean", "Resize"))


def transposes_around_reshape(g: Graph) -> bool:
    return any(
        g.rank(b.input[0]) != g.rank(b.output[0]) for _, b, _ in g.chains("Transpose", "Reshape", "Transpose")
    )


# By issue or pull request of the project
FAULTS: dict[str, Callable[[Graph], bool]] = {
    "onnxruntime 15109": quick_gelu,
    "onnxruntime 12071": gemm_bias_transposed,
    "onnxruntime 3764": bias_wider_than_product,
    "onnxruntime 14609": transpose_reduced_by_input_axes,
    "openvino 3179": slice_backwards_of_same_shape,
    "openvino 29555": concat_sliced_on_another_axis,
    "onnxoptimizer 253": squeezes_of_negative_axes,
    "onnxoptimizer 275": expand_of_lower_rank,
    "onnxoptimizer 279": shape_of_part,
    "onnxoptimizer 280": gather_of_shape_of_part,
    "onnxslim 38": slice_of_shape_of_part,
    "onnx 2436": concat_not_first,
    "onnxscript 2810": squeeze_in_body,
    "tvm 10109": conv_swapped_conv,
    "tvm 10528": conv_squeezed,
    "tvm 12007": resizes_around_mean,
    "tvm 7807": transposes_around_reshape,
    "pytorch 99124": attention_scaled_by_tensor,
    "tensorflow-onnx 934": transpose_slice_shared_axes,
    "tensorflow-onnx 1387": transpose_mul_of_rank_five,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="mix")
    parser.add_argument("--programs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    met, first, makers = Counter[str](), dict[str, int](), dict[str, Counter[str]]()
    for number in range(given.programs):
        case = generate(given.name, given.seed + number, replace(USUAL, types=True))
        found = {
            name
            for graph in graphs(onnx.load_model_from_string(case.program.data))
            for name, fault in FAULTS.items()
            if fault(graph)
        }
        met.update(found)
        for name in found:
            first.setdefault(name, number)
            makers.setdefault(name, Counter())[case.origin.generator] += 1
    for name in FAULTS:
        by = ", ".join(f"{maker} {count}" for maker, count in makers.get(name, Counter()).most_common())
        print(f"{name:22} {met[name]:5} programs, first {first.get(name, '-'):>5}; {by}")
    print(
        f"{given.name}: {len(met)} of {len(FAULTS)} faults in {given.programs} programs from seed {given.seed}"
    )


if __name__ == "__main__":
    main()
