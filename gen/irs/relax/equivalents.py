"""Relax modules that mean the same: rewrites of one function, as metamorphic relations use them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from opsieve.gen.irs.ir import Rewriter, Rewritten
from opsieve.gen.irs.relax import rewrites
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.walk import functions
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.irs.tvm.nodes import MalformedGraph
from opsieve.gen.model.tensors import Value


def _rewrite(name: str, program: RelaxProgram, inputs: Mapping[str, Value], seed: str) -> Rewritten | None:
    """The module after a rewrite of its last function, or of the one that a seed chooses."""
    try:
        module = from_json(program.module.decode())
    except (MalformedGraph, UnicodeDecodeError):
        # It holds nodes that the trees of gen/irs/relax lack.
        return None
    places = [each for each, _ in functions(module)]
    if not places:
        return None
    place = places[(int(seed) if seed else len(places) - 1) % len(places)]
    text = to_json(rewrites.REWRITES[name](module, place)).encode()
    changed = replace(program, module=text, script="", script_is_exact=False)
    # The rewrites give parameters new names and keep their order.
    return Rewritten(
        changed, {new: inputs[old] for old, new in zip(program.inputs(), changed.inputs(), strict=True)}
    )


REWRITES: Mapping[str, Rewriter[RelaxProgram]] = {name: partial(_rewrite, name) for name in rewrites.REWRITES}
