"""How much of the packaged architectures programs hold: chains of operators that occur there.

python benchmarks/architecture_chains.py [NAME ...] [--programs 512] [--nodes 20] [--seed 660000]
"""

import argparse
import os
from collections.abc import Iterator

import onnx

from opsieve.gen.generation.architectures import architectures
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate

_PASSED_OVER = ("Constant", "Identity")


def chains(graph: onnx.GraphProto, length: int) -> set[tuple[str, ...]]:
    """Chains of so many operators in the main graph, each reading a result of the one before."""
    makers = {name: node for node in graph.node for name in node.output if node.op_type not in _PASSED_OVER}

    def ending(node: onnx.NodeProto, left: int) -> Iterator[tuple[str, ...]]:
        if left == 1:
            yield (node.op_type,)
            return
        for name in node.input:
            if name in makers:
                for before in ending(makers[name], left - 1):
                    yield (*before, node.op_type)

    return {
        chain for node in graph.node if node.op_type not in _PASSED_OVER for chain in ending(node, length)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["mix"])
    parser.add_argument("--programs", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=660000)
    given = parser.parse_args()
    graphs = [each.model(each.oldest).graph for each in architectures()]
    wanted = {length: {chain for graph in graphs for chain in chains(graph, length)} for length in (3, 4)}
    for name in given.names:
        met: dict[int, set[tuple[str, ...]]] = {3: set(), 4: set()}
        holding = {3: 0, 4: 0}
        for seed in range(given.seed, given.seed + given.programs):
            made = generate(name, seed, GenRequest(nodes=given.nodes)).program
            graph = onnx.load_model_from_string(made.data).graph
            for length, known in wanted.items():
                found = chains(graph, length) & known
                met[length] |= found
                holding[length] += bool(found)
        told = (
            f"of {length}: {len(met[length])} of {len(known)}, in {holding[length] / given.programs:.0%} of"
            " the programs"
            for length, known in wanted.items()
        )
        print(f"{name}: chains {'; '.join(told)}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
