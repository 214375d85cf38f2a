"""PyTorch programs (gen/irs/torch), as the strategy `torch`."""

from opsieve.gen.case.case import Case, Origin
from opsieve.gen.data.inputs import seeded_values
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve.gen.irs.torch.generator import generate_graph
from opsieve.gen.irs.torch.program import TorchProgram

NAME = "torch"


def torch_programs(request: GenRequest, seed: int) -> Case:
    """Return the program of a seed; of the request, the number of nodes counts."""
    program = TorchProgram.from_graph(
        generate_graph(Rng(f"{NAME} {seed}", 0), request.nodes), f"{NAME}-{seed}"
    )
    origin = Origin(NAME, seed, wish=to_record(request))
    return Case(program, seeded_values(program.inputs(), seed), origin=origin)
