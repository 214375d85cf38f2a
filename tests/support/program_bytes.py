"""What programs of equal seeds are made of, as one digest."""

import hashlib
from collections.abc import Sequence

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate


def digest(names: Sequence[str]) -> str:
    found = hashlib.sha256()
    for name in names:
        for seed in (0, 1, 2, 300):
            case = generate(name, seed, GenRequest(nodes=8, between=(4, 9)))
            found.update(case.program.digest.encode())
            for key in sorted(case.inputs):
                found.update(repr(case.inputs[key]).encode())
    return found.hexdigest()
