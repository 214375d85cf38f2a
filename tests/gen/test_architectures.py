"""Parts of architectures that programs are mutated from: valid at every opset that they say, cut and spliced
soundly.
"""

import onnx
import onnx.checker
import onnx.shape_inference
import pytest

from opsieve.gen.analysis.reading import Source
from opsieve.gen.declarations.catalogue import OLDEST
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.pieces import cut_piece
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.strategies.mutate import draw_architecture, load_architectures, read_architecture, read_at
from opsieve.gen.strategies.registry import generate


def test_every_architecture_is_valid_at_the_oldest_and_newest_opset_that_it_says() -> None:
    assert len({each.name for each in load_architectures()}) == len(load_architectures()) > 30
    for each in load_architectures():
        assert OLDEST <= each.oldest <= each.newest <= SUPPORTED
        for opset in {each.oldest, each.newest}:
            model = each.parse_model(opset)
            onnx.checker.check_model(model, full_check=True)
            onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True)


def test_every_architecture_can_be_read_at_every_opset_that_it_says() -> None:
    for opset in range(OLDEST, SUPPORTED + 1):
        there = [each for each in load_architectures() if each.oldest <= opset <= each.newest]
        assert there
        for each in there:
            source = read_architecture(each, opset)
            assert source.nodes
            leaves = [
                tensor for node in source.nodes for tensor in node.ins if tensor is not None and tensor.leaf
            ]
            assert all(
                (tensor.leaf == "input") != tensor.name.startswith("w")
                for tensor in leaves
                if not tensor.values
            )


@pytest.mark.slow(seconds=3)
def test_what_is_read_once_is_what_the_oldest_and_newest_opset_give() -> None:
    for each in load_architectures():
        for opset in {each.oldest, each.newest}:
            assert told(read_at(each, opset)) == told(read_architecture(each, opset))


def told(value: object) -> object:
    """All that a source holds, as text."""
    if isinstance(value, list | tuple):
        return [told(each) for each in value]
    if isinstance(value, dict):
        return {name: told(each) for name, each in value.items()}
    if isinstance(value, Source | Node | BodyGraph | Tensor):
        held = ((name, getattr(value, name)) for name in dir(value) if not name.startswith("_"))
        return [type(value), *((name, told(each)) for name, each in held if not callable(each))]
    return repr(value)


def test_a_cut_is_connected_in_order_and_reads_nothing_that_is_not_there() -> None:
    for seed in range(60):
        rng = Rng(f"cut {seed}")
        source = draw_architecture(rng, 17)
        assert source is not None
        part = cut_piece(source, rng, 5)
        made: set[str] = set()
        touched: list[set[str]] = []
        for node in part.nodes:
            for tensor in node.ins:
                assert tensor is None or tensor.leaf or tensor.name in made
            made |= {out.name for out in node.outs}
            touched.append(
                {each.name for each in (*node.ins, *node.outs) if each is not None and not each.leaf}
            )
        assert len(part.nodes) <= max(5, len(source.nodes) if part is source else 5)
        joined = touched[0]
        for _ in touched:
            joined = joined.union(*(names for names in touched if names & joined))
        assert all(names & joined for names in touched)
        assert part.outputs


def test_mutated_programs_have_structures_of_architectures_and_are_valid() -> None:
    met: set[str] = set()
    for seed in range(80):
        program = generate("mutate", seed, GenRequest(nodes=15)).program
        model = onnx.load_from_string(program.model)  # type: ignore[union-attr]
        onnx.checker.check_model(model, full_check=True)
        met |= {node.op_type for node in model.graph.node}
    assert {"Conv", "MatMul", "Reshape", "Transpose"} <= met
    again = generate("mutate", 3, GenRequest(nodes=15)).program
    assert again.digest == generate("mutate", 3, GenRequest(nodes=15)).program.digest


def test_operators_and_dtypes_that_were_not_asked_for_do_not_come_with_a_part() -> None:
    only = frozenset(("Add", "Mul", "Relu", "MatMul", "Identity", "Cast"))
    for seed in range(30):
        program = generate(
            "mutate", seed, GenRequest(nodes=8, only=only, dtypes=frozenset(("float32",)))
        ).program
        assert {node.op_type for node in program.proto.graph.node} <= only | {"Constant"}  # type: ignore[union-attr]
